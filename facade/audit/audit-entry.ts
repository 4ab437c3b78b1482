/**
 * The content of audit records, by type. There is no field for payloads, secrets, host paths or free text of servers,
 * so records cannot contain them.
 */
import type { ErrorCode } from '../../catalogs/errors/error-table.ts';
import type { Verb } from '../../catalogs/tools/tool-definition.ts';
import type { ApprovalScope, EffectKind, ShadowReason } from '../../policies/port.ts';
import type { StartChange } from '../consent/servers/start-changes.ts';
import type { LogCounts } from '../output/server-messages.ts';
import type { ProgressCounts } from '../output/server-progress.ts';
import type { RunScope } from '../serve/host/host-runs.ts';

/** Who called, as fixed when the call was identified. */
export interface AuditPrincipal {
  readonly id: string;
  readonly role: string;
  readonly profiles: readonly string[];
  readonly origin: string;
}

/**
 * A rule that decided, by its place. Messages stay in the policy. `file` is relative to the folder of tollgate.yaml.
 */
export interface AuditReason {
  readonly id: string;
  readonly file?: string;
  readonly line?: number;
  /** The rule is about commands, and matched only because the command could not be read. */
  readonly unread?: true;
}

/** The facts in every record of a call. A field that is not known yet is absent. */
export interface CallFacts {
  /** The decision id. It joins the records of one call, and the caller may quote it. */
  readonly id: string;
  readonly principal: AuditPrincipal;
  readonly session: string;
  readonly run: string;
  /** The owner who made the call by hand for the principal, and the user of the machine. */
  readonly by?: string;
  readonly user?: string;
  /** The caller's own id of the run that the call is part of. */
  readonly correlation?: string;
  /** Absent: a tool. */
  readonly kind?: Exclude<EffectKind, 'tool'>;
  /** The name that was called; the method for requests that name neither a tool nor a prompt. */
  readonly exposed: string;
  /** The tool of Tollgate by which the tool was called. */
  readonly via?: 'call_read' | 'call_write';
  readonly server?: string;
  readonly tool?: string;
  readonly verb?: Verb;
  /**
   * Keyed digest of effect and arguments (key-files.ts). It shows that calls are equal, but arguments cannot be guessed
   * from it.
   */
  readonly effectDigest?: string;
  /** The revision of the policy that decided. */
  readonly revision?: string;
  readonly reasons?: readonly AuditReason[];
  /** Id of the approval or grant that answered the policy's ask. */
  readonly consent?: string;
  /** Rules in mode warn or shadow that applied, and what they would have done. */
  readonly shadow?: readonly (AuditReason & Pick<ShadowReason, 'would' | 'mode'>)[];
  /** The decision id of the call inside which this call was made. */
  readonly parent?: string;
}

/** What a call reads, changes or starts, by names alone: in the first record of a call, see `audit.facts`. */
export interface NamedFacts {
  /** Relative to the workspace if they are in it; the home folder is `~`. */
  readonly paths?: readonly string[];
  readonly programs?: readonly string[];
  readonly hosts?: readonly string[];
  /** The command has parts whose programs cannot be named. */
  readonly opaque?: true;
}

/** The obligations of an allowed call, short: only names and numbers. */
export interface AuditObligations {
  readonly bytes?: number | undefined;
  readonly lines?: number | undefined;
  readonly timeoutMs?: number | undefined;
  /** Names of pinned arguments. */
  readonly pins?: readonly string[];
  readonly budgets?: readonly string[];
  readonly labels?: readonly string[];
}

/** Bytes of the arguments, of the server's result, of what was sent, and of what was spilled. */
export interface AuditSizes {
  readonly args: number;
  readonly raw?: number | undefined;
  readonly sent?: number | undefined;
  readonly spilled?: number | undefined;
}

/** The outcomes of a call, which are also the values of `audit list --outcome`. */
export const AUDIT_OUTCOMES = ['allow', 'ask', 'deny', 'error'] as const;

/** One of them. */
export type AuditOutcome = (typeof AUDIT_OUTCOMES)[number];

