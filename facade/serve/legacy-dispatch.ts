/**
 * The protocol of sessions that begin with `initialize`. Unknown methods, and requests before the handshake, are
 * refused.
 */
import type { IncomingHttpHeaders } from 'node:http';
import { LOG_LEVELS, type LogLevel } from '../../adapters/port.ts';
import type { CancelSignal } from '../../adapters/rpc/cancellation.ts';
import { isId, isObject, type JsonObject, type WireMessage } from '../../adapters/rpc/message-parser.ts';
import type { JsonDoc, WireText } from '../../adapters/rpc/wire-message.ts';
import { asTollgateError, TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Awaitable } from '../../catalogs/text/awaitable.ts';
import { interruptionError } from '../call/refusal.ts';
import { ClientRequests } from './client-requests.ts';
import {
  type CallRequest,
  type ClientNotice,
  type Facade,
  LIST_METHODS,
  type ListMethod,
  type Reply,
  type SendMessage,
  type Session,
} from './facade-port.ts';
import { negotiate } from './protocol-revisions.ts';
import { notificationText, refusalText, replyText, resultText } from './reply-text.ts';
import { type ClientAddress, type RequestTrace, reportAnswer } from './request-trace.ts';
import { RunningRequests } from './running-requests.ts';
import { VERSION } from './version.ts';

type RequestMessage = Extract<WireMessage, { kind: 'request' }>;

const LISTS: ReadonlySet<string> = new Set(LIST_METHODS);
/** Methods whose params name a tool or a prompt, and its arguments. */
const NAMED: ReadonlySet<string> = new Set(['tools/call', 'prompts/get']);

const NO_ARGUMENTS: JsonDoc<unknown> = { text: '{}', value: {}, exact: true };
const TOOLS_CHANGED = notificationText('notifications/tools/list_changed');

/** The session protocol of revisions 2024-11-05 to 2025-11-25. */
export class LegacyDispatch implements Dispatch {
  readonly #facade: Facade;
  readonly #session: Session;
  readonly #options: DispatchOptions;
  /** By the client's own id, in the client's own type: 1 and "1" are two requests. */
  readonly #running = new RunningRequests();
  readonly #drained = new AbortController();
  readonly #requests: ClientRequests;
  #initialized = false;
  /** The revision that the handshake agreed on. */
  #revision: string | undefined;
  #changeTold = false;
  #draining = false;
  #closed: Promise<void> | undefined;

  constructor(options: DispatchOptions) {
    this.#facade = options.facade;
    this.#session = options.session;
    this.#options = options;
    this.#requests = new ClientRequests(options.notify);
    this.#revision = options.resumed;
    this.#initialized = options.resumed !== undefined;
  }

  get revision(): string | undefined {
    return this.#revision;
  }

  get running(): number {
    return this.#running.size + this.#facade.runningTasks(this.#session);
  }

