/** The benchmark: compares calls through Tollgate with direct calls, a pipe and two proxies without a guard. */
import { spawnSync } from 'node:child_process';
import { cpus, loadavg, totalmem } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { AUDIT_PART } from './audit-size.ts';
import { callsPart } from './calls.ts';
import { ROOT } from './client.ts';
import { CODE_PART } from './code.ts';
import { comparePart } from './compare.ts';
import { COUNTS_PART } from './counts.ts';
import { EGRESS_PART } from './egress.ts';
import { FLEET_PART } from './fleet.ts';
import { goalsTable } from './goals.ts';
import { POLICY_PART } from './policy.ts';
import { RELOAD_PART } from './reload.ts';
import { GROWTH_PART } from './size-growth.ts';
import { SPAWN_PART } from './spawn.ts';
import { START_PART } from './start.ts';
import { type FilledTable, markdownTable, type Part, plainTable } from './tables.ts';

/** All parts, in the order of docs/performance.md. */
export const PARTS: readonly Part[] = [
  callsPart('stdio'),
  callsPart('http'),
  GROWTH_PART,
  COUNTS_PART,
  POLICY_PART,
  RELOAD_PART,
  START_PART,
  SPAWN_PART,
  EGRESS_PART,
  CODE_PART,
  AUDIT_PART,
  FLEET_PART,
];
const NAMES = PARTS.map(({ name }) => name);

const HELP = `npm run bench [-- OPTION…]

Compares calls through Tollgate with direct calls, with a pipe, with a proxy that only parses and
serializes JSON, and with a pass-through built on the SDK. Tables go to stdout, progress to stderr.

  --quick           fewer rounds, more noise: about four minutes
  --only=PART,…     some parts only: ${NAMES.slice(0, 5).join(', ')},
                    ${NAMES.slice(5).join(', ')}
  --compare=FOLDER  only the processor time of a call, against another built checkout
  --markdown        the tables as they stand in docs/performance.md
  --json            the same data as JSON
`;

/** Gives this process and its children real-time priority, so that other work does not disturb them, where allowed. */
function takePriority(): boolean {
  return spawnSync('chrt', ['-a', '-r', '-p', '5', String(process.pid)], { stdio: 'ignore' }).status === 0;
}

function readOptions() {
  const options = {
    help: { type: 'boolean' },
    quick: { type: 'boolean' },
    only: { type: 'string' },
    compare: { type: 'string' },
    markdown: { type: 'boolean' },
    json: { type: 'boolean' },
  } as const;
  const { values } = parseArgs({ options });
  const only = values.only?.split(',');
  const unknown = only?.find((name) => !NAMES.includes(name));
  if (unknown !== undefined) throw new Error(`There is no part "${unknown}". Parts: ${NAMES.join(', ')}`);
  return { ...values, only };
}

async function main(): Promise<void> {
  const { help, quick = false, only, compare, markdown, json } = readOptions();
  if (help === true) return void process.stdout.write(HELP);
  const priority = takePriority();
  const about =
    `${new Date().toISOString().slice(0, 10)}, Node ${process.version}, ${cpus().length} × ` +
    `${cpus()[0]?.model ?? 'unknown'}, ${Math.round(totalmem() / 2 ** 30)} GiB, load ${loadavg()[0]?.toFixed(1)}, ` +
    `${priority ? 'real-time priority' : 'no real-time priority'}${quick ? ', quick' : ''}`;
  const parts =
    compare === undefined
      ? PARTS.filter(({ name }) => only?.includes(name) ?? true)
      : [comparePart(path.resolve(compare), ROOT)];
  const say = (text: string): void => void process.stderr.write(`${text}\n`);
  const tables: FilledTable[] = [];
  const figures: Record<string, number> = {};
  for (const part of parts) {
    const measured = await part.measure({ quick, say });
    tables.push(
      ...part.tables.map((table, index) => ({ ...table, part: part.name, cells: measured.cells[index] ?? [] })),
    );
    Object.assign(figures, measured.figures);
  }
  const goals = Object.keys(figures).length > 0 ? [goalsTable(figures)] : [];
  if (json === true) process.stdout.write(`${JSON.stringify({ about, tables, goals, figures }, undefined, 2)}\n`);
  else if (markdown === true) process.stdout.write(pageOf(about, [...goals, ...tables]));
  else process.stdout.write(`${about}\n\n${[...tables, ...goals].map(plainTable).join('\n')}`);
}

/** Returns what docs/performance.md has of a run, with the goals first. */
export function pageOf(about: string, tables: readonly FilledTable[]): string {
  return `Measured: ${about}.\n\n${tables.map(markdownTable).join('\n')}`;
}

if (process.argv[1] === import.meta.filename) {
  await main().catch((error: unknown) => {
    process.stderr.write(`${error instanceof Error ? error.message : error}\n`);
    process.exitCode = 1;
  });
}
