/** The types of a loaded configuration: complete, frozen, with every default filled in. */
import type { ServerLifetime, ServerSettings } from '../../adapters/port.ts';
import type { HelperSettings } from '../../catalogs/programs/helper-programs.ts';
import type { Semantics } from '../../catalogs/tools/tool-definition.ts';
import type { BudgetObligation, BundleServer, ModeSettings } from '../../policies/port.ts';
import type { SigningConfig } from '../audit/proof/signing-key.ts';
import type { StoreSettings } from '../state/shared/shared-store.ts';
import type { ConfigPath, Problem } from './config-problems.ts';
import type { OutsideValues } from './reading/outside-values.ts';
import type { JwtConfig } from './settings/jwt-settings.ts';
import type {
  WrittenBudget,
  WrittenConfig,
  WrittenExposed,
  WrittenExposedPrompt,
  WrittenProfile,
  WrittenPrompt,
  WrittenRoute,
  WrittenSnippet,
} from './written-config.ts';

/** When a server starts: `lazy` with its first use, `eager` with Tollgate. */
export type Start = 'lazy' | 'eager';

/** One configured server. The workspace, which runs in this process, is not one of them. */
export interface ServerConfig extends ServerDefinition, Omit<ServerSettings, keyof ServerDefinition | 'confinement'> {
  readonly description?: string;
  /** The sources of the secrets that it uses, except those in the vault. */
  readonly secretSources?: Readonly<Record<string, SecretSource>>;
  readonly tools: { readonly allow?: readonly string[]; readonly deny?: readonly string[] };
  /** Tool name or pattern → what a call does; unclassified tools count as `destructive`. First match in order. */
  readonly semantics: readonly { readonly pattern: string; readonly semantics: Semantics }[];
  /** Id of a mapping under catalogs/primitives/ that lets this server serve primitives. */
  readonly mapping?: string;
  /** True if the owner has confirmed the annotations of the server about its tools. */
  readonly trustHints: boolean;
  readonly start: Start;
  readonly lifetime: ServerLifetime;
  readonly timeoutMs: number;
  readonly hardTimeoutMs: number;
  readonly validateOutput?: 'off' | 'warn' | 'strict';
  readonly labels: readonly string[];
  /** How clients see the URIs of its resources. */
  readonly uri: 'prefixed' | 'own';
  /** What the server gets of a client's trace. */
  readonly trace: 'context' | 'baggage';
  /** The file that defined it, for messages. */
  readonly source: string;
}

/** What an isolated program gets, with every default filled in. Paths are absolute and real. */
export type SandboxConfig = NonNullable<ServerSettings['sandbox']>;

/** Where each record of the audit log is copied to. `file` is absolute; exactly one of `file` and `url` is present. */
export interface ExportConfig {
  readonly file?: string;
  readonly url?: string;
  /** May hold `${secret:NAME}`. */
  readonly headers: Readonly<Record<string, string>>;
  /** The most records of one request. */
  readonly batch: number;
}

/** How commands of the internal workspace run. */
export interface BashConfig
  extends Required<Pick<NonNullable<WrittenConfig['bash']>, 'isolation' | 'acceptPathRaces'>> {
  readonly sandbox: SandboxConfig;
}

/** A principal of the configuration; `tokenHash` is the hex SHA-256 of its bearer token. */
export interface PrincipalConfig {
  readonly id: string;
  readonly role: string;
  readonly groups: readonly string[];
  readonly profiles: readonly string[];
  readonly tokenHash?: string;
  /** Name of the client that has the token, used as origin when a request has no Origin header. */
  readonly client: string;
  /** Whether a user who starts Tollgate over stdio may be this principal; absent: see stdio-identity.ts. */
  readonly stdio?: boolean;
  /** May approve, and may change grants. */
  readonly owner: boolean;
  /** The space of its data in internal servers; absent: its id. */
  readonly space?: string;
  /** Profiles in which it may register servers through the host API. */
  readonly registers: readonly string[];
}

/**
 * A profile names servers and overrides settings; stacked profiles take the union, later overrides win. `host`: see
 * host-profiles.ts.
 */
