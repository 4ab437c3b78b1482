/** Reads the credentials of a service: from a hidden prompt, a file or a variable, never from the command line. */
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { Config } from '../../config/config.ts';
import { readText } from '../../config/reading/text-files.ts';
import type { SecretPlaces } from '../../secrets/secret-source.ts';
import { MIN_SECRET, openPlaces } from '../../secrets/secrets.ts';
import type { Io } from '../command-io.ts';
import { KEY_WORDS } from '../configuration/secret-actions.ts';
import { askHidden, isInteractive } from '../terminal-prompt.ts';
import type { NeededSecret } from './connection-draft.ts';

/** Where the values of credentials come from, by the variable or header that each is for. */
export type Sources = ReadonlyMap<string, string>;

const MAX_BYTES = 64 * 1024;

/**
 * Reads `NAME=env:VARIABLE` and `NAME=@FILE`. Throws USAGE for other texts, without repeating them: they may be values.
 */
export function readSources(given: readonly string[]): Sources {
  return new Map(
    given.map((text) => {
      const [, name = '', source = ''] = /^([\w-]+)=(env:[A-Za-z_]\w*|@.+)$/s.exec(text) ?? [];
      if (name === '')
        throw new TollgateError('USAGE', {
          detail:
            'A credential is not given as NAME=env:VARIABLE or NAME=@FILE. ' +
            'Values must not be on the command line, where every user of the machine can read them.',
          next:
            'Name a variable or a file. ' +
            'If you gave a value, replace it with a new one, because it is in your shell history.',
        });
      return [name, source];
    }),
  );
}

/** Opens the vault, and returns the names of the secrets that have a value or a source. */
export async function openConnectVault(
  config: Config,
  io: Io,
): Promise<{ readonly places: SecretPlaces; readonly names: ReadonlySet<string> }> {
  const places = openPlaces({
    state: config.state,
    env: io.env,
    ...(isInteractive(io) && { ask: () => askHidden(io, 'Passphrase of the vault: ') }),
  });
  const names = new Set([...(await places.vault.list()).map(({ name }) => name), ...config.secretSources.keys()]);
  return { places, names };
}

/** Which credentials to collect. */
export interface CredentialRequest {
  readonly secrets: readonly NeededSecret[];
  readonly sources: Sources;
  /** Names that have a value already; it stays unless another is given. */
  readonly known: ReadonlySet<string>;
}

/**
 * Returns the new values by the name of the secret, and stores nothing. Throws USAGE if one is missing and there is no
 * terminal, CANCELLED.
 */
export async function collectCredentials(
  { secrets, sources, known }: CredentialRequest,
  io: Io,
): Promise<ReadonlyMap<string, string>> {
  const values = new Map<string, string>();
  for (const secret of secrets) {
    const source = sources.get(secretPlaceOf(secret));
    if (source !== undefined) values.set(secret.name, checked(secret, readSource(source, secret, io)));
    else if (!known.has(secret.name)) values.set(secret.name, checked(secret, await ask(secret, io)));
  }
  return values;
}

/** Returns the variable or header that a credential is for. */
export function secretPlaceOf({ env, header }: Pick<NeededSecret, 'env' | 'header'>): string {
  return env ?? header ?? '';
}

function readSource(source: string, secret: NeededSecret, io: Io): string {
  if (source.startsWith('env:')) {
    const value = io.env[source.slice(4)];
    if (value === undefined || value === '')
      throw new TollgateError('USAGE', {
        detail: `The variable ${source.slice(4)} for ${secretPlaceOf(secret)} is not set.`,
        next: 'Set it in the environment of this command.',
      });
    return value;
  }
  const read = readText(path.resolve(io.cwd, source.slice(1)), MAX_BYTES);
  if (!read.ok)
    throw new TollgateError('USAGE', {
      detail: `The file for ${secretPlaceOf(secret)} cannot be read: ${read.reason}.`,
      next: 'Name a file that contains only the value.',
    });
  return read.text.replace(/\r?\n$/, '');
}

async function ask(secret: NeededSecret, io: Io): Promise<string> {
  const place = secretPlaceOf(secret);
  if (!isInteractive(io))
    throw new TollgateError('USAGE', {
      detail: `${secret.title} (${place}) is missing, and there is no terminal to ask for it.`,
      next: `Create it at ${secret.get} and give it with --credential ${place}=env:VARIABLE or ${place}=@FILE.`,
    });
  io.stderr(`${secret.title} (${place}). Where to get it: ${secret.get}\n`);
  if (secret.hint !== undefined) io.stderr(`  ${secret.hint}\n`);
  return askHidden(io, 'Value (not shown): ');
}

function checked(secret: NeededSecret, value: string): string {
  const fault =
    value.length < MIN_SECRET
      ? `it is shorter than ${MIN_SECRET} characters`
      : /[\0\r\n]/.test(value)
        ? 'it contains a line break'
        : undefined;
  if (fault !== undefined)
    throw new TollgateError('USAGE', {
      detail: `The value of ${secretPlaceOf(secret)} is refused: ${fault}.`,
      next: `Copy it again from ${secret.get}.`,
    });
  return value;
}

/** Prints where the key of a new vault is stored. `before`: the result of `origin` before the change. */
export function tellOrigin(places: SecretPlaces, before: ReturnType<SecretPlaces['vault']['origin']>, io: Io): void {
  const origin = places.vault.origin();
  if (before === undefined && origin !== undefined) io.stderr(`${KEY_WORDS[origin]}\n`);
}

/**
 * Returns the credentials whose values do not have the form that the provider gives. They are accepted, because
 * providers change forms.
 */
export function unusualCredentials(
  secrets: readonly NeededSecret[],
  values: ReadonlyMap<string, string>,
): readonly string[] {
  return secrets
    .filter(
      ({ name, form }) => form !== undefined && values.has(name) && !new RegExp(form).test(values.get(name) ?? ''),
    )
    .map(secretPlaceOf);
}