/** Written before a call goes to its server. Nothing runs without it. */
export interface IntentEntry extends CallFacts {
  readonly type: 'intent';
  readonly outcome: 'allow';
  readonly obligations?: AuditObligations;
  readonly sizes: AuditSizes;
  readonly facts?: NamedFacts;
}

/** Written before the reply leaves. `allow` is a call that was made, even if its tool reports a failure. */
export interface OutcomeEntry extends CallFacts {
  readonly type: 'outcome';
  readonly outcome: 'allow' | 'error';
  readonly code?: ErrorCode;
  /** Why the server was refused, such as `changed`: a word of Tollgate. */
  readonly refusal?: string;
  /** Whether the server has run the call; `unknown` after a crash or a timeout. */
  readonly executed: 'yes' | 'no' | 'unknown';
  readonly sizes: AuditSizes;
  /** The result was cut to its limit. */
  readonly cut?: boolean;
  /** The server marked its result as an error. */
  readonly isError?: boolean;
  /** Registered secrets that were redacted, and hostile characters that were escaped. */
  readonly redactions?: number;
  readonly escaped?: number;
  /** Addresses and icons that were removed. */
  readonly removed?: number;
  /** Progress notifications of the server, if the client asked for them. */
  readonly progress?: ProgressCounts;
  /** Log messages of the server during the call. */
  readonly logs?: LogCounts;
  /** What a person did with a form or an address that a server asked for. */
  readonly action?: 'accept' | 'decline' | 'cancel';
  /** The fallback of a prompt replaced the result of its server. */
  readonly fallback?: true;
  /** Milliseconds from identification to the reply, and the part of the server. */
  readonly ms: number;
  readonly upstreamMs?: number;
  /** For the knowledge server: whose entries were searched, and how many were found. */
  readonly whose?: Partial<RunScope>;
  readonly hits?: number;
  /** Keyed digest of the recorded arguments and decision, with `audit.facts: full`. */
  readonly recorded?: string;
}

/** A call that never reached a server: refused, waiting for approval, or failed in an earlier stage. */
export interface DecisionEntry extends CallFacts {
  readonly type: 'decision';
  readonly outcome: AuditOutcome;
  readonly code?: ErrorCode;
  readonly refusal?: string;
  readonly obligations?: AuditObligations;
  readonly sizes?: AuditSizes;
  readonly ms?: number;
  readonly facts?: NamedFacts;
  readonly recorded?: string;
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
  /** Seconds; absent if the budget has no window. */
  readonly window?: number;
  /** When the window ends, ISO 8601. */
  readonly resetsAt?: string;
  readonly ms?: number;
  readonly facts?: NamedFacts;
  readonly recorded?: string;
}

/**
 * Numbers of an event: tools that differ from the list before, ms until the next start, failed starts, the number of
 * this start and the most starts after a crash.
 */
type ServerNumbers = Partial<
  Readonly<Record<'added' | 'removed' | 'changed' | 'unchanged' | 'inMs' | 'tries' | 'attempt' | 'maxAttempts', number>>
>;

/** Something that happened to a server. `event` is a word of Tollgate, never text of the server. */
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
  /** For an act of a person: the principal, and the user of the machine at a terminal. */
  readonly by?: string;
  readonly user?: string;
  /**
   * For `egress-blocked`: the destination in canonical form, the reason for the refusal (a word of Tollgate), and how
   * often.
   */
  readonly host?: string;
  readonly port?: number;
  readonly reason?: string;
  readonly count?: number;
  /**
   * For `settings-withheld`: the renamed files, relative to the workspace, at most 50; `count` says how many, `reason`
   * is the system's code of a failure. For `cover-lost`: the file that was replaced from outside while a program ran to
   * which it was closed.
   */
  readonly files?: readonly string[];
  /**
   * For `request.refused`: the method (one of a fixed list, or `other`), and the decision id of the call and the
   * session if only one call ran.
   */
  readonly method?: string;
  readonly call?: string;
  readonly session?: string;
  /** For `changed`: what differs from the approved start, at most 20: names of files with hashes, and of settings. */
  readonly changes?: readonly StartChange[];
  /** For a change of the knowledge by an owner: whose it is; `count` says how many entries. */
  readonly whose?: Partial<RunScope>;
  readonly ms?: number;
}

