/** One external server as the facade uses it: its calls, tools, users and health. It never repeats a call. */
import { setTimeout as sleep } from 'node:timers/promises';
import { OWNER_CORRECTABLE, TollgateError } from '../../catalogs/errors/error-table.ts';
import { type Awaitable, andThen } from '../../catalogs/text/awaitable.ts';
import type { RawTool, ToolResult } from '../../catalogs/tools/tool-definition.ts';
import {
  type Health,
  type InvalidDefinition,
  LOG_LEVELS,
  type LogLevel,
  type ProcessUsers,
  refusedState,
  type ServerAdapter,
  type ServerInfo,
  type ServerLists,
  type ServerNotice,
  type UpstreamCall,
} from '../port.ts';
import { abortable, type CancelSignal } from '../rpc/cancellation.ts';
import type { JsonDoc } from '../rpc/wire-message.ts';
import { CrashAttribution, NO_SESSION } from './crash-attribution.ts';
import type { ServerEventDetails } from './server-events.ts';
import { type ServerLifetime, type ServerSettings, serverUnavailable, startRefusal } from './server-settings.ts';
import { ServerUsage } from './server-usage.ts';
import { Subscriptions } from './subscriptions.ts';
import { type AdapterOptions, Supervisor, type SupervisorParts } from './supervisor.ts';
import { ToolCache } from './tool-cache.ts';
import { pinnedTools } from './tool-list.ts';
import type { RunningCall, UpstreamSession } from './upstream-session.ts';

/**
 * The dependencies of a server: its settings, the shared slots, and how to create its connections. `users`: the
 * sessions that its process serves; absent: all sessions of the server.
 */
export type ServerParts = Pick<SupervisorParts, 'settings' | 'slots' | 'options' | 'connect'> & {
  readonly users?: ProcessUsers;
};

const [LIST_PAGE_MS, RETIRE_POLL_MS, LIVENESS_MS, IDLE_MS] = [30_000, 50, 5000, 60_000];

/** A server over stdio, a unix socket, Streamable HTTP or SSE. After `stop`, only `start` connects it again. */
export class UpstreamServer implements ServerAdapter {
  readonly name: string;
  readonly settings: ServerSettings;
  private readonly options: AdapterOptions;
  private readonly supervisor: Supervisor;
  private readonly usage: ServerUsage;
  private readonly crashAttribution: CrashAttribution;
  private readonly tools: ToolCache;
  private readonly subscriptions = new Subscriptions();
  private readonly logLevels = new Map<string, LogLevel>();
  /** The least severe of them. */
  private logLevel: LogLevel | undefined;
  private readonly users: ProcessUsers | undefined;
  /** The other lists, until they may have changed. */
  private readonly lists = new Map<keyof ServerLists, Promise<readonly unknown[]>>();
  private listener: (renewed?: 'renewed') => void = () => {};
  /** Why the server may not run, since the last `halt`. */
  private halted: TollgateError | undefined;
  private isWarm = false;
  private restart: Promise<void> | undefined;
  private unfit: readonly InvalidDefinition[] = [];

  constructor(parts: ServerParts) {
    const { settings, options, users } = parts;
    const { onExchange } = options;
    [this.name, this.settings, this.options, this.users] = [settings.name, settings, options, users];
    this.usage = new ServerUsage(settings.lifetime ?? 'on-demand', options.idleMs ?? IDLE_MS, () =>
      this.supervisor.connector.endIfIdle(),
    );
    this.crashAttribution = new CrashAttribution(settings);
    this.tools = new ToolCache((event) => this.report(event, this.supervisor.connector.current?.id ?? ''));
    this.supervisor = new Supervisor({
      ...parts,
      lifetime: () => this.usage.lifetime,
      isKept: () => this.usage.isKept,
      crashAttribution: this.crashAttribution,
      report: (event, id) => this.report(event, id),
      capabilities: () => options.capabilities?.(settings.name, users) ?? {},
      prefersSession: () => options.prefersSession?.(settings.name, users) ?? false,
      onNotice: (notice) => this.passNotice(notice),
      onExchange: onExchange && ((exchange) => onExchange(settings.name, exchange)),
      onToolsChanged: () => this.forgetTools(),
      onDown: () => this.forgetTools(),
      onRenewed: () => {
        this.subscriptions.renew(this.supervisor.connector.current);
        this.forgetTools('renewed');
      },
      onBack: () => this.listAgain(),
    });
  }

