/** Tests by property that listed names resolve, that other names do not, and that no exposure changes a decision. */

import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { exposedName } from '../../catalogs/tools/exposed-names.ts';
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';
import type { Session } from '../../facade/serve/facade-port.ts';
import { inFull } from '../harness/full-tests.ts';
import { roundsOf } from '../harness/slices.ts';
import type { Answer } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';
import { type RawFacade, startRaw, tool } from './raw-facade.ts';

const text = { type: 'string' };
const TOOLS: readonly RawTool[] = [
  tool('get', { inputSchema: { type: 'object', properties: { path: text, url: text, n: { type: 'integer' } } } }),
  tool('put-it', {
    inputSchema: {
      type: 'object',
      properties: { path: text, paths: { type: 'array', items: text }, n: { type: 'integer' } },
    },
  }),
  tool('run', { inputSchema: { type: 'object', properties: { command: text, mode: { enum: ['look', 'kill'] } } } }),
  tool('x.y/z', { inputSchema: { type: 'object', properties: { 'odd key!': text, n: { type: 'integer' } } } }),
];
const SETTINGS = {
  semantics: {
    get: { verb: 'read', paths: ['path'], urls: ['url'] },
    'put-it': { verb: 'write', paths: ['path', 'paths'] },
    run: { verb: 'execute', command: 'command', byArgument: { argument: 'mode', verbs: { look: 'read' } } },
  },
};
const SERVERS = ['git', 'mail'] as const;

const some = <T>(values: readonly T[], minLength = 1): fc.Arbitrary<T[]> =>
  fc.uniqueArray(fc.constantFrom(...values), { minLength, maxLength: 3 });
const patterns = some(['git.get', 'git.put-it', 'mail.*', 'git.*', 'mail.run', 'git.x.y/z', 'git.run', 'mail.get']);
const when = fc
  .record(
    {
      tools: patterns,
      servers: some(SERVERS),
      verbs: some(['read', 'write', 'execute', 'destructive']),
      roles: some(['dev', 'guest']),
      groups: some(['staff']),
      profiles: some(['p', 'q']),
      paths: some(['src/**', '**/*.pem', '/etc/**']),
      insideWorkspace: fc.boolean(),
      commands: some(['ls', 'git push']),
      opaque: fc.boolean(),
      hosts: some(['a.b', '*.b.org']),
      args: fc.constantFrom({ n: { min: 2 } }, { n: { present: true } }),
    },
    { requiredKeys: [] },
  )
  .map((all) => (all.tools === undefined ? all : { ...all, servers: undefined }));
const rules = fc
  .array(fc.record({ outcome: fc.constantFrom('allow', 'allow', 'allow', 'deny', 'ask'), when }), {
    minLength: 1,
    maxLength: 5,
  })
  .map((all) => [
    { id: 'base', outcome: 'allow', when: { servers: ['git'] } },
    ...all.map((rule, n) => ({ id: `r${n}`, message: 'M.', ...rule })),
  ]);
const aliases = fc.uniqueArray(
  fc.record({
    tool: fc.constantFrom('git.get', 'mail.get', 'git.run', 'mail.put-it', 'git.x.y/z'),
    name: fc.constantFrom('look', 'do-it', 'do_it', 'say', 'see', 'git_get'),
  }),
  { maxLength: 4, selector: ({ name }) => name },
);
const setups = fc.record({ rules, p: patterns, q: patterns, aliases });
const PEOPLE = [
  ['dev', ['p']],
  ['guest', ['p']],
  ['dev', ['q']],
  ['guest', ['p', 'q']],
  ['dev', []],
].map(([role, profiles], n) => ({ id: `u${n}`, role, groups: n % 2 === 0 ? ['staff'] : [], profiles, stdio: true }));

