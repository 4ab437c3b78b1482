/**
 * Plans an import before anything is written. A single server may be refused with a reason, but never a client's file.
 */
import path from 'node:path';
import { parse, stringify } from 'yaml';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { KnownServer } from '../../catalogs/servers/known-server.ts';
import type { Config } from '../config/config.ts';
import type { Problem } from '../config/config-problems.ts';
import { type ConfigDraft, loadConfig } from '../config/load-config.ts';
import { type Addition, addTo } from '../config/reading/config-edit.ts';
import { readText } from '../config/reading/text-files.ts';
import { parseEnvFile } from '../config/servers/included-servers.ts';
import { serverFileOf } from '../config/servers/server-files.ts';
import { nameFault } from '../config/servers/server-names.ts';
import { resolver, type World } from '../config/work-folders.ts';
import type { WrittenServer } from '../config/written-config.ts';
import { type GivenFolder, knownOf, knownUse, packageServer, writesToFolders } from '../packages/package-server.ts';
import type { PinnedPackage } from '../packages/pinned-package.ts';
import { type FileChange, readTarget } from './changes/client-file-changes.ts';
import type { ClientEntry } from './client-entry.ts';
import { type Converted, convert, type MovedSecret } from './client-server-conversion.ts';
import { distinctFolders, type HandedFolders, handedFolders, namedFiles, namedFolders } from './folder-arguments.ts';
import type { FoundClientFile } from './found-client-files.ts';
import { type CopyStart, type CopyStarts, type PinWorld, pinCopies } from './package-copies.ts';

/** The result for one server. */
export interface Outcome {
  readonly file: string;
  readonly entry: ClientEntry;
  /** Absent: it will be imported. */
  readonly left?: string;
  /** Absent if the server stays in its file, or is left out. */
  readonly copy?: ServerCopy;
}

/** What a copy of a server will be. */
export interface ServerCopy extends Converted {
  /** The content of its file. */
  readonly server: WrittenServer;
  /** The package to install before the first start. */
  readonly pinned?: PinnedPackage;
  /** The server of the catalog that runs the same package. Its hosts, labels, semantics and limits are in `server`. */
  readonly known?: KnownServer;
  /** Variables that the client's file does not set, and that the catalog sets to a path. */
  readonly filled: Readonly<Record<string, string>>;
  /** Folders and files among its arguments and variables. `outside` are not in `server` yet. */
  readonly folders: HandedFolders;
  /** What the client's file says and the copy does not keep, each with the reason. */
  readonly unkept: readonly string[];
}

/** All that an import will do. */
export interface ImportPlan {
  readonly changes: readonly FileChange[];
  readonly outcomes: readonly Outcome[];
  readonly secrets: readonly MovedSecret[];
  /** Secrets that must still be set. */
  readonly wanted: readonly string[];
}

/** What is imported into what. */
export interface ImportRequest {
  readonly config: Config;
  readonly world: World;
  readonly files: readonly FoundClientFile[];
  /** Slugs or the clients' names; absent: all. */
  readonly only?: readonly string[];
  /** Moved secrets come from variables of this environment instead of the vault. */
  readonly fromVariables?: boolean;
  /** The pinned packages of a copy. Without them, a copy starts what the client starts. */
  readonly starts?: CopyStarts;
  /** Returns whether a person gives a server a folder outside the workspace. Default: no. */
  readonly isGranted?: (server: string, folder: string) => boolean;
  /** Servers of an earlier run, which are planned again as if they were not there. */
  readonly again?: ReadonlySet<string>;
}

/** The first line of a file that an import wrote. */
export const IMPORTED = '# Imported; ';

const MAX_ENV_FILE = 64 * 1024;
/** The most servers of one import, because each is tried with a load of the configuration. */
const MAX_TRIED = 200;

