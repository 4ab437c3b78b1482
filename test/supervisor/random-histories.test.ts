/**
 * Tests random histories of two facades, misbehaving servers and decisions of people against a model of what may
 * happen.
 * Covers: adapters/supervisor.
 */
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { verifyAudit } from '../../facade/audit/chain-verification.ts';
import { ACT_OF_BOSS, withConsents } from '../consent/consent-facade.ts';
import { roundsOf } from '../harness/slices.ts';
import { isRunning, startedIn } from '../process/child.ts';
import type { Answer } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';
import {
  BUDGET,
  type Done,
  type Made,
  MODES,
  type Mode,
  PRINCIPALS,
  toolsOf,
  type Version,
  World,
} from './history-world.ts';

/**
 * EARLY: codes of calls that were refused before budgets and approvals. NOT_SENT: all codes that promise that the
 * server did not get the call.
 */
const EARLY = ['UNKNOWN_TOOL', 'BUDGET_EXCEEDED', 'APPROVAL_REQUIRED', 'DENIED', 'IDENTITY'];
const NOT_SENT: ReadonlySet<string> = new Set([
  ...EARLY,
  'PIN_MISMATCH',
  'SWITCHED_OFF',
  'SERVER_UNAVAILABLE',
  'RATE_LIMITED',
]);

/** The decisions of people at one time. A call may be carried out only as they allow. */
interface Permit {
  readonly approved?: Version;
  readonly disabled: boolean;
  readonly killed: boolean;
  readonly off: boolean;
}

/** `spent?`: approved, and perhaps used up by a call that failed before the server got it. */
type Asked = 'open' | 'approved' | 'denied' | 'spent?';

/** The expected state. */
interface Model {
  version: Version;
  mode: Mode;
  /** Other tools than the approved ones may have been listed, so refusals may name that first. */
  drifts: boolean;
  /** The last one is in force. */
  readonly permits: Permit[];
  /** The least and most that each principal may have spent. A call that failed early may have been counted. */
  readonly spent: Map<string, { least: number; most: number }>;
  /** Calls for which a person was asked, by token. */
  readonly asked: Map<string, Asked>;
  readonly approvals: Set<string>;
  acts: number;
  begun: number;
}

type Step = fc.AsyncCommand<Model, World>;

const step = (name: string, run: (model: Model, world: World) => Promise<unknown>): Step => ({
  check: () => true,
  run: async (model, world) => void (await run(model, world)),
  toString: () => name,
});
const now = ({ permits }: Model): Permit => permits.at(-1) as Permit;

/** Returns true if the decisions at one time allow a call to be carried out like this. */
function allows(
  { approved, disabled, killed, off }: Permit,
  tool: string,
  { script, list }: Pick<Done, 'script' | 'list'>,
): boolean {
  if (off) return false;
  if (tool.startsWith('two')) return true;
  return (
    !disabled &&
    !killed &&
    approved !== undefined &&
    String(approved.script) === script &&
    (tool !== 'one_dice' || approved.list === list)
  );
}

interface Wish {
  readonly at: number;
  readonly who: string;
  readonly tool: string;
  readonly token?: string;
}

async function begin(model: Model, world: World, { at, who, tool, token }: Wish): Promise<Made> {
  // The name is the same in every run of a seed, so that the server makes the same random choices.
  const id = `${who}-c${(model.begun += 1)}`;
  const session = await world.session(at, who);
  const cancel = new AbortController();
  const since = model.permits.length - 1;
  const spent = model.spent.get(who) as { least: number; most: number };
  if (tool.endsWith('_dice')) spent.most += 1;
  const full = spent.least >= BUDGET;
  const account = ({ code }: Answer): void => {
    if (!tool.endsWith('_dice')) return;
    if (world.done().some(({ call }) => call === id)) spent.least += 1;
    else if (EARLY.includes(code)) spent.most -= 1;
    if (full) expect(NOT_SENT, `${id} over a spent budget`).toContain(code);
    if (code === 'BUDGET_EXCEEDED') expect(spent.most, `${id}: the budget is spent`).toBeGreaterThanOrEqual(BUDGET);
  };
  const asked = (await world.at(at)).call(
    session,
    tool,
    { token: token ?? id },
    { signal: cancel.signal, meta: { call: id, 'tollgate/run': id } },
  );
  const answer = asked.then((given) => {
    account(given);
    // A decision that is being made may apply already.
    return { ...given, until: model.permits.length };
  });
  // A failure shows where the answer is awaited.
  answer.catch(() => undefined);
  const made: Made = { id, who, tool, token: token ?? id, since, answer, cancel };
  world.calls.push(made);
  return made;
}

