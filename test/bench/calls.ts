/** Measures calls over one transport: all targets and all kinds of calls, in turns. */
import { rmSync } from 'node:fs';
import { peakOf, processesOf, type Target, type Transport } from './client.ts';
import { type Block, type Lane, measureLanes, median, pairedRatio, quantile, runBlock, takeTurns } from './measure.ts';
import { type Measured, type Part, type Plan, withRatio } from './tables.ts';
import {
  KINDS,
  type Kind,
  openTarget,
  openTargets,
  sizedCall,
  TARGETS,
  type TargetName,
  writeConfig,
} from './targets.ts';

/** A row of calls: its name, what is called, and the row that it is compared with. */
type Row = readonly [name: string, target: TargetName, kind: Kind, base: string];

const ROWS: readonly Row[] = [
  ['direct', 'direct', 'kept', 'sdk'],
  ['pipe', 'pipe', 'kept', 'sdk'],
  ['json', 'json', 'kept', 'sdk'],
  ['floor', 'floor', 'kept', 'sdk'],
  ['sdk', 'sdk', 'kept', 'sdk'],
  ['sdk: file read', 'sdk', 'read', 'sdk: file read'],
  ['sdk: URL, output schema', 'sdk', 'page', 'sdk: URL, output schema'],
  ['kept decision', 'tollgate', 'kept', 'sdk'],
  ['evaluated: number', 'tollgate', 'number', 'sdk'],
  ['evaluated: prefix', 'tollgate', 'prefix', 'sdk'],
  ['evaluated: regex', 'tollgate', 'regex', 'sdk'],
  ['file read', 'tollgate', 'read', 'sdk: file read'],
  ['URL, output schema', 'tollgate', 'page', 'sdk: URL, output schema'],
];
const NAMES = ROWS.map(([name]) => name);
/** The cell of a figure that a target does not have: a server alone has no proxy. */
const NONE = '–';
const FLIGHTS = [8, 32, 128] as const;
const SIZES = [
  ['10 kB', 10_000, 30],
  ['100 kB', 100_000, 20],
  ['1 MB', 1_000_000, 8],
  ['10 MB', 10_000_000, 3],
] as const;
/** The calls of a new process that are measured, and those of them that are left out of the second figure. */
const FIRST_CALLS = 300;
const COLD_CALLS = 100;

/** The part of the benchmark for one transport. */
export function callsPart(transport: Transport): Part {
  return {
    name: transport,
    tables: [
      {
        title: `${transport}: one call at a time`,
        head: ['call', 'p50 µs', 'p95 µs', 'p99 µs', 'CPU µs', 'p50, ratio', 'CPU, ratio'],
        rows: NAMES,
      },
      {
        title: `${transport}: processor time of a call in µs, by calls in flight`,
        head: ['call', '1', ...FLIGHTS.map(String)],
        rows: NAMES,
      },
      {
        title: `${transport}: calls per second, by calls in flight`,
        head: ['call', '1', ...FLIGHTS.map(String)],
        rows: NAMES,
      },
      {
        title: `${transport}: time that a result adds to direct in ms, by its size`,
        head: ['target', ...SIZES.map(([name]) => name)],
        rows: TARGETS,
      },
      {
        title: `${transport}: a new process`,
        head: ['target', 'first list, ms', 'calls 1 to 300, p50 µs', 'calls 101 to 300', 'peak memory, MB'],
        rows: TARGETS,
      },
    ],
    measure: (plan) => measureCalls(transport, plan),
  };
}

async function measureCalls(transport: Transport, plan: Plan): Promise<Measured> {
  const fresh = await measureNewProcesses(transport, plan);
  const opened = await openTargets(TARGETS, transport);
  try {
    const lanes = ROWS.map(([name, target, kind]) => ({
      name,
      target: opened.targets[TARGETS.indexOf(target)] as Target,
      request: KINDS[kind],
    }));
    const flights = await measureFlights(lanes, transport, plan);
    const sizes = await measureSizes(opened.targets, transport, plan);
    const [alone = []] = flights;
    return {
      cells: [
        ROWS.map((_, row) => aloneCells(alone, row)),
        ROWS.map((_, row) => flights.map((all) => ratioCell(all, row, 'cpu'))),
        ROWS.map((_, row) => flights.map((all) => ratioCell(all, row, 'rate'))),
        TARGETS.map((_, row) => sizes.map((size) => size.cells[row] ?? '')),
        fresh.cells,
      ],
      figures: Object.fromEntries(
        Object.entries({ ...callFigures(flights), added1MB: sizes[2]?.ratio ?? Number.NaN, ...fresh.figures }).map(
          ([name, value]) => [`${transport}.${name}`, value],
        ),
      ),
    };
  } finally {
    await opened.close();
  }
}

/** Measures 1, 8, 32 and 128 calls in flight: for each number the blocks of each row. */
async function measureFlights(lanes: readonly Lane[], transport: Transport, plan: Plan): Promise<Block[][][]> {
  const { quick, say } = plan;
  say(`${transport}: ${lanes.length} kinds of calls, one at a time`);
  const found = [await measureLanes(lanes, { rounds: quick ? 6 : 30, calls: 100, warm: quick ? 500 : 3000 })];
  const most = transport === 'stdio' ? 2000 : 600;
  for (const flight of FLIGHTS) {
    say(`${transport}: ${flight} calls in flight`);
    found.push(await measureLanes(lanes, { rounds: quick ? 3 : 8, calls: quick ? most / 4 : most, flight }));
  }
  return found;
}

