/** The interface between the facade and the policy: what a policy is told, and what it answers. */

import type { ArgumentBound } from '../catalogs/projection/argument-bounds.ts';
import type { Confinement } from '../catalogs/readers/confinement.ts';
import type { Semantics, Verb } from '../catalogs/tools/tool-definition.ts';

/** Version of the input document of a decision. Only version 1 of a recording can be read as this version. */
export const INPUT_VERSION = 2;

/** The kinds of effects: what a request of MCP does its work on. */
export const EFFECT_KINDS = ['tool', 'resource', 'prompt', 'completion', 'sampling', 'elicitation', 'roots'] as const;

/** One of `EFFECT_KINDS`. */
export type EffectKind = (typeof EFFECT_KINDS)[number];

/** The verb of each kind but `tool`, and the method that is its name as `Effect.tool`. A prompt has a name. */
export const REQUEST_KINDS: Readonly<
  Record<Exclude<EffectKind, 'tool'>, { readonly verb: Verb; readonly method?: string }>
> = {
  resource: { verb: 'read', method: 'resources/read' },
  prompt: { verb: 'read' },
  completion: { verb: 'read', method: 'completion/complete' },
  sampling: { verb: 'execute', method: 'sampling/createMessage' },
  elicitation: { verb: 'write', method: 'elicitation/create' },
  roots: { verb: 'read', method: 'roots/list' },
};

/** What a server asks of the client. */
export interface AskFact {
  readonly mode?: 'form' | 'url';
  /** Names of the fields of a form. */
  readonly fields?: readonly string[];
  readonly maxTokens?: number;
}

/** The caller. Set once at identification; never read from clientInfo, `_meta` or arguments. */
export interface Principal {
  readonly id: string;
  readonly role: string;
  readonly groups: readonly string[];
  readonly profiles: readonly string[];
  readonly origin: string;
  /** Whether this caller may approve calls and change grants. Default: false. */
  readonly owner?: boolean;
}

/**
 * A path that a call touches. Relative to the workspace if `inside` is true, otherwise absolute. Symlinks are resolved.
 */
export interface PathFact {
  readonly argument: string;
  readonly path: string;
  readonly inside: boolean;
}

/** A URL that a call names, as catalogs/readers/urls.ts reads it. */
export interface UrlFact {
  readonly argument: string;
  readonly url: string;
  /** Empty or absent if programs could read the URL in different ways. */
  readonly scheme?: string;
  /** Empty if programs could read the URL in different ways. */
  readonly host: string;
  /** `scheme://host:port/path` in canonical form. Empty or absent if programs could read the URL in different ways. */
  readonly address?: string;
}

/** A shell command. */
export interface CommandFact {
  readonly text: string;
  /** True if one of its programs starts other programs, or may do so, and true if `words` is empty. */
  readonly opaque: boolean;
  /** The words of each simple command. Empty if the command does not reduce to literal words. */
  readonly words: readonly (readonly string[])[];
}

/**
 * What a call does. It is the same for every way to make the call: `server` and `tool` name what will be called. A
 * prompt has its name as `tool`. Other kinds without a name have the method, such as `resources/read`.
 */
export interface Effect {
  /** Absent: `tool`. */
  readonly kind?: EffectKind;
  readonly verb: Verb;
  readonly server: string;
  readonly tool: string;
  readonly paths: readonly PathFact[];
  readonly urls: readonly UrlFact[];
  readonly command?: CommandFact;
  /**
   * True if the call reads more of the output of an allowed call of the same principal and run. Then the facts are
   * those of that call, and the verb is `read`. The library allows it unless a rule denies or asks.
   */
  readonly spill?: true;
  /** The server's own URI of a resource. */
  readonly uri?: string;
  /** Present for requests of a server to the client. */
  readonly asks?: AskFact;
}

/** The fields of the policy's input that do not come from the arguments. See policies/schemas/input.json. */
export interface CallInput {
  readonly principal: Principal;
  readonly run: string;
  readonly effect: Effect;
  /** The exact bytes that will be sent. The policy parses these bytes itself. */
  readonly argsText: string;
  /** Labels of the data that earlier results brought into this run. */
  readonly labels: readonly string[];
  /** RFC 3339, UTC. */
  readonly time: string;
  /** State of the plan of this run, for principals in plan mode (CY-27). Default: `none`. */
  readonly plan?: PlanState;
}

/** Parsed arguments of a call. */
export type CallArguments = Readonly<Record<string, unknown>>;

