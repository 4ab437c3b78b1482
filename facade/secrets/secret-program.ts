/**
 * Runs a program that the owner names, such as one that prints a secret, without a shell. It refuses files of the
 * workspace, limits time and output, and kills what the program started.
 */
import { spawn } from 'node:child_process';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { PROGRAM_FOLDER, programFile, wordInside } from './secret-program-place.ts';

/** How a program of the owner is run. */
export interface OwnerProgram {
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Agents write here, so no file of the program may be here. */
  readonly workspace?: string | undefined;
  /** From its start to the end of its output, ms; default 10 s. */
  readonly timeoutMs?: number;
  /** What the program gets on stdin. */
  readonly input?: string;
  /** Ends the program. */
  readonly signal?: AbortSignal;
}

const TIMEOUT_MS = 10_000;
const MAX_BYTES = 64 * 1024;

/**
 * Returns the output of the program that gives the secret `name`, without a final line end. Throws SECRET_MISSING.
 */
export async function runProgram({ name, ...program }: OwnerProgram & { readonly name: string }): Promise<string> {
  const answer = await runOwnerProgram(program);
  if ('printed' in answer) return answer.printed.replace(/\r?\n$/, '');
  throw new TollgateError('SECRET_MISSING', {
    detail: `The program that gives secret "${name}" ${answer.failed}.`,
    next: answer.failed.startsWith('was not run')
      ? 'Move it elsewhere, and correct its entry under secrets in tollgate.yaml.'
      : 'Run it by hand: its output must be only the value. Its entry is under secrets in tollgate.yaml.',
  });
}

/**
 * Runs a program that the owner names, and returns what it printed, or why that does not count, as the end of a
 * sentence. Its stderr is not read, because it may contain the request.
 */
export async function runOwnerProgram({
  command: [written = '', ...args],
  env,
  workspace,
  timeoutMs = TIMEOUT_MS,
  input,
  signal,
}: OwnerProgram): Promise<{ readonly printed: string } | { readonly failed: string }> {
  const { TOLLGATE_VAULT_PASSPHRASE: _passphrase, ...given } = env;
  const program = programFile(written, given.PATH) ?? written;
  // A link may have changed since the configuration was read.
  if (workspace !== undefined && wordInside([program, ...args], workspace) !== -1)
    return { failed: 'was not run: it is in the workspace, where agents write' };
  return new Promise((resolve) => {
    const child = spawn(program, args, {
      cwd: PROGRAM_FOLDER,
      env: given,
      detached: true,
      shell: false,
      stdio: [input === undefined ? 'ignore' : 'pipe', 'pipe', 'ignore'],
    });
    const stdout = child.stdout!;
    const chunks: Buffer[] = [];
    let size = 0;
    const end = (answer: { readonly printed: string } | { readonly failed: string }): void => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', stop);
      resolve(answer);
    };
    const fail = (why: string): void => {
      stdout.destroy();
      endGroup(child.pid);
      end({ failed: why });
    };
    const stop = (): void => fail('was stopped');
    const timer = setTimeout(() => fail(`did not end within ${timeoutMs / 1000} s`), timeoutMs);
    signal?.addEventListener('abort', stop, { once: true });
    child.on('error', (error: NodeJS.ErrnoException) => fail(`could not be started (${error.code ?? 'unknown'})`));
    stdout.on('data', (chunk: Buffer) => {
      chunks.push(chunk);
      size += chunk.length;
      if (size > MAX_BYTES) fail('printed more than 64 KiB');
    });
    child.on('close', (code, killed) => {
      if (code === 0) end({ printed: Buffer.concat(chunks).toString('utf8') });
      else end({ failed: killed === null ? `ended with exit code ${code}` : `was ended by ${killed}` });
    });
    // A program that does not read its input is judged by its exit code.
    child.stdin?.on('error', () => undefined).end(input);
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
