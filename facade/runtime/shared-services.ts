/** Opens what outlives a configuration: log, state, audit, budgets, spills, secrets and metrics, once per process. */
import type { StartInspector } from '../../adapters/port.ts';
import { Troubles } from '../attention/troubles.ts';
import { type AuditLog, openAudit } from '../audit/audit-log.ts';
import { createDigest, readAuditKey } from '../audit/key-files.ts';
import { type Budgets, createBudgets } from '../budget/budgets.ts';
import { type ConcurrencyLimit, createConcurrencyLimit } from '../budget/concurrency-limit.ts';
import type { OpenSession } from '../call/identify.ts';
import type { Config } from '../config/config.ts';
import { Consents } from '../consent/servers/server-consents.ts';
import { Suspensions } from '../consent/switch/suspensions.ts';
import { HiddenServers } from '../internal-servers/caller-identity.ts';
import { Redactor } from '../output/redactor.ts';
import { Spills } from '../output/spills.ts';
import { CallTally } from '../serve/host/call-statistics.ts';
import { EventFeed } from '../serve/host/event-feed.ts';
import { followState } from '../state/state-follower.ts';
import type { State } from '../state/state-port.ts';
import { createSeals, type Seals } from '../state/state-seals.ts';
import { ContextAccounts } from './metrics/context-accounts.ts';
import { type FaultCounts, Metrics } from './metrics/metrics.ts';
import { exportContext } from './metrics/open-telemetry.ts';
import { createLog, type Logger } from './process-log.ts';
import { SessionClients } from './session-clients.ts';

/** The services of every snapshot of a process. */
export interface SharedServices {
  readonly log: Logger;
  /** One line for the person who started this process, with secrets redacted. */
  readonly tell: (line: string) => void;
  readonly redactor: Redactor;
  readonly state: State;
  readonly seals: Seals;
  readonly audit: AuditLog;
  readonly digest: (text: string) => string;
  readonly budgets: Budgets;
  /** The consents to servers. */
  readonly consents: Consents;
  /** What went wrong, for all processes. */
  readonly troubles: Troubles;
  /** The suspended principals. */
  readonly suspensions: Suspensions;
  readonly spills: Spills;
  readonly metrics: Metrics;
  /** Statistics of calls for hosts. They survive a restart. */
  readonly tally: CallTally;
  /** What sessions put into the context of models. */
  readonly context: ContextAccounts;
  /** The latest events of servers. */
  readonly feed: EventFeed;
  /** The clients of the facade's sessions. */
  readonly clients: SessionClients;
  /** Servers that sessions have hidden. */
  readonly hiddenServers: HiddenServers;
  /** Returns the limit of parallel calls of a session. A new limit begins a new queue, and keeps the waiting calls. */
  readonly concurrencyGateOf: (session: OpenSession, limit: number) => ConcurrencyLimit;
  /** The same for the calls of a session's code. */
  readonly codeGateOf: SharedServices['concurrencyGateOf'];
}

/** Opens all services. Throws STATE_TOO_NEW, STATE_FAILED, STATE_LOST, AUDIT_FAILED; then nothing stays open. */
export async function openSharedServices(
  config: Config,
  { onLog, inspect }: { readonly onLog: (line: string) => void; readonly inspect: StartInspector },
): Promise<SharedServices> {
  const redactor = new Redactor();
  registerSecrets(redactor, config);
  const log = createLog(redactor, onLog, process.env.TOLLGATE_LOG);
  const faults: FaultCounts = { audit: 0, state: 0 };
  const state = await followState(config.state, () => void (faults.state += 1));
  let audit: AuditLog | undefined;
  try {
    const { folder, rotateBytes } = config.audit;
    const troubles = new Troubles(state, Date.now);
    const onFault = (): void => {
      faults.audit += 1;
      troubles.note('audit-failed', 'AUDIT_FAILED');
    };
    audit = openAudit({ folder, rotateBytes, onFault });
    const digest = createDigest(readAuditKey(config.state));
    const tally = new CallTally(state);
    const context = new ContextAccounts(state);
    exportContext(context, (err) => log.warn({ err }, 'OpenTelemetry'));
    const consents = new Consents(state, { folder: config.folder, inspect, digest });
    return {
      log,
      tell: (line) => onLog(`${redactor.redact(line).value}\n`),
      redactor,
      state,
      seals: createSeals(state, Date.now),
      audit,
      digest,
      consents,
      troubles,
      suspensions: new Suspensions(state),
      budgets: createBudgets(state),
      spills: new Spills(config.state),
      metrics: new Metrics(tally, faults, context),
      tally,
      context,
      feed: new EventFeed(Date.now, (text) => redactor.redact(text).value),
      clients: new SessionClients(redactor),
      hiddenServers: new HiddenServers(),
      concurrencyGateOf: createConcurrencyGates(),
      codeGateOf: createConcurrencyGates(),
    };
  } catch (thrown) {
    void audit?.close();
    void state.close();
    throw thrown;
  }
}

/** Closes the services; the audit log near the end, so that the last records are written. */
export async function closeSharedServices({
  spills,
  audit,
  state,
  tally,
  context,
  budgets,
}: SharedServices): Promise<void> {
  try {
    spills.close();
  } finally {
    await audit
      .close()
      .finally(() => tally.flush())
      .finally(() => context.close())
      .finally(() => budgets.close())
      .finally(() => state.close());
  }
}

/** Registers the secrets of a configuration. None is removed, because a result may still contain an earlier one. */
export function registerSecrets(redactor: Redactor, config: Config): void {
  for (const secret of config.secrets) redactor.register(secret);
}

function createConcurrencyGates(): SharedServices['concurrencyGateOf'] {
  const gates = new WeakMap<OpenSession, { readonly limit: number; readonly gate: ConcurrencyLimit }>();
  return (session, limit) => {
    const known = gates.get(session);
    if (known?.limit === limit) return known.gate;
    const gate = createConcurrencyLimit(limit);
    gates.set(session, { limit, gate });
    return gate;
  };
}
