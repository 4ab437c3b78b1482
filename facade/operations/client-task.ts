/** One call that its client runs as a task: its state, what it asks the client, and its answer when it has ended. */
import { randomBytes } from 'node:crypto';
import type { TaskNote } from '../../adapters/port.ts';
import { Cancellation, cancelReason } from '../../adapters/rpc/cancellation.ts';
import { jsonMembers } from '../../adapters/rpc/message-parser.ts';
import { errorJson, type JsonDoc, type JsonObject, joinText } from '../../adapters/rpc/wire-message.ts';
import { asTollgateError, TollgateError } from '../../catalogs/errors/error-table.ts';
import { cleanDescription } from '../../catalogs/text/hostile-text.ts';
import type { Redactor } from '../output/redactor.ts';
import { withFirstMembers } from '../output/result-shape.ts';
import type { AskClient, AskLimits, CallRequest, ForwardedFacts, Reply, ResultEnvelope } from '../serve/facade-port.ts';

/** How a task is made. */
export interface NewTask {
  /** The replica that runs it, if there are several. The id begins with it. */
  readonly replica?: string | undefined;
  /** Milliseconds from its creation to its end, whether it runs or not. */
  readonly ttlMs: number;
  readonly redactor: Redactor;
  readonly onChange: () => void;
}

interface Question {
  readonly method: string;
  /** JSON text. */
  readonly params: string;
  readonly settle: (answer: JsonDoc<JsonObject> | Error) => void;
  isAsked: boolean;
}

type Status = 'working' | 'input_required' | 'completed' | 'failed' | 'cancelled';

/** Milliseconds that a client is asked to wait between two looks. */
const POLL_MS = 1_000;
/** Characters of a message of a server that are read, and that a client sees. A longer one is left out. */
const [READ_CHARS, MESSAGE_CHARS] = [65_536, 500];
const RELATED_TASK = 'io.modelcontextprotocol/related-task';

/** A task of a client. */
export class ClientTask {
  /** Unknown to servers, and unrelated to ids of theirs. */
  readonly id: string;
  readonly createdAt = new Date();
  readonly ttlMs: number;
  readonly cancel = new Cancellation();
  changedAt = this.createdAt;
  message: string | undefined;
  reply: Reply | undefined;
  /** Resolves when the call has ended. Set by `run`. */
  done: Promise<void> = Promise.resolve();
  /** What was decided. Absent until the call goes to its server. */
  facts: ForwardedFacts | undefined;
  /** The client knows its id. */
  isTold = false;
  isReleased = false;
  isStateless = false;
  /** Called when it expires. */
  onEnd: () => void = () => undefined;
  readonly #redactor: Redactor;
  readonly #onChange: () => void;
  readonly #questions = new Map<string, Question>();
  readonly #expiry: NodeJS.Timeout;
  #isCancelled = false;
  #asked = 0;
  #wake: (() => void)[] = [];

