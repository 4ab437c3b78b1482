/**
 * Runs `tollgate search`: finds servers by words, among the known servers and in the registries of the configuration.
 * It says which of them are pinned, and how to connect each.
 */
import { existsSync } from 'node:fs';
import type { RegistryEntry, RegistryPackage } from '../../../adapters/port.ts';
import { asTollgateError, TollgateError } from '../../../catalogs/errors/error-table.ts';
import { isConfidential } from '../../../catalogs/readers/urls.ts';
import { type KnownServer, loadAllKnown } from '../../../catalogs/servers/known-server.ts';
import { nearest, quote } from '../../config/config-problems.ts';
import { readConfig } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { configFile, DEFAULT_CONFIG } from '../config-file.ts';
import { json, MAX_COLUMNS, plural, printable, table, wrapWords } from '../print.ts';
import type { Wiring } from '../wiring.ts';
import { needsText } from './known-command.ts';

/** Options of the command. */
export interface SearchOptions {
  readonly words: readonly string[];
  readonly config: string;
  readonly json?: true;
}

/** Each word is one request to each registry. */
const MAX_WORDS = 5;
const MAX_WORD = 60;
/** The most servers that are shown of each registry. */
const MAX_SHOWN = 20;

/** A known server that matches. */
interface KnownResult extends Pick<KnownServer, 'name' | 'title' | 'description' | 'package' | 'url' | 'verified'> {
  /** True for a package: its version and digest are in the catalog. The code behind an address may change. */
  readonly pinned: boolean;
  readonly needs: string;
  readonly connect: string;
}

/** A server that a registry lists. */
interface RegistryResult extends Pick<RegistryEntry, 'name' | 'title' | 'description' | 'version' | 'deprecated'> {
  readonly pinned: false;
  /** Variables that it requires. */
  readonly needs: readonly string[];
  /** Absent: Tollgate cannot connect it. */
  readonly connect?: string;
}

/** What one registry answered. */
interface RegistryAnswer {
  readonly registry: string;
  readonly servers: readonly RegistryResult[];
  /** It has more servers for these words. */
  readonly more: boolean;
  readonly error?: { readonly code: string; readonly message: string; readonly next: string };
}

/** Searches. Exit code 5 if a registry did not answer; the other results are printed. Throws USAGE, CONFIG_INVALID. */
export async function runSearch(options: SearchOptions, io: Io, { searchRegistry }: Wiring): Promise<number> {
  const words = readWords(options.words);
  const catalog = loadAllKnown();
  const known = findKnown(catalog, words).map(knownResult);
  const registries = await Promise.all(
    registriesOf(options, io).map((registry) => ask(registry, { words, catalog, searchRegistry })),
  );
  const isEmpty = known.length === 0 && registries.every(({ servers }) => servers.length === 0);
  const meant = isEmpty ? suggestion(catalog, words) : undefined;
  if (options.json === true)
    io.stdout(json({ words, known, registries, ...(meant !== undefined && { didYouMean: meant }) }));
  else print(io, { words, known, registries, meant });
  return registries.some(({ error }) => error !== undefined) ? EXIT.server : EXIT.ok;
}

function readWords(given: readonly string[]): readonly string[] {
  const words = [...new Set(given.flatMap((text) => text.toLowerCase().split(/\s+/)).filter((word) => word !== ''))];
  if (words.length === 0 || words.length > MAX_WORDS || words.some((word) => word.length > MAX_WORD))
    throw new TollgateError('USAGE', {
      detail: `A search has 1 to ${MAX_WORDS} words of at most ${MAX_WORD} characters.`,
      next: 'Write for example `tollgate search postgres`.',
    });
  return words;
}

/** The known servers can be searched without a configuration. */
function registriesOf(options: SearchOptions, io: Io): readonly string[] {
  const isAbsent = options.config === DEFAULT_CONFIG && !existsSync(configFile(options.config, io));
  return isAbsent ? [] : readConfig(options, io).registries;
}