export interface ProfileConfig {
  readonly name: string;
  /** Servers written there, and the external ones that serve its primitives. */
  readonly servers: readonly string[];
  /** By primitive, in order: the first route that fits a call serves it. One that is absent is not shown. */
  readonly primitives: Readonly<Partial<Record<'read' | 'write' | 'edit' | 'bash', readonly Route[]>>>;
  readonly expose: readonly ExposeRule[];
  /** Servers whose resources are shown. */
  readonly resources: readonly string[];
  readonly prompts: readonly PromptRule[];
  readonly budgets: readonly BudgetConfig[];
  /** Tools are found with find_tools, and are not listed. */
  readonly search: boolean;
  /** How many tools that a session found last are added to its list. */
  readonly promote: number;
  readonly caps: NonNullable<WrittenProfile['caps']>;
  readonly code: NonNullable<WrittenProfile['code']>;
  /** Server → how long it stays for sessions of this profile. */
  readonly lifetimes: Readonly<Record<string, ServerLifetime>>;
  /** Server → when it starts for this profile: with each of its sessions, or not before its use. */
  readonly starts: Readonly<Record<string, Start>>;
  readonly schemaProfile?: string;
  /**
   * Only reading runs until the plan of the run is approved (CY-27); one profile of several suffices. Default false.
   */
  readonly plan: boolean;
  /** `required`: nothing without a grant; one profile of several suffices. */
  readonly grants: 'optional' | 'required';
  /** `caller`: the person at the client may answer a rule that asks; all of several profiles must say so. */
  readonly approvals: 'owner' | 'caller';
  readonly host: boolean;
}

/** A server behind a primitive, and the calls that it serves: all calls if it has no condition. */
export type Route = Exclude<WrittenRoute, string>;

/** Shows tools other than the primitives. */
export type ExposeRule = Exclude<WrittenExposed, string> & { readonly pins: Readonly<Record<string, unknown>> };

/** Shows prompts. */
export type PromptRule = Exclude<WrittenExposedPrompt, string>;

/** A limit that is spent (HB-05, CY-17), and what narrows it; absent fields of `when` match all. */
export type BudgetConfig = BudgetObligation & Required<Pick<WrittenBudget, 'when'>>;

/** A section of the file with its defaults filled in. */
type Complete<Section extends keyof WrittenConfig> = Required<NonNullable<WrittenConfig[Section]>>;

/** Limits of one call and its result. Without `timeoutMs`, the timeout of the server applies. */
export type CapsConfig = Omit<Complete<'caps'>, 'timeoutMs'> & Pick<NonNullable<WrittenConfig['caps']>, 'timeoutMs'>;

/** The HTTP listener. `jwt`: the tokens that it accepts besides those of the principals. */
export type ListenConfig = Omit<Complete<'listen'>, 'jwt'> & { readonly jwt?: JwtConfig };

/** Where policy comes from: a YAML rules file, a folder of Rego, or a built bundle. */
export interface PolicySource extends ModeSettings {
  /** Absolute; or the address of a bundle that is fetched. */
  readonly path: string;
  readonly kind: 'yaml' | 'rego' | 'bundle';
  readonly server?: BundleServer;
}

/** `{rules: […]}` of tollgate.yaml. Paths begin with `rules`; line and column count from 1. */
export interface RuleDocument {
  readonly file: string;
  readonly value: { readonly rules: readonly unknown[] };
  placeOf(
    path: readonly (string | number)[],
    part: 'key' | 'value',
  ): { readonly line: number; readonly column: number };
}

/** Folders of other workspaces. Absolute and real; none is inside another. `write` includes reading. */
export type OtherWorkspaces = Complete<'otherWorkspaces'>;

