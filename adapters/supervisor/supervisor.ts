/** Owns when a server is started: on demand, and by itself where it is kept; refuses starts that are not due or not allowed. */
import { asTollgateError, OWNER_CORRECTABLE, TollgateError } from '../../catalogs/errors/error-table.ts';
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';
import { startFailure } from '../port.ts';
import { abortable, type CancelSignal } from '../rpc/cancellation.ts';
import type { ProcessConnectionOptions } from '../stdio/stdio-connection.ts';
import { Connector, type ConnectorParts } from './connector.ts';
import type { CrashAttribution } from './crash-attribution.ts';
import { lossEvents, type RestartMode, Restarts } from './restarts.ts';
import type { OnEvent, ServerEventDetails } from './server-events.ts';
import { type ServerLifetime, type SharedConnectionSlots, startRefusal } from './server-settings.ts';
import type { UpstreamSession } from './upstream-session.ts';

/** What every adapter shares. */
export interface AdapterOptions extends ProcessConnectionOptions {
  readonly onEvent?: OnEvent;
  /** A server that was to start with the facade did not, and why: for the person who started it. */
  readonly onUnstarted?: (name: string, why: TollgateError) => void;
  /** Why this server may not run now (kill switch, consent that was taken back), asked before each start and each call. */
  readonly halted?: (name: string) => TollgateError | undefined;
  /** Why a tool may not be called as the server defines it now, asked before each call; `list` is what it lists now. */
  readonly admits?: (
    name: string,
    tool: string,
    list: () => readonly RawTool[] | Promise<readonly RawTool[]>,
  ) => Promise<TollgateError | undefined>;
  /** Absent: the cap holds for this process alone. */
  readonly shared?: SharedConnectionSlots;
  /** How long an ephemeral server may be idle; default a minute. */
  readonly idleMs?: number;
  /** Within this time after a time-out a server must show life; default 5 s. */
  readonly livenessMs?: number;
}

/** What a supervisor needs, and what it reports. */
export interface SupervisorParts extends Omit<ConnectorParts, 'onLost' | 'onStopped' | 'onRefused'> {
  readonly options: AdapterOptions;
  readonly lifetime: () => ServerLifetime;
  readonly crashAttribution: CrashAttribution;
  readonly report: (happening: ServerEventDetails, id: string) => void;
  /** It is another process than before. */
  readonly onRenewed: () => void;
  /** It was lost, and no call will bring it back. */
  readonly onDown: () => void;
  /** It is there without having been called for. */
  readonly onBack: () => void;
}

/** Before a start by itself that found no free connection is tried again. */
const BUSY_RETRY_MS = 5000;

