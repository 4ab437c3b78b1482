/** Measures what more tools, servers and rules add to a call, and lists by number of tools. */
import type { Target } from './client.ts';
import { measureLanes, median, pairedRatio, takeTurns } from './measure.ts';
import { type Measured, type Part, type Plan, withRatio } from './tables.ts';
import { KINDS, openTargets, type Size } from './targets.ts';

/** What grows: the name of its row, the figure of its goal, and the two sizes. */
const GROWTH: readonly (readonly [name: string, figure: string, small: Size, large: Size])[] = [
  ['tools: 10, 10,000', 'growth.tools', { tools: 10 }, { tools: 10_000 }],
  ['servers: 1, 100', 'growth.servers', { servers: 1 }, { servers: 100 }],
  ['rules of YAML: 10, 10,000', 'growth.rules', { rules: 10 }, { rules: 10_000 }],
];
const LISTS = [10, 100, 1000, 10_000] as const;
const LISTED = ['direct', 'sdk', 'tollgate'] as const;

/** The part of the benchmark about size. */
export const GROWTH_PART: Part = {
  name: 'growth',
  tables: [
    {
      title: 'Growth: an evaluated call of Tollgate alone, over stdio',
      head: ['from, to', 'CPU before, µs', 'after', 'ratio', 'p50 before, µs', 'after', 'ratio'],
      rows: GROWTH.map(([name]) => name),
    },
    {
      title: 'Lists: one tools/list in µs, over stdio',
      head: ['tools', ...LISTED],
      rows: LISTS.map((tools) => tools.toLocaleString('en')),
    },
  ],
  measure: async (plan) => {
    const growth: { readonly cells: readonly string[]; readonly ratio: number }[] = [];
    for (const [name, , small, large] of GROWTH) {
      plan.say(`growth: ${name}`);
      growth.push(await measureGrowth(small, large, plan));
    }
    const lists: (readonly string[])[] = [];
    for (const tools of LISTS) {
      plan.say(`growth: lists of ${tools} tools`);
      lists.push(await measureLists(tools));
    }
    return {
      cells: [growth.map(({ cells }) => cells), lists],
      figures: Object.fromEntries(GROWTH.map(([, figure], index) => [figure, growth[index]?.ratio ?? Number.NaN])),
    } satisfies Measured;
  },
};

/** Compares a call of two configurations. The ratio of processor time has the least noise. */
async function measureGrowth(
  small: Size,
  large: Size,
  { quick }: Plan,
): Promise<{ readonly cells: readonly string[]; readonly ratio: number }> {
  const opened = [await openTargets(['tollgate'], 'stdio', small), await openTargets(['tollgate'], 'stdio', large)];
  try {
    const targets = opened.map((one) => one.targets[0] as Target);
    for (const target of targets) await startServers(target);
    const lanes = targets.map((target) => ({ name: 'tollgate', target, request: KINDS.prefix }));
    const [before = [], after = []] = await measureLanes(lanes, {
      rounds: quick ? 5 : 30,
      calls: quick ? 100 : 200,
      warm: quick ? 300 : 3000,
    });
    const [cpu, p50] = [(block: (typeof before)[number]) => block.cpu, ({ us }: (typeof before)[number]) => median(us)];
    const ratio = pairedRatio(after, before, cpu);
    const cells = [cpu, p50].flatMap((of) => [
      ...[before, after].map((blocks) => median(blocks.map(of)).toFixed(0)),
      pairedRatio(after, before, of).toFixed(2),
    ]);
    return { cells, ratio };
  } finally {
    for (const { close } of opened) await close();
  }
}

/** Calls a tool of each server, so that all of them run. */
async function startServers(target: Target): Promise<void> {
  const { tools } = JSON.parse((await target.ask('tools/list', {})).toString()).result as { tools: { name: string }[] };
  for (const { name } of tools.filter((tool) => /^bench.*echo$/.test(tool.name)))
    await target.ask('tools/call', { name, arguments: { text: 'start' } });
}

async function measureLists(tools: number): Promise<readonly string[]> {
  const { targets, close } = await openTargets(LISTED, 'stdio', { tools });
  try {
    const found = await takeTurns(targets, 6, async (target) => {
      const times: number[] = [];
      for (let count = 0; count < (tools > 1000 ? 4 : 10); count += 1) {
        const start = performance.now();
        await target.ask('tools/list', {});
        times.push((performance.now() - start) * 1000);
      }
      return median(times);
    });
    const base = found[LISTED.indexOf('sdk')] ?? [];
    return found.map((times) =>
      withRatio(
        median(times),
        pairedRatio(times, base, (us) => us),
      ),
    );
  } finally {
    await close();
  }
}
