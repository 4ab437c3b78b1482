/**
 * Calls that a client runs as tasks (MCP 2025-11-25, basic/utilities/tasks; extension io.modelcontextprotocol/tasks of
 * revision 2026-07-28). A task is a call of Tollgate like any other, in all nine stages: only its answer waits here. So
 * a server's own task, its id and its result never reach a client directly.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { cancelReason } from '../../adapters/rpc/cancellation.ts';
import { jsonMembers } from '../../adapters/rpc/message-parser.ts';
import { isObject, JsonText } from '../../adapters/rpc/wire-message.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { TaskSupport } from '../../catalogs/tools/tool-definition.ts';
import type { TaskEntry } from '../audit/audit-entry.ts';
import type { OpenSession } from '../call/identify.ts';
import { refusalReply } from '../call/refusal.ts';
import type { Redactor } from '../output/redactor.ts';
import type { CallRequest, ClientNotice, Reply, ResultEnvelope } from '../serve/facade-port.ts';
import { ClientTask, inEnvelope, legacyTask, relatedTask, resultOf, statelessTask } from './client-task.ts';

/** What tasks need of the running facade. */
export interface ClientTaskParts {
  /** Runs a call through the nine stages. Never rejects. */
  readonly perform: (session: OpenSession, request: CallRequest) => Promise<Reply>;
  /** Returns what the definition of a tool says; undefined if the session has no such tool. Never rejects. */
  readonly supportOf: (
    session: OpenSession,
    request: Pick<CallRequest, 'name' | 'via'>,
  ) => Promise<TaskSupport | 'none' | undefined>;
  readonly tell: (notice: ClientNotice, session: OpenSession) => void;
  /** Throws AUDIT_FAILED. */
  readonly append: (entry: TaskEntry) => void;
  readonly redactor: Redactor;
  readonly newId: () => string;
  /** The mark of this process among those that serve the same sessions. */
  readonly replica?: string | undefined;
}

/** Tasks of one principal, in all of its sessions. */
const MAX_TASKS = 32;
/** Milliseconds in which a refusal is still answered as one, not by a task. */
const SOON_MS = 50;
/** Milliseconds that a cancelled call may take to end. */
const SETTLE_MS = 2_000;
/** Milliseconds for which a task is kept, running or not: by default, and at most. */
const [KEPT_MS, MOST_KEPT_MS] = [900_000, 3_600_000];

/** The tasks of all sessions. */
export class ClientTasks {
  readonly #parts: ClientTaskParts;
  readonly #sessions = new Map<OpenSession, Map<string, ClientTask>>();
  readonly #methods: Readonly<Record<string, (session: OpenSession, request: CallRequest) => Promise<string | Reply>>> =
    {
      'tasks/get': (session, request) => this.#get(session, request),
      'tasks/result': (session, request) => this.#result(session, request),
      'tasks/list': (session, request) => this.#list(session, request),
      'tasks/cancel': (session, request) => this.#cancel(session, request),
      'tasks/update': (session, request) => this.#update(session, request),
    };

  constructor(parts: ClientTaskParts) {
    this.#parts = parts;
  }

  /** The tasks of a session that have not ended. */
  running(session: OpenSession): number {
    const tasks = this.#sessions.get(session);
    return tasks === undefined ? 0 : [...tasks.values()].filter(({ isOver }) => !isOver).length;
  }

