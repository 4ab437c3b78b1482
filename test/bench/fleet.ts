/** Measures what a fleet costs: a call over each store and number of replicas, a session, and the store alone. */
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type { BudgetClaim } from '../../facade/state/state-port.ts';
import type { Target } from './client.ts';
import { BenchFleet, type FleetShape, openAlone, type Way } from './fleet-targets.ts';
import { type Block, type Lane, median, pairedRatio, quantile, runBlock, takeTurns } from './measure.ts';
import type { Measured, Part, Plan } from './tables.ts';
import { KINDS } from './targets.ts';

/** Calls that are in flight where processor time and calls per second are measured. */
const FLIGHT = 32;
const WARM = 1_000;
const KINDS_OF_STORE = ['postgres', 'redis'] as const;
const WAYS: readonly Way[] = [
  { replicas: 1 },
  { replicas: 2 },
  { replicas: 3 },
  { replicas: 2, isSticky: true },
  { replicas: 3, isSticky: true },
];
const NAMES = { sqlite: 'SQLite', postgres: 'Postgres', redis: 'Redis' };
const rowOf = (kind: FleetShape['kind'], { replicas, isSticky }: Way): string =>
  `${NAMES[kind]}: ${replicas}${isSticky === true ? ', sticky' : ''}`;

const BASE = rowOf('sqlite', { replicas: 1 });
const ROWS = [
  'direct',
  'balancer',
  BASE,
  ...KINDS_OF_STORE.flatMap((kind) => WAYS.map((way) => rowOf(kind, way))),
  'workers: 1',
  'workers: 2',
  'workers: 2, balancer',
];
/** The row that the ratio of a row is to. */
const baseOf = (row: string): number => ROWS.indexOf(row.startsWith('workers') ? 'workers: 1' : BASE);

/** What a store and its replicas do apart from calls. */
interface StoreCost {
  readonly session: readonly string[];
  readonly store: readonly string[];
  /** Statements of a call, by row. */
  readonly statements: ReadonlyMap<string, string>;
}

/** One block of a lane one call at a time, and one with calls in flight. */
interface Pair {
  readonly alone: Block;
  readonly together: Block;
}

/** The part of the benchmark about fleets. */
export const FLEET_PART: Part = {
  name: 'fleet',
  tables: [
    {
      title: 'Fleet: a call, by store and replicas',
      head: ['replicas', 'p50 µs', 'p95 µs', 'CPU µs', 'CPU, ratio', 'calls/s', 'statements'],
      rows: ROWS,
    },
    {
      title: 'Fleet: a session that one of three replicas opens',
      head: ['store', 'statements', 'CPU µs', 'CPU µs of another', 'kB', 'kB of another'],
      rows: KINDS_OF_STORE.map((kind) => NAMES[kind]),
    },
    {
      title: 'Fleet: the store alone',
      head: ['store', 'writes/s', 'reservations/s', 'polls/s', 'statements/s at rest', 'CPU ms/s at rest'],
      rows: KINDS_OF_STORE.map((kind) => NAMES[kind]),
    },
  ],
  measure: measureFleets,
};

async function measureFleets(plan: Plan): Promise<Measured> {
  const closing: (() => Promise<void>)[] = [];
  const lanes = new Map<string, Target>();
  const fleets: BenchFleet[] = [];
  const start = async (shape: FleetShape): Promise<BenchFleet> => {
    plan.say(`fleet: ${shape.replicas} × ${NAMES[shape.kind]}`);
    const fleet = await BenchFleet.start(shape);
    closing.push(() => fleet.close());
    return fleet;
  };
  try {
    const { targets, close } = await openAlone();
    closing.push(close);
    for (const target of targets) lanes.set(target.name, target);
    lanes.set(BASE, await (await start({ kind: 'sqlite', replicas: 1 })).open(BASE, { replicas: 1 }));
    for (const kind of KINDS_OF_STORE) {
      const fleet = await start({ kind, replicas: 3 });
      fleets.push(fleet);
      for (const way of WAYS) lanes.set(rowOf(kind, way), await fleet.open(rowOf(kind, way), way));
    }
    for (const workers of [1, 2]) {
      const fleet = await start({ kind: 'sqlite', replicas: 1, workers });
      const name = `workers: ${workers}`;
      lanes.set(name, await fleet.open(name, { replicas: 1, isDirect: true }));
      if (workers === 2) lanes.set(`${name}, balancer`, await fleet.open(`${name}, balancer`, { replicas: 1 }));
    }
    const pairs = await measurePairs(
      ROWS.map((name) => laneOf(name, lanes.get(name)!)),
      plan,
    );
    const costs: StoreCost[] = [];
    for (const [index, fleet] of fleets.entries()) costs.push(await costOf(fleet, KINDS_OF_STORE[index]!, lanes, plan));
    const statements = new Map(costs.flatMap((cost) => [...cost.statements]));
    return {
      cells: [
        ROWS.map((row, index) => callCells(pairs[index]!, pairs[baseOf(row)]!, statements.get(row))),
        costs.map(({ session }) => session),
        costs.map(({ store }) => store),
      ],
    };
  } finally {
    for (const close of closing) await close();
  }
}

const laneOf = (name: string, target: Target): Lane => ({ name, target, request: KINDS.kept });

async function measurePairs(lanes: readonly Lane[], { quick, say }: Plan): Promise<Pair[][]> {
  say('fleet: calls');
  for (const lane of lanes) await runBlock(lane, quick ? WARM / 4 : WARM, FLIGHT);
  return takeTurns(lanes, quick ? 5 : 11, async (lane) => ({
    alone: await runBlock(lane, quick ? 60 : 100),
    together: await runBlock(lane, quick ? 300 : 500, FLIGHT),
  }));
}

