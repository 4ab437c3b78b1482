/**
 * Searches a registry of MCP servers (MCP registry API v0.1). Its answers are from outside: their size, time and number
 * are limited, and an entry that does not have the documented form is left out.
 */
import { lookup } from 'node:dns/promises';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { isConfidential } from '../../../catalogs/readers/urls.ts';
import type { RegistryEntry, RegistryPackage, RegistrySearch } from '../../port.ts';
import { exchange, type FetchScope } from './fetch-client.ts';
import { FetchError } from './fetch-scope.ts';

const TIMEOUT_MS = 10_000;
/** The most entries of one answer that are read. It is the largest page of the official registry. */
const PAGE = 100;
/** The most packages, and the most addresses, of one entry that are read. */
const MAX_PARTS = 10;
/** The most characters of a description that are kept. */
const MAX_TEXT = 300;
const NAME = /^[A-Za-z0-9][A-Za-z0-9.-]{0,127}\/[A-Za-z0-9._-]{1,127}$/;
const VERSION = /^[\w.+-]{1,64}$/;
const VARIABLE = /^[A-Za-z_]\w{0,127}$/;

/**
 * Asks for the first page of each word at once, and merges the pages. The registry compares a word with names only. It
 * is asked at the addresses of its own host, which may be private because the owner wrote it. No page after the first
 * is read, so an endless list costs one request.
 */
export const searchRegistry: RegistrySearch = async (registry, words) => {
  const base = new URL(registry.replace(/\/*$/, '/'));
  if (!isConfidential(base))
    throw unavailable(base, 'its address is plain http', 'Write its https address under registries in tollgate.yaml.');
  const pages = await Promise.all(words.map((word) => readPage(base, word)));
  const found = new Map<string, RegistryEntry>();
  for (const entry of pages.flatMap(({ entries }) => entries)) if (!found.has(entry.name)) found.set(entry.name, entry);
  return { entries: [...found.values()], more: pages.some(({ more }) => more) };
};

interface Page {
  readonly entries: readonly RegistryEntry[];
  readonly more: boolean;
}

async function readPage(base: URL, word: string): Promise<Page> {
  const url = new URL('v0.1/servers', base);
  url.search = String(new URLSearchParams({ search: word, version: 'latest', limit: String(PAGE) }));
  const request = { url, method: 'GET', headers: { accept: 'application/json' } } as const;
  const { status, body, cut } = await exchange(request, scopeOf(base)).catch((thrown: unknown) => {
    throw thrown instanceof FetchError ? unreachable(base, thrown) : thrown;
  });
  if (status !== 200)
    throw unavailable(
      base,
      `it answered with status ${status}`,
      'Check its address under registries in tollgate.yaml.',
    );
  if (cut)
    throw new TollgateError('UPSTREAM_TOO_LARGE', {
      detail: `The answer of the registry ${base.host} is larger than 2 MiB, so it was not read.`,
      next: 'Search for a longer word.',
    });
  const answer = parse(body.toString('utf8'));
  if (!Array.isArray(answer.servers))
    throw unavailable(
      base,
      'its answer is not that of an MCP registry (no list `servers`)',
      'Check its address under registries in tollgate.yaml, without /v0.1.',
    );
  const { nextCursor } = asMap(answer.metadata);
  return {
    entries: answer.servers.slice(0, PAGE).flatMap(readEntry),
    more: answer.servers.length > PAGE || (typeof nextCursor === 'string' && nextCursor !== ''),
  };
}

/** All addresses of the host are allowed, because the owner wrote it. Redirects stay within its origin. */
function scopeOf({ origin, hostname }: URL): FetchScope {
  const addresses = [hostname.replace(/^\[|\]$/g, '')];
  const resolve = async (name: string): Promise<readonly string[]> => {
    const found = (await lookup(name, { all: true })).map(({ address }) => address);
    addresses.push(...found);
    return found;
  };
  return { origin: new URL(origin), addresses, lookup: resolve, timeoutMs: TIMEOUT_MS };
}

type Fields = Readonly<Record<string, unknown>>;

/** Returns the entry; empty if it has no valid name, or if its author has deleted it. */
function readEntry(value: unknown): readonly RegistryEntry[] {
  const { server, _meta: meta } = asMap(value);
  const { name, title, description, version, packages, remotes } = asMap(server);
  const { status } = asMap(asMap(meta)['io.modelcontextprotocol.registry/official']);
  if (typeof name !== 'string' || !NAME.test(name) || status === 'deleted') return [];
  return [
    {
      name,
      title: text(title),
      description: text(description),
      version: matching(version, VERSION),
      deprecated: status === 'deprecated',
      packages: listOf(packages).flatMap(readPackage),
      remotes: listOf(remotes).flatMap(({ type, url }) =>
        typeof type === 'string' && typeof url === 'string' && url.length <= 2048 ? [{ type, url }] : [],
      ),
    },
  ];
}

function readPackage({
  registryType,
  registryBaseUrl,
  identifier,
  version,
  environmentVariables,
}: Fields): readonly RegistryPackage[] {
  if (typeof registryType !== 'string' || typeof identifier !== 'string' || identifier.length > 512) return [];
  const needs = listOf(environmentVariables).flatMap(({ name, isRequired }) =>
    typeof name === 'string' && VARIABLE.test(name) && isRequired === true ? [name] : [],
  );
  return [
    {
      type: registryType,
      identifier,
      version: matching(version, VERSION),
      needs,
      ...(typeof registryBaseUrl === 'string' && { registry: registryBaseUrl }),
    },
  ];
}

function parse(body: string): Fields {
  try {
    return asMap(JSON.parse(body));
  } catch {
    return {};
  }
}

function asMap(value: unknown): Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Fields) : {};
}

function listOf(value: unknown): readonly Fields[] {
  return Array.isArray(value) ? value.slice(0, MAX_PARTS).map(asMap) : [];
}

function text(value: unknown): string {
  return typeof value === 'string' ? value.slice(0, MAX_TEXT) : '';
}

function matching(value: unknown, form: RegExp): string {
  return typeof value === 'string' && form.test(value) ? value : '';
}

function unavailable({ host }: URL, why: string, next: string): TollgateError {
  return new TollgateError('SERVER_UNAVAILABLE', {
    detail: `The registry ${host} was not searched, because ${why}.`,
    next,
  });
}

function unreachable(base: URL, { message }: FetchError): TollgateError {
  // A search has no effect, so a late answer is only late.
  const why = message.replace(' The request may have had an effect.', '');
  return new TollgateError('SERVER_UNAVAILABLE', {
    detail: `The registry ${base.host} was not searched. ${why}`,
    next: 'Check the network, and its address under registries in tollgate.yaml.',
  });
}
