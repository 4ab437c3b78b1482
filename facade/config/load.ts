/** Owns the way from a file to a frozen configuration; refuses it whole, with all its problems at once. */
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors.ts';
import type { CapsConfig, Config, ListenConfig, Problem, RuleSource } from './config.ts';
import { readYaml } from './document.ts';
import type { YamlFile } from './document.ts';
import { readText, realPath } from './files.ts';
import { freezeDeep, FrozenMap } from './freeze.ts';
import { addAbsent, includeServers } from './include.ts';
import { placePolicies, placeState, placeWorkspace, resolver } from './places.ts';
import type { World } from './places.ts';
import { buildPrincipals } from './principals.ts';
import { quote, Report } from './problems.ts';
import type { Path } from './problems.ts';
import { buildBudget, buildExpose, buildProfiles } from './profiles.ts';
import { checkReferences } from './references.ts';
import { checkShape } from './schema.ts';
import { buildServers } from './servers.ts';
import { substitute } from './substitute.ts';
import type { Variables } from './substitute.ts';
import type { Written } from './written.ts';

const MAX_BYTES = 1024 * 1024;
/** Characters of one text, variables filled in. */
const MAX_TEXT = 32_768;

/** Defaults of the sections; the schema names the same ones. */
const CAPS: CapsConfig = { bytes: 30_000, lines: 2000, argBytes: 1_048_576, spillBytes: 67_108_864, validateOutput: 'warn', concurrent: 16 };
const LISTEN: ListenConfig = { host: '127.0.0.1', port: 7310, hosts: [], origins: [], auth: 'token', maxBodyBytes: 4_194_304, maxSessions: 64, idleMs: 1_800_000 };
const LIMITS = { servers: 20, connections: 5 };
const ROTATE_BYTES = 67_108_864;

/**
 * Loads tollgate.yaml. Throws CONFIG_INVALID, whose `data.problems` lists every problem (`formatProblems` shows them).
 * Reads `env` and files, writes nothing. Values of variables stand in the result only, never in a problem or warning.
 */
export function loadConfig(file: string, world: World): Config {
  const shown = path.basename(file);
  const absolute = path.resolve(file);
  const read = readText(absolute, MAX_BYTES);
  if (!read.ok) throw refusal(shown, [{ file: shown, line: 1, column: 1, message: `the configuration cannot be read: ${read.reason}; write one with: tollgate init` }]);
  const yaml = readYaml(shown, read.text);
  if (yaml.problems.length > 0) throw refusal(shown, yaml.problems);
  return new Loader(yaml, path.join(realPath(path.dirname(absolute)), shown), world).run();
}

function refusal(file: string, problems: readonly Problem[]): TollgateError {
  const count = problems.length === 1 ? 'one problem' : `${problems.length} problems`;
  return new TollgateError('CONFIG_INVALID', { detail: `${file} has ${count}.`, data: { problems } });
}

/** Texts that no path, program or header can carry. */
function textFault(text: string): string | undefined {
  if (text.includes('\0')) return 'the text holds a NUL character, at which programs would cut it off; remove it';
  return text.length > MAX_TEXT ? `the text is longer than ${MAX_TEXT} characters; nothing here needs that` : undefined;
}

/** One load: what the steps share. */
class Loader {
  readonly #yaml: YamlFile;
  readonly #raw: unknown;
  readonly #file: string;
  readonly #folder: string;
  readonly #world: World;
  readonly #report: Report;
  readonly #resolve: (written: string) => string;
  readonly #secrets = new Set<string>();

  constructor(yaml: YamlFile, file: string, world: World) {
    this.#yaml = yaml;
    this.#raw = yaml.value ?? {};
    this.#file = file;
    this.#folder = path.dirname(file);
    this.#world = world;
    this.#report = new Report(yaml);
    this.#resolve = resolver(this.#folder, world.home);
  }

