/** Keeps one server running: starts it on demand, and restarts it after a loss. */
import { asTollgateError, OWNER_CORRECTABLE, TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Awaitable } from '../../catalogs/text/awaitable.ts';
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';
import { type ProcessUsers, type ServerNotice, startFailure } from '../port.ts';
import { abortable, type CancelSignal } from '../rpc/cancellation.ts';
import type { JsonObject } from '../rpc/message-parser.ts';
import type { Exchange, FollowedExchange } from '../rpc/peer.ts';
import type { ProcessConnectionOptions } from '../stdio/stdio-connection.ts';
import { Connector, type ConnectorParts } from './connector.ts';
import type { CrashAttribution } from './crash-attribution.ts';
import { lossEvents, type RestartMode, Restarts } from './restarts.ts';
import type { OnEvent } from './server-events.ts';
import { type ServerLifetime, type SharedConnectionSlots, startRefusal } from './server-settings.ts';
import type { UpstreamSession } from './upstream-session.ts';

/** The options that all adapters share. */
export interface AdapterOptions extends ProcessConnectionOptions {
  readonly onEvent?: OnEvent;
  /** A server that should start with the facade did not. `why` is for the person who started the facade. */
  readonly onUnstarted?: (name: string, why: TollgateError) => void;
  /** Returns why this server may not run now (kill switch, withdrawn consent). Called before each start and call. */
  readonly halted?: (name: string) => TollgateError | undefined;
  /**
   * Returns why a tool may not be called as the server defines it now. Called before each call. `list` returns the
   * tools that the server lists now.
   */
  readonly admits?: (
    name: string,
    tool: string,
    list: () => Awaitable<readonly RawTool[]>,
  ) => Awaitable<TollgateError | undefined>;
  /**
   * Returns the capabilities of clients that a handshake with this server declares. `users`: the sessions that its
   * process serves; absent: all sessions of the server.
   */
  readonly capabilities?: (name: string, users?: ProcessUsers) => JsonObject;
  /**
   * Returns true if a session with the server comes first. Absent: a revision without sessions, if the server offers
   * one. `users` as above.
   */
  readonly prefersSession?: (name: string, users?: ProcessUsers) => boolean;
  /** Called with what a server says without a request, unless it belongs to one call. `users` as above. */
  readonly onNotice?: (name: string, notice: ServerNotice, users?: ProcessUsers) => void;
  /** Follows a request of Tollgate itself to a server. Absent while telemetry is off. */
  readonly onExchange?: ((server: string, exchange: Exchange) => FollowedExchange) | undefined;
  /** Absent: the connection limit applies to this process alone. */
  readonly shared?: SharedConnectionSlots;
  /** Milliseconds that an ephemeral server may be idle. Default: one minute. */
  readonly idleMs?: number;
  /** Milliseconds after a timeout within which a server must react to a ping. Default: 5 s. */
  readonly livenessMs?: number;
}

/** The dependencies of a supervisor, and the events that it reports. */
export interface SupervisorParts extends Omit<ConnectorParts, 'onLost' | 'onStopped'> {
  readonly options: AdapterOptions;
  readonly lifetime: () => ServerLifetime;
  readonly crashAttribution: CrashAttribution;
  /** The server was started again: it is a new process or session. */
  readonly onRenewed: () => void;
  /** The server was lost, and the next call does not start it. */
  readonly onDown: () => void;
  /** The server was started in the background. */
  readonly onBack: () => void;
}

/** Milliseconds until a background start that found no free connection is tried again. */
const BUSY_RETRY_MS = 5000;

/** The supervisor of one server. After `stop` and `kill`, only `allow` permits a new start. */
export class Supervisor {
  readonly connector: Connector;
  readonly restarts: Restarts;
  private readonly parts: SupervisorParts;
  private starting: Promise<UpstreamSession> | undefined;
  /** True during a restart in the background. Calls are refused immediately then. */
  private restarting = false;
  private wasUp = false;
  /** Why the server may not start. Undefined after `allow`. */
  refusal: TollgateError | undefined;
  /** Why the last start was not allowed. */
  denied: TollgateError | undefined;
  private timer: NodeJS.Timeout | undefined;

  constructor(parts: SupervisorParts) {
    this.parts = parts;
    this.restarts = new Restarts(parts.settings);
    this.connector = new Connector({
      ...parts,
      onStopped: (id) => {
        this.restarts.noteStop(performance.now());
        parts.report({ event: 'stopped' }, id);
      },
      onLost: (id, loss) => this.handleLoss(id, loss),
    });
  }

  private handleLoss(id: string, { why, wasReady, ...cause }: Parameters<ConnectorParts['onLost']>[1]): void {
    const { report, crashAttribution, onDown } = this.parts;
    // The server did not run. A fault that a person must fix is not a loss, and the next use tries again.
    if (cause.error !== undefined && OWNER_CORRECTABLE.has(cause.error.code)) {
      this.denied = cause.error;
      return report({ event: 'start.failed', code: cause.error.code }, id);
    }
    const { isProcess, mode } = this;
    const now = performance.now();
    if (isProcess && mode === 'on-call') crashAttribution.noteLoss(now);
    const decision = this.restarts.noteLoss({ why, mode, now });
    for (const event of lossEvents(this.restarts, decision, { isProcess, wasReady, ...cause })) report(event, id);
    if (typeof decision === 'number') this.schedule(decision);
    if (wasReady && decision !== 'on-call') onDown();
  }

