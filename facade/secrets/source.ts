/** Owns where one secret comes from: the vault, an entry of the keychain, a variable, a program; refuses a shell and programs that do not end. */
import { execFile } from 'node:child_process';
import { TollgateError } from '../../catalogs/errors.ts';
import type { SecretSource } from '../config/secret-sources.ts';
import type { Keychain } from './keychain.ts';
import type { Vault } from './vault.ts';

/** What sources are read with. */
export interface SecretPlaces {
  readonly vault: Vault;
  readonly keychain: () => Promise<Keychain | undefined>;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** From the start of the program to the end of its output, ms. */
const EXEC_MS = 10_000;
const EXEC_BYTES = 64 * 1024;

/** The word for a source in lists and messages. */
export function sourceName(source: SecretSource | undefined): 'vault' | SecretSource['from'] {
  return source?.from ?? 'vault';
}

/** Reads a secret; undefined where its place has none. Throws SECRET_MISSING for a program that fails, VAULT_FAILED. */
export async function readSecret(name: string, source: SecretSource | undefined, places: SecretPlaces): Promise<string | undefined> {
  if (source === undefined) return places.vault.get(name);
  if (source.from === 'env') return Object.hasOwn(places.env, source.variable) ? places.env[source.variable] : undefined;
  if (source.from === 'exec') return runProgram(name, source.command, places.env);
  const keychain = await places.keychain();
  if (keychain === undefined) throw new TollgateError('SECRET_MISSING', { detail: `Secret "${name}" is in the keychain, which cannot be reached.`, next: 'Unlock the keychain, or run Tollgate in the session of the desktop.' });
  return keychain.get(source.service, source.account).catch(() => undefined);
}

/** What the program says on stderr stays unread: it may quote what it was asked for. */
function runProgram(name: string, [program = '', ...args]: readonly string[], env: SecretPlaces['env']): Promise<string> {
  const { TOLLGATE_VAULT_PASSPHRASE: _passphrase, ...given } = env;
  return new Promise((resolve, reject) => {
    const child = execFile(program, args, { env: given, timeout: EXEC_MS, killSignal: 'SIGKILL', maxBuffer: EXEC_BYTES, encoding: 'utf8', shell: false, windowsHide: true }, (error, stdout) => {
      if (error === null) return resolve(stdout.replace(/\r?\n$/, ''));
      const why = error.killed === true ? `did not end within ${EXEC_MS / 1000} s, or wrote too much` : typeof error.code === 'number' ? `ended with exit code ${error.code}` : `could not be started (${error.code ?? error.signal ?? 'unknown'})`;
      reject(new TollgateError('SECRET_MISSING', { detail: `The program that gives secret "${name}" ${why}.`, next: 'Run it by hand: its output must be the value and nothing else. It stands under secrets in tollgate.yaml.' }));
    });
    child.stdin?.end();
  });
}
