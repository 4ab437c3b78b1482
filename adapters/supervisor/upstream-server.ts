/** Owns one external server as the facade uses it: its calls, its list, its users, its health; refuses to repeat a call. */
import { setTimeout as sleep } from 'node:timers/promises';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { RawTool, ToolResult } from '../../catalogs/tools/tool-definition.ts';
import type { Health, InvalidDefinition, ServerAdapter, ServerInfo, UpstreamCall } from '../port.ts';
import { abortable, type CancelSignal } from '../rpc/cancellation.ts';
import type { JsonDoc } from '../rpc/wire-message.ts';
import { CrashAttribution, NO_SESSION } from './crash-attribution.ts';
import { pinnedTools, refuseUnpinnedTool } from './internal-tool-pin.ts';
import type { ServerEventDetails } from './server-events.ts';
import { healthOf } from './server-health.ts';
import type { ServerLifetime, ServerSettings } from './server-settings.ts';
import { ServerUsage } from './server-usage.ts';
import { type AdapterOptions, Supervisor, type SupervisorParts } from './supervisor.ts';
import { ToolCache } from './tool-cache.ts';
import type { DefinitionList } from './tool-list.ts';
import type { UpstreamSession } from './upstream-session.ts';

/** What a server is made of: its settings, the shared slots, and how its connections are made. */
export type ServerParts = Pick<SupervisorParts, 'settings' | 'slots' | 'options' | 'connect'>;

const [LIST_PAGE_MS, RETIRE_POLL_MS, LIVENESS_MS, IDLE_MS] = [30_000, 50, 5000, 60_000];

/** A server by stdio, Streamable HTTP or SSE. After `stop` only `start` connects it again. */
export class UpstreamServer implements ServerAdapter {
  readonly name: string;
  readonly settings: ServerSettings;
  private readonly options: AdapterOptions;
  private readonly supervisor: Supervisor;
  private readonly usage: ServerUsage;
  private readonly crashAttribution: CrashAttribution;
  private readonly tools: ToolCache;
  private listener: (renewed?: 'renewed') => void = () => {};
  private halted: TollgateError | undefined;
  private ahead = false;
  private renewing: Promise<void> | undefined;
  private unfit: readonly InvalidDefinition[] = [];