  async start(signal?: CancelSignal): Promise<ServerInfo> {
    this.supervisor.allow();
    await this.supervisor.connected(signal);
    return this.supervisor.connector.info as ServerInfo;
  }

  isAsleep(): boolean {
    return this.supervisor.isAsleep;
  }

  refuses(scope: string): TollgateError | undefined {
    return this.crashAttribution.refusal(scope, performance.now());
  }

  async wake(scope: string): Promise<void> {
    if (this.halted !== undefined) this.checkHalted();
    if (this.supervisor.connector.current === undefined)
      await this.whileInUse(() => this.crashAttribution.runFor(scope, () => this.supervisor.connected()));
  }

  async listTools(signal?: CancelSignal): Promise<readonly RawTool[]> {
    if (this.halted !== undefined) this.checkHalted();
    if (this.tools.list !== undefined) return abortable(this.tools.list, signal);
    return this.whileInUse(async () => {
      const session =
        this.supervisor.connector.current ??
        (await this.crashAttribution.runFor(NO_SESSION, () => this.supervisor.connected(signal)));
      // Several callers may have waited for one start. The first one lists for all, even if it is cancelled then.
      return abortable(
        this.tools.list ??
          this.tools.keep(
            session
              .listTools(LIST_PAGE_MS)
              .then(({ entries, unfit }) => {
                this.unfit = unfit;
                return pinnedTools(this.settings, entries);
              })
              .finally(() => this.noteIdle()),
          ),
        signal,
      );
    });
  }

  async list<Kind extends keyof ServerLists>(
    kind: Kind,
    { signal }: { readonly signal?: CancelSignal } = {},
  ): Promise<ServerLists[Kind]> {
    if (this.halted !== undefined) this.checkHalted();
    const reading = this.lists.get(kind) ?? this.readList(kind);
    return abortable(reading as Promise<ServerLists[Kind]>, signal);
  }

  private readList<Kind extends keyof ServerLists>(kind: Kind): Promise<ServerLists[Kind]> {
    const reading = this.whileInUse(async () => {
      const session = await this.crashAttribution.runFor(NO_SESSION, () => this.supervisor.connected());
      return session.list(kind, LIST_PAGE_MS);
    });
    this.lists.set(kind, reading);
    reading.catch(() => this.lists.get(kind) === reading && this.lists.delete(kind));
    return reading;
  }

  setLogLevel(level: LogLevel, { scope }: Pick<UpstreamCall, 'scope' | 'profiles'>): void {
    this.logLevels.set(scope, level);
    this.logLevel = leastSevere(this.logLevels);
    if (this.logLevel !== undefined) this.supervisor.connector.current?.useLogLevel(this.logLevel);
  }

  private passNotice(notice: ServerNotice): void {
    if (notice.notice === 'changed') {
      if (notice.list === 'resources') this.lists.delete('resources/templates');
      this.lists.delete(notice.list);
    }
    this.options.onNotice?.(this.name, notice, this.users);
  }

  async call(call: UpstreamCall): Promise<JsonDoc<ToolResult>> {
    this.checkHalted();
    const known = call.method === undefined ? undefined : this.subscriptions.known(call);
    if (known !== undefined) return known as JsonDoc<ToolResult>;
    this.crashAttribution.begin(call.scope);
    this.usage.begin();
    let session: UpstreamSession | undefined;
    let timedOut: UpstreamSession | undefined;
    const { id, scope, run, onRequest, onLog } = call;
    const running: RunningCall = { id, scope, run, onRequest, onLog };
    try {
      session = this.supervisor.connector.current ?? (await this.supervisor.connectedForCall(call.signal));
      const admitting = call.method === undefined ? this.admit(call) : undefined;
      if (admitting !== undefined) await admitting;
      if (this.logLevel !== undefined) session.useLogLevel(this.logLevel);
      this.usage.noteCall(call.scope);
      const result = await session.call(call, running);
      if (call.method !== undefined) this.subscriptions.note(call);
      return result;
    } catch (thrown) {
      if (thrown instanceof TollgateError && thrown.code === 'TOOL_TIMEOUT') timedOut = session;
      throw thrown;
    } finally {
      session?.end(running);
      this.crashAttribution.end(call.scope);
      this.usage.end();
      this.noteIdle();
      if (timedOut !== undefined) void this.checkAfterTimeout(timedOut);
    }
  }