/** Keeps one server. After `stop` and `kill` it must be let start again by `allow`. */
export class Supervisor {
  readonly connector: Connector;
  readonly restarts: Restarts;
  private readonly parts: SupervisorParts;
  private starting: Promise<UpstreamSession> | undefined;
  /** It is being started again by itself: calls meanwhile are refused at once. */
  private returning = false;
  private wasUp = false;
  private forbidden: TollgateError | undefined;
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
      onRefused: (id, refused, during) =>
        parts.report(
          {
            event: 'request.refused',
            ...refused,
            ...(during?.id !== undefined && { call: during.id }),
            ...(during !== undefined && { session: during.scope }),
          },
          id,
        ),
      onLost: (id, { why, wasReady, ...how }) => {
        // Nothing of it ran: what a person must mend is no loss of the server, and its next use tries again.
        if (how.error !== undefined && OWNER_CORRECTABLE.has(how.error.code)) {
          this.denied = how.error;
          return parts.report({ event: 'start.failed', code: how.error.code }, id);
        }
        const loss = { why, regime: this.regime(), now: performance.now() };
        if (this.isProcess && loss.regime === 'on-call') parts.crashAttribution.noteLoss(loss.now);
        const outlook = this.restarts.noteLoss(loss);
        const tidings = lossEvents(outlook, {
          isProcess: this.isProcess,
          wasReady,
          tries: this.restarts.failedTries,
          attempts: this.restarts.attempts,
          ...how,
        });
        for (const happening of tidings) parts.report(happening, id);
        if (typeof outlook === 'number') this.schedule(outlook);
        if (wasReady && outlook !== 'on-call') parts.onDown();
      },
    });
  }

  /** Why it may not start; undefined after `allow`. */
  get refusal(): TollgateError | undefined {
    return this.forbidden;
  }

  /** True while it comes back by itself, or will. */
  get isRecovering(): boolean {
    return this.returning || this.timer !== undefined;
  }

  /** True when it is not running and the next call would start it. */
  get isAsleep(): boolean {
    const refusal = this.forbidden ?? startRefusal(this.parts.settings) ?? this.restarts.refusal(performance.now());
    return (
      this.connector.current === undefined && this.starting === undefined && !this.isRecovering && refusal === undefined
    );
  }

  /** The connected session, started if that is allowed now. Throws INIT_FAILED, SERVER_UNAVAILABLE, CANCELLED and what a start throws. */
  connected(signal?: CancelSignal): Promise<UpstreamSession> {
    const { current } = this.connector;
    if (current !== undefined) return Promise.resolve(current);
    const refusal = this.forbidden ?? this.restarts.refusal(performance.now());
    if (refusal !== undefined) return Promise.reject(refusal);
    if (this.returning)
      return Promise.reject(
        new TollgateError('SERVER_UNAVAILABLE', {
          detail: `${this.restarts.reason ?? ''} It is being started again.`.trimStart(),
        }),
      );
    return abortable(this.begin(), signal);
  }

  /** As `connected`; what did not start is SERVER_UNAVAILABLE: nothing was sent yet, so the caller may try again. */
  async connectedForCall(signal: CancelSignal): Promise<UpstreamSession> {
    try {
      return await this.connected(signal);
    } catch (thrown) {
      const error = asTollgateError(thrown);
      throw error.code === 'INIT_FAILED' ? startFailure(error) : error;
    }
  }

  /** Refuses starts from now on and cancels one to come; what runs goes on. */
  forbid(refusal: TollgateError): void {
    this.forbidden = refusal;
    this.cancel();
  }

  /** Lets it start again. */
  allow(): void {
    this.forbidden = undefined;
    this.denied = undefined;
  }

  /** Forbids starts and ends the server in order. */
  stop(refusal: TollgateError): Promise<void> {
    this.forbid(refusal);
    return this.connector.giveUp();
  }

  /** Ends the server in order and starts it again; nothing that went wrong before counts any more. Meanwhile starts are refused. Throws as `connected`, and what forbade it meanwhile. */
  async restart(refusal: TollgateError): Promise<void> {
    await this.stop(refusal);
    // A start that was under way ends by itself now; its failure is told by whoever began it.
    await this.starting?.catch(() => undefined);
    if (this.forbidden !== refusal) throw this.forbidden ?? refusal;
    this.restarts.forget();
    this.allow();
    await this.connected();
  }

  /** Forbids starts and ends the server at once; `why` as in Connector.kill. The id of what was connected. */
  kill(refusal: TollgateError, why: string): string | undefined {
    this.forbid(refusal);
    this.restarts.noteStop(performance.now());
    return this.connector.kill(why);
  }

  /** Starts it without anybody who waits, and answers why it did not start; a failure is told as an event too, and tried again where the server is kept. */
  async startInBackground(): Promise<TollgateError | undefined> {
    if (this.connector.current !== undefined || this.forbidden !== undefined) return undefined;
    const refusal = startRefusal(this.parts.settings);
    if (refusal !== undefined) return refusal;
    this.returning = this.restarts.reason !== undefined;
    try {
      await this.begin();
      this.returning = false;
      this.parts.onBack();
      return undefined;
    } catch (thrown) {
      this.returning = false;
      const error = asTollgateError(thrown);
      // A loss has set its own time; this was no loss, but a start that found no place.
      const isDue = this.timer === undefined && this.restarts.refusal(performance.now()) === undefined;
      if (isDue && this.regime() !== 'on-call' && !OWNER_CORRECTABLE.has(error.code)) this.schedule(BUSY_RETRY_MS);
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
    const { settings, options, report: tell, onRenewed } = this.parts;
    this.denied = options.halted?.(settings.name) ?? startRefusal(settings) ?? (await options.consent?.(settings));
    if (this.denied !== undefined) throw this.denied;
    const began = performance.now();
    const session = await this.connector.open(
      () => this.forbidden,
      async () => (this.denied = await options.consent?.(settings)),
    );
    const now = performance.now();
    const again = this.restarts.noteStart(now);
    const ms = Math.round(now - began);
    tell(
      again
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

  private regime(): RestartMode {
    const lifetime = this.parts.lifetime();
    if (this.isProcess) return lifetime === 'keep-alive' ? 'keep-alive' : 'on-call';
    return this.wasUp && lifetime !== 'ephemeral' ? 'remote' : 'on-call';
  }

  private schedule(ms: number): void {
    this.cancel();
    if (this.forbidden !== undefined) return;
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