/** Returns the servers that match all words, the best first; if there are none, those that match most words. */
function findKnown(catalog: readonly KnownServer[], words: readonly string[]): readonly KnownServer[] {
  const scored = catalog.map((known) => {
    const points = words.map((word) => pointsOf(known, word));
    return { known, hits: points.filter((one) => one > 0).length, points: points.reduce((sum, one) => sum + one, 0) };
  });
  const most = Math.max(1, ...scored.map(({ hits }) => hits));
  return scored
    .filter(({ hits }) => hits === most)
    .sort((a, b) => b.points - a.points)
    .map(({ known }) => known);
}

function pointsOf({ name, title, description, verified }: KnownServer, word: string): number {
  if (name === word || title.toLowerCase() === word) return 8;
  if (name.includes(word) || title.toLowerCase().includes(word)) return 4;
  if (description.toLowerCase().includes(word)) return 2;
  return (verified?.tools ?? []).some((tool) => tool.toLowerCase().includes(word)) ? 1 : 0;
}

function knownResult(known: KnownServer): KnownResult {
  const { name, title, description, package: pkg, url, verified } = known;
  return {
    name,
    title,
    description,
    pinned: pkg !== undefined,
    needs: needsText(known),
    connect: `tollgate connect ${name}`,
    ...(pkg !== undefined && { package: pkg }),
    ...(url !== undefined && { url }),
    ...(verified !== undefined && { verified }),
  };
}

interface Question extends Pick<Wiring, 'searchRegistry'> {
  readonly words: readonly string[];
  readonly catalog: readonly KnownServer[];
}

async function ask(registry: string, { words, catalog, searchRegistry }: Question): Promise<RegistryAnswer> {
  try {
    const { entries, more } = await searchRegistry(registry, words);
    const hits = (entry: RegistryEntry): number => {
      const text = `${entry.name} ${entry.title} ${entry.description}`.toLowerCase();
      return words.filter((word) => text.includes(word)).length;
    };
    const most = Math.max(1, ...entries.map(hits));
    const best = entries.filter((entry) => hits(entry) === most);
    return {
      registry,
      servers: best.slice(0, MAX_SHOWN).map((entry) => registryResult(entry, catalog)),
      more: more || best.length > MAX_SHOWN,
    };
  } catch (thrown) {
    const { code, message, next } = asTollgateError(thrown);
    return { registry, servers: [], more: false, error: { code, message, next } };
  }
}

function registryResult(entry: RegistryEntry, catalog: readonly KnownServer[]): RegistryResult {
  const { name, title, description, version, deprecated, packages, remotes } = entry;
  const known = catalog.find(
    ({ package: pkg, url }) =>
      packages.some(({ type, identifier }) => type === 'npm' && identifier === pkg?.name) ||
      remotes.some((remote) => remote.url === url),
  );
  const choices = [
    ...packages.map((pkg) => ({ target: packageTarget(pkg), needs: pkg.needs })),
    ...remotes.map((remote) => ({ target: remoteTarget(remote), needs: [] })),
  ];
  const { target, needs = [] } = choices.find((choice) => choice.target !== undefined) ?? {};
  const argument = known?.name ?? target;
  return {
    name,
    title,
    description,
    version,
    deprecated,
    pinned: false,
    needs: known === undefined ? needs : [],
    ...(argument !== undefined && { connect: `tollgate connect ${argument}` }),
  };
}

/** Package registries that `connect` uses, and identifiers that a shell and `connect` read in one way only. */
const PACKAGE_TYPES: ReadonlyMap<string, { readonly registry: RegExp; readonly form: RegExp; readonly at: string }> =
  new Map([
    [
      'npm',
      { registry: /^https:\/\/registry\.npmjs\.org\/?$/, form: /^(@[a-z0-9-][\w.-]*\/)?[a-z0-9][\w.-]*$/i, at: '@' },
    ],
    ['pypi', { registry: /^https:\/\/pypi\.org(\/simple)?\/?$/, form: /^[a-z0-9][\w.-]*$/i, at: '@' }],
    [
      'oci',
      {
        registry: /^https:\/\//,
        form: /^[a-z0-9][\w.-]*(:\d+)?(\/[\w.-]+)*(:[\w.-]+)?(@sha256:[0-9a-f]{64})?$/,
        at: ':',
      },
    ],
  ]);

