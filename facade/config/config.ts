/** Owns the shape of a loaded configuration: complete, frozen, every default filled in. */

import type { OAuthSettings, ServerLifetime } from '../../adapters/port.ts';
import type { HelperSettings } from '../../catalogs/programs/helper-programs.ts';
import type { Semantics, Verb } from '../../catalogs/tools/tool-definition.ts';
import type { BudgetObligation, BundleServer, ModeSettings } from '../../policies/port.ts';
import type { ConfigPath, Problem } from './config-problems.ts';
import type { OutsideValues } from './reading/outside-values.ts';
import type { BashConfig, SandboxConfig } from './servers/isolation-settings.ts';
import type { KnowledgeConfig } from './settings/knowledge-settings.ts';

/** When a server starts: before anybody calls it, or with its first use. */
export type Start = 'lazy' | 'eager';

/** One server behind the facade; the workspace, which runs in this process, is none of them. */
export interface ServerConfig extends ServerDefinition {
  readonly name: string;
  readonly description?: string;
  /** Absent: external. */
  readonly trust?: 'internal' | 'external';
  /** Of an internal server: see catalogs/tools/definition-pin.ts. */
  readonly pin?: string;
  readonly oauth?: OAuthSettings;
  /** Of the secrets that it uses, those that are not in the vault. */
  readonly secretSources?: Readonly<Record<string, SecretSource>>;
  /** Absent: `sandbox`. Programs only; a remote server has no process here. */
  readonly isolation?: 'direct' | 'sandbox' | 'container';
  /** Absent: it is given nothing. Paths absolute and real. */
  readonly sandbox?: SandboxConfig;
  readonly tools: { readonly allow?: readonly string[]; readonly deny?: readonly string[] };
  /** Tool name or pattern → what a call does; unclassified tools count as `destructive`. First match in order. */
  readonly semantics: readonly { readonly pattern: string; readonly semantics: Semantics }[];
  /** Id of a mapping under catalogs/primitives/ that lets this server serve primitives. */
  readonly mapping?: string;
  /** The owner has read what the server says its tools do, and lets it count. */
  readonly trustHints: boolean;
  readonly start: Start;
  readonly lifetime: ServerLifetime;
  readonly connectTimeoutMs: number;
  readonly timeoutMs: number;
  readonly hardTimeoutMs: number;
  /** Restarts a session may cause after a crash (HA-08, HE-02). */
  readonly maxRetries: number;
  readonly reconnectBackoffMs: number;
  readonly healthCheckMs?: number;
  readonly validateOutput?: 'off' | 'warn' | 'strict';
  readonly labels: readonly string[];
  /** File that defined it, for messages. */
  readonly source: string;
  /** Set when the entry cannot be used (from an included file): why. */
  readonly unusable?: string;
}

/** A principal of the configuration; `tokenHash` is the hex SHA-256 of its bearer token. */
export interface PrincipalConfig {
  readonly id: string;
  readonly role: string;
  readonly groups: readonly string[];
  readonly profiles: readonly string[];
  readonly tokenHash?: string;
  /** Name of the client that holds the token, used as origin when a request has no Origin header. */
  readonly client: string;
  /** Whether whoever starts Tollgate over stdio may be this principal; absent: see stdio-identity.ts. */
  readonly stdio?: boolean;
  /** May approve, and may change grants. */
  readonly owner: boolean;
  /** What its runs share with those of others; absent: its id. */
  readonly space?: string;
  /** Profiles in which it may register servers through the host API. */
  readonly registers: readonly string[];
}

/** A profile names servers and overrides settings; stacked profiles take the union, later overrides win. `host`: see host-profiles.ts. */
export interface ProfileConfig {
  readonly name: string;
  /** Servers written there, and the external ones that serve its primitives. */
  readonly servers: readonly string[];
  /** By primitive, in order: the first route that fits a call serves it. One that is absent is not shown. */
  readonly primitives: Readonly<Partial<Record<'read' | 'write' | 'edit' | 'bash', readonly Route[]>>>;
  readonly expose: readonly ExposeRule[];
  readonly budgets: readonly BudgetConfig[];
  readonly caps: Partial<CapsConfig>;
  /** Server → how long it stays for sessions of this profile. */
  readonly lifetimes: Readonly<Record<string, ServerLifetime>>;
  /** Server → when it starts for this profile: with each of its sessions, or not before its use. */
  readonly starts: Readonly<Record<string, Start>>;
  readonly schemaProfile?: string;
  /** Only reading runs until the plan of the run is approved (CY-27); one profile of several suffices. Default false. */
  readonly plan: boolean;
  /** `required`: nothing without a grant; one profile of several suffices. */
  readonly grants: 'optional' | 'required';
  readonly host: boolean;
}

