/**
 * Tests runs of code whose gateway is killed: no call runs twice, and the value is that of a whole run.
 * Covers: facade/runtime, facade/call, facade/state.
 */

import { closeSync, existsSync, openSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openAuditReader } from '../../facade/audit/index/audit-reader.ts';
import { cli, dataOf } from '../cli/terminal.ts';
import { inFull } from '../harness/full-tests.ts';
import { roundsOf } from '../harness/slices.ts';
import { Child, type Reply } from '../process/child.ts';
import { verifies } from '../verifies.ts';
import { expectedValue, type Program, randomProgram } from './code-programs.ts';
import { numbers, oneOf, SEED, TIMES } from './fault-seed.ts';
import { codeOf, Ground } from './gateway-load.ts';

const PROGRAMS = TIMES;
const HOOK = path.join(import.meta.dirname, '..', 'fixtures', 'kill-at-write.mjs');
/** A gateway is killed after fewer lines of its log than this. */
const MOST_SKIPPED = roundsOf(3, 6);
/** Longer than a run needs. */
const MOST_KILLS = 200;

/** Where the next gateway is killed: see kill-at-write.mjs. `late`: milliseconds after the call, from outside. */
interface KillAt {
  readonly line?: 'whole' | 'torn';
  readonly skip?: number;
  readonly wait?: number;
  readonly audit?: number;
  readonly ended?: boolean;
  readonly late?: number;
}

interface Line {
  readonly t: string;
  readonly seq: number;
  readonly args: string;
  readonly answer?: { readonly text?: string };
}

interface Shown {
  readonly id: string;
  readonly binding: string;
  readonly state: string;
  readonly arguments?: unknown;
  readonly coderun: { readonly again?: number };
}

let ground: Ground;
const children = new Set<Child>();
beforeEach(async () => {
  ground = new Ground({
    expose: ', code: true',
    settings: { a: ', semantics: {echo: read}', b: ', semantics: {echo: write, slow: write, bytes: write}' },
    rules: '[{id: all, outcome: allow, when: {}}, {id: asks, outcome: ask, message: Ask., when: {tools: [b.bytes]}}]',
    more: `principals: [{id: agent, stdio: true}, {id: boss, stdio: true, owner: true}]
approvals: {waitMs: 60}
code: {timeMs: 60000}
`,
  });
  await ground.project.approve();
});
afterEach(async () => {
  await Promise.all([...children].map((child) => child.kill('SIGKILL')));
  await ground.remove();
});

async function gateway(at: KillAt = {}): Promise<Child> {
  const { late: _, ...kill } = at;
  const env = { NODE_OPTIONS: `--import=${HOOK}`, KILL_AT: JSON.stringify(kill), KILL_FILE: killFile() };
  const child = new Child(ground.project, ['run', '--as', 'agent'], { env });
  children.add(child);
  void child.ended.then(() => children.delete(child));
  await child.hello();
  return child;
}

const killFile = (): string => path.join(ground.project.folder, 'killed');

/** Runs a command of the owner and returns its JSON. */
async function owner(...words: readonly string[]): Promise<unknown> {
  const { out, err, code } = await cli(ground.project, [...words, '--as', 'boss', '--json']);
  expect({ code, err }).toMatchObject({ code: 0 });
  return JSON.parse(out);
}

function filesOfRuns(): readonly string[] {
  const folder = path.join(ground.state, 'code-runs');
  return existsSync(folder) ? readdirSync(folder) : [];
}

/** The logs of the runs of one program, each held open, so that they can be read after they were removed. */
class RunLogs {
  readonly #open = new Map<string, number>();
  /** Logs of earlier programs, which stay if the gateway was killed soon after its reply. */
  readonly #others: ReadonlySet<string> = new Set(filesOfRuns());

