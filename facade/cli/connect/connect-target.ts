/**
 * Finds what a person means by the service: a known server, an MCP server at an address, or another service there.
 * Ambiguous addresses are refused.
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
import { didYouMean, quote } from '../../config/config-problems.ts';
import { nameFault, toSlug } from '../../config/servers/server-names.ts';
import type { Io } from '../command-io.ts';
import { askYes, isInteractive } from '../terminal-prompt.ts';
import type { Sources } from './connect-credentials.ts';
import { type ConnectionDraft, draftKnown, draftRemote, draftService, type Wish } from './connection-draft.ts';

/** What was asked for. */
export interface Asked {
  readonly service: string;
  readonly name?: string;
  readonly profile: string;
  readonly set?: readonly string[];
  /** `Authorization`, or with a scheme: `Authorization: Basic`. */
  readonly header: string;
  readonly address?: string;
  readonly dryRun?: true;
  readonly yes?: true;
}

/** What finding out needs. */
export interface TargetSearch {
  readonly io: Io;
  readonly sources: Sources;
  /** Names in the vault. */
  readonly known: ReadonlySet<string>;
  readonly probe: AddressProbe;
}

/** Returns what connecting will do. Throws USAGE. */
export async function findTarget(asked: Asked, finding: TargetSearch): Promise<ConnectionDraft> {
  const { service, name = '' } = asked;
  const choices = readChoices(asked.set ?? []);
  if (knownNames().includes(service)) {
    const wish = wishOf(asked, name === '' ? service : name, choices);
    const given = new Set([
      ...finding.sources.keys(),
      ...[...finding.known]
        .filter((secret) => secret.startsWith(`${wish.name}.`))
        .map((secret) => secret.slice(wish.name.length + 1)),
    ]);
    const known = loadKnown(service);
    refuseAbsent(known, choices);
    return draftKnown(known, { ...wish, given });
  }
  const url = readAddress(service);
  if (url === undefined)
    throw new TollgateError('USAGE', {
      detail: `${quote(service)} is neither a known server nor an address.`,
      next: `Give an address such as tracker.example.com; of the known servers (\`tollgate known\`), ${didYouMean(service, knownNames())}`,
    });
  if (choices.size > 0)
    throw new TollgateError('USAGE', {
      detail: 'A service by its address has no choices.',
      next: 'Omit --set; `tollgate connect --help` shows the options of an address.',
    });
  return byAddress(url, asked, finding);
}

/** A missing folder would only be reported by the sandbox, at the first start. Throws USAGE. */
function refuseAbsent({ choices = [] }: KnownServer, given: ReadonlyMap<string, string>): void {
  for (const { name, kind } of choices) {
    const value = given.get(name);
    if (kind !== 'folder' || value === undefined || !path.isAbsolute(value) || existsSync(value)) continue;
    throw new TollgateError('USAGE', {
      detail: `There is no folder ${quote(value)}, so nothing was done.`,
      next: `Make it, or give another with --set ${name}=PATH.`,
    });
  }
}

async function byAddress(
  url: URL,
  asked: Asked,
  { io, sources, known, probe }: TargetSearch,
): Promise<ConnectionDraft> {
  const { address, header } = asked;
  if (!isConfidential(url) && address === undefined)
    throw new TollgateError('USAGE', {
      detail: 'Others on the network can read and change plain http.',
      next: 'Use https; within your own network, write the private address with --address.',
    });
  const wish = wishOf(
    asked,
    asked.name ?? toSlug(url.hostname.replace(/^(www|api)\./, '').split('.')[0] ?? ''),
    new Map(),
  );
  io.stderr(`Asking ${url.host} what it is …\n`);
  const probed = await probe(url.href, address === undefined ? [] : [address]);
  if (probed.kind === 'private')
    throw new TollgateError('USAGE', {
      detail: `${url.host} is at ${probed.addresses.join(', ') || 'a private address'}: on this machine or in its networks, where other services listen too.`,
      next: `If you mean that, write it: --address ${probed.addresses[0] ?? 'IP'}.`,
    });
  // A mistyped name may belong to someone else later.
  if (probed.kind === 'unknown' && address === undefined)
    throw new TollgateError('USAGE', {
      detail: `The name ${quote(url.hostname)} has no address.`,
      next: 'Check its spelling and the network. If only another network knows the host, write its address: --address IP.',
    });
  const login = probed.kind === 'mcp' && probed.login;
  const credential = login ? undefined : await credentialOf(readHeader(header), { wish, asked, io, sources, known });
  if (probed.kind === 'mcp') {
    io.stderr(`${url.host} answers as an MCP server, so it is connected as one.\n`);
    return draftRemote(url, { login, ...(credential !== undefined && { header: credential }) }, wish);
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
  return {
    ...draft,
    notes: [`It did not answer just now: ${probed.kind === 'unknown' ? 'its name is not known here.' : probed.why}`],
  };
}

/** Whether the service gets a credential: when one is given or in the vault, or when the person says so. */
async function credentialOf(
  header: KnownCredential,
  {
    wish,
    asked,
    io,
    sources,
    known,
  }: Pick<TargetSearch, 'io' | 'sources' | 'known'> & { readonly wish: Wish; readonly asked: Asked },
): Promise<KnownCredential | undefined> {
  const place = header.header ?? '';
  if (sources.has(place) || known.has(`${wish.name}.${place}`)) return header;
  if (!isInteractive(io) || asked.dryRun === true || asked.yes === true) return undefined;
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

/** An address, or a host with a dot or a port; the rest of what URLs can hold is refused. */
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
      detail: 'The address holds a user or password.',
      next: `Give it with --credential. If you gave a password there, replace it, because it is in your shell history.`,
    });
  if (url.search !== '' || url.hash !== '')
    throw new TollgateError('USAGE', {
      detail: 'The address has a query or a fragment.',
      next: 'Omit it: connect takes a service, and calls say what they want of it.',
    });
  return url;
}

function wishOf({ profile }: Asked, name: string, choices: ReadonlyMap<string, string>): Wish {
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
      const at = text.indexOf('=');
      if (at < 1)
        throw new TollgateError('USAGE', {
          detail: 'A choice is not given as name=value.',
          next: '`tollgate known NAME` shows what there is to choose.',
        });
      return [text.slice(0, at), text.slice(at + 1)] as const;
    }),
  );
}
