/**
 * One JSON-RPC conversation with a server: ids, deadlines, progress and cancellation. Requests of the server to the
 * client are refused unless a call answers them.
 */
import { asTollgateError, ERRORS, TollgateError } from '../../catalogs/errors/error-table.ts';
import { UpstreamError } from '../port.ts';
import { cancelReason } from './cancellation.ts';
import { fitsDouble } from './decimal.ts';
import { jsonMembers } from './json-scan.ts';
import type { JsonObject, WireMessage } from './message-parser.ts';
import { type PeerRequest, PendingCall } from './pending-call.ts';
import { type RefusedRequest, RefusedRequests } from './refused-requests.ts';
import { errorJson, isObject, type JsonDoc } from './wire-message.ts';

/** The link to the server. */
export interface PeerLink {
  /**
   * Sends a text. Requests have an `id`, for links on which each request has its own answer, and may have `headers` for
   * HTTP. A promise settles when the other side has taken the text. It never rejects.
   */
  send(text: string, id?: number, headers?: Readonly<Record<string, string>>): Promise<void> | void;
  /**
   * The caller gave up this request. Returns true if that has told the server. Otherwise a notification tells it.
   * Absent on links where only a notification can.
   */
  cancel?(id: number): boolean;
  /** Returns the number of bytes that were sent and that the other side has not taken. */
  backlog(): number;
}

/** The events of a conversation. */
export interface PeerEvents {
  /** Called at most once in 200 ms, however often the server reports changes. */
  onToolsChanged(): void;
  /** A message was dropped: an answer to no request, a second answer, or one that breaks the protocol. */
  onDropped(): void;
  /**
   * Requests of the server were refused. The first one of a method is reported immediately, those of the next minute as
   * a count.
   */
  onRefused?(refused: RefusedRequest): void;
  /**
   * Returns the answer to a request of the server, as the text of a result; undefined if it is refused. `serves`: what
   * the request serves on whose stream it came. The answer rejects with what `refusalOf` in this file shows.
   */
  onRequest?(method: string, params: JsonDoc<JsonObject> | undefined, serves: object | undefined): Answer | undefined;
  /** A request that serves no call is about to be sent. Absent while telemetry is off. */
  onExchange?: ((exchange: Exchange) => FollowedExchange) | undefined;
  /** A notification that has no effect here. */
  onNotification?(method: string, params: JsonDoc<JsonObject> | undefined, serves: object | undefined): void;
}

/** A request of Tollgate itself to a server. */
export interface Exchange {
  readonly method: string;
  readonly id: number;
  /** The id in all events of the connection. Absent: the server speaks a revision without sessions. */
  readonly session?: string | undefined;
  /** The protocol revision. Absent before the end of the handshake. */
  readonly version?: string | undefined;
}

/** Follows such a request. */
export interface FollowedExchange {
  /** The trace context for its `_meta`. Absent: it is measured and not traced. */
  readonly context?: Readonly<Record<string, string>> | undefined;
  /** It has ended. `error`: the code of its error. */
  ended(error?: string): void;
}

/** The answer to a request of a server, and what is paused until then. */
export interface Answer {
  readonly result: Promise<string>;
  readonly serves: object;
}

type ServerRequest = Extract<WireMessage, { kind: 'request' }>;
type ServerNotification = Extract<WireMessage, { kind: 'notification' }>;

const LIST_CHANGED_MS = 200;
/** The longest delay that setTimeout supports. Longer delays would fire immediately. */
const MAX_DELAY = 2 ** 31 - 1;
/** The most bytes that are held for a server that does not read. */
const MAX_BACKLOG = 64 * 1024 * 1024;
/** The most requests of the server that wait for an answer. */
const MAX_ASKED = 64;
/** Answers to a server that does not read are dropped much earlier, because no call waits for them. */
const MAX_ANSWER_BACKLOG = 1024 * 1024;
const MAX_ABANDONED = 1024;

