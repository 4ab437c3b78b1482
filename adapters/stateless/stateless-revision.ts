/**
 * A server of revision 2026-07-28, which has no sessions: each request says who sends it, and one long request carries
 * the notifications of the server.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { type MirroredArgument, mirroredArguments } from '../../catalogs/schemas/mirrored-arguments.ts';
import { type InvalidDefinition, type UpstreamCall, UpstreamError } from '../port.ts';
import { STATELESS_REVISION } from '../rpc/connection.ts';
import { scanJson } from '../rpc/json-scan.ts';
import { jsonMembers } from '../rpc/message-parser.ts';
import type { Peer } from '../rpc/peer.ts';
import { isObject, type JsonDoc, type JsonObject, JsonText } from '../rpc/wire-message.ts';
import { mirrorArguments, mirrorMethod } from './mirrored-headers.ts';

/** What a server said about itself in its answer to `server/discover`. */
export interface Discovered {
  readonly capabilities: JsonObject;
  readonly instructions: unknown;
  readonly serverInfo: unknown;
}

/** The parts of a session that its revision needs. */
export interface StatelessParts {
  readonly peer: Peer;
  readonly clientInfo: JsonObject;
  /** Returns the capabilities of clients that requests declare. */
  readonly capabilities: () => JsonObject;
  /** True if requests are sent over HTTP, where headers repeat parts of them. */
  readonly hasHeaders: boolean;
}

/** What a call says in its envelope besides what all requests say. */
type EnvelopeParts = Partial<Pick<UpstreamCall, 'logLevel' | 'clientCapabilities'>>;
type Headers = Readonly<Record<string, string>>;
type Tool = { readonly name: string; readonly inputSchema?: unknown };

const KEY = 'io.modelcontextprotocol/';
const TASKS = `${KEY}tasks`;
/** Pauses before the server is asked for its notifications again. */
const [FIRST_PAUSE_MS, LAST_PAUSE_MS] = [1000, 30_000];
/** What a server may report about its lists, by the capability that declares it. */
const CHANGES = {
  tools: 'toolsListChanged',
  prompts: 'promptsListChanged',
  resources: 'resourcesListChanged',
} as const;

/** The requests to one server of this revision. */
export class StatelessRevision {
  readonly #parts: StatelessParts;
  /** The arguments that go into headers, by tool. Undefined until the tools are listed. */
  #mirrored: Map<string, readonly MirroredArgument[]> | undefined;
  #offers: JsonObject = {};
  readonly #subscribed = new Set<string>();
  #listening: AbortController | undefined;

  constructor(parts: StatelessParts) {
    this.#parts = parts;
  }

  /** The number of requests for notifications without an answer so far. They are no work of a caller. */
  inFlight = 0;

  /** True if the headers of calls need the list of tools first. */
  get needsTools(): boolean {
    return this.#parts.hasHeaders && this.#mirrored === undefined;
  }

  /** Asks what the server is. Returns undefined if it does not offer this revision. Throws as a request does. */
  async discover(timeoutMs: number): Promise<Discovered | undefined> {
    const { value } = await this.request('server/discover', '{}', timeoutMs);
    const { supportedVersions, capabilities, instructions, _meta } = value;
    if (!Array.isArray(supportedVersions) || !supportedVersions.includes(STATELESS_REVISION)) return undefined;
    if (isObject(capabilities)) this.#offers = capabilities;
    return {
      capabilities: this.#offers,
      instructions,
      serverInfo: isObject(_meta) ? _meta[`${KEY}serverInfo`] : undefined,
    };
  }

  /**
   * Returns the members of `_meta` that each request must have. Without a level, the server must not log. `mayBeTask`:
   * a server that offers tasks may answer with one (extension io.modelcontextprotocol/tasks).
   */
  envelope({ logLevel, clientCapabilities }: EnvelopeParts = {}, mayBeTask = false): JsonObject {
    const { extensions } = this.#offers;
    const isTask = mayBeTask && isObject(extensions) && isObject(extensions[TASKS]);
    const capabilities = clientCapabilities ?? this.#parts.capabilities();
    return {
      [`${KEY}protocolVersion`]: STATELESS_REVISION,
      [`${KEY}clientInfo`]: this.#parts.clientInfo,
      [`${KEY}clientCapabilities`]: { ...capabilities, ...(isTask && { extensions: { [TASKS]: {} } }) },
      ...(logLevel !== undefined && { [`${KEY}logLevel`]: logLevel }),
    };
  }