  /** Throws or rejects if the tool may not be called with its present definition. */
  private admit({ tool, signal }: UpstreamCall): Awaitable<void> {
    const listed = this.settings.trust === 'internal' ? this.requireListed(tool, signal) : undefined;
    return andThen(listed, () =>
      andThen(
        this.options.admits?.(this.name, tool, () => this.tools.known ?? this.listTools(signal)),
        (refusal) => {
          if (refusal !== undefined) throw refusal;
        },
      ),
    );
  }

  private async requireListed(tool: string, signal: CancelSignal): Promise<void> {
    const offered = await this.listTools(signal);
    if (!offered.some(({ name }) => name === tool)) throw new TollgateError('UNKNOWN_TOOL');
  }

  health(): Health {
    const { restarts, connector, denied, refusal, isRecovering } = this.supervisor;
    const { count, end, reason } = restarts;
    const health = judgeHealth({
      refusal:
        startRefusal(this.settings) ??
        this.halted ??
        denied ??
        (this.usage.lifetime === 'keep-alive' ? end : undefined),
      connected: connector.current !== undefined,
      restarts: count,
      badLines: connector.badLines,
      loss: refusal === undefined ? (end?.message ?? reason) : undefined,
      reconnecting: this.settings.transport !== 'stdio' && isRecovering,
    });
    return this.unfit.length === 0 ? health : { ...health, unfit: this.unfit };
  }

  info(): ServerInfo | undefined {
    return this.supervisor.connector.info;
  }

  onToolsChanged(listener: (renewed?: 'renewed') => void): void {
    this.listener = listener;
  }

  holdWhile(holds: () => boolean): void {
    this.usage.holds = holds;
  }

  demand({ scope }: Pick<UpstreamCall, 'scope' | 'profiles'>, lifetime?: ServerLifetime): void {
    this.usage.demand(scope, lifetime);
  }

  async endScope(scope: string): Promise<void> {
    this.logLevels.delete(scope);
    this.logLevel = leastSevere(this.logLevels);
    this.subscriptions.end(scope, this.supervisor.connector.current);
    this.usage.endSession(scope);
  }

  stop(): Promise<void> {
    this.usage.close();
    this.tools.forget();
    return this.supervisor.stop(serverUnavailable(this.name, 'was stopped'));
  }

  async renew(how: 'list' | 'process'): Promise<void> {
    this.checkHalted();
    if (how === 'process') {
      this.crashAttribution.forget();
      this.restart ??= this.supervisor
        .restart(serverUnavailable(this.name, 'is being restarted'))
        .finally(() => (this.restart = undefined));
      await this.restart;
    }
    this.forgetTools();
  }

  /** Refuses new starts, waits for running calls, at most `graceMs`, and stops. */
  async retire(graceMs: number): Promise<void> {
    this.supervisor.forbid(serverUnavailable(this.name, 'was changed or removed'));
    const end = performance.now() + graceMs;
    while (this.crashAttribution.isBusy && performance.now() < end) await sleep(RETIRE_POLL_MS);
    await this.stop();
  }

  /** Kills every process synchronously. For the exit of this process. */
  killNow(): void {
    this.supervisor.kill(serverUnavailable(this.name, 'was stopped'), 'was stopped');
  }

  /** Kills the server and refuses starts until `lift`: for the kill switch, and for missing consent. */
  halt(refusal: TollgateError): void {
    if (this.halted !== undefined) return;
    this.halted = refusal;
    const id = this.supervisor.kill(
      refusal,
      refusal.data.killed === true ? 'was stopped by the kill switch' : 'was stopped, because it may not run any more',
    );
    if (id !== undefined) this.report({ event: 'killed' }, id);
    if (id !== undefined || refusal.data.killed === true) this.forgetTools();
  }

  /** Undoes `halt`. */
  lift(): void {
    if (this.halted === undefined) return;
    this.halted = undefined;
    this.supervisor.allow();
    this.revive();
  }

