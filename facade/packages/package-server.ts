/** The configuration of a server that runs a package: what the catalog knows of it, and what its user gives it. */
import path from 'node:path';
import { parseDomain } from '../../catalogs/readers/domains.ts';
import { type KnownChoice, type KnownServer, loadAllKnown } from '../../catalogs/servers/known-server.ts';
import type { WrittenSandbox, WrittenServer } from '../config/written-config.ts';
import { type PinnedPackage, packageStart } from './pinned-package.ts';

/** A folder or file as it was written, and what the server may do with it. */
export interface GivenFolder {
  readonly folder: string;
  readonly access: 'read' | 'write';
}

/** What a server of a package is started with. Values may contain `${…}`. */
export interface PackageUse {
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Allowed domains. */
  readonly hosts: readonly string[];
  readonly folders: readonly GivenFolder[];
  /** What another file gives its sandbox; hosts and folders are added. */
  readonly sandbox?: WrittenSandbox;
}

/** The name and profile of a new server. `known`: the server of the catalog with the same package. */
export interface PackageServer {
  readonly name: string;
  readonly profile: string;
  readonly known?: KnownServer;
}

/** What the catalog adds to the start of a known package. */
export interface KnownUse extends Pick<PackageUse, 'hosts' | 'folders'> {
  /** Variables that the user does not set. */
  readonly env: Readonly<Record<string, string>>;
  /** What the catalog cannot fill in, each as a sentence. */
  readonly open: readonly string[];
}

/** The memory of a program whose needs are not known, MB. */
const MEMORY_MB = 512;
const CHOICE = /<([a-z][a-z0-9]*)>/g;

/**
 * Returns the content of `servers/NAME.yaml`. The tools of a package that is not in the catalog are unknown, so they
 * count as destructive until the owner describes them.
 */
export function packageServer(pinned: PinnedPackage, { name, profile, known }: PackageServer, use: PackageUse) {
  const { image, ...start } = packageStart(pinned, name, use.args);
  const { memoryMb = MEMORY_MB, processes } = known ?? {};
  const { filesystem, network } = use.sandbox ?? {};
  const merged = (own: readonly string[] | undefined, added: readonly string[]): readonly string[] | undefined =>
    added.length === 0 ? own : [...new Set([...(own ?? []), ...added])];
  const given = (access: GivenFolder['access']): readonly string[] =>
    use.folders.filter((one) => one.access === access).map(({ folder }) => folder);
  const files = defined({
    ...filesystem,
    allowRead: merged(filesystem?.allowRead, given('read')),
    allowWrite: merged(filesystem?.allowWrite, given('write')),
  });
  const reached = defined({ ...network, allowedDomains: merged(network?.allowedDomains, use.hosts) });
  const entry: WrittenServer = {
    description: known?.description ?? `The package ${pinned.name}`,
    ...start,
    ...(Object.keys(use.env).length > 0 && { env: use.env }),
    sandbox: {
      ...(image !== undefined && { image }),
      ...(Object.keys(files).length > 0 && { filesystem: files }),
      ...(Object.keys(reached).length > 0 && { network: reached }),
      limits: { memoryMb, ...(processes !== undefined && { processes }) },
    },
    labels: known?.labels ?? ['untrusted'],
    ...(known?.semantics !== undefined && { semantics: known.semantics }),
    ...(known?.mapping !== undefined && { mapping: known.mapping }),
    profiles: [profile],
  };
  return entry;
}

/** Returns the server of the catalog that runs a package; undefined if there is none. */
export function knownOf({ kind, name }: Pick<PinnedPackage, 'kind' | 'name'>): KnownServer | undefined {
  return kind === 'npm' ? loadAllKnown().find(({ package: pkg }) => pkg?.name === name) : undefined;
}

/** Returns the package of a known server, as it was verified; undefined for a remote server. */
export function verifiedPackage({ package: pkg, verified }: KnownServer): PinnedPackage | undefined {
  return pkg === undefined ? undefined : { ...pkg, kind: 'npm', asOf: verified?.date ?? '', notes: [] };
}

/** Returns whether a known package writes to the folders that it is given. */
export function writesToFolders(known: KnownServer | undefined): boolean {
  return known?.choices?.some(({ kind, access }) => kind === 'folder' && access !== 'read') === true;
}

/**
 * Returns what the catalog adds. The arguments and variables of the user stay, and tell which choices of the catalog
 * they stand for.
 */
export function knownUse(known: KnownServer, given: Pick<PackageUse, 'args' | 'env'>): KnownUse {
  const { choices = [], domains = [], env: wanted = {} } = known;
  const own = new Map(choices.flatMap((choice) => chosenIn(choice, known, given)));
  const chosen = new Map(
    choices.flatMap(({ name, default: preset }) => {
      const value = own.get(name) ?? preset;
      return value === undefined ? [] : [[name, value] as const];
    }),
  );
  const fill = (text: string): string => text.replace(CHOICE, (whole, name: string) => chosen.get(name) ?? whole);
  const added = Object.entries(wanted).filter(
    ([key, text]) => !Object.hasOwn(given.env, key) && fill(text).search(CHOICE) < 0,
  );
  const uses = (name: string): boolean => own.has(name) || added.some(([, text]) => text.includes(`<${name}>`));
  const reached = [
    ...domains.map(fill),
    ...choices.flatMap(({ kind, name }) => (kind === 'url' ? [hostIn(chosen.get(name) ?? `<${name}>`)] : [])),
  ];
  const isHost = (text: string): boolean => !('fault' in parseDomain(text));
  return {
    env: Object.fromEntries(added.map(([key, text]) => [key, fill(text)])),
    hosts: [...new Set(reached.filter(isHost))],
    folders: choices.flatMap(({ kind, name, access }) =>
      kind === 'folder' && uses(name) ? [{ folder: chosen.get(name) ?? '', access: access ?? 'write' }] : [],
    ),
    open: reached
      .filter((text) => !isHost(text))
      .map((text) => `It is not known which host ${text} stands for; add it to sandbox.network.allowedDomains.`),
  };
}

/** Returns the value that the arguments or variables of a user give a choice. */
function chosenIn(
  { name, kind }: KnownChoice,
  { args = [], env = {} }: KnownServer,
  given: Pick<PackageUse, 'args' | 'env'>,
): readonly (readonly [name: string, value: string])[] {
  const pairs = [
    ...Object.entries(env).map(([key, template]) => [template, given.env[key]] as const),
    ...(args.length === given.args.length ? args.map((template, at) => [template, given.args[at]] as const) : []),
  ];
  return pairs.flatMap(([template, value = '']) => {
    // The user may name another file in the folder.
    if (kind === 'folder' && path.dirname(template) === `<${name}>` && value.includes('/'))
      return [[name, path.dirname(value)] as const];
    const [before = '', after = ''] = template.split(`<${name}>`);
    // Its user may call the file in the folder differently.
    if (kind === 'folder' && before === '' && /^\/[^/]+$/.test(after) && value.includes('/'))
      return [[name, value.slice(0, Math.max(1, value.lastIndexOf('/')))] as const];
    const fits =
      template.includes(`<${name}>`) &&
      value.length > before.length + after.length &&
      value.startsWith(before) &&
      value.endsWith(after);
    return fits ? [[name, value.slice(before.length, value.length - after.length)] as const] : [];
  });
}

function hostIn(address: string): string {
  return URL.canParse(address) ? new URL(address).host : address;
}

function defined<T extends object>(value: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(value).filter(([, one]) => one !== undefined)) as {
    [K in keyof T]: Exclude<T[K], undefined>;
  };
}
