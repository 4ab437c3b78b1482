/** Measures what 30 scripted tasks put into the context of a model, in four ways. `npm run economics -- --help`. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { ROOT } from '../bench/client.ts';
import { installServers } from '../servers/install.ts';
import {
  COST_PAGE,
  costTables,
  type EconomicsFigures,
  FIGURES_FILE,
  readFigures,
  type TaskFigures,
  type ToolCounts,
  withTables,
  worseThan,
} from './cost-report.ts';
import { SCRIPTED_TASKS, TASK_SCRIPTS } from './scripted-tasks.ts';
import { solve } from './task-ways.ts';
import { openWorld, type WorldName } from './task-worlds.ts';

const HELP = `npm run economics [-- OPTION]

Solves 30 tasks by fixed scripts: without Tollgate, with its primitives and exposed tools, with
search, and with code. Counts bytes and tokens of lists, calls and results, and writes the table of
docs/context.md and test/economics/figures.json. It takes some minutes. It needs the catalogs of
the corpora; TOLLGATE_CORPORA names their folder.

  --check   writes nothing, and exits with 1 if a task needs over 10 % more tokens than committed
  --json    prints the figures
`;

/** Exit codes: a task got worse; the catalogs are missing or an option is wrong. */
const [WORSE, UNUSABLE] = [1, 2];

const say = (text: string): void => void process.stderr.write(`${text}\n`);

async function measureAll(): Promise<EconomicsFigures> {
  const tools: Partial<Record<WorldName, ToolCounts>> = {};
  const tasks: TaskFigures[] = [];
  for (const name of ['few', 'small', 'hundred', 'all'] as const) {
    say(`${name}: starting its servers`);
    const world = await openWorld(name, TASK_SCRIPTS);
    try {
      const { facade, rawList } = world;
      tools[name] = {
        raw: (JSON.parse(await rawList()) as { readonly tools: readonly unknown[] }).tools.length,
        listed: (await facade.list(facade.open('tollgate'))).length,
      };
      for (const task of SCRIPTED_TASKS.filter((one) => one.world === name)) {
        say(`${name}: ${task.title}`);
        const { title } = task;
        const costs = {
          raw: await solve(world, task, 'raw'),
          tollgate: await solve(world, task, 'tollgate'),
          search: await solve(world, task, 'search'),
          code: await solve(world, task, 'code'),
        };
        tasks.push({ title, world: name, costs });
      }
    } finally {
      await world.close();
    }
  }
  return { tools: tools as EconomicsFigures['tools'], tasks };
}

async function main(): Promise<number> {
  const options = { help: { type: 'boolean' }, check: { type: 'boolean' }, json: { type: 'boolean' } } as const;
  const { help = false, check = false, json = false } = parseArgs({ options }).values;
  if (help) return process.stdout.write(HELP), 0;
  const corpora = path.resolve((process.env.TOLLGATE_CORPORA ??= path.join(ROOT, '..', 'shared', 'corpora')));
  if (!existsSync(path.join(corpora, 'catalogs'))) {
    say('The catalogs of real servers are missing: TOLLGATE_CORPORA must name a folder that has `catalogs`.');
    return UNUSABLE;
  }
  await installServers(say);
  const figures = await measureAll();
  if (json) process.stdout.write(`${JSON.stringify(figures, null, 2)}\n`);
  if (check) {
    const worse = worseThan(readFigures(), figures.tasks);
    say(worse.length === 0 ? 'No task needs over 10 % more tokens than committed.' : worse.join('\n'));
    return worse.length === 0 ? 0 : WORSE;
  }
  writeFileSync(FIGURES_FILE, `${JSON.stringify(figures, null, 2)}\n`);
  writeFileSync(COST_PAGE, withTables(readFileSync(COST_PAGE, 'utf8'), costTables(figures)));
  say('Written: test/economics/figures.json and the tables of docs/context.md.');
  return 0;
}

main().then(
  (code) => process.exit(code),
  (error: unknown) => {
    say(error instanceof Error ? error.message : String(error));
    process.exit(UNUSABLE);
  },
);
