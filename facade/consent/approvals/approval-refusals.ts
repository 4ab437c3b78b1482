/** Owns what a caller reads whose call waits for a person: which request, what to do, and what differs from a call that was approved; refuses to name values. */
import { cancelReason } from '../../../adapters/rpc/cancellation.ts';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { bindingDifferences, differingPointers } from './approval-binding.ts';
import { type CallToApprove, explainReasons, publicReasons } from './approval-port.ts';
import type { ApprovalRequest } from './approval-request.ts';
import type { Approval, StoredApproval } from './call-approval.ts';

/** An approved call of the same tool, and how this one is another. */
export interface NearestApproval {
  readonly item: Approval;
  readonly differs: readonly string[];
}

/** The approval that the caller may have meant: of this tool the one that differs in the fewest parts, of several the newest. */
export function findNearestApproval(
  { binding, shown }: ApprovalRequest,
  all: readonly StoredApproval[],
): NearestApproval | undefined {
  const near = all
    .filter(
      ({ item }) =>
        item.state === 'approved' &&
        item.scope === 'call' &&
        item.binding.effect.server === binding.effect.server &&
        item.binding.effect.tool === binding.effect.tool,
    )
    .map(({ item }) => ({ item, differs: bindingDifferences(item.binding, binding) }))
    // Of another caller's approvals it is told of that for the very same call alone: of others it would learn what somebody else does.
    .filter(
      ({ item, differs }) =>
        differs.length === 1 || (differs.length > 1 && item.binding.principal.id === binding.principal.id),
    );
  const [first, ...others] = near.reverse();
  if (first === undefined) return undefined;
  const { item, differs } = others.reduce(
    (best, one) => (one.differs.length < best.differs.length ? one : best),
    first,
  );
  return {
    item,
    differs: differs.map((words) =>
      words === 'arguments differ' ? `${words} ${differingPointers(item.argsText, shown.argsText)}` : words,
    ),
  };
}

/** The refusal of a call whose request is open. `isOver`: another configuration is in force by now. */
export function refusePending(
  { call }: ApprovalRequest,
  {
    known,
    isOver,
    nearest,
  }: { readonly known: Approval; readonly isOver: boolean; readonly nearest?: NearestApproval },
): TollgateError {
  const { reasons } = call.decision;
  const other =
    nearest === undefined ? '' : ` Approval ${nearest.item.id} does not cover it: ${nearest.differs.join('; ')}.`;
  const why = isOver
    ? 'The configuration changed while this call waited for approval, so it was not made.'
    : `A person must approve this call first, so it was not made: ${explainReasons(reasons)}`;
  return new TollgateError('APPROVAL_REQUIRED', {
    detail: `${why} Approval id ${known.id}.${other}`,
    next: isOver
      ? 'Repeat the same call: it is judged anew.'
      : `Tell the user: an owner decides with \`tollgate approvals show ${known.id}\`. Repeat the same call, unchanged, after the approval; go on with other work until then.`,
    data: {
      approval: known.id,
      expires: new Date(known.expires).toISOString(),
      reasons: publicReasons(reasons),
      ...(nearest === undefined ? {} : { differs: nearest.differs }),
    },
  });
}

/** No request was opened: a person has enough of them. */
export function refuseFullQueue({ call }: ApprovalRequest, seen: string): TollgateError {
  const { reasons } = call.decision;
  return new TollgateError('APPROVAL_REQUIRED', {
    detail: `A person must approve this call first, so it was not made: ${explainReasons(reasons)} Nobody was asked: ${seen}.`,
    next: 'Let the user decide those first (`tollgate approvals list`), then call again.',
    data: { reasons: publicReasons(reasons) },
  });
}

/** What equal calls are answered with until the denial expires. */
export function deniedBy({ id, decided }: Approval): TollgateError {
  const { by = 'An owner', reason } = decided ?? {};
  return new TollgateError('DENIED', {
    detail: `${by} has denied this call${reason === undefined ? '.' : `: ${reason}`}`,
    data: { approval: id },
  });
}

/** Throws: who gave up has no use for the refusal of a call, and a session that has ended has its own. */
export function refuseWithdrawn({ signal, caller }: CallToApprove): void {
  for (const gone of [signal, caller.session.closed]) {
    if (gone.aborted) throw cancelReason(gone);
  }
}