  constructor({ ttlMs, redactor, onChange, replica }: NewTask) {
    const random = randomBytes(16).toString('hex');
    this.id = replica === undefined ? random : `${replica}.${random}`;
    this.ttlMs = ttlMs;
    this.#redactor = redactor;
    this.#onChange = onChange;
    this.#expiry = setTimeout(() => {
      this.end(new TollgateError('CANCELLED', { detail: 'The task has expired.' }));
      this.onEnd();
    }, ttlMs).unref();
  }

  get isOver(): boolean {
    return this.reply !== undefined;
  }

  get status(): Status {
    if (this.reply === undefined) return this.#questions.size > 0 ? 'input_required' : 'working';
    if (this.#isCancelled) return 'cancelled';
    // A result that is an error is a failure only in the older revision.
    return this.reply.kind === 'error' || (!this.isStateless && isErrorResult(this.reply)) ? 'failed' : 'completed';
  }

  /** What records say about its call. */
  get named(): { readonly id?: string; readonly server?: string; readonly tool?: string } {
    if (this.facts === undefined) return {};
    const { decision: id, server, tool } = this.facts;
    return { id, server, tool };
  }

  /** Runs the call. `perform` gets what replaces the channel of the request that created the task. Never rejects. */
  run(perform: (channel: (request: CallRequest) => Partial<CallRequest>) => Promise<Reply>): Promise<void> {
    this.done = perform((request) => {
      this.isStateless = request.envelope !== undefined;
      return {
        signal: this.cancel,
        ask: request.ask === undefined && !this.isStateless ? undefined : this.#ask,
        onTask: this.#note,
        onForward: (facts) => {
          this.facts = facts;
        },
      };
    }).then((reply) => {
      this.reply = reply;
      this.#failQuestions(new TollgateError('CANCELLED'));
      this.#changed();
    });
    return this.done;
  }

  /** Ends the call. Its answer says why. */
  end(reason: TollgateError): void {
    if (this.isOver) return;
    this.#isCancelled = true;
    this.cancel.abort(reason);
    this.#failQuestions(reason);
  }

  /** Forgets when it expires. */
  stop(): void {
    clearTimeout(this.#expiry);
  }

  /** Asks the client whatever the call asks, in the channel of this request, until the call has ended. */
  async serve({ ask, signal }: Pick<CallRequest, 'ask' | 'signal'>): Promise<void> {
    while (!this.isOver) {
      if (signal.aborted) throw cancelReason(signal);
      for (const question of this.#questions.values()) if (!question.isAsked) void this.#put(question, ask, signal);
      await this.#nextChange(signal);
    }
  }

  /** Takes the answer to an open question. */
  answer(key: string, result: JsonDoc<JsonObject>): void {
    this.#questions.get(key)?.settle(result);
  }

  /** Returns the member with the open questions, if there are any. */
  inputRequests(): { readonly inputRequests?: JsonObject } {
    if (this.#questions.size === 0) return {};
    const open = [...this.#questions].map(([key, { method, params }]) => [key, { method, params: JSON.parse(params) }]);
    return { inputRequests: Object.fromEntries(open) as JsonObject };
  }

  /** The question waits until the client asks for the result, or looks at the task. */
  readonly #ask: AskClient = (method, params, limits) => {
    this.#asked += 1;
    const key = `q${this.#asked}`;
    return new Promise((resolve, reject) => {
      const settle = (answer: JsonDoc<JsonObject> | Error): void => {
        if (!this.#questions.delete(key)) return;
        clearTimeout(timer);
        limits.signal.removeEventListener('abort', onAbort);
        if (answer instanceof Error) reject(answer);
        else resolve(answer);
        this.#changed();
      };
      const onAbort = (): void => settle(cancelReason(limits.signal));
      const timer = setTimeout(() => settle(new TollgateError('TOOL_TIMEOUT')), limits.timeoutMs).unref();
      limits.signal.addEventListener('abort', onAbort, { once: true });
      this.#questions.set(key, {
        method,
        params: this.isStateless ? params : related(params, this.id),
        settle,
        isAsked: false,
      });
      this.#changed();
    });
  };

  async #put(question: Question, ask: AskClient | undefined, signal: AskLimits['signal']): Promise<void> {
    if (ask === undefined) return;
    question.isAsked = true;
    try {
      question.settle(await ask(question.method, question.params, { signal, timeoutMs: this.ttlMs, server: '' }));
    } catch (thrown) {
      // The next request for the result asks again.
      if (signal.aborted) question.isAsked = false;
      else question.settle(thrown instanceof Error ? thrown : asTollgateError(thrown));
    }
  }

  readonly #note = ({ message }: TaskNote): void => {
    const clean = message === undefined ? undefined : this.#clean(message);
    if (clean === this.message) return;
    this.message = clean;
    this.#changed();
  };

  #clean(message: string): string | undefined {
    if (message.length > READ_CHARS) return undefined;
    return cleanDescription(this.#redactor.redact(message).value, { max: MESSAGE_CHARS });
  }

  #failQuestions(reason: TollgateError): void {
    for (const { settle } of [...this.#questions.values()]) settle(reason);
  }

  #changed(): void {
    this.changedAt = new Date();
    for (const wake of this.#wake.splice(0)) wake();
    this.#onChange();
  }

  #nextChange(signal: CallRequest['signal']): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        signal.removeEventListener('abort', wake);
        resolve();
      };
      this.#wake.push(wake);
      signal.addEventListener('abort', wake, { once: true });
    });
  }
}

function isErrorResult({ text }: Extract<Reply, { kind: 'result' }>): boolean {
  const whole = joinText(text);
  return jsonMembers(whole).some(({ key, start, end }) => key === 'isError' && whole.slice(start, end) === 'true');
}

function related(params: string, taskId: string): string {
  const { _meta, ...rest } = JSON.parse(params) as { readonly _meta?: object };
  return JSON.stringify({ ...rest, _meta: { ..._meta, [RELATED_TASK]: { taskId } } });
}

/** Returns a task as clients of revision 2025-11-25 see it. */
export function legacyTask(task: ClientTask): JsonObject {
  return { ...common(task), ttl: task.ttlMs, pollInterval: POLL_MS };
}

/** Returns a task as clients of revision 2026-07-28 see it. */
export function statelessTask(task: ClientTask): JsonObject {
  return { ...common(task), ttlMs: task.ttlMs, pollIntervalMs: POLL_MS };
}

function common({ id, status, message, createdAt, changedAt }: ClientTask): JsonObject {
  return {
    taskId: id,
    status,
    ...(message !== undefined && { statusMessage: message }),
    createdAt: createdAt.toISOString(),
    lastUpdatedAt: changedAt.toISOString(),
  };
}

/** Returns an ended task with its result or error, as clients of revision 2026-07-28 see it. */
export function resultOf(task: ClientTask): string {
  const { reply } = task;
  const text = JSON.stringify(statelessTask(task));
  if (reply === undefined || task.status === 'cancelled') return text;
  const told = reply.kind === 'result' ? joinText(reply.text) : errorJson(reply.error);
  return `${text.slice(0, -1)},"${reply.kind}":${told}}`;
}

/** Returns the answer of an ended task to tasks/result: that of its call, with the id of the task. */
export function relatedTask({ reply, id }: ClientTask): Reply {
  if (reply?.kind !== 'result') return reply as Reply;
  const text = joinText(reply.text);
  const own = `"${RELATED_TASK}":{"taskId":"${id}"}`;
  const meta = jsonMembers(text).find(({ key }) => key === '_meta');
  if (meta === undefined) return { kind: 'result', text: withFirstMembers(text, `"_meta":{${own}}`) };
  return {
    kind: 'result',
    text: text.slice(0, meta.start) + withFirstMembers(text.slice(meta.start, meta.end), own) + text.slice(meta.end),
  };
}

/** Returns a result of Tollgate's own in an envelope. It has no members that an envelope has. */
export function inEnvelope(text: string, { members, meta }: ResultEnvelope): Reply {
  return { kind: 'result', text: withFirstMembers(text, `${members},"_meta":{${meta}}`), enveloped: true };
}
