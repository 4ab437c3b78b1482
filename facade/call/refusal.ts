/**
 * What the caller gets instead of a result: a refusal as a tool result or a JSON-RPC error, as the error table says.
 * Private causes stay inside.
 */
import { UpstreamError } from '../../adapters/port.ts';
import { type CancelSignal, cancelReason } from '../../adapters/rpc/cancellation.ts';
import { errorJson } from '../../adapters/rpc/wire-message.ts';
import { asTollgateError, TollgateError } from '../../catalogs/errors/error-table.ts';
import { escapeHostile } from '../../catalogs/text/hostile-text.ts';
import { withoutOwnKeys } from '../../catalogs/tools/own-meta-keys.ts';
import type { EffectKind } from '../../policies/port.ts';
import type { OutcomeEntry } from '../audit/audit-entry.ts';
import { markExactNumbers, restoreExactNumbers } from '../output/exact-numbers.ts';
import type { HidePaths } from '../output/host-paths.ts';
import type { Redactor } from '../output/redactor.ts';
import { mapStrings } from '../output/result-cleaning.ts';
import type { Reply } from '../serve/facade-port.ts';
import { CORRELATION_KEY } from './identify.ts';

/**
 * Bytes of a server's error that pass unchanged, and characters of the message of a longer one: errors are capped as
 * results are.
 */
const ERROR_BYTES = 30_000;
const MESSAGE_CHARS = 2_000;

/** The JSON-RPC codes of a refusal whose error has none of its own, because tools are refused by a result. */
const REFUSED = -32011;
const INVALID_PARAMS = -32602;

/**
 * Returns the reply for anything thrown. A server's own JSON-RPC error passes unchanged, except that it is cleaned as a
 * result is and loses paths of the host. `kind`: what was requested; only a tool, the default, can be refused by a tool
 * result.
 */
export function refusalReply(
  thrown: unknown,
  call: {
    id: string;
    redactor: Redactor;
    hidePaths?: HidePaths;
    kind?: EffectKind | 'list';
    correlation?: string | undefined;
  },
): Reply {
  // Our own text may quote a server: its version, its revision, a name.
  const clean = <T>(value: T): T =>
    mapStrings(value, (text) => escapeHostile(call.redactor.redact(text).value).text) as T;
  if (thrown instanceof UpstreamError)
    return { kind: 'error', error: cleanUpstream(thrown.rpc, call), upstream: call.id };
  const error = asTollgateError(thrown);
  const { row, code, data, retryable } = error;
  if (row.wire === 'result' && (call.kind ?? 'tool') === 'tool') {
    const meta = {
      ...prefixed(data),
      'tollgate/code': code,
      'tollgate/decision': call.id,
      'tollgate/retryable': retryable,
      [CORRELATION_KEY]: call.correlation,
    };
    const text = `${error.message}\n${error.next}`;
    return {
      kind: 'result',
      text: JSON.stringify(clean({ content: [{ type: 'text', text }], isError: true, _meta: meta })),
    };
  }
  // Many clients show only the message, so it also says what to do next.
  const message = `${code === 'INTERNAL' ? row.what : error.message} ${error.next}`;
  return {
    kind: 'error',
    error: clean({
      code: row.rpc ?? (code === 'ARGS_INVALID' ? INVALID_PARAMS : row.wire === 'result' ? REFUSED : -32603),
      message,
      data: { ...data, code, next: error.next, retryable, decision: call.id, correlation: call.correlation },
    }),
  };
}

function cleanUpstream(
  rpc: UpstreamError['rpc'],
  { redactor, hidePaths }: { redactor: Redactor; hidePaths?: HidePaths },
): UpstreamError['rpc'] {
  const { code } = rpc;
  const told = (text: string): string => hidePaths?.(text).value ?? text;
  const given: unknown = JSON.parse(markExactNumbers(errorJson(rpc)));
  const clean = mapStrings(withoutOwnKeys(given), (text) => escapeHostile(told(redactor.redact(text).value)).text);
  const text = clean === given ? errorJson(rpc) : restoreExactNumbers(JSON.stringify(clean));
  const { message, data } = JSON.parse(text) as UpstreamError['rpc'];
  if (Buffer.byteLength(text) <= ERROR_BYTES) return { code, message, ...(data !== undefined && { data }), text };
  const start = message.slice(0, MESSAGE_CHARS).replace(/[\ud800-\udbff]$/, '');
  return { code, message: `${start} [tollgate: the error was cut here and its data was removed]` };
}

function prefixed(data: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(data).map(([key, value]) => [`tollgate/${key}`, value]));
}

/** Returns the reason with which the end of a session, or of Tollgate, ends running calls. */
export function interruptionError(detail: string): TollgateError {
  return new TollgateError('INTERRUPTED', { detail });
}

/**
 * Returns true if the signal ends work whose client still waits. A client that cancelled does not wait, and a timeout
 * has its own error.
 */
export function isInterrupted({ aborted, reason }: CancelSignal): boolean {
  return aborted && reason instanceof TollgateError && (reason.code === 'INTERRUPTED' || reason.code === 'IDENTITY');
}

/** Returns the failure of a call. If a signal ended the call, that is the signal's reason. */
export function failureAfterInterruption(
  thrown: unknown,
  signal: CancelSignal,
  executed: OutcomeEntry['executed'],
): unknown {
  if (!signal.aborted || !(thrown instanceof TollgateError)) return thrown;
  const reason = cancelReason(signal);
  if (thrown.code !== 'CANCELLED' && thrown.code !== reason.code) return thrown;
  if (reason.code === 'CANCELLED' && executed === 'no')
    return new TollgateError('CANCELLED', { detail: reason.message, next: 'Nothing was sent to a server.' });
  if (reason.code === 'SUSPENDED' && executed !== 'no')
    return new TollgateError('SUSPENDED', {
      detail: `${reason.message} The call had begun, and may have run.`,
      data: { ...reason.data, executed: 'unknown' },
    });
  if (!isInterrupted(signal) || (executed === 'no' && reason.code === 'IDENTITY')) return reason;
  return executed === 'no'
    ? notExecuted()
    : new TollgateError('INTERRUPTED', { detail: reason.message, data: { executed: 'unknown' }, cause: thrown });
}

/** Returns the answer to work that ended before anything was sent to a server. */
function notExecuted(): TollgateError {
  return new TollgateError('SHUTTING_DOWN', {
    detail: 'Tollgate is stopping, or the session ended, before the call was sent. Nothing ran.',
  });
}