/**
 * One conversation. It gives each request a new id, so requests of two clients with equal ids cannot be mixed up
 * (CVE-2026-25536). The id is also the progress token. Nothing is sent twice.
 */
export class Peer {
  private readonly link: PeerLink;
  private readonly events: PeerEvents;
  private readonly pending = new Map<number, PendingCall>();
  /** Cancelled calls whose answers may still arrive. Such an answer does not break the protocol. */
  private readonly abandoned = new Set<number>();
  private lastId = 0;
  private listTimer: NodeJS.Timeout | undefined;
  /** One timer for all requests: it fires at the first deadline. A request that ends leaves it alone. */
  private deadlineTimer: NodeJS.Timeout | undefined;
  private firesAt = Infinity;
  private ended: TollgateError | undefined;
  /** Requests of the server that wait for an answer. */
  private asked = 0;
  private readonly refused: RefusedRequests;
  /** The listeners to the progress of answered requests. */
  private readonly followed = new Map<number, (params: Readonly<Record<string, unknown>>) => void>();

  constructor(link: PeerLink, events: PeerEvents) {
    this.link = link;
    this.events = events;
    this.refused = new RefusedRequests((refused) => events.onRefused?.(refused));
  }

  /** True after `end`. */
  get hasEnded(): boolean {
    return this.ended !== undefined;
  }

  /** The number of requests without an answer. */
  get inFlight(): number {
    return this.pending.size;
  }

  /**
   * Sends a request once and waits for its result. Throws UpstreamError for the server's own error, CANCELLED,
   * TOOL_TIMEOUT, SERVER_UNAVAILABLE (not sent), UPSTREAM_INVALID, UPSTREAM_TOO_LARGE, or the error given to `end`.
   */
  request(request: PeerRequest): Promise<JsonDoc<JsonObject>> {
    const refusal = this.refusalOf(request);
    if (refusal !== undefined) return Promise.reject(refusal);
    const id = ++this.lastId;
    const call = new PendingCall(request, (error) => this.giveUp(id, error));
    const result = call.result();
    this.pending.set(id, call);
    if (call.expiresAt < this.firesAt) this.setDeadline(call.expiresAt);
    const context = request.serves === undefined ? this.traced(request.method, { id, result }) : undefined;
    const params = withContext(request.params(id), context);
    const text = `{"jsonrpc":"2.0","id":${id},"method":"${request.method}","params":${params}}`;
    void this.link.send(text, id, request.headers);
    return result;
  }

  /** Lets telemetry follow a request. Returns the trace context that the server gets. */
  private traced(
    method: string,
    { id, result }: { readonly id: number; readonly result: Promise<unknown> },
  ): FollowedExchange['context'] {
    const followed = this.events.onExchange?.({ method, id });
    if (followed === undefined) return undefined;
    const fail = (thrown: unknown): void =>
      followed.ended(thrown instanceof UpstreamError ? String(thrown.rpc.code) : asTollgateError(thrown).code);
    result.then(() => followed.ended(), fail);
    return followed.context;
  }

  /** Returns why a request cannot be sent. */
  private refusalOf({ signal }: PeerRequest): TollgateError | undefined {
    if (this.ended !== undefined) return new TollgateError('SERVER_UNAVAILABLE', { cause: this.ended });
    if (signal?.aborted === true) return cancelReason(signal);
    if (this.link.backlog() <= MAX_BACKLOG) return undefined;
    return new TollgateError('SERVER_UNAVAILABLE', { detail: 'The server does not read its input.' });
  }

  /** Sends a notification. `params` is JSON text. Settles as PeerLink.send does. */
  async notify(method: string, params?: string): Promise<void> {
    if (this.ended !== undefined) return;
    await this.link.send(
      `{"jsonrpc":"2.0","method":${JSON.stringify(method)}${params === undefined ? '' : `,"params":${params}`}}`,
    );
  }

  /**
   * Passes on progress of a request also after its answer, because its work goes on as a task. Returns what ends that.
   */
  follow(id: number, onProgress: (params: Readonly<Record<string, unknown>>) => void): () => void {
    this.followed.set(id, onProgress);
    return () => void this.followed.delete(id);
  }

