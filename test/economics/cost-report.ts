/** The table of docs/context.md, and the comparison with the committed figures. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { ROOT } from '../bench/client.ts';
import type { ScriptedTask } from './scripted-tasks.ts';
import { COST_KINDS, type TaskCost, totalTokens } from './task-costs.ts';
import { WAYS, type Way } from './task-ways.ts';
import type { WorldName } from './task-worlds.ts';

/** The costs of one task in each way. */
export interface TaskFigures extends Pick<ScriptedTask, 'title' | 'world'> {
  readonly costs: Readonly<Record<Way, TaskCost>>;
}

/** How many tools a client lists without Tollgate, and with it while none is found by search. */
export interface ToolCounts {
  readonly raw: number;
  readonly listed: number;
}

/** What a run of all tasks has measured. */
export interface EconomicsFigures {
  readonly tools: Readonly<Record<WorldName, ToolCounts>>;
  readonly tasks: readonly TaskFigures[];
}

/** The committed figures, and the page with their table. */
export const FIGURES_FILE = path.join(ROOT, 'test', 'economics', 'figures.json');
export const COST_PAGE = path.join(ROOT, 'docs', 'context.md');

/** How much more tokens a task may need than committed. */
const MOST_GROWTH = 1.1;
const [BEGIN, END] = ['<!-- economics: begin -->', '<!-- economics: end -->'];
const HEADS: Readonly<Record<Way, string>> = {
  raw: 'without Tollgate',
  tollgate: 'Tollgate',
  search: 'search',
  code: 'code',
};

/** Reads the committed figures. */
export function readFigures(): EconomicsFigures {
  return JSON.parse(readFileSync(FIGURES_FILE, 'utf8')) as EconomicsFigures;
}

/** Returns one line for each task and way that needs over 10 % more tokens than committed, or is not committed. */
export function worseThan(committed: EconomicsFigures, tasks: readonly TaskFigures[]): readonly string[] {
  return tasks.flatMap(({ world, title, costs }) =>
    WAYS.flatMap((way) => {
      const known = committed.tasks.find((one) => one.world === world && one.title === title)?.costs[way];
      const tokens = totalTokens(costs[way]);
      if (known === undefined) return [`${title} (${world}, ${way}): ${tokens} tokens, and no committed figure`];
      const before = totalTokens(known);
      return tokens > before * MOST_GROWTH ? [`${title} (${world}, ${way}): ${tokens} tokens, before ${before}`] : [];
    }),
  );
}

/** Returns the tables in Markdown, each with a line about its servers. */
export function costTables({ tools, tasks }: EconomicsFigures): string {
  const worlds = [...new Set(tasks.map(({ world }) => world))];
  return worlds
    .flatMap((world) => {
      const own = tasks.filter((task) => task.world === world);
      const { raw, listed } = tools[world];
      return [
        `**${format(raw)} tools.** Tollgate lists ${format(listed)}, with its primitives:`,
        '',
        ...tokenRows(own),
        '',
        ...partRows(own),
        '',
      ];
    })
    .join('\n');
}

/** A cell in bold needs more tokens than the way without Tollgate. */
function tokenRows(tasks: readonly TaskFigures[]): readonly string[] {
  const rows = tasks.map(({ title, costs }) => {
    const cells = WAYS.map((way) => {
      const tokens = format(totalTokens(costs[way]));
      return `${totalTokens(costs[way]) > totalTokens(costs.raw) ? `**${tokens}**` : tokens} (${costs[way].count})`;
    });
    return row([title, ...cells]);
  });
  return [...head('tokens (calls)'), ...rows];
}

/** The parts of all tasks together. */
function partRows(tasks: readonly TaskFigures[]): readonly string[] {
  const sum = (way: Way, of: (cost: TaskCost) => number): number =>
    tasks.reduce((total, { costs }) => total + of(costs[way]), 0);
  return [
    ...head('all of these tasks'),
    ...COST_KINDS.map((kind) =>
      row([`tokens of ${kind}`, ...WAYS.map((way) => format(sum(way, (one) => one[kind].tokens)))]),
    ),
    row([
      'bytes of all',
      ...WAYS.map((way) => format(sum(way, (one) => COST_KINDS.reduce((bytes, kind) => bytes + one[kind].bytes, 0)))),
    ]),
    row(['calls', ...WAYS.map((way) => format(sum(way, ({ count }) => count)))]),
    row(['seconds', ...WAYS.map((way) => sum(way, ({ seconds }) => seconds).toFixed(1))]),
  ];
}

function head(first: string): readonly string[] {
  return [row([first, ...WAYS.map((way) => HEADS[way])]), `|${'---|'.repeat(WAYS.length + 1)}`];
}

function row(cells: readonly string[]): string {
  return `| ${cells.join(' | ')} |`;
}

function format(number: number): string {
  return number.toLocaleString('en-US');
}

/** Returns the page with these tables between its two marks. Throws if the page has no marks. */
export function withTables(page: string, tables: string): string {
  const [from, to] = [page.indexOf(BEGIN), page.indexOf(END)];
  if (from === -1 || to < from) throw new Error(`docs/context.md has no ${BEGIN} and ${END}.`);
  return `${page.slice(0, from)}${BEGIN}\n\n${tables}\n${page.slice(to)}`;
}
