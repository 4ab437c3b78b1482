/** Owns the port to the policy: what it is told, what it answers; refuses to know how it is evaluated. */

import type { ArgumentBound } from '../catalogs/projection/argument-bounds.ts';
import type { Confinement } from '../catalogs/readers/confinement.ts';
import type { Semantics, Verb } from '../catalogs/tools/tool-definition.ts';

/** Version of the input document that a decision is made from; recordings of another one cannot be decided anew. */
export const INPUT_VERSION = 1;

/** Who calls. Frozen at identification; never taken from clientInfo, `_meta` or arguments (design §9). */
export interface Principal {
  readonly id: string;
  readonly role: string;
  readonly groups: readonly string[];
  readonly profiles: readonly string[];
  readonly origin: string;
  /** May approve and change grants; absent: no. */
  readonly owner?: boolean;
}

/** A path that a call touches: `path` relative to the workspace when inside, else absolute; symlinks resolved. */
export interface PathFact {
  readonly argument: string;
  readonly path: string;
  readonly inside: boolean;
}

/** A URL that a call names (catalogs/readers/urls.ts); `scheme` and `host` are `''` when it cannot be read one way only, an absent scheme likewise. */
export interface UrlFact {
  readonly argument: string;
  readonly url: string;
  readonly scheme?: string;
  readonly host: string;
  /** `scheme://host:port/path` in one spelling (catalogs/readers/urls.ts); `''` when it may be read in two ways, absent likewise. */
  readonly address?: string;
}

/**
 * A shell command. `words` of each simple command, or none where it does not reduce to literal words. `opaque` where one of its
 * programs starts others or may, and where there are no words.
 */
export interface CommandFact {
  readonly text: string;
  readonly opaque: boolean;
  readonly words: readonly (readonly string[])[];
}

/** What a call does, whichever way it came in. `server` and `tool` name what will really be called. */
export interface Effect {
  readonly verb: Verb;
  readonly server: string;
  readonly tool: string;
  readonly paths: readonly PathFact[];
  readonly urls: readonly UrlFact[];
  readonly command?: CommandFact;
  /**
   * True when the call reads on in what an allowed call of the same principal and run returned: the facts are those of
   * that call, the verb is `read`. The library allows it unless a rule denies or asks.
   */
  readonly spill?: true;
}

/** The fields of the policy's input that do not come from the arguments. See policies/schemas/input.json. `time` is RFC 3339, UTC. */
export interface CallInput {
  readonly principal: Principal;
  readonly run: string;
  readonly effect: Effect;
  /** The arguments exactly as they will be sent: the policy parses these very bytes. */
  readonly argsText: string;
  /** Labels that earlier results brought into this run. */
  readonly labels: readonly string[];
  readonly time: string;
  /** Where the plan of this run stands, for principals in plan mode (CY-27); absent: `none`. */
  readonly plan?: PlanState;
}

/** `pending` until an owner approves what the agent presented; `none` outside of plan mode. */
export type PlanState = 'none' | 'pending' | 'approved';

/** Why: the rule, its message, where it stands. */
export interface Reason {
  readonly id: string;
  readonly message: string;
  readonly file?: string;
  readonly line?: number;
  /** From METADATA of Rego: low, medium, high or critical; what the caller can do instead. */
  readonly severity?: string;
  readonly remediation?: string;
  /** Of a reason to ask: the most that one approval may cover; absent: `call`. */
  readonly approval?: ApprovalScope;
}

/** What a rule in mode warn or shadow would have said. */
export interface ShadowReason extends Reason {
  readonly would: 'allow' | 'ask' | 'deny';
  readonly mode: 'warn' | 'shadow';
}

/** A budget that applies to this call (design §4, obligations). Absent limits do not bind. */
export interface BudgetObligation {
  readonly id: string;
  readonly scope: 'run' | 'session' | 'principal' | 'server' | 'tool' | 'origin';
  /** Seconds; absent means the life of the scope. */
  readonly window?: number;
  readonly calls?: number;
  readonly argBytes?: number;
  readonly outputBytes?: number;
  readonly wallMs?: number;
  readonly concurrent?: number;
}

/** What an allowed call must obey. */
export interface Obligations {
  readonly caps: { readonly bytes?: number; readonly lines?: number };
  readonly timeoutMs?: number;
  /** Argument → value that must stand in the arguments as sent. */
  readonly pins: Readonly<Record<string, unknown>>;
  readonly budgets: readonly BudgetObligation[];
  readonly labels: readonly string[];
  readonly validateOutput?: 'off' | 'warn' | 'strict';
}

/** The answer to one call. Anything but a literal `allow` does not run. */
export interface CallDecision {
  readonly outcome: 'allow' | 'ask' | 'deny';
  readonly reasons: readonly Reason[];
  readonly obligations: Obligations;
  /** What policies in mode warn or shadow would have said. */
  readonly shadow: readonly ShadowReason[];
}

/** What the policy is told of a tool when it decides the list. */
export interface ListTool {
  readonly server: string;
  readonly tool: string;
  readonly verb: Verb;
  /** Every verb that a call may have, where an argument decides it (Semantics.byArgument); absent: `verb` is the only one. */
  readonly verbs?: readonly Verb[];
  /** What a call can carry that rules read, from the semantics of the tool; absent: any of them. */
  readonly facts?: readonly ('paths' | 'urls' | 'command')[];
  /** Set when the tool is one of those that serve this primitive on a backend; see adapters/port.ts, PrimitiveBackend. */
  readonly primitive?: 'read' | 'write' | 'edit' | 'bash';
}