  /** Handles one message of the server. Messages must come in the order of arrival. `during`: see ConnectionEvents. */
  receive(message: WireMessage, during?: number): void {
    switch (message.kind) {
      case 'result':
        return this.settle(message.id, (call) => call.resolve(message.result));
      case 'error':
        return this.settle(message.id, (call) => call.reject(new UpstreamError(message.error)));
      case 'invalid':
        return this.settle(message.id, (call) => call.reject(message.error));
      case 'request':
        return this.answer(message, this.servedBy(during));
      case 'notification':
        return this.handleNotification(message, this.servedBy(during));
    }
  }

  /** Fails a call whose answer cannot arrive any more. Does nothing if the call has ended. */
  fail(id: number, error: TollgateError): void {
    this.take(id)?.reject(error);
  }

  /** Handles a dropped message over the wire limit. Its call fails: the one with the id in `edges`, or the only one. */
  failTooLarge(edges: string): void {
    const id = idInEdges(edges);
    const [only] = this.pending.keys();
    const lost = id !== undefined && this.pending.has(id) ? id : only;
    if (lost !== undefined && (lost === id || this.pending.size === 1))
      this.fail(lost, new TollgateError('UPSTREAM_TOO_LARGE'));
    this.events.onDropped();
  }

  /** Ends the conversation. Every waiting call fails with this error. Idempotent. */
  end(error: TollgateError): void {
    if (this.ended !== undefined) return;
    this.ended = error;
    clearTimeout(this.listTimer);
    clearTimeout(this.deadlineTimer);
    this.refused.end();
    for (const id of [...this.pending.keys()]) this.fail(id, error);
  }

  private setDeadline(at: number): void {
    clearTimeout(this.deadlineTimer);
    this.firesAt = at;
    if (at === Infinity) return;
    const delay = Math.min(Math.max(1, Math.ceil(at - performance.now())), MAX_DELAY);
    // The process waits for the link to its server, not for this timer.
    this.deadlineTimer = setTimeout(() => this.expire(), delay).unref();
  }

  /** Gives up the requests whose deadline has passed. */
  private expire(): void {
    const now = performance.now();
    let next = Infinity;
    for (const [id, call] of this.pending) {
      if (call.expiresAt <= now) this.giveUp(id, call.timeout(now));
      else next = Math.min(next, call.expiresAt);
    }
    this.setDeadline(next);
  }

  private settle(id: string | number | null, conclude: (call: PendingCall) => void): void {
    const own = ownId(id);
    const call = own === undefined ? undefined : this.take(own);
    if (call !== undefined) return conclude(call);
    if (own === undefined || !this.abandoned.delete(own)) this.events.onDropped();
  }

  private take(id: number): PendingCall | undefined {
    const call = this.pending.get(id);
    if (call === undefined) return undefined;
    this.pending.delete(id);
    return call;
  }

  private giveUp(id: number, error: TollgateError): void {
    const call = this.take(id);
    if (call === undefined) return;
    if (this.abandoned.size < MAX_ABANDONED) this.abandoned.add(id);
    const isTold = this.link.cancel?.(id) === true;
    // The specification forbids cancelling `initialize`.
    if (!isTold && call.method !== 'initialize')
      void this.notify('notifications/cancelled', JSON.stringify({ requestId: id, reason: error.message }));
    call.reject(error);
  }

  private servedBy(during: number | undefined): object | undefined {
    return during === undefined ? undefined : this.pending.get(during)?.serves;
  }