/** `none` outside of plan mode. `pending` until an owner approves the plan that the agent presented. */
export type PlanState = 'none' | 'pending' | 'approved';

/** Why a decision was made: the rule, its message and its place. */
export interface Reason {
  readonly id: string;
  readonly message: string;
  readonly file?: string;
  readonly line?: number;
  /** low, medium, high or critical. From METADATA in Rego. */
  readonly severity?: string;
  /** What the caller can do instead. From METADATA in Rego. */
  readonly remediation?: string;
  /** For a rule on commands that denies or asks. */
  readonly onCommands?: true;
  /** For a rule on commands that are opaque or cannot be read, if it denies or asks. */
  readonly onOpaque?: true;
  /** The rule matched only because the command could not be read. The message says so. */
  readonly unread?: true;
  /** For a reason to ask: the most that one approval may cover. Default: `call`. */
  readonly approval?: ApprovalScope;
}

/** What a rule in mode warn or shadow would have decided. */
export interface ShadowReason extends Reason {
  readonly would: 'allow' | 'ask' | 'deny';
  readonly mode: 'warn' | 'shadow';
}

/** A budget that applies to this call. A limit that is absent does not bind. */
export interface BudgetObligation {
  readonly id: string;
  readonly scope: 'run' | 'session' | 'principal' | 'server' | 'tool' | 'origin';
  /** Seconds. Absent: as long as the scope exists. */
  readonly window?: number;
  readonly calls?: number;
  readonly argBytes?: number;
  readonly outputBytes?: number;
  readonly wallMs?: number;
  readonly concurrent?: number;
}

/** What an allowed call must comply with. */
export interface Obligations {
  readonly caps: { readonly bytes?: number; readonly lines?: number };
  readonly timeoutMs?: number;
  /** Argument → the value that the arguments must have when they are sent. */
  readonly pins: Readonly<Record<string, unknown>>;
  readonly budgets: readonly BudgetObligation[];
  readonly labels: readonly string[];
  readonly validateOutput?: 'off' | 'warn' | 'strict';
}

/** The answer to one call. A call runs only if the outcome is exactly `allow`. */
export interface CallDecision {
  readonly outcome: 'allow' | 'ask' | 'deny';
  readonly reasons: readonly Reason[];
  readonly obligations: Obligations;
  /** What rules in mode warn or shadow would have decided. */
  readonly shadow: readonly ShadowReason[];
}

/** What the policy knows about a tool when it decides on the list. `tool` is as in an effect. */
export interface ListTool {
  /** Absent: `tool`. */
  readonly kind?: EffectKind;
  readonly server: string;
  readonly tool: string;
  readonly verb: Verb;
  /** Every verb that a call may have, if an argument decides it (Semantics.byArgument). Default: only `verb`. */
  readonly verbs?: readonly Verb[];
  /** The facts that a call of this tool can carry, from its semantics. Absent: any of them. */
  readonly facts?: readonly ('paths' | 'urls' | 'command')[];
  /** The primitive that this tool serves on a backend; see PrimitiveBackend in adapters/port.ts. */
  readonly primitive?: 'read' | 'write' | 'edit' | 'bash';
}

/** One way in which a tool is shown. */
export interface Exposure {
  /** The name to show. Absent: made from the tool's own name (catalogs/tools/exposed-names.ts). */
  readonly name?: string;
  readonly description?: string;
  readonly risk?: readonly ('approval' | 'writes' | 'network' | 'executes')[];
  /** Absent: the schema profile of the list decision. */
  readonly schemaProfile?: string;
  readonly pins: Readonly<Record<string, unknown>>;
}

/** One member of the Rego set `expose`, as it applies to one principal. */
export interface RequestedExposure {
  /** `server.tool`, or a pattern. */
  readonly tool: string;
  /** Names of the arguments that this exposure pins. */
  readonly pins: readonly string[];
  /** `file:line`, or the package. */
  readonly place: string;
  /** Why this exposure shows nothing for any tool of the server. */
  readonly refused?: string;
}

/**
 * Whether a tool is listed: `never` hides it, `maybe` lists it with its condition, `always` means no rule denies it.
 */
export interface ListDecision {
  readonly verdict: 'always' | 'maybe' | 'never';
  readonly reasons: readonly Reason[];
  /** Empty for other kinds than tools. */
  readonly expose: readonly Exposure[];
  /** Name of the provider's schema profile; see catalogs/projection. */
  readonly schemaProfile: string;
  /** For `maybe`: some conditions of each outcome, in words. An empty text means every call. */
  readonly says?: readonly { readonly outcome: 'allow' | 'ask' | 'deny'; readonly say: string }[];
  /** Limits on arguments that every allowed call meets. */
  readonly bounds?: readonly ArgumentBound[];
}

