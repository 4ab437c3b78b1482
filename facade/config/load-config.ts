/** Loads tollgate.yaml into a frozen configuration. A file with errors is refused, with all its problems at once. */
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { PROGRAM } from '../../catalogs/programs/own-code.ts';
import { isPathWithin } from '../../catalogs/readers/path-location.ts';
import { CODE_TOOLS, NO_ARGUMENTS, SEARCH_TOOLS } from '../../catalogs/servers/shipped-servers.ts';
import { createValidator } from '../../catalogs/validation/validator.ts';
import { withSources } from '../secrets/secret-uses.ts';
import { acceptedFolder } from './accepted-config.ts';
import type { Config, OtherWorkspaces, PrincipalConfig, ServerConfig, SnippetConfig } from './config.ts';
import { fileProblem, type Path, type Problem, ProblemReport, quote } from './config-problems.ts';
import { checkReferences } from './config-references.ts';
import { checkShape } from './config-schema.ts';
import { checkHostProfiles } from './host-profiles.ts';
import { buildPrincipals } from './principals.ts';
import { buildBudget, buildProfiles } from './profiles.ts';
import { placesOf } from './reading/control-files.ts';
import { readText, realPath } from './reading/text-files.ts';
import { fillVariables } from './reading/variable-fields.ts';
import type { Variables } from './reading/variable-substitution.ts';
import { readYaml, type YamlFile } from './reading/yaml-document.ts';
import { addEnvironments, buildServers } from './servers/configured-servers.ts';
import { checkPrograms, writableFolders } from './servers/helper-program-settings.ts';
import { addUndefined, includeRegistered, includeServers } from './servers/included-servers.ts';
import { NO_OTHER_WORKSPACES, placeOtherWorkspaces } from './servers/other-workspaces.ts';
import { registeredFolder, validRegistrations } from './servers/registered-servers.ts';
import { bashOf, checkFolders, checkSandboxes, type Guarded, type SandboxBase } from './servers/sandbox-settings.ts';
import { ignoredServerFiles, joinServerFiles, SERVER_FOLDER } from './servers/server-files.ts';
import { collectMentions } from './servers/tool-mentions.ts';
import { controlFilesOf, ignoredRego, placePolicies } from './settings/policy-sources.ts';
import {
  auditFolders,
  buildAudit,
  buildExport,
  buildListen,
  buildNotices,
  buildSecretSources,
  buildSections,
  checkRegistries,
  hostReplica,
} from './settings/sections.ts';
import { buildSigning } from './settings/signing-settings.ts';
import { buildStore, writtenStateFolder } from './settings/store-settings.ts';
import { checkTenantSettings } from './tenant-settings.ts';
import { placeState, placeWorkspace, resolver, stateFolder, type World } from './work-folders.ts';
import { DEFAULTS, type WrittenConfig, type WrittenServer } from './written-config.ts';

const MAX_BYTES = 1024 * 1024;
const MAX_SNIPPET_BYTES = 200_000;

/**
 * The defaults of `serve`, whose servers work for many agents. The 20 s for running calls and the 8 s in which servers
 * end fit into the 30 s that Kubernetes grants.
 */
const SHARED_LIMITS: Config['limits'] = { ...DEFAULTS.limits, connections: 20, drainMs: 20_000 };

/** Texts that replace files on the disk: tollgate.yaml, and servers' own files by name. */
export interface ConfigDraft {
  readonly text?: string;
  readonly servers?: ReadonlyMap<string, string>;
}

/**
 * Loads tollgate.yaml. Throws CONFIG_INVALID, whose `data.problems` lists every problem (`formatProblems` shows them).
 * Reads `env` and files, writes nothing. Values of variables are only in the result, never in a problem or warning.
 * With a draft it checks texts that are not written yet.
 */
