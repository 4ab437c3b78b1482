/**
 * Compares two built checkouts of Tollgate by the processor time of the facade process for an echo and for a read of a
 * file. Both run at once and take turns. Each pair is one block of each; every round reverses the order.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { cpuOf, openStdio, type Target } from './client.ts';
import { quantile } from './measure.ts';

/** Processor time of one kind of call in both checkouts, µs, and the median difference of the pairs. */
export interface Comparison {
  readonly call: string;
  readonly before: number;
  readonly after: number;
  /** Median over the pairs of after / before. */
  readonly ratio: number;
  /** Median over the pairs of after - before, µs. */
  readonly added: number;
}

const KINDS: readonly (readonly [string, Record<string, unknown>])[] = [
  ['tool-0', { text: 'hello' }],
  ['read', { path: 'file.txt' }],
];
const WARM_CALLS = 4000;

const configOf = (backend: string): string => `version: 1
workspace: ./work
state: ./state
servers:
  bench: {command: ${process.execPath}, args: [${backend}, "10"], isolation: direct, semantics: {"tool-*": read}}
profiles: {default: {servers: [bench]}}
expose: {tools: [{tool: bench.tool-0, name: tool-0}]}
principals: [{id: bench, role: agent, profiles: [default], stdio: true}]
rules: [{id: all, outcome: allow, when: {verbs: [read]}}]
`;

async function openCheckout(root: string, name: string): Promise<{ target: Target; folder: string }> {
  const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-compare-'));
  mkdirSync(path.join(folder, 'work'));
  writeFileSync(path.join(folder, 'work', 'file.txt'), 'one line\n'.repeat(20));
  const file = path.join(folder, 'tollgate.yaml');
  writeFileSync(file, configOf(path.join(root, 'test', 'bench', 'backend.mjs')));
  const load = async (module: string): Promise<Record<string, (...args: unknown[]) => unknown>> =>
    import(pathToFileURL(path.join(root, 'dist', module)).href);
  const { loadConfig } = await load('facade/config/load-config.js');
  const { approveAll } = await load('test/consent/approve-servers.js');
  await approveAll?.(loadConfig?.(file, { env: process.env, home: folder }));
  const target = await openStdio(name, [path.join(root, 'dist', 'facade', 'main.js'), 'run', '--config', file]);
  await target.ask('tools/list', {});
  return { target, folder };
}

async function block(target: Target, [name, args]: (typeof KINDS)[number], calls: number): Promise<number> {
  const start = cpuOf(target.child);
  for (let index = 0; index < calls; index += 1) await target.ask('tools/call', { name, arguments: args });
  return (cpuOf(target.child) - start) / 1000 / calls;
}

/** Compares two built checkouts with `pairs` blocks of `calls` calls each. */
export async function compareCheckouts(
  before: string,
  after: string,
  plan: { readonly pairs: number; readonly calls: number },
): Promise<Comparison[]> {
  const opened = [await openCheckout(before, 'before'), await openCheckout(after, 'after')];
  const found: Comparison[] = [];
  for (const kind of KINDS) {
    for (const { target } of opened) await block(target, kind, WARM_CALLS);
    const pairs: { before: number; after: number }[] = [];
    for (let round = 0; round < plan.pairs; round += 1) {
      const figures = new Map<string, number>();
      for (const { target } of round % 2 === 0 ? opened : [...opened].reverse())
        figures.set(target.name, await block(target, kind, plan.calls));
      pairs.push({ before: figures.get('before') ?? Number.NaN, after: figures.get('after') ?? Number.NaN });
    }
    const median = (of: (pair: (typeof pairs)[number]) => number): number => quantile(pairs.map(of), 0.5);
    found.push({
      call: kind[0] === 'read' ? 'read' : 'echo',
      before: median((pair) => pair.before),
      after: median((pair) => pair.after),
      ratio: median((pair) => pair.after / pair.before),
      added: median((pair) => pair.after - pair.before),
    });
  }
  for (const { target, folder } of opened) {
    await target.close();
    rmSync(folder, { recursive: true, force: true });
  }
  return found;
}

/** Returns a table of comparisons. */
export function formatComparisons(found: readonly Comparison[]): string {
  const rows = found.map(
    (one) =>
      `| ${one.call} | ${one.before.toFixed(0)} | ${one.after.toFixed(0)} | ${one.ratio.toFixed(3)} | ` +
      `${one.added.toFixed(0)} |`,
  );
  return [
    '| call | before, µs | after, µs | ratio (median of pairs) | added, µs |',
    '|---|---|---|---|---|',
    ...rows,
  ].join('\n');
}