/** Arguments that every schema above accepts. */
const HOSTILE = [
  'a',
  'src/a',
  '../../etc/passwd',
  '/etc/x',
  'k.pem',
  'https://a.b/x',
  'http://evil@a.b',
  'https://x.b.org',
  'ls',
  'ls; git push',
  'r\\m -rf /',
  '',
  '.',
  '\u0000',
] as const;
const argsFor = (tool_: RawTool): fc.Arbitrary<Record<string, unknown>> => {
  const properties = Object.entries(
    tool_.inputSchema.properties as Record<string, { type?: string; enum?: string[]; items?: unknown }>,
  );
  const parts = properties.map(
    ([name, schema]) =>
      [
        name,
        schema.enum !== undefined
          ? fc.constantFrom(...schema.enum)
          : schema.type === 'integer'
            ? fc.integer({ min: 0, max: 4 })
            : schema.items === undefined
              ? fc.constantFrom(...HOSTILE)
              : fc.array(fc.constantFrom(...HOSTILE), { maxLength: 3 }),
      ] as const,
  );
  return fc.record(Object.fromEntries(parts), { requiredKeys: [] });
};
const SURE = /^(?!.*\(Policy)/s;

describe('list and call agree' + verifies('CY-11', 'CY-16'), () => {
  it('on every name: listed names resolve, others do not, and a tool listed as always is never denied', async () => {
    await fc.assert(
      fc.asyncProperty(
        setups,
        fc.infiniteStream(fc.tuple(...TOOLS.map(argsFor))),
        async ({ rules: all, p, q, aliases: named }, stream) => {
          const profile = (tools: readonly unknown[]): unknown => ({
            servers: [...SERVERS],
            expose: { primitives: {}, tools },
          });
          const facade = await startLenient({
            rules: all,
            profiles: { p: profile([...p, ...named.slice(0, 2)]), q: profile([...q, ...named.slice(2)]) },
          });
          fc.pre(facade !== undefined);
          try {
            const everyName = new Set([
              'look',
              'do-it',
              'do_it',
              'say',
              'see',
              'git_get',
              'nothing',
              ...SERVERS.flatMap((server) => TOOLS.map(({ name }) => exposedName(server, name))),
            ]);
            for (const { id } of PEOPLE) {
              const session = facade.open(id);
              const listed = new Map((await facade.list(session)).map((one) => [one.name, one]));
              for (const name of listed.keys()) everyName.add(name);
              for (const name of everyName)
                await judge(facade, { session, name, listed, args: () => stream.next().value });
            }
          } finally {
            await facade.close();
          }
        },
      ),
      { numRuns: roundsOf(6, 2) },
    );
  }, 90_000);
});

interface Probe {
  readonly session: Session;
  readonly name: string;
  readonly listed: ReadonlyMap<string, Readonly<Record<string, unknown>>>;
  readonly args: () => readonly Record<string, unknown>[];
}

async function judge(facade: RawFacade, { session, name, listed, args }: Probe): Promise<void> {
  const shown =
    listed.get(name) ?? [...listed].find(([known]) => known.replaceAll('-', '_') === name.replaceAll('-', '_'))?.[1];
  if (shown === undefined) return expect((await facade.call(session, name, {})).code, name).toBe('UNKNOWN_TOOL');
  for (const given of [{}, ...args()]) {
    const { code } = await facade.call(session, name, given);
    expect(code, name).not.toBe('UNKNOWN_TOOL');
    if (SURE.test(String(shown.description)))
      expect(['', 'ARGS_INVALID'], `${name} ${JSON.stringify(given)}`).toContain(code);
  }
}

/** Skips random rules that a load refuses, such as a rule that can never match or a duplicate alias. */
async function startLenient(rest: Readonly<Record<string, unknown>>): Promise<RawFacade | undefined> {
  const server = { tools: TOOLS, settings: SETTINGS };
  try {
    return await startRaw({ git: server, mail: server }, { principals: PEOPLE, ...rest });
  } catch (thrown) {
    if (thrown instanceof TollgateError && ['CONFIG_INVALID', 'POLICY_INVALID'].includes(thrown.code)) return undefined;
    throw thrown;
  }
}

describe('one effect in many exposures', () => {
  const exposures = {
    own: { primitives: {}, tools: ['git.*'] },
    alias: {
      primitives: {},
      tools: [
        { tool: 'git.get', name: 'look' },
        { tool: 'git.run', name: 'do' },
      ],
    },
    pinned: { primitives: {}, tools: [{ tool: 'git.get', name: 'look', pins: { n: 3 } }] },
    more: { primitives: 'workspace', tools: ['git.*'] },
    twice: {
      primitives: 'workspace',
      tools: ['git.*', { tool: 'git.get', name: 'look' }, { tool: 'git.get', name: 'see' }],
    },
  };
  let facade: RawFacade;
  beforeAll(async () => {
    facade = await startRaw(
      { git: { tools: TOOLS, settings: SETTINGS } },
      {
        principals: Object.keys(exposures).map((id) => ({ id, role: 'dev', profiles: [id], stdio: true })),
        profiles: Object.fromEntries(
          Object.entries(exposures).map(([id, expose_]) => [id, { servers: ['git'], expose: expose_ }]),
        ),
        rules: [
          { id: 'all', outcome: 'allow', when: { servers: ['git'] } },
          { id: 'out', outcome: 'deny', message: 'Outside.', when: { insideWorkspace: false } },
          { id: 'pem', outcome: 'ask', message: 'Keys.', when: { paths: ['**/*.pem'] } },
          { id: 'opaque', outcome: 'deny', message: 'Opaque.', when: { opaque: true } },
          { id: 'two', outcome: 'deny', message: 'Two.', when: { args: { n: { equals: 2 } } } },
        ],
      },
    );
  });
  afterAll(() => facade.close());

  /** Returns decision and digest of a call from the log. */
  async function decided(principal: string, name: string, args: unknown): Promise<unknown> {
    const before = facade.records().length;
    const answer: Answer = await facade.call(facade.open(principal), name, args);
    const records = facade
      .records()
      .slice(before)
      .filter(({ id, type }) => id !== undefined && type !== 'server' && type !== 'approval');
    return {
      code: answer.code,
      types: records.map(({ type }) => type),
      reasons: records[0]?.reasons,
      digest: records[0]?.effectDigest,
      server: records[0]?.server,
      tool: records[0]?.tool,
      verb: records[0]?.verb,
    };
  }

  inFull(
    'has one decision and digest under its own name and under aliases, with exposures on or off',
    async () => {
      await fc.assert(
        fc.asyncProperty(argsFor(TOOLS[0] as RawTool), async ({ n: _, ...args }) => {
          const whole = { ...args, n: 3 };
          const own = await decided('own', 'git_get', whole);
          expect(own).toMatchObject({ digest: expect.any(String) as unknown, server: 'git', tool: 'get' });
          expect(await decided('alias', 'look', whole)).toEqual(own);
          expect(await decided('pinned', 'look', args)).toEqual(own);
          expect(await decided('pinned', 'look', { ...args, n: 2 })).toEqual(own);
          expect(await decided('more', 'git_get', whole)).toEqual(own);
          expect(await decided('twice', 'look', whole)).toEqual(own);
          expect(await decided('twice', 'see', whole)).toEqual(own);
        }),
        { numRuns: roundsOf(25, 10) },
      );
    },
    60_000,
  );

  it('is judged by the words of a command under each name', async () => {
    await fc.assert(
      fc.asyncProperty(argsFor(TOOLS[2] as RawTool), async (args) => {
        expect(await decided('alias', 'do', args)).toEqual(await decided('own', 'git_run', args));
      }),
      { numRuns: roundsOf(25, 10) },
    );
  }, 60_000);
});
