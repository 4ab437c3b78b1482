/**
 * Reads credentials for the vault while connecting: from a hidden prompt, a file or a variable, never from the command
 * line.
 */
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

/** Where the value of a credential comes from, by the variable or header that it is for. */
export type Sources = ReadonlyMap<string, string>;

const MAX_BYTES = 64 * 1024;

/**
 * Reads `NAME=env:VARIABLE` and `NAME=@FILE`. Throws USAGE for everything else. It may be a value, so it is not shown.
 */
export function readSources(given: readonly string[]): Sources {
  return new Map(
    given.map((text) => {
      const [, name = '', source = ''] = /^([\w-]+)=(env:[A-Za-z_]\w*|@.+)$/s.exec(text) ?? [];
      if (name === '')
        throw new TollgateError('USAGE', {
          detail:
            'A credential is not given as NAME=env:VARIABLE or NAME=@FILE. Values must not be on the command line, where every user of the machine can read them.',
          next: 'Name a variable or a file. If you gave a value, replace it with a new one, because it is in your shell history.',
        });
      return [name, source];
    }),
  );
}

/** The vault and what is in it already. */
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

/** What is asked of `collect`. */
export interface Collecting {
  readonly secrets: readonly NeededSecret[];
  readonly sources: Sources;
  /** Names that have a value already; it stays unless another is given. */
  readonly known: ReadonlySet<string>;
}

/**
 * Returns the new values by the name of the secret; nothing is stored yet. Throws USAGE if one is missing and no one
 * can be asked, CANCELLED.
 */
export async function collect({ secrets, sources, known }: Collecting, io: Io): Promise<ReadonlyMap<string, string>> {
  const values = new Map<string, string>();
  for (const secret of secrets) {
    const source = sources.get(secretPlaceOf(secret));
    if (source !== undefined) values.set(secret.name, checked(secret, readSource(source, secret, io)));
    else if (!known.has(secret.name)) values.set(secret.name, checked(secret, await ask(secret, io)));
  }
  return values;
}

/** The variable or header that a credential is for. */
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
      detail: `${secret.title} (${place}) is missing, and no one can be asked here.`,
      next: `Make it at ${secret.get} and give it with --credential ${place}=env:VARIABLE or ${place}=@FILE.`,
    });
  io.stderr(
    `${secret.title} (${place}). Where to get it: ${secret.get}\n${secret.hint === undefined ? '' : `  ${secret.hint}\n`}`,
  );
  return askHidden(io, 'Value (not shown): ');
}

/**
 * A credential of another form is reported, because it is mostly a wrong key. It is accepted, because providers change
 * forms.
 */
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

/** Tells where the key of a new vault is stored; `before` is the former result of `origin`. */
export function tellOrigin(places: SecretPlaces, before: ReturnType<SecretPlaces['vault']['origin']>, io: Io): void {
  const origin = places.vault.origin();
  if (before === undefined && origin !== undefined) io.stderr(`${KEY_WORDS[origin]}\n`);
}

/** Credentials whose values do not look like those that the provider gives. */
export function unlike(secrets: readonly NeededSecret[], values: ReadonlyMap<string, string>): readonly string[] {
  return secrets
    .filter(
      ({ name, form }) => form !== undefined && values.has(name) && !new RegExp(form).test(values.get(name) ?? ''),
    )
    .map(secretPlaceOf);
}