/** Checks the outcome of a call during which nothing else happened. */
async function judgeAlone(
  model: Model,
  world: World,
  { id, tool, answer }: Made,
): Promise<{ readonly ran: boolean; readonly code: string }> {
  const { code } = await answer;
  const permit = now(model);
  const ran = world.done().some(({ call }) => call === id);
  if (permit.off) expect([ran, code]).toEqual([false, 'SWITCHED_OFF']);
  else if (tool.startsWith('one') && (permit.killed || permit.disabled || permit.approved === undefined))
    expect(
      [
        ran,
        ['SERVER_UNAVAILABLE', 'UNKNOWN_TOOL', 'DENIED', ...(model.drifts ? ['PIN_MISMATCH'] : [])].includes(code)
          ? ''
          : code,
      ],
      id,
    ).toEqual([false, '']);
  return { ran, code };
}

const call = (wish: Wish, waits: boolean): Step =>
  step(`${wish.who} calls ${wish.tool} at ${wish.at}${waits ? ' and waits' : ''}`, async (model, world) => {
    const made = await begin(model, world, wish);
    if (waits) await judgeAlone(model, world, made);
  });

/** A call that needs approval, perhaps at both facades at once. One approval allows one of them. */
const ask = (who: string, which: number, ats: readonly number[]): Step =>
  step(`${who} asks for ${which} at ${ats.join(' and ')}`, async (model, world) => {
    const token = `${who}-ask${which}`;
    const before = model.asked.get(token);
    const made = await Promise.all(ats.map((at) => begin(model, world, { at, who, tool: 'one_ask', token })));
    const ends = await Promise.all(made.map((one) => judgeAlone(model, world, one)));
    const codes = ends.map(({ code }) => code);
    expect(
      ends.filter(({ ran }) => ran).length,
      `${token}, ${before ?? 'not asked'}: ${codes.join()}`,
    ).toBeLessThanOrEqual(before === 'approved' || before === 'spent?' ? 1 : 0);
    if (before !== 'denied') expect(codes).not.toContain('DENIED');
    if (before === 'denied' && codes.includes('APPROVAL_REQUIRED'))
      expect.fail(`${token} was denied and is asked again`);
    if (before === 'approved' && codes.every((code) => code === 'APPROVAL_REQUIRED'))
      expect.fail(`${token} was approved and is asked again`);
    if (codes.includes('APPROVAL_REQUIRED')) model.asked.set(token, 'open');
    else if (ends.some(({ ran }) => ran)) model.asked.delete(token);
    else if (before === 'approved' && codes.some((code) => !EARLY.includes(code))) model.asked.set(token, 'spent?');
  });

/** A decision of the owner about a request that is open or approved. */
const owner = (does: 'approves' | 'denies' | 'takes back' | 'lets all expire'): Step =>
  step(`the owner ${does}`, async (model, { desk }) => {
    if (does === 'lets all expire') {
      await desk.age(3_600_000);
      return model.asked.clear();
    }
    const [stored] = await desk.all(does === 'takes back' ? 'approved' : 'pending');
    if (stored === undefined) return undefined;
    const { token } = JSON.parse(stored.item.argsText) as { token: string };
    model.asked.set(token, does === 'approves' ? 'approved' : 'denied');
    if (does === 'approves') model.approvals.add(stored.item.id);
    return does === 'approves' ? desk.approveOne(stored) : desk.deny('No.', stored);
  });

/** A decision as made by another process. It applies from the end of this step on. */
const decide = (name: string, change: (model: Model, world: World) => Promise<Partial<Permit>>): Step =>
  step(name, async (model, world) => {
    const next = await change(model, world);
    model.permits.push({ ...now(model), ...next });
  });

/** Waits for calls and starts, because programs on the disk change between starts only. Other tests cover the race. */
async function settled(world: World): Promise<void> {
  await Promise.allSettled(world.calls.map(({ answer }) => answer));
  // A start continues even if its call was cancelled.
  await world.started();
}

async function approve(model: Model, world: World): Promise<Partial<Permit>> {
  model.acts += 1;
  const act = { by: 'boss', at: new Date(1e12 + model.acts).toISOString() };
  const { config } = world.facade.assembled;
  await withConsents(config, async (consents) => {
    const start = await consents.approveStart({ facts: await consents.factsOf(config.servers.get('one')!), ...act });
    await consents.approveTools(
      'one',
      { tools: toolsOf(model.version.list), prompts: [], hints: false },
      { start, ...act },
    );
  });
  return { approved: model.version };
}

const consented =
  (work: Parameters<typeof withConsents>[1]) =>
  (_model: Model, world: World): Promise<unknown> =>
    withConsents(world.facade.assembled.config, work);

