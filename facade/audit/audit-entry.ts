/**
 * Owns what an audit record says, by type; refuses payloads, secrets, host paths and free text of servers by having no
 * field for them.
 */
import type { ErrorCode } from '../../catalogs/errors/error-table.ts';
import type { Verb } from '../../catalogs/tools/tool-definition.ts';
import type { ApprovalScope, ShadowReason } from '../../policies/port.ts';
import type { ProgressCounts } from '../output/server-progress.ts';
import type { RunScope } from '../serve/host/host-runs.ts';

/** Who called, as frozen at identification. */
export interface AuditPrincipal {
  readonly id: string;
  readonly role: string;
  readonly profiles: readonly string[];
  readonly origin: string;
}

/** A rule that decided, by its place; messages stay in the policy. `file` relative to the folder of tollgate.yaml. */
export interface AuditReason {
  readonly id: string;
  readonly file?: string;
  readonly line?: number;
}

/** What every record about one call says. A field that is not known yet is absent. */
export interface CallFacts {
  /** The decision id: joins the records of one call, and may be quoted by the caller. */
  readonly id: string;
  readonly principal: AuditPrincipal;
  readonly session: string;
  readonly run: string;
  /** The caller's own id of what the call is part of. */
  readonly correlation?: string;
  /** The name that was called. */
  readonly exposed: string;
  readonly server?: string;
  readonly tool?: string;
  readonly verb?: Verb;
  /** Keyed digest of effect and arguments (key-files.ts): equal calls can be seen, but not guessed. */
  readonly effectDigest?: string;
  /** Of the policy that decided. */
  readonly revision?: string;
  readonly reasons?: readonly AuditReason[];
  /** Id of the approval or grant that answered the policy's ask. */
  readonly consent?: string;
  /** Rules in mode warn or shadow that fired, and what they would have done. */
  readonly shadow?: readonly (AuditReason & Pick<ShadowReason, 'would' | 'mode'>)[];
  /** The decision id of the call inside which this one was made. */
  readonly parent?: string;
}

/** What an allowed call had to obey, short: names and numbers only. */
export interface AuditObligations {
  readonly bytes?: number | undefined;
  readonly lines?: number | undefined;
  readonly timeoutMs?: number | undefined;
  /** Names of pinned arguments. */
  readonly pins?: readonly string[];
  readonly budgets?: readonly string[];
  readonly labels?: readonly string[];
}

/** Bytes: of the arguments, of the server's result, of what was sent, of what was spilled. */
export interface AuditSizes {
  readonly args: number;
  readonly raw?: number | undefined;
  readonly sent?: number | undefined;
  readonly spilled?: number | undefined;
}

/** What a record can say of a call, and the words that `audit list --outcome` takes. */
export const AUDIT_OUTCOMES = ['allow', 'ask', 'deny', 'error'] as const;

/** One of them. */
export type AuditOutcome = (typeof AUDIT_OUTCOMES)[number];

/** Written before a call goes to its server. Without it nothing runs. */
export interface IntentEntry extends CallFacts {
  readonly type: 'intent';
  readonly outcome: 'allow';
  readonly obligations?: AuditObligations;
  readonly sizes: AuditSizes;
}

/** Written before the reply leaves; `allow` is a call that went through, also one whose tool reports a failure. */
export interface OutcomeEntry extends CallFacts {
  readonly type: 'outcome';
  readonly outcome: 'allow' | 'error';
  readonly code?: ErrorCode;
  /** Whether the server has run the call; `unknown` after a crash or a time-out. */
  readonly executed: 'yes' | 'no' | 'unknown';
  readonly sizes: AuditSizes;
  /** The result was cut to its cap. */
  readonly cut?: boolean;
  /** The server marked its result as an error. */
  readonly isError?: boolean;
  /** Registered secrets that were redacted, and hostile characters that were escaped. */
  readonly redactions?: number;
  readonly escaped?: number;
  /** Addresses and icons that were removed. */
  readonly removed?: number;
  /** Progress notifications of the server, where the client asked for them. */
  readonly progress?: ProgressCounts;
  /** From identify to the reply, and the server's part of it. */
  readonly ms: number;
  readonly upstreamMs?: number;
  /** Of the knowledge server: whose rows it was asked for, and how many were found. */
  readonly whose?: Partial<RunScope>;
  readonly hits?: number;
}

