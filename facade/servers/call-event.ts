/** Owns what hosts hear of a call that has ended, whatever became of it; has no place for arguments, results or words of a server. */
import type { ErrorCode, TollgateError } from '../../catalogs/errors.ts';
import type { Trace } from '../record.ts';

/**
 * The end of one call. `tool.refused`: it never went to a server. `id` is that of its decision, `exposed` the name that it was shown under,
 * `bytes` the size of the result that the caller was sent. `server` and `tool` are absent where no tool was found.
 */
export interface CallEvent {
  readonly event: 'tool.completed' | 'tool.failed' | 'tool.refused';
  readonly id: string;
  readonly server?: string;
  readonly tool?: string;
  readonly exposed?: string;
  readonly principal: string;
  readonly origin: string;
  readonly session: string;
  readonly run: string;
  readonly correlation?: string;
  readonly ms: number;
  readonly bytes: number;
  readonly executed: Trace['executed'];
  readonly code?: ErrorCode;
  /** Of a call that did not succeed: whether the same call may succeed later by itself. */
  readonly retryable?: boolean;
}

/** The event of a call that has ended at `now` (ms since 1970); `error`: what it was refused with, or how it failed. */
export function callEvent(trace: Trace, error: TollgateError | undefined, now: number): CallEvent {
  const { id, principal, session, caller, exposed, target, executed, startedAt, intended } = trace;
  const { server = exposed?.server.name, tool = exposed?.entry?.tool.name } = target?.effect ?? {};
  const failed = error !== undefined || trace.serverError === true || trace.shaped?.isError === true;
  return {
    event: !failed ? 'tool.completed' : intended === true ? 'tool.failed' : 'tool.refused',
    id,
    ...(server !== undefined && { server }),
    ...(tool !== undefined && { tool }),
    ...(exposed !== undefined && { exposed: exposed.name }),
    principal: principal.id,
    origin: principal.origin,
    session,
    run: caller?.run ?? session,
    ...(caller?.correlation !== undefined && { correlation: caller.correlation }),
    ms: now - startedAt,
    bytes: error !== undefined ? 0 : (trace.shaped?.sent ?? trace.errorBytes ?? 0),
    executed,
    ...(failed && { code: error?.code ?? 'TOOL_FAILED', retryable: error?.retryable ?? false }),
  };
}
