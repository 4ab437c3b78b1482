/**
 * Runs a program that prints a secret, without a shell. It refuses files of the workspace, limits time and output, and
 * kills what the program started.
 */
import { spawn } from 'node:child_process';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { PROGRAM_FOLDER, programFile, wordInside } from './secret-program-place.ts';

/** How a program is run. */
export interface SecretProgram {
  /** The name of the secret, for messages. */
  readonly name: string;
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Agents write here, so no file of the program may be here. */
  readonly workspace?: string;
  /** From its start to the end of its output, ms; default 10 s. */
  readonly timeoutMs?: number;
}

const TIMEOUT_MS = 10_000;
const MAX_BYTES = 64 * 1024;

/**
 * Returns the output without a final line end. Its stderr is not read, because it may contain the request. Throws
 * SECRET_MISSING.
 */
export async function runProgram({
  name,
  command: [written = '', ...args],
  env,
  workspace,
  timeoutMs = TIMEOUT_MS,
}: SecretProgram): Promise<string> {
  const { TOLLGATE_VAULT_PASSPHRASE: _passphrase, ...given } = env;
  const program = programFile(written, given.PATH) ?? written;
  // A link may have changed since the configuration was read.
  if (workspace !== undefined && wordInside([program, ...args], workspace) !== -1)
    throw new TollgateError('SECRET_MISSING', {
      detail: `The program that gives secret "${name}" was not run: it is in the workspace, where agents write.`,
      next: 'Move it elsewhere, and correct its entry under secrets in tollgate.yaml.',
    });
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, {
      cwd: PROGRAM_FOLDER,
      env: given,
      detached: true,
      shell: false,
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    const chunks: Buffer[] = [];
    let size = 0;
    const fail = (why: string): void => {
      clearTimeout(timer);
      child.stdout.destroy();
      endGroup(child.pid);
      reject(
        new TollgateError('SECRET_MISSING', {
          detail: `The program that gives secret "${name}" ${why}.`,
          next: 'Run it by hand: its output must be only the value. Its entry is under secrets in tollgate.yaml.',
        }),
      );
    };
    const timer = setTimeout(() => fail(`did not end within ${timeoutMs / 1000} s`), timeoutMs);
    child.on('error', (error: NodeJS.ErrnoException) => fail(`could not be started (${error.code ?? 'unknown'})`));
    child.stdout.on('data', (chunk: Buffer) => {
      chunks.push(chunk);
      size += chunk.length;
      if (size > MAX_BYTES) fail('printed more than 64 KiB');
    });
    child.on('close', (code, signal) => {
      clearTimeout(timer);
      if (code === 0)
        resolve(
          Buffer.concat(chunks)
            .toString('utf8')
            .replace(/\r?\n$/, ''),
        );
      else fail(signal === null ? `ended with exit code ${code}` : `was ended by ${signal}`);
    });
  });
}

/** Kills the process group of the program, which contains what it started. */
function endGroup(pid: number | undefined): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // The group has ended.
  }
}