function baseOf(all: readonly Block[][], row: number): readonly Block[] {
  return all[NAMES.indexOf(ROWS[row]?.[3] ?? '')] ?? [];
}

const p50Of = ({ us }: Block): number => median(us);

function aloneCells(all: readonly Block[][], row: number): readonly string[] {
  const us = (all[row] ?? []).flatMap((block) => block.us);
  const [, p50] = ratioOf(all, row, p50Of);
  const [cpu, cpuRatio] = ratioOf(all, row, ({ cpu: used }) => used);
  const isProxy = ROWS[row]?.[1] !== 'direct';
  return [
    ...[0.5, 0.95, 0.99].map((q) => quantile(us, q).toFixed(0)),
    isProxy ? cpu.toFixed(0) : NONE,
    p50.toFixed(2),
    isProxy ? cpuRatio.toFixed(2) : NONE,
  ];
}

/** Returns the median of a row over its blocks, and of its ratio to the base. */
function ratioOf(all: readonly Block[][], row: number, of: (block: Block) => number): readonly [number, number] {
  const blocks = all[row] ?? [];
  return [median(blocks.map(of)), pairedRatio(blocks, baseOf(all, row), of)];
}

function ratioCell(all: readonly Block[][], row: number, key: 'cpu' | 'rate'): string {
  if (key === 'cpu' && ROWS[row]?.[1] === 'direct') return NONE;
  return withRatio(...ratioOf(all, row, (block) => block[key]));
}

/** The ratios that goals are about: of p50 alone, and of processor time and calls per second at 32 in flight. */
function callFigures(flights: readonly Block[][][]): Record<string, number> {
  const [alone = [], , many = []] = flights;
  const rows = ROWS.flatMap(([, target, kind], row) => (target === 'tollgate' ? [[kind, row] as const] : []));
  return Object.fromEntries(
    rows.flatMap(([kind, row]) => [
      [`p50.${kind}`, ratioOf(alone, row, p50Of)[1]],
      [`cpu32.${kind}`, ratioOf(many, row, ({ cpu }) => cpu)[1]],
      [`rate32.${kind}`, ratioOf(many, row, ({ rate }) => rate)[1]],
    ]),
  );
}

/** Measures results of each size: the time of `direct`, and what the others add to it, as a ratio to the SDK's. */
async function measureSizes(
  targets: readonly Target[],
  transport: Transport,
  { quick, say }: Plan,
): Promise<readonly { readonly cells: readonly string[]; readonly ratio: number }[]> {
  const found = [];
  for (const [name, bytes, calls] of SIZES) {
    say(`${transport}: results of ${name}`);
    const lanes = targets.map((target) => ({ name: target.name, target, request: sizedCall(bytes) }));
    const measured = await measureLanes(lanes, { rounds: quick ? 3 : 8, calls, warm: calls });
    const p50 = measured.map((blocks) => blocks.map(p50Of));
    const [direct = []] = p50;
    const added = p50.map((values) => values.map((value, round) => value - (direct[round] ?? 0)));
    const base = added[TARGETS.indexOf('sdk')] ?? [];
    const ratios = added.map((values) => pairedRatio(values, base, (value) => value));
    const cells = added.map((values, row) =>
      row === 0
        ? `${(median(direct) / 1000).toFixed(2)} in all`
        : withRatio(median(values) / 1000, ratios[row] ?? 0, 2),
    );
    found.push({ cells, ratio: ratios[TARGETS.indexOf('tollgate')] ?? Number.NaN });
  }
  return found;
}

/** What a new process is measured by: start to first list, ms; p50 of its first calls, µs; peak memory, MB. */
type NewProcess = Readonly<Record<'start' | 'first' | 'later' | 'peak', number>>;

async function measureNewProcesses(
  transport: Transport,
  { quick, say }: Plan,
): Promise<{ readonly cells: readonly (readonly string[])[]; readonly figures: Record<string, number> }> {
  say(`${transport}: new processes`);
  const folder = await writeConfig({});
  const found = await takeTurns(TARGETS, quick ? 3 : 9, (name) => runNewProcess(name, transport, folder));
  rmSync(folder, { recursive: true, force: true });
  const base = found[TARGETS.indexOf('sdk')] ?? [];
  const ratio = (row: number, key: keyof NewProcess): number =>
    pairedRatio(found[row] ?? [], base, (value) => value[key]);
  const cells = TARGETS.map((name, row) =>
    (['start', 'first', 'later', 'peak'] as const).map((key) =>
      name === 'direct' && key === 'peak'
        ? NONE
        : withRatio(median(found[row]?.map((value) => value[key]) ?? []), ratio(row, key)),
    ),
  );
  const own = TARGETS.indexOf('tollgate');
  return { cells, figures: { start: ratio(own, 'start'), first300: ratio(own, 'first'), peak: ratio(own, 'peak') } };
}

async function runNewProcess(name: TargetName, transport: Transport, folder: string): Promise<NewProcess> {
  const began = performance.now();
  const target = await openTarget(name, transport, { folder });
  await target.ask('tools/list', {});
  const start = performance.now() - began;
  const lane = { name, target, request: KINDS.kept };
  const { us } = await runBlock(lane, FIRST_CALLS);
  await runBlock(lane, 1000, 32);
  await runBlock({ ...lane, request: sizedCall(1_000_000) }, 6);
  const peak = peakOf(processesOf(target));
  await target.close();
  return { start, first: median(us), later: median(us.slice(COLD_CALLS)), peak };
}
