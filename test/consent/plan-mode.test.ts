/**
 * Tests plan mode through the whole facade: only reads run until an owner approves, whatever name a call uses, and in
 * every process.
 * Covers: facade/consent.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createPlans, decidePlan, listPlans } from '../../facade/consent/plan-mode.ts';
import type { Session } from '../../facade/serve/facade-port.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import type { Principal } from '../../policies/port.ts';
import { type Answer, start } from '../cli/terminal.ts';
import { type RawFacade, startRaw, tool } from '../properties/raw-facade.ts';
import { verifies } from '../verifies.ts';

const MAIN = path.join(import.meta.dirname, '..', '..', 'dist', 'facade', 'main.js');
const TOOLS = [
  tool('get'),
  tool('put'),
  tool('wipe'),
  tool('run', { inputSchema: { type: 'object', properties: { mode: { type: 'string' } } } }),
];
const SEMANTICS = {
  semantics: {
    get: 'read',
    put: 'write',
    run: { verb: 'execute', byArgument: { argument: 'mode', verbs: { look: 'read' } } },
  },
};
const EXPOSE = {
  primitives: 'workspace',
  tools: ['git.*', { tool: 'git.put', name: 'save' }, { tool: 'git.put', name: 'look_only', pins: { kind: 'note' } }],
};

let facade: RawFacade;
beforeAll(async () => {
  facade = await startRaw(
    {
      git: {
        tools: TOOLS,
        settings: SEMANTICS,
        answers: { get: { raw: JSON.stringify({ content: [{ type: 'text', text: 'line\n'.repeat(2000) }] }) } },
      },
    },
    {
      principals: [
        { id: 'agent', profiles: ['careful'], stdio: true },
        { id: 'mixed', profiles: ['careful', 'free'], stdio: true },
        { id: 'free', profiles: ['free'], stdio: true },
        { id: 'boss', profiles: ['free'], stdio: true, owner: true },
      ],
      profiles: {
        careful: { servers: ['git'], expose: EXPOSE, plan: true },
        free: { servers: ['git'], expose: EXPOSE },
      },
      rules: [
        { id: 'all', outcome: 'allow', when: {} },
        {
          id: 'no-wiping',
          outcome: 'deny',
          message: 'Never.',
          when: { tools: ['git.wipe'], args: { all: { equals: true } } },
        },
      ],
      caps: { bytes: 2048 },
    },
  );
  writeFileSync(path.join(facade.folder, 'workspace', 'a.txt'), 'line\n'.repeat(2000));
}, 60_000);
afterAll(() => facade.close());

const wordsOf = (words: readonly string[]): string[] => [
  'plan',
  ...words,
  '-c',
  path.join(facade.folder, 'tollgate.yaml'),
];

/** Runs a command as a person at another terminal, in its own process. */
function inOtherProcess(...words: readonly string[]): Answer {
  const run = spawnSync(process.execPath, [MAIN, ...wordsOf(words)], { encoding: 'utf8' });
  return { code: run.status ?? -1, out: run.stdout, err: run.stderr };
}

/** Runs a command in this process, with its own connection to the state. */
const tollgate = (...words: readonly string[]): Promise<Answer> =>
  start({ home: homedir(), folder: facade.folder }, wordsOf(words)).ended;

const READS = [
  ['read', { path: 'a.txt' }],
  ['read', { action: 'search', path: '.', pattern: 'line', limit: 1 }],
  ['bash', { action: 'list' }],
  ['git_get', {}],
  ['git_run', { mode: 'look' }],
] as const;
const OTHERS = [
  ['write', { path: 'b.txt', content: 'x' }],
  ['edit', { path: 'a.txt', old_string: 'line', new_string: 'x' }],
  ['bash', { command: 'ls' }],
  ['save', {}],
  ['look_only', {}],
  ['git_wipe', {}],
  ['git_run', {}],
  ['git_run', { mode: 'LOOK' }],
] as const;
const outcomes = async (
  session: Session,
  calls: readonly (readonly [string, unknown])[],
  meta?: Record<string, unknown>,
) =>
  Promise.all(
    calls.map(async ([name, args]) => [
      name,
      (await facade.call(session, name, args, meta === undefined ? {} : { meta })).code,
    ]),
  );
