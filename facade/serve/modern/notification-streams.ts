/** Streams of notifications that a client asked for (MCP 2026-07-28, basic/patterns/subscriptions). */
import type { CancelSignal } from '../../../adapters/rpc/cancellation.ts';
import { isObject, type JsonObject, type WireText } from '../../../adapters/rpc/wire-message.ts';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { ClientNotice, Facade, SendMessage, Session } from '../facade-port.ts';
import { notificationText, resultText } from '../reply-text.ts';
import { endedStreamText } from './result-envelope.ts';
import type { StatelessRequest } from './stateless-request.ts';

const MAX_STREAMS = 64;
/** Resources that one stream may follow. */
const MAX_RESOURCES = 64;
const MAX_URI = 8192;
/** The members of the filter for lists, the capability that each needs, and the notification. */
const LISTS = [
  ['toolsListChanged', 'tools', 'notifications/tools/list_changed'],
  ['promptsListChanged', 'prompts', 'notifications/prompts/list_changed'],
  ['resourcesListChanged', 'resources', 'notifications/resources/list_changed'],
] as const;
const UPDATED = 'notifications/resources/updated';

interface Stream {
  readonly id: string | number;
  readonly send: SendMessage;
  readonly methods: ReadonlySet<string>;
  readonly uris: ReadonlySet<string>;
  /** Notifications that a slow client could not take yet. Of equal ones, one stands for all. */
  readonly missed: Set<string>;
  readonly end: () => void;
}

/** The streams of one session. */
export class NotificationStreams {
  readonly #facade: Facade;
  readonly #session: Session;
  readonly #streams = new Set<Stream>();
  /** URI → the number of streams that follow it, or are about to. */
  readonly #following = new Map<string, number>();
  /** URI → the last change of its subscription. Changes of one URI are made one after the other. */
  readonly #changes = new Map<string, Promise<unknown>>();
  #opening = 0;
  #isClosed = false;

  constructor(facade: Facade, session: Session) {
    this.#facade = facade;
    this.#session = session;
    session.closed.addEventListener('abort', () => this.end());
  }

  /**
   * Opens a stream. Resolves with its last message when Tollgate ends it, and with undefined when the client does.
   * Rejects with WIRE_PARAMS, and with RATE_LIMITED above 64 streams.
   */
  async open(request: StatelessRequest, send: SendMessage, signal: CancelSignal): Promise<WireText | undefined> {
    const { id, params } = request.message;
    const asked = readFilter(params?.value.notifications);
    if (this.#streams.size + this.#opening >= MAX_STREAMS)
      throw new TollgateError('RATE_LIMITED', {
        detail: `This client has ${MAX_STREAMS} streams of notifications.`,
        next: 'Close one first.',
      });
    this.#opening += 1;
    let uris: readonly string[] = [];
    try {
      uris = await this.#follow(asked.uris, request, signal);
    } finally {
      this.#opening -= 1;
    }
    if (signal.aborted || this.#isClosed) {
      this.#leave(uris, request);
      return signal.aborted ? undefined : resultText(id, endedStreamText(id));
    }
    return this.#serve({ id, send, uris, lists: this.#shownLists(asked.lists), request, signal });
  }

  /** Passes a notification to the streams that asked for it. */
  notice({ method, params }: ClientNotice): void {
    for (const stream of this.#streams) {
      const isWanted = method === UPDATED ? stream.uris.has(String(params?.uri)) : stream.methods.has(method);
      if (!isWanted) continue;
      stream.missed.add(notificationText(method, { ...params, ...tagOf(stream.id) }));
      tellMissed(stream);
    }
  }

  /** Sends what slow clients have missed. */
  retell(): void {
    for (const stream of this.#streams) tellMissed(stream);
  }

  /** Ends all streams. */
  endOpen(): void {
    for (const { end } of this.#streams) end();
  }

  /** Ends all streams, and opens no more. */
  end(): void {
    this.#isClosed = true;
    this.endOpen();
  }

  /** The acknowledgement is the first message, so the stream gets no notification before. */
  #serve(opened: {
    readonly id: string | number;
    readonly send: SendMessage;
    readonly uris: readonly string[];
    readonly lists: readonly (typeof LISTS)[number][];
    readonly request: StatelessRequest;
    readonly signal: CancelSignal;
  }): Promise<WireText | undefined> {
    const { id, send, uris, lists, request, signal } = opened;
    const notifications = {
      ...Object.fromEntries(lists.map(([member]) => [member, true])),
      ...(uris.length > 0 && { resourceSubscriptions: uris }),
    };
    send(notificationText('notifications/subscriptions/acknowledged', { notifications, ...tagOf(id) }), 'request');
    return new Promise((resolve) => {
      const close = (last: WireText | undefined): void => {
        if (!this.#streams.delete(stream)) return;
        signal.removeEventListener('abort', onAbort);
        this.#leave(uris, request);
        resolve(last);
      };
      const onAbort = (): void => close(undefined);
      const stream: Stream = {
        id,
        send,
        methods: new Set(lists.map(([, , method]) => method)),
        uris: new Set(uris),
        missed: new Set(),
        end: () => close(resultText(id, endedStreamText(id))),
      };
      this.#streams.add(stream);
      signal.addEventListener('abort', onAbort);
    });
  }

  #shownLists(asked: ReadonlySet<string>): readonly (typeof LISTS)[number][] {
    const capabilities = this.#facade.capabilities(this.#session);
    return LISTS.filter(([member, capability]) => asked.has(member) && capabilities[capability] !== undefined);
  }

  /** Returns the URIs that may be followed. Each is a subscription, which is decided and recorded. */
  async #follow(uris: readonly string[], request: StatelessRequest, signal: CancelSignal): Promise<readonly string[]> {
    const followed = await Promise.all(
      uris.map(async (uri) => {
        this.#following.set(uri, (this.#following.get(uri) ?? 0) + 1);
        const isAllowed = await this.#change(uri, () => this.#perform('resources/subscribe', uri, { request, signal }));
        if (!isAllowed) this.#uncount(uri);
        return isAllowed;
      }),
    );
    return uris.filter((_, at) => followed[at] === true);
  }

