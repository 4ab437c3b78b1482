/** Drafts a connection: the server's file, its package and its secrets. It changes nothing. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { parseDomain } from '../../../catalogs/readers/domains.ts';
import {
  isNodeTooOld,
  type KnownChoice,
  type KnownCredential,
  type KnownServer,
} from '../../../catalogs/servers/known-server.ts';
import type { Semantics } from '../../../catalogs/tools/tool-definition.ts';
import type { WrittenServer } from '../../config/written-config.ts';
import type { ProbeOpenings } from '../../consent/servers/consent-probe.ts';
import { verifiedPackage } from '../../packages/package-server.ts';
import { type PinnedPackage, packageStart } from '../../packages/pinned-package.ts';

/** A secret that the server's file refers to. */
export interface NeededSecret extends KnownCredential {
  /** Its name in the vault. */
  readonly name: string;
}

/** Everything that connecting one server will do. */
export interface ConnectionDraft {
  readonly name: string;
  readonly title: string;
  /** The content of `servers/NAME.yaml`. */
  readonly entry: WrittenServer;
  readonly secrets: readonly NeededSecret[];
  readonly package?: PinnedPackage;
  readonly notes: readonly string[];
  /** What the probe needs, as options of `approve`. */
  readonly openness?: Pick<ProbeOpenings, 'withSecrets' | 'withNetwork'>;
}

/** What a person chooses besides the service itself. */
export interface Wish {
  /** Name of the server here. */
  readonly name: string;
  readonly profile: string;
  readonly choices: ReadonlyMap<string, string>;
  /** Names of optional credentials (variable or header) that are given. */
  readonly given: ReadonlySet<string>;
}

/** Returns the draft of a known server. Throws USAGE for a choice that is missing, not possible or unknown. */
export function draftKnown(known: KnownServer, wish: Wish): ConnectionDraft {
  checkNames(known, wish.choices);
  const chosen = new Map((known.choices ?? []).map((choice) => [choice.name, readChoice(choice, wish.choices)]));
  const fill = (text: string): string =>
    text.replace(/<([a-z][a-z0-9]*)>/g, (whole, name: string) => chosen.get(name) ?? whole);
  const secrets = (known.credentials ?? [])
    .filter(({ optional, env, header }) => optional !== true || wish.given.has(env ?? header ?? ''))
    .map((credential) => ({ ...credential, name: secretName(wish.name, credential) }));
  const { description, labels, tools, semantics, mapping, connectTimeoutMs } = known;
  const pkg = verifiedPackage(known);
  return {
    name: wish.name,
    title: known.title,
    secrets,
    notes: notesOf(known),
    entry: {
      description,
      ...(pkg !== undefined && programEntry(known, pkg, { server: wish.name, chosen, secrets, fill })),
      ...(known.url !== undefined && { url: known.url, ...filled('headers', referencesOf(secrets, 'header')) }),
      labels,
      ...(tools !== undefined && { tools: { allow: tools } }),
      ...(semantics !== undefined && { semantics }),
      ...(mapping !== undefined && { mapping }),
      ...(connectTimeoutMs !== undefined && { connectTimeoutMs }),
      profiles: [wish.profile],
    },
    ...(pkg !== undefined && { package: pkg }),
    ...(known.url === undefined ? OPENNESS[known.verified?.needs ?? 'nothing'] : OPENNESS.credentials),
  };
}

function notesOf(known: KnownServer): string[] {
  const lowest = known.package?.node ?? '';
  const probed = NOTES[known.verified?.needs ?? 'nothing'];
  return [
    ...(known.note === undefined ? [] : [known.note]),
    ...(isNodeTooOld(lowest) ? [`It needs Node.js ${lowest} or later, and this is ${process.versions.node}.`] : []),
    ...(probed === '' ? [] : [probed]),
  ];
}

/** What a probe gets, by what a program needs to list its tools. A remote server gets its credential or sign-in. */
const OPENNESS = {
  nothing: {},
  node: {},
  credentials: { openness: { withSecrets: true } },
  network: { openness: { withSecrets: true, withNetwork: true } },
} as const;
const NOTES = {
  nothing: '',
  node: '',
  credentials: 'It lists its tools only with its secrets, so the probe gets them.',
  network: 'It lists its tools only with its secrets and its network, so the probe gets both.',
} as const;

