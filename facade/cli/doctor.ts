/** Owns `doctor`: what this machine has of what the configuration needs, each with its fix; changes nothing. */
import { existsSync, statSync } from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors.ts';
import { formatProblems } from '../config/problems.ts';
import type { Config, Problem } from '../config/config.ts';
import { openKeychain } from '../secrets/keychain.ts';
import { EXIT, type Io } from './io.ts';
import { readConfig, type CommonOptions } from './open.ts';
import { json, printable, table, type Cell } from './print.ts';

/** One thing that was looked at. `weak`: what is there works without it, but with less. */
export interface Finding {
  readonly name: string;
  readonly state: 'ok' | 'weak' | 'missing';
  readonly seen: string;
  /** The command or the line that mends it. */
  readonly fix?: string;
}

/** What of the machine a configuration needs; what is not needed can only be weak. */
export interface Needs {
  /** Absent when there is no configuration to say it. */
  readonly workspace?: string;
  readonly sandbox: boolean;
  readonly egress: boolean;
  readonly container: boolean;
  readonly rego: boolean;
}

/** Looks at the machine; starts a sandbox to prove it. Never throws. */
export type Examine = (needs: Needs) => Promise<readonly Finding[]>;

const OLDEST_NODE = [20, 20] as const;

/** Prints every finding; 1 when something needed is missing. */
export async function runDoctor(options: CommonOptions, io: Io, examine: Examine): Promise<number> {
  const { config, finding } = tryConfig(options, io);
  const findings = [nodeVersion(), finding, ...(config === undefined ? [] : [stateFolder(config)]), await keychain(io), ...(await examine(needsOf(config)))];
  const isWell = findings.every(({ state }) => state !== 'missing');
  if (options.json === true) io.stdout(json({ ok: isWell, findings }));
  else show(findings, io);
  return isWell ? EXIT.ok : EXIT.unexpected;
}

function show(findings: readonly Finding[], io: Io): void {
  const colours = { ok: 'green', weak: 'yellow', missing: 'red' } as const;
  io.stdout(table(io, ['state', 'what', 'seen'], findings.map(({ state, name, seen }): readonly Cell[] => [{ text: state, colour: colours[state] }, name, seen])));
  for (const { name, fix, state } of findings) if (fix !== undefined && state !== 'ok') io.stdout(`\n${printable(name)}:\n  ${printable(fix)}\n`);
}

/** A machine is examined without a configuration too, as if it were the one that `tollgate init` writes. */
function tryConfig(options: CommonOptions, io: Io): { readonly config?: Config; readonly finding: Finding } {
  try {
    const config = readConfig(options, io);
    return { config, finding: { name: 'configuration', state: 'ok', seen: options.config } };
  } catch (thrown) {
    if (!(thrown instanceof TollgateError)) throw thrown;
    if (!existsSync(path.resolve(io.cwd, options.config))) return { finding: { name: 'configuration', state: 'weak', seen: `there is no ${options.config}`, fix: 'tollgate init' } };
    const problems = thrown.data['problems'] as readonly Problem[] | undefined;
    const first = problems?.[0] === undefined ? thrown.message : formatProblems([problems[0]]);
    return { finding: { name: 'configuration', state: 'missing', seen: first, fix: 'tollgate check' } };
  }
}

function needsOf(config: Config | undefined): Needs {
  if (config === undefined) return { sandbox: true, egress: false, container: false, rego: false };
  const reached = new Set([...config.profiles.values()].flatMap(({ servers }) => servers));
  const programs = [...config.servers.values()].filter(({ name, transport }) => transport === 'stdio' && reached.has(name));
  const sandboxed = [...programs.filter(({ isolation = 'sandbox' }) => isolation === 'sandbox').map(({ sandbox }) => sandbox), ...(config.bash.isolation === 'sandbox' ? [config.bash.sandbox] : [])];
  return {
    workspace: config.workspace,
    sandbox: sandboxed.length > 0,
    egress: sandboxed.some((sandbox) => (sandbox?.network.allowedDomains.length ?? 0) > 0),
    container: programs.some(({ isolation }) => isolation === 'container'),
    rego: config.policies.some(({ kind, mode }) => kind === 'rego' && mode !== 'off'),
  };
}

function nodeVersion(): Finding {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  const isNew = major > OLDEST_NODE[0] || (major === OLDEST_NODE[0] && minor >= OLDEST_NODE[1]);
  return { name: 'Node.js', state: isNew ? 'ok' : 'missing', seen: process.version, fix: `Install Node.js ${OLDEST_NODE.join('.')} or newer.` };
}

/** Others of this machine must not read what is kept there. It is made at the first start. */
function stateFolder({ state }: Config): Finding {
  const name = 'state folder';
  try {
    const { mode } = statSync(state);
    const isPrivate = (mode & 0o077) === 0;
    return { name, state: isPrivate ? 'ok' : 'missing', seen: `${state} (mode ${(mode & 0o777).toString(8)})`, fix: `chmod 700 ${state}` };
  } catch {
    return { name, state: 'ok', seen: `${state} (made at the first start)` };
  }
}

async function keychain(io: Io): Promise<Finding> {
  const found = await openKeychain(io.env);
  return found === undefined
    ? { name: 'keychain', state: 'weak', seen: 'none: the vault has a key of its own, see docs/secrets.md' }
    : { name: 'keychain', state: 'ok', seen: 'answers' };
}