const decisions: Step[] = [
  decide('one is approved as it is', approve),
  decide(
    'one is revoked',
    async (model, world) => (
      await consented((consents) => consents.revoke('one'))(model, world),
      { approved: undefined } as unknown as Partial<Permit>
    ),
  ),
  decide(
    'one is disabled',
    async (model, world) => (
      await consented((consents) => consents.disable('one', ACT_OF_BOSS))(model, world), { disabled: true }
    ),
  ),
  decide(
    'one is killed',
    async (_model, { killSwitch }) => (await killSwitch.throw({ server: 'one', since: '', by: '' }), { killed: true }),
  ),
  decide(
    'all is off',
    async (_model, { killSwitch }) => (await killSwitch.throw({ since: '', by: '' }), { off: true }),
  ),
];

const putRight = decide('all is put right', async (model, world) => {
  await settled(world);
  world.write(model.version, (model.mode = 'ok'));
  await world.killSwitch.lift();
  await consented((consents) => consents.enable('one'))(model, world);
  return { ...(await approve(model, world)), killed: false, disabled: false, off: false };
});

const lists = (at: number, who: string): Step =>
  step(`${who} lists at ${at}`, async (model, world) => {
    const shown = (await (await world.at(at)).list(await world.session(at, who))).map(
      ({ name, description }) => [name, String(description)] as const,
    );
    const { off, killed, disabled, approved } = now(model);
    if (off) return expect(shown).toEqual([]);
    const ones = shown.filter(([name]) => name.startsWith('one'));
    if (disabled || approved === undefined) expect(ones).toEqual([]);
    if (killed) return undefined;
    for (const [name, description] of ones)
      if (name === 'one_dice') expect(description).toContain(`Version ${approved?.list}.`);
  });

const changes = (what: 'script' | 'list' | Mode): Step =>
  step(`one becomes another: ${what}`, async (model, world) => {
    await settled(world);
    if (what === 'script' || what === 'list') model.version = { ...model.version, [what]: model.version[what] + 1 };
    else model.mode = what;
    model.drifts ||= what === 'list' || what === 'turncoat';
    world.write(model.version, model.mode);
    // The former program still runs. Half of the time it is killed, and the next start uses the new one.
    if (world.calls.length % 2 === 0)
      startedIn(world.file('starts'))
        .filter(isRunning)
        .forEach((pid) => process.kill(pid, 'SIGKILL'));
  });

const who = fc.constantFrom(...PRINCIPALS);
const at = fc.constantFrom(0, 0, 1);
const steps: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 12,
    arbitrary: fc
      .record({ who, at, tool: fc.constantFrom('one_dice', 'one_dice', 'one_same', 'two_dice'), waits: fc.boolean() })
      .map(({ waits, ...wish }) => call(wish, waits)),
  },
  {
    weight: 6,
    arbitrary: fc
      .tuple(who, fc.nat(1), fc.constantFrom([0], [0], [1], [0, 1], [0, 0]))
      .map(([name, which, ats]) => ask(name, which, ats)),
  },
  {
    weight: 4,
    arbitrary: fc
      .constantFrom(
        'approves' as const,
        'approves' as const,
        'denies' as const,
        'takes back' as const,
        'lets all expire' as const,
      )
      .map(owner),
  },
  { weight: 3, arbitrary: fc.constant(putRight) },
  { weight: 2, arbitrary: fc.constantFrom(...decisions) },
  {
    weight: 4,
    arbitrary: fc
      .constantFrom('script' as const, 'list' as const, 'list' as const, 'turncoat' as const, ...MODES)
      .map(changes),
  },
  { weight: 2, arbitrary: fc.tuple(at, who).map(([index, name]) => lists(index, name)) },
  {
    weight: 1,
    arbitrary: who.map((name) =>
      step(`${name} cancels`, async (_model, world) =>
        world.calls.findLast((made) => made.who === name)?.cancel.abort(),
      ),
    ),
  },
  {
    weight: 1,
    arbitrary: fc
      .tuple(at, who)
      .map(([index, name]) => step(`${name} leaves ${index}`, async (_model, world) => world.leave(index, name))),
  },
  {
    weight: 1,
    arbitrary: fc.constant(
      step('a server is killed by the system', async (_model, world) => {
        const pid = startedIn(world.file('starts')).findLast(isRunning);
        if (pid !== undefined) process.kill(pid, 'SIGKILL');
      }),
    ),
  },
  {
    weight: 1,
    arbitrary: at.map((index) =>
      step(`facade ${index} restarts`, async (_model, world) => (await settled(world), world.restart(index))),
    ),
  },
  { weight: 2, arbitrary: fc.integer({ min: 1, max: 60 }).map((ms) => step(`${ms} ms pass`, () => sleep(ms))) },
);