  /** Returns true for a request about tasks. */
  answers({ method }: CallRequest): boolean {
    return method?.startsWith('tasks/') === true && Object.hasOwn(this.#methods, method);
  }

  /**
   * Starts a call as a task and returns the task, or the refusal of the call. A client of revision 2026-07-28 only
   * allows a task: its call becomes one if the tool runs as nothing else. Never rejects.
   */
  async start(session: OpenSession, request: CallRequest): Promise<Reply> {
    const support = await this.#parts.supportOf(session, request);
    const { task: asked, envelope } = request;
    const isTask = envelope === undefined ? support === 'optional' || support === 'required' : support === 'required';
    const plain = { ...request, task: undefined };
    if (!isTask && (envelope !== undefined || support === undefined)) return this.#parts.perform(session, plain);
    if (!isTask) return this.#parts.perform(session, { ...plain, refusal: noTask() });
    const { id } = session.principal;
    const all = [...this.#sessions].filter(([one]) => one.principal.id === id).flatMap(([, tasks]) => [...tasks]);
    if (all.length >= MAX_TASKS) return this.#refusal(tooMany());
    const ttlMs = Math.min(MOST_KEPT_MS, Math.max(1, asked?.ttlMs ?? KEPT_MS));
    const task = new ClientTask({
      ttlMs,
      redactor: this.#parts.redactor,
      replica: this.#parts.replica,
      onChange: () => this.#changed(session, task),
    });
    this.#of(session).set(task.id, task);
    task.onEnd = () => this.#forget(session, task);
    const onAbort = (): void => task.cancel.abort(cancelReason(request.signal));
    request.signal.addEventListener('abort', onAbort);
    const done = task.run((channel) =>
      this.#parts.perform(session, { ...plain, envelope: undefined, ...channel(request) }),
    );
    await Promise.race([done, sleep(SOON_MS, undefined, { ref: false })]);
    request.signal.removeEventListener('abort', onAbort);
    if (task.reply?.kind === 'error' || request.signal.aborted) {
      await done;
      this.#forget(session, task);
      return task.reply as Reply;
    }
    task.isTold = true;
    return envelope === undefined
      ? { kind: 'result', text: JSON.stringify({ task: legacyTask(task) }) }
      : inEnvelope(JSON.stringify(statelessTask(task)), { ...envelope, members: '"resultType":"task"' });
  }

  /** Answers a request about tasks. Never rejects. */
  async answer(session: OpenSession, request: CallRequest): Promise<Reply> {
    const { method = '', envelope } = request;
    try {
      const answer = await this.#methods[method]?.(session, request);
      if (typeof answer !== 'string') return answer as Reply;
      return envelope === undefined ? { kind: 'result', text: answer } : inEnvelope(answer, envelope);
    } catch (thrown) {
      return this.#refusal(thrown);
    }
  }

  /** Cancels the tasks of a session that has ended, and forgets all. */
  async end(session: OpenSession, reason: TollgateError): Promise<void> {
    const tasks = [...this.#of(session).values()];
    this.#sessions.delete(session);
    for (const task of tasks) task.end(reason);
    await settled(tasks);
  }

  #of(session: OpenSession): Map<string, ClientTask> {
    const known = this.#sessions.get(session) ?? new Map<string, ClientTask>();
    if (!session.closed.aborted) this.#sessions.set(session, known);
    return known;
  }

  /**
   * Returns a task of this session. A task of another session gets the same answer as none, and both are recorded: an
   * id is 128 random bits, so a wrong one is no accident.
   */
  #find(session: OpenSession, { args, method = '' }: CallRequest): ClientTask {
    const { taskId } = isObject(args.value) ? args.value : {};
    const task = typeof taskId === 'string' ? this.#of(session).get(taskId) : undefined;
    if (task !== undefined) return task;
    this.#record(session, { event: 'refused', outcome: 'deny', method, code: 'UNKNOWN_TASK' });
    throw new TollgateError('UNKNOWN_TASK');
  }

  async #get(session: OpenSession, request: CallRequest): Promise<string | Reply> {
    const task = this.#find(session, request);
    const { envelope } = request;
    if (envelope === undefined) return JSON.stringify(legacyTask(task));
    if (task.reply === undefined) return JSON.stringify({ ...statelessTask(task), ...task.inputRequests() });
    await this.#release(session, task);
    return resultOf(task);
  }

