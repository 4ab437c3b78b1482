/** Counts what a call costs in promises, writes, statements of SQLite, messages to threads and allocated bytes. */
import { once } from 'node:events';
import { type Target, type Transport, writesOf } from './client.ts';
import type { Part } from './tables.ts';
import { KINDS, type Kind, openTargets } from './targets.ts';

const COUNT_KEYS = ['allocated', 'promises', 'writes', 'statements', 'messages'] as const;
/** What is counted, per call. `writes` are those of the main thread; `allocated` is in bytes of its heap. */
export type Counts = Readonly<Record<(typeof COUNT_KEYS)[number], number>>;

/** A count: the row, the target and kind of call, and how many calls are sent at once. */
interface CountedRow {
  readonly name: string;
  readonly transport: Transport;
  readonly target: 'sdk' | 'tollgate';
  readonly kind: Kind;
}

const row = (transport: Transport, target: CountedRow['target'], kind: Kind): CountedRow => ({
  name: `${transport}: ${target === 'sdk' ? target : kind}`,
  transport,
  target,
  kind,
});

/** The rows of counts. HTTP adds the same to each kind of call, so three of them are enough. */
export const COUNTED: readonly CountedRow[] = [
  row('stdio', 'sdk', 'kept'),
  ...(Object.keys(KINDS) as Kind[]).map((kind) => row('stdio', 'tollgate', kind)),
  row('http', 'sdk', 'kept'),
  ...(['kept', 'number', 'read'] as const).map((kind) => row('http', 'tollgate', kind)),
];
export const AT_ONCE = [1, 32] as const;

/** How many calls are sent to warm up and in each run: those of `npm run bench`. */
const CALLS: CallNumbers = { warm: 96, counted: 160 };
/** Each count is the least of so many runs, because V8 wakes the main thread by writes while it marks garbage. */
const RUNS = 8;

/** Says whether the counts of a row need no further run. `index`: of AT_ONCE. */
type IsEnough = (counts: Counts, row: string, index: number) => boolean;

interface CallNumbers {
  readonly warm: number;
  readonly counted: number;
}

/** The part of the benchmark about counts. Each cell has the count of one call at a time, and of 32 sent at once. */
export const COUNTS_PART: Part = {
  name: 'counts',
  tables: [
    {
      title: 'Counts per call: sent alone / 32 sent at once',
      head: ['call', 'allocated kB', 'promises', 'writes', 'statements', 'messages'],
      rows: COUNTED.map(({ name }) => name),
    },
  ],
  measure: async ({ say }) => {
    const cells: string[][] = [];
    for (const transport of ['stdio', 'http'] as const) {
      say(`counts: ${transport}`);
      cells.push(...(await countAll(transport)).map(formatCounts));
    }
    return { cells: [cells] };
  },
};

function formatCounts(counts: readonly Counts[]): string[] {
  const both = (of: (one: Counts) => string): string => counts.map(of).join(' / ');
  return [
    both(({ allocated }) => (allocated / 1000).toFixed(1)),
    ...COUNT_KEYS.slice(1).map((key) => both((one) => one[key].toFixed(2))),
  ];
}

/** Counts rows of a transport, or all of them: for each row one count for each number of calls at once. */
export async function countAll(
  transport: Transport,
  isEnough: IsEnough = () => false,
  {
    rows = COUNTED.filter((row) => row.transport === transport),
    numbers = CALLS,
  }: { readonly rows?: readonly CountedRow[]; readonly numbers?: CallNumbers } = {},
): Promise<Counts[][]> {
  const names = (['sdk', 'tollgate'] as const).filter((name) => rows.some(({ target }) => target === name));
  const opened = await openTargets(names, transport, { counted: true });
  try {
    const found: Counts[][] = [];
    for (const { name, target, kind } of rows) {
      const counts: Counts[] = [];
      for (const [index, atOnce] of AT_ONCE.entries()) {
        const calls = { target: opened.targets[names.indexOf(target)] as Target, kind, atOnce, numbers };
        counts.push(await countCalls(calls, (least) => isEnough(least, name, index)));
      }
      found.push(counts);
    }
    return found;
  } finally {
    await opened.close();
  }
}

async function countCalls(
  {
    target,
    kind,
    atOnce,
    numbers,
  }: { readonly target: Target; readonly kind: Kind; readonly atOnce: number; readonly numbers: CallNumbers },
  isEnough: (least: Counts) => boolean,
): Promise<Counts> {
  await sendCalls(target, kind, { calls: numbers.warm, atOnce });
  const counted = { calls: numbers.counted, atOnce };
  let least = await countOnce(target, kind, counted);
  for (let run = 1; run < RUNS && !isEnough(least); run += 1) {
    const counts = await countOnce(target, kind, counted);
    least = perKey((key) => Math.min(least[key], counts[key]));
  }
  return least;
}

const perKey = (of: (key: keyof Counts) => number): Counts =>
  Object.fromEntries(COUNT_KEYS.map((key) => [key, of(key)])) as Counts;

/** Returns the counts of one call. Promises are counted apart, because counting them makes others. */
async function countOnce(
  target: Target,
  kind: Kind,
  calls: { readonly calls: number; readonly atOnce: number },
): Promise<Counts> {
  await command(target, 'promises');
  await sendCalls(target, kind, calls);
  const { promises = Number.NaN } = await command(target, 'allocation');
  const before = writesOf(target.child.pid ?? 0);
  await sendCalls(target, kind, calls);
  const writes = writesOf(target.child.pid ?? 0) - before;
  const { allocated = Number.NaN, statements = Number.NaN, messages = Number.NaN } = await command(target, 'stop');
  const sums: Counts = { allocated, promises, writes, statements, messages };
  return perKey((key) => sums[key] / calls.calls);
}

/** Sends calls in groups. A group leaves in one write, so that the target reads it at once. */
async function sendCalls(
  { child, ask }: Target,
  kind: Kind,
  { calls, atOnce }: { readonly calls: number; readonly atOnce: number },
): Promise<void> {
  for (let sent = 0; sent < calls; sent += atOnce) {
    child.stdin?.cork();
    const replies = Array.from({ length: atOnce }, (_, index) => ask(...KINDS[kind](sent + index)));
    child.stdin?.uncork();
    const texts = await Promise.all(replies);
    const refused = texts.find((text) => text.includes('"isError":true') || text.includes('"error":{'));
    if (refused !== undefined) throw new Error(`${kind}: ${refused.toString().slice(0, 400)}`);
  }
}

/** Starts another count of counters.mjs; returns what the one before has counted. */
async function command({ child }: Target, what: string): Promise<Partial<Record<keyof Counts, number>>> {
  child.send(what);
  const [counted] = (await once(child, 'message')) as [Partial<Record<keyof Counts, number>>];
  return counted;
}