/** A call that never reached a server: refused, asked, or failed in an earlier stage. */
export interface DecisionEntry extends CallFacts {
  readonly type: 'decision';
  readonly outcome: AuditOutcome;
  readonly code?: ErrorCode;
  readonly obligations?: AuditObligations;
  readonly sizes?: AuditSizes;
  readonly ms?: number;
}

/** A refusal by a budget. */
export interface BudgetEntry extends CallFacts {
  readonly type: 'budget';
  readonly outcome: 'deny';
  readonly code: 'BUDGET_EXCEEDED' | 'RATE_LIMITED';
  readonly budget: string;
  readonly scope: string;
  readonly unit: string;
  readonly limit: number;
  readonly left: number;
  readonly ms?: number;
}

/** Numbers of an event: tools that differ from the list before, the time until the next start, starts that failed, the how manyth
 * of how many starts after a loss. */
type ServerNumbers = Partial<
  Readonly<Record<'added' | 'removed' | 'changed' | 'unchanged' | 'inMs' | 'tries' | 'attempt' | 'maxAttempts', number>>
>;

/** Something that happened to a server. `event` is a word of ours, never text of the server. */
export interface ServerEntry extends ServerNumbers {
  readonly type: 'server';
  readonly server: string;
  readonly event: string;
  /** Joins the records of one connection. */
  readonly id?: string;
  readonly outcome?: AuditOutcome;
  readonly code?: ErrorCode;
  readonly exit?: number | string;
  readonly tools?: number;
  /** Of what a person did to it: who, and at a terminal the user of the machine. */
  readonly by?: string;
  readonly user?: string;
  /**
   * Of `egress-blocked`: where it wanted to go, in canonical form, why that was refused (a word of ours), and how
   * often.
   */
  readonly host?: string;
  readonly port?: number;
  readonly reason?: string;
  readonly count?: number;
  /**
   * Of `settings-withheld`: what was renamed, relative to the workspace, at most 50; `count` says how many, `reason`
   * the system's code of a failure. Of `cover-lost`: what was replaced from outside while a program ran to which it was
   * closed.
   */
  readonly files?: readonly string[];
  /**
   * Of `request.refused`: the method, one of a fixed list or `other`; the decision id of the call and the session,
   * where a single call ran.
   */
  readonly method?: string;
  readonly call?: string;
  readonly session?: string;
  /** Of what an owner did to the knowledge: whose it is; `count` says how many entries. */
  readonly whose?: Partial<RunScope>;
  readonly ms?: number;
}

/** A configuration or policy that was loaded or refused. */
export interface ConfigEntry {
  readonly type: 'config';
  readonly event: 'loaded' | 'reloaded' | 'refused' | 'unrecorded' | 'unshown';
  readonly outcome: 'allow' | 'error';
  readonly code?: ErrorCode;
  /** SHA-256 of the configuration as loaded. */
  readonly digest?: string;
  readonly revision?: string;
  readonly problems?: number;
  /** Of `unshown`: the member of `expose` in Rego that shows nothing, by its place, and the tool that it names. */
  readonly place?: string;
  readonly tool?: string;
}

/** A session that began, ended, or was refused before it could begin. */
export interface SessionEntry {
  readonly type: 'session';
  readonly event: 'opened' | 'closed' | 'refused';
  readonly outcome: 'allow' | 'error';
  readonly code?: ErrorCode;
  readonly session?: string;
  readonly principal?: AuditPrincipal;
  readonly transport: 'stdio' | 'http';
  readonly ms?: number;
}

/** The half-written end of a dead process's file, put aside; `digest` is the SHA-256 of what was cut. */
export interface RecoveredEntry {
  readonly type: 'recovered';
  readonly file: string;
  readonly bytes: number;
  readonly digest: string;
}

/** The watchdog ended this process, because its main thread was stuck. */
export interface ProcessEntry {
  readonly type: 'process';
  readonly event: 'stuck';
  readonly outcome: 'error';
  /** Processor time without a turn of the event loop, and the limit that it exceeded, ms. */
  readonly cpuMs: number;
  readonly limitMs: number;
  /** Why the process was to stop: a signal, the end of its client, or a switch. */
  readonly reason?: 'signal' | 'parent' | 'switch';
}

