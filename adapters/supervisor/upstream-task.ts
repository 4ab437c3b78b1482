/**
 * Follows a call that its server runs as a task, until its result: the caller gets an answer as for any other call (MCP
 * 2025-11-25, basic/utilities/tasks; extension io.modelcontextprotocol/tasks of revision 2026-07-28).
 */
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { type AnswerServer, type TaskNote, type UpstreamCall, UpstreamError } from '../port.ts';
import { cancelReason } from '../rpc/cancellation.ts';
import type { Peer } from '../rpc/peer.ts';
import type { PeerRequest } from '../rpc/pending-call.ts';
import { isObject, type JsonDoc, type JsonObject, JsonText } from '../rpc/wire-message.ts';
import { answersTo } from '../stateless/input-rounds.ts';

/** How requests about a task are sent. `params` is JSON text. */
export interface TaskLink {
  readonly request: (method: string, params: string, timeoutMs: number) => Promise<JsonDoc<JsonObject>>;
  /** Undefined if no one may answer the server. */
  readonly answer: AnswerServer | undefined;
  /** Monotonic milliseconds at which the call ends in any case. */
  readonly deadline: number;
}

interface TaskState {
  readonly id: string;
  readonly status: string;
  readonly message: string | undefined;
  readonly pollMs: number;
  readonly doc: JsonDoc<JsonObject>;
}

/** Returns the result of a task in this state; undefined if it goes on. */
type Take = (state: TaskState) => Promise<JsonDoc<JsonObject> | undefined>;

/** Milliseconds between two looks at a task: by default, and the bounds of what a server may ask for. */
const [POLL_MS, LEAST_POLL_MS, MOST_POLL_MS] = [1_000, 100, 10_000];
/** Milliseconds for the answer to a cancellation, which no one waits for. */
const CANCEL_MS = 5_000;
/** How often a task may wait for input. */
const MAX_ROUNDS = 10;
const MAX_ID = 1024;
/** Milliseconds by which a timer may be early. */
const TIMER_MS = 20;
/** Milliseconds for which a server keeps a task after the deadline of its call. */
const KEPT_MS = 60_000;
const STATUSES: readonly unknown[] = ['working', 'input_required', 'completed', 'failed', 'cancelled'];

/** Returns the member of the params that asks for a task. The server keeps it for longer than the call may take. */
export function taskMember({ hardTimeoutMs }: UpstreamCall): string {
  return `"task":{"ttl":${Math.ceil(hardTimeoutMs) + KEPT_MS}}`;
}

/**
 * Returns what sends requests about the task of a call. `complete`: adds to the params, as JSON text, and the headers.
 * A cancellation is sent also after the caller has cancelled the call.
 */
export function taskRequests(
  peer: Peer,
  { serves, signal }: PeerRequest,
  complete?: (method: string, params: string) => { readonly params: string; readonly headers: PeerRequest['headers'] },
): TaskLink['request'] {
  return (method, asked, timeoutMs) => {
    const { params, headers } = complete?.(method, asked) ?? { params: asked, headers: undefined };
    return peer.request({
      method,
      params: () => params,
      timeoutMs,
      hardTimeoutMs: timeoutMs,
      serves,
      ...(headers !== undefined && { headers }),
      ...(method !== 'tasks/cancel' && signal !== undefined && { signal }),
    });
  };
}

/**
 * Sends a call that asks for a task (2025-11-25), and waits for its result. Throws as a call does, and TOOL_FAILED if
 * the server cancels the task.
 */
export async function callAsTask(peer: Peer, call: UpstreamCall, asked: PeerRequest): Promise<JsonDoc<JsonObject>> {
  const { onProgress, onRequest, hardTimeoutMs } = call;
  const link = {
    request: taskRequests(peer, asked),
    answer: onRequest,
    deadline: performance.now() + hardTimeoutMs,
  };
  let unfollow: (() => void) | undefined;
  const params = (id: number): string => {
    // Progress can come in the same turn as the answer.
    if (onProgress !== undefined) unfollow = peer.follow(id, onProgress);
    return asked.params(id);
  };
  try {
    const created = await peer.request({ ...asked, params });
    const task = JsonText.of(created).memberValue('task');
    if (!isObject(task)) return created;
    return await new FollowedTask(call, link).follow(stateOf({ ...created, value: task }), async (state) => {
      if (state.status === 'working') return undefined;
      // A task that waits for input asks during this request. The answer comes when the task has ended.
      return link.request('tasks/result', paramsOf(state), left(link));
    });
  } finally {
    unfollow?.();
  }
}

/** Returns true for an answer that says that a task was created in place of a result (2026-07-28). */
export function isStatelessTask(answer: JsonDoc<JsonObject>): boolean {
  return JsonText.of(answer).memberValue('resultType') === 'task';
}

/** Follows a task of revision 2026-07-28, as `callAsTask` does. */
export function followStatelessTask(
  created: JsonDoc<JsonObject>,
  call: UpstreamCall,
  link: TaskLink,
): Promise<JsonDoc<JsonObject>> {
  const answered = new Set<string>();
  let rounds = 0;
  return new FollowedTask(call, link).follow(stateOf(created), async (state) => {
    const { status, doc } = state;
    if (status === 'completed') return memberOf(doc, 'result');
    if (status === 'failed') throw failureIn(doc);
    if (status !== 'input_required') return undefined;
    rounds += 1;
    if (link.answer === undefined || rounds > MAX_ROUNDS) throw new TollgateError('UPSTREAM_REQUEST_DENIED');
    const answers = await answersTo(JsonText.of(doc), link.answer, answered);
    if (answers !== '') await link.request('tasks/update', `${paramsOf(state).slice(0, -1)},${answers}}`, left(link));
    return undefined;
  });
}

