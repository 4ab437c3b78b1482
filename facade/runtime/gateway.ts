/** The running facade: its sessions, and the snapshot that answers them. */
import { hash, randomUUID } from 'node:crypto';
import { homedir } from 'node:os';
import { isDeepStrictEqual } from 'node:util';
import type { LogLevel } from '../../adapters/port.ts';
import type { CancelSignal } from '../../adapters/rpc/cancellation.ts';
import type { JsonObject } from '../../adapters/rpc/wire-message.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { MirroredArgument } from '../../catalogs/schemas/mirrored-arguments.ts';
import { taskSupportOf } from '../../catalogs/tools/tool-definition.ts';
import type { Principal } from '../../policies/port.ts';
import type { AttentionItem } from '../attention/attention-list.ts';
import { createNotices } from '../attention/attention-notices.ts';
import { AttentionWatch } from '../attention/attention-watch.ts';
import { appendQuietly } from '../audit/audit-log.ts';
import { type ArchiveAnswer, type Retention, startRetention } from '../audit/retention.ts';
import { perform } from '../call/call.ts';
import { type OpenSession, openSession } from '../call/identify.ts';
import { interruptionError, refusalReply } from '../call/refusal.ts';
import type { InnerCall, InnerFacade } from '../code/code-server.ts';
import { mergeProfiles } from '../config/profiles.ts';
import { principalAfter } from '../config/stdio-identity.ts';
import type { Approvals, CallToApprove } from '../consent/approvals/approval-port.ts';
import { Announcer } from '../exposure/announcer.ts';
import { type ExposedTool, headerArgumentsOf } from '../exposure/exposed-tool.ts';
import { facadeInstructions, serverInstructions } from '../exposure/facade-instructions.ts';
import { type ListParts, listDefinitions, listTools } from '../exposure/list-tools.ts';
import type { NameTable } from '../exposure/name-table.ts';
import { shownUri } from '../exposure/resource-tables.ts';
import type { ServedServer } from '../exposure/served-server.ts';
import { LIST_WAIT_MS } from '../exposure/server-definitions.ts';
import { unwrapCall } from '../exposure/wrapped-calls.ts';
import { ClientTasks } from '../operations/client-tasks.ts';
import { decidedOnly } from '../operations/operation.ts';
import { operationOf } from '../operations/operation-table.ts';
import { RESOURCE_UPDATED } from '../operations/resource-operation.ts';
import type {
  CallRequest,
  ClientNotice,
  Facade,
  HostSessionOptions,
  ListMethod,
  LostRequest,
  Reply,
  SavedSession,
  Session,
} from '../serve/facade-port.ts';
import type { Snapshot } from './config-snapshot.ts';
import { createReadiness } from './readiness.ts';
import type { Backends } from './servers/backends.ts';
import { closeSharedServices, type SharedServices } from './shared-services.ts';

/** Implements Facade. */
export class Gateway implements Facade, InnerFacade {
  readonly #shared: SharedServices;
  readonly #backends: Backends;
  readonly #sessions = new Set<OpenSession>();
  /** Snapshots that have been replaced and still have calls. */
  readonly #retiring = new Set<Snapshot>();
  #snapshot: Snapshot;
  readonly #retention: Retention;
  readonly #announcer: Announcer;
  readonly #tasks: ClientTasks;
  #attention: AttentionWatch | undefined;
  readonly readiness: Facade['readiness'];
  readonly seals: Facade['seals'];
  readonly replica: Facade['replica'];
  readonly follow: Facade['follow'];

