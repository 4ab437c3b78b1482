/** Runs `secret set`, `list`, `rm` and `rotate`. It never prints a value or its length. */

import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { Config } from '../../config/config.ts';
import { readReports } from '../../runtime/servers/server-reports.ts';
import { hasState } from '../../secrets/opened-state.ts';
import { type SecretPlaces, sourceName } from '../../secrets/secret-source.ts';
import { secretUses } from '../../secrets/secret-uses.ts';
import { MIN_SECRET, openPlaces } from '../../secrets/secrets.ts';
import { signedInServer } from '../../secrets/sign-ins.ts';
import { type CommonOptions, readForOwner } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { recordSetup, withState } from '../command-state.ts';
import { printList, printResult } from '../print.ts';
import { askHidden, isInteractive, readPiped } from '../terminal-prompt.ts';

type Named = CommonOptions & { readonly name: string };

const NAME = /^[A-Za-z_][\w.-]*$/;

/** Tells the person who made a vault how well its key is protected. */
export const KEY_WORDS = {
  passphrase:
    'The key of the vault comes from TOLLGATE_VAULT_PASSPHRASE. Tollgate needs it at each start. ' +
    'Without it, the secrets are lost.',
  keychain: 'The key of the vault is in the keychain of this user.',
  file:
    'The key of the vault is the file vault.key next to it: anyone who can read your files can read your secrets. ' +
    'To have a key that is not on the disk, remove both files, set TOLLGATE_VAULT_PASSPHRASE, ' +
    'and store the secrets again.',
} as const;

/** Stores a value. Throws USAGE, CANCELLED, AUDIT_FAILED, VAULT_FAILED, CONFIG_INVALID. */
export async function runSecretSet(options: Named, io: Io): Promise<number> {
  const { config, places } = open(options, io);
  const replaced = await store(options.name, { config, places, io, event: 'secret-set' });
  printResult(
    { io, options },
    { name: options.name, replaced, servers: usersOf(options.name, config) },
    `${replaced ? 'Replaced' : 'Stored'} ${options.name}.`,
  );
  return EXIT.ok;
}

/** Replaces an existing value. Throws SECRET_MISSING, and what `runSecretSet` throws. */
export async function runSecretRotate(options: Named, io: Io): Promise<number> {
  const { config, places } = open(options, io);
  const source = config.secretSources.get(options.name);
  if (source === undefined && (await places.vault.get(options.name)) === undefined) throw missing(options.name);
  await store(options.name, { config, places, io, event: 'secret-rotated' });
  const servers = usersOf(options.name, config);
  const running = await runningOf(servers, config);
  const advice = [
    `Rotated ${options.name}.${servers.length === 0 ? ' No server uses it.' : ''}`,
    ...(running.length === 0 ? [] : ['These servers run with the old value. To restart them, which ends their calls:']),
    ...running.map((server) => `  tollgate kill ${server}; sleep 2; tollgate kill --lift ${server}`),
  ];
  printResult({ io, options }, { name: options.name, restart: running }, advice.join('\n'));
  return EXIT.ok;
}

/** Returns the servers that run in some process. Without a readable state, all of them may. */
async function runningOf(servers: readonly string[], config: Config): Promise<readonly string[]> {
  if (servers.length === 0 || !hasState(config)) return [];
  const reports = await withState(config, readReports).catch(() => undefined);
  return servers.filter(
    (server) =>
      reports === undefined ||
      reports.get(server)?.some(({ state }) => state === 'healthy' || state === 'degraded') === true,
  );
}

/** Removes a value. Throws SECRET_MISSING, USAGE, AUDIT_FAILED, VAULT_FAILED, CONFIG_INVALID. */
export async function runSecretRemove(options: Named, io: Io): Promise<number> {
  const { config, places } = open(options, io);
  const source = config.secretSources.get(options.name);
  if (source !== undefined && source.from !== 'keychain') throw elsewhere(options.name, source.from);
  if (source === undefined && !(await places.vault.list()).some(({ name }) => name === options.name))
    throw missing(options.name);
  const keychain = source === undefined ? undefined : await keychainOf(places);
  await recordSetup({ event: 'secret-removed', secrets: [options.name] }, { audit: config.audit, user: io.user });
  if (source !== undefined) await keychain?.remove(source.service, source.account);
  else if (!(await places.vault.remove(options.name))) throw missing(options.name);
  const servers = usersOf(options.name, config);
  const rest = servers.length === 0 ? '' : ` These servers cannot start without it: ${servers.join(', ')}.`;
  printResult({ io, options }, { name: options.name, servers }, `Removed ${options.name}.${rest}`);
  return EXIT.ok;
}

