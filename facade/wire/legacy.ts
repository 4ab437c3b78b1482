/** Owns the protocol of sessions that begin with `initialize`; refuses methods outside its list and work before the handshake. */
import type { JsonDoc } from '../../adapters/port.ts';
import { Cancel, type CancelSignal } from '../../adapters/rpc/cancel.ts';
import type { WireMessage } from '../../adapters/rpc/json.ts';
import { asTollgateError, TollgateError } from '../../catalogs/errors.ts';
import type { CallRequest, Facade, Reply, Session } from '../facade.ts';
import type { Awaitable } from '../state/state.ts';
import type { Dispatch, DispatchOptions, Send } from './dispatch.ts';
import { negotiate } from './era.ts';
import { readCall, refuseCursor } from './params.ts';
import { notificationText, refusalText, replyText, resultText } from './reply.ts';
import { VERSION } from './version.ts';

type RequestMessage = Extract<WireMessage, { kind: 'request' }>;

/** Requests whose answer never changes. Clients ask for lists whatever the capabilities say, so these are empty, not errors. */
const FIXED: ReadonlyMap<string, string> = new Map([
  ['ping', '{}'],
  ['logging/setLevel', '{}'],
  ['resources/list', '{"resources":[]}'],
  ['resources/templates/list', '{"resourceTemplates":[]}'],
  ['prompts/list', '{"prompts":[]}'],
]);

const NO_ARGUMENTS: JsonDoc<unknown> = { text: '{}', value: {}, exact: true };
const TOOLS_CHANGED = notificationText('notifications/tools/list_changed');

/** Sessions that begin with `initialize`: revisions 2024-11-05 to 2025-11-25. */
export class LegacyDispatch implements Dispatch {
  readonly #facade: Facade;
  readonly #session: Session;
  readonly #options: DispatchOptions;
  /** By the client's own id, in the client's own type: 1 and "1" are two requests. */
  readonly #running = new Map<string | number, Cancel>();
  readonly #drained = new AbortController();
  #initialized = false;
  #changeTold = false;
  #closed = false;
  #onIdle: (() => void) | undefined;

  constructor(options: DispatchOptions) {
    this.#facade = options.facade;
    this.#session = options.session;
    this.#options = options;
  }

  get running(): number {
    return this.#running.size;
  }

  handle(message: WireMessage, send: Send): Awaitable<string | undefined> {
    if (message.kind === 'request') return this.#answer(message, send);
    if (message.kind === 'invalid') return refusalText(message.id, message.error);
    if (message.kind === 'notification' && message.method === 'notifications/cancelled') this.#cancel(message.params?.value['requestId']);
    // Tollgate asks its clients nothing, so their answers answer nothing; other notifications ask nothing of Tollgate.
    return undefined;
  }

  toolsChanged(): void {
    if (!this.#initialized || this.#changeTold) return;
    this.#changeTold = true;
    setImmediate(() => {
      this.#changeTold = false;
      if (!this.#closed) this.#options.notify(TOOLS_CHANGED);
    });
  }

  async close(graceMs: number): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#drained.abort();
    if (this.#running.size > 0 && graceMs > 0) await this.#idle(graceMs);
    for (const cancel of this.#running.values()) cancel.abort(new TollgateError('CANCELLED', { detail: 'The session ended.' }));
    await this.#facade.closeSession(this.#session).catch(this.#options.onFault);
  }

  #answer(request: RequestMessage, send: Send): Awaitable<string | undefined> {
    const { id, method } = request;
    try {
      if (method === 'initialize') return resultText(id, this.#initialize(request));
      const fixed = FIXED.get(method);
      if (fixed === undefined && method !== 'tools/call' && method !== 'tools/list') throw new TollgateError('WIRE_METHOD');
      if (!this.#initialized && method !== 'ping') throw new TollgateError('NOT_INITIALIZED');
      // Two running requests of one id could not be told apart: neither their answers nor which of them is cancelled.
      if (this.#running.has(id)) throw new TollgateError('WIRE_ID', { detail: 'A request of this id is still running.', next: 'Use each id once.' });
      if (fixed !== undefined) return resultText(id, fixed);
      return this.#run(request, send);
    } catch (thrown) {
      return this.#refuse(id, thrown);
    }
  }

  #refuse(id: string | number, thrown: unknown): string {
    if (!(thrown instanceof TollgateError)) this.#options.onFault(thrown);
    return refusalText(id, asTollgateError(thrown));
  }

  #initialize(request: RequestMessage): string {
    const instructions = this.#facade.instructions(this.#session);
    this.#initialized = true;
    return JSON.stringify({
      protocolVersion: negotiate(request.params?.value['protocolVersion']),
      capabilities: { tools: { listChanged: true } },
      serverInfo: { name: 'tollgate', version: VERSION },
      ...(instructions === '' ? {} : { instructions }),
    });
  }

  async #run(request: RequestMessage, send: Send): Promise<string | undefined> {
    const cancel = new Cancel();
    this.#running.set(request.id, cancel);
    try {
      const reply = request.method === 'tools/call' ? await this.#call(request, cancel, send) : await this.#list(request, cancel);
      return cancel.aborted ? undefined : replyText(request.id, reply);
    } catch (thrown) {
      const refusal = this.#refuse(request.id, thrown);
      return cancel.aborted ? undefined : refusal;
    } finally {
      this.#running.delete(request.id);
      if (this.#running.size === 0) this.#onIdle?.();
    }
  }

  #list(request: RequestMessage, signal: CancelSignal): Promise<Reply> {
    refuseCursor(request.params);
    return this.#facade.listTools(this.#session, signal);
  }

  #call(request: RequestMessage, signal: CancelSignal, send: Send): Promise<Reply> {
    const { name, meta, token } = readCall(request.params);
    const onProgress = (params: Readonly<Record<string, unknown>>): void => {
      // Not after the answer: then another request may have the id.
      if (this.#running.get(request.id) === signal && !signal.aborted) send(notificationText('notifications/progress', { ...params, progressToken: token }));
    };
    const call: CallRequest = {
      name,
      args: request.args ?? NO_ARGUMENTS,
      signal,
      drained: this.#drained.signal,
      ...(meta === undefined ? {} : { meta }),
      ...(token === undefined ? {} : { onProgress }),
    };
    return this.#facade.callTool(this.#session, call);
  }

  #cancel(id: unknown): void {
    if (typeof id !== 'string' && typeof id !== 'number') return;
    this.#running.get(id)?.abort(new TollgateError('CANCELLED'));
  }

  #idle(graceMs: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, graceMs);
      this.#onIdle = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}
