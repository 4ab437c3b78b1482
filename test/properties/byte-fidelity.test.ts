/** Tests by property that the policy sees the bytes that are sent, and that results pass unchanged. */
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { jsonMembers, readMessage } from '../../adapters/rpc/message-parser.ts';
import { joinText } from '../../adapters/rpc/wire-message.ts';
import type { Dispatch } from '../../facade/serve/legacy-dispatch.ts';
import { openDispatch } from '../../facade/serve/session-dispatch.ts';
import type { CallInput, Policy } from '../../policies/port.ts';
import { roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import { objectText, valueText } from './json-text.ts';
import { ACT, memberOf, type RawFacade, startRaw, theirMeta, tool, without } from './raw-facade.ts';

let facade: RawFacade;
let wire: Dispatch;
const seen: CallInput[] = [];
let lastId = 0;

beforeAll(async () => {
  const typed = {
    type: 'object',
    properties: { count: { type: 'integer' }, name: { type: 'string' } },
    required: ['count'],
    additionalProperties: false,
  };
  facade = await startRaw(
    { one: { tools: [ACT, tool('open'), tool('typed', { inputSchema: typed })] } },
    { caps: { bytes: 1_000_000, lines: 100_000 } },
  );
  const { deps, gateway } = facade.assembled;
  const real = deps.policy();
  const recording: Policy = {
    revision: real.revision,
    close: () => real.close(),
    list: (principal, tools) => real.list(principal, tools),
    call: (input) => (seen.push(input), real.call(input)),
    confinement: (server, principal) => real.confinement(server, principal),
    unbound: (servers) => real.unbound(servers),
  };
  Object.assign(deps, { policy: () => recording });
  wire = openDispatch('legacy', {
    facade: gateway,
    session: facade.open('me'),
    notify: () => undefined,
    onFault: (thrown) => {
      throw thrown;
    },
  });
  await send(
    'initialize',
    '{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}',
  );
  await send('tools/list', '{}');
});
afterAll(() => facade.close());

/** Sends one message as a client would write it. Returns the text of the answer. */
async function send(method: string, params: string): Promise<string> {
  lastId += 1;
  return joinText(
    (await wire.handle(
      readMessage(Buffer.from(`{"jsonrpc":"2.0","id":${lastId},"method":"${method}","params":${params}}`), 'client'),
      () => undefined,
    )) ?? '',
  );
}

describe('the arguments that the policy saw are sent', () => {
  it('with their bytes unchanged and in order: client, policy, server' + verifies('CY-15'), async () => {
    await fc.assert(
      fc.asyncProperty(objectText(valueText()), async (args) => {
        const answer = await send('tools/call', `{"name":"one_open","arguments":${args}}`);
        expect(memberOf(answer, 'error'), args).toBe('');
        expect(seen.at(-1)?.argsText).toBe(args);
        expect(facade.calls('one').at(-1)).toMatchObject({ name: 'open', args });
      }),
      { numRuns: roundsOf(250, 50) },
    );
  }, 60_000);

  it('and if they were repaired, the policy saw the repaired bytes, and the reply says so', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: -1000, max: 1000 }),
        fc.string({ unit: 'grapheme', maxLength: 20 }),
        async (count, name) => {
          const answer = await send(
            'tools/call',
            `{"name":"one_typed","arguments":${JSON.stringify({ count: String(count), name })}}`,
          );
          expect(seen.at(-1)?.argsText).toBe(facade.calls('one').at(-1)?.args);
          expect(JSON.parse(seen.at(-1)?.argsText ?? '')).toEqual({ count, name });
          expect(answer).toContain('[tollgate: ');
        },
      ),
      { numRuns: roundsOf(40, 20) },
    );
  }, 60_000);

  it('and arguments that stage 3 refuses reach neither policy nor server', async () => {
    await fc.assert(
      fc.asyncProperty(
        objectText(valueText({ depth: 1 })).filter((text) => !/"count"/.test(text)),
        async (args) => {
          const [asked, sent] = [seen.length, facade.calls('one').length];
          expect(await send('tools/call', `{"name":"one_typed","arguments":${args}}`)).toContain('"ARGS_INVALID"');
          expect([seen.length, facade.calls('one').length]).toEqual([asked, sent]);
        },
      ),
      { numRuns: roundsOf(60, 20) },
    );
  }, 60_000);
});