/** The complete configuration, frozen; made by load-config.ts. */
export interface Config {
  readonly file: string;
  readonly folder: string;
  /** Absolute, symlinks resolved. */
  readonly workspace: string;
  /** The state folder of this machine. Absolute; made with mode 0700 when it is used. */
  readonly state: string;
  /** The store that several machines share. Absent: the state is in the folder. */
  readonly store?: StoreSettings;
  /** Closed unless an owner has added the capability cross_workspace. */
  readonly otherWorkspaces: OtherWorkspaces;
  readonly servers: ReadonlyMap<string, ServerConfig>;
  readonly bash: BashConfig;
  /** Paths of helper programs that the owner wrote; absolute. The others are searched for in system folders. */
  readonly programs: HelperSettings['programs'];
  readonly principals: readonly PrincipalConfig[];
  readonly profiles: ReadonlyMap<string, ProfileConfig>;
  readonly policies: readonly PolicySource[];
  /** Rules in tollgate.yaml itself, as they are written. */
  readonly rules: readonly unknown[];
  /** The same rules as a document whose values know their place, for policies/rules/rule-compiler.ts. */
  readonly ruleDocument: RuleDocument;
  /** Files and folders that the load has read, or would have read if they existed: absolute, as they are named. */
  readonly reads: readonly string[];
  /** Returns where a file of `reads` is read: the copy that an owner accepted, or the file itself. */
  readonly at: (file: string) => string;
  /** The folder of the accepted copy of this configuration, absolute; never in the workspace. */
  readonly acceptedFolder: string;
  /** The same files with every link on their way and their real paths: absolute. An agent must not write them. */
  readonly controlFiles: readonly string[];
  /** `server.prompt` → the template of its results. Those of the server `prompts` are prompts of the owner. */
  readonly prompts: ReadonlyMap<string, WrittenPrompt>;
  readonly budgets: readonly BudgetConfig[];
  readonly caps: CapsConfig;
  readonly audit: AuditConfig;
  readonly approvals: ApprovalsConfig;
  readonly runs: RunsConfig;
  readonly knowledge: KnowledgeConfig;
  readonly code: CodeConfig & { readonly snippets: ReadonlyMap<string, SnippetConfig> };
  /** Labels that survive sessions until an owner clears them. */
  readonly labels: Complete<'labels'>;
  /** `webhook`: https, or http of this machine. It may hold a secret. */
  readonly notices: { readonly desktop: boolean; readonly webhook?: string };
  readonly listen: ListenConfig;
  readonly limits: Complete<'limits'>;
  /** Name → configuration file of each tenant, absolute. Only `serve` serves them. */
  readonly tenants: ReadonlyMap<string, string>;
  /** The name of the tenant that this configuration is loaded for. */
  readonly tenant?: string;
  readonly schemaProfile: string;
  /** Addresses of registries of MCP servers: https, or http of this machine; without a query. */
  readonly registries: readonly string[];
  /** By name; a secret that is not here is in the vault. */
  readonly secretSources: ReadonlyMap<string, SecretSource>;
  /** Values from ${ENV} in headers or env of servers; the redactor knows them. */
  readonly secrets: readonly string[];
  /** The names of tools and arguments of servers in the file; checked when the definitions are known. */
  readonly mentions: readonly ToolMention[];
  /** Warnings about included files; they never prevent the start. */
  readonly warnings: readonly Problem[];
}
/** What is started or reached for a server, with variables filled in. */
export interface ServerDefinition
  extends Pick<ServerSettings, 'transport' | 'command' | 'args' | 'env' | 'cwd' | 'url' | 'socket' | 'headers'> {
  /** Its texts with values from outside, as they are written. */
  readonly filled?: OutsideValues;
}
/** One named tool or pattern, and its place. */
export interface ToolMention extends ConfigPath {
  readonly file: string;
  readonly server: string;
  /** A name, or a pattern with `*`. */
  readonly tool: string;
  /** The key under which it is named. */
  readonly key: 'expose' | 'pins' | 'budgets' | 'deny' | 'allow' | 'semantics';
  readonly arguments: readonly ArgumentMention[];
  /** The profile that contains it; absent: it applies to every caller. */
  readonly profile?: string;
}

/** One named argument, and its place. */
export interface ArgumentMention extends ConfigPath {
  readonly file: string;
  readonly name: string;
  /** The pinned value. It may be a secret. */
  readonly value?: unknown;
}
/** How people are asked about calls (docs/approvals.md). */
export type ApprovalsConfig = Complete<'approvals'>;

/** The audit log (docs/audit.md). */
export interface AuditConfig {
  /** Absolute. */
  readonly folder: string;
  /** Bytes after which a new file begins; each day begins one too. */
  readonly rotateBytes: number;
  /** The name of this replica in a fleet (docs/audit-fleet.md). */
  readonly replica?: string;
  readonly facts: 'none' | 'names' | 'full';
  readonly recordings: RecordingsConfig;
  /** Absent: the log keeps all files. `archive` is absolute. */
  readonly keep?: { readonly archive: string; readonly ageMs?: number; readonly bytes?: number };
  readonly signing: SigningConfig;
  readonly export?: ExportConfig;
}

/** How long recorded arguments are kept. */
export interface RecordingsConfig extends RunsConfig {
  readonly maxBytes: number;
}

/** How long data of runs is kept (docs/configuration.md). */
export interface RunsConfig {
  /** Milliseconds after which the data is removed. */
  readonly keepMs: number;
}

/** The limits of one turn at the internal server `knowledge`. */
export type KnowledgeConfig = Complete<'knowledge'>;
/** What one run of code may use. Times in milliseconds, sizes in bytes. */
export type CodeConfig = Omit<Complete<'code'>, 'snippets'>;

/** Code of the owner that agents call as a tool. */
export type SnippetConfig = WrittenSnippet & {
  /** The text of the file. */
  readonly code: string;
};

/** The source of a secret that is not in the vault. */
export type SecretSource =
  | { readonly from: 'env'; readonly variable: string }
  /** Absolute. */
  | { readonly from: 'file'; readonly file: string }
  | { readonly from: 'exec'; readonly command: readonly string[] }
  | { readonly from: 'keychain'; readonly service: string; readonly account: string };