/** A server behind a primitive, and the calls that it serves; without a condition all. `workspace` is the internal server. */
export interface Route {
  readonly server: string;
  /** Globs, relative to the workspace: all names of the file must match one. */
  readonly paths?: readonly string[];
  /** The run must carry one of them. */
  readonly labels?: readonly string[];
}

/** Shows tools other than the primitives. `tool` is `server.tool`, where the tool part may hold `*`. */
export interface ExposeRule {
  readonly tool: string;
  readonly name?: string;
  readonly description?: string;
  readonly risk?: readonly ('approval' | 'writes' | 'network' | 'executes')[];
  readonly schemaProfile?: string;
  readonly pins: Readonly<Record<string, unknown>>;
}

/** A limit that is spent (HB-05, CY-17), and what narrows it; absent fields of `when` match all. */
export interface BudgetConfig extends BudgetObligation {
  readonly when: {
    readonly server?: string;
    readonly tool?: string;
    readonly verb?: Verb;
    readonly role?: string;
    readonly profile?: string;
  };
}

/** Limits of one call and its result. */
export interface CapsConfig {
  /** Bytes of one result towards the model; default 30,000. */
  readonly bytes: number;
  /** Lines of one result; default 2,000. */
  readonly lines: number;
  /** Arguments of one call, bytes; default 1 MiB. */
  readonly argBytes: number;
  /** Spilled bytes of one result; default 64 MiB. */
  readonly spillBytes: number;
  /** Decoded bytes of pictures, sounds and blobs of one result; default 1 MiB. */
  readonly media: number;
  readonly validateOutput: 'off' | 'warn' | 'strict';
  /** Calls of one session at once, queued above it; default 16. */
  readonly concurrent: number;
  /** Longest call, ms; absent: the timeout of the server alone. */
  readonly timeoutMs?: number;
}

/** The HTTP front. */
export interface ListenConfig {
  /** Default 127.0.0.1. */
  readonly host: string;
  /** Default 7310; 0 picks a free one. */
  readonly port: number;
  /** Extra Host header values, beside loopback names. */
  readonly hosts: readonly string[];
  readonly origins: readonly string[];
  /** `none` must be written out. */
  readonly auth: 'token' | 'none';
  readonly maxBodyBytes: number;
  readonly maxSessions: number;
  /** Sessions of one principal at once; default 100, or maxSessions where that is less. */
  readonly maxSessionsPerPrincipal: number;
  readonly idleMs: number;
  readonly maxConnections: number;
  /** How long a client may take for its headers, and for its whole request, ms. */
  readonly headersMs: number;
  readonly requestMs: number;
  /** How long a connection may do nothing between requests, and a client may not read, ms. */
  readonly socketIdleMs: number;
}