/** One task. It is cancelled if the call ends before it. */
class FollowedTask {
  readonly #call: UpstreamCall;
  readonly #link: TaskLink;

  constructor(call: UpstreamCall, link: TaskLink) {
    this.#call = call;
    this.#link = link;
  }

  async follow(first: TaskState, take: Take): Promise<JsonDoc<JsonObject>> {
    const link = this.#link;
    let state = first;
    try {
      for (;;) {
        this.#call.onTask?.(noteOf(state));
        if (state.status === 'cancelled')
          throw new TollgateError('TOOL_FAILED', { detail: 'The server cancelled the task of this call.' });
        const result = await take(state);
        if (result !== undefined) return result;
        await this.#pause(state.pollMs);
        const next = await link.request('tasks/get', paramsOf(first), Math.min(left(link), this.#call.timeoutMs));
        state = stateOf(next, first.id);
      }
    } catch (thrown) {
      if (state.status === 'working' || state.status === 'input_required') this.#cancel(first);
      throw this.#isLate(thrown) ? this.#late() : asLost(thrown);
    }
  }

  /** A request that was cut short by the deadline has a timeout of its own, which says nothing about the call. */
  #isLate(thrown: unknown): boolean {
    return thrown instanceof TollgateError && thrown.code === 'TOOL_TIMEOUT' && left(this.#link) <= TIMER_MS;
  }

  /** Waits until the next look, at most until the deadline. Throws the reason of the caller, and TOOL_TIMEOUT. */
  #pause(ms: number): Promise<void> {
    const { signal } = this.#call;
    return new Promise((resolve, reject) => {
      const end = (): void => {
        clearTimeout(timer);
        signal.removeEventListener('abort', end);
        if (signal.aborted) reject(cancelReason(signal));
        else if (performance.now() >= this.#link.deadline) reject(this.#late());
        else resolve();
      };
      const timer = setTimeout(end, Math.min(ms, left(this.#link))).unref();
      signal.addEventListener('abort', end, { once: true });
      if (signal.aborted) end();
    });
  }

  #late(): TollgateError {
    const { hardTimeoutMs } = this.#call;
    const detail = `The tool took longer than ${hardTimeoutMs} ms in all and was cancelled.`;
    return new TollgateError('TOOL_TIMEOUT', { detail });
  }

  #cancel(state: TaskState): void {
    this.#link.request('tasks/cancel', paramsOf(state), CANCEL_MS).catch(() => undefined);
  }
}

function left({ deadline }: TaskLink): number {
  return Math.max(1, deadline - performance.now());
}

function paramsOf({ id }: TaskState): string {
  return JSON.stringify({ taskId: id });
}

/** Reads a task. `id`: the task that was asked for. Throws UPSTREAM_INVALID. */
function stateOf(doc: JsonDoc<JsonObject>, id?: string): TaskState {
  const { taskId, status, statusMessage, pollInterval, pollIntervalMs } = doc.value;
  const isOne = typeof taskId === 'string' && taskId !== '' && taskId.length <= MAX_ID && STATUSES.includes(status);
  if (!isOne || (id !== undefined && taskId !== id))
    throw new TollgateError('UPSTREAM_INVALID', { detail: 'The server answered with something that is not a task.' });
  const asked = pollInterval ?? pollIntervalMs;
  const pollMs = typeof asked === 'number' && Number.isFinite(asked) ? asked : POLL_MS;
  return {
    id: taskId,
    status: status as string,
    message: typeof statusMessage === 'string' ? statusMessage : undefined,
    pollMs: Math.min(MOST_POLL_MS, Math.max(LEAST_POLL_MS, pollMs)),
    doc,
  };
}

function noteOf({ status, message }: TaskState): TaskNote {
  return { isWaiting: status === 'input_required', message };
}

/** Returns a member that is an object, with its own text. Throws UPSTREAM_INVALID. */
function memberOf(doc: JsonDoc<JsonObject>, key: string): JsonDoc<JsonObject> {
  const text = JsonText.of(doc);
  const member = text.member(key);
  const value = doc.value[key];
  if (member === undefined || !isObject(value))
    throw new TollgateError('UPSTREAM_INVALID', { detail: `The task of the server has no ${key}.` });
  return { text: text.slice(member.start, member.end), value, exact: member.exact };
}

function failureIn(doc: JsonDoc<JsonObject>): Error {
  const error = memberOf(doc, 'error');
  const { code, message, data } = error.value;
  if (!Number.isSafeInteger(code) || typeof message !== 'string')
    return new TollgateError('UPSTREAM_INVALID', { detail: 'The task of the server failed without an error.' });
  return new UpstreamError({ code: code as number, message, ...(data !== undefined && { data }), text: error.text });
}

/** Nothing may say that the task has not run: it was created. */
function asLost(thrown: unknown): unknown {
  if (!(thrown instanceof TollgateError) || thrown.code !== 'SERVER_UNAVAILABLE') return thrown;
  return new TollgateError('TOOL_CRASHED', {
    detail: 'The server ended, or cannot be reached, while it worked on the task of this call.',
    cause: thrown,
  });
}