/** A configuration or policy that was loaded or refused. */
export interface ConfigEntry {
  readonly type: 'config';
  readonly event: 'loaded' | 'reloaded' | 'refused' | 'unrecorded' | 'unarchived' | 'unshown';
  readonly outcome: 'allow' | 'error';
  readonly code?: ErrorCode;
  /** SHA-256 of the configuration as loaded. */
  readonly digest?: string;
  readonly revision?: string;
  readonly problems?: number;
  /** For `unshown`: the member of `expose` in Rego that shows nothing, by its place, and the tool that it names. */
  readonly place?: string;
  readonly tool?: string;
}

/** A session that began, ended, or was refused before it began. */
export interface SessionEntry {
  readonly type: 'session';
  /** Of `lost`: the decision id that the caller got. */
  readonly id?: string;
  /**
   * `continued`: another process served it before, or does. `released`: other processes may go on with it. `lost`: the
   * process that worked on a request of it ended.
   */
  readonly event: 'opened' | 'continued' | 'released' | 'lost' | 'closed' | 'refused';
  readonly outcome: 'allow' | 'error';
  readonly code?: ErrorCode;
  readonly session?: string;
  readonly principal?: AuditPrincipal;
  /** The owner who calls by hand for the principal, and the user of the machine. */
  readonly by?: string;
  readonly user?: string;
  readonly transport: 'stdio' | 'http';
  readonly ms?: number;
}

/**
 * What a client did with a call that it runs as a task. The call itself has its own records, with the same `id`. The id
 * of the task is never recorded, because it is the client's right to the result.
 */
export interface TaskEntry {
  readonly type: 'task';
  /** `refused`: the task is not one of this session, or its result may no longer be given out. */
  readonly event: 'delivered' | 'cancelled' | 'refused';
  readonly outcome: 'allow' | 'deny';
  readonly id?: string;
  readonly principal: AuditPrincipal;
  readonly session: string;
  readonly server?: string;
  readonly tool?: string;
  /** Of a request about an unknown task. */
  readonly method?: string;
  readonly code?: ErrorCode;
}

/**
 * The half-written end of a dead process's file, which was moved to another file. `digest` is the SHA-256 of what was
 * cut.
 */
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
  /** CPU time without a turn of the event loop, and the limit that it exceeded, ms. */
  readonly cpuMs: number;
  readonly limitMs: number;
  /** Why the process was told to stop: a signal, the end of its client, or a switch. */
  readonly reason?: 'signal' | 'parent' | 'switch';
}

/**
 * The signed tree of the log (proof/audit-tree.ts). `begun`: a new one, with its name under `origin`, and the name of
 * the one that was there before under `replaces`. `withheld`: records of `file` do not follow each other, and are not
 * signed. `refused`: nothing is signed, for the `reason`. `unwitnessed`: the witness did not confirm a checkpoint.
 * `unpublished`: the shared state did not take a checkpoint. `retired`: an owner removed the head of a replica (`of`)
 * with `count` records, because its log was verified, or is lost (`reason`).
 */
export interface ProofEntry {
  readonly type: 'proof';
  readonly event: 'begun' | 'withheld' | 'refused' | 'unwitnessed' | 'unpublished' | 'retired';
  readonly outcome: 'allow' | 'error';
  readonly origin?: string;
  readonly replaces?: string;
  readonly file?: string;
  readonly reason?: string;
  readonly of?: string;
  readonly count?: number;
  readonly by?: string;
}

/** Every entry that may be appended. */
export type AuditEntry =
  | IntentEntry
  | OutcomeEntry
  | DecisionEntry
  | BudgetEntry
  | ServerEntry
  | ConfigEntry
  | SessionEntry
  | TaskEntry
  | ConsentEntry
  | ServerConsentEntry
  | SwitchEntry
  | SetupEntry
  | UpgradeEntry
  | RecoveredEntry
  | ProcessEntry
  | ProofEntry;