  /** Forgets all losses, because a person allowed the server. Restarts it if Tollgate had given it up. */
  revive(): void {
    if (this.halted !== undefined) return;
    const wasGivenUp = this.supervisor.restarts.end !== undefined;
    this.supervisor.restarts.forget();
    this.crashAttribution.forget();
    this.forgetTools();
    if (this.isWarm || wasGivenUp) this.warmUp();
  }

  /**
   * Starts the server in the background and lists its tools, also each time when `lift` permits it again. Does nothing
   * if it may not start now, or if a restart is scheduled.
   */
  warmUp(): void {
    this.isWarm = true;
    if (!this.supervisor.isRecovering && this.supervisor.restarts.refusal(performance.now()) === undefined)
      void this.supervisor
        .startInBackground()
        .then((why) => why !== undefined && this.options.onUnstarted?.(this.name, why));
  }

  /** Applies the newest decision of a person, made in any process. Throws it if the server may not run. */
  private checkHalted(): void {
    const refusal = this.options.halted === undefined ? this.halted : this.options.halted(this.name);
    if (refusal === undefined) return this.lift();
    this.halt(refusal);
    throw refusal;
  }

  /** Runs work for a caller. Afterwards, the connection may be given to another server. */
  private async whileInUse<T>(work: () => Promise<T>): Promise<T> {
    this.usage.begin();
    try {
      return await work();
    } finally {
      this.usage.end();
      this.noteIdle();
    }
  }

  private noteIdle(): void {
    this.supervisor.connector.noteUse();
    this.usage.noteIdle();
  }

  /**
   * After a timeout, ends an ephemeral server without other calls, and any other server if it does not react (HE-07).
   */
  private checkAfterTimeout(session: UpstreamSession): Promise<void> {
    const { connector } = this.supervisor;
    if (this.usage.lifetime === 'ephemeral' && !connector.busy()) return Promise.resolve(connector.endIfIdle());
    return connector.endIfUnresponsive(session, this.options.livenessMs ?? LIVENESS_MS);
  }

  /** Lists the tools again when they are needed next. `renewed`: the server is a new process. */
  forgetTools(renewed?: 'renewed'): void {
    this.tools.forget();
    this.lists.clear();
    this.listener(renewed);
  }

  /** Lists the tools right after a start in the background. Clients hear of tools that were missing meanwhile. */
  private listAgain(): void {
    this.listener();
    // A failure is reported as an event.
    this.listTools().catch(() => undefined);
  }

  private report(event: ServerEventDetails, id: string): void {
    this.options.onEvent?.({ ...event, server: this.name, id });
  }
}

/** The server sends its messages once, for all sessions. */
function leastSevere(levels: ReadonlyMap<string, LogLevel>): LogLevel | undefined {
  return LOG_LEVELS.find((level) => [...levels.values()].includes(level));
}

/** The facts about a server at one moment. */
interface HealthFacts {
  /** Why it may not start: not approved, killed, disabled after too many crashes, or something a person must fix. */
  readonly refusal: TollgateError | undefined;
  readonly connected: boolean;
  readonly restarts: number;
  readonly badLines: number;
  /** Why it was lost or did not start, if it is not connected. */
  readonly loss: string | undefined;
  /** True for a lost remote server to which Tollgate connects again. */
  readonly reconnecting: boolean;
}

/** Skipped messages after which a server counts as degraded. A few are common: greetings on stdout do no harm. */
const TOLERATED_BAD = 10;

/** Returns the state with its reason. If several apply, the worst one. */
export function judgeHealth({ refusal, connected, restarts, badLines, loss, reconnecting }: HealthFacts): Health {
  const facts = { restarts, badLines };
  if (refusal !== undefined)
    return {
      state: OWNER_CORRECTABLE.has(refusal.code) ? 'unavailable' : refusedState(refusal),
      reason: `${refusal.message} ${refusal.next}`,
      ...facts,
    };
  if (!connected)
    return loss === undefined
      ? { state: 'idle', ...facts }
      : { state: reconnecting ? 'degraded' : 'unavailable', reason: loss, ...facts };
  if (badLines >= TOLERATED_BAD)
    return { state: 'degraded', reason: `It broke the protocol ${badLines} times.`, ...facts };
  return { state: 'healthy', ...facts };
}
