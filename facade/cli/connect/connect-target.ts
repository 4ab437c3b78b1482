/**
 * Finds the service that a person names: a known server, an MCP server at an address, or another service there. It
 * refuses addresses that can be read in two ways.
 */
import { existsSync } from 'node:fs';
import path from 'node:path';
import type { AddressProbe } from '../../../adapters/port.ts';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { parseHost } from '../../../catalogs/readers/hosts.ts';
import { isConfidential } from '../../../catalogs/readers/urls.ts';
import {
  type KnownCredential,
  type KnownServer,
  knownNames,
  loadKnown,
} from '../../../catalogs/servers/known-server.ts';
import type { PinWorld } from '../../clients/package-copies.ts';
import type { Config } from '../../config/config.ts';
import { didYouMean, quote } from '../../config/config-problems.ts';
import { nameFault, toSlug } from '../../config/servers/server-names.ts';
import { pinPackage } from '../../packages/package-source.ts';
import { type PackageSpec, readPackageSpec } from '../../packages/package-spec.ts';
import { packageFolder } from '../../packages/pinned-package.ts';
import type { Io } from '../command-io.ts';
import { printable } from '../print.ts';
import { askYes, isInteractive } from '../terminal-prompt.ts';
import type { Sources } from './connect-credentials.ts';
import { type ConnectionDraft, draftKnown, draftRemote, draftService, type Wish } from './connection-draft.ts';
import { readJournal } from './connection-journal.ts';
import { draftPackage, serverNameOf } from './package-draft.ts';

/** What the user asks for. */
export interface ConnectRequest {
  readonly service: string;
  readonly name?: string;
  readonly profile: string;
  readonly set?: readonly string[];
  /** `Authorization`, or with a scheme: `Authorization: Basic`. */
  readonly header: string;
  readonly address?: string;
  /** Of a package: the arguments of the server, after `--`. */
  readonly args?: readonly string[];
  /** Of a package: NAME=VALUE of variables that are no secrets. */
  readonly env?: readonly string[];
  /** Of a package: hosts that it may reach. */
  readonly host?: readonly string[];
  /** Of a package: its program, if it has several. */
  readonly bin?: string;
  readonly dryRun?: true;
  readonly yes?: true;
}

/** The objects that the search needs. */
export interface TargetSearch {
  readonly io: Io;
  readonly sources: Sources;
  /** Names in the vault. */
  readonly known: ReadonlySet<string>;
  readonly probe: AddressProbe;
  readonly config: Pick<Config, 'workspace' | 'state' | 'folder'>;
  readonly packages: PinWorld;
}

/** Returns what connecting this service will do. Throws USAGE. */
export async function findTarget(request: ConnectRequest, search: TargetSearch): Promise<ConnectionDraft> {
  const { service, name = '' } = request;
  const choices = readChoices(request.set ?? []);
  const spec = knownNames().includes(service) ? undefined : readPackageSpec(service, search.io);
  if (spec !== undefined) return draftSpec(spec, request, search);
  refusePackageOptions(request);
  if (knownNames().includes(service)) {
    const wish = wishOf(request, name === '' ? service : name, choices);
    const known = loadKnown(service);
    refuseMissingFolder(known, choices);
    return draftKnown(known, { ...wish, given: givenTo(wish.name, search) });
  }
  const url = readAddress(service);
  if (url === undefined)
    throw new TollgateError('USAGE', {
      detail: `${quote(service)} is neither a known server, a package nor an address.`,
      next:
        'Give npm:PACKAGE, pypi:PACKAGE, oci:IMAGE, an address such as tracker.example.com, ' +
        'or a known server (`tollgate known`): ' +
        didYouMean(service, knownNames()),
    });
  if (choices.size > 0)
    throw new TollgateError('USAGE', {
      detail: 'A service that is named by its address has no choices.',
      next: 'Omit --set; `tollgate connect --help` shows the options of an address.',
    });
  return draftByAddress(url, request, search);
}

/** Returns the credentials that are given now, or were stored for a server before. */
function givenTo(server: string, { sources, known }: TargetSearch): ReadonlySet<string> {
  const stored = [...known].filter((secret) => secret.startsWith(`${server}.`));
  return new Set([...sources.keys(), ...stored.map((secret) => secret.slice(server.length + 1))]);
}

