/** Owns what connecting comes to before anything happens: the server's file, its package and its secrets; touches nothing, and refuses values that would mean more than they say. */

import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { parseDomain } from '../../../catalogs/readers/domains.ts';
import type {
  KnownChoice,
  KnownCredential,
  KnownPackage,
  KnownServer,
} from '../../../catalogs/servers/known-server.ts';
import type { Semantics } from '../../../catalogs/tools/tool-definition.ts';
import type { WrittenServer } from '../../config/written-config.ts';
import type { ProbeOpenings } from '../../consent/servers/consent-probe.ts';

/** A secret that the server's file refers to. */
export interface NeededSecret extends KnownCredential {
  /** Its name in the vault. */
  readonly name: string;
}

/** All that connecting one server will do. */
export interface ConnectionDraft {
  readonly name: string;
  readonly title: string;
  /** What stands in `servers/NAME.yaml`. */
  readonly entry: WrittenServer;
  readonly secrets: readonly NeededSecret[];
  readonly package?: KnownPackage & { readonly asOf: string };
  readonly notes: readonly string[];
  /** What its list of tools needs, as `approve` takes it. */
  readonly openness?: Pick<ProbeOpenings, 'withSecrets' | 'withNetwork'>;
  /** It wants a sign-in (`tollgate login`) before it can be asked for its tools. */
  readonly login?: true;
}

/** What a person wants beside the service itself. */
export interface Wish {
  /** Name of the server here. */
  readonly name: string;
  readonly profile: string;
  readonly choices: ReadonlyMap<string, string>;
  /** Names of optional credentials (variable or header) that are given. */
  readonly given: ReadonlySet<string>;
}

/** Where an installed package lies, as the server's file says it. */
const PACKAGES = '${stateFolder}/packages';

/** A known server. Throws USAGE for a choice that is missing, cannot be, or does not exist. */
export function draftKnown(known: KnownServer, wish: Wish): ConnectionDraft {
  checkNames(known, wish.choices);
  const chosen = new Map((known.choices ?? []).map((choice) => [choice.name, readChoice(choice, wish.choices)]));
  const fill = (text: string): string =>
    text.replace(/<([a-z][a-z0-9]*)>/g, (whole, name: string) => chosen.get(name) ?? whole);
  const secrets = (known.credentials ?? [])
    .filter(({ optional, env, header }) => optional !== true || wish.given.has(env ?? header ?? ''))
    .map((credential) => ({ ...credential, name: secretName(wish.name, credential) }));
  const domains = [
    ...(known.domains ?? []).map(fill),
    ...(known.choices ?? []).flatMap((choice) =>
      choice.kind === 'url' ? [hostOf(chosen.get(choice.name) ?? '')] : [],
    ),
  ];
  const { package: pkg, description, labels, semantics, mapping, memoryMb, processes } = known;
  const limits = { ...(memoryMb !== undefined && { memoryMb }), ...(processes !== undefined && { processes }) };
  const folders = (known.choices ?? []).filter(({ kind }) => kind === 'folder');
  const filesystem = {
    ...listOf(
      'allowRead',
      folders.filter(({ access }) => access === 'read'),
      chosen,
    ),
    ...listOf(
      'allowWrite',
      folders.filter(({ access }) => access !== 'read'),
      chosen,
    ),
  };
  const sandbox = {
    ...(Object.keys(filesystem).length > 0 && { filesystem }),
    ...(domains.length > 0 && { network: { allowedDomains: [...new Set(domains)] } }),
    ...(Object.keys(limits).length > 0 && { limits }),
  };
  const env = { ...mapValues(known.env ?? {}, fill), ...referencesOf(secrets, 'env') };
  const started =
    pkg === undefined
      ? {}
      : {
          command: 'node',
          args: [
            `${PACKAGES}/${wish.name}/${pkg.version}/node_modules/${pkg.name}/${pkg.bin}`,
            ...(known.args ?? []).map(fill),
          ],
          ...(Object.keys(env).length > 0 && { env }),
          ...(Object.keys(sandbox).length > 0 && { sandbox }),
        };
  const headers = referencesOf(secrets, 'header');
  const reached =
    known.url === undefined ? {} : { url: known.url, ...(Object.keys(headers).length > 0 && { headers }) };
  return {
    name: wish.name,
    title: known.title,
    secrets,
    notes: [
      ...(known.note === undefined ? [] : [known.note]),
      ...(listsAlone(known)
        ? []
        : ['It lists its tools only with its secrets and its network, so the look at them is given both.']),
    ],
    entry: {
      description,
      ...started,
      ...reached,
      labels,
      ...(semantics !== undefined && { semantics }),
      ...(mapping !== undefined && { mapping }),
      profiles: [wish.profile],
    },
    ...(pkg !== undefined && { package: { ...pkg, asOf: known.verified?.date ?? '' } }),
    ...(known.login === true && { login: true as const }),
    ...opennessOf(known, secrets.length > 0),
  };
}

