/**
 * Calls whose server asks the client. Revision 2026-07-28 has no requests to clients: the question is the result of one
 * request, and its answer comes with the next one. In between, the call is parked here.
 */
import { randomBytes } from 'node:crypto';
import { Cancellation } from '../../../adapters/rpc/cancellation.ts';
import type { JsonDoc, JsonObject } from '../../../adapters/rpc/wire-message.ts';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { AskClient, AskLimits, ClientNotice, Reply } from '../facade-port.ts';

/** How long a call waits for the next request of its client. */
export const PARK_MS = 300_000;
/** Calls of one session that wait for their client. Each keeps its place among the session's calls. */
const MAX_PARKED = 16;
/** Rounds of one call, also if the client leaves questions open. */
const MAX_ROUNDS = 20;
const KEY_FORM = /^[A-Za-z0-9_.-]{1,64}$/;

/** The next thing that the client of a call is told: the answer, or the JSON of each question by its key. */
export type Turn =
  | { readonly kind: 'answer'; readonly reply: Reply }
  | { readonly kind: 'questions'; readonly requests: ReadonlyMap<string, string> };

/** What reaches the client while one of its requests waits. */
export interface RequestChannel {
  readonly notify: (notice: ClientNotice) => void;
  readonly progress: (params: Readonly<Record<string, unknown>>) => void;
}

interface Question {
  /** The JSON of the request. */
  readonly request: string;
  readonly answer: (result: JsonDoc<JsonObject>) => void;
}

/** What a call begins with. `perform` makes it, and never rejects. */
export interface NewCall {
  /** Answers that came with the first request, by key. They are used when the server asks. */
  readonly given: ReadonlyMap<string, JsonDoc<JsonObject>>;
  readonly revision: string;
  readonly channel: RequestChannel;
  readonly perform: (call: ParkedCall) => Promise<Reply>;
}

/** One call, from its first request to its answer. */
export class ParkedCall {
  readonly id = randomBytes(16).toString('hex');
  /** Ends the call. */
  readonly cancel = new Cancellation();
  /** The revision of the policy that decided the call. */
  readonly revision: string;
  /** The server that asked last. */
  server = '';
  /** The number of the answer that the client must send. Each is accepted once. */
  round = 0;
  /** Of the request that waits. Absent between requests: what the server sends then is dropped. */
  channel: RequestChannel | undefined;
  /** Resolves when the call has ended. */
  readonly done: Promise<void>;
  readonly #admits: () => boolean;
  readonly #questions = new Map<string, Question>();
  readonly #given: NewCall['given'];
  #reply: Reply | undefined;
  #wake: (() => void) | undefined;
  #timer: NodeJS.Timeout | undefined;

  /** `admits` tells whether one more call may be parked. */
  constructor({ revision, channel, perform, given }: NewCall, admits: () => boolean) {
    this.revision = revision;
    this.#given = given;
    this.channel = channel;
    this.#admits = admits;
    this.done = perform(this).then((reply) => {
      this.#reply = reply;
      this.#wake?.();
    });
  }

  /** The client has been asked, and sends no request now. */
  get isParked(): boolean {
    return this.channel === undefined;
  }

  /** It waits for its client, or will. */
  get isHeld(): boolean {
    return this.isParked || this.#questions.size > 0;
  }

  /** Asks the client. Questions of one turn of the event loop are told together. */
  readonly ask: AskClient = (method, params, limits) => {
    if (this.round >= MAX_ROUNDS || !(this.isHeld || this.#admits()))
      return Promise.reject(new TollgateError('RATE_LIMITED'));
    this.server = limits.server;
    const given = limits.key === undefined ? undefined : this.#given.get(limits.key);
    if (given !== undefined) return Promise.resolve(given);
    setImmediate(() => this.#wake?.());
    const about = params === '{}' ? '' : `,"params":${params}`;
    return this.#open(`{"method":${JSON.stringify(method)}${about}}`, limits);
  };

  #open(request: string, { signal, timeoutMs, key }: AskLimits): Promise<JsonDoc<JsonObject>> {
    const name =
      key !== undefined && KEY_FORM.test(key) && !this.#questions.has(key)
        ? key
        : `q-${randomBytes(6).toString('hex')}`;
    return new Promise((resolve, reject) => {
      const close = (): void => {
        clearTimeout(timer);
        signal.removeEventListener('abort', onAbort);
        this.#questions.delete(name);
      };
      const fail = (error: unknown): void => {
        close();
        reject(error);
      };
      const onAbort = (): void => fail(signal.reason);
      const timer = setTimeout(() => fail(new TollgateError('TOOL_TIMEOUT')), timeoutMs).unref();
      signal.addEventListener('abort', onAbort, { once: true });
      const answer = (result: JsonDoc<JsonObject>): void => {
        close();
        resolve(result);
      };
      this.#questions.set(name, { request, answer });
    });
  }

  /** Gives the answers of the client to the server. Unknown keys are ignored, and what is missing is asked again. */
  answer(responses: ReadonlyMap<string, JsonDoc<JsonObject>>): void {
    clearTimeout(this.#timer);
    for (const [key, result] of responses) this.#questions.get(key)?.answer(result);
  }

  /** Resolves with what the client is told next. After questions, the client has `PARK_MS` for its next request. */
  async next(channel: RequestChannel): Promise<Turn> {
    this.channel = channel;
    try {
      while (this.#reply === undefined && this.#questions.size === 0)
        await new Promise<void>((resolve) => (this.#wake = resolve));
      if (this.#reply !== undefined) return { kind: 'answer', reply: this.#reply };
      this.round += 1;
      const silent = new TollgateError('CANCELLED', {
        detail: 'The client did not answer the question of the server.',
      });
      this.#timer = setTimeout(() => this.cancel.abort(silent), PARK_MS).unref();
      return { kind: 'questions', requests: new Map([...this.#questions].map(([key, { request }]) => [key, request])) };
    } finally {
      this.#wake = undefined;
      this.channel = undefined;
    }
  }
}

/** The calls of one session that have not been answered. */
export class ParkedCalls {
  readonly #calls = new Map<string, ParkedCall>();
  #isClosed = false;

  /** Calls between two requests of their client. */
  get parked(): number {
    return this.#count(({ isParked }) => isParked);
  }

  open(begun: NewCall): ParkedCall {
    const admits = (): boolean => !this.#isClosed && this.#count(({ isHeld }) => isHeld) < MAX_PARKED;
    const call = new ParkedCall(begun, admits);
    this.#calls.set(call.id, call);
    const forget = (): void => void this.#calls.delete(call.id);
    call.cancel.addEventListener('abort', forget);
    return call;
  }

  find(id: string): ParkedCall | undefined {
    return this.#calls.get(id);
  }

  /** The client has its answer. */
  close({ id }: ParkedCall): void {
    this.#calls.delete(id);
  }

  /** Ends calls that no request of a client waits for, and asks no client from now on. */
  end(reason: TollgateError): Promise<unknown> {
    this.#isClosed = true;
    const parked = [...this.#calls.values()].filter(({ isParked }) => isParked);
    for (const { cancel } of parked) cancel.abort(reason);
    return Promise.all(parked.map(({ done }) => done));
  }

  #count(which: (call: ParkedCall) => boolean): number {
    let count = 0;
    for (const call of this.#calls.values()) if (which(call)) count += 1;
    return count;
  }
}