/** A tool as its server lists it, with its semantics from the configuration. */
export interface OfferedTool {
  readonly name: string;
  readonly inputSchema: Readonly<Record<string, unknown>>;
  readonly semantics: Semantics;
}

/** A compiled policy. Its methods throw POLICY_FAILED if there is no valid answer; they never guess. */
export interface Policy {
  /** Changes whenever a decision could change. It is a hash of the WebAssembly module and the data. */
  readonly revision: string;
  /** Number of YAML rules in all files, without rules that are off. */
  readonly rules?: number;
  /** Ids of the enforced YAML rules that deny or ask, in order. */
  readonly ruleIds?: readonly string[];
  /** Returns one line (`file:line:col: …`) for each name in YAML rules that this server does not offer. */
  findUnoffered?(server: string, tools: readonly OfferedTool[]): Promise<readonly string[]>;
  /** `args`: what `argsText` parses to, if known. Then the policy trusts that the text is one JSON object. */
  call(input: CallInput, args?: CallArguments): Promise<CallDecision> | CallDecision;
  /** Returns one decision per tool, in the same order. */
  list(principal: Principal, tools: readonly ListTool[]): Promise<readonly ListDecision[]> | readonly ListDecision[];
  /** Returns how Rego wants tools to be shown to this principal. Absent or empty: Rego says nothing. */
  requestedExposures?(principal: Principal): Promise<readonly RequestedExposure[]>;
  /**
   * Returns what the enforced YAML rules close to the programs of this server. Only rules count that deny or ask and
   * read nothing but paths or hosts of a call. The server `workspace` stands for the commands of bash. `principal` is
   * the caller that the program is started for; without it, only rules about all callers count.
   */
  confinement(server: string, principal?: Principal): Confinement;
  /** Returns the rules on paths and hosts that do not bind programs of these servers, and why: one line per rule. */
  unbound(servers: readonly string[]): readonly string[];
  /** Messages for a person that say why this is not the newest policy. */
  readonly remarks?: readonly string[];
  /**
   * For a fetched policy: polls for a newer one until `close`. Calls `changed` when a newer one was fetched and
   * verified; the next load then uses it. Calls `failed` once when polling or the newer policy fails.
   */
  follow?(listener: { readonly changed: () => void; readonly failed: (thrown: unknown) => void }): void;
  close(): void;
}

/**
 * What one approval may cover. `call`: this call, once. The other two hold for a principal and run until they expire.
 * `group`: every tool of the server that the same rules ask about. `server`: every tool of the server whose rules allow
 * this scope.
 */
export const APPROVAL_SCOPES = ['call', 'group', 'server'] as const;

/** One of `APPROVAL_SCOPES`. */
export type ApprovalScope = (typeof APPROVAL_SCOPES)[number];

/**
 * How a rule counts. Only `enforce` changes decisions. `warn` also tells the caller what the rule would have decided.
 */
export type Mode = 'enforce' | 'warn' | 'shadow' | 'off';

/** Modes as users write them. `deny` and `dryrun` are the names that Gatekeeper uses. */
export const MODE_NAMES = {
  enforce: 'enforce',
  warn: 'warn',
  shadow: 'shadow',
  off: 'off',
  deny: 'enforce',
  dryrun: 'shadow',
} as const satisfies Readonly<Record<string, Mode>>;

/** The mode of a source. The first entry of `modes` that fits the caller counts; otherwise `mode` counts. */
export interface ModeSettings {
  readonly mode: Mode;
  readonly modes?: readonly ModeFor[];
}

/** A mode for the callers with a profile, from an origin, or both. */
export interface ModeFor {
  readonly profile?: string;
  readonly origin?: string;
  readonly mode: Mode;
}

/** The server that a bundle is fetched from, so that many machines share one policy. */
export interface BundleServer {
  /** https, or http on a loopback address. Contains no user and no password. */
  readonly url: string;
  /** Poll interval in milliseconds. */
  readonly pollMs: number;
  /** Secret. Sent as a bearer token. */
  readonly token?: string;
  /** Absolute paths of public keys (PEM). If given, a bundle must be signed by one of them. */
  readonly keys?: readonly string[];
  /** The scope that the signature must name. */
  readonly scope?: string;
}
