/**
 * Tests that a call has the same decision in every exposure: as an exposed tool or primitive, by an alias, by call_read
 * and call_write, and from code. The same random calls are made in each, and their records are compared.
 */
import { mkdirSync, mkdtempSync, readdirSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Session } from '../../facade/serve/facade-port.ts';
import { cli } from '../cli/terminal.ts';
import type { Project } from '../config/project.ts';
import { roundsOf } from '../harness/slices.ts';
import { type Recorded, startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

const STORY = path.join(import.meta.dirname, '..', 'fixtures', 'story-server.mjs');
const CALLS = roundsOf(500, 80);
/** Calls of `echo` that the budget allows, so that some are refused. */
const ECHOES = roundsOf(30, 6);
/** Calls in one run of code. */
const MOST_IN_A_RUN = 40;
/** Another seed finds other calls: TOLLGATE_FUZZ_SEED=7 npx vitest run test/code/exposure-matrix.test.ts */
const SEED = Number(process.env.TOLLGATE_FUZZ_SEED ?? 20_261_127);

/** A call: the tool of the server `stories`, or the name of a primitive. */
interface Made {
  readonly tool: string;
  readonly args: Readonly<Record<string, unknown>>;
}

const READS = ['echo', 'count', 'rows', 'picture', 'fail', 'slow', 'liar', 'read'];
const TOOLS = ['echo', 'count', 'rows', 'picture', 'fail', 'slow', 'liar', 'pair', 'open', 'wipe'];
const PRIMITIVES = ['read', 'write', 'edit', 'bash'];

/** One way to make calls: more settings of `expose`, and how some calls are made in it. */
interface Exposure {
  readonly expose: string;
  readonly requests: (calls: readonly Made[]) => readonly { readonly name: string; readonly args: unknown }[];
}

const isPrimitive = (tool: string): boolean => PRIMITIVES.includes(tool);
const exposedNameOf = (tool: string): string => (isPrimitive(tool) ? tool : `stories_${tool}`);
const ALIASES = TOOLS.map((tool) => `{tool: stories.${tool}, name: my_${tool}}`).join(', ');

const EXPOSURES = {
  direct: {
    expose: 'tools: ["stories.*"]',
    requests: (calls) => calls.map(({ tool, args }) => ({ name: exposedNameOf(tool), args })),
  },
  alias: {
    expose: `tools: [${ALIASES}]`,
    requests: (calls) => calls.map(({ tool, args }) => ({ name: isPrimitive(tool) ? tool : `my_${tool}`, args })),
  },
  search: {
    expose: 'search: true, tools: ["stories.*"]',
    requests: (calls) =>
      calls.map(({ tool, args }) => ({
        name: READS.includes(tool) ? 'call_read' : 'call_write',
        args: { name: exposedNameOf(tool), arguments: args },
      })),
  },
  code: {
    expose: 'code: true, tools: ["stories.*"]',
    requests: (calls) => {
      const lines = calls.map(
        ({ tool, args }) =>
          `require('host:${isPrimitive(tool) ? 'tollgate' : 'mcp-stories'}').${tool}(${JSON.stringify(args)});`,
      );
      return [{ name: 'run_code', args: { code: lines.join('\n') } }];
    },
  },
} as const satisfies Record<string, Exposure>;

const yaml = (expose: string): string => `version: 1
workspace: ./workspace
state: ./state
bash: {isolation: direct}
servers:
  stories:
    command: ${JSON.stringify(process.execPath)}
    args: ${JSON.stringify([STORY])}
    isolation: direct
    semantics: {echo: read, count: read, rows: read, picture: read, fail: read, slow: read, liar: read, pair: write,
      open: {verb: write, paths: [path, paths]}, wipe: destructive}
principals:
  - {id: alice, stdio: true, profiles: [work]}
  - {id: boss, stdio: true, owner: true}
profiles:
  work: {servers: [stories], expose: {${expose}}}
approvals: {waitMs: 0}
budgets:
  - {id: few, scope: session, calls: ${ECHOES}, when: {tool: echo}}
rules:
  - {id: reads, outcome: allow, when: {servers: [stories], verbs: [read]}}
  - {id: long-waits, outcome: deny, message: Wait less., when: {tools: [stories.slow], args: {ms: {min: 3}}}}
  - {id: short, outcome: allow, obligations: {caps: {bytes: 2kB, lines: 20}, labels: [internal]}, when: {tools: [stories.count]}}
  - {id: two-rows, outcome: allow, obligations: {pins: {count: 2}}, when: {tools: [stories.rows]}}
  - {id: pairs, outcome: allow, when: {tools: [stories.pair], args: {a: {in: [one, two]}}}}
  - {id: opens, outcome: ask, message: A person looks., when: {tools: [stories.open]}}
  - {id: no-leaks, outcome: deny, message: The run has read a secret., when: {tools: [stories.open], labels: [secret]}}
  - {id: wipes, outcome: ask, approval: group, message: A person wipes., when: {tools: [stories.wipe]}}
  - {id: files, outcome: allow, when: {servers: [workspace], verbs: [read], insideWorkspace: true}}
  - {id: secrets, outcome: allow, obligations: {labels: [secret]}, when: {servers: [workspace], paths: ["secrets/**"], verbs: [read]}}
  - {id: no-env, outcome: deny, message: Not this file., when: {paths: ["**/.env"]}}
  - {id: out, outcome: allow, when: {servers: [workspace], verbs: [write], paths: ["out/**"]}}
  - {id: others, outcome: ask, message: A person sees writes., when: {servers: [workspace], verbs: [write], except: ["out/**"], paths: ["**"]}}
  - {id: lists, outcome: allow, when: {commands: [ls, pwd]}}
`;

const FILES = { 'a.txt': 'one\ntwo\n', 'out/b.txt': 'three\n', 'secrets/key.txt': 'four\n', '.env': 'X=1\n' };

const someText = fc.constantFrom('one', 'two', 'three', 'ü "quoted" \\ back', '');
const file = fc.constantFrom(...Object.keys(FILES), 'gone.txt', '../outside.txt', '/etc/hostname');
const call = (tool: string, args: Record<string, fc.Arbitrary<unknown>>): fc.Arbitrary<Made> =>
  fc.record({ tool: fc.constant(tool), args: fc.record(args) });

/** Calls, of which some have wrong arguments. Few start a program, because that takes long. */
const anyCall: fc.Arbitrary<Made> = fc.oneof(
  { weight: 8, arbitrary: call('echo', { text: someText }) },
  { weight: 2, arbitrary: call('echo', { text: fc.constantFrom(1, null, []), more: someText }) },
  { weight: 5, arbitrary: call('count', { lines: fc.constantFrom(1, 15, 30, 0, 2.5) }) },
  { weight: 5, arbitrary: call('rows', { count: fc.nat(4) }) },
  { weight: 3, arbitrary: call('rows', {}) },
  { weight: 2, arbitrary: call('picture', {}) },
  { weight: 2, arbitrary: call('fail', {}) },
  { weight: 2, arbitrary: call('liar', {}) },
  { weight: 4, arbitrary: call('slow', { ms: fc.nat(5) }) },
  { weight: 4, arbitrary: call('pair', { a: someText, 'odd key!': someText }) },
  { weight: 1, arbitrary: call('pair', { a: someText }) },
  { weight: 3, arbitrary: call('open', { path: file }) },
  { weight: 3, arbitrary: call('wipe', {}) },
  { weight: 6, arbitrary: call('read', { path: file }) },
  { weight: 4, arbitrary: call('write', { path: file, content: someText }) },
  { weight: 3, arbitrary: call('edit', { path: file, edits: fc.constant([{ oldText: 'three', newText: 'five' }]) }) },
  { weight: 1, arbitrary: call('bash', { command: fc.constantFrom('ls', 'pwd', 'rm -r out', 'ls $X') }) },
);

let folder: string;
beforeAll(() => {
  folder = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-matrix-')));
});
afterAll(() => rmSync(folder, { recursive: true, force: true, maxRetries: 3 }));

/** Empties the folder but for the key of digests, so that equal effects have equal digests in all exposures. */
function reset(): void {
  for (const name of readdirSync(folder)) if (name !== 'state') rmSync(path.join(folder, name), { recursive: true });
  const state = path.join(folder, 'state');
  mkdirSync(state, { recursive: true });
  for (const name of readdirSync(state))
    if (name !== 'audit.key') rmSync(path.join(state, name), { recursive: true, force: true, maxRetries: 3 });
  for (const [name, text] of Object.entries(FILES)) {
    mkdirSync(path.dirname(path.join(folder, 'workspace', name)), { recursive: true });
    writeFileSync(path.join(folder, 'workspace', name), text);
  }
}

/** Makes a wipe, and lets an owner approve all later ones of the session. */
async function approveWipes(facade: TestFacade, session: Session, { requests }: Exposure): Promise<void> {
  for (const { name, args } of requests([{ tool: 'wipe', args: {} }])) await facade.call(session, name, args);
  const owner = async (...words: readonly string[]): Promise<unknown> => {
    const { out, err, code } = await cli({ folder, home: folder } as Project, [...words, '--as', 'boss', '--json']);
    expect(code, err).toBe(0);
    return JSON.parse(out);
  };
  const { approvals } = (await owner('approvals', 'list')) as {
    readonly approvals: readonly { readonly id: string }[];
  };
  const [{ id } = { id: '' }] = approvals;
  const { binding } = (await owner('approvals', 'show', id)) as { readonly binding: string };
  await owner('approvals', 'approve', id, '--yes', binding, '--for', 'group');
}

/** Makes groups of calls in one exposure, and returns the records of each call. */
async function recordsIn(exposure: Exposure, groups: readonly (readonly Made[])[]): Promise<readonly Recorded[][]> {
  reset();
  const facade = await startFacade(yaml(exposure.expose), { folder });
  try {
    const session = facade.open('alice');
    await facade.list(session);
    await approveWipes(facade, session, exposure);
    const before = facade.callRecords().length;
    for (const { name, args } of groups.flatMap(exposure.requests)) await facade.call(session, name, args);
    return recordsByCall(facade.callRecords().slice(before));
  } finally {
    await facade.close();
  }
}

/** Groups records by call. What a run of code does after it has stopped for a person is a plan, and is left out. */
function recordsByCall(records: readonly Recorded[]): readonly Recorded[][] {
  const calls = new Map<unknown, Recorded[]>();
  const stopped = new Set<unknown>();
  for (const record of records) {
    const { id, parent, code, server } = record;
    if (server === 'code' || stopped.has(parent)) continue;
    calls.set(id, [...(calls.get(id) ?? []), record]);
    if (parent !== undefined && code === 'APPROVAL_REQUIRED') stopped.add(parent);
  }
  return [...calls.values()];
}

/** Groups calls for runs of code: a run that stops for a person ends there, so such a call is alone in its group. */
function grouped(calls: readonly Made[], direct: readonly (readonly Recorded[])[]): readonly (readonly Made[])[] {
  const groups: Made[][] = [];
  let isOpen = false;
  for (const [at, made] of calls.entries()) {
    const asks = direct[at]?.some(({ code }) => code === 'APPROVAL_REQUIRED') === true;
    const last = groups.at(-1);
    if (isOpen && !asks && last !== undefined && last.length < MOST_IN_A_RUN) last.push(made);
    else groups.push([made]);
    isOpen = !asks;
  }
  return groups;
}

/** What differs between two calls or two sessions, and how a call arrived. */
const VARYING = [
  'id',
  'seq',
  'ts',
  'prev',
  'hash',
  'session',
  'run',
  'ms',
  'upstreamMs',
  'exposed',
  'via',
  'parent',
  'revision',
];

/** Returns the facts of a record that must be equal. Of a consent, only that there is one. */
function factsOf({ consent, ...record }: Recorded): Recorded {
  const facts = Object.entries(record).filter(([key]) => !VARYING.includes(key));
  return { ...Object.fromEntries(facts), hasConsent: consent !== undefined };
}

describe('the decision about a call', () => {
  it(`is the same for an exposed tool, an alias, a primitive, a wrapper and code${verifies('CM-46', 'CM-03', 'HA-12')}`, async () => {
    const calls = fc.sample(anyCall, { numRuns: CALLS, seed: SEED });
    const single = calls.map((made) => [made]);
    const direct = await recordsIn(EXPOSURES.direct, single);
    expect(new Set(direct.flat().map(({ code }) => code))).toEqual(
      new Set([undefined, 'DENIED', 'APPROVAL_REQUIRED', 'BUDGET_EXCEEDED', 'ARGS_INVALID']),
    );
    const facts = direct.map((records) => records.map(factsOf));
    for (const name of ['alias', 'search', 'code'] as const) {
      const others = await recordsIn(EXPOSURES[name], name === 'code' ? grouped(calls, direct) : single);
      for (const [at, made] of calls.entries())
        expect(others[at]?.map(factsOf), `${name}, call ${at}: ${JSON.stringify(made)}`).toEqual(facts[at]);
      expect(others.length, name).toBe(CALLS);
    }
  }, 600_000);
});