  run(): Config {
    const variables = this.#variables();
    const written = checkShape(this.#fill(this.#raw, [], variables), this.#raw, this.#report) as Written;
    const workspace = variables.folders.get('workspaceFolder') ?? this.#folder;
    const principals = buildPrincipals(written.principals, this.#raw, this.#report);
    const policies = placePolicies(written.policies, this.#resolve, this.#report);
    const { servers, warnings } = this.#servers(written, variables);
    const places = placeState(written, { ...this.#world, folder: this.#folder, workspace, resolve: this.#resolve, report: this.#report });
    const serverNames = new Set(this.#keysOf('servers'));
    const included = new Map([...servers.values()].filter(({ name }) => !serverNames.has(name)).map(({ name, source }) => [name, source]));
    const profileKeys = Object.fromEntries(this.#keysOf('profiles').map((name) => [name, true]));
    checkReferences(written, { report: this.#report, serverNames, included, principals, profileKeys });
    const listen = this.#listen(written);
    if (this.#report.problems.length > 0) throw refusal(this.#yaml.file, this.#report.problems);
    const expose = buildExpose(written.expose);
    const ruleSources = this.#ruleSources(written);
    return freezeDeep<Config>({
      file: this.#file,
      folder: this.#folder,
      workspace,
      state: places.state,
      servers: new FrozenMap(servers),
      principals,
      profiles: new FrozenMap(buildProfiles(written.profiles ?? {}, expose)),
      policies,
      rules: ruleSources.map(({ value }) => value),
      ruleSources,
      expose,
      controlFiles: [this.#file, ...(written.include ?? []).map(this.#resolve), ...policies.map((policy) => policy.path)],
      budgets: (written.budgets ?? []).map(buildBudget),
      caps: { ...CAPS, ...written.caps },
      audit: { folder: places.auditFolder, rotateBytes: written.audit?.rotateBytes ?? ROTATE_BYTES },
      listen,
      limits: { ...LIMITS, ...written.limits },
      schemaProfile: written.schemaProfile ?? 'portable',
      secrets: [...this.#secrets].filter((secret) => secret !== ''),
      warnings: [...this.#report.warnings, ...warnings],
    });
  }

  /** The workspace comes first, because every other text may name it. */
  #variables(): Variables {
    const folders = new Map([['userHome', this.#world.home], ['configDir', this.#folder]]);
    const variables = { env: this.#world.env, folders };
    const written: unknown = (this.#raw as { workspace?: unknown } | null)?.workspace;
    const filled = this.#fill(typeof written === 'string' && written !== '' ? written : '.', ['workspace'], variables);
    folders.set('workspaceFolder', placeWorkspace(String(filled), { resolve: this.#resolve, home: this.#world.home, report: this.#report }));
    return variables;
  }

  /** The value with `${…}` filled in. Rules stay as they are: the same text in a file of its own must mean the same. */
  #fill(value: unknown, at: Path, variables: Variables): unknown {
    if (at.length === 1 && at[0] === 'rules') return value;
    if (Array.isArray(value)) return value.map((item, index) => this.#fill(item, [...at, index], variables));
    if (typeof value === 'object' && value !== null) return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, this.#fill(item, [...at, key], variables)]));
    if (typeof value !== 'string') return value;
    const filled = substitute(value, variables);
    const fault = filled.ok ? textFault(filled.text) : filled.reason;
    if (fault !== undefined) this.#report.refuse(at, fault);
    if (fault !== undefined || !filled.ok) return '';
    if (at[2] === 'env' || at[2] === 'headers' || at[2] === 'token') filled.fromOutside.forEach((secret) => this.#secrets.add(secret));
    return filled.text;
  }

  #servers(written: Written, variables: Variables): { readonly servers: Map<string, Config['servers'] extends ReadonlyMap<string, infer S> ? S : never>; readonly warnings: readonly Problem[] } {
    const entries = written.servers ?? {};
    const servers = buildServers(entries, { report: this.#report, raw: this.#raw, file: this.#yaml.file, resolve: this.#resolve, secrets: this.#secrets });
    const limit = written.limits?.servers ?? LIMITS.servers;
    if (servers.size > limit) this.#report.refuse(['servers'], `${servers.size} servers where ${limit} are allowed: each costs memory and the model's attention; remove some, or raise limits.servers`);
    const warnings = includeServers(written.include ?? [], { servers, written: entries, variables, resolve: this.#resolve, project: this.#folder, secrets: this.#secrets, limit });
    for (const name of addAbsent({ servers, written: entries }, this.#yaml.file)) {
      if (written.include !== undefined) this.#report.warn(['servers', name], `server ${quote(name)} is in none of the included files, so it cannot be used; add command or url, or correct include`);
      else this.#report.refuse(['servers', name], `server ${quote(name)} has neither command nor url, so nothing could be started; add one of them`);
    }
    return { servers, warnings };
  }

  #listen(written: Written): ListenConfig {
    const listen = { ...LISTEN, ...written.listen };
    const loopback = /^(127(\.\d{1,3}){3}|::1|\[::1\]|localhost)$/.test(listen.host);
    if (listen.auth === 'none' && !loopback) this.#report.refuse(['listen', 'auth'], 'auth none on an address that others can reach: anyone there could call every tool; write auth: token, or host: 127.0.0.1');
    return listen;
  }

  #ruleSources(written: Written): readonly RuleSource[] {
    return (written.rules ?? []).map((value, index) => ({ value, file: this.#yaml.file, ...this.#yaml.placeOf(['rules', index], 'value') }));
  }

  /** Names of a section as the file has them, refused entries included: a fault in an entry must not make its name dangle. */
  #keysOf(section: 'servers' | 'profiles'): readonly string[] {
    const value: unknown = (this.#raw as Record<string, unknown> | null)?.[section];
    return typeof value === 'object' && value !== null ? Object.keys(value) : [];
  }
}