  /** The ids of all runs so far, the newest last. */
  look(): readonly string[] {
    for (const name of filesOfRuns())
      if (!this.#open.has(name) && !this.#others.has(name))
        this.#open.set(name, openSync(path.join(ground.state, 'code-runs', name), 'r'));
    return [...this.#open.keys()].map((name) => name.replace('.jsonl', ''));
  }

  /** The whole lines of each run. */
  lines(): readonly (readonly Line[])[] {
    return [...this.#open.values()].map((fd) =>
      readFileSync(`/proc/self/fd/${fd}`, 'utf8')
        .split('\n')
        .flatMap((line) => {
          try {
            return [JSON.parse(line) as Line];
          } catch {
            return [];
          }
        }),
    );
  }

  close(): void {
    for (const fd of this.#open.values()) closeSync(fd);
  }
}

/** What a killed run came to. */
interface Played {
  readonly value: unknown;
  readonly kills: number;
  /** How often a person allowed to make a call again, by token. */
  readonly again: ReadonlyMap<string, number>;
  readonly denied: ReadonlySet<string>;
  readonly logs: RunLogs;
}

/** Plays one program to its end, with kills, and answers what is asked: in turn, a call is allowed again and denied. */
class Player {
  readonly #program: Program;
  readonly #chance: () => number;
  readonly #logs = new RunLogs();
  readonly #again = new Map<string, number>();
  readonly #denied = new Set<string>();
  readonly #isLoop: boolean;
  #kills = 0;
  #asked = 0;

  constructor(program: Program, chance: () => number) {
    this.#program = program;
    this.#chance = chance;
    this.#isLoop = chance() < 0.7;
  }

  async play(): Promise<Played> {
    for (let n = 0; n < MOST_KILLS; n += 1) {
      const reply = await this.#attempt({ ...this.#nextKill(), ended: this.#hasNotEnded() });
      if (reply === undefined) continue;
      if (codeOf(reply) === 'ok') return this.#played(reply);
      await this.#decide(reply);
    }
    throw new Error('The run did not end.');
  }

  /** Mostly at a line, at once or a moment later, when its call may have run. */
  #nextKill(): KillAt {
    const chance = this.#chance;
    const line = { line: 'whole', skip: Math.floor(chance() * MOST_SKIPPED) } as const;
    return oneOf<KillAt>(
      [
        line,
        line,
        { ...line, wait: chance() * 30 },
        { ...line, line: 'torn' },
        { audit: 1 + Math.floor(chance() * 8) },
        { late: chance() * 150 },
      ],
      chance,
    );
  }

  /** Calls run_code in a new gateway. Returns undefined if the gateway was killed before it replied. */
  async #attempt(at: KillAt): Promise<Reply | undefined> {
    const child = await gateway(at).catch(() => undefined);
    const id = this.#logs.look().at(-1);
    // In turn, by the same code and by its id.
    const args = id === undefined || this.#kills % 2 === 0 ? { code: this.#program.code } : { resume: id };
    const asking = child?.call('run_code', args);
    const late = at.late === undefined ? undefined : sleep(at.late).then(() => child?.kill('SIGKILL'));
    const reply = await asking?.catch(() => undefined);
    await late;
    this.#logs.look();
    if (reply === undefined) this.#kills += 1;
    // The next gateway must not wait for this one.
    await child?.kill('SIGKILL');
    return reply;
  }

  #hasNotEnded(): boolean {
    return !existsSync(killFile()) || !readFileSync(killFile(), 'utf8').includes('ended');
  }

  async #decide(reply: Reply): Promise<void> {
    const code = codeOf(reply);
    const text = reply.result?.content?.[0]?.text ?? '';
    // The first line was torn, so the run has not begun.
    if (code === 'ARGS_INVALID' && text.includes('There is no run')) return void (this.#kills += 1);
    if (code !== 'APPROVAL_REQUIRED') throw new Error(JSON.stringify(reply));
    const { approvals } = (await owner('approvals', 'list')) as { readonly approvals: readonly Shown[] };
    for (const { id } of approvals.filter(({ state }) => state === 'pending'))
      await this.#answer((await owner('approvals', 'show', id)) as Shown);
  }

