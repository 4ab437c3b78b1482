/**
 * The refusals for a caller whose call waits for a person. They name the request, the next step, and the differences
 * from an approved call. They contain no values of arguments.
 */
import { cancelReason } from '../../../adapters/rpc/cancellation.ts';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { bindingDifferences, differingPointers } from './approval-binding.ts';
import { type CallToApprove, explainReasons, publicReasons } from './approval-port.ts';
import type { ApprovalRequest } from './approval-request.ts';
import type { Approval, StoredApproval } from './call-approval.ts';

/** An approved call of the same tool, and how this call differs. */
export interface NearestApproval {
  readonly item: Approval;
  readonly differs: readonly string[];
}

/**
 * Returns the approval that the caller probably meant: for this tool the one that differs in the fewest parts, then the
 * newest.
 */
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
    // Of another caller's approvals, only one for exactly this call is named. Others would reveal what that caller
    // does.
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

/** Returns the refusal of a call whose request is open. `isOver`: a new configuration is in force. */
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
      ? 'Repeat the same call: it is decided again.'
      : `Tell the user: an owner decides with \`tollgate approvals show ${known.id}\`. ` +
        'After the approval, repeat the same call, unchanged. Until then, go on with other work.',
    retryable: isOver,
    data: {
      approval: known.id,
      expires: new Date(known.expires).toISOString(),
      reasons: publicReasons(reasons),
      ...(nearest === undefined ? {} : { differs: nearest.differs }),
    },
  });
}

/** Returns the refusal of a call for which no request was opened, because too many calls wait already. */
export function refuseFullQueue({ call }: ApprovalRequest, limit: string): TollgateError {
  const { reasons } = call.decision;
  return new TollgateError('APPROVAL_REQUIRED', {
    detail:
      `A person must approve this call first, so it was not made: ${explainReasons(reasons)} ` +
      `No one was asked: ${limit}.`,
    next: 'Let the user decide those first (`tollgate approvals list`), then call again.',
    data: { reasons: publicReasons(reasons) },
  });
}

/** Returns the refusal of a denied call. Equal calls get it until the denial expires. */
export function deniedBy({ id, decided, asking }: Approval): TollgateError {
  const { by = 'An owner', reason } = decided ?? {};
  const before = asking?.again === undefined ? '' : ' It may have run before its run of code was interrupted.';
  return new TollgateError('DENIED', {
    detail: `${by} has denied this call${reason === undefined ? '.' : `: ${reason}`}${before}`,
    data: { approval: id },
  });
}

/** Throws if the caller cancelled the call, or if its session ended. Such a call needs no refusal of its own. */
export function refuseWithdrawn({ signal, caller }: CallToApprove): void {
  for (const gone of [signal, caller.session.closed]) {
    if (gone.aborted) throw cancelReason(gone);
  }
}
