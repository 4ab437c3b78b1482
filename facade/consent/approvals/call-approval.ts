/** Stores requests for approval in the shared state and finds them. An unreadable request is refused. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { ApprovalScope, Reason } from '../../../policies/port.ts';
import type { ConsentEntry } from '../../audit/audit-entry.ts';
import type { State } from '../../state/state-port.ts';
import type { ApprovalBinding } from './approval-binding.ts';
import type { ApprovedLoop, AskingRun } from './loop-approval.ts';

/** A request and its decision. Times in ms since 1970. */
export interface Approval {
  /** Random, for people. The id alone gives no permission. */
  readonly id: string;
  /** `withdrawn`: the call cannot run, so there is nothing to decide. */
  readonly state: 'pending' | 'approved' | 'denied' | 'withdrawn';
  /** The calls that it covers. A wider approval is valid until it expires. */
  readonly scope: ApprovalScope;
  /** The widest scope that it may get. */
  readonly widest: ApprovalScope;
  readonly binding: ApprovalBinding;
  /** Hash of the binding. */
  readonly hash: string;
  /** The keys under which a wider approval would be stored. */
  readonly reach: Readonly<Partial<Record<ApprovalScope, string>>>;
  /** Present if code asks: what is shown of its run, and the key of an approval of its loop. */
  readonly asking?: AskingRun & { readonly loopKey: string };
  /** The approval covers a loop of code. */
  readonly loop?: ApprovedLoop;
  /** What was asked: the arguments as they will be sent, registered secrets as `***`, and their number. */
  readonly argsText: string;
  readonly concealed: number;
  readonly reasons: readonly Pick<Reason, 'id' | 'message' | 'file' | 'line'>[];
  readonly session: string;
  readonly run: string;
  /** Decision id of the call that asked. */
  readonly call: string;
  readonly asked: number;
  readonly expires: number;
  readonly decided?: {
    readonly by: string;
    readonly at: number;
    readonly reason?: string;
    /** The person at the caller's client decided in a form. */
    readonly form?: ApprovalForm;
  };
  readonly uses: number;
  /** Of a loop: the numbers of the calls that used it. One that a crash prevented is made later, and counts once. */
  readonly covered?: readonly number[];
}

/** What the person at the client did with the form of a request. `none`: no answer in time, or no valid one. */
export type ApprovalForm = 'accept' | 'decline' | 'cancel' | 'none';

/** A request with its stored text. It is replaced or removed only while the stored text is this one. */
export interface StoredApproval {
  readonly key: string;
  readonly text: string;
  readonly item: Approval;
}

const SPACE = 'approvals';

/** The requests of a state folder. Every method throws STATE_FAILED. */
export class ApprovalStore {
  readonly #state: State;

  constructor(state: State) {
    this.#state = state;
  }

  async find(key: string): Promise<StoredApproval | undefined> {
    const text = this.#state.get(SPACE, key);
    return text === undefined ? undefined : read(key, text);
  }

  /** Returns all requests, the oldest first. */
  async list(): Promise<readonly StoredApproval[]> {
    return [...this.#state.list(SPACE)]
      .map(([key, text]) => read(key, text))
      .sort((a, b) => a.item.asked - b.item.asked || (a.item.id < b.item.id ? -1 : 1));
  }

  /** Returns undefined if the key exists already. */
  async add(key: string, item: Approval): Promise<StoredApproval | undefined> {
    const text = JSON.stringify(item);
    return (await this.#state.swap(SPACE, key, { to: text })) ? { key, text, item } : undefined;
  }

  /** Returns false if the stored text has changed since it was read. */
  async replace({ key, text }: StoredApproval, item: Approval): Promise<boolean> {
    return this.#state.swap(SPACE, key, { from: text, to: JSON.stringify(item) });
  }

  /** Removes the request. Returns false if its text has changed, or if another process removed it first. */
  async take({ key, text }: StoredApproval): Promise<boolean> {
    return (await this.#state.take(SPACE, key, text)) !== undefined;
  }

  /**
   * Removes requests that have expired at `now`, and passes each to `record`, once over all processes. Returns the
   * others.
   */
  async sweep(now: number, record: (item: Approval) => void): Promise<readonly StoredApproval[]> {
    const standing: StoredApproval[] = [];
    for (const stored of await this.list()) {
      if (stored.item.expires > now) standing.push(stored);
      else if ((await this.take(stored)) && stored.item.state !== 'withdrawn') record(stored.item);
    }
    return standing;
  }
}

/** Returns the record of an event of a request. `of` adds the event's own fields. */
export function approvalEntry(
  item: Approval,
  event: 'asked' | 'questioned' | 'unanswered' | 'approved' | 'denied' | 'expired' | 'used' | 'refused' | 'withdrawn',
  of: Partial<ConsentEntry> = {},
): ConsentEntry {
  const { principal, effect } = item.binding;
  const { id, role, profiles, origin } = principal;
  const isOpen = event === 'asked' || event === 'questioned' || event === 'unanswered';
  const outcome = isOpen ? 'ask' : event === 'approved' || event === 'used' ? 'allow' : 'deny';
  const form = item.decided?.form;
  return {
    type: 'approval',
    event,
    id: item.id,
    outcome,
    principal: { id, role, profiles, origin },
    server: effect.server,
    tool: effect.tool,
    covers: item.loop === undefined ? item.scope : 'loop',
    binding: shortHash(item),
    ...(form !== undefined && { form }),
    ...of,
  };
}

/** The digits of the hash that identify a request for a person. */
export function shortHash({ hash }: Pick<Approval, 'hash'>): string {
  return hash.slice(0, 12);
}

/** An unreadable entry counts as not approved, and stays unchanged. */
function read(key: string, text: string): StoredApproval {
  try {
    return { key, text, item: JSON.parse(text) as Approval };
  } catch (cause) {
    throw new TollgateError('STATE_FAILED', {
      detail: 'An approval in the state database cannot be read, so no approval counts.',
      cause,
    });
  }
}