/** The choices and secrets of one server. `fill` replaces `<choice>` in a text. */
interface ProgramSettings {
  readonly server: string;
  readonly chosen: ReadonlyMap<string, string>;
  readonly secrets: readonly NeededSecret[];
  readonly fill: (text: string) => string;
}

/** Returns the settings that start a server from its installed package. */
function programEntry(known: KnownServer, pkg: PinnedPackage, { server, chosen, secrets, fill }: ProgramSettings) {
  return {
    ...packageStart(pkg, server, (known.args ?? []).map(fill)),
    ...filled('env', { ...mapValues(known.env ?? {}, fill), ...referencesOf(secrets, 'env') }),
    ...filled('sandbox', sandboxEntry(known, chosen, fill)),
  };
}

/** Returns `value` under `key`, or nothing if `value` is empty. */
function filled<K extends string, V extends object>(key: K, value: V): Partial<Record<K, V>> {
  return Object.keys(value).length > 0 ? ({ [key]: value } as Record<K, V>) : {};
}

/** Returns what the sandbox of a program is given: the chosen folders, its domains and its limits. */
function sandboxEntry(
  known: KnownServer,
  chosen: ReadonlyMap<string, string>,
  fill: (text: string) => string,
): Readonly<Record<string, unknown>> {
  const { choices = [], memoryMb, processes } = known;
  const folders = (isReadOnly: boolean): readonly string[] =>
    choices
      .filter(({ kind, access }) => kind === 'folder' && (access === 'read') === isReadOnly)
      .map(({ name }) => chosen.get(name) ?? '');
  const domains = [
    ...(known.domains ?? []).map(fill),
    ...choices.flatMap(({ kind, name }) => (kind === 'url' ? [hostOf(chosen.get(name) ?? '')] : [])),
  ];
  return {
    ...filled('filesystem', { ...filled('allowRead', folders(true)), ...filled('allowWrite', folders(false)) }),
    ...filled('network', filled('allowedDomains', [...new Set(domains)])),
    ...filled('limits', { ...(memoryMb !== undefined && { memoryMb }), ...(processes !== undefined && { processes }) }),
  };
}

/** The semantics of the fetch tool, by the HTTP method. */
export const FETCH_SEMANTICS: Semantics = {
  verb: 'read',
  urls: ['url'],
  byArgument: {
    argument: 'method',
    verbs: { GET: 'read', HEAD: 'read', POST: 'write', PUT: 'write', PATCH: 'write', DELETE: 'destructive' },
  },
};

/** A service without its own MCP server. `address` is a private address that the owner wrote. */
export interface Service {
  readonly origin: URL;
  readonly address?: string;
  /** The header with the credential. Absent: none is sent. */
  readonly header?: KnownCredential;
}

/** Returns the draft of a service behind Tollgate's fetch server, which reaches only this service. */
export function draftService({ origin, address, header }: Service, wish: Wish): ConnectionDraft {
  const secrets = header === undefined ? [] : [{ ...header, name: secretName(wish.name, header) }];
  const [secret] = secrets;
  const port = origin.port === '' ? '' : `:${origin.port}`;
  return {
    name: wish.name,
    title: origin.host,
    secrets,
    notes: [],
    entry: {
      description: `Requests to ${origin.host}, by the fetch server of Tollgate`,
      command: 'node',
      args: [
        '${tollgateFolder}/adapters/primitives/fetch/fetch-server.js',
        '--origin',
        origin.origin,
        ...(address === undefined ? [] : ['--address', address]),
      ],
      ...(secret !== undefined && { env: { FETCH_HEADER: secret.header ?? '', FETCH_CREDENTIAL: reference(secret) } }),
      labels: ['untrusted'],
      semantics: { fetch: FETCH_SEMANTICS },
      sandbox: {
        network: {
          allowedDomains: [
            `${origin.hostname}${port}`,
            ...(address === undefined || address === origin.hostname
              ? []
              : [`${address.includes(':') ? `[${address}]` : address}${port}`]),
          ],
        },
      },
      profiles: [wish.profile],
    },
  };
}

