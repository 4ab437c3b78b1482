/** Owns one request for approval as the shared state keeps it, and how all of them are found; refuses what it cannot read instead of guessing. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { ApprovalScope, Reason } from '../../../policies/port.ts';
import type { ConsentEntry } from '../../audit/audit-entry.ts';
import type { State } from '../../state/state-port.ts';
import type { ApprovalBinding } from './approval-binding.ts';

/** A request, and what became of it. Times in ms since 1970. */
export interface Approval {
  /** Random, for people; it has no power of its own. */
  readonly id: string;
  /** Withdrawn: its call cannot run any more, so there is nothing to decide. */
  readonly state: 'pending' | 'approved' | 'denied' | 'withdrawn';
  /** What it covers: a wider one stands until it expires. */
  readonly scope: ApprovalScope;
  /** The most that it may be made to cover. */
  readonly widest: ApprovalScope;
  readonly binding: ApprovalBinding;
  /** Hash of the binding. */
  readonly hash: string;
  /** The keys under which a wider approval would stand. */
  readonly reach: Readonly<Partial<Record<ApprovalScope, string>>>;
  /** What was asked: the arguments as they will be sent, registered secrets as `***`, and how many those are. */
  readonly argsText: string;
  readonly concealed: number;
  readonly reasons: readonly Pick<Reason, 'id' | 'message' | 'file' | 'line'>[];
  readonly session: string;
  readonly run: string;
  /** Decision id of the call that asked. */
  readonly call: string;
  readonly asked: number;
  readonly expires: number;
  readonly decided?: { readonly by: string; readonly at: number; readonly reason?: string };
  readonly uses: number;
}

/** As it stands in the state: replaced and taken only while the text is this one. */
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

  /** All, the oldest first. */
  async list(): Promise<readonly StoredApproval[]> {
    return [...this.#state.list(SPACE)]
      .map(([key, text]) => read(key, text))
      .sort((a, b) => a.item.asked - b.item.asked || (a.item.id < b.item.id ? -1 : 1));
  }

  /** Undefined when something stands under the key already. */
  async add(key: string, item: Approval): Promise<StoredApproval | undefined> {
    const text = JSON.stringify(item);
    return (await this.#state.swap(SPACE, key, { to: text })) ? { key, text, item } : undefined;
  }

  /** False when it is not what was read any more. */
  async replace({ key, text }: StoredApproval, item: Approval): Promise<boolean> {
    return this.#state.swap(SPACE, key, { from: text, to: JSON.stringify(item) });
  }

  /** Removes it; false when another had it first, or it is not what was read any more. */
  async take({ key, text }: StoredApproval): Promise<boolean> {
    return (await this.#state.take(SPACE, key, text)) !== undefined;
  }

  /** Removes what has expired at `now`, and gives it to `record`, once in all processes; answers what stands. */
  async sweep(now: number, record: (item: Approval) => void): Promise<readonly StoredApproval[]> {
    const standing: StoredApproval[] = [];
    for (const stored of await this.list()) {
      if (stored.item.expires > now) standing.push(stored);
      else if ((await this.take(stored)) && stored.item.state !== 'withdrawn') record(stored.item);
    }
    return standing;
  }
}

/** A record of what became of a request. `of` adds what the event has of its own. */
export function approvalEntry(
  item: Approval,
  event: 'asked' | 'approved' | 'denied' | 'expired' | 'used' | 'refused' | 'withdrawn',
  of: Partial<ConsentEntry> = {},
): ConsentEntry {
  const { principal, effect } = item.binding;
  const { id, role, profiles, origin } = principal;
  const outcome = event === 'asked' ? 'ask' : event === 'approved' || event === 'used' ? 'allow' : 'deny';
  return {
    type: 'approval',
    event,
    id: item.id,
    outcome,
    principal: { id, role, profiles, origin },
    server: effect.server,
    tool: effect.tool,
    covers: item.scope,
    binding: shortHash(item),
    ...of,
  };
}

/** Enough of the hash to name what was shown. */
export function shortHash({ hash }: Pick<Approval, 'hash'>): string {
  return hash.slice(0, 12);
}

/** What cannot be read was not approved, and is left as it lies. */
function read(key: string, text: string): StoredApproval {
  try {
    return { key, text, item: JSON.parse(text) as Approval };
  } catch (cause) {
    throw new TollgateError('STATE_FAILED', {
      detail: 'An approval in the state database cannot be read, so none counts.',
      cause,
    });
  }
}
