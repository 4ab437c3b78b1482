/**
 * Owns one JSON-RPC conversation with a server: ids, deadlines, progress, cancellation; refuses what the server asks of
 * the client.
 */
import { ERRORS, TollgateError } from '../../catalogs/errors/error-table.ts';
import { UpstreamError } from '../port.ts';
import { cancelReason } from './cancellation.ts';
import { fitsDouble } from './decimal.ts';
import { jsonMembers } from './json-scan.ts';
import type { JsonObject, JsonRpcError, WireMessage } from './message-parser.ts';
import { type PeerRequest, PendingCall } from './pending-call.ts';
import { type RefusedRequest, RefusedRequests, URL_ELICITATION } from './refused-requests.ts';
import type { JsonDoc } from './wire-message.ts';

/** The way out. */
export interface PeerLink {
  /**
   * `id` is given with requests, for links on which each has an answer of its own. A promise settles when the other
   * side has taken the text; it never rejects.
   */
  send(text: string, id?: number): Promise<void> | void;
  /** Bytes handed over and not yet taken by the other side. */
  backlog(): number;
}

/** What the owner of the conversation is told. */
export interface PeerEvents {
  /** At most once in 200 ms, however often the server says so. */
  onToolsChanged(): void;
  /** An answer to nothing, a second answer, or a message that breaks the protocol was dropped. */
  onDropped(): void;
  /**
   * Requests of the server were refused. The first of a method is told at once, those of the next minute as a count.
   */
  onRefused?(refused: RefusedRequest): void;
}

const LIST_CHANGED_MS = 200;
/** A server that does not read must not make us hold more than this. */
const MAX_BACKLOG = 64 * 1024 * 1024;
/** Answers to a server that floods and does not read are dropped much earlier: nobody waits for them. */
const MAX_ANSWER_BACKLOG = 1024 * 1024;
const MAX_ABANDONED = 1024;
/** The client must open addresses (MCP 2025-11-25, elicitation). They would reach it without a decision. */
const URL_ELICITATION_REQUIRED = -32042;

/**
 * One conversation. Ids count up per hop, so two clients with equal ids cannot meet (CVE-2026-25536); a call's id is
 * its progress token too. Nothing is sent twice.
 */
export class Peer {
  private readonly link: PeerLink;
  private readonly events: PeerEvents;
  private readonly pending = new Map<number, PendingCall>();
  /** Calls given up whose answers may still come: those are no fault of the server. */
  private readonly abandoned = new Set<number>();
  private lastId = 0;
  private listTimer: NodeJS.Timeout | undefined;
  private ended: TollgateError | undefined;
  private readonly refused: RefusedRequests;

  constructor(link: PeerLink, events: PeerEvents) {
    this.link = link;
    this.events = events;
    this.refused = new RefusedRequests((refused) => events.onRefused?.(refused));
  }

  /** Requests without an answer so far. */
  get inFlight(): number {
    return this.pending.size;
  }

  /**
   * Sends a request once and waits for its result. Throws UpstreamError for the server's own error, CANCELLED,
   * TOOL_TIMEOUT, SERVER_UNAVAILABLE (not sent), UPSTREAM_INVALID, UPSTREAM_TOO_LARGE, or the error given to `end`.
   */
  request(request: PeerRequest): Promise<JsonDoc<JsonObject>> {
    if (this.ended !== undefined) return Promise.reject(new TollgateError('SERVER_UNAVAILABLE', { cause: this.ended }));
    if (request.signal?.aborted === true) return Promise.reject(cancelReason(request.signal));
    if (this.link.backlog() > MAX_BACKLOG)
      return Promise.reject(
        new TollgateError('SERVER_UNAVAILABLE', { detail: 'The server does not read what it is sent.' }),
      );
    const id = ++this.lastId;
    const call = new PendingCall(request, (error) => this.giveUp(id, error));
    this.pending.set(id, call);
    void this.link.send(
      `{"jsonrpc":"2.0","id":${id},"method":${JSON.stringify(request.method)},"params":${request.params(id)}}`,
      id,
    );
    return call.result;
  }

  /** Sends a notification; `params` is JSON text. Settles as Link.send does. */
  async notify(method: string, params?: string): Promise<void> {
    if (this.ended !== undefined) return;
    await this.link.send(
      `{"jsonrpc":"2.0","method":${JSON.stringify(method)}${params === undefined ? '' : `,"params":${params}`}}`,
    );
  }

  /** Takes one message of the server, in the order of arrival; progress before a result is delivered before it. */
  receive(message: WireMessage): void {
    switch (message.kind) {
      case 'result':
        return this.settle(message.id, (call) => call.resolve(message.result));
      case 'error':
        return this.settle(message.id, (call) => call.reject(this.errorOf(message.error)));
      case 'invalid':
        return this.settle(message.id, (call) => call.reject(message.error));
      case 'request':
        return this.answer(message.id, message.method);
      case 'notification':
        return this.hear(message.method, message.params);
    }
  }