/** A remote server lists to whoever shows the credential; a program that did not list without one when it was verified is given what it has. */
function opennessOf({ url, ...known }: KnownServer, hasSecrets: boolean): Pick<ConnectionDraft, 'openness'> {
  if (url !== undefined) return hasSecrets ? { openness: { withSecrets: true } } : {};
  return !listsAlone(known) ? { openness: { withSecrets: true, withNetwork: true } } : {};
}

function listsAlone({ verified }: Pick<KnownServer, 'verified'>): boolean {
  return verified?.lists !== false;
}

/** What a fetch does, by its method; the others of its schema are none. */
export const FETCH_SEMANTICS: Semantics = {
  verb: 'read',
  urls: ['url'],
  byArgument: {
    argument: 'method',
    verbs: { GET: 'read', HEAD: 'read', POST: 'write', PUT: 'write', PATCH: 'write', DELETE: 'destructive' },
  },
};

/** A service without a server of its own. `address`: a private address that the owner has written out. */
export interface Service {
  readonly origin: URL;
  readonly address?: string;
  /** Header that holds the credential; absent: none is sent. */
  readonly header?: KnownCredential;
}

/** A service behind our own fetch server, which reaches it alone. */
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

/** An address that answered as an MCP server. Nobody knows its tools: everything counts as destructive until the owner says more. */
export function draftRemote(
  url: URL,
  { header, login }: { readonly header?: KnownCredential; readonly login: boolean },
  wish: Wish,
): ConnectionDraft {
  const secrets = header === undefined ? [] : [{ ...header, name: secretName(wish.name, header) }];
  return {
    name: wish.name,
    title: url.host,
    secrets,
    notes: [],
    ...(secrets.length > 0 && { openness: { withSecrets: true } }),
    ...(login && { login: true as const }),
    entry: {
      description: `The MCP server at ${url.host}`,
      url: url.href,
      ...(secrets.length > 0 && { headers: referencesOf(secrets, 'header') }),
      labels: ['untrusted'],
      profiles: [wish.profile],
    },
  };
}

/** A choice that nobody knows would leave the preset in its place, which may grant more than was meant. */
function checkNames({ title, choices = [] }: KnownServer, given: Wish['choices']): void {
  const names = choices.map(({ name }) => name);
  const unknown = [...given.keys()].find((name) => !names.includes(name));
  if (unknown === undefined) return;
  throw new TollgateError('USAGE', {
    detail: `${title} has no choice ${JSON.stringify(unknown.slice(0, 60))}, so nothing was done.`,
    next:
      names.length === 0
        ? 'There is nothing to choose; leave --set out.'
        : `There is: ${choices.map(({ name, title: what }) => `${name} (${what})`).join(', ')}.`,
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
      detail: `Something must be chosen: ${title}.`,
      next: `Give it with --set ${name}=VALUE${hint}.`,
    });
  // The values stand in a file in which ${…} means something, and a folder may use it.
  const fault =
    kind === 'url'
      ? urlFault(value)
      : kind === 'text'
        ? /^[\w.@+-]{1,200}$/.test(value)
          ? undefined
          : 'letters, digits and . @ + - only'
        : /[\0\n]/.test(value)
          ? 'a path'
          : undefined;
  if (fault !== undefined)
    throw new TollgateError('USAGE', {
      detail: `${title}: the value is not taken (${fault}).`,
      next: `Give another with --set ${name}=VALUE${hint}.`,
    });
  return value;
}

function urlFault(value: string): string | undefined {
  const url = URL.canParse(value) ? new URL(value) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol) || /[$\s]/.test(value))
    return 'an address with http or https';
  if (url.username !== '' || url.password !== '') return 'an address without user and password';
  const domain = parseDomain(hostOf(value));
  return 'fault' in domain ? 'an address of a host' : undefined;
}

/** The host of an address as an allowed domain. */
function hostOf(address: string): string {
  const { hostname, port } = new URL(address);
  return `${hostname}${port === '' ? '' : `:${port}`}`;
}

function listOf(
  key: 'allowRead' | 'allowWrite',
  choices: readonly KnownChoice[],
  chosen: ReadonlyMap<string, string>,
): Partial<Record<'allowRead' | 'allowWrite', readonly string[]>> {
  return choices.length === 0 ? {} : { [key]: choices.map(({ name }) => chosen.get(name) ?? '') };
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
