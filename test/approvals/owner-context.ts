/**
 * The owner's side of approvals for tests: a second connection to the state of a running facade, as the command line
 * has.
 */
import { createHmac } from 'node:crypto';
import type { ConsentEntry } from '../../facade/audit/audit-entry.ts';
import { openSession } from '../../facade/call/identify.ts';
import { ApprovalQueue } from '../../facade/consent/approvals/approval-queue.ts';
import { approveRequest, denyRequest } from '../../facade/consent/approvals/approval-verdict.ts';
import { type Approval, ApprovalStore, type StoredApproval } from '../../facade/consent/approvals/call-approval.ts';
import { Redactor } from '../../facade/output/redactor.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import type { State } from '../../facade/state/state-port.ts';
import type { ApprovalScope, Effect, Principal, Reason } from '../../policies/port.ts';

/** An owner who decides about the requests in a state folder. */
export class ApprovalOwner {
  readonly state: State;
  readonly store: ApprovalStore;
  /** The records that this owner's acts would leave in the audit. */
  readonly records: ConsentEntry[] = [];

  constructor(folder: string) {
    this.state = openState(folder);
    this.store = new ApprovalStore(this.state);
  }

  /** Returns the requests, of one state if it is given. */
  async all(state?: Approval['state']): Promise<readonly StoredApproval[]> {
    return (await this.store.list()).filter(({ item }) => state === undefined || item.state === state);
  }

  /** Returns the only open request. */
  async open(): Promise<StoredApproval> {
    const open = await this.all('pending');
    if (open.length !== 1) throw new Error(`${open.length} requests are open`);
    return open[0] as StoredApproval;
  }

  async approve(scope: ApprovalScope = 'call', expireMs = 60_000): Promise<Approval> {
    return this.approveOne(await this.open(), scope, expireMs);
  }

  async approveOne(stored: StoredApproval, scope: ApprovalScope = 'call', expireMs = 60_000): Promise<Approval> {
    return approveRequest(this.store, stored, {
      by: 'olga',
      now: Date.now(),
      record: (entry) => void this.records.push(entry),
      scope,
      expireMs,
    });
  }

  async deny(reason?: string, stored?: StoredApproval): Promise<Approval> {
    return denyRequest(this.store, stored ?? (await this.open()), {
      by: 'olga',
      now: Date.now(),
      record: (entry) => void this.records.push(entry),
      expireMs: 60_000,
      ...(reason === undefined ? {} : { reason }),
    });
  }

  /** Lets the clock of every request advance. */
  async age(ms: number): Promise<void> {
    for (const stored of await this.all())
      await this.store.replace(stored, { ...stored.item, expires: stored.item.expires - ms });
  }

  async close(): Promise<void> {
    await this.state.close();
  }
}

/** A call that needs approval, with the least that a test must say. */
export interface Asking {
  readonly principal?: string;
  readonly argsText?: string;
  readonly effect?: Partial<Effect>;
  readonly reasons?: readonly Reason[];
  readonly now?: number;
}

/**
 * Asks for approval like a facade that does not wait. Returns the code of the answer, or `used` and the approval id.
 */
export async function askFor(
  state: State,
  {
    principal = 'agent',
    argsText = '{}',
    effect = {},
    reasons = [{ id: 'asks', message: 'Somebody must look.', file: 'rules.yaml', line: 3 }],
    now = Date.now(),
  }: Asking = {},
): Promise<string> {
  const by: Principal = { id: principal, role: 'developer', groups: [], profiles: ['default'], origin: 'cli' };
  const session = openSession(by, 'stdio');
  const queue = new ApprovalQueue({
    settings: { waitMs: 0, expireMs: 600_000 },
    state,
    append: () => undefined,
    digest: (text) => createHmac('sha256', 'k').update(text).digest('hex'),
    redactor: new Redactor(),
    now: () => now,
    pinOf: () => undefined,
    setOf: () => 'set',
    refusalOf: async () => undefined,
    asksCaller: () => false,
    onAsked: () => undefined,
    onWaiting: () => undefined,
  });
  const call = {
    caller: { decision: 'd1', session, principal: by, run: 'agent/task', startedAt: now },
    effect: { verb: 'write' as const, server: 'mail', tool: 'send', paths: [], urls: [], ...effect },
    argsText,
    sentText: argsText,
    decision: {
      outcome: 'ask' as const,
      reasons,
      shadow: [],
      obligations: { caps: {}, pins: {}, budgets: [], labels: [] },
    },
    revision: 'r',
    pin: 'p',
    signal: session.closed,
    recheck: async () => undefined,
  };
  return queue.obtain(call).then(
    (id) => `used ${id}`,
    (thrown: { code?: unknown }) => String(thrown.code),
  );
}
