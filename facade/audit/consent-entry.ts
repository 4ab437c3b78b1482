/**
 * Owns what an audit record says of an act of consent: who decided what about whom; refuses what was shown by having no
 * field for it.
 */
import type { ApprovalScope } from '../../policies/port.ts';
import type { AuditOutcome, AuditPrincipal } from './audit-entry.ts';

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