/** The servers stay in the client's files: `include`, and a profile for each. Throws USAGE, CONFIG_INVALID. */
export function planInclude(request: ImportRequest): ImportPlan {
  const { config, world, files } = request;
  const before = readTarget(config.file) ?? '';
  const chosen = files.map((file) => ({ file, outcomes: choose(file, request) }));
  const include: Addition[] = chosen
    .filter(({ outcomes }) => outcomes.some(({ left }) => left === undefined))
    .map(({ file }) => ({ path: ['include'], items: [file.shown.replaceAll('$', '$$$$')] }));
  const names = [
    ...new Set(
      chosen
        .flatMap(({ outcomes }) => outcomes)
        .filter(({ left }) => left === undefined)
        .map(({ entry }) => entry.name),
    ),
  ];
  const text = addTo(before, [
    ...include,
    ...names.map((name): Addition => ({ path: ['servers'], key: name, value: { profiles: ['default'] } })),
  ]);
  const { servers } = loadConfig(config.file, world, { text });
  const seen = new Set<string>();
  const outcomes = chosen
    .flatMap((one) => one.outcomes)
    .map((outcome): Outcome => {
      const unusable = servers.get(outcome.entry.name)?.unusable;
      const again = seen.has(outcome.entry.name) || !seen.add(outcome.entry.name);
      return outcome.left !== undefined || unusable === undefined || again
        ? withoutSandbox(outcome)
        : { ...outcome, left: unusable };
    });
  return {
    changes: text === before ? [] : [{ file: config.file, before, after: text }],
    outcomes,
    secrets: [],
    wanted: [],
  };
}

/** The sandbox settings of an included file are not used; a copy keeps them. */
function withoutSandbox(outcome: Outcome): Outcome {
  const { sandbox, ...entry } = outcome.entry;
  return sandbox === undefined
    ? outcome
    : { ...outcome, entry: { ...entry, unread: ['sandbox (--copy keeps it)', ...entry.unread] } };
}

/**
 * Pins the packages that the servers of a request download, four at a time, and returns the request with them. A
 * package that cannot be pinned leaves out its server. Throws CANCELLED.
 */
export async function pinRequest(request: ImportRequest, world: PinWorld): Promise<ImportRequest> {
  const chosen = request.files.flatMap((file) => choose(file, request));
  const entries = chosen.flatMap(({ entry, left }) => (left === undefined ? [entry] : []));
  return { ...request, starts: await pinCopies(entries, world) };
}

/** Returns the packages that a plan installs, by the server. */
export function packagesIn({
  outcomes,
}: ImportPlan): readonly { readonly name: string; readonly pinned: PinnedPackage }[] {
  return outcomes.flatMap(({ entry, copy }) =>
    copy?.pinned === undefined ? [] : [{ name: entry.name, pinned: copy.pinned }],
  );
}

/** Each server gets its own file under `servers/`, with its secrets separate. Throws USAGE, CONFIG_INVALID. */
export function planCopy(request: ImportRequest): ImportPlan {
  const copier = new Copier(request);
  const outcomes = request.files.flatMap((file) => choose(file, request).map((outcome) => copier.add(outcome, file)));
  return copier.plan(outcomes);
}

/** Returns the requested servers, once each: the first definition of a name counts. */
function choose(
  { file, shown, servers }: FoundClientFile,
  { config, world, only, again }: ImportRequest,
): readonly Outcome[] {
  const resolve = resolver(config.folder, world.home);
  const asked = servers.filter(
    ({ name, original }) => only === undefined || only.includes(name) || only.includes(original),
  );
  return asked.map((entry): Outcome => {
    const existing = config.servers.get(entry.name);
    const fault =
      entry.unusable ??
      nameFault(entry.name) ??
      (existing === undefined || again?.has(entry.name) === true || resolve(existing.source) === file
        ? undefined
        : `there is a server ${entry.name} already, and the first one counts`);
    return { file: shown, entry, ...(fault !== undefined && { left: fault }) };
  });
}

class Copier {
  readonly #request: ImportRequest;
  readonly #files = new Map<string, string>();
  readonly #taken = new Set<string>();
  readonly #secrets: MovedSecret[] = [];
  readonly #wanted: string[] = [];
  readonly #before: string;
  #text: string;
  #tried = 0;

  constructor(request: ImportRequest) {
    this.#request = request;
    this.#before = readTarget(request.config.file) ?? '';
    this.#text = this.#before;
  }

