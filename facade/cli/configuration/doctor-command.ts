/**
 * Runs `doctor`: shows which parts that the configuration needs are missing on this machine, and how to fix each. It
 * changes nothing without `--fix`, and never a decision of a person.
 */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { Config } from '../../config/config.ts';
import { formatProblems, type Problem } from '../../config/config-problems.ts';
import { openKeychain } from '../../secrets/keychain.ts';
import { type CommonOptions, readConfig } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { type Cell, json, printable, table } from '../print.ts';
import { reportStops } from '../stop-notice.ts';
import type { Wiring } from '../wiring.ts';
import type { DoctorFinding, Examine, NeededProgram, Needs } from './doctor-findings.ts';
import { examineOwnFiles } from './doctor-own-files.ts';
import { examineServers, findBypasses, reachedServers } from './doctor-servers.ts';

/** Options of the command. */
export interface DoctorOptions extends CommonOptions {
  readonly fix?: true;
}

const OLDEST_NODE = [20, 20] as const;

/**
 * Prints every finding, and repairs with `--fix` what it can. Exit code 1 if something that is needed is still missing.
 * Throws STATE_FAILED.
 */
export async function runDoctor(options: DoctorOptions, io: Io, { examine }: Pick<Wiring, 'examine'>): Promise<number> {
  const { config } = tryConfig(options, io);
  if (config !== undefined) await reportStops(config.state, io);
  const before = await look(options, io, examine);
  const mendable = before.filter(({ mend, state }) => mend !== undefined && state !== 'ok');
  if (options.fix === true) for (const finding of mendable) mendOne(finding, options, io);
  const findings = options.fix === true && mendable.length > 0 ? await look(options, io, examine) : before;
  const isWell = findings.every(({ state }) => state !== 'missing');
  const mended = options.fix === true ? mendable.map(({ id }) => id) : [];
  if (options.json === true)
    io.stdout(
      json({
        ok: isWell,
        findings: findings.map(({ mend, ...finding }) => ({
          ...finding,
          fixable: mend !== undefined && finding.state !== 'ok',
        })),
        mended,
      }),
    );
  else show(findings, options, io);
  return isWell ? EXIT.ok : EXIT.unexpected;
}

async function look(options: CommonOptions, io: Io, examine: Examine): Promise<readonly DoctorFinding[]> {
  const { config, finding } = tryConfig(options, io);
  const roots = { cwd: io.cwd, home: io.home, env: io.env, platform: process.platform };
  const own =
    config === undefined
      ? findBypasses(roots)
      : [...examineOwnFiles(config, Date.now()), ...(await examineServers(config, io, process.platform))];
  return [nodeVersion(), finding, ...own, await keychain(io), ...(await examine(needsOf(config)))];
}

/** Printed before the repair, because the repair may fail. */
function mendOne({ name, fix, mend }: DoctorFinding, { json: isData }: CommonOptions, io: Io): void {
  if (isData !== true) io.stderr(printable(`fixing ${name}: ${fix ?? ''}`) + '\n');
  try {
    mend?.();
  } catch (thrown) {
    io.stderr(`  not done (${(thrown as NodeJS.ErrnoException).code ?? 'unknown'})\n`);
  }
}

function show(findings: readonly DoctorFinding[], options: DoctorOptions, io: Io): void {
  const colours = { ok: 'green', weak: 'yellow', missing: 'red' } as const;
  io.stdout(
    table(
      io,
      ['state', 'what', 'seen', 'id'],
      findings.map(({ id, state, name, seen }): readonly Cell[] => [
        { text: state, colour: colours[state] },
        name,
        seen,
        id,
      ]),
    ),
  );
  const open = findings.filter(({ state }) => state !== 'ok');
  for (const { name, fix } of open) if (fix !== undefined) io.stdout(`\n${printable(name)}:\n  ${printable(fix)}\n`);
  const mendable = open.filter(({ mend }) => mend !== undefined);
  if (options.fix !== true && mendable.length > 0)
    io.stderr(`\ntollgate doctor --fix does this: ${mendable.map(({ id }) => id).join(', ')}.\n`);
}

/** A machine without a configuration is examined as if it had the one that `tollgate init` writes. */
function tryConfig(options: CommonOptions, io: Io): { readonly config?: Config; readonly finding: DoctorFinding } {
  const base = { id: 'configuration', name: 'configuration' } as const;
  try {
    const config = readConfig(options, io);
    return { config, finding: { ...base, state: 'ok', seen: options.config } };
  } catch (thrown) {
    if (!(thrown instanceof TollgateError)) throw thrown;
    if (!existsSync(path.resolve(io.cwd, options.config)))
      return { finding: { ...base, state: 'weak', seen: `there is no ${options.config}`, fix: 'tollgate init' } };
    const problems = thrown.data.problems as readonly Problem[] | undefined;
    const first = problems?.[0] === undefined ? thrown.message : formatProblems([problems[0]]);
    return { finding: { ...base, state: 'missing', seen: first, fix: 'tollgate check' } };
  }
}

function needsOf(config: Config | undefined): Needs {
  if (config === undefined) return { sandbox: true, egress: false, container: false, rego: false, programs: [] };
  const reached = reachedServers(config).filter(
    ({ transport, unusable }) => transport === 'stdio' && unusable === undefined,
  );
  const sandboxed = [
    ...reached.filter(({ isolation = 'sandbox' }) => isolation === 'sandbox').map(({ sandbox }) => sandbox),
    ...(config.bash.isolation === 'sandbox' ? [config.bash.sandbox] : []),
  ];
  return {
    workspace: config.workspace,
    sandbox: sandboxed.length > 0,
    egress: sandboxed.some((sandbox) => (sandbox?.network.allowedDomains.length ?? 0) > 0),
    container: reached.some(({ isolation }) => isolation === 'container'),
    rego: config.policies.some(({ kind, mode }) => kind === 'rego' && mode !== 'off'),
    // The programs of a container are in its image.
    programs: reached
      .filter(({ isolation }) => isolation !== 'container')
      .map(
        ({ name, command = '', args, cwd = config.folder }): NeededProgram => ({ server: name, command, args, cwd }),
      ),
  };
}

function nodeVersion(): DoctorFinding {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  const isNew = major > OLDEST_NODE[0] || (major === OLDEST_NODE[0] && minor >= OLDEST_NODE[1]);
  return {
    id: 'node-version',
    name: 'Node.js',
    state: isNew ? 'ok' : 'missing',
    seen: process.version,
    fix: `Install Node.js ${OLDEST_NODE.join('.')} or newer.`,
  };
}

async function keychain(io: Io): Promise<DoctorFinding> {
  const base = { id: 'keychain', name: 'keychain' } as const;
  const found = await openKeychain(io.env);
  return found === undefined
    ? { ...base, state: 'weak', seen: 'none: the vault has its own key, see docs/secrets.md' }
    : { ...base, state: 'ok', seen: 'answers' };
}
