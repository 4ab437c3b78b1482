/** The benchmark: compares calls through the facade with direct calls, a pipe and a proxy made with the SDK. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { cpus, tmpdir, totalmem } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { loadConfig } from '../../facade/config/load-config.ts';
import { approveAll } from '../consent/approve-servers.ts';
import { openHttp, openStdio, peakOf, type Target } from './client.ts';
import { compareCheckouts, formatComparisons } from './compare.ts';
import { formatEgress, measureEgress } from './egress.ts';
import { measureSequential, measureThroughput } from './measure.ts';
import { formatPolicyTimings, measurePolicy } from './policy.ts';
import { measureRego } from './rego.ts';
import { formatReloads, measureReload } from './reload.ts';
import { formatSpawns, measureSpawns } from './spawn.ts';
import { formatStarts, measureStarts } from './start.ts';

const here = path.dirname(fileURLToPath(import.meta.url));
const root = path.join(here, '..', '..', '..');
const source = (name: string): string => path.join(root, 'test', 'bench', name);
const quick = process.argv.includes('--quick');
const say = (text: string): boolean => process.stdout.write(`${text}\n`);
const call = (size?: number) => (): [string, unknown] => [
  'tools/call',
  { name: current, arguments: { text: 'hello', ...(size === undefined ? {} : { size }) } },
];
/** The name of the first tool of the backend in every target. */
const current = 'tool-0';

/** A configuration that uses every stage, with an approved server. */
async function writeConfig(tools: number): Promise<string> {
  const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-bench-'));
  mkdirSync(path.join(folder, 'work'));
  writeFileSync(
    path.join(folder, 'tollgate.yaml'),
    `version: 1
workspace: ./work
state: ./state
servers:
  bench:
    command: ${process.execPath}
    args: [${source('backend.mjs')}, "${tools}"]
    isolation: direct
    semantics: { "tool-*": read }
profiles:
  default: { servers: [bench], expose: { tools: [{ tool: bench.tool-0, name: ${current} }, { tool: "bench.tool-*" }] } }
principals: [{ id: bench, role: agent, profiles: [default], stdio: true }]
rules:
  - { id: allow-bench, outcome: allow, when: { servers: [bench] } }
caps: { bytes: 4000000, lines: 1000000, concurrent: 128 }
listen: { port: 0 }
`,
  );
  await approveAll(loadConfig(path.join(folder, 'tollgate.yaml'), { env: process.env, home: folder }));
  return folder;
}

async function openAll(tools: number, transport: 'stdio' | 'http'): Promise<{ targets: Target[]; folder: string }> {
  const folder = await writeConfig(tools);
  const backend = [source('backend.mjs'), String(tools)];
  const main = path.join(root, 'dist', 'facade', 'main.js');
  const config = ['--config', path.join(folder, 'tollgate.yaml')];
  const targets =
    transport === 'stdio'
      ? [
          await openStdio('direct', backend),
          await openStdio('pipe', [source('pipe.mjs'), ...backend]),
          await openStdio('sdk', [source('sdk-pass.mjs'), 'stdio', ...backend]),
          await openStdio('tollgate', [main, 'run', ...config]),
        ]
      : [
          await openHttp('sdk', [source('sdk-pass.mjs'), 'http', ...backend]),
          await openHttp('tollgate', [main, 'serve', ...config]),
        ];
  return { targets, folder };
}

async function closeAll(opened: { targets: Target[]; folder: string }): Promise<void> {
  await Promise.all(opened.targets.map((target) => target.close()));
  rmSync(opened.folder, { recursive: true, force: true });
}

const us = (value: number): string => value.toFixed(0).padStart(7);
const row = (...cells: string[]): string => `| ${cells.join(' | ')} |`;

async function benchTransport(transport: 'stdio' | 'http'): Promise<void> {
  const opened = await openAll(10, transport);
  const { targets } = opened;
  for (const target of targets) await target.ask('tools/list', {});
  const rounds = quick ? 4 : 20;
  say(`\n## ${transport}: one call at a time (µs; ratio of p50 to the SDK pass-through)\n`);
  say(row('target', 'p50', 'p95', 'p99', 'CPU/call', 'ratio'));
  say('|---|---|---|---|---|---|');
  for (const figures of await measureSequential(targets, 'sdk', { rounds, calls: 100, request: call() })) {
    say(
      row(figures.name, us(figures.p50), us(figures.p95), us(figures.p99), us(figures.cpu), figures.ratio.toFixed(2)),
    );
  }
  say(`\n## ${transport}: calls per second by calls in flight (ratio to the SDK pass-through)\n`);
  say(row('target', '1', '8', '32', '128', 'CPU/call at 32'));
  say('|---|---|---|---|---|---|');
  const table = new Map(targets.map((target) => [target.name, [] as string[]]));
  for (const flight of [1, 8, 32, 128]) {
    for (const one of await measureThroughput(targets, 'sdk', {
      rounds: quick ? 3 : 7,
      calls: quick ? 500 : 2000,
      flight,
      request: call(),
    })) {
      table
        .get(one.name)
        ?.push(`${one.rate.toFixed(0)} (${one.ratio.toFixed(2)})`, ...(flight === 32 ? [`cpu${us(one.cpu)}`] : []));
    }
  }
  for (const [name, cells] of table)
    say(
      row(
        name,
        ...cells.filter((cell) => !cell.startsWith('cpu')),
        ...cells.filter((cell) => cell.startsWith('cpu')).map((cell) => cell.slice(3)),
      ),
    );
  await benchSizes(targets, transport);
  say(`\nPeak memory, MB: ${targets.map((target) => `${target.name} ${peakOf(target.child).toFixed(0)}`).join(', ')}`);
  await closeAll(opened);
}

