/** Measures calls that code makes, compared with direct calls to the same process, and runs of code as a whole. */
import { rmSync } from 'node:fs';
import { startCpu, type Target } from './client.ts';
import { median, pairedRatio, type Request, runBlock, takeTurns } from './measure.ts';
import type { Part } from './tables.ts';
import { KINDS, openTarget, writeConfig } from './targets.ts';

/** Calls of one run: the most that the default configuration allows. */
const CALLS = 200;
/** Calls at the same time: what the default configuration allows to code. */
const PARALLEL = 8;

const run =
  (code: string): Request =>
  () => ['tools/call', { name: 'run_code', arguments: { code } }];
const ECHO = `const { echo } = require('host:mcp-bench');`;
const NOTHING = run('return 1;');
const ONE_BY_ONE = run(`${ECHO} for (let n = 0; n < ${CALLS}; n += 1) echo({ text: 'hello-' + n }); return 1;`);
const AT_ONCE = run(
  `${ECHO} const numbers = Array.from({ length: ${CALLS} }, (_, n) => n);
await Promise.all(numbers.map((n) => echo.async({ text: 'hello-' + n }))); return 1;`,
);

/** What is measured: calls, and how many of them are in flight. Each run of code counts as one call here. */
interface Measure {
  readonly name: string;
  readonly request: Request;
  readonly calls: number;
  readonly flight: number;
  /** Inner calls of one run. */
  readonly inner?: number;
}

const MEASURES: readonly Measure[] = [
  { name: 'direct calls, one at a time', request: KINDS.kept, calls: CALLS, flight: 1 },
  { name: 'calls of code, one at a time', request: ONE_BY_ONE, calls: 1, flight: 1, inner: CALLS },
  { name: 'direct calls, 8 in flight', request: KINDS.kept, calls: CALLS, flight: PARALLEL },
  { name: 'calls of code, 8 in flight', request: AT_ONCE, calls: 1, flight: 1, inner: CALLS },
  { name: 'run_code that makes no call', request: NOTHING, calls: 20, flight: 1 },
];

/** One block: milliseconds of one call or run, and processor time of one call, inner calls included, µs. */
interface CodeBlock {
  readonly ms: number;
  readonly cpu: number;
}

/**
 * The part of the benchmark about code. Calls of code are measured without the start of their run, which has a row of
 * its own. The ratio is that of a call of code to a direct one of the same round.
 */
export const CODE_PART: Part = {
  name: 'code',
  tables: [
    {
      title: 'Code: calls that code makes',
      head: ['block', 'p50 ms of a call or run', 'CPU µs of a call', 'CPU, ratio'],
      rows: MEASURES.map(({ name }) => name),
    },
  ],
  measure: async ({ quick, say }) => {
    say('code: calls and runs');
    const folder = await writeConfig({ code: true });
    const target = await openTarget('tollgate', 'stdio', { folder });
    try {
      await target.ask('tools/list', {});
      const rounds = quick ? 8 : 30;
      await takeTurns(MEASURES, quick ? 3 : 10, (one) => blockOf(target, one));
      const found = await takeTurns(MEASURES, rounds, (one) => blockOf(target, one));
      const starts = found.at(-1) ?? [];
      const alone = found.map((blocks, index) =>
        MEASURES[index]?.inner === undefined ? blocks : withoutStart(blocks, starts),
      );
      return { cells: [alone.map((blocks, index) => cellsOf(blocks, index % 2 === 1 ? alone[index - 1] : undefined))] };
    } finally {
      await target.close();
      rmSync(folder, { recursive: true, force: true });
    }
  },
};

async function blockOf(target: Target, { name, request, calls, flight, inner = 1 }: Measure): Promise<CodeBlock> {
  const usedCpu = startCpu(target);
  const { us } = await runBlock({ name, target, request }, calls, flight);
  const used = usedCpu();
  return { ms: median(us) / 1000, cpu: used / 1000 / calls / inner };
}

/** Returns the blocks of inner calls without their part of the processor time of the start of a run. */
function withoutStart(blocks: readonly CodeBlock[], starts: readonly CodeBlock[]): readonly CodeBlock[] {
  return blocks.map(({ ms, cpu }, round) => ({ ms, cpu: cpu - (starts[round]?.cpu ?? Number.NaN) / CALLS }));
}

function cellsOf(blocks: readonly CodeBlock[], base: readonly CodeBlock[] | undefined): readonly string[] {
  return [
    median(blocks.map(({ ms }) => ms)).toFixed(2),
    median(blocks.map(({ cpu }) => cpu)).toFixed(0),
    base === undefined ? '–' : pairedRatio(blocks, base, ({ cpu }) => cpu).toFixed(2),
  ];
}
