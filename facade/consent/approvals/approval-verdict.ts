/**
 * Applies an owner's decision to a request: approved as far as the policy allows, or denied. A request that changed
 * since it was shown is refused.
 */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { APPROVAL_SCOPES, type ApprovalScope } from '../../../policies/port.ts';
import type { ConsentEntry } from '../../audit/audit-entry.ts';
import {
  type Approval,
  type ApprovalForm,
  type ApprovalStore,
  approvalEntry,
  type StoredApproval,
} from './call-approval.ts';

/**
 * Who decides, the time (ms since 1970), and `record`, which is called before the decision takes effect. `form`: the
 * person at the caller's client decides.
 */
export interface Decider {
  readonly by: string;
  readonly now: number;
  readonly reason?: string;
  readonly form?: ApprovalForm;
  readonly record: (entry: ConsentEntry) => Promise<void> | void;
}

/**
 * Approves a pending request. A wider approval is valid from now on for `expireMs`, and the waiting call uses it.
 * Throws USAGE if the request is not pending, was decided meanwhile, or `scope` is wider than the rules allow.
 */
export async function approveRequest(
  store: ApprovalStore,
  stored: StoredApproval,
  { scope, expireMs, ...decider }: Decider & { readonly scope: ApprovalScope; readonly expireMs: number },
): Promise<Approval> {
  const { item } = stored;
  refuseOver(item);
  if (item.state !== 'pending')
    throw new TollgateError('USAGE', {
      detail: `${item.id} is ${item.state} already.`,
      next: `\`tollgate approvals show ${item.id}\` shows who decided.`,
    });
  if (APPROVAL_SCOPES.indexOf(scope) > APPROVAL_SCOPES.indexOf(item.widest)) {
    const rules = item.reasons.map(({ id }) => id).join(', ');
    throw new TollgateError('USAGE', {
      detail: `The rules that ask allow one approval to cover the ${item.widest} at most.`,
      next: `Give --for ${item.widest}, or \`approval: ${scope}\` to each of these rules: ${rules}.`,
    });
  }
  const approved: Approval = {
    ...item,
    state: 'approved',
    scope,
    expires: decider.now + expireMs,
    decided: decidedBy(decider),
  };
  await decider.record(approvalEntry(approved, 'approved', { by: decider.by }));
  const key = item.reach[scope];
  const holds =
    key === undefined
      ? await store.replace(stored, approved)
      : (await store.take(stored)) && (await storeWider(store, key, approved));
  return holds ? approved : changed(item);
}

/**
 * Denies a pending request, so that equal calls are refused until it expires; or withdraws an approval. Throws USAGE if
 * it was decided or used meanwhile.
 */
export async function denyRequest(
  store: ApprovalStore,
  stored: StoredApproval,
  { expireMs, ...decider }: Decider & { readonly expireMs: number },
): Promise<Approval> {
  const { item } = stored;
  refuseOver(item);
  const denied: Approval = { ...item, state: 'denied', expires: decider.now + expireMs, decided: decidedBy(decider) };
  await decider.record(approvalEntry(denied, 'denied', { by: decider.by }));
  // A wider approval has no single call to refuse. After it is removed, its calls ask again.
  const holds = item.scope === 'call' ? await store.replace(stored, denied) : await store.take(stored);
  return holds ? denied : changed(item);
}

/** Throws USAGE for a withdrawn request, because its call cannot run. */
export function refuseOver({ id, state, decided }: Approval): void {
  if (state !== 'withdrawn') return;
  throw new TollgateError('USAGE', {
    detail: `${id} has ended, because its call cannot run any more: ${decided?.reason ?? ''}`,
    next: 'There is nothing to decide. If the call is made again, it asks again.',
  });
}

/** Stores a wider approval. It replaces the approval that has the same key. */
async function storeWider(store: ApprovalStore, key: string, approved: Approval): Promise<boolean> {
  const before = await store.find(key);
  if (before !== undefined) await store.take(before);
  return (await store.add(key, approved)) !== undefined;
}

function decidedBy({ by, now, reason, form }: Decider): NonNullable<Approval['decided']> {
  return { by, at: now, ...(reason === undefined ? {} : { reason }), ...(form === undefined ? {} : { form }) };
}

function changed({ id }: Approval): never {
  throw new TollgateError('USAGE', {
    detail: `${id} was decided or used or has expired meanwhile, so this decision has no effect.`,
    next: 'List the requests again: `tollgate approvals list`.',
  });
}
