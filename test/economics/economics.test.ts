/**
 * Tests the figures of docs/context.md: that they are those of the scripts, and that a task that costs more is seen.
 * Covers: facade/runtime/metrics.
 */

import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { ROOT } from '../bench/client.ts';
import { inFull } from '../harness/full-tests.ts';
import { partOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import { COST_PAGE, costTables, readFigures, type TaskFigures, withTables, worseThan } from './cost-report.ts';
import { SCRIPTED_TASKS } from './scripted-tasks.ts';
import { type TaskCost, totalTokens } from './task-costs.ts';
import { solve, WAYS } from './task-ways.ts';
import { openWorld, type WorldName } from './task-worlds.ts';

const committed = readFigures();
const costOf = (world: WorldName, title: string): TaskFigures['costs'] => {
  const found = committed.tasks.find((one) => one.world === world && one.title === title);
  if (found === undefined) throw new Error(`There are no figures of ${title} (${world}).`);
  return found.costs;
};

/** Solves the first tasks of a world in all ways. */
async function measure(name: WorldName, count: number): Promise<readonly TaskFigures[]> {
  const world = await openWorld(name, {});
  try {
    const figures: TaskFigures[] = [];
    for (const task of SCRIPTED_TASKS.filter((one) => one.world === name).slice(0, count)) {
      const costs: Partial<Record<(typeof WAYS)[number], TaskCost>> = {};
      for (const way of WAYS) costs[way] = await solve(world, task, way);
      figures.push({ title: task.title, world: name, costs: costs as TaskFigures['costs'] });
    }
    return figures;
  } finally {
    await world.close();
  }
}

describe('the cost of tasks in the context of a model', () => {
  const worlds = [
    ['few', 3],
    ['small', 5],
  ] as const;
  it.each(partOf(worlds, 1))(
    `is as committed, or at most a tenth more, in the world %s${verifies('CM-47')}`,
    async (name, count) => {
      const figures = await measure(name, count);
      expect(figures).toHaveLength(count);
      expect(worseThan(committed, figures)).toEqual([]);
      const calls = ({ costs }: TaskFigures): readonly number[] => WAYS.map((way) => costs[way].count);
      expect(figures.map(calls)).toEqual(figures.map(({ title }) => WAYS.map((way) => costOf(name, title)[way].count)));
    },
  );

  it(`is refused if it grows by more than 10 %, or is not committed${verifies('CM-47')}`, () => {
    const [task] = committed.tasks;
    if (task === undefined) throw new Error('There are no figures.');
    const { lists } = task.costs.code;
    const grown = (factor: number): TaskFigures => ({
      ...task,
      costs: {
        ...task.costs,
        code: {
          ...task.costs.code,
          lists: { ...lists, tokens: Math.ceil(lists.tokens + totalTokens(task.costs.code) * (factor - 1)) },
        },
      },
    });
    expect(worseThan(committed, [grown(1.09)])).toEqual([]);
    expect(worseThan(committed, [grown(1.11)])).toEqual([
      expect.stringContaining(`${task.title} (${task.world}, code)`),
    ]);
    expect(worseThan(committed, [{ ...task, title: 'Another task' }])).toHaveLength(WAYS.length);
  });

  it(`is on the page as it was measured, for 30 tasks, with losses in bold${verifies('CM-48')}`, () => {
    const page = readFileSync(COST_PAGE, 'utf8');
    expect(withTables(page, costTables(committed))).toBe(page);
    expect(committed.tasks.map(({ world, title }) => [world, title])).toEqual(
      SCRIPTED_TASKS.map(({ world, title }) => [world, title]),
    );
    expect(SCRIPTED_TASKS).toHaveLength(30);
    // One look at an order of a server with six tools: every way through Tollgate costs more.
    const title = 'Look up one order';
    const [raw = 0, ...others] = WAYS.map((way) => totalTokens(costOf('few', title)[way]));
    expect(others.filter((tokens) => tokens <= raw)).toEqual([]);
    expect(page).toMatch(new RegExp(`\\| ${title} \\| [\\d,]+ \\(1\\) \\| \\*\\*[\\d,]+\\*\\* \\(1\\) \\|`));
  });

  inFull(`cannot be measured without the catalogs, which the command says${verifies('CM-48')}`, () => {
    const { status, stderr, stdout } = spawnSync(
      process.execPath,
      [path.join(ROOT, 'dist', 'test', 'economics', 'economics.js')],
      { env: { ...process.env, TOLLGATE_CORPORA: path.join(ROOT, 'no-such-folder') }, encoding: 'utf8' },
    );
    expect({ status, stdout }).toEqual({ status: 2, stdout: '' });
    expect(stderr).toBe(
      'The catalogs of real servers are missing: TOLLGATE_CORPORA must name a folder that has `catalogs`.\n',
    );
  });
});
