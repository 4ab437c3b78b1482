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
import { checkTerms, type LoopTerms } from './loop-approval.ts';

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
  {
    scope,
    expireMs,
    loop,
    ...decider
  }: Decider & { readonly scope: ApprovalScope; readonly expireMs: number; readonly loop?: LoopTerms },
): Promise<Approval> {
  const { item } = stored;
  refuseOver(item);
  if (loop !== undefined) requireLoop(item, loop);
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
    expires: decider.now + (loop === undefined ? expireMs : loop.withinMs + KEEP_LOOP_MS),
    ...(loop !== undefined && { loop: { ...loop, until: decider.now + loop.withinMs } }),
    decided: decidedBy(decider),
  };
  await decider.record(approvalEntry(approved, 'approved', { by: decider.by }));
  const key = loop === undefined ? item.reach[scope] : item.asking?.loopKey;
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
  const holds =
    item.scope === 'call' && item.loop === undefined ? await store.replace(stored, denied) : await store.take(stored);
  return holds ? denied : changed(item);
}

/** A loop stays known after its time, so that a late call is refused by name. ms. */
const KEEP_LOOP_MS = 86_400_000;

/** Throws USAGE if this request cannot become the approval of a loop. */
function requireLoop({ id, asking }: Approval, terms: LoopTerms): void {
  if (asking === undefined || asking.again !== undefined)
    throw new TollgateError('USAGE', {
      detail:
        asking === undefined
          ? `${id} was not asked for by code, so it has no loop.`
          : `${id} is about a call that may have run already, so it is approved alone.`,
      next: `Approve it alone: \`tollgate approvals approve ${id}\`.`,
    });
  checkTerms(terms);
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