  constructor({ shared, backends, snapshot }: { shared: SharedServices; backends: Backends; snapshot: Snapshot }) {
    this.#shared = shared;
    this.#backends = backends;
    this.#snapshot = snapshot;
    this.seals = shared.seals;
    this.replica = shared.state.isShared ? shared.state.mark() : undefined;
    this.follow = shared.telemetry?.follow;
    this.readiness = createReadiness(shared, () => this.#snapshot.policy);
    this.#retention = startRetention({
      config: () => this.#snapshot.config,
      now: Date.now,
      tell: (answer) => this.#noteArchived(answer),
    });
    this.#announcer = new Announcer({
      sessions: this.#sessions,
      snapshot: () => this.#snapshot,
      consented: () => JSON.stringify([...shared.consents.currentRefusals().marks]),
      onFault: (thrown) => shared.log.error({ err: thrown }, 'lists'),
    });
    this.#tasks = new ClientTasks({
      perform: (session, request) => this.#perform(session, request),
      supportOf: async (session, { name, via }) => {
        if (via !== undefined && (await this.#find(session, via)) === undefined) return undefined;
        const exposed = await this.#find(session, name);
        return exposed === undefined ? undefined : (taskSupportOf(exposed.entry?.tool) ?? 'none');
      },
      tell: (notice, session) => this.#announcer.tell(notice, session),
      append: (entry) => shared.audit.append(entry),
      redactor: shared.redactor,
      newId: randomUUID,
      replica: this.replica,
    });
    shared.clients.attach({
      sessions: this.#sessions,
      serversOf: (principal) => this.#snapshot.serversOf(principal),
      asksOf: (server) => this.#snapshot.config.servers.get(server)?.asks ?? [],
      judgeUpdate: (session, server, uri) => this.#judgeUpdate(session, server, uri),
      tell: (notice, session) => this.#announcer.tell(notice, session),
    });
  }

  #noteArchived(answer: ArchiveAnswer): void {
    if (!('fault' in answer)) return;
    const { log, audit } = this.#shared;
    log.error(`${answer.fault} Old files stay in the audit log. Run: tollgate audit verify`);
    appendQuietly(audit, { type: 'config', event: 'unarchived', outcome: 'error' });
  }

  /** The snapshot in force. A call reads it once. */
  get snapshot(): Snapshot {
    return this.#snapshot;
  }

  /** The number of snapshots in use: the present one, and replaced ones with running calls. */
  get snapshotCount(): number {
    return 1 + this.#retiring.size;
  }

  /**
   * Opens a session, and starts the servers that its profile starts with it. Throws STATE_FAILED, and IDENTITY if the
   * principal was removed since it was identified.
   */
  openSession(principal: Principal, transport: 'stdio' | 'http', host?: HostSessionOptions): Session {
    const { config } = this.#snapshot;
    const current = principalAfter(principal, { before: config, after: config });
    if (current === undefined) throw principalRemoved();
    const session = openSession(isDeepStrictEqual(current, principal) ? principal : current, transport, host);
    const event = host?.isContinued === true ? 'continued' : 'opened';
    this.#shared.audit.append({ ...sessionRecord(session), event, outcome: 'allow' });
    this.#sessions.add(session);
    this.#shared.context.open(session);
    this.#snapshot.demand(session);
    this.#backends.startAhead(this.#snapshot.startsWith(session));
    return session;
  }

  async closeSession(session: Session, how?: 'released'): Promise<void> {
    const open = session as OpenSession;
    if (!this.#sessions.delete(open)) return;
    const ended = interruptionError('The session ended while the call ran.');
    open.end.abort(ended);
    await this.#tasks.end(open, ended);
    const { budgets, spills, audit, context, metrics, telemetry } = this.#shared;
    context.end(open.id);
    const ms = performance.now() - open.openedAt;
    metrics.onSessionEnd(open.transport, ms);
    telemetry?.onSession(open, ms);
    const { catalog, deps } = this.#snapshot;
    spills.forget({ principal: open.principal.id, run: open.id });
    // A server that fails here keeps nothing of the session either.
    await Promise.allSettled(
      [...catalog.servers.values()].map(async ({ adapter, backend }) => (backend ?? adapter).endScope?.(open.id)),
    );
    const record = { ...sessionRecord(open), outcome: 'allow' } as const;
    if (how === 'released') return void audit.append({ ...record, event: 'released' });
    await runAll([
      () => deps.plans.end(open.principal, open.id),
      () => deps.labels.end(open),
      () => budgets.end('run', open.id),
      () => budgets.end('session', open.id),
      () => deps.grants.expire({ session: open.id }),
      () => audit.append({ ...record, event: 'closed' }),
    ]);
  }

  save(session: Session): SavedSession {
    const { client, logLevel } = session;
    return { client, ...(logLevel !== undefined && { logLevel }), lists: hashLists(session as OpenSession) };
  }

  async restore(session: Session, { client, logLevel, lists }: SavedSession): Promise<void> {
    const open = session as OpenSession;
    open.client = client;
    open.isStateless = false;
    if (logLevel !== undefined) this.setLogLevel(open, logLevel);
    for (const method of Object.keys(lists)) {
      const { kind } = await this.list(open, method as ListMethod, open.closed);
      if (kind === 'error')
        throw new TollgateError('STATE_FAILED', {
          detail: 'What the client of this session has listed cannot be compared now.',
          next: 'Call again in a few seconds.',
        });
    }
    const now = hashLists(open);
    const stale = Object.keys(lists).filter((method) => lists[method] !== now[method]);
    for (const name of open.listed.keys()) if (stale.includes(listOf(name))) open.listed.set(name, UNKNOWN_PIN);
  }

  answerLost({ principal, session, method }: LostRequest): Reply {
    const { audit, redactor } = this.#shared;
    const { id, role, profiles, origin } = principal;
    const kind = method === 'tools/call' ? 'tool' : 'list';
    const decision = randomUUID();
    const answer = (thrown: unknown): Reply => refusalReply(thrown, { id: decision, redactor, kind });
    try {
      audit.append({
        type: 'session',
        id: decision,
        event: 'lost',
        outcome: 'error',
        code: 'REPLICA_LOST',
        transport: 'http',
        principal: { id, role, profiles, origin },
        ...(session !== undefined && { session }),
      });
      return answer(new TollgateError('REPLICA_LOST', { data: { executed: 'unknown' } }));
    } catch (thrown) {
      return answer(thrown);
    }
  }

  instructions({ principal }: Session): string {
    const { config, policy, deps } = this.#snapshot;
    const { primitives } = mergeProfiles(config, principal.profiles);
    const own = facadeInstructions({
      profiles: principal.profiles,
      primitives: Object.keys(primitives),
      rules: policy.ruleIds ?? [],
      hasPlan: deps.plans.applies(principal),
    });
    return [own, ...this.#serverInstructions(principal)].join('\n\n');
  }

  /** A server's own instructions are shown as a person approved them, never as it says them now (HA-32). */
  #serverInstructions(principal: Principal): readonly string[] {
    const { redactor } = this.#shared;
    return this.#snapshot.serversOf(principal).flatMap((server) => {
      const text = this.#snapshot.approvedSet(server, this.#shared)?.instructions;
      return text === undefined ? [] : [serverInstructions(server, redactor.redact(text).value)];
    });
  }

  async list(session: Session, method: ListMethod, signal: CancelSignal): Promise<Reply> {
    const began = performance.now();
    const reply = await (method === 'tools/list'
      ? this.#list(session, { signal })
      : this.#listDefinitions(session, method, signal));
    const error = reply.kind === 'error' ? String(reply.error.code) : '';
    this.#shared.metrics.onList(session.principal, { method, error, ms: performance.now() - began });
    return reply;
  }

  /** Lists tools as `list` does, and adds `server` and `ids` (`server.tool`), by which grants name a tool. */
  listToolsWithIds(session: Session, signal: CancelSignal): Promise<Reply> {
    return this.#list(session, { signal, ids: true });
  }

  #list(session: Session, options: Pick<ListParts, 'signal' | 'ids'>): Promise<Reply> {
    const snapshot = this.#snapshot;
    return snapshot.within(async ({ nameTables: exposures, redactor, newId }) => {
      const reply = await listTools(exposures, session as OpenSession, {
        redactor,
        newId,
        basis: () => this.#announcer.basisOf(session as OpenSession),
        ...options,
      });
      if (reply.kind === 'result')
        this.#shared.context.onList(session, reply, snapshot.originalLists(session.principal));
      return reply;
    });
  }

  #listDefinitions(session: Session, method: Exclude<ListMethod, 'tools/list'>, signal: CancelSignal): Promise<Reply> {
    return this.#snapshot.within((deps) => listDefinitions(deps, session as OpenSession, { method, signal }));
  }

  perform(session: Session, asked: CallRequest): Promise<Reply> {
    const request = unwrapCall(asked);
    if (request.refusal !== undefined) return this.#perform(session, request);
    if (request.task !== undefined) return this.#tasks.start(session as OpenSession, request);
    if (this.#tasks.answers(request)) return this.#tasks.answer(session as OpenSession, request);
    return this.#perform(session, request);
  }

  /** Returns an open session; undefined if it has ended. */
  session(id: string): OpenSession | undefined {
    return [...this.#sessions].find((session) => session.id === id);
  }

  performInner(session: OpenSession, request: CallRequest, { cap, gate, obtain }: InnerCall): Promise<Reply> {
    const operation = operationOf(request.method);
    return this.#snapshot.within((deps) => {
      const approvals: Pick<Approvals, 'obtain'> = { obtain: (call: CallToApprove) => obtain(call, deps.approvals) };
      const capsOf: typeof deps.capsOf = (principal) => ({ ...deps.capsOf(principal), forCode: cap });
      const codeLimitOf: NonNullable<typeof deps.codeLimitOf> = (open) =>
        this.#shared.codeGateOf(open, deps.capsOf(open.principal).concurrent);
      return perform({ ...deps, approvals, gate, capsOf, codeLimitOf }, { session, operation }, request);
    });
  }

  askPerson(call: CallToApprove): Promise<string | undefined> {
    return this.#snapshot.within(({ approvals }) => approvals.obtain(call));
  }

  labelsOf(session: OpenSession, run: string): readonly string[] {
    return this.#snapshot.deps.labels.of(session, run);
  }

  joinLabels(session: OpenSession, run: string, labels: readonly string[]): Promise<void> {
    return this.#snapshot.deps.labels.join(session, run, labels);
  }

  tableOf(session: OpenSession): Promise<NameTable> {
    return this.#snapshot.within(({ nameTables }) => nameTables.tableFor(session.principal, session, LIST_WAIT_MS));
  }

  runningTasks(session: Session): number {
    return this.#tasks.running(session as OpenSession);
  }

  #perform(session: Session, request: CallRequest): Promise<Reply> {
    const row = operationOf(request.method);
    const operation = request.isContinued === true ? decidedOnly(row) : row;
    return this.#snapshot.within((deps) => perform(deps, { session: session as OpenSession, operation }, request));
  }

  async #judgeUpdate(session: OpenSession, server: string, uri: string): Promise<string | undefined> {
    const served = this.#snapshot.catalog.servers.get(server);
    if (served === undefined || session.closed.aborted) return undefined;
    const shown = { uri: shownUri(served, uri) };
    const args = { text: JSON.stringify(shown), value: shown, exact: true };
    const request = { name: 'resources/subscribe', args, signal: session.closed };
    const { kind } = await this.#snapshot.within((deps) =>
      perform(deps, { session, operation: RESOURCE_UPDATED }, request),
    );
    return kind === 'result' ? shown.uri : undefined;
  }

  setLogLevel(session: Session, level: LogLevel): void {
    session.logLevel = level;
    for (const name of this.#snapshot.serversOf(session.principal))
      this.#snapshot.catalog.servers.get(name)?.adapter.setLogLevel?.(level, {
        scope: session.id,
        profiles: session.principal.profiles,
      });
  }

  capabilities({ principal }: Session): JsonObject {
    const { resources, prompts } = mergeProfiles(this.#snapshot.config, principal.profiles);
    const completable = resources.length + prompts.length > 0;
    return {
      tools: { listChanged: true },
      logging: {},
      ...(resources.length > 0 && { resources: { subscribe: true, listChanged: true } }),
      ...(prompts.length > 0 && { prompts: { listChanged: true } }),
      ...(completable && { completions: {} }),
      ...(this.#offersTasks(principal) && { tasks: { list: {}, cancel: {}, requests: { tools: { call: {} } } } }),
    };
  }

  revision(): string {
    return this.#snapshot.policy.revision;
  }

  /** A name that cannot be resolved has none: the call of it is refused and recorded. */
  async headerArguments(session: Session, name: string): Promise<readonly MirroredArgument[]> {
    const exposed = await this.#find(session as OpenSession, name);
    return exposed === undefined ? [] : headerArgumentsOf(exposed);
  }

  /** Returns the tool of a name; undefined for a name that cannot be resolved. Never rejects. */
  async #find(session: OpenSession, name: string): Promise<ExposedTool | undefined> {
    try {
      const { exposed } = await this.#snapshot.within(async ({ nameTables }) =>
        nameTables.resolve(session.principal, name, session),
      );
      return exposed;
    } catch {
      return undefined;
    }
  }

  /** A server that has not listed its tools yet may offer tasks. */
  #offersTasks(principal: Principal): boolean {
    const { config, catalog } = this.#snapshot;
    if (mergeProfiles(config, principal.profiles).expose.length === 0) return false;
    return this.#snapshot
      .serversOf(principal)
      .filter((name) => config.servers.has(name))
      .map((name) => catalog.entries(name))
      .some((entries) => entries.length === 0 || entries.some(({ tool }) => taskSupportOf(tool) !== undefined));
  }

  onNotice(listener: (notice: ClientNotice, session?: Session) => void): void {
    this.#announcer.onNotice(listener);
  }

  onToolsChanged(listener: (session?: Session) => void): void {
    this.#announcer.onToolsChanged(listener);
  }

  metrics(principal: Principal): string {
    const entries = this.#serversFor(principal).map(({ name, adapter }) => [name, adapter.health()] as const);
    const sessions = { stdio: 0, http: 0 };
    let running = 0;
    for (const { transport, calls } of this.#sessions) {
      sessions[transport] += 1;
      running += calls.size;
    }
    const { metrics, budgets, processGate, spills, telemetry, exportAudit } = this.#shared;
    return metrics.text(
      {
        health: Object.fromEntries(entries),
        unsettled: budgets.unsettled,
        gate: processGate.readings,
        sessions,
        running,
        spills: spills.kept,
        dropped: telemetry?.dropped,
        exported: exportAudit.state,
      },
      principal.owner === true ? undefined : principal.id,
    );
  }

  health(principal: Principal): Readonly<Record<string, string>> {
    return Object.fromEntries(this.#serversFor(principal).map(({ name, adapter }) => [name, adapter.health().state]));
  }

  #serversFor(principal: Principal): readonly ServedServer[] {
    const { catalog } = this.#snapshot;
    const own = principal.owner === true ? undefined : new Set(this.#snapshot.serversOf(principal));
    return [...catalog.servers.values()].filter(({ name }) => own?.has(name) !== false);
  }

  /**
   * Makes `next` answer every call and list from now on. Running calls keep their snapshot. Returns the principals
   * whose sessions this ends.
   */
  swap(next: Snapshot): readonly string[] {
    const before = this.#snapshot;
    this.#snapshot = next;
    const ended = [...this.#sessions].filter((session) => !this.#renew(session, before, next));
    for (const session of this.#sessions) next.demand(session);
    void this.#retire(before);
    this.#announcer.noteSwap();
    return ended.map(({ principal }) => principal.id);
  }

  /** Tells hosts and the owner what needs attention, from now on. */
  watchAttention(list: () => Promise<readonly AttentionItem[]>): void {
    const { state, feed, log, troubles } = this.#shared;
    this.#attention ??= new AttentionWatch({
      state,
      list,
      feed,
      sessions: () => this.#sessions.size,
      notify: createNotices({
        settings: () => this.#snapshot.config.notices,
        env: process.env,
        home: homedir(),
        onDelivery: (failure) => {
          if (failure === undefined) return troubles.clear('notices-failed');
          log.warn(`The webhook of notices does not take them (${failure}). \`tollgate status\` has the whole list.`);
          troubles.note('notices-failed', failure);
        },
      }),
      onFault: (err) => log.error({ err }, 'attention'),
      now: Date.now,
    });
    this.#attention.start();
  }

  /** Ends sessions, servers, spills and the log, in this order, so that the last records are written. */
  async close(): Promise<void> {
    this.#announcer.close();
    await this.#attention?.close();
    await runAll([
      () => this.#retention.close(),
      () => settleAll([...this.#sessions].map((session) => this.closeSession(session))),
      () => this.#backends.stop(),
      () => settleAll([...this.#retiring, this.#snapshot].map((one) => one.close())),
      () => closeSharedServices(this.#shared),
    ]);
  }

  /** Tells clients that a list has changed, once for many changes. */
  noteChange(): void {
    this.#announcer.noteChange();
  }

  /** Gives a session its principal of the next snapshot. Ends the session, and returns false, if there is none. */
  #renew(session: OpenSession, before: Snapshot, next: Snapshot): boolean {
    const principal = principalAfter(session.principal, { before: before.config, after: next.config });
    if (principal !== undefined) {
      if (!isDeepStrictEqual(principal, session.principal)) session.principal = principal;
      return true;
    }
    if (session.closed.aborted) return true;
    session.end.abort(principalRemoved());
    const refusal = { event: 'refused', outcome: 'error', code: 'IDENTITY' } as const;
    appendQuietly(this.#shared.audit, { ...sessionRecord(session), ...refusal });
    return false;
  }

  /** Never rejects. */
  async #retire(before: Snapshot): Promise<void> {
    this.#retiring.add(before);
    before.retire();
    try {
      await before.empty();
      await before.close();
      this.#retiring.delete(before);
      if (this.#retiring.size === 0) await this.#backends.stopReplaced();
    } catch (thrown) {
      this.#shared.log.error({ err: thrown }, 'fault');
    }
  }
}

function principalRemoved(): TollgateError {
  return new TollgateError('IDENTITY', {
    detail: 'The principal of this session is no longer in the configuration, or has another token.',
    next: 'Connect again.',
  });
}

/** Runs all steps in order, also after an error; then throws the first error. */
async function runAll(steps: readonly (() => unknown)[]): Promise<void> {
  const faults: unknown[] = [];
  for (const work of steps) {
    try {
      await work();
    } catch (thrown) {
      faults.push(thrown);
    }
  }
  if (faults.length > 0) throw faults[0];
}

/** Waits for all promises; then throws the first error. */
async function settleAll(steps: readonly Promise<void>[]): Promise<void> {
  const ends = await Promise.allSettled(steps);
  for (const end of ends) if (end.status === 'rejected') throw end.reason;
}

/** Differs from each pin, so that a call is refused until its client lists again. */
const UNKNOWN_PIN = '';
const PROMPT_PREFIX = 'prompt ';

/** Returns the method of the list that shows a name of `OpenSession.listed`. */
function listOf(name: string): ListMethod {
  return name.startsWith(PROMPT_PREFIX) ? 'prompts/list' : 'tools/list';
}

/** Returns a hash of what the client was shown, by list. */
function hashLists({ listed }: OpenSession): Readonly<Record<string, string>> {
  const shown = new Map<ListMethod, string[]>();
  for (const [name, pin] of listed) {
    const pins = shown.get(listOf(name)) ?? [];
    pins.push(`${name} ${pin}`);
    shown.set(listOf(name), pins);
  }
  // Prompts come last, because a list of tools forgets what was listed before.
  const sorted = [...shown].sort(([one], [other]) => (one > other ? -1 : 1));
  return Object.fromEntries(sorted.map(([method, pins]) => [method, hash('sha256', pins.sort().join(), 'hex')]));
}

/** Returns what all audit records of a session contain. */
function sessionRecord({ id: session, transport, principal: { id, role, profiles, origin }, operator }: OpenSession) {
  return { type: 'session' as const, session, transport, principal: { id, role, profiles, origin }, ...operator };
}