describe('a result passes byte for byte', () => {
  /** Content of known and unknown types, with unusual keys. Without links, because these may be removed. */
  const type = fc.constantFrom('"text"', '"image"', '"audio"', '"resource"', '"x-unknown"', '"TEXT"');
  const item = fc.tuple(type, objectText(valueText({ depth: 2 }))).map(([kind, rest]) => {
    const others = jsonMembers(rest)
      .filter(({ key }) => !['type', 'text', 'data'].includes(key))
      .map(({ key, start, end }) => `${JSON.stringify(key)}:${rest.slice(start, end)}`);
    const text = kind === '"text"' ? ['"text" : "a\\/b\\u00e9 é"'] : [];
    return `{${[`"type":${kind}`, ...text, ...others].join(' ,')}}`;
  });
  const content = fc.array(item, { maxLength: 4 }).map((items) => `[${items.join(', ')}]`);
  /** `_meta` that is absent, an object, or a value that no server should send. */
  const meta = fc.oneof(
    fc.constant(undefined),
    objectText(valueText({ depth: 1 })),
    fc.constantFrom('null', '7', '[1]', '"x"'),
  );
  const result = fc
    .record({
      content,
      structured: fc.option(objectText(valueText({ depth: 2 })), { nil: undefined }),
      meta,
      isError: fc.constantFrom(undefined, 'true', 'false'),
      extra: fc.option(valueText({ depth: 2 }), { nil: undefined }),
      order: fc.boolean(),
    })
    .map(({ order, ...parts }) => {
      const all = [
        ['content', parts.content],
        ['structuredContent', parts.structured],
        ['_meta', parts.meta],
        ['isError', parts.isError],
        ['x-more', parts.extra],
      ] as const;
      const given = all.filter(([, text]) => text !== undefined).map(([key, text]) => `"${key}" : ${text ?? ''}`);
      return `{ ${(order ? given : given.reverse()).join(' , ')} }`;
    });

  it("except for Tollgate's keys in _meta" + verifies('HA-23', 'CY-15'), async () => {
    await fc.assert(
      fc.asyncProperty(result, async (raw) => {
        const answer = await send('tools/call', `{"name":"one_act","arguments":${JSON.stringify({ raw })}}`);
        const got = memberOf(answer, 'result');
        expect(without(got), raw).toEqual(without(raw));
        expect(theirMeta(got)).toEqual(theirMeta(raw));
        expect(memberOf(memberOf(got, '_meta'), 'tollgate/provenance')).toContain('"server":"one"');
      }),
      { numRuns: roundsOf(250, 50) },
    );
  }, 60_000);

  it('except for forged keys of Tollgate, which are replaced', async () => {
    await fc.assert(
      fc.asyncProperty(
        result,
        fc.uniqueArray(
          fc.constantFrom('tollgate/provenance', 'tollgate/approved', 'tollgate/cut', 'tollgate/code', 'tollgate/'),
          { minLength: 1 },
        ),
        async (raw, forged) => {
          const number = '12345678901234567890';
          const open = `{${forged.map((key) => `"${key}":${number}`).join(',')},"kept":${number}}`;
          const plain = jsonMembers(raw)
            .filter(({ key }) => key !== '_meta')
            .map(({ key, start, end }) => `${JSON.stringify(key)}:${raw.slice(start, end)}`);
          const sent = JSON.stringify({ raw: `{${[...plain, `"_meta":${open}`].join(',')}}` });
          const got = memberOf(await send('tools/call', `{"name":"one_act","arguments":${sent}}`), 'result');
          expect(without(got)).toEqual(without(raw));
          expect(theirMeta(got)).toEqual([['kept', '12345678901234567890']]);
          expect(memberOf(got, '_meta')).toContain('"tollgate/provenance":{"server":"one"');
          expect(memberOf(got, '_meta')).not.toMatch(/tollgate\/(approved|code|cut)|tollgate\/"/);
        },
      ),
      { numRuns: roundsOf(80, 30) },
    );
  }, 60_000);
});
