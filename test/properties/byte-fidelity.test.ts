/** Properties of what passes: the policy sees what is sent, and results come back as they were. */
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { jsonMembers, readMessage } from '../../adapters/rpc/message-parser.ts';
import { isOwnKey } from '../../catalogs/tools/own-meta-keys.ts';
import type { Dispatch } from '../../facade/serve/legacy-dispatch.ts';
import { openDispatch } from '../../facade/serve/session-dispatch.ts';
import type { CallInput, Policy } from '../../policies/port.ts';
import { verifies } from '../verifies.ts';
import { objectText, valueText } from './json-text.ts';
import { ACT, memberOf, type RawFacade, startRaw, tool } from './raw-facade.ts';

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

/** One message as a client would write it; the text of the answer. */
async function send(method: string, params: string): Promise<string> {
  lastId += 1;
  return (
    (await wire.handle(
      readMessage(Buffer.from(`{"jsonrpc":"2.0","id":${lastId},"method":"${method}","params":${params}}`), 'client'),
      () => undefined,
    )) ?? ''
  );
}

describe('what the policy saw is what is sent', () => {
  it('bytes of arguments, in order: client, policy, server' + verifies('CY-15'), async () => {
    await fc.assert(
      fc.asyncProperty(objectText(valueText()), async (args) => {
        const answer = await send('tools/call', `{"name":"one_open","arguments":${args}}`);
        expect(memberOf(answer, 'error'), args).toBe('');
        expect(seen.at(-1)?.argsText).toBe(args);
        expect(facade.calls('one').at(-1)).toMatchObject({ name: 'open', args });
      }),
      { numRuns: 250 },
    );
  }, 60_000);

  it('where something was repaired, the policy saw the repaired bytes, and the reply says so', async () => {
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
      { numRuns: 40 },
    );
  }, 60_000);

  it('a call that stage 3 refuses reaches neither policy nor server', async () => {
    await fc.assert(
      fc.asyncProperty(
        objectText(valueText({ depth: 1 })).filter((text) => !/"count"/.test(text)),
        async (args) => {
          const [asked, sent] = [seen.length, facade.calls('one').length];
          expect(await send('tools/call', `{"name":"one_typed","arguments":${args}}`)).toContain('"ARGS_INVALID"');
          expect([seen.length, facade.calls('one').length]).toEqual([asked, sent]);
        },
      ),
      { numRuns: 60 },
    );
  }, 60_000);
});

describe('a result passes byte for byte', () => {
  /** Content of any types: known, unknown, odd keys. Links are another matter (they may be removed). */
  const type = fc.constantFrom('"text"', '"image"', '"audio"', '"resource"', '"x-unknown"', '"TEXT"');
  const item = fc.tuple(type, objectText(valueText({ depth: 2 }))).map(([kind, rest]) => {
    const others = jsonMembers(rest)
      .filter(({ key }) => !['type', 'text', 'data'].includes(key))
      .map(({ key, start, end }) => `${JSON.stringify(key)}:${rest.slice(start, end)}`);
    return `{${[`"type":${kind}`, ...(kind === '"text"' ? ['"text" : "a\\/b\\u00e9 é"'] : []), ...others].join(' ,')}}`;
  });
  const content = fc.array(item, { maxLength: 4 }).map((items) => `[${items.join(', ')}]`);
  /** `_meta` that is absent, an object, or what no server should send. */
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

  it('apart from keys of ours in _meta' + verifies('HA-23', 'CY-15'), async () => {
    await fc.assert(
      fc.asyncProperty(result, async (raw) => {
        const answer = await send('tools/call', `{"name":"one_act","arguments":${JSON.stringify({ raw })}}`);
        const got = memberOf(answer, 'result');
        expect(without(got), raw).toEqual(without(raw));
        expect(theirMeta(got)).toEqual(theirMeta(raw));
        expect(memberOf(memberOf(got, '_meta'), 'tollgate/provenance')).toContain('"server":"one"');
      }),
      { numRuns: 250 },
    );
  }, 60_000);

  it('also where a server forged keys of ours: those alone are replaced', async () => {
    await fc.assert(
      fc.asyncProperty(
        result,
        fc.uniqueArray(
          fc.constantFrom('tollgate/provenance', 'tollgate/approved', 'tollgate/cut', 'tollgate/code', 'tollgate/'),
          { minLength: 1 },
        ),
        async (raw, forged) => {
          const open = `{${forged.map((key) => `"${key}":12345678901234567890`).join(',')},"kept":12345678901234567890}`;
          const plain = jsonMembers(raw)
            .filter(({ key }) => key !== '_meta')
            .map(({ key, start, end }) => `${JSON.stringify(key)}:${raw.slice(start, end)}`);
          const got = memberOf(
            await send(
              'tools/call',
              `{"name":"one_act","arguments":${JSON.stringify({ raw: `{${[...plain, `"_meta":${open}`].join(',')}}` })}}`,
            ),
            'result',
          );
          expect(without(got)).toEqual(without(raw));
          expect(theirMeta(got)).toEqual([['kept', '12345678901234567890']]);
          expect(memberOf(got, '_meta')).toContain('"tollgate/provenance":{"server":"one"');
          expect(memberOf(got, '_meta')).not.toMatch(/tollgate\/(approved|code|cut)|tollgate\/"/);
        },
      ),
      { numRuns: 80 },
    );
  }, 60_000);
});

/** The members of a result but `_meta`, each with its text. */
function without(text: string): readonly (readonly [string, string])[] {
  return jsonMembers(text)
    .filter(({ key }) => key !== '_meta')
    .map(({ key, start, end }) => [key, text.slice(start, end)]);
}

/** The members of `_meta` that are not ours; what is no object counts as empty. */
function theirMeta(text: string): readonly (readonly [string, string])[] {
  const meta = memberOf(text, '_meta');
  return meta.startsWith('{')
    ? jsonMembers(meta)
        .filter(({ key }) => !isOwnKey(key))
        .map(({ key, start, end }) => [key, meta.slice(start, end)])
    : [];
}