/** One way in which a tool is shown. */
export interface Exposure {
  /** The name to show; absent: made from the tool's own (catalogs/tools/exposed-names.ts). */
  readonly name?: string;
  readonly description?: string;
  readonly risk?: readonly ('approval' | 'writes' | 'network' | 'executes')[];
  /** Absent: that of the list decision. */
  readonly schemaProfile?: string;
  readonly pins: Readonly<Record<string, unknown>>;
}

/** One member of `expose` of Rego, as it holds for one principal. */
export interface RequestedExposure {
  /** `server.tool`, or a pattern. */
  readonly tool: string;
  /** Names of the arguments that it pins. */
  readonly pins: readonly string[];
  /** `file:line`, or the package. */
  readonly place: string;
  /** Why it shows nothing, whatever the server offers. */
  readonly refused?: string;
}

/** The list verdict (design §3): `never` hides; `maybe` lists with its condition; `always` is never denied by policy. */
export interface ListDecision {
  readonly verdict: 'always' | 'maybe' | 'never';
  readonly reasons: readonly Reason[];
  readonly expose: readonly Exposure[];
  /** Name of the provider profile for schemas, see catalogs/projection. */
  readonly schemaProfile: string;
  /** What decides a call of a tool listed `maybe`, in words, some of each outcome; an empty text stands for each call. */
  readonly says?: readonly { readonly outcome: 'allow' | 'ask' | 'deny'; readonly say: string }[];
  /** What every call that is allowed keeps to. */
  readonly bounds?: readonly ArgumentBound[];
}

/** A tool as its server lists it, and what the configuration says of it. */
export interface OfferedTool {
  readonly name: string;
  readonly inputSchema: Readonly<Record<string, unknown>>;
  readonly semantics: Semantics;
}

/** A compiled policy. Both methods throw TollgateError POLICY_FAILED and never answer a guess. */
export interface Policy {
  /** Changes whenever any decision could change: hash of wasm and data. */
  readonly revision: string;
  /** Number of its YAML rules, of all files, without those that are off. */
  readonly rules?: number;
  /** What its YAML rules name that this server, as it lists itself, does not have; one line each, `file:line:col: …`. */
  findUnoffered?(server: string, tools: readonly OfferedTool[]): Promise<readonly string[]>;
  call(input: CallInput): Promise<CallDecision> | CallDecision;
  /** One decision per tool, in order. */
  list(principal: Principal, tools: readonly ListTool[]): Promise<readonly ListDecision[]> | readonly ListDecision[];
  /** How Rego wants tools shown to this principal; absent or empty: it says nothing. Throws POLICY_FAILED. */
  requestedExposures?(principal: Principal): Promise<readonly RequestedExposure[]>;
  /**
   * What the enforced YAML rules on paths and hosts mean to programs that this server starts or is: rules that deny or ask, and
   * read nothing else of a call. `workspace` means the commands of bash. `principal`: whom a program is started for; absent
   * when it serves everybody, and then only rules about everybody count.
   */
  confinement(server: string, principal?: Principal): Confinement;
  /** The rules on paths and hosts that do not bind programs of these servers, and why: a line each, `file:line:col: …`, the last one for many. */
  unbound(servers: readonly string[]): readonly string[];
  /** Lines for a person: why the policy is not the newest that there is. */
  readonly remarks?: readonly string[];
  /**
   * For a policy that was fetched: asks from now on whether there is a newer one, until it is closed. `changed`: a newer
   * one was fetched and verified, and the next load takes it. `failed`: told once, when asking or the newer one fails.
   */
  follow?(told: { readonly changed: () => void; readonly failed: (thrown: unknown) => void }): void;
  close(): void;
}

/**
 * `call`: this very call, once. For a principal and run, until it expires, `group`: every tool of the server that the same rules ask
 * about, and `server`: all of its tools that rules with this word ask about.
 */
export const APPROVAL_SCOPES = ['call', 'group', 'server'] as const;

/** One of them. */
export type ApprovalScope = (typeof APPROVAL_SCOPES)[number];

/** How much a rule counts: only `enforce` changes decisions; `warn` tells the caller too what it would have said. */
export type Mode = 'enforce' | 'warn' | 'shadow' | 'off';

/** Modes as people write them: `deny` and `dryrun` are Gatekeeper's names. */
export const MODE_NAMES = {
  enforce: 'enforce',
  warn: 'warn',
  shadow: 'shadow',
  off: 'off',
  deny: 'enforce',
  dryrun: 'shadow',
} as const satisfies Readonly<Record<string, Mode>>;

/** The mode of a source: `modes` for some callers, the first entry that fits counts; `mode` for all others. */
export interface ModeSettings {
  readonly mode: Mode;
  readonly modes?: readonly ModeFor[];
}

/** A mode for the callers of a profile, of an origin, or of both together. */
export interface ModeFor {
  readonly profile?: string;
  readonly origin?: string;
  readonly mode: Mode;
}

/** Where a bundle is fetched from, so that many machines share one policy. */
export interface BundleServer {
  /** https, or http on the loopback address; holds no user and no password. */
  readonly url: string;
  /** Milliseconds between two questions for a newer one. */
  readonly pollMs: number;
  /** Sent as bearer token; a secret. */
  readonly token?: string;
  /** Files of public keys (PEM), absolute. Given: a bundle that none of them signed is refused. */
  readonly keys?: readonly string[];
  /** The scope that the signature must name. */
  readonly scope?: string;
}
