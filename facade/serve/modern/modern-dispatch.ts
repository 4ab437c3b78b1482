/**
 * The protocol of revision 2026-07-28. A request says everything about itself, so there is no handshake. What counts by
 * session counts by a virtual one ([decision 83](docs/decisions/0083-virtual-sessions.md)).
 */
import { LOG_LEVELS, type LogLevel } from '../../../adapters/port.ts';
import type { CancelSignal } from '../../../adapters/rpc/cancellation.ts';
import { STATELESS_REVISION } from '../../../adapters/rpc/connection.ts';
import { jsonMembers } from '../../../adapters/rpc/message-parser.ts';
import { isObject, type JsonRpcError, type WireMessage, type WireText } from '../../../adapters/rpc/wire-message.ts';
import { asTollgateError, TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { Awaitable } from '../../../catalogs/text/awaitable.ts';
import { interruptionError } from '../../call/refusal.ts';
import {
  type CallRequest,
  type ClientNotice,
  type Facade,
  LIST_METHODS,
  type ListMethod,
  type Reply,
  type SendMessage,
  type Session,
} from '../facade-port.ts';
import {
  type Dispatch,
  type DispatchOptions,
  type HttpSide,
  type HttpVisit,
  refuseCursor,
} from '../legacy-dispatch.ts';
import { SUPPORTED_REVISIONS } from '../protocol-revisions.ts';
import { notificationText, refusalText, replyText, resultText } from '../reply-text.ts';
import { type RequestTrace, reportAnswer } from '../request-trace.ts';
import { RunningRequests } from '../running-requests.ts';
import { AskingCalls } from './asking-calls.ts';
import { NotificationStreams } from './notification-streams.ts';
import type { RequestChannel } from './parked-calls.ts';
import { completeResult, enveloped, envelopeOf } from './result-envelope.ts';
import {
  checkArgumentHeaders,
  type RequestMessage,
  readStateless,
  type StatelessRequest,
} from './stateless-request.ts';

/** Methods whose calls may ask the client (MCP 2026-07-28, basic/patterns/mrtr, supported requests). */
const ASKING: ReadonlySet<string> = new Set(['tools/call', 'prompts/get', 'resources/read']);
const LISTS: ReadonlySet<string> = new Set(LIST_METHODS);
/** Methods of the extension for tasks, and its name (https://modelcontextprotocol.github.io/ext-tasks). */
const TASKS: ReadonlySet<string> = new Set(['tasks/get', 'tasks/update', 'tasks/cancel']);
const TASKS_EXTENSION = 'io.modelcontextprotocol/tasks';
/** The longest name of an unknown method in a record. */
const MAX_METHOD = 128;
/** Numbers that this revision does not allow, and those in their place: of a missing resource, and of URLs to open. */
const OTHER_NUMBERS: ReadonlyMap<number, number> = new Map([
  [-32002, -32602],
  [-32042, -32603],
]);

/** A request, and where its answer goes. */
interface Incoming {
  readonly request: StatelessRequest;
  readonly send: SendMessage;
  readonly http: HttpSide | undefined;
  readonly trace: RequestTrace | undefined;
}

/** The protocol of stateless requests. */
export class ModernDispatch implements Dispatch {
  readonly #facade: Facade;
  readonly #session: Session;
  readonly #options: DispatchOptions;
  /** By the id of the request over stdio. Over HTTP, two clients may use one id, so the message itself is the key. */
  readonly #running = new RunningRequests();
  readonly #asking: AskingCalls;
  readonly #streams: NotificationStreams;
  readonly #drained = new AbortController();
  #closed: Promise<void> | undefined;

  constructor(options: DispatchOptions) {
    const { facade, session } = options;
    this.#facade = facade;
    this.#session = session;
    this.#options = options;
    this.#asking = new AskingCalls(facade, session);
    this.#streams = new NotificationStreams(facade, session);
  }

  get running(): number {
    return this.#running.size + this.#asking.parked + this.#facade.runningTasks(this.#session);
  }

  handle(message: WireMessage, send: SendMessage, visit?: HttpVisit): Awaitable<WireText | undefined> {
    const http = visit?.stateless;
    if (message.kind === 'request') {
      this.#session.isStateless ??= true;
      const { follow } = this.#facade;
      const trace = follow?.(this.#session, message, { version: STATELESS_REVISION, client: visit?.client });
      return reportAnswer(trace, this.#answer(message, { send, http, trace }));
    }
    if (message.kind === 'invalid') return refusalText(message.id, message.error);
    // Over HTTP, a client cancels by closing the response.
    if (message.kind === 'notification' && message.method === 'notifications/cancelled' && http === undefined)
      this.#running.cancel(message.params?.value.requestId, new TollgateError('CANCELLED'));
    return undefined;
  }

  toolsChanged(): void {
    this.#streams.notice({ method: 'notifications/tools/list_changed' });
  }

  notice(notice: ClientNotice): void {
    this.#streams.notice(notice);
  }

  retell(): void {
    this.#streams.retell();
  }

  endStreams(): void {
    this.#streams.endOpen();
  }

  async drain(): Promise<void> {
    this.#drained.abort();
    this.#streams.end();
    await this.#asking.end(interruptionError('Tollgate stopped while the call waited for its client.'));
    await this.#running.idle();
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
    await idle;
  }

  #answer(message: RequestMessage, { send, http, trace }: Omit<Incoming, 'request'>): Awaitable<WireText | undefined> {
    const { id, method } = message;
    try {
      const request = readStateless(message, http?.headers);
      const key = http === undefined ? id : message;
      if (this.#running.has(key))
        throw new TollgateError('WIRE_ID', {
          detail: 'A request with this id is still running.',
          next: 'Use each id once.',
        });
      if (this.#drained.signal.aborted) throw new TollgateError('SHUTTING_DOWN');
      // Servers that start later learn what clients of the session support. Each question is checked again.
      this.#session.client = { ...this.#session.client, ...request.client };
      if (request.logLevel !== undefined) this.#lowerLevel(request.logLevel);
      if (method === 'server/discover') return resultText(id, this.#discover());
      const work = this.#prepare({ request, send, http, trace });
      const answer = this.#running.run(key, work, {
        text: (text) => text,
        refuse: (thrown) => this.#refuse(id, thrown, http),
      });
      const gone = new TollgateError('CANCELLED');
      http?.closed.addEventListener('abort', () => this.#running.cancel(key, gone), { once: true });
      return answer;
    } catch (thrown) {
      return this.#refuse(id, thrown, http);
    }
  }

  /** A server sends only what the most curious request needs. Each request gets its own level of it. */
  #lowerLevel(level: LogLevel): void {
    const { logLevel = 'emergency' } = this.#session;
    if (LOG_LEVELS.indexOf(level) < LOG_LEVELS.indexOf(logLevel)) this.#facade.setLogLevel(this.#session, level);
  }

  #refuse(id: string | number, thrown: unknown, http: HttpSide | undefined): string {
    if (!(thrown instanceof TollgateError)) this.#options.onFault(thrown);
    const error = asTollgateError(thrown);
    http?.onRefused(error);
    return refusalText(id, error);
  }

  #discover(): string {
    const instructions = this.#facade.instructions(this.#session);
    const { tasks, ...capabilities } = this.#facade.capabilities(this.#session);
    const text = JSON.stringify({
      supportedVersions: SUPPORTED_REVISIONS,
      capabilities: { ...capabilities, ...(tasks !== undefined && { extensions: { [TASKS_EXTENSION]: {} } }) },
      ...(instructions === '' ? {} : { instructions }),
    });
    return enveloped(text, envelopeOf('server/discover')) as string;
  }

  /** Returns the work of a request. To add a method, add a case. */
  #prepare(incoming: Incoming): (signal: CancelSignal) => Promise<WireText | undefined> {
    const { request, send } = incoming;
    const { method } = request.message;
    if (LISTS.has(method)) return this.#prepareList(request);
    if (method === 'subscriptions/listen') return (signal) => this.#streams.open(request, send, signal);
    if (TASKS.has(method)) return (signal) => this.#aboutTask(incoming, signal);
    if (ASKING.has(method) || method === 'completion/complete') return (signal) => this.#call(incoming, signal);
    return (signal) => this.#refuseUnknown(incoming, signal);
  }

  #prepareList({ message }: StatelessRequest): (signal: CancelSignal) => Promise<WireText | undefined> {
    const { id, method, params } = message;
    refuseCursor(params);
    return async (signal) => {
      const reply = await this.#facade.list(this.#session, method as ListMethod, signal);
      if (reply.kind === 'error') return replyText(id, reply);
      return replyText(id, { kind: 'result', text: enveloped(reply.text, envelopeOf(method)) });
    };
  }

  async #aboutTask(incoming: Incoming, signal: CancelSignal): Promise<WireText | undefined> {
    const { message, args, meta, client } = incoming.request;
    const { method } = message;
    if (!knowsTasks(client))
      throw new TollgateError('CLIENT_CAPABILITY', {
        data: { requiredCapabilities: { extensions: { [TASKS_EXTENSION]: {} } } },
      });
    const { trace } = incoming;
    const envelope = envelopeOf(method);
    const request: CallRequest = { method, name: method, args, meta, client, envelope, signal, trace };
    return this.#textOf(incoming, await this.#facade.perform(this.#session, request));
  }

  async #call(incoming: Incoming, signal: CancelSignal): Promise<WireText | undefined> {
    const { request, send, http, trace } = incoming;
    const { id, method, params } = request.message;
    if (method === 'tools/call' && http !== undefined) {
      const marked = await this.#facade.headerArguments(this.#session, request.name);
      checkArgumentHeaders(marked, request.args.value, http.headers);
    }
    const channel = this.#channelOf(request, send, signal);
    const call: CallRequest = {
      method,
      name: request.name,
      args: request.args,
      meta: request.meta,
      client: request.client,
      logLevel: request.logLevel,
      envelope: envelopeOf(method),
      task: method === 'tools/call' && knowsTasks(request.client) ? {} : undefined,
      notify: request.logLevel === undefined ? undefined : channel.notify,
      onProgress: request.token === undefined ? undefined : channel.progress,
      drained: this.#drained.signal,
      signal,
      trace,
    };
    if (!ASKING.has(method)) return this.#textOf(incoming, await this.#facade.perform(this.#session, call));
    const turn =
      params?.value.requestState === undefined
        ? await this.#asking.begin(request, call, channel)
        : await this.#asking.resume(request, call, channel);
    return turn.kind === 'answer' ? this.#textOf(incoming, turn.reply) : resultText(id, turn.text);
  }

  /** Nothing is sent after the answer, because another request may have the id then. */
  #channelOf({ message, token }: StatelessRequest, send: SendMessage, signal: CancelSignal): RequestChannel {
    const isOpen = (): boolean => !signal.aborted && this.#isRunning(message, signal);
    return {
      notify: ({ method, params }) => void (isOpen() && send(notificationText(method, params))),
      progress: (params) => {
        if (token !== undefined && isOpen())
          send(notificationText('notifications/progress', { ...params, progressToken: token }));
      },
    };
  }

  #isRunning(message: RequestMessage, signal: CancelSignal): boolean {
    return this.#running.isOpen(message, signal) || this.#running.isOpen(message.id, signal);
  }

  async #refuseUnknown(incoming: Incoming, signal: CancelSignal): Promise<WireText | undefined> {
    const { request, http, trace } = incoming;
    const refusal = new TollgateError('WIRE_METHOD');
    const { method } = request.message;
    http?.onRefused(refusal);
    const name = method.slice(0, MAX_METHOD);
    const { args, meta } = request;
    return this.#textOf(
      incoming,
      await this.#facade.perform(this.#session, { method, name, args, meta, signal, refusal, trace }),
    );
  }

  #textOf({ request, http }: Incoming, reply: Reply): WireText {
    const { id, method } = request.message;
    if (reply.kind === 'result')
      return replyText(id, { kind: 'result', text: completeResult(reply, envelopeOf(method)) });
    const { error } = reply;
    const code = OTHER_NUMBERS.get(error.code) ?? error.code;
    const missing = new TollgateError('CLIENT_CAPABILITY');
    if (code === missing.row.rpc) http?.onRefused(missing);
    return replyText(id, { ...reply, error: withCode(error, code) });
  }
}

/** Returns the error with another code, and with its own text otherwise. */
function withCode(error: JsonRpcError, code: number): JsonRpcError {
  const { text } = error;
  const member = text === undefined ? undefined : jsonMembers(text).find(({ key }) => key === 'code');
  if (text === undefined || member === undefined) return { ...error, code };
  return { ...error, code, text: text.slice(0, member.start) + code + text.slice(member.end) };
}

function knowsTasks({ extensions }: StatelessRequest['client']): boolean {
  return isObject(extensions) && isObject(extensions[TASKS_EXTENSION]);
}