async function benchSizes(targets: readonly Target[], transport: string): Promise<void> {
  say(
    `\n## ${transport}: size of the result (p50 µs; ratio to the SDK pass-through; cap raised, so all of it passes)\n`,
  );
  say(row('target', '10 kB', '100 kB', '1 MB'));
  say('|---|---|---|---|');
  const table = new Map(targets.map((target) => [target.name, [] as string[]]));
  for (const size of [10_000, 100_000, 1_000_000]) {
    for (const figures of await measureSequential(targets, 'sdk', {
      rounds: quick ? 3 : 8,
      calls: size > 500_000 ? 8 : 30,
      request: call(size),
    })) {
      table.get(figures.name)?.push(`${figures.p50.toFixed(0)} (${figures.ratio.toFixed(2)})`);
    }
  }
  for (const [name, cells] of table) say(row(name, ...cells));
}

async function benchGrowth(): Promise<void> {
  say('\n## Growth with the number of tools (stdio; p50 µs; ratio to the SDK pass-through)\n');
  say(
    row(
      'tools',
      'list sdk',
      'list tollgate',
      'ratio',
      'call tollgate',
      'start to first list, ms (sdk / tollgate)',
      'peak MB (sdk / tollgate)',
    ),
  );
  say('|---|---|---|---|---|---|---|');
  for (const tools of quick ? [10, 1000] : [10, 100, 1000, 10_000]) {
    const started: number[] = [];
    const folder = await writeConfig(tools);
    const backend = [source('backend.mjs'), String(tools)];
    const open = async (name: string, args: readonly string[]): Promise<Target> => {
      const start = Date.now();
      const target = await openStdio(name, args);
      await target.ask('tools/list', {});
      started.push(Date.now() - start);
      return target;
    };
    const sdk = await open('sdk', [source('sdk-pass.mjs'), 'stdio', ...backend]);
    const tollgate = await open('tollgate', [
      path.join(root, 'dist', 'facade', 'main.js'),
      'run',
      '--config',
      path.join(folder, 'tollgate.yaml'),
    ]);
    const lists = await measureSequential([sdk, tollgate], 'sdk', {
      rounds: 5,
      calls: tools > 1000 ? 4 : 10,
      request: () => ['tools/list', {}],
    });
    const [calls] = await measureSequential([tollgate], 'tollgate', { rounds: 5, calls: 100, request: call() });
    const by = (name: string) => lists.find((one) => one.name === name);
    say(
      row(
        String(tools),
        us(by('sdk')?.p50 ?? 0),
        us(by('tollgate')?.p50 ?? 0),
        (by('tollgate')?.ratio ?? 0).toFixed(2),
        us(calls?.p50 ?? 0),
        started.join(' / '),
        `${peakOf(sdk.child).toFixed(0)} / ${peakOf(tollgate.child).toFixed(0)}`,
      ),
    );
    await closeAll({ targets: [sdk, tollgate], folder });
  }
}

say(
  `# Benchmark\n\nNode ${process.version}, ${cpus().length} × ${cpus()[0]?.model ?? 'unknown'}, ` +
    `${Math.round(totalmem() / 2 ** 30)} GiB. Trust the ratios.`,
);
const argument = (name: string): string | undefined =>
  process.argv.find((word) => word.startsWith(`--${name}=`))?.slice(name.length + 3);
const before = argument('compare');
if (before !== undefined) {
  const blocks = { pairs: 15, calls: quick ? 300 : 1500 };
  const comparisons = await compareCheckouts(path.resolve(before), path.join(root), blocks);
  say(`\n## Processor time of a call, against another checkout\n\n${formatComparisons(comparisons)}`);
}
const only = before === undefined ? argument('only') : 'compare';
if (only === undefined || only === 'stdio') await benchTransport('stdio');
if (only === undefined || only === 'http') await benchTransport('http');
if (only === undefined || only === 'growth') await benchGrowth();
if (only === undefined || only === 'policy')
  say(`\n## Policy: one decision\n\n${formatPolicyTimings([...measurePolicy(), ...(await measureRego())])}`);
if (only === undefined || only === 'reload') say(`\n## Reload\n\n${formatReloads(await measureReload(quick ? 2 : 5))}`);
if (only === undefined || only === 'spawn')
  say(`\n## What isolation adds to a start\n\n${formatSpawns(await measureSpawns(quick ? 10 : 40))}`);
if (only === undefined || only === 'egress')
  say(
    '\n## What the way out of a sandbox adds to a request\n\n' +
      `${formatEgress(await measureEgress(quick ? 2 : 6, quick ? 50 : 200))}`,
  );
if (only === undefined || only === 'start')
  say(
    '\n## Start: five real servers until all are listed (ratio to the same five started bare)\n\n' +
      `${formatStarts(await measureStarts(quick ? 3 : 9))}`,
  );