/** Where policy comes from: a YAML rules file, a folder of Rego, or a built bundle. */
export interface PolicySource extends ModeSettings {
  /** Absolute; the address of a bundle that is fetched. */
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

/** Folders of other workspaces. Absolute and real; none lies in another. `write` includes reading. */
export interface OtherWorkspaces {
  readonly read: readonly string[];
  readonly write: readonly string[];
}

/** The whole, frozen; made by load-config.ts. */
export interface Config {
  readonly file: string;
  readonly folder: string;
  /** Absolute, symlinks resolved. */
  readonly workspace: string;
  /** Absolute; made 0700 on use. */
  readonly state: string;
  /** Closed, unless an owner has added the capability cross_workspace. */
  readonly otherWorkspaces: OtherWorkspaces;
  readonly servers: ReadonlyMap<string, ServerConfig>;
  readonly bash: BashConfig;
  /** Where the owner says that helpers are; absolute. The others are looked for in folders of the system. */
  readonly programs: HelperSettings['programs'];
  readonly principals: readonly PrincipalConfig[];
  readonly profiles: ReadonlyMap<string, ProfileConfig>;
  readonly policies: readonly PolicySource[];
  /** Rules written in tollgate.yaml itself, as they stand there. */
  readonly rules: readonly unknown[];
  /** The same rules as a document whose values know their place, as policies/rules/rule-compiler.ts takes it. */
  readonly ruleDocument: RuleDocument;
  /** Files and folders that the load has read, or would have read if they existed: absolute, as they are named. */
  readonly reads: readonly string[];
  /** Where a file of `reads` is read: the copy that an owner accepted, or the file itself. */
  readonly at: (file: string) => string;
  /** Where the accepted copy of this configuration is kept, absolute; never in the workspace. */
  readonly acceptedFolder: string;
  /** The same files with every link on the way and their real places: absolute. An agent must not write them. */
  readonly controlFiles: readonly string[];
  readonly budgets: readonly BudgetConfig[];
  readonly caps: CapsConfig;
  /** Absolute folder; after so many bytes it rotates, default 64 MiB. A new day rotates too. */
  readonly audit: { readonly folder: string; readonly rotateBytes: number };
  readonly approvals: ApprovalsConfig;
  readonly recording: RecordingConfig;
  readonly runs: RunsConfig;
  readonly knowledge: KnowledgeConfig;
  /** Labels that survive sessions until an owner clears them. */
  readonly labels: { readonly sticky: readonly string[] };
  readonly listen: ListenConfig;
  readonly limits: {
    readonly servers: number;
    /** Connected servers at once, over all processes of the state folder. */
    readonly connections: number;
    /** How long running calls may go on after a signal or the end of the input, ms. */
    readonly drainMs: number;
  };
  readonly schemaProfile: string;
  /** By name; a secret that is not here is in the vault. */
  readonly secretSources: ReadonlyMap<string, SecretSource>;
  /** Values that came from ${ENV} into headers or env of servers: registered with the redactor. */
  readonly secrets: readonly string[];
  /** Where it names tools and arguments of servers: judged as soon as their definitions are known. */
  readonly mentions: readonly ToolMention[];
  /** Reports on included files; never stop the start. */
  readonly warnings: readonly Problem[];
}
/** The part of a server that says what is started or reached, variables filled in. */
export interface ServerDefinition {
  readonly transport: 'stdio' | 'http' | 'sse' | 'unix';
  readonly command?: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly url?: string;
  /** Absolute. */
  readonly socket?: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Its texts that hold values from outside, as they are written. */
  readonly filled?: OutsideValues;
}
/** One tool or pattern that is named, and where. */
export interface ToolMention extends ConfigPath {
  readonly file: string;
  readonly server: string;
  /** A name, or a pattern with `*`. */
  readonly tool: string;
  /** The key under which it is named. */
  readonly key: 'expose' | 'pins' | 'budgets' | 'deny' | 'allow' | 'semantics';
  readonly arguments: readonly ArgumentMention[];
  /** The profile that says so; absent: it holds for every caller. */
  readonly profile?: string;
}

/** One argument that is named, and where. */
export interface ArgumentMention extends ConfigPath {
  readonly file: string;
  readonly name: string;
  /** What it is pinned to. It may be a secret. */
  readonly value?: unknown;
}
/** How people are asked about calls (docs/approvals.md). */
export interface ApprovalsConfig {
  /** Milliseconds that a call waits for its approval before it is refused; default 45 s, below what most clients allow a call. 0: not at all. */
  readonly waitMs: number;
  /** Milliseconds after which what was asked, approved or denied is forgotten; default ten minutes. */
  readonly expireMs: number;
}
/** What is kept of decisions so that they can be explained and replayed (docs/policies.md). */
export interface RecordingConfig {
  /** Default `off`. `last` keeps a quarter of an hour, whatever `keepMs` says. */
  readonly mode: 'off' | 'last' | 'on';
  /** Milliseconds after which a recording is removed; default seven days. */
  readonly keepMs: number;
  /** Bytes of all recordings, above which the oldest go; default 256 MiB. */
  readonly maxBytes: number;
}

/** How long what runs leave is kept (docs/configuration.md). */
export interface RunsConfig {
  /** Milliseconds after which a spill, or a run that a host did not end, is removed; default one day. */
  readonly keepMs: number;
}
/** Where a secret comes from that is not in the vault. */
export type SecretSource =
  | { readonly from: 'env'; readonly variable: string }
  | { readonly from: 'exec'; readonly command: readonly string[] }
  | { readonly from: 'keychain'; readonly service: string; readonly account: string };