  /** Waits for the end of the task. Meanwhile this request carries what the call asks of the client. */
  async #result(session: OpenSession, request: CallRequest): Promise<Reply> {
    this.#refuseStateless(request);
    const task = this.#find(session, request);
    await task.serve(request);
    await this.#release(session, task);
    return relatedTask(task);
  }

  async #list(session: OpenSession, request: CallRequest): Promise<string> {
    this.#refuseStateless(request);
    const { cursor = '' } = isObject(request.args.value) ? request.args.value : {};
    if (cursor !== '') throw new TollgateError('WIRE_PARAMS', { detail: 'The list of tasks has one page.' });
    return JSON.stringify({ tasks: [...this.#of(session).values()].map(legacyTask) });
  }

  async #cancel(session: OpenSession, request: CallRequest): Promise<string> {
    const task = this.#find(session, request);
    if (task.isOver && request.envelope === undefined) throw new TollgateError('TASK_ENDED');
    if (!task.isOver) {
      this.#record(session, { event: 'cancelled', outcome: 'allow', ...task.named });
      task.end(new TollgateError('CANCELLED', { detail: 'The caller cancelled the task.' }));
      await settled([task]);
    }
    return request.envelope === undefined ? JSON.stringify(legacyTask(task)) : '{}';
  }

  /** Takes answers of a client of revision 2026-07-28. Keys that are not open are ignored. */
  async #update(session: OpenSession, request: CallRequest): Promise<string> {
    if (request.envelope === undefined) throw new TollgateError('WIRE_METHOD');
    const task = this.#find(session, request);
    const params = JsonText.of(request.args);
    const all = params.member('inputResponses');
    const text = all === undefined ? '' : params.slice(all.start, all.end);
    for (const { key, start, end, exact } of text.startsWith('{') ? jsonMembers(text) : []) {
      const part = text.slice(start, end);
      const value: unknown = JSON.parse(part);
      if (isObject(value)) task.answer(key, { text: part, value, exact });
    }
    return '{}';
  }

  #refuseStateless({ envelope }: { readonly envelope?: ResultEnvelope | undefined }): void {
    if (envelope !== undefined) throw new TollgateError('WIRE_METHOD');
  }

  /** Checks that the result may still be given out, and records it. */
  async #release(session: OpenSession, task: ClientTask): Promise<void> {
    try {
      await task.facts?.recheck();
    } catch (thrown) {
      const code = thrown instanceof TollgateError ? thrown.code : 'INTERNAL';
      this.#record(session, { event: 'refused', outcome: 'deny', ...task.named, code });
      throw thrown;
    }
    if (!task.isReleased) this.#record(session, { event: 'delivered', outcome: 'allow', ...task.named });
    task.isReleased = true;
  }

  #record({ id: session, principal: { id, role, profiles, origin } }: OpenSession, entry: TaskEvent): void {
    this.#parts.append({ type: 'task', session, principal: { id, role, profiles, origin }, ...entry });
  }

  #changed(session: OpenSession, task: ClientTask): void {
    if (task.isTold && !task.isStateless)
      this.#parts.tell({ method: 'notifications/tasks/status', params: legacyTask(task) }, session);
  }

  #forget(session: OpenSession, task: ClientTask): void {
    task.stop();
    this.#sessions.get(session)?.delete(task.id);
  }

  #refusal(thrown: unknown): Reply {
    // An error in place of a task, or of what a request about tasks returns, is a JSON-RPC error.
    return refusalReply(thrown, { id: this.#parts.newId(), redactor: this.#parts.redactor, kind: 'list' });
  }
}

/** Waits until cancelled calls are recorded. A server of this process may not notice the cancellation. */
async function settled(tasks: readonly ClientTask[]): Promise<void> {
  await Promise.race([Promise.all(tasks.map(({ done }) => done)), sleep(SETTLE_MS, undefined, { ref: false })]);
}

type TaskEvent = Omit<TaskEntry, 'type' | 'session' | 'principal'>;

function noTask(): TollgateError {
  return new TollgateError('WIRE_METHOD', {
    detail: 'This tool does not run as a task.',
    next: 'Call it without `task`; tools/list says which tools run as tasks.',
  });
}

function tooMany(): TollgateError {
  return new TollgateError('RATE_LIMITED', {
    detail: `This principal has ${MAX_TASKS} tasks already.`,
    next: 'Get or cancel one, or wait until one expires.',
  });
}