/** Prints all secrets that are stored, configured or used. Throws VAULT_FAILED, CONFIG_INVALID. */
export async function runSecretList(options: CommonOptions, io: Io): Promise<number> {
  const { config, places } = open(options, io);
  const stored = new Map((await places.vault.list()).map(({ name, setAt }) => [name, setAt]));
  const uses = secretUses(config);
  const names = [...new Set([...stored.keys(), ...config.secretSources.keys(), ...uses.keys()])].sort();
  const items = names.map((name) => {
    const provider = sourceName(config.secretSources.get(name));
    const setAt = provider === 'vault' ? stored.get(name) : undefined;
    return {
      name,
      provider,
      ...(setAt !== undefined && { setAt }),
      missing: provider === 'vault' && setAt === undefined,
      servers: uses.get(name) ?? [signedInServer(name)].filter((server) => server !== undefined),
    };
  });
  const missingCount = items.filter((item) => item.missing).length;
  printList(
    { io, options },
    {
      data: items,
      columns: ['NAME', 'PROVIDER', 'SET', 'SERVERS'],
      rows: items.map((item) => [
        item.name,
        item.provider,
        item.missing ? { text: 'missing', colour: 'red' } : (item.setAt ?? '').slice(0, 16).replace('T', ' '),
        item.servers.join(', '),
      ]),
      empty: 'No secrets. Store one with: tollgate secret set NAME',
      ...(missingCount > 0 && { summary: `${missingCount} missing. Store one with: tollgate secret set NAME` }),
    },
  );
  return EXIT.ok;
}

function open(
  options: CommonOptions & { readonly name?: string },
  io: Io,
): { readonly config: Config; readonly places: SecretPlaces } {
  if (options.name !== undefined && !NAME.test(options.name))
    throw new TollgateError('USAGE', {
      detail:
        'The name of a secret begins with a letter or underscore, then has letters, digits, dots, dashes, underscores.',
      next: 'Use a name like github.token.',
    });
  const config = readForOwner(options, io);
  return { config, places: openPlacesFor(config, io) };
}

/** Opens the places of secrets. If a person is at the terminal, they are asked for the passphrase of the vault. */
export function openPlacesFor({ state }: Pick<Config, 'state'>, io: Io): SecretPlaces {
  const ask = isInteractive(io) ? { ask: () => askHidden(io, 'Passphrase of the vault: ') } : {};
  return openPlaces({ state, env: io.env, ...ask });
}

/** Asks for the value and stores it. Returns true when it replaced one. */
async function store(
  name: string,
  {
    config,
    places,
    io,
    event,
  }: {
    readonly config: Config;
    readonly places: SecretPlaces;
    readonly io: Io;
    readonly event: 'secret-set' | 'secret-rotated';
  },
): Promise<boolean> {
  const source = config.secretSources.get(name);
  if (source !== undefined && source.from !== 'keychain') throw elsewhere(name, source.from);
  const value = isInteractive(io) ? await askHidden(io, `Value of ${name}: `) : await readPiped(io);
  if (value.length < MIN_SECRET)
    throw new TollgateError('USAGE', {
      detail:
        `The value is shorter than ${MIN_SECRET} characters, so Tollgate could not find it reliably in results ` +
        'to remove it.',
      next: 'Use a longer value.',
    });
  if (value.includes('\0'))
    throw new TollgateError('USAGE', {
      detail: 'The value contains a NUL character, which no variable and no header can hold.',
      next: 'Encode it, for example as base64.',
    });
  const keychain = source === undefined ? undefined : await keychainOf(places);
  await recordSetup({ event, secrets: [name] }, { audit: config.audit, user: io.user });
  if (source !== undefined) {
    await keychain?.set(source.service, source.account, value);
    return false;
  }
  const isNew = places.vault.origin() === undefined;
  const replaced = await places.vault.set(name, value);
  const origin = places.vault.origin();
  if (isNew && origin !== undefined) io.stderr(`${KEY_WORDS[origin]}\n`);
  return replaced;
}

async function keychainOf(places: SecretPlaces): Promise<NonNullable<Awaited<ReturnType<SecretPlaces['keychain']>>>> {
  const keychain = await places.keychain();
  if (keychain === undefined)
    throw new TollgateError('VAULT_FAILED', {
      detail: 'The keychain cannot be reached.',
      next: 'Unlock it, or run this command in a desktop session.',
    });
  return keychain;
}

function usersOf(name: string, config: Config): readonly string[] {
  return secretUses(config).get(name) ?? [];
}

function missing(name: string): TollgateError {
  return new TollgateError('SECRET_MISSING', {
    detail: `Secret "${name}" is not in the vault.`,
    next: `\`tollgate secret list\` shows the names; store it with \`tollgate secret set ${name}\`.`,
  });
}

/** Where a secret comes from that Tollgate only reads. */
const READ_ONLY = { env: 'a variable', file: 'a file', exec: 'a program' } as const;

function elsewhere(name: string, from: keyof typeof READ_ONLY): TollgateError {
  return new TollgateError('USAGE', {
    detail: `Secret "${name}" comes from ${READ_ONLY[from]}, as tollgate.yaml says.`,
    next: 'Change it there, or remove its entry from secrets to keep it in the vault.',
  });
}