  /** Answers a request of the server. */
  private answer({ id, method, params }: ServerRequest, serves: object | undefined): void {
    if (method === 'ping') return this.reply(id, '"result":{}');
    const answer = this.asked < MAX_ASKED ? this.events.onRequest?.(method, params, serves) : undefined;
    if (answer === undefined) {
      this.refused.note(method);
      return this.reply(id, refusalText());
    }
    const waiting = [...this.pending.values()].filter((call) => call.serves === answer.serves);
    for (const call of waiting) call.pauseWhileAsked();
    this.asked += 1;
    answer.result
      .then(
        (result) => `"result":${result}`,
        (thrown: unknown) => refusalText(thrown),
      )
      .then((text) => {
        this.asked -= 1;
        for (const call of waiting) call.resume();
        if (this.firesAt === Infinity || waiting.some(({ expiresAt }) => expiresAt < this.firesAt)) this.expire();
        if (this.ended === undefined) this.reply(id, text);
      });
  }

  /** `answer`: the member of the reply, as JSON. */
  private reply(id: string | number, answer: string): void {
    if (this.link.backlog() > MAX_ANSWER_BACKLOG) return this.events.onDropped();
    void this.link.send(`{"jsonrpc":"2.0","id":${JSON.stringify(id)},${answer}}`);
  }

  /** Counts a refused request to the client that came inside an answer. */
  noteRefused(method: string): void {
    this.refused.note(method);
  }

  /** Handles a notification. */
  private handleNotification({ method, params }: ServerNotification, serves: object | undefined): void {
    if (method === 'notifications/progress')
      return params === undefined || !holdsExactly(params)
        ? this.events.onDropped()
        : this.handleProgress(params.value);
    if (method !== 'notifications/tools/list_changed') return this.events.onNotification?.(method, params, serves);
    if (this.listTimer !== undefined || this.ended !== undefined) return;
    this.listTimer = setTimeout(() => {
      this.listTimer = undefined;
      this.events.onToolsChanged();
    }, LIST_CHANGED_MS);
  }

  private handleProgress(params: JsonObject): void {
    const { progressToken, ...rest } = params;
    const id = ownId(progressToken);
    if (id !== undefined && this.abandoned.has(id)) return;
    const call = id === undefined ? undefined : this.pending.get(id);
    const follower = id === undefined || call !== undefined ? undefined : this.followed.get(id);
    if (follower !== undefined) return follower(rest);
    if (call === undefined || !call.progress(rest)) this.events.onDropped();
  }
}

/**
 * Returns the member `error` of a reply. A server does not learn why the policy refused its request: that is for the
 * person and the agent only.
 */
function refusalText(thrown?: unknown): string {
  if (thrown instanceof UpstreamError) return `"error":${errorJson(thrown.rpc)}`;
  const { rpc, what } = ERRORS.UPSTREAM_REQUEST_DENIED;
  return `"error":${JSON.stringify({ code: rpc, message: what, data: { code: 'UPSTREAM_REQUEST_DENIED' } })}`;
}

/** Returns true if doubles hold the numbers of a progress notification exactly. */
function holdsExactly({ text, exact }: JsonDoc<JsonObject>): boolean {
  if (exact) return true;
  return jsonMembers(text).every(
    ({ key, start, end }) => (key !== 'progress' && key !== 'total') || fitsDouble(text.slice(start, end)),
  );
}

/** Returns an id if Tollgate could have sent it. Its ids are numbers, and JSON-RPC 2.0 requires the same type. */
function ownId(id: unknown): number | undefined {
  return typeof id === 'number' ? id : undefined;
}

/** Finds the id of an answer. Implementations write it near the beginning or at the very end. */
function idInEdges(edges: string): number | undefined {
  const match =
    /^\{(?:"jsonrpc":\s*"2\.0",\s*)?"id":\s*(\d{1,15})(?!\d)/.exec(edges) ??
    /"id":\s*(\d{1,15})(?:,\s*"jsonrpc":\s*"2\.0")?\s*\}\s*$/.exec(edges);
  return match === null ? undefined : Number(match[1]);
}

/** Returns params with the trace context in their `_meta`. Requests of Tollgate itself are small. */
function withContext(params: string, context: FollowedExchange['context']): string {
  if (context === undefined) return params;
  const value = JSON.parse(params) as JsonObject;
  const { _meta: meta } = value;
  return JSON.stringify({ ...value, _meta: { ...(isObject(meta) && meta), ...context } });
}