export function loadConfig(file: string, world: World, draft: ConfigDraft = {}): Config {
  const shown = path.basename(file);
  const absolute = path.join(realPath(path.dirname(path.resolve(file))), shown);
  const { at = (name) => name, isShared = false, tenant = '' } = world;
  const read = draft.text === undefined ? readText(at(absolute), MAX_BYTES) : { ok: true as const, text: draft.text };
  if (!read.ok)
    throw refusal(shown, [
      fileProblem(shown, `the configuration cannot be read: ${read.reason}; write one with: tollgate init`),
    ]);
  const yaml = joinServerFiles(
    readYaml(shown, read.text),
    at(path.join(path.dirname(absolute), SERVER_FOLDER)),
    draft.servers,
  );
  if (yaml.problems.length > 0) throw refusal(shown, yaml.problems);
  return new Loader(yaml, absolute, { ...world, at, isShared, tenant }).run();
}

function refusal(file: string, problems: readonly Problem[]): TollgateError {
  const count = problems.length === 1 ? 'one problem' : `${problems.length} problems`;
  return new TollgateError('CONFIG_INVALID', { detail: `${file} has ${count}.`, data: { problems } });
}

/** Whether hosts may register servers. */
function canRegister(principals: Config['principals']): boolean {
  return principals.some(({ registers }) => registers.length > 0);
}

/** One load. Its fields are what the steps share. */
class Loader {
  readonly #yaml: YamlFile;
  readonly #raw: unknown;
  readonly #file: string;
  readonly #folder: string;
  readonly #world: Required<World>;
  /** The limits if none are written. */
  readonly #limits: Config['limits'];
  readonly #report: ProblemReport;
  readonly #resolve: (written: string) => string;
  readonly #secrets = new Set<string>();
  readonly #envFiles = new Set<string>();

  constructor(yaml: YamlFile, file: string, world: Required<World>) {
    this.#yaml = yaml;
    this.#raw = yaml.value ?? {};
    this.#file = file;
    this.#folder = path.dirname(file);
    this.#world = world;
    this.#limits = world.isShared ? SHARED_LIMITS : DEFAULTS.limits;
    this.#report = new ProblemReport(yaml);
    this.#resolve = resolver(this.#folder, world.home);
  }

