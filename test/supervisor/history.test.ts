/** Tests random histories over a whole facade with servers that misbehave by a seed: what must hold whatever happens, in whatever order. */
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { verifyAudit } from '../../facade/audit/verify.ts';
import type { Session } from '../../facade/facade.ts';
import { KillSwitch } from '../../facade/servers/kill-switch.ts';
import { openState } from '../../facade/state/sqlite.ts';
import { server } from '../cli/terminal.ts';
import { isRunning, startedIn } from '../process/child.ts';
import { startFacade, type Answer, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

const BUDGET = 8;
const SERVERS = ['one', 'two'] as const;
const PRINCIPALS = ['alice', 'bob'] as const;
/** Codes that promise that the server never had the call. */
const NOT_SENT: ReadonlySet<string> = new Set(['SERVER_UNAVAILABLE', 'BUDGET_EXCEEDED', 'UNKNOWN_TOOL', 'PIN_MISMATCH', 'IDENTITY', 'DENIED']);

/** One call: whose, and how it ended. */
interface Made {
  readonly token: string;
  readonly answer: Promise<Answer>;
  readonly cancel: AbortController;
}

/** What a history works on. */
interface Real {
  readonly facade: TestFacade;
  readonly starts: string;
  readonly sessions: Map<string, Session>;
  readonly calls: Made[];
  /** As another process would throw it. */
  readonly killSwitch: KillSwitch;
}

/** Where it leaves its traces. */
interface History extends Real {
  readonly folder: string;
  readonly log: string;
  readonly close: () => unknown;
}

/** What a person would write down: only what is needed to choose the next step. */
interface Model {
  made: number;
}

type Step = fc.AsyncCommand<Model, Real>;

function sessionOf(real: Real, principal: string): Session {
  const known = real.sessions.get(principal);
  if (known !== undefined) return known;
  const opened = real.facade.open(principal);
  real.sessions.set(principal, opened);
  return opened;
}

/** A step that can always be taken. */
function step(name: string, run: (model: Model, real: Real) => Promise<void>): Step {
  return { check: () => true, run, toString: () => name };
}

const call = (who: string, which: string, waits: boolean): Step => step(`${who} calls ${which}${waits ? ' and waits' : ''}`, async (model, real) => {
  const cancel = new AbortController();
  // The same name in every run of a seed, so that the server throws the same dice.
  const token = `${who}-${which}-${(model.made += 1)}`;
  const answer = real.facade.call(sessionOf(real, who), `${which}_dice`, { token }, { signal: cancel.signal });
  real.calls.push({ token, answer, cancel });
  if (waits) await answer;
});

const calls = fc.record({ who: fc.constantFrom(...PRINCIPALS), which: fc.constantFrom(...SERVERS), waits: fc.boolean() }).map(({ who, which, waits }) => call(who, which, waits));
const others = [
  fc.constantFrom(...PRINCIPALS).map((who) => step(`${who} lists`, async (_model, real) => void (await real.facade.list(sessionOf(real, who))))),
  fc.constantFrom(...PRINCIPALS).map((who) => step(`${who} cancels`, async (_model, real) => real.calls.findLast(({ token }) => token.startsWith(who))?.cancel.abort())),
  fc.constantFrom(...PRINCIPALS).map((who) => step(`${who} leaves`, async (_model, real) => {
    const session = real.sessions.get(who);
    real.sessions.delete(who);
    if (session !== undefined) await real.facade.assembled.gateway.closeSession(session);
  })),
  fc.constant(step('a server is killed', async (_model, real) => {
    const pid = startedIn(real.starts).findLast(isRunning);
    if (pid !== undefined) process.kill(pid, 'SIGKILL');
  })),
  fc.boolean().map((lift) => step(lift ? 'the kill switch is lifted' : 'a server is stopped by the kill switch', async (_model, real) => {
    if (lift) await real.killSwitch.lift();
    else await real.killSwitch.throw({ server: 'one', since: '', by: '' });
  })),
  fc.integer({ min: 1, max: 60 }).map((ms) => step(`${ms} ms pass`, () => sleep(ms))),
];

async function open(seed: number): Promise<History> {
  const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-history-'));
  const [starts, log] = [path.join(folder, 'starts'), path.join(folder, 'log')];
  const env = `env: {CHAOS_STARTS: ${starts}, CHAOS_LOG: ${log}, CHAOS_SEED: "${seed}"}, timeoutMs: 400, maxRetries: 50`;
  const facade = await startFacade(`version: 1
workspace: ./workspace
state: ./state
servers:
  one: ${server(['chaos.mjs'], env)}
  two: ${server(['chaos.mjs'], `${env}, lifetime: keep-alive`)}
principals: [{id: alice, stdio: true}, {id: bob, stdio: true}]
profiles: {default: {servers: [one, two], expose: {primitives: workspace, tools: ["one.*", "two.*"]}}}
rules: [{id: all, outcome: allow, when: {}}]
budgets: [{id: throws, scope: principal, calls: ${BUDGET}, when: {tool: dice}}]
`, { folder });
  const other = openState(path.join(folder, 'state'));
  return { facade, folder, starts, log, sessions: new Map(), calls: [], killSwitch: new KillSwitch(other), close: () => other.close() };
}

/** What holds at the end of every history. */
async function judge(real: History): Promise<void> {
  const ended = await Promise.all(real.calls.map(async ({ token, answer }) => ({ token, answer: await answer })));
  await real.facade.close();
  const executed = existsSync(real.log) ? readFileSync(real.log, 'utf8').trimEnd().split('\n') : [];
  expect(new Set(executed).size, 'no call is carried out twice').toBe(executed.length);
  for (const { token, answer } of ended) {
    const tokens = answer.text.match(/(alice|bob)-(one|two)-\d+/g) ?? [];
    expect(tokens.filter((found) => found !== token), `the answer of ${token} is its own`).toEqual([]);
    if (answer.code === '' && answer.error === undefined) expect(executed, token).toContain(token);
    if (NOT_SENT.has(answer.code)) expect(executed, `${token}: ${answer.code}`).not.toContain(token);
  }
  for (const who of PRINCIPALS) expect(executed.filter((token) => token.startsWith(who)).length).toBeLessThanOrEqual(BUDGET);
  const records = real.facade.records();
  const intents = records.filter(({ type }) => type === 'intent').map(({ id }) => id);
  expect(records.filter(({ type }) => type === 'outcome').map(({ id }) => id).sort()).toEqual([...intents].sort());
  expect(intents.length).toBeGreaterThanOrEqual(executed.length);
  expect(records.filter(({ type, exposed }) => type !== 'intent' && String(exposed).endsWith('_dice'))).toHaveLength(ended.length);
  expect(verifyAudit(path.join(real.folder, 'state', 'audit'))).toMatchObject({ ok: true });
  await expect.poll(() => startedIn(real.starts).filter(isRunning), { timeout: 5000, message: 'no process is left' }).toEqual([]);
}

describe('random histories of calls, cancellations, crashes and departures', () => {
  it('carry out each call at most once, keep budgets, answer the right client, record everything and leave no process' + verifies('HA-07', 'HA-08', 'CY-21'), async () => {
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 0, max: 1e6 }), fc.array(fc.oneof({ weight: 5, arbitrary: calls }, ...others), { minLength: 10, maxLength: 40 }), async (seed, history) => {
        const real = await open(seed);
        try {
          await fc.asyncModelRun(() => ({ model: { made: 0 }, real }), history);
          await judge(real);
        } finally {
          await real.close();
          rmSync(real.folder, { recursive: true, force: true, maxRetries: 3 });
        }
      }),
      { numRuns: Number(process.env['TOLLGATE_HISTORIES'] ?? 8), endOnFailure: true },
    );
  });
});
