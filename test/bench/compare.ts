/**
 * Compares two built checkouts of Tollgate by the processor time of a call. Both run at once and take turns. Each pair
 * is one block of each; every round reverses the order.
 */
import { rmSync } from 'node:fs';
import { measureLanes, median, pairedRatio } from './measure.ts';
import type { Part } from './tables.ts';
import { KINDS, type Kind, openTarget, writeConfig } from './targets.ts';

const ROWS = Object.keys(KINDS) as readonly Kind[];

/** The part of the benchmark that compares two checkouts. */
export function comparePart(before: string, after: string): Part {
  return {
    name: 'compare',
    tables: [
      {
        title: `Processor time of a call over stdio, against ${before}`,
        head: ['call', 'before, µs', 'after, µs', 'ratio (median of pairs)', 'added, µs'],
        rows: ROWS,
      },
    ],
    measure: async ({ quick, say }) => {
      const folders = [await writeConfig({}, before), await writeConfig({}, after)] as const;
      const targets = [
        await openTarget('tollgate', 'stdio', { folder: folders[0], root: before }),
        await openTarget('tollgate', 'stdio', { folder: folders[1], root: after }),
      ];
      const cells: string[][] = [];
      for (const kind of ROWS) {
        say(`compare: ${kind}`);
        const lanes = targets.map((target) => ({ name: kind, target, request: KINDS[kind] }));
        const plan = { rounds: 15, calls: quick ? 300 : 800, warm: quick ? 1000 : 3000 };
        const [old = [], own = []] = await measureLanes(lanes, plan);
        cells.push([
          median(old.map(({ cpu }) => cpu)).toFixed(0),
          median(own.map(({ cpu }) => cpu)).toFixed(0),
          pairedRatio(own, old, ({ cpu }) => cpu).toFixed(3),
          median(own.map(({ cpu }, round) => cpu - (old[round]?.cpu ?? Number.NaN))).toFixed(0),
        ]);
      }
      await Promise.all(targets.map((target) => target.close()));
      for (const folder of folders) rmSync(folder, { recursive: true, force: true });
      return { cells: [cells] };
    },
  };
}
