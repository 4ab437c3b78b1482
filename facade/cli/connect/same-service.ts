/** Recognizes a configured server as a known service: by its package or its host, never by a similar name. */
import type { KnownServer } from '../../../catalogs/servers/known-server.ts';
import type { ClientEntry } from '../../clients/client-entry.ts';
import { fetchedPackage, hostOf } from '../../clients/client-entry-view.ts';
import type { ConnectionDraft } from './connection-draft.ts';

type ServerStart = Pick<ClientEntry, 'command' | 'args' | 'url'>;

/** Returns whether a server runs the same package, downloaded at each start or installed, or is at the same host. */
export function isSameService(
  { package: pkg, entry }: Pick<ConnectionDraft, 'package' | 'entry'>,
  server: ServerStart,
): boolean {
  return runsService(
    { ...(pkg !== undefined && { package: pkg }), ...(entry.url !== undefined && { url: entry.url }) },
    server,
  );
}

/** Returns the arguments that connect an entry as a known server under its present name; undefined if it is not one. */
export function connectWords(
  catalog: readonly KnownServer[],
  entry: ServerStart & Pick<ClientEntry, 'name'>,
): readonly string[] | undefined {
  const known = catalog.find((one) => runsService(one, entry));
  if (known === undefined) return undefined;
  const name = known.name === entry.name ? [] : ['--name', entry.name];
  return ['connect', known.name, ...name, ...choicesIn(known, entry.args)];
}

function runsService({ package: pkg, url }: Pick<KnownServer, 'package' | 'url'>, server: ServerStart): boolean {
  const run = fetchedPackage(server) ?? installedPackage(server);
  if (run !== undefined && run === pkg?.name) return true;
  return server.url !== undefined && url !== undefined && hostOf(server.url) === hostOf(url);
}

/** Returns the name of a package of npm that Tollgate has installed for the server. */
function installedPackage({ args }: ServerStart): string | undefined {
  return /\/packages\/[^/]+\/[^/]+\/node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(args[0] ?? '')?.[1];
}

/** Returns --set options for the arguments after the package that are choices in the catalog. */
function choicesIn(
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