  run(): Config {
    const variables = this.#variables();
    const written = checkShape(this.#fill(this.#raw, [], variables), this.#raw, this.#report) as WrittenConfig;
    const workspace = variables.folders.get('workspaceFolder');
    const base = { home: this.#world.home, ...(workspace !== undefined && { workspace }) };
    const principals = buildPrincipals(written.principals, this.#raw, this.#report);
    const places = { report: this.#report, resolve: this.#resolve, workspace };
    const policies = placePolicies(written.policies, { ...places, raw: this.#raw, at: this.#world.at });
    const { servers, warnings, joined } = this.#servers(written, { variables, base, principals });
    const { state, auditFolder, acceptedFolder } = this.#placeState(written, workspace);
    const store = buildStore(written.state, places);
    const audit = this.#audit(written, { folder: auditFolder, workspace, store });
    const guarded = { ...base, report: this.#report, hidden: [state, acceptedFolder, ...auditFolders(audit)] };
    checkSandboxes(written, guarded);
    const broad = checkFolders(servers, (name) => written.servers?.[name]?.cwd !== undefined, guarded);
    this.#checkNames(written, servers, principals);
    const bash = bashOf(written.bash, base);
    const registries = checkRegistries(written.registries, this.#report);
    const notices = buildNotices(written.notices, this.#report);
    const listen = buildListen(written.listen, this.#report);
    const secretSources = buildSecretSources(written.secrets ?? {}, places);
    const reads = [...this.#reads(written, policies), ...(canRegister(principals) ? [registeredFolder(state)] : [])];
    const world = { workspace, bash, servers, programs: written.programs ?? {}, secretSources, reads };
    const otherWorkspaces = this.#otherWorkspaces(written, guarded, world);
    checkTenantSettings(this.#world.tenant, { written, servers, listen }, this.#report);
    if (workspace === undefined || this.#report.problems.length > 0)
      throw refusal(this.#yaml.file, this.#report.problems);
    return freezeDeep<Config>({
      ...this.#sections(written),
      file: this.#file,
      folder: this.#folder,
      workspace,
      state,
      ...(store !== undefined && { store }),
      otherWorkspaces,
      servers: new FrozenMap([...servers].map(([name, server]) => [name, withSources(server, secretSources)] as const)),
      bash,
      programs: world.programs,
      secretSources: new FrozenMap(secretSources),
      principals,
      profiles: new FrozenMap(buildProfiles({ ...written, servers: { ...written.servers, ...joined } })),
      policies,
      reads,
      acceptedFolder,
      controlFiles: placesOf(reads),
      at: this.#world.at,
      audit,
      listen,
      registries,
      notices,
      secrets: [...this.#secrets].filter((secret) => secret !== ''),
      warnings: [
        ...this.#report.warnings,
        ...warnings,
        ...broad,
        ...ignoredServerFiles(this.#world.at(path.join(this.#folder, SERVER_FOLDER))),
        ...ignoredRego(this.#folder, policies),
      ],
    });
  }

  #audit(
    { audit }: WrittenConfig,
    {
      folder,
      workspace,
      store,
    }: { readonly folder: string; readonly workspace: string | undefined; readonly store: Config['store'] | undefined },
  ): Config['audit'] {
    const target = buildExport(audit?.export, {
      report: this.#report,
      resolve: this.#resolve,
      hidden: [folder, ...(workspace === undefined ? [] : [workspace])],
    });
    const signing = buildSigning(audit?.signing, { resolve: this.#resolve, report: this.#report, workspace });
    const built = buildAudit(audit, { folder, resolve: this.#resolve });
    const replica = audit?.replica ?? (store === undefined ? undefined : hostReplica());
    return {
      ...built,
      ...(replica !== undefined && { replica }),
      signing,
      ...(target !== undefined && { export: target }),
    };
  }

  /** The sections that depend on no other section, with their defaults. */
  #sections(written: WrittenConfig) {
    const rules = written.rules ?? [];
    return {
      rules,
      ruleDocument: { file: this.#yaml.file, value: { rules }, placeOf: this.#yaml.placeOf },
      budgets: (written.budgets ?? []).map(buildBudget),
      prompts: new FrozenMap(Object.entries(written.prompts ?? {})),
      ...buildSections(written),
      code: { ...DEFAULTS.code, ...written.code, snippets: this.#snippets(written) },
      limits: { ...this.#limits, ...written.limits },
      tenants: new FrozenMap(
        Object.entries(written.tenants ?? {}).map(([name, file]) => [name, this.#resolve(file)] as const),
      ),
      ...(this.#world.tenant !== '' && { tenant: this.#world.tenant }),
      schemaProfile: written.schemaProfile ?? DEFAULTS.schemaProfile,
      mentions: collectMentions(written, this.#yaml),
    };
  }

  /** Reads the owner's own code, so that what runs is what was accepted. */
  #snippets({ code }: WrittenConfig): FrozenMap<string, SnippetConfig> {
    return new FrozenMap(
      Object.entries(code?.snippets ?? {}).map(([name, snippet]) => {
        const at = ['code', 'snippets', name];
        const read = readText(this.#world.at(this.#resolve(snippet.file)), MAX_SNIPPET_BYTES);
        if (!read.ok)
          this.#report.refuse([...at, 'file'], `the code cannot be read: ${read.reason}; name another file`);
        const { unchecked } = createValidator(snippet.input ?? NO_ARGUMENTS);
        if (unchecked !== undefined)
          this.#report.refuse([...at, 'input'], `the schema cannot be checked: ${unchecked}; write another one`);
        if (CODE_TOOLS.includes(name) || SEARCH_TOOLS.includes(name))
          this.#report.refuse(at, `${quote(name)} is a tool of Tollgate; give the snippet another name`);
        return [name, { ...snippet, code: read.ok ? read.text : '' }];
      }),
    );
  }

  #placeState(written: WrittenConfig, workspace: string | undefined) {
    const places = placeState(written, {
      ...this.#world,
      folder: this.#folder,
      resolve: this.#resolve,
      report: this.#report,
      ...(workspace !== undefined && { workspace }),
    });
    const accepted = acceptedFolder(this.#file, this.#world);
    if (workspace !== undefined && isPathWithin(accepted, workspace))
      this.#report.refuse(
        ['workspace'],
        'the workspace contains the folder of accepted configurations, so an agent could accept its own; name ' +
          'another workspace, or set XDG_STATE_HOME to a folder outside it',
      );
    return { ...places, acceptedFolder: accepted };
  }

  #checkNames(
    written: WrittenConfig,
    servers: ReadonlyMap<string, ServerConfig>,
    principals: readonly PrincipalConfig[],
  ): void {
    const serverNames = new Set(this.#keysOf('servers'));
    const included = new Map(
      [...servers.values()].filter(({ name }) => !serverNames.has(name)).map(({ name, source }) => [name, source]),
    );
    const profileKeys = Object.fromEntries(this.#keysOf('profiles').map((name) => [name, true]));
    checkHostProfiles(written, this.#report);
    checkReferences(written, { report: this.#report, serverNames, included, principals, profileKeys });
  }

  /** Checks that no agent can replace a helper program, and returns the folders of other workspaces. */
  #otherWorkspaces(
    written: WrittenConfig,
    guarded: Guarded,
    {
      workspace,
      ...config
    }: Omit<Parameters<typeof placeOtherWorkspaces>[1]['config'], 'workspace'> & {
      readonly workspace: string | undefined;
    },
  ): OtherWorkspaces {
    if (workspace === undefined) return NO_OTHER_WORKSPACES;
    const { bash, servers, programs } = config;
    checkPrograms(
      programs,
      writableFolders({ workspace, bash, servers, otherWorkspaces: NO_OTHER_WORKSPACES }),
      this.#report,
    );
    return placeOtherWorkspaces(written.otherWorkspaces, {
      ...guarded,
      resolve: this.#resolve,
      config: { workspace, ...config },
    });
  }

  /** The files that this load has read, or would have read if they existed. An agent must not write any of them. */
  #reads(written: WrittenConfig, policies: Config['policies']): readonly string[] {
    const included = (written.include ?? []).map(this.#resolve);
    return [
      ...new Set([
        this.#file,
        path.join(this.#folder, SERVER_FOLDER),
        ...included,
        ...this.#envFiles,
        ...Object.values(written.code?.snippets ?? {}).map(({ file }) => this.#resolve(file)),
        ...policies.flatMap(controlFilesOf),
      ]),
    ];
  }

  /** Returns the variables of the file. The workspace comes first, because every other text may name it. */
  #variables(): Variables {
    const folders = new Map([
      ['userHome', this.#world.home],
      ['configDir', this.#folder],
      ['tollgateFolder', PROGRAM],
    ]);
    const variables = { env: this.#world.env, folders };
    const written: unknown = (this.#raw as { workspace?: unknown } | null)?.workspace;
    const filled = this.#fill(typeof written === 'string' && written !== '' ? written : '.', ['workspace'], variables);
    const workspace =
      filled === ''
        ? undefined
        : placeWorkspace(String(filled), { resolve: this.#resolve, home: this.#world.home, report: this.#report });
    if (workspace !== undefined) folders.set('workspaceFolder', workspace);
    const state: unknown = (this.#raw as { state?: unknown } | null)?.state;
    const filledState = writtenStateFolder(this.#fill(state, ['state'], variables));
    folders.set(
      'stateFolder',
      stateFolder(filledState, { ...this.#world, folder: this.#folder, resolve: this.#resolve }),
    );
    return variables;
  }

  #fill(value: unknown, at: Path, variables: Variables): unknown {
    return fillVariables(value, at, { variables, report: this.#report, secrets: this.#secrets });
  }

  #servers(
    written: WrittenConfig,
    {
      variables,
      base,
      principals,
    }: { readonly variables: Variables; readonly base: SandboxBase; readonly principals: Config['principals'] },
  ): {
    readonly servers: Map<string, ServerConfig>;
    readonly warnings: readonly Problem[];
    readonly joined: Readonly<Record<string, WrittenServer>>;
  } {
    const entries = written.servers ?? {};
    const servers = buildServers(entries, {
      report: this.#report,
      raw: this.#raw,
      file: this.#yaml.file,
      resolve: this.#resolve,
      secrets: this.#secrets,
      base,
    });
    const limit = written.limits?.servers ?? this.#limits.servers;
    if (servers.size > limit)
      this.#report.refuse(
        ['servers'],
        `${servers.size} servers, and ${limit} are allowed: each costs memory and the model's attention; ` +
          'remove some, or raise limits.servers',
      );
    const files = (written.include ?? []).map((file, index) => ({
      file: this.#resolve(file),
      shown: String(this.#rawList('include')[index]),
    }));
    const context = {
      servers,
      written: entries,
      variables,
      resolve: this.#resolve,
      project: this.#folder,
      secrets: this.#secrets,
      envFiles: this.#envFiles,
      at: this.#world.at,
      base,
      limit,
    };
    const warnings = includeServers(files, context);
    const registrations = validRegistrations(variables.folders.get('stateFolder') ?? '', {
      principals,
      project: this.#folder,
    });
    warnings.push(...registrations.warnings, ...includeRegistered(registrations.valid, context));
    for (const name of addUndefined({ servers, written: entries, base }, this.#yaml.file)) {
      if (written.include !== undefined || canRegister(principals))
        this.#report.warn(
          ['servers', name],
          `server ${quote(name)} is in none of the included files, and no host registered it, so it cannot be ` +
            'used; add command or url, or correct include',
        );
      else
        this.#report.refuse(
          ['servers', name],
          `server ${quote(name)} has neither command nor url, so nothing could be started; add one of them`,
        );
    }
    addEnvironments(servers, written.profiles ?? {}, { report: this.#report, raw: this.#raw, secrets: this.#secrets });
    this.#checkKeepAlive(servers, written.limits?.connections ?? this.#limits.connections);
    const joined = registrations.valid
      .filter(({ name, client }) => servers.get(name)?.source === client.file)
      .map(
        ({ name, profiles }) =>
          [name, { ...entries[name], profiles: [...(entries[name]?.profiles ?? []), ...profiles] }] as const,
      );
    return { servers, warnings, joined: Object.fromEntries(joined) };
  }

  /** A keep-alive server never gives up its connection, so with too many of them no other server could start. */
  #checkKeepAlive(servers: ReadonlyMap<string, ServerConfig>, connections: number): void {
    const keepAlive = [...servers.values()].filter(({ lifetime }) => lifetime === 'keep-alive').map(({ name }) => name);
    const excess = keepAlive[connections];
    if (excess !== undefined)
      this.#report.refuse(
        ['servers', excess, 'lifetime'],
        `${keepAlive.length} servers have lifetime keep-alive, and limits.connections allows ${connections}; raise ` +
          'it above their number, or use keep-alive for fewer',
      );
  }

  /** Returns a list as it is in the file, for messages, which never show the value of a variable. */
  #rawList(section: 'include'): readonly unknown[] {
    return (this.#raw as Record<string, readonly unknown[]>)[section] ?? [];
  }

  /** Returns the names of a section, including refused entries, so that an error in an entry causes no second one. */
  #keysOf(section: 'servers' | 'profiles'): readonly string[] {
    const value: unknown = (this.#raw as Record<string, unknown> | null)?.[section];
    return typeof value === 'object' && value !== null ? Object.keys(value) : [];
  }
}

/** Freezes a plain value and everything in it, in place, and returns it. */
function freezeDeep<T>(value: T): T {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value)) return value;
  Object.freeze(value);
  const inner: Iterable<unknown> =
    value instanceof Map ? (value as Map<unknown, unknown>).values() : Object.values(value);
  for (const item of inner) freezeDeep(item);
  return value;
}

/** A map that cannot change. Object.freeze alone does not prevent `set`. */
class FrozenMap<K, V> extends Map<K, V> {
  readonly #sealed: boolean = false;

  constructor(entries: Iterable<readonly [K, V]>) {
    super();
    for (const [key, value] of entries) super.set(key, value);
    this.#sealed = true;
  }

  override set(key: K, value: V): this {
    if (this.#sealed) throw new TypeError('this map is frozen');
    return super.set(key, value);
  }

  override delete(): boolean {
    throw new TypeError('this map is frozen');
  }

  override clear(): void {
    throw new TypeError('this map is frozen');
  }
}
