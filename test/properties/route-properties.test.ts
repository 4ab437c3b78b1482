/** Tests by property that a routed primitive makes the call of the server of its route, and calls no hidden server. */
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { PRIMITIVES } from '../../adapters/port.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { type DraftedCall, draftCall, draftTools } from '../../facade/call/lowering/draft-call.ts';
import type { Config, Route } from '../../facade/config/config.ts';
import type { ServedServer } from '../../facade/exposure/served-server.ts';
import { joinPrimitives, type ShownTool } from '../../facade/exposure/tool-candidates.ts';
import { serveOfflineOnDemand } from '../../facade/main.ts';
import { policyParts } from '../../facade/runtime/policy-parts.ts';
import { asPrincipal } from '../../facade/serve/http/token-authentication.ts';
import { loadPolicy } from '../../policies/engine/policy-loader.ts';
import type { CallDecision, Policy } from '../../policies/port.ts';
import { Project } from '../config/project.ts';
import { documentOf } from '../engine/policy-fixture.ts';
import { roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';

const SERVERS = ['workspace', 'notes', 'desk'] as const;
const FOLDERS = ['a', 'b', 'a/c'] as const;
const HASH = 'sha256:';

const condition = fc.record(
  {
    paths: fc.uniqueArray(fc.constantFrom(...FOLDERS), { minLength: 1, maxLength: 2 }),
    labels: fc.uniqueArray(fc.constantFrom('secret', 'internal'), { minLength: 1 }),
  },
  { requiredKeys: [] },
);
const route = fc.record({ on: condition, server: fc.constantFrom(...SERVERS) });
const routes = fc.record({
  some: fc.array(route, { minLength: 1, maxLength: 4 }),
  last: fc.option(fc.constantFrom(...SERVERS)),
});
const rule = fc.record({
  outcome: fc.constantFrom('allow', 'allow', 'ask', 'deny'),
  when: fc.record(
    {
      servers: fc.uniqueArray(fc.constantFrom(...SERVERS), { minLength: 1 }),
      verbs: fc.uniqueArray(fc.constantFrom('read', 'write'), { minLength: 1 }),
      paths: fc.constantFrom(['a/**'], ['**/*.md']),
      labels: fc.constant(['secret']),
    },
    { requiredKeys: [] },
  ),
});
/** Includes rules that allow everything, because otherwise hardly any tool would be always allowed. */
const rules = fc.oneof(
  { weight: 2, arbitrary: fc.array(rule, { maxLength: 4 }) },
  { weight: 1, arbitrary: fc.constant([{ outcome: 'allow', when: {} }]) },
);
const calls = fc.array(
  fc.record({
    tool: fc.constantFrom('read', 'write', 'edit'),
    path: fc.constantFrom(
      'a/x.md',
      'a',
      './a/../b/y',
      'b/y.md',
      'c/../a/c/z',
      'z',
      '.',
      'a//c/z',
      '/etc/passwd',
      '../out',
    ),
    labels: fc.subarray(['secret', 'internal']),
  }),
  { minLength: 6, maxLength: 6 },
);

interface Asked {
  readonly tool: string;
  readonly path: string;
  readonly labels: readonly string[];
}

/** Returns the server of the first matching route, by code that is independent of the facade. */
function expected(all: readonly Route[], { path, labels }: Asked): string | undefined {
  const real =
    path.startsWith('/') || path.startsWith('../')
      ? undefined
      : new URL(path, 'http://x/').pathname.replaceAll(/\/+/g, '/').slice(1);
  const under = (glob: string): boolean => real !== undefined && `${real}/`.startsWith(glob.replace('**', ''));
  return all.find(
    (one) =>
      (one.paths ?? ['']).some((glob) => glob === '' || under(glob)) &&
      (one.labels?.some((label) => labels.includes(label)) ?? true),
  )?.server;
}

describe('a primitive with several servers', () => {
  const project = new Project();
  let config: Config;
  let served: ReadonlyMap<string, ServedServer>;
  beforeAll(async () => {
    const single = SERVERS.map(
      (server, at) => `{id: p-${server}, profiles: [${server}], token: "${HASH}${String(at).repeat(64)}"}`,
    ).join(', ');
    config = project.config(`servers:
  notes: {command: node, mapping: server-filesystem}
  desk: {command: node, mapping: desktop-commander}
principals: [{id: routed, profiles: [routed]}, ${single}]
profiles:
  routed: {servers: [notes, desk]}
${SERVERS.map((server) => `  ${server}: {expose: {primitives: ${server}}}`).join('\n')}
`);
    served = await serveOfflineOnDemand(config);
  });
  afterAll(() => project.remove());

  /** Returns the configuration with these routes for three primitives. */
  const withRoutes = (all: readonly Route[]): Config => {
    const before = config.profiles.get('routed') as NonNullable<ReturnType<Config['profiles']['get']>>;
    return {
      ...config,
      profiles: new Map([
        ...config.profiles,
        ['routed', { ...before, primitives: { read: all, write: all, edit: all } }],
      ]),
    };
  };
  const principalOf = (id: string) =>
    asPrincipal(config.principals.find((one) => one.id === id) as Config['principals'][number]);
  const draft = (world: Config, id: string, { tool, path, labels }: Asked): DraftedCall | string => {
    const more = tool === 'write' ? { content: 'x' } : tool === 'edit' ? { old_string: 'a', new_string: 'b' } : {};
    try {
      return draftCall({ config: world, served }, principalOf(id), { tool, args: { path, ...more }, labels });
    } catch (thrown) {
      if (thrown instanceof TollgateError) return thrown.code;
      throw thrown;
    }
  };
  const judge = async (
    policy: Policy,
    id: string,
    { effect, argsText }: DraftedCall,
    labels: readonly string[],
  ): Promise<CallDecision> =>
    policy.call({ principal: principalOf(id), run: 'r', labels, time: '2026-11-20T10:00:00Z', effect, argsText });

  it('calls the server of its first route, hides no callable server, and lists as always only what is allowed' +
    verifies('ST-120', 'ST-117'), async () => {
    const seen = { always: 0, maybe: 0, hidden: 0, unserved: 0, served: 0 };
    await fc.assert(
      fc.asyncProperty(routes, rules, calls, async ({ some, last }, written, asked) => {
        const all: Route[] = [
          ...some.map(
            ({ on: { paths, labels }, server }): Route => ({
              server,
              ...(paths && { paths: paths.map((folder) => `${folder}/**`) }),
              ...(labels && { labels }),
            }),
          ),
          ...(last === null ? [] : [{ server: last }]),
        ];
        const world = withRoutes(all);
        const parts = {
          ...policyParts(world, {}),
          rules: [documentOf(written.map(({ outcome, when }, at) => ({ id: `r${at}`, outcome, when })))],
        };
        const policy = await loadPolicy(parts).catch((thrown: unknown) => {
          // The load refuses rules that can never match.
          if (thrown instanceof TollgateError && thrown.code === 'POLICY_INVALID') return undefined;
          throw thrown;
        });
        fc.pre(policy !== undefined);
        if (policy === undefined) return;
        try {
          for (const primitive of PRIMITIVES.slice(0, 3)) {
            const tools = draftTools({ config: world, served }, principalOf('routed'), primitive);
            const decisions = await policy.list(principalOf('routed'), tools);
            const behind = tools.flatMap((one, at): readonly ShownTool[] =>
              decisions[at]!.expose.map((exposure) => ({
                candidate: { served: served.get(one.server)!, primitive, listTool: one },
                decision: decisions[at]!,
                exposure,
              })),
            );
            expect(behind.length).toBe(tools.length);
            const [shown] = joinPrimitives(behind, world.profiles.get('routed')!.primitives);
            if (shown?.decision.verdict === 'always') seen.always += 1;
            if (shown?.decision.verdict === 'maybe') seen.maybe += 1;
            for (const call of asked.filter(({ tool }) => tool === primitive)) {
              const server = expected(all, call);
              const drafted = draft(world, 'routed', call);
              if (server === undefined) {
                expect(drafted).toBe('NOT_SUPPORTED');
                expect(shown?.decision.verdict).not.toBe('always');
                seen.unserved += 1;
                continue;
              }
              expect(drafted).toEqual(draft(world, `p-${server}`, call));
              if (typeof drafted === 'string') continue;
              seen.served += 1;
              const { outcome, reasons } = await judge(policy, 'routed', drafted, call.labels);
              expect({ outcome, reasons }).toEqual(
                (({ outcome: other, reasons: why }) => ({ outcome: other, reasons: why }))(
                  await judge(policy, `p-${server}`, drafted, call.labels),
                ),
              );
              if (shown?.behind?.servers.has(server) !== true) {
                expect(outcome).toBe('deny');
                seen.hidden += 1;
              }
              if (shown?.decision.verdict === 'always') expect(outcome).toBe('allow');
            }
          }
        } finally {
          policy.close();
        }
      }),
      { numRuns: roundsOf(80, 20) },
    );
    for (const [name, count] of Object.entries(seen)) expect(count, name).toBeGreaterThan(0);
  }, 120_000);
});