function callCells(pairs: readonly Pair[], base: readonly Pair[], statements = '–'): readonly string[] {
  const us = (share: number): string => median(pairs.map(({ alone }) => quantile(alone.us, share))).toFixed(0);
  const cpu = median(pairs.map(({ together }) => together.cpu));
  const ratio = pairedRatio(pairs, base, ({ together }) => together.cpu);
  const rate = median(pairs.map(({ together }) => together.rate)).toFixed(0);
  const ofCpu = cpu === 0 ? ['–', '–'] : [cpu.toFixed(0), ratio.toFixed(2)];
  return [us(0.5), us(0.95), ...ofCpu, rate, statements];
}

async function costOf(
  fleet: BenchFleet,
  kind: (typeof KINDS_OF_STORE)[number],
  lanes: ReadonlyMap<string, Target>,
  { quick, say }: Plan,
): Promise<StoreCost> {
  say(`fleet: statements, sessions and the store alone, ${NAMES[kind]}`);
  const count = await countRest(fleet, quick ? 5_000 : 20_000);
  const statements = new Map<string, string>();
  const calls = quick ? 1_000 : 4_000;
  for (const way of WAYS) {
    const name = rowOf(kind, way);
    const made = await count.during(() => runBlock(laneOf(name, lanes.get(name)!), calls, FLIGHT));
    statements.set(name, (made / calls).toFixed(3));
  }
  const session = await measureSessions(fleet, { count, sessions: quick ? 100 : 500 });
  const alone = await measureStore(fleet, quick ? 500 : 3_000);
  const rest = [(count.perSecond / 3).toFixed(1), count.cpu.toFixed(1)];
  return { session, store: [...alone.map((rate) => rate.toFixed(0)), ...rest], statements };
}

/** Statements of all replicas without calls, per second, and milliseconds of processor time of one per second. */
interface Rest {
  readonly perSecond: number;
  readonly cpu: number;
  /** Returns the statements that some work needs, without those at rest. */
  during(work: () => Promise<unknown>): Promise<number>;
}

async function countRest(fleet: BenchFleet, ms: number): Promise<Rest> {
  // Until what was reserved ahead is given back.
  await sleep(2_000);
  const began = performance.now();
  const before = await fleet.statements();
  const usedCpu = fleet.startCpu(0);
  const from = performance.now();
  await sleep(ms);
  const cpu = usedCpu() / 1e3 / (performance.now() - from);
  const perSecond = ((await fleet.statements()) - before) / ((performance.now() - began) / 1000);
  const during: Rest['during'] = async (work) => {
    const start = await fleet.statements();
    const beganWork = performance.now();
    await work();
    const all = (await fleet.statements()) - start;
    return Math.max(0, all - (perSecond * (performance.now() - beganWork)) / 1000);
  };
  return { perSecond, cpu, during };
}

async function measureSessions(
  fleet: BenchFleet,
  { count, sessions }: { readonly count: Rest; readonly sessions: number },
): Promise<readonly string[]> {
  const [home, other] = [fleet.startCpu(0), fleet.startCpu(1)];
  const [homeKb, otherKb] = [residentKb(fleet, 0), residentKb(fleet, 1)];
  const began = performance.now();
  const made = await count.during(() => fleet.openSessions(sessions));
  const restNs = count.cpu * 1000 * (performance.now() - began);
  const us = (ns: number): string => (Math.max(0, ns - restNs) / 1000 / sessions).toFixed(0);
  const kb = (grown: number): string => (grown / sessions).toFixed(1);
  return [
    (made / sessions).toFixed(2),
    us(home()),
    us(other()),
    kb(residentKb(fleet, 0) - homeKb),
    kb(residentKb(fleet, 1) - otherKb),
  ];
}

function residentKb({ replicas }: BenchFleet, index: number): number {
  const text = readFileSync(`/proc/${replicas[index]!.pid}/status`, 'utf8');
  return Number(/VmRSS:\s+(\d+)/.exec(text)?.[1]);
}

/** Returns writes of values, reservations of one counter and polls, each per second, with 16 in flight. */
async function measureStore(fleet: BenchFleet, count: number): Promise<readonly number[]> {
  const store = await fleet.openStore();
  const mark = '0'.repeat(32);
  const claim: BudgetClaim = {
    scope: 'principal',
    key: 'bench',
    budget: 'many',
    windowMs: 3_600_000,
    demands: [{ unit: 'calls', limit: 1e9, most: 1, least: 1 }],
  };
  const rate = async (work: (number: number) => Promise<unknown>): Promise<number> => {
    let next = 0;
    const began = performance.now();
    const loop = async (): Promise<void> => {
      while (next < count) await work((next += 1));
    };
    await Promise.all(Array.from({ length: 16 }, loop));
    return count / ((performance.now() - began) / 1000);
  };
  try {
    await store.news(undefined, mark);
    const from = async (): Promise<number> => (await store.news(undefined, mark)).to;
    let seen = await from();
    const writes = await rate(async (number) => {
      const value = 'x'.repeat(500);
      const { news } = await store.write({ op: 'put', space: 'sessions', key: String(number % 200), to: value }, seen);
      seen = Math.max(seen, news.to);
    });
    const ahead = { most: 0, held: 0 };
    const reservations = await rate((number) => store.reserve({ claims: [claim], ahead, lease: `${number}`, mark }));
    const polls = await rate(() => store.news(seen, mark));
    return [writes, reservations, polls];
  } finally {
    await store.close();
  }
}