  add(outcome: Outcome, file: FoundClientFile): Outcome {
    const { entry } = outcome;
    if (outcome.left !== undefined) return outcome;
    if (this.#taken.has(entry.name))
      return { ...outcome, left: 'another file has a server with this name, and the first one counts' };
    if ((this.#tried += 1) > MAX_TRIED)
      return { ...outcome, left: `more than ${MAX_TRIED} servers at once; name some with --only` };
    const extra = this.#variablesOf(entry, file);
    const start = this.#request.starts?.get(entry) ?? { entry, mounts: [], unkept: [] };
    if ('fault' in start) return { ...outcome, left: start.fault };
    const converted = typeof extra === 'string' ? { refused: extra } : convert(start.entry, extra);
    if ('refused' in converted) return { ...outcome, left: converted.refused };
    const copy = this.#copyOf(start, converted);
    const fault = this.#keep(entry.name, copy);
    return fault === undefined ? { ...outcome, copy } : { ...outcome, left: fault };
  }

  #copyOf(start: CopyStart, { server, ...converted }: Converted): ServerCopy {
    const { config, world, isGranted = () => false } = this.#request;
    const { entry, pinned, unkept } = start;
    const places = { workspace: config.workspace, home: world.home };
    const granted = (folder: string): boolean => isGranted(entry.name, folder);
    if (pinned === undefined) {
      const named = namedFolders(entry.args, places).map((folder) => ({ folder, access: 'read' as const }));
      const folders = handedFolders(named, places, granted);
      return { ...converted, server: withFolders(server, folders), filled: {}, folders, unkept };
    }
    const known = knownOf(pinned);
    const { args = [], env = {}, sandbox, profiles: _profiles, command: _command, cwd, ...rest } = server;
    const added = known === undefined ? undefined : knownUse(known, { args, env });
    const access = writesToFolders(known) ? 'write' : 'read';
    const named = namedFiles([...args, ...Object.values(env)], places).map((folder) => ({ folder, access }) as const);
    const mounted = start.mounts.map(
      ({ from, isReadOnly }): GivenFolder => ({ folder: from, access: isReadOnly ? 'read' : 'write' }),
    );
    const folders = handedFolders(distinctFolders([...mounted, ...(added?.folders ?? []), ...named]), places, granted);
    const use = {
      args,
      env: { ...added?.env, ...env },
      hosts: added?.hosts ?? [],
      folders: [
        ...folders.allowRead.map((folder) => ({ folder, access: 'read' }) as const),
        ...folders.allowWrite.map((folder) => ({ folder, access: 'write' }) as const),
      ],
      ...(sandbox !== undefined && { sandbox }),
    };
    const about = { name: entry.name, profile: 'default', ...(known !== undefined && { known }) };
    const whole = { ...packageServer(pinned, about, use), ...(cwd !== undefined && { cwd }), ...rest };
    return {
      ...converted,
      server: whole,
      pinned,
      ...(known !== undefined && { known }),
      filled: Object.fromEntries(
        Object.entries(added?.env ?? {}).filter(([, value]) =>
          added?.folders.some(({ folder }) => value.startsWith(folder)),
        ),
      ),
      folders,
      unkept: [...unkept, ...(added?.open ?? [])],
    };
  }

  plan(outcomes: readonly Outcome[]): ImportPlan {
    const { file, folder } = this.#request.config;
    const made = [...this.#files].map(
      ([name, text]): FileChange => ({ file: serverFileOf(folder, name), after: text }),
    );
    const changes = this.#text === this.#before ? made : [...made, { file, before: this.#before, after: this.#text }];
    const fresh = made.filter(({ file: target }) => !this.#request.again?.has(path.basename(target, '.yaml')));
    for (const change of fresh)
      if (readTarget(change.file) !== undefined)
        throw new TollgateError('USAGE', {
          detail: `There is already ${path.relative(folder, change.file)}.`,
          next: 'Remove or rename it, or leave out that server with --only.',
        });
    return { changes, outcomes, secrets: this.#secrets, wanted: [...new Set(this.#wanted)] };
  }

  /** Keeps a server if the configuration loads with it and all others. Returns why it cannot be imported. */
  #keep(name: string, { server, secrets, wanted, pinned }: ServerCopy): string | undefined {
    const sources =
      this.#request.fromVariables === true
        ? secrets.map(
            (secret): Addition => ({
              path: ['secrets'],
              key: secret.name,
              value: { env: secret.key.replace(/\W/g, '_') },
            }),
          )
        : [];
    const overlaid = entryIn(this.#text, name);
    const { profiles, ...definition } = server;
    // Two lists of tools cannot be joined in a text that a person wrote.
    if (overlaid?.tools !== undefined && definition.tools !== undefined)
      return (
        `servers.${name}.tools is in tollgate.yaml already; ` +
        'add what its file excludes there, remove it from the file, and then import the server'
      );
    const keys =
      overlaid === undefined
        ? []
        : Object.entries({ ...definition, ...(overlaid.profiles === undefined && { profiles }) }).map(
            ([key, value]): Addition => ({ path: ['servers', name], key, value }),
          );
    const text = addTo(this.#text, [...sources, ...keys]);
    const origin = pinned === undefined ? '' : `# ${pinned.name} ${pinned.version}, ${pinned.integrity}\n`;
    const head = `${IMPORTED}it starts once it is approved: tollgate approve ${name}\n${origin}`;
    const own = overlaid === undefined ? [[name, head + stringify(server, { lineWidth: 0 })] as const] : [];
    const files = new Map([...this.#files, ...own]);
    const fault = this.#try({ text, servers: files });
    if (fault !== undefined) return fault;
    for (const [made, written] of own) this.#files.set(made, written);
    this.#taken.add(name);
    this.#text = text;
    this.#secrets.push(...secrets);
    this.#wanted.push(...wanted);
    return undefined;
  }

  #try(draft: ConfigDraft): string | undefined {
    const { config, world } = this.#request;
    try {
      loadConfig(config.file, world, draft);
      return undefined;
    } catch (thrown) {
      const [first] = ((thrown as TollgateError).data.problems ?? []) as readonly Problem[];
      if (first === undefined) throw thrown;
      return first.message.replace(/^server "[^"]*": /, '');
    }
  }

  /** Returns the variables of the entry's envFile, or a text that says why it cannot be read. */
  #variablesOf({ envFile }: ClientEntry, { file }: FoundClientFile): Readonly<Record<string, string>> | string {
    if (envFile === undefined) return {};
    const { config, world } = this.#request;
    const named = envFile.replace('${workspaceFolder}', config.folder).replace('${userHome}', world.home);
    const read = readText(path.resolve(path.dirname(file), named), MAX_ENV_FILE);
    return read.ok ? parseEnvFile(read.text) : `its envFile cannot be used: ${read.reason}`;
  }
}

/** A server with a folder argument can do nothing without the folder. */
function withFolders({ sandbox, profiles, ...server }: WrittenServer, handed: HandedFolders): WrittenServer {
  const { filesystem: own = {}, ...rest } = sandbox ?? {};
  const lists = (['allowRead', 'allowWrite'] as const)
    .map((key) => [key, [...new Set([...(own[key] ?? []), ...handed[key]])]] as const)
    .filter(([, list]) => list.length > 0);
  const filesystem = { ...own, ...Object.fromEntries(lists) };
  const all = { ...(Object.keys(filesystem).length > 0 && { filesystem }), ...rest };
  return {
    ...server,
    ...(Object.keys(all).length > 0 && { sandbox: all }),
    ...(profiles !== undefined && { profiles }),
  };
}

/** Settings that tollgate.yaml already has for a server of an included file: its definition joins them. */
function entryIn(text: string, name: string): Readonly<Record<string, unknown>> | undefined {
  const { servers } = (parse(text) ?? {}) as { readonly servers?: Readonly<Record<string, unknown>> };
  const entry = servers != null && Object.hasOwn(servers, name) ? servers[name] : undefined;
  return typeof entry === 'object' && entry !== null ? (entry as Readonly<Record<string, unknown>>) : undefined;
}