/** Checks what must be true at the end of every history. */
async function judge(model: Model, world: World): Promise<number> {
  const ended = await Promise.all(world.calls.map(async (made) => ({ made, answer: await made.answer })));
  const records = world.facade.records;
  await world.close();
  const done = new Map<string, Done>();
  for (const one of world.done()) {
    expect(done.has(one.call), `${one.call} is carried out twice`).toBe(false);
    done.set(one.call, one);
  }
  const written = records();
  const intents = new Map(
    written.filter(({ type }) => type === 'intent').map((record) => [String(record.run).split('/')[1], record]),
  );
  const used = written.filter(({ event }) => event === 'used');
  expect(new Set(used.map(({ id }) => id)).size, 'each approval is used once').toBe(used.length);
  for (const { made, answer } of ended) {
    const { id, tool, since, token } = made;
    const { until } = answer;
    const ran = done.get(id);
    const others = (answer.text.match(/(alice|bob)-(c|ask)\d+/g) ?? []).filter(
      (found) => found !== id && found !== token,
    );
    expect(others, `the answer of ${id} is its own`).toEqual([]);
    if (answer.code === '' && answer.error === undefined) expect(ran, `${id} was answered`).toBeDefined();
    if (NOT_SENT.has(answer.code)) expect(ran, `${id}: ${answer.code}`).toBeUndefined();
    if (ran === undefined) continue;
    expect(
      model.permits.slice(since, until + 1).some((permit) => allows(permit, tool, ran)),
      `${id} of ${tool} was carried out as ${JSON.stringify(ran)}; ${JSON.stringify(model.permits.slice(since, until + 1))}`,
    ).toBe(true);
    const intent = intents.get(id);
    expect(intent, `${id} was written down before`).toMatchObject({ outcome: 'allow' });
    if (tool !== 'one_ask') continue;
    expect(model.approvals, `${id} was approved`).toContain(intent?.consent);
    expect(used.filter(({ id: approval, call: by }) => approval === intent?.consent && by === intent?.id)).toHaveLength(
      1,
    );
  }
  for (const name of PRINCIPALS) {
    const counted = [...intents.values()].filter(
      ({ tool, principal }) => tool === 'dice' && (principal as { id: string }).id === name,
    ).length;
    const { least, most } = model.spent.get(name) as { least: number; most: number };
    expect(
      [counted <= BUDGET, counted >= least, counted <= most],
      `${name} spent ${counted}, the model says ${least} to ${most}`,
    ).toEqual([true, true, true]);
  }
  const outcomes = written.filter(({ type }) => type === 'outcome').map(({ id }) => id);
  expect(outcomes.sort()).toEqual([...intents.values()].map(({ id }) => id).sort());
  expect(verifyAudit(path.join(world.folder, 'state', 'audit'))).toMatchObject({ ok: true });
  await expect
    .poll(() => startedIn(world.file('starts')).filter(isRunning), { timeout: 20_000, message: 'no process is left' })
    .toEqual([]);
  return done.size;
}

describe('random histories of calls, crashes, approvals and switches over two facades', () => {
  it('carry out each call at most once, and only as it was allowed and approved; ' +
    'keep budgets, answer the right client, record everything and leave no process' +
    verifies('HA-07', 'HA-08', 'HA-15', 'HA-19', 'CY-03', 'CY-21'), async () => {
    let reached = 0;
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 0, max: 1e6 }),
        fc.array(steps, { minLength: 15, maxLength: 40 }),
        async (seed, history) => {
          const world = new World(seed);
          const model: Model = {
            version: { script: 1, list: 1 },
            mode: 'ok',
            drifts: false,
            permits: [{ disabled: false, killed: false, off: false }],
            spent: new Map(PRINCIPALS.map((name) => [name, { least: 0, most: 0 }])),
            asked: new Map(),
            approvals: new Set(),
            acts: 0,
            begun: 0,
          };
          try {
            world.write(model.version, model.mode);
            await world.open();
            // Most histories begin with an approval. The others show that nothing is reached before one.
            await fc.asyncModelRun(() => ({ model, real: world }), seed % 5 === 0 ? history : [putRight, ...history]);
            reached += await judge(model, world);
          } finally {
            world.remove();
          }
        },
      ),
      { numRuns: Number(process.env.TOLLGATE_HISTORIES ?? roundsOf(6, 2)), endOnFailure: true },
    );
    expect(reached, 'some calls are carried out').toBeGreaterThan(0);
  }, 300_000);
});
