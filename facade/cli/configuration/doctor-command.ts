/**
 * Runs `doctor`: shows which parts that the configuration needs are missing on this machine, and how to fix each. It
 * changes nothing without `--fix`, and never a decision of a person.
 */
import { existsSync } from 'node:fs';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { findBypasses, nodeVersion, reachedServers } from '../../attention/cheap-findings.ts';
import type { DoctorFinding, NeededProgram, Needs } from '../../attention/doctor-findings.ts';
import { examineOwnFiles } from '../../attention/own-files.ts';
import { rootsAt } from '../../clients/client-places.ts';
import type { Config } from '../../config/config.ts';
import { formatProblems, type Problem } from '../../config/config-problems.ts';
import { openKeychain } from '../../secrets/keychain.ts';
import { type CommonOptions, readConfig } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { configFile } from '../config-file.ts';
import { json, MAX_COLUMNS, plural, printable, table, wrapWords } from '../print.ts';
import { reportStops } from '../stop-notice.ts';
import type { Wiring } from '../wiring.ts';
import { examineServers } from './doctor-servers.ts';

/** Options of the command. */
export interface DoctorOptions extends CommonOptions {
  readonly fix?: true;
}

type DoctorWiring = Pick<Wiring, 'examine' | 'inspect'>;

/**
 * Prints every finding, and repairs with `--fix` what it can. Exit code 1 if something that is needed is still missing.
 * Throws STATE_FAILED.
 */
export async function runDoctor(options: DoctorOptions, io: Io, wiring: DoctorWiring): Promise<number> {
  const { config } = tryConfig(options, io);
  if (config !== undefined) await reportStops(config.state, io);
  const before = await examineAll(options, io, wiring);
  const repairable = before.filter(({ repair, state }) => repair !== undefined && state !== 'ok');
  if (options.fix === true) for (const finding of repairable) repairOne(finding, options, io);
  const findings = options.fix === true && repairable.length > 0 ? await examineAll(options, io, wiring) : before;
  const isSound = findings.every(({ state }) => state !== 'missing');
  const mended = options.fix === true ? repairable.map(({ id }) => id) : [];
  if (options.json === true)
    io.stdout(
      json({
        ok: isSound,
        findings: findings.map(({ repair, ...finding }) => ({
          ...finding,
          fixable: repair !== undefined && finding.state !== 'ok',
        })),
        mended,
      }),
    );
  else show(findings, options, io);
  return isSound ? EXIT.ok : EXIT.unexpected;
}

async function examineAll(
  options: CommonOptions,
  io: Io,
  { examine, inspect }: DoctorWiring,
): Promise<readonly DoctorFinding[]> {
  const { config, finding } = tryConfig(options, io);
  const own =
    config === undefined
      ? findBypasses(rootsAt(io.cwd, io))
      : [...examineOwnFiles(config, Date.now()), ...(await examineServers(config, io, inspect))];
  return [nodeVersion(), finding, ...own, await keychain(io), ...(await examine(needsOf(config)))];
}

/** Says what is repaired, then repairs it. */
function repairOne({ name, fix, repair }: DoctorFinding, { json: isData }: CommonOptions, io: Io): void {
  if (isData !== true) io.stderr(`${printable(`fixing ${name}: ${fix ?? ''}`)}\n`);
  try {
    repair?.();
  } catch (thrown) {
    io.stderr(`  not done (${(thrown as NodeJS.ErrnoException).code ?? 'unknown'})\n`);
  }
}

const COLOURS = { ok: 'green', weak: 'yellow', missing: 'red' } as const;
/** The lines that explain a state. */
const MEANINGS = {
  ok: '',
  weak: '  weak: Tollgate works, but with less, or you should look at it.\n',
  missing: '  missing: something that is needed does not work or is not safe.\n',
} as const;

/** Prints all findings, then how to fix each that is not `ok`, then how many there are of each state. */
function show(findings: readonly DoctorFinding[], options: DoctorOptions, io: Io): void {
  io.stdout(
    table(
      io,
      ['STATE', 'CHECK', 'FINDING', 'ID'],
      findings.map(({ id, state, name, seen }) => [{ text: state, colour: COLOURS[state] }, name, seen, id]),
    ),
  );
  const open = findings.filter(({ state }) => state !== 'ok');
  for (const [fix, names] of namesByFix(open))
    io.stdout(`\nTo fix ${printable(names.join(', '))}:\n${wrapWords(`  ${printable(fix)}`, MAX_COLUMNS, '  ')}\n`);
  const counts = (['ok', 'weak', 'missing'] as const)
    .map((state) => ({ state, count: findings.filter((finding) => finding.state === state).length }))
    .filter(({ count }) => count > 0);
  const words = counts.map(({ state, count }) => `${count} ${state}`).join(', ');
  io.stderr(`\n${plural(findings.length, 'check')}: ${words}.\n${counts.map(({ state }) => MEANINGS[state]).join('')}`);
  const repairable = open.filter(({ repair }) => repair !== undefined);
  if (options.fix !== true && repairable.length > 0)
    io.stderr(`tollgate doctor --fix does this: ${repairable.map(({ id }) => id).join(', ')}.\n`);
}

/** Findings with the same fix are shown together. */
function namesByFix(findings: readonly DoctorFinding[]): ReadonlyMap<string, readonly string[]> {
  const names = new Map<string, readonly string[]>();
  for (const { name, fix } of findings) if (fix !== undefined) names.set(fix, [...(names.get(fix) ?? []), name]);
  return names;
}

/** A machine without a configuration is examined as if it had the one that `tollgate init` writes. */
function tryConfig(options: CommonOptions, io: Io): { readonly config?: Config; readonly finding: DoctorFinding } {
  const base = { id: 'configuration', name: 'configuration' } as const;
  try {
    const config = readConfig(options, io);
    return { config, finding: { ...base, state: 'ok', seen: options.config } };
  } catch (thrown) {
    if (!(thrown instanceof TollgateError)) throw thrown;
    if (!existsSync(configFile(options.config, io)))
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

async function keychain(io: Io): Promise<DoctorFinding> {
  const base = { id: 'keychain', name: 'keychain' } as const;
  const found = await openKeychain(io.env);
  return found === undefined
    ? { ...base, state: 'weak', seen: 'there is none, so the key of the vault is a file: see docs/secrets.md' }
    : { ...base, state: 'ok', seen: 'it answers' };
}
