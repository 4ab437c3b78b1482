/** Calls that may ask the client, from their first request to their answer. */
import type { CancelSignal } from '../../../adapters/rpc/cancellation.ts';
import { jsonMembers } from '../../../adapters/rpc/message-parser.ts';
import { isObject, type JsonDoc, type JsonObject, JsonText } from '../../../adapters/rpc/wire-message.ts';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { NO_CONTENT } from '../../operations/operation.ts';
import type { CallRequest, Facade, Reply, Session } from '../facade-port.ts';
import { PARK_MS, type ParkedCall, ParkedCalls, type RequestChannel } from './parked-calls.ts';
import { namedReplica, openRequestState, type StateParts, sealRequestState } from './request-states.ts';
import { inputRequiredText } from './result-envelope.ts';
import type { StatelessRequest } from './stateless-request.ts';

/** What a request of such a call gets: the answer, or the text of a result that asks the client. */
export type CallTurn =
  | { readonly kind: 'answer'; readonly reply: Reply }
  | { readonly kind: 'questions'; readonly text: string };

/** How often a server may ask the client to open URLs, and the call be made again. */
const MAX_REPEATS = 5;
/** Asks the client to open URLs before it repeats the call (MCP 2025-11-25, elicitation). */
const URL_ELICITATION_REQUIRED = -32042;

/** The calls of one session. */
export class AskingCalls {
  readonly #facade: Facade;
  readonly #session: Session;
  readonly #states: StateParts;
  readonly #calls = new ParkedCalls();

  constructor(facade: Facade, session: Session) {
    this.#facade = facade;
    this.#session = session;
    this.#states = { seals: facade.seals, replica: facade.replica, session, now: Date.now };
  }

  get parked(): number {
    return this.#calls.parked;
  }

  /** Makes a call. `asked.signal` ends it while this request waits. */
  begin(request: StatelessRequest, asked: CallRequest, channel: RequestChannel): Promise<CallTurn> {
    const revision = this.#facade.revision();
    const given = responsesIn(request.message.params);
    const call = this.#calls.open({ revision, channel, given, perform: (parked) => this.#perform(parked, asked) });
    return this.#next(call, request, { channel, signal: asked.signal });
  }

  /** Continues a call with the answers of the client. A state that is not accepted is refused and recorded. */
  async resume(request: StatelessRequest, asked: CallRequest, channel: RequestChannel): Promise<CallTurn> {
    const { params } = request.message;
    const state = await openRequestState(this.#states, params?.value.requestState, request);
    const call = state === undefined ? undefined : this.#calls.find(state.call);
    // With a channel, the call is no longer parked, so no other request can use the state.
    const isNext = call?.isParked === true && call.round === state?.round && call.server === state.server;
    const isDecided = call?.revision === this.#facade.revision();
    if (isNext && !isDecided)
      call.cancel.abort(new TollgateError('CANCELLED', { detail: 'The policy changed while the call was parked.' }));
    if (!isNext || !isDecided) {
      const isLost = state !== undefined && call === undefined && this.#isOfAnother(params?.value.requestState);
      return {
        kind: 'answer',
        reply: await this.#refuse(asked, new TollgateError(isLost ? 'REPLICA_LOST' : 'INPUT_STATE')),
      };
    }
    call.channel = channel;
    const decided = await this.#facade.perform(this.#session, { ...asked, isContinued: true });
    if (decided.kind === 'error' || decided.text !== NO_CONTENT) {
      call.cancel.abort(new TollgateError('CANCELLED', { detail: 'The call was refused when it was continued.' }));
      return { kind: 'answer', reply: decided };
    }
    call.answer(responsesIn(params));
    return this.#next(call, request, { channel, signal: asked.signal });
  }

  /** The call was parked on another replica, which was asked first. */
  #isOfAnother(state: unknown): boolean {
    const { replica } = this.#facade;
    return replica !== undefined && namedReplica(state) !== replica;
  }

  /** Ends parked calls. */
  async end(reason: TollgateError): Promise<void> {
    await this.#calls.end(reason);
  }

  async #next(
    call: ParkedCall,
    request: StatelessRequest,
    { channel, signal }: { readonly channel: RequestChannel; readonly signal: CancelSignal },
  ): Promise<CallTurn> {
    const onAbort = (): void => call.cancel.abort(signal.reason as Error);
    signal.addEventListener('abort', onAbort);
    if (signal.aborted) onAbort();
    try {
      const turn = await call.next(channel);
      if (turn.kind === 'questions')
        return {
          kind: 'questions',
          text: inputRequiredText(turn.requests, await sealRequestState(this.#states, call, request)),
        };
      this.#calls.close(call);
      return turn;
    } finally {
      signal.removeEventListener('abort', onAbort);
    }
  }

  /** What the call sends goes to the request that waits for it now. Never rejects. */
  async #perform(call: ParkedCall, asked: CallRequest): Promise<Reply> {
    const request: CallRequest = {
      ...asked,
      signal: call.cancel,
      ask: call.ask,
      notify: asked.notify && ((notice) => call.channel?.notify(notice)),
      onProgress: asked.onProgress && ((params) => call.channel?.progress(params)),
    };
    for (let repeats = 0; ; repeats += 1) {
      const reply = await this.#facade.perform(this.#session, request);
      const urls = urlsIn(reply);
      if (urls === undefined || repeats === MAX_REPEATS) return reply;
      if (!(await this.#openUrls(call, urls)))
        return this.#refuse(request, new TollgateError('URL_ELICITATION_DENIED', { detail: NOT_OPENED }));
    }
  }

  /** Returns whether the user has opened every URL. The call has been decided for each, and is decided again. */
  async #openUrls(call: ParkedCall, urls: readonly JsonObject[]): Promise<boolean> {
    const limits = { signal: call.cancel, timeoutMs: PARK_MS, server: '' };
    try {
      const answers = await Promise.all(
        urls.map(({ message, url }) =>
          call.ask('elicitation/create', JSON.stringify({ mode: 'url', message, url }), limits),
        ),
      );
      return answers.every(({ value }) => value.action === 'accept');
    } catch {
      return false;
    }
  }

  #refuse(asked: CallRequest, refusal: TollgateError): Promise<Reply> {
    return this.#facade.perform(this.#session, { ...asked, refusal });
  }
}

const NOT_OPENED = 'The user did not open the addresses that the server asked for.';

/** Returns the URLs that an error of a server asks to open. The facade has decided each of them. */
function urlsIn(reply: Reply): readonly JsonObject[] | undefined {
  if (reply.kind !== 'error' || reply.error.code !== URL_ELICITATION_REQUIRED) return undefined;
  const { elicitations } = isObject(reply.error.data) ? reply.error.data : {};
  const urls = Array.isArray(elicitations) ? elicitations.filter(isObject) : [];
  return urls.length === 0 || urls.some(({ url }) => typeof url !== 'string') ? undefined : urls;
}

/** Returns the results in `params.inputResponses` with their own texts. */
function responsesIn(params: JsonDoc<JsonObject> | undefined): ReadonlyMap<string, JsonDoc<JsonObject>> {
  const doc = params === undefined ? undefined : JsonText.of(params);
  const all = doc?.member('inputResponses');
  if (doc === undefined || all === undefined) return new Map();
  const text = doc.slice(all.start, all.end);
  const members = text.startsWith('{') ? jsonMembers(text) : [];
  return new Map(
    members.flatMap(({ key, start, end, exact }) => {
      const part = text.slice(start, end);
      const value: unknown = JSON.parse(part);
      return isObject(value) ? [[key, { text: part, value, exact }] as const] : [];
    }),
  );
}