  /** True during a restart in the background, or if one is scheduled. */
  get isRecovering(): boolean {
    return this.restarting || this.timer !== undefined;
  }

  /** True if the server is not running and the next call would start it. */
  get isAsleep(): boolean {
    const refusal = this.refusal ?? startRefusal(this.parts.settings) ?? this.restarts.refusal(performance.now());
    return (
      this.connector.current === undefined && this.starting === undefined && !this.isRecovering && refusal === undefined
    );
  }

  /**
   * Returns the connected session. Starts the server if needed and allowed. Throws INIT_FAILED, SERVER_UNAVAILABLE,
   * CANCELLED and what a start throws.
   */
  connected(signal?: CancelSignal): Promise<UpstreamSession> {
    const { current } = this.connector;
    if (current !== undefined) return Promise.resolve(current);
    const refusal = this.refusal ?? this.restarts.refusal(performance.now());
    if (refusal !== undefined) return Promise.reject(refusal);
    if (this.restarting)
      return Promise.reject(
        new TollgateError('SERVER_UNAVAILABLE', {
          detail: `${this.restarts.reason ?? ''} It is being restarted.`.trimStart(),
        }),
      );
    return abortable(this.begin(), signal);
  }

  /** As `connected`, but a failed start is SERVER_UNAVAILABLE: nothing was sent, so the caller may try again. */
  async connectedForCall(signal: CancelSignal): Promise<UpstreamSession> {
    try {
      return await this.connected(signal);
    } catch (thrown) {
      const error = asTollgateError(thrown);
      throw error.code === 'INIT_FAILED' ? startFailure(error) : error;
    }
  }

  /** Refuses starts from now on and cancels a scheduled one. A running server continues. */
  forbid(refusal: TollgateError): void {
    this.refusal = refusal;
    this.cancel();
  }

  /** Permits starts again. */
  allow(): void {
    this.refusal = undefined;
    this.denied = undefined;
  }

  /** Forbids starts and stops the server in an orderly way. */
  stop(refusal: TollgateError): Promise<void> {
    this.forbid(refusal);
    return this.connector.giveUp();
  }

  /**
   * Stops the server in an orderly way, forgets its losses and starts it again. Other starts are refused meanwhile.
   * Throws as `connected`, and the refusal if starts were forbidden meanwhile.
   */
  async restart(refusal: TollgateError): Promise<void> {
    await this.stop(refusal);
    // A start in progress ends now. Its caller reports the failure.
    await this.starting?.catch(() => undefined);
    if (this.refusal !== refusal) throw this.refusal ?? refusal;
    this.restarts.forget();
    this.allow();
    await this.connected();
  }

  /** Forbids starts and kills the server. `why` and the result are those of Connector.kill. */
  kill(refusal: TollgateError, why: string): string | undefined {
    this.forbid(refusal);
    this.restarts.noteStop(performance.now());
    return this.connector.kill(why);
  }

  /**
   * Starts the server in the background. Returns why it did not start, which is also reported as an event. If Tollgate
   * keeps the server running, it tries again later.
   */
  async startInBackground(): Promise<TollgateError | undefined> {
    if (this.connector.current !== undefined || this.refusal !== undefined) return undefined;
    const refusal = startRefusal(this.parts.settings);
    if (refusal !== undefined) return refusal;
    this.restarting = this.restarts.reason !== undefined;
    try {
      await this.begin();
      this.restarting = false;
      this.parts.onBack();
      return undefined;
    } catch (thrown) {
      this.restarting = false;
      const error = asTollgateError(thrown);
      // After a loss, the next start is scheduled already. Otherwise the start found no free connection.
      const isDue = this.timer === undefined && this.restarts.refusal(performance.now()) === undefined;
      if (isDue && this.mode !== 'on-call' && !OWNER_CORRECTABLE.has(error.code)) this.schedule(BUSY_RETRY_MS);
      return error;
    }
  }

  private begin(): Promise<UpstreamSession> {
    this.starting ??= this.connect().finally(() => {
      this.starting = undefined;
    });
    return this.starting;
  }

  private async connect(): Promise<UpstreamSession> {
    const { settings, options, report, onRenewed } = this.parts;
    this.denied = options.halted?.(settings.name) ?? startRefusal(settings) ?? (await options.consent?.(settings));
    if (this.denied !== undefined) throw this.denied;
    const startedAt = performance.now();
    const session = await this.connector.open(
      () => this.refusal,
      async () => (this.denied = await options.consent?.(settings)),
    );
    const now = performance.now();
    const isRestart = this.restarts.noteStart(now);
    const ms = Math.round(now - startedAt);
    report(
      isRestart
        ? { event: this.isProcess ? 'restarted' : 'reconnected', ms, attempt: this.restarts.attempts.attempt }
        : { event: 'started', ms },
      session.id,
    );
    if (this.wasUp) onRenewed();
    this.wasUp = true;
    return session;
  }

  private get isProcess(): boolean {
    return this.parts.settings.transport === 'stdio';
  }

  private get mode(): RestartMode {
    const lifetime = this.parts.lifetime();
    if (this.isProcess) return lifetime === 'keep-alive' ? 'keep-alive' : 'on-call';
    return this.wasUp && lifetime !== 'ephemeral' ? 'remote' : 'on-call';
  }

  private schedule(ms: number): void {
    this.cancel();
    if (this.refusal !== undefined) return;
    this.timer = setTimeout(() => {
      this.timer = undefined;
      void this.startInBackground();
    }, ms).unref();
  }

  private cancel(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
  }
}