  #leave(uris: readonly string[], request: StatelessRequest): void {
    for (const uri of uris) {
      if (this.#uncount(uri) > 0 || this.#session.closed.aborted) continue;
      // A new stream may follow it before it is its turn.
      void this.#change(uri, async () =>
        this.#following.has(uri)
          ? true
          : this.#perform('resources/unsubscribe', uri, { request, signal: this.#session.closed }),
      );
    }
  }

  #uncount(uri: string): number {
    const left = (this.#following.get(uri) ?? 1) - 1;
    if (left > 0) this.#following.set(uri, left);
    else this.#following.delete(uri);
    return left;
  }

  #change(uri: string, work: () => Promise<boolean>): Promise<boolean> {
    const change = (this.#changes.get(uri) ?? Promise.resolve()).then(work);
    this.#changes.set(uri, change);
    void change.then(() => {
      if (this.#changes.get(uri) === change) this.#changes.delete(uri);
    });
    return change;
  }

  async #perform(
    method: string,
    uri: string,
    { request, signal }: { readonly request: StatelessRequest; readonly signal: CancelSignal },
  ): Promise<boolean> {
    const value = { uri };
    const args = { text: JSON.stringify(value), value, exact: true };
    const reply = await this.#facade.perform(this.#session, { method, name: method, args, meta: request.meta, signal });
    return reply.kind === 'result';
  }
}

function tagOf(id: string | number): { readonly _meta: JsonObject } {
  return { _meta: { 'io.modelcontextprotocol/subscriptionId': id } };
}

function tellMissed({ missed, send }: Stream): void {
  for (const text of missed) {
    if (send(text) === false) return;
    missed.delete(text);
  }
}

/** Reads the filter. Throws WIRE_PARAMS. */
function readFilter(filter: unknown): { readonly lists: ReadonlySet<string>; readonly uris: readonly string[] } {
  const { resourceSubscriptions: uris = [], ...lists } = isObject(filter) ? filter : {};
  const areLists = LISTS.every(([member]) => lists[member] === undefined || typeof lists[member] === 'boolean');
  const areUris =
    Array.isArray(uris) &&
    uris.length <= MAX_RESOURCES &&
    uris.every((uri) => typeof uri === 'string' && uri !== '' && uri.length <= MAX_URI);
  if (!isObject(filter) || !areLists || !areUris)
    throw new TollgateError('WIRE_PARAMS', {
      detail: `params.notifications is no filter, or names more than ${MAX_RESOURCES} resources.`,
      next: 'Send booleans for lists, and URIs in resourceSubscriptions.',
    });
  return {
    lists: new Set(LISTS.flatMap(([member]) => (lists[member] === true ? [member] : []))),
    uris: [...new Set(uris as readonly string[])],
  };
}