/** An act of a person: an approval or a grant that was given, refused, used or revoked. */
export interface ConsentEntry {
  readonly type: 'approval' | 'grant';
  readonly event: string;
  readonly id: string;
  readonly outcome: AuditOutcome;
  readonly principal: AuditPrincipal;
  readonly by?: string;
  /** The user of the machine, for an act at a terminal: an agent can be the same principal as its owner. */
  readonly user?: string;
  readonly server?: string;
  readonly tool?: string;
  readonly effectDigest?: string;
  /**
   * For the approval of a call: what it covers, the beginning of the hash of what was shown, and how often it has been
   * used.
   */
  readonly covers?: ApprovalScope | 'loop';
  readonly binding?: string;
  readonly uses?: number;
  /**
   * The decision id of the call that asked, used the approval, or differed from the approved call; then what differed,
   * in words of Tollgate.
   */
  readonly call?: string;
  readonly differs?: readonly string[];
  /** The person at the caller's client decided in a form, and did this with it. `none`: no answer, or no valid one. */
  readonly form?: 'accept' | 'decline' | 'cancel' | 'none';
  /** Why a request was withdrawn: the code of the refusal that its call got. */
  readonly code?: string;
  /** For a grant. */
  readonly scope?: string;
  readonly kind?: string;
}

/**
 * A consent to a server, or the note that one is needed. Tools are counted, never named, because names are text of
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
  /** The owner; absent if Tollgate itself made the record. */
  readonly by?: string;
  /** The user of the machine. */
  readonly user?: string;
  /** What was approved: the hash of what would start, or of the set of tools. */
  readonly approved?: string;
  /** For a look: what it is given beyond nothing, as the names of the flags. */
  readonly opened?: readonly string[];
  readonly tools?: number;
  readonly changed?: number;
  readonly added?: number;
  readonly removed?: number;
}

/** The user of the machine, or an owner, switched everything off or on, or suspended a principal or let it go on. */
export interface SwitchEntry {
  readonly type: 'switch';
  readonly event: 'on' | 'off' | 'suspended' | 'resumed';
  readonly outcome: AuditOutcome;
  readonly by: string;
  /** The user of the machine, if `by` is a principal. */
  readonly user?: string;
  readonly principal?: AuditPrincipal;
  /** When the suspension ends, ISO 8601; absent: when someone lifts it. */
  readonly until?: string;
}

/** An owner added or withdrew a capability (CY-08). */
export interface UpgradeEntry {
  readonly type: 'upgrade';
  readonly event: 'enabled' | 'disabled';
  /** The capability. */
  readonly id: string;
  readonly outcome: AuditOutcome;
  readonly by: string;
  /** The user of the machine. */
  readonly user?: string;
  /** The profile to which it was added; absent for all. */
  readonly profile?: string;
  /** Per session. */
  readonly calls?: number;
  readonly bytes?: number;
  readonly until?: string;
}

/** The user of the machine changed the setup of Tollgate. Only names of Tollgate: never a value, never a path. */
export interface SetupEntry {
  readonly type: 'setup';
  readonly event:
    | 'imported'
    | 'import-undone'
    | 'set-up'
    | 'setup-undone'
    | 'exported'
    | 'export-undone'
    | 'secret-set'
    | 'secret-rotated'
    | 'secret-removed'
    | 'configuration-accepted'
    | 'audit-archived'
    | 'state-restored'
    | 'state-migrated'
    | 'state-repaired'
    | 'budget-reset';
  readonly outcome: 'allow';
  readonly by: string;
  /** Whose files: ids of clients, or `file` for a file of an unknown client. */
  readonly clients?: readonly string[];
  readonly servers?: readonly string[];
  readonly secrets?: readonly string[];
  /** For old records that were moved to an archive: how many, and the time before which all of them were written. */
  readonly records?: number;
  readonly before?: string;
  /**
   * For an accepted configuration: its hash, the number of its files, and how many of its changes may allow more
   * (absent the first time).
   */
  readonly accepted?: string;
  readonly files?: number;
  readonly widens?: number;
  /** For a budget that an owner reset: its name, whose counter (absent: all), and how many counters. */
  readonly budget?: string;
  readonly whose?: string;
  readonly count?: number;
  /** The user of the machine, if `by` is a principal. */
  readonly user?: string;
}