  /** Ends one call from below, where a link knows that its answer cannot come. Nothing happens if it has ended. */
  fail(id: number, error: TollgateError): void {
    this.take(id)?.reject(error);
  }

  /**
   * A message over the wire limit was dropped; its call is found by the id in its edges, or because it is the only one.
   */
  failTooLarge(edges: string): void {
    const id = idInEdges(edges);
    const [only] = this.pending.keys();
    const lost = id !== undefined && this.pending.has(id) ? id : only;
    if (lost !== undefined && (lost === id || this.pending.size === 1))
      this.fail(lost, new TollgateError('UPSTREAM_TOO_LARGE'));
    this.events.onDropped();
  }

  /** The conversation is over; every call still waiting gets this error. Idempotent. */
  end(error: TollgateError): void {
    if (this.ended !== undefined) return;
    this.ended = error;
    clearTimeout(this.listTimer);
    this.refused.end();
    for (const id of [...this.pending.keys()]) this.fail(id, error);
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
    call.release();
    return call;
  }

  private giveUp(id: number, error: TollgateError): void {
    const call = this.take(id);
    if (call === undefined) return;
    if (this.abandoned.size < MAX_ABANDONED) this.abandoned.add(id);
    // The specification forbids to cancel initialize.
    if (call.method !== 'initialize')
      void this.notify('notifications/cancelled', JSON.stringify({ requestId: id, reason: error.message }));
    call.reject(error);
  }

  /** Requests of the server end here: there is no client behind this hop that could be asked, and nothing may hang. */
  private answer(id: string | number, method: string): void {
    if (method !== 'ping') this.refused.note(method);
    if (this.link.backlog() > MAX_ANSWER_BACKLOG) return this.events.onDropped();
    const head = `{"jsonrpc":"2.0","id":${JSON.stringify(id)},`;
    const { rpc, what } = ERRORS.UPSTREAM_REQUEST_DENIED;
    const error = { code: rpc, message: what, data: { code: 'UPSTREAM_REQUEST_DENIED' } };
    void this.link.send(head + (method === 'ping' ? '"result":{}}' : `"error":${JSON.stringify(error)}}`));
  }

  /** A request to the client that came as a result was refused by the owner of the call. */
  noteRefused(method: string): void {
    this.refused.note(method);
  }

  private errorOf(error: JsonRpcError): Error {
    if (error.code !== URL_ELICITATION_REQUIRED) return new UpstreamError(error);
    this.refused.note(URL_ELICITATION);
    return new TollgateError('URL_ELICITATION_DENIED');
  }

  /**
   * Only progress and list_changed have an effect. Other notifications (log messages, resources, tasks, elicitation)
   * end here.
   */
  private hear(method: string, params: JsonDoc<JsonObject> | undefined): void {
    if (method === 'notifications/progress')
      return params === undefined || !holdsExactly(params) ? this.events.onDropped() : this.hearProgress(params.value);
    if (method !== 'notifications/tools/list_changed' || this.listTimer !== undefined || this.ended !== undefined)
      return;
    this.listTimer = setTimeout(() => {
      this.listTimer = undefined;
      this.events.onToolsChanged();
    }, LIST_CHANGED_MS);
  }

  private hearProgress(params: JsonObject): void {
    const { progressToken, ...rest } = params;
    const id = ownId(progressToken);
    if (id !== undefined && this.abandoned.has(id)) return;
    const call = id === undefined ? undefined : this.pending.get(id);
    if (call === undefined || !call.progress(rest)) this.events.onDropped();
  }
}

/** Whether the numbers of a progress notification are carried as they were written. */
function holdsExactly({ text, exact }: JsonDoc<JsonObject>): boolean {
  if (exact) return true;
  return jsonMembers(text).every(
    ({ key, start, end }) => (key !== 'progress' && key !== 'total') || fitsDouble(text.slice(start, end)),
  );
}

/** Our ids are integers. JSON-RPC 2.0 wants them back with the same type: `"1"` answers nothing that we sent. */
function ownId(id: unknown): number | undefined {
  return typeof id === 'number' ? id : undefined;
}

/** Implementations write the id near the beginning of an answer or at its very end. */
function idInEdges(edges: string): number | undefined {
  const found =
    /^\{(?:"jsonrpc":\s*"2\.0",\s*)?"id":\s*(\d{1,15})(?!\d)/.exec(edges) ??
    /"id":\s*(\d{1,15})(?:,\s*"jsonrpc":\s*"2\.0")?\s*\}\s*$/.exec(edges);
  return found === null ? undefined : Number(found[1]);
}