function packageTarget({ type, identifier, version, registry }: RegistryPackage): string | undefined {
  const known = PACKAGE_TYPES.get(type);
  if (known === undefined || !known.form.test(identifier) || !(registry === undefined || known.registry.test(registry)))
    return undefined;
  const isTagged = /[:@][^/]*$/.test(identifier.slice(1));
  return `${type}:${identifier}${version === '' || isTagged ? '' : `${known.at}${version}`}`;
}

function remoteTarget({ type, url }: { readonly type: string; readonly url: string }): string | undefined {
  const isPlain = type === 'streamable-http' && /^https:\/\/[\w./:-]+$/.test(url) && isConfidential(url);
  return isPlain ? url : undefined;
}

/** Returns the name, or the word of a title, that was probably meant. */
function suggestion(catalog: readonly KnownServer[], words: readonly string[]): string | undefined {
  const vocabulary = catalog.flatMap(({ name, title }) => [name, ...title.toLowerCase().split(' ')]);
  for (const word of words) {
    const meant = nearest(word, vocabulary);
    if (meant !== undefined) return meant;
  }
  return undefined;
}

interface Found {
  readonly words: readonly string[];
  readonly known: readonly KnownResult[];
  readonly registries: readonly RegistryAnswer[];
  readonly meant: string | undefined;
}

function print(io: Io, { words, known, registries, meant }: Found): void {
  if (known.length > 0) {
    const rows = known.map(({ name, package: pkg, needs, description }) => [
      name,
      pkg === undefined ? 'an address' : pkg.version,
      needs,
      description,
    ]);
    io.stdout(table(io, ['NAME', 'PINNED', 'NEEDS', 'WHAT IT IS'], rows));
    io.stderr(`${plural(known.length, 'known server')}. To connect one: tollgate connect NAME\n`);
  } else {
    const hint = meant === undefined ? 'Run `tollgate known` for the list.' : `Did you mean ${quote(meant)}?`;
    io.stderr(printable(`No known server matches ${words.map(quote).join(' ')}. ${hint}`) + '\n');
  }
  for (const answer of registries) printRegistry(io, answer);
  if (registries.length === 0 && known.length === 0)
    io.stderr('No registry was searched: none is named under registries in tollgate.yaml.\n');
}

function printRegistry(io: Io, { registry, servers, more, error }: RegistryAnswer): void {
  if (error !== undefined) {
    io.stderr(`Warning: ${error.code}: ${printable(error.message)}\n${printable(error.next)}\n`);
    return;
  }
  const { host } = new URL(registry);
  if (servers.length === 0) {
    io.stderr(`The registry ${host} lists no such server.\n`);
    return;
  }
  const lines = servers.flatMap(
    ({ name, version, deprecated, needs, description, connect = 'cannot be connected' }) => [
      `${name} ${version}${deprecated ? ' (deprecated)' : ''}`,
      ...(description === '' ? [] : [wrapWords(`  ${printable(description)}`, MAX_COLUMNS, '  ')]),
      // The command stays on one line, so that it can be copied.
      `  ${connect}`,
      ...(needs.length === 0 ? [] : [wrapWords(`  needs ${needs.join(', ')}`, MAX_COLUMNS, '  ')]),
    ],
  );
  io.stdout(`In ${host}:\n${lines.join('\n')}\n`);
  io.stderr(
    `${plural(servers.length, 'server')} of ${host}${more ? '; it has more, so search for a longer word' : ''}. ` +
      'No one has verified them.\n',
  );
}