const all = (calls: readonly (readonly [string, unknown])[], code: string) => calls.map(([name]) => [name, code]);

describe('plan mode', () => {
  it(
    'allows reads and refuses everything else, through primitives, tools, aliases and pinned aliases alike' +
      verifies('CY-27'),
    async () => {
      for (const principal of ['agent', 'mixed']) {
        const session = facade.open(principal);
        expect(await outcomes(session, READS)).toEqual(all(READS, ''));
        expect(await outcomes(session, OTHERS)).toEqual(all(OTHERS, 'DENIED'));
        const { text } = await facade.call(session, 'save', {});
        expect(text).toContain('rule plan-mode: Only reading runs until the plan of this run is approved.');
        expect(text).toContain(`tollgate plan approve ${session.id}`);
      }
      expect(facade.calls('git').filter(({ name }) => name !== 'get' && name !== 'run')).toEqual([]);
      // A principal without plan mode may call it. `edit` would not match the file, and commands need a sandbox on this
      // machine.
      const others = OTHERS.filter(([name]) => name !== 'edit' && name !== 'bash');
      expect(await outcomes(facade.open('free'), others)).toEqual(all(others, ''));
    },
  );

  it(
    'ends for one run at the next call after an approval in another process, which can be withdrawn' +
      verifies('CY-27'),
    async () => {
      const [session, other] = [facade.open('agent'), facade.open('agent')];
      expect(await outcomes(session, [['save', {}]])).toEqual([['save', 'DENIED']]);
      expect(inOtherProcess('approve', session.id, '--as', 'boss')).toMatchObject({
        code: 0,
        err: expect.stringContaining('Approved: in this run, agent may now do') as string,
      });
      expect(
        await outcomes(session, [
          ['save', {}],
          ['write', { path: 'c.txt', content: 'x' }],
          ['git_wipe', { all: true }],
        ]),
      ).toEqual([
        ['save', ''],
        ['write', ''],
        ['git_wipe', 'DENIED'],
      ]);
      expect(await outcomes(other, [['save', {}]])).toEqual([['save', 'DENIED']]);
      const { plans } = JSON.parse((await tollgate('list', '--json')).out) as {
        plans: readonly { run: string; state: string; by?: string }[];
      };
      expect([plans.find(({ run }) => run === session.id), plans.find(({ run }) => run === other.id)]).toMatchObject([
        { state: 'approved', by: 'boss', principal: 'agent' },
        { state: 'pending' },
      ]);
      expect((await tollgate('list')).out).toMatch(new RegExp(`^${session.id} +agent +approved by boss +\\d{4}-`, 'm'));
      expect(await tollgate('revoke', session.id, '--as', 'boss')).toMatchObject({
        code: 0,
        err: expect.stringContaining('Revoked') as string,
      });
      expect(
        await outcomes(session, [
          ['save', {}],
          ['git_get', {}],
        ]),
      ).toEqual([
        ['save', 'DENIED'],
        ['git_get', ''],
      ]);
      expect(facade.records().filter(({ type }) => type === 'approval')).toMatchObject([
        {
          event: 'plan-approved',
          id: session.id,
          outcome: 'allow',
          by: 'boss',
          principal: { id: 'agent', profiles: ['careful'] },
        },
        { event: 'plan-revoked', id: session.id, outcome: 'deny', by: 'boss' },
      ]);
    },
  );

  it('accepts an approval from an owner only, for an existing run' + verifies('CY-11'), async () => {
    const session = facade.open('agent');
    await facade.call(session, 'git_get', {});
    for (const nobody of ['agent', 'free'])
      expect(await tollgate('approve', session.id, '--as', nobody)).toMatchObject({
        code: 4,
        err: expect.stringContaining('is no owner') as string,
      });
    expect(await tollgate('approve', 'nothing', '--as', 'boss')).toMatchObject({
      code: 2,
      err: expect.stringContaining('No run "nothing" is in plan mode') as string,
    });
    expect(await outcomes(session, [['save', {}]])).toEqual([['save', 'DENIED']]);
  });

  it('forgets an approval with its session, and treats a run named by a host as one run in every session', async () => {
    const meta = { 'tollgate/run': 'task-1' };
    const first = facade.open('agent');
    await outcomes(first, [['git_get', {}]], meta);
    await outcomes(first, [['git_get', {}]]);
    for (const run of ['agent/task-1', first.id])
      expect(await tollgate('approve', run, '--as', 'boss')).toMatchObject({ code: 0 });
    const second = facade.open('agent');
    expect(await outcomes(second, [['save', {}]], meta)).toEqual([['save', '']]);
    expect(await outcomes(facade.open('mixed'), [['save', {}]], meta)).toEqual([['save', 'DENIED']]);
    await facade.assembled.gateway.closeSession(first);
    expect((await tollgate('list')).out).not.toContain(first.id);
  });

  it('counts reading the rest of a result as a read', async () => {
    const session = facade.open('agent');
    const [handle = ''] = /spill:\/\/[\w-]+/.exec((await facade.call(session, 'git_get', {})).text) ?? [];
    expect(await facade.call(session, 'read', { path: handle })).toMatchObject({
      code: '',
      text: expect.stringContaining('line') as string,
    });
  });

  it('is announced in the list and in initialize' + verifies('CY-27'), async () => {
    const session = facade.open('agent');
    const told = new Map((await facade.list(session)).map((one) => [one.name, String(one.description)]));
    for (const name of ['write', 'edit', 'bash', 'save', 'look_only', 'git_wipe', 'git_run'])
      expect([name, told.get(name)]).toEqual([name, expect.stringContaining('the plan of this run is not approved')]);
    for (const name of ['read', 'git_get'])
      expect([name, told.get(name)]).toEqual([name, expect.not.stringContaining('plan')]);
    expect(facade.assembled.gateway.instructions(session)).toContain('present a plan');
    expect(facade.assembled.gateway.instructions(facade.open('free'))).not.toContain('plan');
  });
});

