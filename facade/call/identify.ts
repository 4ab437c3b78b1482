/**
 * Stage 1, identify: the session, its principal and its run. Role, profile and origin are never taken from what a
 * client sends.
 */
import { hash, randomBytes } from 'node:crypto';
import { setMaxListeners } from 'node:events';
import { Cancellation, type CancelSignal } from '../../adapters/rpc/cancellation.ts';
import { sizeOfDoc } from '../../adapters/rpc/wire-message.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { EffectKind, Principal } from '../../policies/port.ts';
import type { CallRequest, HostSessionOptions, Operator, Session } from '../serve/facade-port.ts';

/** The key of `_meta` by which a host groups calls into a run. */
const RUN_KEY = 'tollgate/run';
/** The key of `_meta` under which a caller gives its own id of a call. */
export const CORRELATION_KEY = 'tollgate/correlation';
const NAME_FORM = /^[A-Za-z0-9_.:-]{1,128}$/;

/** A list as a client received it. Without a text, it was refused. */
export interface ShownList {
  readonly text: string | undefined;
  /** What people had decided when the list was made. A later decision gives another text. */
  readonly basis: string;
}

/** One running call. `end` must be called when it has ended. */
export interface OpenCall {
  /** Aborted as the signal of the request, or by `RunningCalls.endAll`. */
  readonly signal: CancelSignal;
  readonly end: () => void;
}

/** The calls of one session that have not ended, so that a decision of an owner can end them. */
export class RunningCalls {
  readonly #calls = new Set<Cancellation>();

  get size(): number {
    return this.#calls.size;
  }

  /** Adds a call. `asked`: the signal of its request. */
  begin(asked: CancelSignal): OpenCall {
    const call = new Cancellation();
    const onAbort = (): void => call.abort(asked.reason as Error);
    if (asked.aborted) onAbort();
    else asked.addEventListener('abort', onAbort, { once: true });
    this.#calls.add(call);
    return {
      signal: call,
      end: () => {
        this.#calls.delete(call);
        asked.removeEventListener('abort', onAbort);
      },
    };
  }

  /** Ends all calls. Each is answered with the reason. */
  endAll(reason: TollgateError): void {
    for (const call of this.#calls) call.abort(reason);
  }
}

/** A session with what the facade keeps about it. */
export interface OpenSession extends Session {
  /** A new configuration may replace it. A call keeps the principal that it began with. */
  principal: Principal;
  /** Its last list. */
  shown?: ShownList;
  /** Exposed name → pin of the definition that this client was last shown. */
  readonly listed: Map<string, string>;
  /** Exposed name → pin of the definition of a tool that the session found or called by name, the latest last. */
  readonly found: Map<string, string>;
  /** Increases whenever `found` changes the session's list. */
  finds: number;
  /** Labels that any run of this session read, without sticky ones. */
  readonly labels: Set<string>;
  /** Server and own URI of the resources that the client follows, separated by a space. */
  readonly subscribed: Set<string>;
  /** The tool that reads the rest of a cut result. The session's list shows it after the first cut. */
  reads?: string;
  readonly calls: RunningCalls;
  readonly end: AbortController;
  /** By the clock of `performance.now`. */
  readonly openedAt: number;
}

/** What is known before the first stage. */
export interface CallStart {
  /** The decision id: it joins the records of one call. */
  readonly id: string;
  readonly principal: Principal;
  readonly session: string;
  readonly requestedName: string;
  readonly kind: EffectKind;
  readonly argBytes: number;
  readonly via?: CallRequest['via'] | undefined;
  /** Milliseconds since 1970. */
  readonly startedAt: number;
  /** The policy's revision. */
  readonly revision: string;
  /** The owner who calls by hand for the principal. */
  readonly operator?: Operator | undefined;
}

/** Returns what is known of a call before its first stage. */
export function callStart(
  { newId, now }: { readonly newId: () => string; readonly now: () => number },
  { session, kind, revision }: { readonly session: OpenSession } & Pick<CallStart, 'kind' | 'revision'>,
  { name, args, via }: CallRequest,
): CallStart {
  return {
    id: newId(),
    principal: session.principal,
    session: session.id,
    requestedName: name,
    kind,
    argBytes: sizeOfDoc(args),
    via,
    startedAt: now(),
    revision,
    operator: session.operator,
  };
}

/** One call's caller, fixed at the start (stage 1). */
export interface Caller {
  readonly decision: string;
  readonly session: OpenSession;
  readonly principal: Principal;
  readonly run: string;
  /** The caller's own id of the call. No decision depends on it. */
  readonly correlation?: string;
  /** The decision id of the call during which a server made this request, or during which code made this call. */
  readonly parent?: string | undefined;
  readonly startedAt: number;
}

/** Returns the name of a session in the shared state, where its id must not be readable. */
export function sessionKey(id: string): string {
  return hash('sha256', id, 'hex');
}

/** Opens a session. Its id is 128 random bits. */
export function openSession(
  principal: Principal,
  transport: 'stdio' | 'http',
  host: HostSessionOptions = {},
): OpenSession {
  const end = new AbortController();
  // Many calls of one session listen for its end. This is not a leak.
  setMaxListeners(0, end.signal);
  return {
    id: randomBytes(16).toString('hex'),
    principal,
    transport,
    closed: end.signal,
    end,
    calls: new RunningCalls(),
    openedAt: performance.now(),
    listed: new Map(),
    found: new Map(),
    finds: 0,
    labels: new Set(),
    subscribed: new Set(),
    client: {},
    ...host,
  };
}

/** Throws IDENTITY if the session has ended, with the reason if one is known. */
export function requireOpen({ closed }: Session): void {
  if (closed.aborted)
    throw closed.reason instanceof TollgateError && closed.reason.code === 'IDENTITY'
      ? closed.reason
      : new TollgateError('IDENTITY', { detail: 'The session has ended.' });
}

/**
 * Identifies the caller. The run is the session, or the name under `_meta["tollgate/run"]`, prefixed with the principal
 * so that no one can join another principal's run. Throws IDENTITY if the session has ended or the name is malformed,
 * WIRE_PARAMS for a malformed correlation id, and the refusal that
 * the transport has found.
 */
export function identify(
  session: OpenSession,
  request: CallRequest,
  start: Pick<CallStart, 'id' | 'startedAt'>,
): Caller {
  requireOpen(session);
  if (request.refusal !== undefined) throw request.refusal;
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
    parent: request.parent,
    ...(correlation !== undefined && { correlation }),
  };
}