/** Pins a package, and drafts its server. What was connected by the same name before keeps its version. */
async function draftSpec(spec: PackageSpec, request: ConnectRequest, search: TargetSearch): Promise<ConnectionDraft> {
  const { io, config, packages } = search;
  const { service, name, bin, args = [], env = [], host: hosts = [] } = request;
  if ((request.set ?? []).length > 0 || request.address !== undefined)
    throw new TollgateError('USAGE', {
      detail: 'A package has no choices and no address.',
      next: 'Give its arguments after --, its variables with --env, and its hosts with --host.',
    });
  const wish = wishOf(request, name ?? toSlug(serverNameOf(spec)), new Map());
  const before = readJournal(config, wish.name)?.package;
  const isKept =
    before?.source === service &&
    (bin === undefined || bin === before.bin) &&
    spec.kind !== 'folder' &&
    existsSync(packageFolder(config.state, wish.name, before.version));
  if (!isKept) io.stderr(`Looking up ${printable(service)} …\n`);
  const pinning = { into: packages.into, ...(bin !== undefined && { bin }) };
  const found = isKept ? before : await pinPackage(spec, pinning, packages);
  const given = { args, env, hosts, workspace: config.workspace, home: io.home };
  const draft = draftPackage(found, { ...wish, given: givenTo(wish.name, search) }, given);
  return { ...draft, ...(draft.package !== undefined && { package: { ...draft.package, source: service } }) };
}

/** Throws USAGE for options that only a package has. */
function refusePackageOptions({ args = [], env = [], host = [], bin }: ConnectRequest): void {
  const given = [
    ...(args.length > 0 ? ['arguments'] : []),
    ...(env.length > 0 ? ['--env'] : []),
    ...(host.length > 0 ? ['--host'] : []),
    ...(bin === undefined ? [] : ['--bin']),
  ];
  if (given.length === 0) return;
  throw new TollgateError('USAGE', {
    detail: `Only a package takes ${given.join(', ')}.`,
    next: 'Name the package: npm:NAME, pypi:NAME, oci:IMAGE, git:URL#COMMIT or a folder.',
  });
}

/** Otherwise the sandbox would report a missing folder at the first start. Throws USAGE. */
function refuseMissingFolder({ choices = [] }: KnownServer, given: ReadonlyMap<string, string>): void {
  for (const { name, kind } of choices) {
    const value = given.get(name);
    if (kind !== 'folder' || value === undefined || !path.isAbsolute(value) || existsSync(value)) continue;
    throw new TollgateError('USAGE', {
      detail: `There is no folder ${quote(value)}, so nothing was done.`,
      next: `Create it, or give another with --set ${name}=PATH.`,
    });
  }
}

async function draftByAddress(
  url: URL,
  request: ConnectRequest,
  { io, sources, known, probe }: TargetSearch,
): Promise<ConnectionDraft> {
  const { address, header } = request;
  if (!isConfidential(url) && address === undefined)
    throw new TollgateError('USAGE', {
      detail: 'The address is plain http, which others on the network can read and change.',
      next: 'Use https. For a service in your own network, write its private address with --address.',
    });
  const wish = wishOf(
    request,
    request.name ?? toSlug(url.hostname.replace(/^(www|api)\./, '').split('.')[0] ?? ''),
    new Map(),
  );
  io.stderr(`Asking ${url.host} what it is …\n`);
  const probed = await probe(url.href, address === undefined ? [] : [address]);
  if (probed.kind === 'private')
    throw new TollgateError('USAGE', {
      detail:
        `${url.host} has the address ${probed.addresses.join(', ') || 'of a private network'}. ` +
        'It is on this machine or in its networks, where other services listen too.',
      next: `If this is correct, add --address ${probed.addresses[0] ?? 'IP'}.`,
    });
  // Someone else may register a mistyped name later.
  if (probed.kind === 'unknown' && address === undefined)
    throw new TollgateError('USAGE', {
      detail: `The name ${quote(url.hostname)} has no address.`,
      next:
        'Check its spelling and the network. ' +
        'If only another network knows the host, write its address: --address IP.',
    });
  const login = probed.kind === 'mcp' && probed.login;
  const credential = login ? undefined : await credentialOf(readHeader(header), { wish, request, io, sources, known });
  if (probed.kind === 'mcp') {
    io.stderr(`${url.host} answers as an MCP server, so it is connected as one.\n`);
    return draftRemote(url, credential, wish);
  }
  const draft = draftService(
    {
      origin: new URL(url.origin),
      ...(address !== undefined && { address }),
      ...(credential !== undefined && { header: credential }),
    },
    wish,
  );
  if (probed.kind === 'web') return draft;
  const why = probed.kind === 'unknown' ? 'its name has no address here.' : probed.why;
  return { ...draft, notes: [`It did not answer just now: ${why}`] };
}