  handle(message: WireMessage, send: SendMessage, visit?: HttpVisit): Awaitable<WireText | undefined> {
    if (message.kind === 'request') {
      const { follow } = this.#facade;
      const trace = follow?.(this.#session, message, { version: this.#revision, client: visit?.client });
      return reportAnswer(trace, this.#answer(message, send, trace));
    }
    if (message.kind === 'invalid') return refusalText(message.id, message.error);
    if (message.kind === 'notification' && message.method === 'notifications/cancelled')
      this.#cancel(message.params?.value.requestId);
    else if (message.kind !== 'notification') this.#requests.settle(message);
    // Other notifications need no action.
    return undefined;
  }

  toolsChanged(): void {
    if (!this.#initialized || this.#changeTold) return;
    this.#changeTold = true;
    setImmediate(() => {
      this.#changeTold = false;
      if (this.#closed === undefined) this.#options.notify(TOOLS_CHANGED);
    });
  }

  notice({ method, params }: ClientNotice): void {
    if (this.#initialized && this.#closed === undefined) this.#options.notify(notificationText(method, params));
  }

  drain(): Promise<void> {
    this.#draining = true;
    this.#drained.abort();
    return this.#running.idle();
  }

  close(why: string, how?: 'released'): Promise<void> {
    return (this.#closed ??= this.#close(why, how));
  }

  async #close(why: string, how?: 'released'): Promise<void> {
    await this.stop(why);
    await this.#facade.closeSession(this.#session, how).catch(this.#options.onFault);
  }

  /** Does the same as `close`, but the session stays open. */
  async stop(why: string): Promise<void> {
    const idle = this.drain();
    this.#running.cancelAll(interruptionError(why));
    this.#requests.end(interruptionError(why));
    await idle;
  }

  #answer(
    request: RequestMessage,
    send: SendMessage,
    trace: RequestTrace | undefined,
  ): Awaitable<WireText | undefined> {
    const { id, method } = request;
    try {
      if (method === 'initialize') return resultText(id, this.#initialize(request));
      if (!this.#initialized && method !== 'ping') throw new TollgateError('NOT_INITIALIZED');
      // Two running requests with one id could not be told apart, neither their answers nor a cancellation.
      if (this.#running.has(id))
        throw new TollgateError('WIRE_ID', {
          detail: 'A request with this id is still running.',
          next: 'Use each id once.',
        });
      if (method === 'ping') return resultText(id, '{}');
      if (method === 'logging/setLevel') return resultText(id, this.#setLevel(request));
      if (this.#draining) throw new TollgateError('SHUTTING_DOWN');
      return this.#run(request, send, trace);
    } catch (thrown) {
      return this.#refuse(id, thrown);
    }
  }

  #refuse(id: string | number, thrown: unknown): string {
    if (!(thrown instanceof TollgateError)) this.#options.onFault(thrown);
    return refusalText(id, asTollgateError(thrown));
  }

  #initialize(request: RequestMessage): string {
    const { capabilities } = request.params?.value ?? {};
    this.#session.isStateless = false;
    if (isObject(capabilities)) this.#session.client = capabilities;
    const instructions = this.#facade.instructions(this.#session);
    this.#initialized = true;
    this.#revision = negotiate(request.params?.value.protocolVersion);
    return JSON.stringify({
      protocolVersion: this.#revision,
      capabilities: this.#facade.capabilities(this.#session),
      serverInfo: { name: 'tollgate', version: VERSION },
      ...(instructions === '' ? {} : { instructions }),
    });
  }

  #setLevel({ params }: RequestMessage): string {
    const level = params?.value.level;
    if (!LOG_LEVELS.includes(level as LogLevel))
      throw new TollgateError('WIRE_PARAMS', { detail: `level is none of ${LOG_LEVELS.join(', ')}.` });
    this.#facade.setLogLevel(this.#session, level as LogLevel);
    return '{}';
  }

  #run(request: RequestMessage, send: SendMessage, trace: RequestTrace | undefined): Promise<WireText | undefined> {
    const { id } = request;
    const work = LISTS.has(request.method) ? this.#prepareList(request) : this.#prepareCall(request, send, trace);
    return this.#running.run(id, work, {
      text: (reply) => replyText(id, reply),
      refuse: (thrown) => this.#refuse(id, thrown),
    });
  }

  #prepareList(request: RequestMessage): (signal: CancelSignal) => Promise<Reply> {
    refuseCursor(request.params);
    return (signal) => this.#facade.list(this.#session, request.method as ListMethod, signal);
  }

  #prepareCall(
    request: RequestMessage,
    send: SendMessage,
    trace: RequestTrace | undefined,
  ): (signal: CancelSignal) => Promise<Reply> {
    const { name, meta, token, args, task } = readCall(request);
    const { method } = request;
    return (signal) => {
      const notify = (notice: ClientNotice): void => {
        const text = notificationText(notice.method, notice.params);
        // Not after the answer, because another request may have the id then. A task goes on after the answer.
        if (this.#running.isOpen(request.id, signal)) send(text);
        else if (task !== undefined && this.#closed === undefined) this.#options.notify(text);
      };
      const onProgress = (params: Readonly<Record<string, unknown>>): void =>
        notify({ method: 'notifications/progress', params: { ...params, progressToken: token } });
      const call: CallRequest = {
        method,
        name,
        args,
        signal,
        drained: this.#drained.signal,
        meta,
        onProgress: token === undefined ? undefined : onProgress,
        ask: this.#requests.in(send),
        notify,
        task,
        trace,
      };
      return this.#facade.perform(this.#session, call);
    };
  }

  #cancel(id: unknown): void {
    if (typeof id !== 'string' && typeof id !== 'number') return;
    this.#running.cancel(id, new TollgateError('CANCELLED'));
  }
}

/** What the params of a request say. */
export interface CallParams {
  readonly name: string;
  readonly args: JsonDoc<unknown>;
  readonly meta: Readonly<Record<string, unknown>> | undefined;
  /** In the client's own type, which must come back unchanged. */
  readonly token: string | number | undefined;
  /** The client asks that the tool runs as a task. */
  readonly task: CallRequest['task'];
}

/** Reads the params of a request that is no list. Throws WIRE_PARAMS. */
export function readCall({
  method,
  params,
  args: given,
}: Pick<RequestMessage, 'method' | 'params' | 'args'>): CallParams {
  const { name: named, _meta } = params?.value ?? {};
  const isNamed = NAMED.has(method);
  if (isNamed && typeof named !== 'string')
    throw new TollgateError('WIRE_PARAMS', { detail: `${method} needs a name, as a string.` });
  const name = isNamed ? String(named) : method;
  const args = (isNamed ? given : params) ?? NO_ARGUMENTS;
  const task = method === 'tools/call' ? readTask(params?.value.task) : undefined;
  if (_meta === undefined) return { name, args, meta: undefined, token: undefined, task };
  if (!isObject(_meta)) throw new TollgateError('WIRE_PARAMS', { detail: '_meta is not an object.' });
  const { progressToken, ...meta } = _meta;
  if (progressToken === undefined || isId(progressToken)) return { name, args, meta, token: progressToken, task };
  // A number that a double cannot represent would come back as another token.
  throw new TollgateError('WIRE_PARAMS', { detail: 'progressToken is neither a string nor an integer.' });
}

function readTask(task: unknown): CallRequest['task'] {
  if (task === undefined) return undefined;
  const ttl = isObject(task) ? task.ttl : null;
  if (ttl === undefined || (typeof ttl === 'number' && Number.isFinite(ttl))) return { ttlMs: ttl };
  throw new TollgateError('WIRE_PARAMS', { detail: 'task is not an object, or its ttl is not a number.' });
}

/** Throws WIRE_PARAMS on a cursor: the list has one page, and an unknown cursor could make a client loop for ever. */
export function refuseCursor(params: JsonDoc<JsonObject> | undefined): void {
  if ((params?.value.cursor ?? '') === '') return;
  throw new TollgateError('WIRE_PARAMS', {
    detail: 'The list has one page; this cursor was not given out here.',
    next: 'List without a cursor.',
  });
}
/** What a session's protocol works with. */
export interface DispatchOptions {
  readonly facade: Facade;
  readonly session: Session;
  /** For notifications that belong to the session and to no request. */
  readonly notify: SendMessage;
  /** Called with an unexpected error. */
  readonly onFault: (thrown: unknown) => void;
  /** The revision of a session whose `initialize` another replica has answered. */
  readonly resumed?: string;
}

/** What a stateless request over HTTP brings besides its message. */
export interface HttpSide {
  readonly headers: IncomingHttpHeaders;
  /** Aborted when the client closes the response before its end. */
  readonly closed: CancelSignal;
  /** Called with a refusal, for the status of the response. */
  readonly onRefused: (error: TollgateError) => void;
}

/** What a message over HTTP brings. */
export interface HttpVisit {
  /** The other end of its connection. */
  readonly client: ClientAddress;
  /** Present for stateless requests. */
  readonly stateless?: HttpSide;
}

/** The protocol of one session, on any transport. */
export interface Dispatch {
  /** Requests that have no reply yet. */
  readonly running: number;
  /** The revision that `initialize` agreed on. */
  readonly revision?: string | undefined;
  /**
   * Returns the reply's text; undefined if there is none (notifications, responses, cancelled requests). `send` gets
   * the notifications that belong to this message. Never rejects.
   */
  handle(message: WireMessage, send: SendMessage, visit?: HttpVisit): Awaitable<WireText | undefined>;
  /** Tells the client, once per turn of the event loop, that its tool list may have changed. */
  toolsChanged(): void;
  /** Sends a notification that belongs to no request. */
  notice(notice: ClientNotice): void;
  /** Sends again what slow clients have missed. */
  retell?(): void;
  /** Ends streams of notifications. Their clients may open others. */
  endStreams?(): void;
  /**
   * From now on requests are refused with SHUTTING_DOWN, and no call waits for a person. Resolves when nothing runs.
   */
  drain(): Promise<void>;
  /**
   * Cancels what runs, waits until each request has its answer, and ends the session. `why`: one sentence for the
   * answers. `released`: another replica may continue the session. Never rejects.
   */
  close(why: string, how?: 'released'): Promise<void>;
}
