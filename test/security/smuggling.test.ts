/** Tests attacks on the line between Tollgate and a server: one call here must be one message there. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Session } from '../../facade/serve/facade-port.ts';
import { ACT, type RawFacade, startRaw, tool } from '../properties/raw-facade.ts';
import { verifies } from '../verifies.ts';

let facade: RawFacade;
let session: Session;

beforeAll(async () => {
  facade = await startRaw(
    { one: { tools: [ACT, tool('open'), tool('wipe')] } },
    {
      rules: [
        { id: 'all', outcome: 'allow', when: { servers: ['one'] } },
        { id: 'no', outcome: 'deny', message: 'Never.', when: { tools: ['one.wipe'] } },
      ],
    },
  );
  session = facade.open('me');
  await facade.list(session);
});
afterAll(() => facade.close());

describe('message smuggling', () => {
  const inner = '{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"wipe","arguments":{}}}';

  it.each(['\n', '\r\n', '\r'])(
    'with a line break %j between the tokens of the arguments does not make a second call without a decision' +
      verifies('CY-16', 'PF-09'),
    async (end) => {
      const before = facade.lines('one').length;
      const answer = await facade.call(session, 'one_open', undefined, { text: `{"x":${end}${inner}${end}}` });
      expect(answer.code).toBe('');
      const got = facade.lines('one').slice(before);
      expect(got).toHaveLength(1);
      expect(got[0]).not.toMatch(/[\r\n]/);
      expect(facade.calls('one').at(-1)).toMatchObject({
        name: 'open',
        args: `{"x":${end.replace(/./gs, ' ')}${inner}${end.replace(/./gs, ' ')}}`,
      });
    },
  );

  it('with line breaks, quotes and braces in a name leaves it a name', async () => {
    const before = facade.lines('one').length;
    for (const name of [
      `x"}}\n${inner}`,
      `one_open\n${inner}`,
      '__proto__',
      'constructor',
      'toString',
      'hasOwnProperty',
      '',
      ' one_open',
      'one_open ',
      'ONE_OPEN',
      'ONE.open',
      `one.open\n${inner}`,
    ]) {
      expect((await facade.call(session, name, {})).code, name).toBe('UNKNOWN_TOOL');
    }
    expect(facade.lines('one')).toHaveLength(before);
  });

  it('with _meta of a host stays in _meta, and keys of Tollgate do not travel', async () => {
    const meta = {
      traceparent: `00-1\n${inner}`,
      'tollgate/run': 'r1',
      'tollgate/principal': 'boss',
      nested: { progressToken: 5 },
    };
    await facade.call(session, 'one_open', {}, { meta });
    const { params } = JSON.parse(facade.calls('one').at(-1)?.line ?? '') as { params: Record<string, unknown> };
    expect(params._meta).toEqual({ traceparent: meta.traceparent, nested: meta.nested });
    expect(Object.keys(params)).toEqual(['name', 'arguments', '_meta']);
  });

  it('with a result over several lines fails its own call only, and adds no answer', async () => {
    const raw = '{"content":[],\n"x":{"jsonrpc":"2.0","id":1,"result":{}}}';
    const answers = await Promise.all([
      facade.call(
        session,
        'one_act',
        { line: `{"jsonrpc":"2.0","id":$ID,"result":${raw}}` },
        { signal: AbortSignal.timeout(400) },
      ),
      facade.call(session, 'one_open', {}),
    ]);
    expect(answers.map(({ code }) => code)).toEqual(['CANCELLED', '']);
  });
});

describe('arguments that are sent as a text', () => {
  it('are parsed as strictly as the wire: no duplicate key, no lone surrogate, no rounded number', async () => {
    for (const inner of [
      '{"path":"a","path":"/etc/passwd"}',
      '{"a":"\\ud800"}',
      '[1]',
      '{"a":1} {"b":2}',
      '"\\"{}\\""',
    ]) {
      expect((await facade.call(session, 'one_open', inner)).code, inner).toBe('ARGS_INVALID');
    }
    const exact = '{ "id": 12345678901234567890, "x": -0 }';
    expect((await facade.call(session, 'one_open', exact)).code).toBe('');
    expect(facade.calls('one').at(-1)?.args).toBe(exact);
  });
});