/** Returns the header for a credential if one is given or stored, or if the person at the terminal says so. */
async function credentialOf(
  header: KnownCredential,
  {
    wish,
    request,
    io,
    sources,
    known,
  }: Pick<TargetSearch, 'io' | 'sources' | 'known'> & { readonly wish: Wish; readonly request: ConnectRequest },
): Promise<KnownCredential | undefined> {
  const place = header.header ?? '';
  if (sources.has(place) || known.has(`${wish.name}.${place}`)) return header;
  if (!isInteractive(io) || request.dryRun === true || request.yes === true) return undefined;
  return (await askYes(io, `Does it need a credential (sent as header ${place})?`)) ? header : undefined;
}

function readHeader(text: string): KnownCredential {
  const [, header, scheme] = /^([A-Za-z][A-Za-z0-9-]*)(?::\s*([A-Za-z]+))?$/.exec(text) ?? [];
  if (header === undefined)
    throw new TollgateError('USAGE', {
      detail: '--header is not the name of a header.',
      next: 'Write for example X-Api-Key, or Authorization: Basic.',
    });
  const prefix = scheme ?? (header.toLowerCase() === 'authorization' ? 'Bearer' : undefined);
  return {
    header,
    title: 'Credential',
    get: 'the service',
    example: 'credential',
    ...(prefix !== undefined && { prefix: `${prefix} ` }),
  };
}

/**
 * Reads an address, or a host with a dot or a port. Throws USAGE for a URL with a user, a query or a fragment. Returns
 * undefined for other texts.
 */
function readAddress(text: string): URL | undefined {
  const full = /^[a-z]+:\/\//i.test(text)
    ? text
    : /^[^/\s]*[.:][^/\s]*(\/|$)/.test(text)
      ? `https://${text}`
      : undefined;
  if (full === undefined || !URL.canParse(full)) return undefined;
  const url = new URL(full);
  if (!/^https?:$/.test(url.protocol) || parseHost(url.hostname) === undefined)
    throw new TollgateError('USAGE', {
      detail: 'The address is not http or https, or has no host.',
      next: 'Write for example https://tracker.example.com.',
    });
  if (url.username !== '' || url.password !== '' || full.includes('@'))
    throw new TollgateError('USAGE', {
      detail: 'The address contains a user or a password.',
      next: 'Give it with --credential. Replace the password, because it is in your shell history.',
    });
  if (url.search !== '' || url.hash !== '')
    throw new TollgateError('USAGE', {
      detail: 'The address has a query or a fragment.',
      next: 'Omit it. Calls name their own paths and queries.',
    });
  return url;
}

function wishOf({ profile }: ConnectRequest, name: string, choices: ReadonlyMap<string, string>): Wish {
  const fault = nameFault(name);
  if (fault !== undefined)
    throw new TollgateError('USAGE', {
      detail: `A server cannot be called ${quote(name)}: ${fault}.`,
      next: 'Give another name with --name.',
    });
  return { name, profile, choices, given: new Set() };
}

function readChoices(set: readonly string[]): ReadonlyMap<string, string> {
  return new Map(
    set.map((text) => {
      const equals = text.indexOf('=');
      if (equals < 1)
        throw new TollgateError('USAGE', {
          detail: 'A choice is not given as name=value.',
          next: '`tollgate known NAME` shows the choices.',
        });
      return [text.slice(0, equals), text.slice(equals + 1)] as const;
    }),
  );
}