  async #answer({ id, binding, coderun, ...shown }: Shown): Promise<void> {
    if (coderun.again === undefined) {
      const loop = ['--loop', '--max', String(this.#program.asking), '--where', '{"type": "object"}'];
      await owner('approvals', 'approve', id, '--yes', binding, ...(this.#isLoop ? loop : []));
      return;
    }
    const token = /"token\W+([ab]\.\w+\/p\d+-\d+\.\d*)/.exec(JSON.stringify(shown))?.[1] ?? '';
    expect(token).not.toBe('');
    this.#asked += 1;
    if (this.#asked % 2 === 0) {
      this.#denied.add(token);
      await owner('approvals', 'deny', id);
    } else {
      this.#again.set(token, (this.#again.get(token) ?? 0) + 1);
      await owner('approvals', 'approve', id, '--yes', binding);
    }
  }

  #played(reply: Reply): Played {
    const text = reply.result?.content?.map((one) => one.text).join('') ?? '';
    return {
      value: JSON.parse(text.slice(text.indexOf('{'))),
      kills: this.#kills,
      again: this.#again,
      denied: this.#denied,
      logs: this.#logs,
    };
  }
}

function counts(tokens: readonly string[]): ReadonlyMap<string, number> {
  const found = new Map<string, number>();
  for (const token of tokens) found.set(token, (found.get(token) ?? 0) + 1);
  return found;
}

const tokenOf = ({ args }: Line): string => (JSON.parse(args) as { readonly token: string }).token;

/** Returns what contradicts the promises: calls that ran twice, values of calls that did not run. */
function faultsOf({ again, logs }: Played, ran: ReadonlyMap<string, number>): readonly string[] {
  const lines = logs.lines().flatMap((run, at) => {
    const tokens = new Map(run.filter(({ t }) => t === 'call').map((line) => [line.seq, tokenOf(line)]));
    return run.map((line) => ({ ...line, run: at, token: tokens.get(line.seq) ?? '' }));
  });
  const sent = counts(lines.filter(({ t }) => t === 'sent').map(({ token }) => token));
  const answered = lines
    .filter(({ t, answer }) => t === 'done' && answer?.text?.includes('"tollgate/code"') === false)
    .map(({ token }) => token);
  const isRead = (token: string): boolean => token.startsWith('a.');
  const most = (token: string): number => 1 + (again.get(token) ?? 0);
  return [
    ...[...sent].filter(([token, times]) => times > most(token)).map(([token]) => `${token} was sent twice`),
    // The plan for a person executes reads as well, so only writes are counted where they run.
    ...[...ran]
      .filter(([token, times]) => !isRead(token) && times > most(token))
      .map(([token]) => `${token} ran twice`),
    ...[...ran.keys()].filter((token) => !isRead(token) && !sent.has(token)).map((token) => `${token} ran unsent`),
    ...answered.filter((token) => !ran.has(token)).map((token) => `${token} did not run`),
    ...[...counts(answered)].filter(([, times]) => times > 1).map(([token]) => `${token} was answered twice`),
  ];
}

interface Recorded {
  readonly id: string;
  readonly server: string;
  readonly tool: string;
  readonly parent?: string;
}

/** Returns what the audit log lacks: calls that ran without an intent, and inner records without their parent. */
function lostRecords(ran: readonly string[]): readonly string[] {
  const reader = openAuditReader(path.join(ground.state, 'audit'), ':memory:');
  const ofType = (type: string): Recorded[] =>
    [...reader.all({ type })].map(({ record }) => record as unknown as Recorded);
  const intents = ofType('intent');
  const inner = ['intent', 'outcome', 'decision'].flatMap(ofType).filter(({ server }) => /^[ab]$/.test(server));
  reader.close();
  const runs = new Set(intents.filter(({ tool }) => tool === 'run_code').map(({ id }) => id));
  const intended = counts(intents.map(({ server, tool }) => `${server}.${tool}`));
  return [
    ...[...counts(ran.map((token) => token.replace(/\/.*/, '')))]
      .filter(([name, times]) => times > (intended.get(name) ?? 0))
      .map(([name]) => `an intent of ${name}`),
    ...inner.filter(({ parent }) => parent === undefined || !runs.has(parent)).map(({ id }) => `the parent of ${id}`),
  ];
}

const withoutTexts = (value: unknown): unknown =>
  JSON.parse(JSON.stringify(value, (key, of: unknown) => (key === 'error' ? undefined : of)));

describe('a run of code whose gateway is killed', () => {
  inFull(
    `makes no call twice on its own, and returns what a whole run returns: ${PROGRAMS} programs, killed at any step` +
      verifies('CM-40', 'CM-41', 'CM-42'),
    async () => {
      const chance = numbers(SEED);
      let kills = 0;
      for (let n = 0; n < PROGRAMS; n += 1) {
        const program = randomProgram(`p${n}`, chance, 1 + (n % 2));
        const played = await new Player(program, chance).play();
        const all = [...ground.ran('a'), ...ground.ran('b')];
        const faults = faultsOf(played, counts(all.filter((token) => token.includes(`/p${n}-`))));
        const expected = await expectedValue(program, played.denied);
        played.logs.close();
        kills += played.kills;
        if (TIMES > 1) process.stderr.write(`${n + 1} programs, ${kills} kills, ${all.length} calls\n`);
        expect({ faults, value: withoutTexts(played.value), code: program.code }).toEqual({
          faults: [],
          value: withoutTexts(expected),
          code: program.code,
        });
      }
      expect(kills).toBeGreaterThan(PROGRAMS * roundsOf(5, 2));
      await expect.poll(() => ground.running()).toEqual([]);
      expect(lostRecords([...ground.ran('a'), ...ground.ran('b')])).toEqual([]);
      expect(dataOf((await cli(ground.project, ['audit', 'verify', '--json'])).out)).toMatchObject({
        ok: true,
        faults: [],
      });
    },
    120_000 + PROGRAMS * 60_000,
  );

  inFull(
    'is continued by exactly one of two gateways that try at once' + verifies('CM-40'),
    async () => {
      const code = `const { echo, slow } = require('host:mcp-b');
echo({ token: 'b.echo/1' });
slow({ token: 'b.slow/2', ms: 500 });
return 'all';`;
      const killed = await gateway({ line: 'whole', skip: 2 });
      await killed.call('run_code', { code }).catch(() => undefined);
      await killed.ended;
      const [log = ''] = filesOfRuns();
      const two = await Promise.all([gateway(), gateway()]);
      const replies = await Promise.all(two.map((one) => one.call('run_code', { resume: log.replace('.jsonl', '') })));
      expect(replies.map(codeOf).sort()).toEqual(['ARGS_INVALID', 'ok']);
      expect(replies.map(({ result }) => result?.content?.[0]?.text).join()).toMatch(/all|is executed by another call/);
      expect([...ground.ran('b')].sort()).toEqual(['b.echo/1', 'b.slow/2']);
    },
    60_000,
  );

  it('returns its value from the log if its reply was lost' + verifies('CM-41'), async () => {
    const code = "return require('host:mcp-b').echo({ token: 'b.echo/once' });";
    const killed = await gateway({ ended: true });
    await expect(killed.call('run_code', { code })).rejects.toThrow('SIGKILL');
    const reply = await (await gateway()).call('run_code', { code });
    expect(reply.result?.content?.[0]?.text).toMatch(/^\[tollgate: this continues run .*\n\{"token":"b.echo\/once"\}$/);
    expect(ground.ran('b')).toEqual(['b.echo/once']);
  }, 60_000);
});
