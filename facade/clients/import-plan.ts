/**
 * Plans an import before anything is written. A single server may be refused with a reason, but never a client's file.
 */
import path from 'node:path';
import { parse, stringify } from 'yaml';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Config } from '../config/config.ts';
import type { Problem } from '../config/config-problems.ts';
import { type ConfigDraft, loadConfig } from '../config/load-config.ts';
import { type Addition, addTo } from '../config/reading/config-edit.ts';
import { readText } from '../config/reading/text-files.ts';
import { parseEnvFile } from '../config/servers/included-servers.ts';
import { serverFileOf } from '../config/servers/server-files.ts';
import { nameFault } from '../config/servers/server-names.ts';
import { resolver, type World } from '../config/work-folders.ts';
import { type FileChange, readTarget } from './changes/client-file-changes.ts';
import type { ClientEntry } from './client-entry.ts';
import type { ClientSandbox } from './client-sandbox.ts';
import { type Converted, convert, type MovedSecret } from './client-server-conversion.ts';
import { type HandedFolders, handedFolders } from './folder-arguments.ts';
import type { FoundClientFile } from './found-client-files.ts';

/** The result for one server. */
export interface Outcome {
  readonly file: string;
  readonly entry: ClientEntry;
  /** Absent: it will be imported. */
  readonly left?: string;
  /** Folders among its arguments, of a copy. */
  readonly folders?: HandedFolders;
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

/** Each server gets its own file under `servers/`, with its secrets separate. Throws USAGE, CONFIG_INVALID. */
export function planCopy(request: ImportRequest): ImportPlan {
  const copier = new Copier(request);
  const outcomes = request.files.flatMap((file) => choose(file, request).map((outcome) => copier.add(outcome, file)));
  return copier.plan(outcomes);
}

/** Returns the requested servers, once each: the first definition of a name counts. */
function choose({ file, shown, servers }: FoundClientFile, { config, world, only }: ImportRequest): readonly Outcome[] {
  const resolve = resolver(config.folder, world.home);
  const asked = servers.filter(
    ({ name, original }) => only === undefined || only.includes(name) || only.includes(original),
  );
  return asked.map((entry): Outcome => {
    const existing = config.servers.get(entry.name);
    const fault =
      entry.unusable ??
      nameFault(entry.name) ??
      (existing === undefined || resolve(existing.source) === file
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
    const converted = typeof extra === 'string' ? { refused: extra } : convert(entry, extra);
    if ('refused' in converted) return { ...outcome, left: converted.refused };
    const folders = handedFolders(entry, { workspace: this.#request.config.workspace, home: this.#request.world.home });
    const fault = this.#keep(entry.name, { ...converted, server: withFolders(converted.server, folders) });
    return fault === undefined ? { ...outcome, folders } : { ...outcome, left: fault };
  }

  plan(outcomes: readonly Outcome[]): ImportPlan {
    const { file, folder } = this.#request.config;
    const made = [...this.#files].map(
      ([name, text]): FileChange => ({ file: serverFileOf(folder, name), after: text }),
    );
    const changes = this.#text === this.#before ? made : [...made, { file, before: this.#before, after: this.#text }];
    for (const change of made)
      if (readTarget(change.file) !== undefined)
        throw new TollgateError('USAGE', {
          detail: `There is already ${path.relative(folder, change.file)}.`,
          next: 'Remove or rename it, or leave out that server with --only.',
        });
    return { changes, outcomes, secrets: this.#secrets, wanted: [...new Set(this.#wanted)] };
  }

  /** Keeps a server if the configuration loads with it and all others. Returns why it cannot be imported. */
  #keep(name: string, { server, secrets, wanted }: Converted): string | undefined {
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
    const head = `${IMPORTED}it starts once it is approved: tollgate approve ${name}\n`;
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
function withFolders(
  { sandbox, profiles, ...server }: Converted['server'],
  handed: HandedFolders,
): Converted['server'] {
  const { filesystem: own = {}, ...rest } = (sandbox ?? {}) as ClientSandbox;
  const lists = (['allowRead', 'allowWrite'] as const)
    .map((key) => [key, [...new Set([...(own[key] ?? []), ...handed[key]])]] as const)
    .filter(([, list]) => list.length > 0);
  const filesystem = { ...own, ...Object.fromEntries(lists) };
  const all = { ...(Object.keys(filesystem).length > 0 && { filesystem }), ...rest };
  return { ...server, ...(Object.keys(all).length > 0 && { sandbox: all }), profiles };
}

/** Settings that tollgate.yaml already has for a server of an included file: its definition joins them. */
function entryIn(text: string, name: string): Readonly<Record<string, unknown>> | undefined {
  const { servers } = (parse(text) ?? {}) as { readonly servers?: Readonly<Record<string, unknown>> };
  const entry = servers != null && Object.hasOwn(servers, name) ? servers[name] : undefined;
  return typeof entry === 'object' && entry !== null ? (entry as Readonly<Record<string, unknown>>) : undefined;
}