  /**
   * Sends a request of Tollgate itself. `params` is JSON text without `_meta`. Methods that this revision does not have
   * any more are replaced: the caller need not know it.
   */
  async request(method: string, params: string, timeoutMs: number): Promise<JsonDoc<JsonObject>> {
    if (method === 'ping') return this.request('server/discover', '{}', timeoutMs);
    const replaced = this.replace(method, params);
    if (replaced !== undefined) return replaced;
    const text = appendMembers(params, [`"_meta":${JSON.stringify(this.envelope())}`]);
    return this.#parts.peer.request({
      method,
      params: () => text,
      headers: this.headers(method, {}),
      timeoutMs,
      hardTimeoutMs: timeoutMs,
    });
  }

  /** Returns the headers of a request, and undefined over other transports than HTTP. */
  headers(method: string, params: Readonly<JsonObject>): Headers | undefined {
    if (!this.#parts.hasHeaders) return undefined;
    const { name, arguments: args } = params;
    const mirrored = method === 'tools/call' && typeof name === 'string' ? this.#mirrored?.get(name) : undefined;
    return {
      ...(mirrored !== undefined && isObject(args) && mirrorArguments(mirrored, args)),
      ...mirrorMethod(method, params),
    };
  }

  /** Notes the tools that the server lists. Returns those that may be used, and the others with their fault. */
  noteTools<T extends Tool>(
    tools: readonly T[],
  ): { readonly entries: readonly T[]; readonly unfit: InvalidDefinition[] } {
    if (!this.#parts.hasHeaders) return { entries: tools, unfit: [] };
    const found = tools.map((tool) => ({ tool, mirrored: mirroredArguments(tool.inputSchema) }));
    this.#mirrored = new Map(
      found.flatMap(({ tool, mirrored }) => (typeof mirrored === 'string' ? [] : [[tool.name, mirrored] as const])),
    );
    return {
      entries: found.flatMap(({ tool, mirrored }) => (typeof mirrored === 'string' ? [] : [tool])),
      unfit: found.flatMap(({ tool, mirrored }) =>
        typeof mirrored === 'string' ? [{ tool: tool.name.slice(0, 64), reason: mirrored }] : [],
      ),
    };
  }

  /** Asks the server for its notifications, again after each end, until `stop`. A server need not have any. */
  listen(): void {
    this.#listening?.abort();
    const filter = this.#filter();
    if (Object.keys(filter).length === 0) return void (this.#listening = undefined);
    const listening = new AbortController();
    this.#listening = listening;
    void this.#keepListening(JSON.stringify({ notifications: filter, _meta: this.envelope() }), listening);
  }

  /** Ends the request for notifications. */
  stop(): void {
    this.#listening?.abort();
    this.#listening = undefined;
  }

  #filter(): JsonObject {
    const changes = Object.entries(CHANGES).filter(([capability]) => {
      const offered = this.#offers[capability];
      return isObject(offered) && offered.listChanged === true;
    });
    return {
      ...Object.fromEntries(changes.map(([, change]) => [change, true])),
      ...(this.#subscribed.size > 0 && { resourceSubscriptions: [...this.#subscribed] }),
    };
  }

  async #keepListening(params: string, { signal }: AbortController): Promise<void> {
    for (let pauseMs = FIRST_PAUSE_MS; !signal.aborted; pauseMs = Math.min(2 * pauseMs, LAST_PAUSE_MS)) {
      const began = performance.now();
      this.inFlight += 1;
      try {
        await this.#parts.peer.request({
          method: 'subscriptions/listen',
          params: () => params,
          headers: this.headers('subscriptions/listen', {}),
          timeoutMs: Infinity,
          hardTimeoutMs: Infinity,
          signal,
        });
      } catch (thrown) {
        // The server does not offer it.
        if (thrown instanceof UpstreamError) return;
      } finally {
        this.inFlight -= 1;
      }
      if (performance.now() - began > LAST_PAUSE_MS) pauseMs = FIRST_PAUSE_MS;
      await sleep(pauseMs, undefined, { signal, ref: false }).catch(() => undefined);
    }
  }

  /** Returns the answer for a subscription. The server learns of it from the next request for notifications. */
  replace(method: string, params: string): JsonDoc<JsonObject> | undefined {
    if (method !== 'resources/subscribe' && method !== 'resources/unsubscribe') return undefined;
    const { uri } = JSON.parse(params) as { readonly uri?: unknown };
    if (method === 'resources/subscribe') this.#subscribed.add(String(uri));
    else this.#subscribed.delete(String(uri));
    this.listen();
    return JsonText.of({ text: '{}', value: {}, exact: true });
  }
}

/**
 * Returns a result without the members that only this revision has, because a client may speak another one. Its own
 * members keep their text.
 */
export function withoutEnvelope<T>(result: JsonDoc<T>): JsonDoc<T> {
  const doc = JsonText.of(result);
  if (doc.member('resultType') === undefined && doc.member('_meta') === undefined) return result;
  const text = doc.slice(0);
  const parts = jsonMembers(text).flatMap(({ key, start, end }) => {
    if (ENVELOPE.has(key)) return [];
    const value = key === '_meta' ? withoutIdentity(text.slice(start, end)) : text.slice(start, end);
    return value === undefined ? [] : [`${JSON.stringify(key)}:${value}`];
  });
  const stripped = `{${parts.join(',')}}`;
  const bytes = Buffer.from(stripped);
  return JsonText.ofScan<T>(stripped, bytes, { ...scanJson(bytes), exact: doc.exact });
}

const ENVELOPE: ReadonlySet<string> = new Set(['resultType', 'ttlMs', 'cacheScope']);

/** Returns undefined if nothing is left of `_meta`. */
function withoutIdentity(meta: string): string | undefined {
  if (!meta.startsWith('{')) return meta;
  const members = jsonMembers(meta);
  const kept = members.filter(({ key }) => key !== `${KEY}serverInfo`);
  if (kept.length === members.length) return meta;
  const parts = kept.map(({ key, start, end }) => `${JSON.stringify(key)}:${meta.slice(start, end)}`);
  return parts.length === 0 ? undefined : `{${parts.join(',')}}`;
}

/** Returns the text of an object with further members, which are texts too. */
export function appendMembers(object: string, members: readonly string[]): string {
  const body = object.trimEnd().slice(0, -1);
  const parts = body.trim() === '{' ? members : ['', ...members];
  return `${body}${parts.join(',')}}`;
}