  constructor(parts: ServerParts) {
    const { settings, options } = parts;
    [this.name, this.settings, this.options] = [settings.name, settings, options];
    this.usage = new ServerUsage({
      lifetime: settings.lifetime ?? 'on-demand',
      idleMs: options.idleMs ?? IDLE_MS,
      endIfIdle: () => this.supervisor.connector.endIfIdle(),
    });
    this.crashAttribution = new CrashAttribution(settings);
    this.tools = new ToolCache((news) => this.tell(news, this.supervisor.connector.current?.id ?? ''));
    this.supervisor = new Supervisor({
      ...parts,
      lifetime: () => this.usage.lifetime,
      isKept: () => this.usage.isKept,
      crashAttribution: this.crashAttribution,
      report: (happening, id) => this.tell(happening, id),
      onToolsChanged: () => this.forgetTools(),
      onDown: () => this.forgetTools(),
      onRenewed: () => this.forgetTools('renewed'),
      onBack: () => this.announce(),
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
    if (this.halted !== undefined) this.heed();
    if (this.supervisor.connector.current === undefined)
      await this.using(() => this.crashAttribution.runFor(scope, () => this.supervisor.connected()));
  }

  async listTools(signal?: CancelSignal): Promise<readonly RawTool[]> {
    if (this.halted !== undefined) this.heed();
    if (this.tools.list !== undefined) return abortable(this.tools.list, signal);
    return this.using(async () => {
      const session =
        this.supervisor.connector.current ??
        (await this.crashAttribution.runFor(NO_SESSION, () => this.supervisor.connected(signal)));
      // Several callers may have waited for one start: the first lists for all, also when it stops waiting.
      return abortable(
        this.tools.list ??
          this.tools.keep(
            session
              .listTools(LIST_PAGE_MS)
              .then((listed) => this.take(listed))
              .finally(() => this.noteIdle()),
          ),
        signal,
      );
    });
  }

  async call(call: UpstreamCall): Promise<JsonDoc<ToolResult>> {
    let unheard: UpstreamSession | undefined;
    try {
      this.heed();
      return await this.using(() =>
        this.crashAttribution.runFor(call.scope, () => this.send(call, (session) => (unheard = session))),
      );
    } finally {
      if (unheard !== undefined) void this.probe(unheard);
    }
  }

  private async send(call: UpstreamCall, onTimeout: (session: UpstreamSession) => void): Promise<JsonDoc<ToolResult>> {
    const session = this.supervisor.connector.current ?? (await this.supervisor.connectedForCall(call.signal));
    if (this.settings.trust === 'internal') refuseUnpinnedTool(call.tool, await this.listTools(call.signal));
    const refusal = await this.options.admits?.(
      this.name,
      call.tool,
      () => this.tools.known ?? this.listTools(call.signal),
    );
    if (refusal !== undefined) throw refusal;
    this.usage.noteCall(call.scope);
    return session.call(call).catch((thrown: unknown) => {
      if (thrown instanceof TollgateError && thrown.code === 'TOOL_TIMEOUT') onTimeout(session);
      throw thrown;
    });
  }

  health(): Health {
    const health = healthOf(this.supervisor, {
      settings: this.settings,
      halted: this.halted,
      lifetime: this.usage.lifetime,
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

  demand(scope: string, lifetime?: ServerLifetime): void {
    this.usage.demand(scope, lifetime);
  }

  async endScope(scope: string): Promise<void> {
    this.usage.endSession(scope);
  }

  stop(): Promise<void> {
    this.usage.close();
    this.tools.forget();
    return this.supervisor.stop(unavailable(this.name, 'was stopped'));
  }

  async renew(how: 'list' | 'process'): Promise<void> {
    this.heed();
    if (how === 'process') {
      this.crashAttribution.forget();
      this.renewing ??= this.supervisor
        .restart(unavailable(this.name, 'is being restarted'))
        .finally(() => (this.renewing = undefined));
      await this.renewing;
    }
    this.forgetTools();
  }

  /** Takes no new start, lets running calls end, at most for so long, and then stops. */
  async retire(graceMs: number): Promise<void> {
    this.supervisor.forbid(unavailable(this.name, 'was changed or removed'));
    const end = performance.now() + graceMs;
    while (this.crashAttribution.isBusy && performance.now() < end) await sleep(RETIRE_POLL_MS);
    await this.stop();
  }

  /** Ends every process at once, synchronously: for the exit of our own process. */
  killNow(): void {
    this.supervisor.kill(unavailable(this.name, 'was stopped'), 'was stopped');
  }

  /** Kill switch, or consent that is not there: ends it at once, and refuses starts with this until `lift`. */
  halt(refusal: TollgateError): void {
    if (this.halted !== undefined) return;
    this.halted = refusal;
    const id = this.supervisor.kill(
      refusal,
      refusal.data.killed === true ? 'was ended by the kill switch' : 'was ended, because it may not run any more',
    );
    if (id !== undefined) this.tell({ event: 'killed' }, id);
    if (id !== undefined || refusal.data.killed === true) this.forgetTools();
  }

  lift(): void {
    if (this.halted === undefined) return;
    this.halted = undefined;
    this.supervisor.allow();
    this.revive();
  }

  /** A person has decided that it may be used: losses before that do not count, and one that was given up is started again. */
  revive(): void {
    if (this.halted !== undefined) return;
    const wasGivenUp = this.supervisor.restarts.end !== undefined;
    this.supervisor.restarts.forgive();
    this.crashAttribution.forgive();
    this.forgetTools();
    if (this.ahead || wasGivenUp) this.warmUp();
  }

  /** Starts it without anybody who waits, and lists its tools; again when it was stopped by people who let it go. One that may not start now, or comes back by itself, is left alone. */
  warmUp(): void {
    this.ahead = true;
    if (!this.supervisor.isRecovering && this.supervisor.restarts.refusal(performance.now()) === undefined)
      void this.supervisor
        .startInBackground()
        .then((why) => why !== undefined && this.options.onUnstarted?.(this.name, why));
  }

  private take({ entries, unfit }: DefinitionList<RawTool>): readonly RawTool[] {
    this.unfit = unfit;
    return pinnedTools(this.settings, entries);
  }

  /** What people decide holds from the next call on, whoever decided it. */
  private heed(): void {
    const refusal = this.options.halted === undefined ? this.halted : this.options.halted(this.name);
    if (refusal === undefined) return this.lift();
    this.halt(refusal);
    throw refusal;
  }

  /** Does what somebody waits for, and tells who waits for a connection when it is done. */
  private async using<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await this.usage.during(work);
    } finally {
      this.noteIdle();
    }
  }

  private noteIdle(): void {
    this.supervisor.connector.noteUse();
    this.usage.noteIdle();
  }

  /** After a time-out: an ephemeral server that serves no other call ends; any other only when it is deaf (HE-07). */
  private probe(session: UpstreamSession): Promise<void> {
    const { connector } = this.supervisor;
    if (this.usage.lifetime === 'ephemeral' && !connector.busy()) return Promise.resolve(connector.endIfIdle());
    return connector.endIfUnresponsive(session, this.options.livenessMs ?? LIVENESS_MS);
  }

  forgetTools(renewed?: 'renewed'): void {
    this.tools.forget();
    this.listener(renewed);
  }

  /** What came by itself is listed at once, and those who saw its tools go hear of it. */
  private announce(): void {
    this.listener();
    this.listTools().catch(() => undefined); // Its failure is told as an event.
  }

  private tell(happening: ServerEventDetails, id: string): void {
    this.options.onEvent?.({ ...happening, server: this.name, id });
  }
}

function unavailable(name: string, what: string): TollgateError {
  return new TollgateError('SERVER_UNAVAILABLE', { detail: `Server "${name}" ${what}.` });
}