/** What may be appended. */
export type AuditEntry =
  | IntentEntry
  | OutcomeEntry
  | DecisionEntry
  | BudgetEntry
  | ServerEntry
  | ConfigEntry
  | SessionEntry
  | ConsentEntry
  | ServerConsentEntry
  | SwitchEntry
  | SetupEntry
  | UpgradeEntry
  | RecoveredEntry
  | ProcessEntry;
/** An act of a person: an approval or a grant, given, refused, used or revoked. */
export interface ConsentEntry {
  readonly type: 'approval' | 'grant';
  readonly event: string;
  readonly id: string;
  readonly outcome: AuditOutcome;
  readonly principal: AuditPrincipal;
  readonly by?: string;
  /** The user of the machine, of an act at a terminal: an agent can be the same principal as its owner. */
  readonly user?: string;
  readonly server?: string;
  readonly tool?: string;
  readonly effectDigest?: string;
  /**
   * Of the approval of a call: what it covers, the beginning of the hash of what was shown, and how often it has been
   * used.
   */
  readonly covers?: ApprovalScope;
  readonly binding?: string;
  readonly uses?: number;
  /**
   * Decision id of the call that asked, used it, or was another than the approved one; then what differed, in words of
   * ours.
   */
  readonly call?: string;
  readonly differs?: readonly string[];
  /** Why a request was withdrawn: the code of the refusal that its call got. */
  readonly code?: string;
  /** Of a grant. */
  readonly scope?: string;
  readonly kind?: string;
}

/**
 * An act of consent to a server, or the note that one is needed. Tools are counted, never named: names are text of
 * servers.
 */
export interface ServerConsentEntry {
  readonly type: 'consent';
  readonly event:
    | 'start-approved'
    | 'look-approved'
    | 'looked'
    | 'tools-approved'
    | 'any-tools-approved'
    | 'revoked'
    | 'disabled'
    | 'enabled'
    | 'pending';
  readonly server: string;
  readonly outcome: AuditOutcome;
  /** The owner; absent where the facade itself noted it. */
  readonly by?: string;
  /** The user of the machine. */
  readonly user?: string;
  /** What was agreed to: hash of what would start, or of the set of tools. */
  readonly approved?: string;
  /** Of a look: what it is given beyond nothing, in the words of the flags. */
  readonly opened?: readonly string[];
  readonly tools?: number;
  readonly changed?: number;
  readonly added?: number;
  readonly removed?: number;
}

/** The master switch was thrown or turned on again, by the user of the machine. */
export interface SwitchEntry {
  readonly type: 'switch';
  readonly event: 'on' | 'off';
  readonly outcome: AuditOutcome;
  readonly by: string;
}

/** An owner added a capability, or took it back (CY-08). */
export interface UpgradeEntry {
  readonly type: 'upgrade';
  readonly event: 'enabled' | 'disabled';
  /** The capability. */
  readonly id: string;
  readonly outcome: AuditOutcome;
  readonly by: string;
  /** The user of the machine. */
  readonly user?: string;
  /** The profile that it was added to; absent for all. */
  readonly profile?: string;
  /** For each session. */
  readonly calls?: number;
  readonly bytes?: number;
  readonly until?: string;
}

/**
 * The user of the machine changed how Tollgate is set up. Names of ours only: never a value, never a place on the disk.
 */
export interface SetupEntry {
  readonly type: 'setup';
  readonly event:
    | 'imported'
    | 'import-undone'
    | 'exported'
    | 'export-undone'
    | 'secret-set'
    | 'secret-rotated'
    | 'secret-removed'
    | 'configuration-accepted'
    | 'audit-archived'
    | 'state-restored'
    | 'state-repaired';
  readonly outcome: 'allow';
  readonly by: string;
  /** Whose files: ids of clients, or `file` for one that no client is known by. */
  readonly clients?: readonly string[];
  readonly servers?: readonly string[];
  readonly secrets?: readonly string[];
  /** Of old records that were moved into an archive: how many, and the time before which all of them were written. */
  readonly records?: number;
  readonly before?: string;
  /**
   * Of an accepted configuration: its hash, how many files it has, and how many of its changes may allow more (absent
   * at the first time).
   */
  readonly accepted?: string;
  readonly files?: number;
  readonly widens?: number;
}
