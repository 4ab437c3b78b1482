/** The catalog of servers that `tollgate connect` knows by name: one file each, read as data. */
import { readdirSync, readFileSync } from 'node:fs';
import { parse } from 'yaml';
import { TollgateError } from '../errors/error-table.ts';
import type { Semantics, Verb } from '../tools/tool-definition.ts';

/** A package as it was verified. `integrity` is the registry's hash of its archive (SRI, sha512). */
export interface KnownPackage {
  readonly name: string;
  readonly version: string;
  readonly integrity: string;
  /** File that Node runs, inside the package. */
  readonly bin: string;
  /** The lowest version of Node.js that the package names, if it is above the lowest of Tollgate. */
  readonly node?: string;
}

/** A secret that the server needs, in a variable (programs) or a header (remote servers). A catalog has no values. */
export interface KnownCredential {
  readonly env?: string;
  readonly header?: string;
  /** Comes before the value in the header, such as `Bearer `. */
  readonly prefix?: string;
  readonly title: string;
  /** The provider's page where the credential is made. */
  readonly get: string;
  /** What to choose on that page. */
  readonly hint?: string;
  /** The pattern of real credentials. Another value causes a note, because providers change forms. */
  readonly form?: string;
  /** A value of that form without rights, for servers that check it before they list their tools. */
  readonly example: string;
  readonly optional?: true;
}

/** A value that the user chooses. It replaces `<name>` in args, env and domains. */
export interface KnownChoice {
  readonly name: string;
  readonly title: string;
  /** The sandbox contains a folder. The host of a url becomes an allowed domain. */
  readonly kind: 'folder' | 'url' | 'text';
  /** For a folder; default write. */
  readonly access?: 'read' | 'write';
  readonly default?: string;
  readonly example?: string;
}

/** What `npm run verify:servers` found. It installs a server, and probes it in a sandbox without a network. */
export interface VerifiedInstall {
  /** ISO date. The dependencies of the package are installed as of that day. */
  readonly date: string;
  readonly installs: boolean;
  /**
   * What the server needs to list its tools: credentials of the right form, its network, or a newer Node.js than the
   * one that verified it. Absent: it lists them with placeholders for its credentials.
   */
  readonly needs?: 'credentials' | 'network' | 'node';
  /** Names of the tools that it listed. Absent: it listed none. */
  readonly tools?: readonly string[];
}

/** One known server: a program from a package, or a remote server with a `url`. */
export interface KnownServer {
  readonly name: string;
  readonly title: string;
  readonly description: string;
  readonly homepage: string;
  readonly license?: string;
  readonly note?: string;
  readonly package?: KnownPackage;
  readonly url?: string;
  /** It needs a sign-in (`tollgate login`). */
  readonly login?: true;
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly choices?: readonly KnownChoice[];
  readonly credentials?: readonly KnownCredential[];
  readonly domains?: readonly string[];
  readonly labels: readonly string[];
  /** The only tools that are used, by name or pattern. Absent: all. */
  readonly tools?: readonly string[];
  readonly semantics?: Readonly<Record<string, Verb | Semantics>>;
  /** Id of a mapping under catalogs/primitives/. */
  readonly mapping?: string;
  readonly memoryMb?: number;
  readonly processes?: number;
  /** How long its start may take, in milliseconds. Absent: the default of servers. */
  readonly connectTimeoutMs?: number;
  readonly verified?: VerifiedInstall;
}

const FOLDER = new URL('.//', import.meta.url);
const FILE = /^([a-z][a-z0-9-]*)\.yaml$/;

/** Returns the names of all known servers, sorted. */
export function knownNames(): readonly string[] {
  return readdirSync(FOLDER)
    .flatMap((file) => FILE.exec(file)?.[1] ?? [])
    .sort();
}

/** Each file is read once, because every import and export needs all of them. */
const cache = new Map<string, KnownServer>();

/** Returns a known server. Throws USAGE for an unknown name. */
export function loadKnown(name: string): KnownServer {
  const cached = cache.get(name);
  if (cached !== undefined) return cached;
  if (!knownNames().includes(name))
    throw new TollgateError('USAGE', {
      detail: 'There is no known server of this name.',
      next: 'Run `tollgate known` for the list, or give the address of a service.',
    });
  const known = parse(readFileSync(new URL(`./${name}.yaml`, FOLDER), 'utf8')) as KnownServer;
  cache.set(name, known);
  return known;
}

/** Returns all known servers, sorted by name. */
export function loadAllKnown(): readonly KnownServer[] {
  return knownNames().map(loadKnown);
}

/** Returns true if the Node.js that runs this is below a version such as `22.13.0`. False for undefined. */
export function isNodeTooOld(lowest: string | undefined): boolean {
  const compare = (a: string, b: string): number => a.localeCompare(b, 'en', { numeric: true });
  return lowest !== undefined && compare(process.versions.node, lowest) < 0;
}
