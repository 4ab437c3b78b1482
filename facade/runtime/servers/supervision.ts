/** Connects the supervisor of servers with the decisions of people and other processes. It starts no server itself. */
import { createHash } from 'node:crypto';
import type { OnEvent, SharedConnectionSlots } from '../../../adapters/port.ts';
import type { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { pidNamespace } from '../../../catalogs/programs/pid-namespace.ts';
import { appendQuietly } from '../../audit/audit-log.ts';
import type { Consents } from '../../consent/servers/server-consents.ts';
import type { StartSettings } from '../../consent/servers/start-facts.ts';
import { KillSwitch, refusalIn } from '../../consent/switch/kill-switch.ts';
import { isRunning, OWN_PROCESS } from '../../state/process-mark.ts';
import type { SharedServices } from '../shared-services.ts';
import { Revivals } from './revivals.ts';
import { ServerLogs } from './server-logs.ts';
import { serverRecordOf } from './server-records.ts';
import { OwnReports, type ServerStatus } from './server-reports.ts';
import { SharedConnections } from './shared-connections.ts';

/** How often decisions of other processes are read; calls check them at once anyway. */
const WATCH_MS = 500;

/**
 * The mark of this process of a state folder in the names of what it makes, so that a later one can find what it left
 * behind. Contains no `/`.
 */
export function supervisionOwner(state: string): string {
  return `${createHash('sha256').update(`${state}\0${pidNamespace()}`).digest('hex').slice(0, 12)}.${OWN_PROCESS.pid}.${OWN_PROCESS.born}`;
}

/** What a supervisor must do on such a decision. */
export interface Supervised {
  /**
   * Servers with a refusal end at once and do not start; the others may start again. Internal servers run in this
   * process and need no consent.
   */
  halt(
    decided: Record<'killed' | 'any', (server: string) => TollgateError | undefined> & {
      readonly changed: ReadonlySet<string>;
    },
  ): void;
  /** Crashes of these servers before now do not count. */
  revive(servers: readonly string[]): void;
  /** Gives up an idle connection, if there is one. */
  yieldOne(): Promise<void>;
  /** The state of each external server by name. */
  healths(): ReadonlyMap<string, ServerStatus>;
}

/** What a supervisor is given (see AdapterOptions in adapters/). */
export interface SupervisorOptions {
  readonly onStderr: (server: string, line: string) => void;
  readonly onEvent: OnEvent;
  readonly onUnstarted: (server: string, why: TollgateError) => void;
  readonly halted: (server: string) => TollgateError | undefined;
  readonly consent: (settings: StartSettings) => Promise<TollgateError | undefined>;
  readonly admits: Consents['refuseTool'];
  readonly shared: SharedConnectionSlots;
  readonly owner: string;
}

/** One process's part in the supervision of the servers of a state folder. */
export class Supervision {
  readonly killSwitch: KillSwitch;
  readonly owner: string;
  readonly #shared: SharedServices;
  readonly #connections: SharedConnections;
  readonly #reports: OwnReports;
  readonly #revivals: Revivals;
  /** A process that serves no one does not report. */
  #tells = false;
  readonly #logs: ServerLogs;
  readonly #consents: Consents;
  /** The decisions at the last check, by name of the server. */
  #killed: string | undefined;
  #marks: ReadonlyMap<string, string> | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(shared: SharedServices, { state, connections }: { state: string; connections: number }) {
    const onFault = (thrown: unknown): void => shared.log.error({ err: thrown }, 'supervision');
    this.#shared = shared;
    this.#consents = shared.consents;
    this.killSwitch = new KillSwitch(shared.state);
    this.#connections = new SharedConnections(shared.state, { limit: connections, onFault });
    this.#reports = new OwnReports(shared.state);
    this.#revivals = new Revivals(shared.state);
    this.#logs = new ServerLogs({ state, redactor: shared.redactor, onFault });
    this.owner = supervisionOwner(state);
  }

  /** What the pool of servers is made with. */
  options(): SupervisorOptions {
    return {
      onStderr: (server, line) => {
        this.#logs.write(server, line);
        this.#shared.log.debug({ server }, line);
      },
      onEvent: this.#onEvent,
      // The person who stopped it knows.
      onUnstarted: (server, why) =>
        why.data.killed === true
          ? undefined
          : this.#shared.tell(`server ${server} was not started: ${why.message} ${why.next}`),
      halted: (server) => this.#refusalOf(server),
      consent: (settings) => this.#consents.refuseStart(settings),
      admits: (server, tool, list) => this.#consents.refuseTool(server, tool, list),
      shared: this.#connections,
      owner: this.owner,
    };
  }

  /**
   * Returns whether a mark belongs to a dead facade of this state folder, so that no other process will end what it
   * left.
   */
  isOrphan(mark: string): boolean {
    const [, tag, pid, born] = /^([0-9a-f]{12})\.(\d+)\.([^/]*)(?:\/|$)/.exec(mark) ?? [];
    return born !== undefined && this.owner.startsWith(`${tag}.`) && !isRunning({ pid: Number(pid), born });
  }

  /** Reads the decisions of other processes until `close`. */
  watch(supervised: Supervised): void {
    this.#timer = setInterval(
      () =>
        void this.#look(supervised).catch((thrown: unknown) => this.#shared.log.error({ err: thrown }, 'supervision')),
      WATCH_MS,
    ).unref();
  }

  /** From now on the other processes are told the state of the servers. */
  tellOthers(): void {
    this.#tells = true;
  }

  close(): void {
    clearInterval(this.#timer);
    if (this.#tells)
      void this.#reports
        .say(new Map())
        .catch((thrown: unknown) => this.#shared.log.error({ err: thrown }, 'supervision'));
    this.#tells = false;
  }

  /**
   * A refused call has halted the server. The next check judges it again, because it may have been released before any
   * check saw it stopped.
   */
  #refusalOf(server: string): TollgateError | undefined {
    const refusal = this.killSwitch.refusalOf(server) ?? this.#consents.refusalOf(server);
    if (refusal === undefined) return undefined;
    this.#killed = undefined;
    this.#consents.noteEnd(server);
    return refusal;
  }

  async #look(supervised: Supervised): Promise<void> {
    const killed = this.killSwitch.names();
    const { marks, refusalOf } = this.#consentsOr(() =>
      supervised.halt({
        killed: (server) => refusalIn(killed, server),
        any: (server) => refusalIn(killed, server),
        changed: new Set(),
      }),
    );
    const before = this.#marks;
    const changed = new Set(
      before === undefined
        ? []
        : [...new Set([...marks.keys(), ...before.keys()])].filter(
            (server) => marks.get(server) !== before.get(server),
          ),
    );
    const names = JSON.stringify([...killed]);
    const isNew = before === undefined || changed.size > 0 || names !== this.#killed;
    [this.#killed, this.#marks] = [names, marks];
    if (isNew) {
      supervised.halt({
        killed: (server) => refusalIn(killed, server),
        any: (server) => refusalIn(killed, server) ?? refusalOf(server),
        changed,
      });
      // None of these runs any more, so the next check lets a new start run under the present consent.
      for (const server of new Set([...marks.keys(), ...changed]))
        if (refusalOf(server) !== undefined && this.#consents.noteEnd(server)) this.#killed = undefined;
    }
    // After what was released: a server that is still stopped is not started.
    supervised.revive(this.#revivals.news());
    if (await this.#connections.isAsked()) await supervised.yieldOne();
    if (this.#tells) await this.#reports.say(supervised.healths());
    await this.#connections.giveBackOwed();
  }

  /** A stop also takes effect if consent cannot be read. */
  #consentsOr(halt: () => void): ReturnType<Consents['currentRefusals']> {
    try {
      return this.#consents.currentRefusals();
    } catch (thrown) {
      halt();
      throw thrown;
    }
  }

  readonly #onEvent: OnEvent = (event) => {
    this.#shared.metrics.onServerEvent(event);
    this.#shared.feed.note(event);
    // The owner reads it in the log; the default level shows it.
    if (event.event === 'failed' || event.event === 'reconnect.exhausted')
      this.#shared.log.error(
        { server: event.server, tries: event.tries },
        `server ${event.server} is given up; look at it: tollgate servers`,
      );
    appendQuietly(this.#shared.audit, serverRecordOf(event));
  };
}
