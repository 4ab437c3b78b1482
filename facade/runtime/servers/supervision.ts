/** Applies decisions of people and of other processes to the supervisor of this process. */
import { createHash } from 'node:crypto';
import type { OnEvent, SharedConnectionSlots } from '../../../adapters/port.ts';
import type { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { pidNamespace } from '../../../catalogs/programs/pid-namespace.ts';
import { appendQuietly } from '../../audit/audit-log.ts';
import { BudgetResets } from '../../budget/budget-report.ts';
import type { ServerConfig } from '../../config/config.ts';
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

/** Poll interval for decisions of other processes, ms. Calls check decisions themselves. */
const WATCH_MS = 500;

/**
 * Returns the mark of this process in names of containers and processes, by which a later one finds orphans. No `/`.
 */
export function supervisionOwner(state: string): string {
  const folderTag = createHash('sha256').update(`${state}\0${pidNamespace()}`).digest('hex').slice(0, 12);
  return `${folderTag}.${OWN_PROCESS.pid}.${OWN_PROCESS.born}`;
}

/** What a supervisor does at a decision. */
export interface Supervised {
  /** Ends servers with a refusal at once, and lets the others start again. */
  halt(
    decided: Record<'killed' | 'any', (server: string) => TollgateError | undefined> & {
      readonly changed: ReadonlySet<string>;
    },
  ): void;
  /** Forgets the crashes of these servers. */
  revive(servers: readonly string[]): void;
  /** Restarts those of these servers that run here, and revives the others. Does not wait for them. */
  restart(servers: readonly string[]): void;
  /** Gives up an idle connection, if there is one. */
  yieldOne(): Promise<void>;
  /** The state of each external server by name. */
  healths(): ReadonlyMap<string, ServerStatus>;
}

/** The options of a supervisor (see AdapterOptions in adapters/). */
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

/** What it is opened with. */
interface SupervisionParts {
  readonly state: string;
  readonly connections: number;
  readonly serverOf: (name: string) => ServerConfig | undefined;
}

/** The supervision of servers in one process of a state folder. */
export class Supervision {
  readonly killSwitch: KillSwitch;
  readonly owner: string;
  readonly #shared: SharedServices;
  readonly #serverOf: SupervisionParts['serverOf'];
  readonly #connections: SharedConnections;
  readonly #reports: OwnReports;
  readonly #revivals: Revivals;
  readonly #resets: BudgetResets;
  /** False in a process that serves no agents: it does not report. */
  #isReporting = false;
  readonly #logs: ServerLogs;
  readonly #consents: Consents;
  /** The decisions at the last check, by name of the server. */
  #killed: string | undefined;
  #marks: ReadonlyMap<string, string> | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(shared: SharedServices, { state, connections, serverOf }: SupervisionParts) {
    const onFault = (thrown: unknown): void => shared.log.error({ err: thrown }, 'supervision');
    this.#shared = shared;
    this.#serverOf = serverOf;
    this.#consents = shared.consents;
    this.killSwitch = new KillSwitch(shared.state);
    this.#connections = new SharedConnections(shared.state, { limit: connections, onFault });
    this.#reports = new OwnReports(shared.state);
    this.#revivals = new Revivals(shared.state);
    this.#resets = new BudgetResets(shared.state);
    this.#logs = new ServerLogs({ state, redactor: shared.redactor, onFault });
    this.owner = supervisionOwner(state);
  }

  /** Returns the options of the pool of servers. */
  options(): SupervisorOptions {
    return {
      onStderr: (server, line) => {
        this.#logs.write(server, line);
        this.#shared.log.debug({ server }, line);
      },
      onEvent: this.#onEvent,
      // The person who stopped the server knows why.
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

  /** Returns whether a mark belongs to a dead process of this state folder, whose leftovers are orphans. */
  isOrphan(mark: string): boolean {
    const [, tag, pid, born] = /^([0-9a-f]{12})\.(\d+)\.([^/]*)(?:\/|$)/.exec(mark) ?? [];
    return born !== undefined && this.owner.startsWith(`${tag}.`) && !isRunning({ pid: Number(pid), born });
  }

  /** Reads the decisions of other processes until `close`. */
  watch(supervised: Supervised): void {
    this.#timer = setInterval(
      () =>
        void this.#checkDecisions(supervised).catch((thrown: unknown) =>
          this.#shared.log.error({ err: thrown }, 'supervision'),
        ),
      WATCH_MS,
    ).unref();
  }

  /** Starts to report the state of the servers to other processes. */
  startReporting(): void {
    this.#isReporting = true;
  }

  close(): void {
    clearInterval(this.#timer);
    if (this.#isReporting)
      void this.#reports
        .report(new Map())
        .catch((thrown: unknown) => this.#shared.log.error({ err: thrown }, 'supervision'));
    this.#isReporting = false;
  }

  /** Returns why a server is halted. The next check judges it again, because it may be released before that check. */
  #refusalOf(server: string): TollgateError | undefined {
    const refusal = this.killSwitch.refusalOf(server) ?? this.#consents.refusalOf(server);
    if (refusal === undefined) return undefined;
    this.#killed = undefined;
    this.#consents.noteEnd(server);
    return refusal;
  }

  async #checkDecisions(supervised: Supervised): Promise<void> {
    const killed = this.killSwitch.names();
    this.#shared.clients.endCalls((principal) => this.#shared.suspensions.refusalOf(principal));
    const { marks, refusalOf } = this.#refusalsOr(() =>
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
      // None of these runs any more, so the next check lets them start under the present consent.
      for (const server of new Set([...marks.keys(), ...changed]))
        if (refusalOf(server) !== undefined && this.#consents.noteEnd(server)) this.#killed = undefined;
    }
    // After the halts, so that a server that is still stopped is not started.
    const { revived, restarted } = this.#revivals.takeNew();
    supervised.revive(revived);
    supervised.restart(restarted);
    for (const { budget, key } of this.#resets.takeNew()) {
      const sessions = this.#shared.clients.sessionIds(key);
      this.#shared.budgets.reset(budget, (session) => sessions.has(session));
    }
    if (await this.#connections.isAsked()) await supervised.yieldOne();
    if (this.#isReporting) await this.#reports.report(supervised.healths());
    await this.#connections.retryReturns();
  }

  /** Returns the refusals of consents. Calls `halt` if they cannot be read, so that stops take effect anyway. */
  #refusalsOr(halt: () => void): ReturnType<Consents['currentRefusals']> {
    try {
      return this.#consents.currentRefusals();
    } catch (thrown) {
      halt();
      throw thrown;
    }
  }

  readonly #onEvent: OnEvent = (event) => {
    const ms = this.#shared.metrics.onServerEvent(event);
    if (ms !== undefined) this.#shared.telemetry?.onServerSession(event, { ms, config: this.#serverOf(event.server) });
    this.#shared.feed.note(event);
    // An error, because the default level of the log shows it to the owner.
    if (event.event === 'failed' || event.event === 'reconnect.exhausted')
      this.#shared.log.error(
        { server: event.server, tries: event.tries },
        `server ${event.server} is given up; look at it: tollgate servers`,
      );
    appendQuietly(this.#shared.audit, serverRecordOf(event));
  };
}