describe('the plan of a run', () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-plan-'));
  const state = openState(folder);
  let now = 1_000_000;
  const config = {
    profiles: new Map([
      ['careful', { plan: true }],
      ['free', { plan: false }],
    ]),
  } as unknown as Parameters<typeof createPlans>[0];
  const plans = createPlans(config, state, () => now);
  const who = (id: string, ...profiles: readonly string[]): Principal => ({
    id,
    role: 'r',
    groups: [],
    profiles,
    origin: '',
  });
  const approve = (run: string) =>
    decidePlan(state, { run, approve: true, by: 'boss', record: () => Promise.resolve() }, now);
  afterAll(async () => {
    await state.close();
    rmSync(folder, { recursive: true });
  });

  it('does not exist if no profile asks for one, and nothing is stored', async () => {
    expect([
      await plans.of(who('a', 'free'), 'r1'),
      await plans.of(who('a', 'unknown'), 'r1'),
      plans.applies(who('a', 'free', 'careful')),
    ]).toEqual(['none', 'none', true]);
    expect(await listPlans(state, now)).toEqual([]);
  });

  it('is approved for a day, and for the principal that was shown', async () => {
    const agent = who('a', 'careful');
    expect(await plans.of(agent, 'r2')).toBe('pending');
    expect(await approve('r2')).toMatchObject({ state: 'approved', principal: 'a' });
    expect(await plans.of(agent, 'r2')).toBe('approved');
    now += 86_400_000;
    expect(await listPlans(state, now)).toEqual([]);
    expect(await plans.of(agent, 'r2')).toBe('pending');
    await approve('r2');
    expect(await plans.of(who('b', 'careful'), 'r2')).toBe('pending');
    expect(await plans.of(agent, 'r2')).toBe('pending');
  });

  it('is not approved if the approval cannot be recorded', async () => {
    expect(await plans.of(who('a', 'careful'), 'r3')).toBe('pending');
    await expect(
      decidePlan(state, { run: 'r3', approve: true, by: 'boss', record: () => Promise.reject(new Error('full')) }, now),
    ).rejects.toThrow('full');
    expect(await plans.of(who('a', 'careful'), 'r3')).toBe('pending');
  });
});
