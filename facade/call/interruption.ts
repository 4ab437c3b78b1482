/** Owns what becomes of calls and lists whose session ends under them; refuses to leave one without an answer. */
import { type CancelSignal, cancelReason } from '../../adapters/rpc/cancellation.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { CallTrace } from './record.ts';

/** The reason with which a session, or Tollgate, ends what still runs. */
export function interruptionError(detail: string): TollgateError {
  return new TollgateError('INTERRUPTED', { detail });
}

/** Whether the signal ends work whose client still waits: one that cancelled waits for nothing, and a time that is over has words of its own. */
export function isInterrupted({ aborted, reason }: CancelSignal): boolean {
  return aborted && reason instanceof TollgateError && (reason.code === 'INTERRUPTED' || reason.code === 'IDENTITY');
}

/** What a call failed of, in the words of what ended it, if something did. */
export function failureAfterInterruption(
  thrown: unknown,
  signal: CancelSignal,
  executed: CallTrace['executed'],
): unknown {
  if (!signal.aborted || !(thrown instanceof TollgateError)) return thrown;
  const reason = cancelReason(signal);
  if (thrown.code !== 'CANCELLED' && thrown.code !== reason.code) return thrown;
  if (!isInterrupted(signal) || (executed === 'no' && reason.code === 'IDENTITY')) return reason;
  return executed === 'no'
    ? notMade()
    : new TollgateError('INTERRUPTED', { detail: reason.message, data: { executed: 'unknown' }, cause: thrown });
}

/** The answer to work that was cut before anything was sent to a server. */
function notMade(): TollgateError {
  return new TollgateError('SHUTTING_DOWN', {
    detail: 'Nothing has run: Tollgate stops, or the session ended before.',
  });
}
