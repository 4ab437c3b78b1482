/** Owns whether a server that is there already is the service that is to be connected; refuses to take the likeness of a name for it. */
import type { KnownServer } from '../../../catalogs/servers/known-server.ts';
import type { ClientEntry } from '../../clients/client-entry.ts';
import { fetchedPackage, hostOf } from '../../clients/client-entry-view.ts';
import type { ConnectionDraft } from './connection-draft.ts';

type Started = Pick<ClientEntry, 'command' | 'args' | 'url'>;

/** The same package, fetched at each start, or the same host. */
export function isSameService(
  { package: pkg, entry }: Pick<ConnectionDraft, 'package' | 'entry'>,
  there: Started,
): boolean {
  return isOf(
    { ...(pkg !== undefined && { package: pkg }), ...(entry.url !== undefined && { url: entry.url }) },
    there,
  );
}

/** The words that connect an entry as the known server that it is, under the name that it has; undefined when it is none. */
export function connectWords(
  catalog: readonly KnownServer[],
  entry: Started & Pick<ClientEntry, 'name'>,
): readonly string[] | undefined {
  const known = catalog.find((one) => isOf(one, entry));
  if (known === undefined) return undefined;
  const choices = chosen(known, entry.args);
  return ['connect', known.name, ...(known.name === entry.name ? [] : ['--name', entry.name]), ...choices];
}

function isOf({ package: pkg, url }: Pick<KnownServer, 'package' | 'url'>, there: Started): boolean {
  const fetched = fetchedPackage(there);
  if (fetched !== undefined && fetched === pkg?.name) return true;
  return there.url !== undefined && url !== undefined && hostOf(there.url) === hostOf(url);
}

/** What stood behind the package, where the catalog has a choice for exactly that. */
function chosen(
  { package: pkg, args: wanted = [], choices = [] }: KnownServer,
  args: readonly string[],
): readonly string[] {
  const at = args.findIndex((arg) => arg === pkg?.name || arg.startsWith(`${pkg?.name}@`));
  const given = args.slice(at + 1);
  if (at < 0 || given.length !== wanted.length) return [];
  return wanted.flatMap((word, index) => {
    const choice = choices.find(({ name }) => word === `<${name}>`);
    return choice === undefined || given[index] === choice.default
      ? []
      : ['--set', `${choice.name}=${given[index] ?? ''}`];
  });
}
