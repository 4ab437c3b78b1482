/**
 * Owns who calls: sessions and stage 1; refuses to take a role, a profile or an origin from anything that a client
 * says.
 */
import { randomBytes } from 'node:crypto';
import { setMaxListeners } from 'node:events';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Principal } from '../../policies/port.ts';
import type { CallRequest, HostSessionOptions, Session } from '../serve/facade-port.ts';

/** The key of `_meta` by which a host groups calls into a run (design §1). */
const RUN_KEY = 'tollgate/run';
/** The key of `_meta` by which a caller joins calls with what it knows of them itself. */
export const CORRELATION_KEY = 'tollgate/correlation';
const NAME_FORM = /^[A-Za-z0-9_.:-]{1,128}$/;

/** A list as a client was given it; without a text it was refused. */
export interface ShownList {
  readonly text: string | undefined;
  /** What people had decided before it was made: what they decide meanwhile is seen to differ. */
  readonly basis: string;
}

/** A session with what the facade remembers of it. */
export interface OpenSession extends Session {
  /** Changes when a new configuration says something else of this principal; a call keeps what it began with. */
  principal: Principal;
  /** What its last list came to. */
  shown?: ShownList;
  /** Exposed name → pin of the definition that this client was last shown. */
  readonly listed: Map<string, string>;
  /** Labels that any run of this session brought in, besides those that are sticky. */
  readonly labels: Set<string>;
  /** A result of this session was cut, and this tool reads the rest: its list shows it. */
  reads?: string;
  readonly end: AbortController;
}

/** What is known before the first stage. */
export interface CallStart {
  /** The decision id: it joins the records of one call. */
  readonly id: string;
  readonly principal: Principal;
  readonly session: string;
  readonly requestedName: string;
  readonly argBytes: number;
  /** Milliseconds since 1970. */
  readonly startedAt: number;
  /** The policy's revision. */
  readonly revision: string;
}

/** One call's caller, fixed at the start (stage 1). */
export interface Caller {
  readonly decision: string;
  readonly session: OpenSession;
  readonly principal: Principal;
  readonly run: string;
  /** The caller's own id of what the call is part of. It decides nothing. */
  readonly correlation?: string;
  readonly startedAt: number;
}

/** Opens a session; its id is 128 random bits. */
export function openSession(
  principal: Principal,
  transport: 'stdio' | 'http',
  host: HostSessionOptions = {},
): OpenSession {
  const end = new AbortController();
  // Many calls of one session wait for its end: that is no leak.
  setMaxListeners(0, end.signal);
  return {
    id: randomBytes(16).toString('hex'),
    principal,
    transport,
    closed: end.signal,
    end,
    listed: new Map(),
    labels: new Set(),
    ...host,
  };
}

/** Throws IDENTITY when the session has ended, with the reason where there is one. */
export function requireOpen({ closed }: Session): void {
  if (closed.aborted)
    throw closed.reason instanceof TollgateError && closed.reason.code === 'IDENTITY'
      ? closed.reason
      : new TollgateError('IDENTITY', { detail: 'The session has ended.' });
}

/**
 * Stage 1. The run is the session, or the name that the host gave under `_meta["tollgate/run"]`, bound to the principal
 * so that nobody joins another's run. Throws IDENTITY when the session has ended or the run's name is malformed,
 * WIRE_PARAMS for a correlation id that is.
 */
export function identify(
  session: OpenSession,
  request: CallRequest,
  start: Pick<CallStart, 'id' | 'startedAt'>,
): Caller {
  requireOpen(session);
  const named = request.meta?.[RUN_KEY];
  if (named !== undefined && (typeof named !== 'string' || !NAME_FORM.test(named))) {
    throw new TollgateError('IDENTITY', {
      detail: `_meta["${RUN_KEY}"] is not a name of 1 to 128 letters, digits, _ . : -`,
    });
  }
  const correlation = request.meta?.[CORRELATION_KEY];
  if (correlation !== undefined && (typeof correlation !== 'string' || !NAME_FORM.test(correlation))) {
    throw new TollgateError('WIRE_PARAMS', {
      detail: `_meta["${CORRELATION_KEY}"] is not a name of 1 to 128 letters, digits, _ . : -`,
    });
  }
  const run = named === undefined ? session.id : `${session.principal.id}/${named}`;
  return {
    decision: start.id,
    session,
    principal: session.principal,
    run,
    startedAt: start.startedAt,
    ...(correlation !== undefined && { correlation }),
  };
}