/**
 * Returns the draft of an address that answered as an MCP server. Its tools are unknown, so they count as destructive
 * until the owner describes them.
 */
export function draftRemote(url: URL, header: KnownCredential | undefined, wish: Wish): ConnectionDraft {
  const secrets = header === undefined ? [] : [{ ...header, name: secretName(wish.name, header) }];
  return {
    name: wish.name,
    title: url.host,
    secrets,
    notes: [],
    ...OPENNESS.credentials,
    entry: {
      description: `The MCP server at ${url.host}`,
      url: url.href,
      ...(secrets.length > 0 && { headers: referencesOf(secrets, 'header') }),
      labels: ['untrusted'],
      profiles: [wish.profile],
    },
  };
}

/** An unknown choice is refused: the default would apply, which may grant more than the user intended. */
function checkNames({ title, choices = [] }: KnownServer, given: Wish['choices']): void {
  const names = choices.map(({ name }) => name);
  const unknown = [...given.keys()].find((name) => !names.includes(name));
  if (unknown === undefined) return;
  throw new TollgateError('USAGE', {
    detail: `${title} has no choice ${JSON.stringify(unknown.slice(0, 60))}, so nothing was done.`,
    next:
      names.length === 0
        ? 'There are no choices; omit --set.'
        : `Choices: ${choices.map(({ name, title: meaning }) => `${name} (${meaning})`).join(', ')}.`,
  });
}

function readChoice(
  { name, title, kind, default: preset, example }: KnownChoice,
  choices: ReadonlyMap<string, string>,
): string {
  const value = choices.get(name) ?? preset;
  const hint = example === undefined ? '' : `, for example --set ${name}=${example}`;
  if (value === undefined || value === '')
    throw new TollgateError('USAGE', {
      detail: `A choice is missing: ${title}.`,
      next: `Give it with --set ${name}=VALUE${hint}.`,
    });
  const fault = choiceFault(kind, value);
  if (fault !== undefined)
    throw new TollgateError('USAGE', {
      detail: `${title}: the value is refused, because ${fault}.`,
      next: `Give another with --set ${name}=VALUE${hint}.`,
    });
  return value;
}

/** The value is written to a file that expands ${…}, so only a folder may contain it. */
function choiceFault(kind: KnownChoice['kind'], value: string): string | undefined {
  if (kind === 'url') return urlFault(value);
  if (kind === 'text') return /^[\w.@+-]{1,200}$/.test(value) ? undefined : 'use letters, digits and . @ + - only';
  return /[\0\n]/.test(value) ? 'it is not a path' : undefined;
}

function urlFault(value: string): string | undefined {
  const url = URL.canParse(value) ? new URL(value) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol) || /[$\s]/.test(value))
    return 'it is not an http or https address';
  if (url.username !== '' || url.password !== '') return 'it contains a user or a password';
  const domain = parseDomain(hostOf(value));
  return 'fault' in domain ? 'it names no host' : undefined;
}

/** The host of an address as an allowed domain. */
function hostOf(address: string): string {
  const { hostname, port } = new URL(address);
  return `${hostname}${port === '' ? '' : `:${port}`}`;
}

function secretName(server: string, { env, header }: KnownCredential): string {
  return `${server}.${env ?? header ?? 'token'}`;
}

function reference({ name, prefix = '' }: NeededSecret): string {
  return `${prefix}\${secret:${name}}`;
}

function referencesOf(secrets: readonly NeededSecret[], place: 'env' | 'header'): Record<string, string> {
  return Object.fromEntries(
    secrets.flatMap((secret) => (secret[place] === undefined ? [] : [[secret[place], reference(secret)]])),
  );
}

function mapValues(
  values: Readonly<Record<string, string>>,
  change: (value: string) => string,
): Record<string, string> {
  return Object.fromEntries(Object.entries(values).map(([key, value]) => [key, change(value)]));
}
