/** Opens what outlives a configuration: log, state, audit, budgets, spills, secrets and metrics, once per process. */
import type { StartInspector } from '../../adapters/port.ts';
import { Troubles } from '../attention/troubles.ts';
import { type AuditLog, appendQuietly, openAudit } from '../audit/audit-log.ts';
import { AuditExport } from '../audit/export/audit-export.ts';
import { exportTarget } from '../audit/export/export-target.ts';
import { HeadPublisher } from '../audit/fleet/published-heads.ts';
import { createDigest, readAuditKey } from '../audit/key-files.ts';
import { SealingSchedule, type SealingSettings } from '../audit/proof/sealing-schedule.ts';
import { signingKey } from '../audit/proof/signing-key.ts';
import { type Budgets, createBudgets } from '../budget/budgets.ts';
import { type ConcurrencyLimit, createConcurrencyLimit } from '../budget/concurrency-limit.ts';
import { ProcessGate } from '../budget/process-gate.ts';
import type { OpenSession } from '../call/identify.ts';
import type { Config } from '../config/config.ts';
import { Consents } from '../consent/servers/server-consents.ts';
import { Suspensions } from '../consent/switch/suspensions.ts';
import { HiddenServers } from '../internal-servers/caller-identity.ts';
import { Redactor } from '../output/redactor.ts';
import { Spills } from '../output/spills.ts';
import { openServingState } from '../secrets/opened-state.ts';
import { openPlaces, openSecrets } from '../secrets/secrets.ts';
import { CallTally } from '../serve/host/call-statistics.ts';
import { EventFeed } from '../serve/host/event-feed.ts';
import type { State } from '../state/state-port.ts';
import { createSeals, type Seals } from '../state/state-seals.ts';
import { ContextAccounts } from './metrics/context-accounts.ts';
import { type FaultCounts, Metrics } from './metrics/metrics.ts';
import { createLog, type Logger } from './process-log.ts';
import { recordChanges } from './servers/server-records.ts';
import { SessionClients } from './session-clients.ts';
import type { Telemetry } from './telemetry/telemetry-port.ts';
import { loadTelemetry } from './telemetry/telemetry-settings.ts';

/** The export of the audit log. */
export interface ExportAudit {
  /** `headers` returns those of the target, with secrets. */
  start(headers: () => Promise<Readonly<Record<string, string>>>): void;
  readonly state: AuditExport['state'] | undefined;
  close(): Promise<void>;
}

/** The services of every snapshot of a process. */
export interface SharedServices {
  readonly log: Logger;
  /** One line for the person who started this process, with secrets redacted. */
  readonly tell: (line: string) => void;
  readonly redactor: Redactor;
  readonly state: State;
  readonly seals: Seals;
  readonly audit: AuditLog;
  /** Signs the log. */
  readonly sealing: SealingSchedule;
  /** Copies the log to the target of the configuration, from the first call on. Does nothing without one. */
  readonly exportAudit: ExportAudit;
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
  /** Absent if nothing is exported. */
  readonly telemetry: Telemetry | undefined;
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
  /** Limits the calls of all sessions. */
  readonly processGate: ProcessGate;
  /** Returns the limit of parallel calls of a session. A new limit begins a new queue, and keeps the waiting calls. */
  readonly concurrencyGateOf: (session: OpenSession, limit: number) => ConcurrencyLimit;
  /** The same for the calls of a session's code. */
  readonly codeGateOf: SharedServices['concurrencyGateOf'];
}

/** Opens all services. Throws STATE_TOO_NEW, STATE_FAILED, STATE_LOST, AUDIT_FAILED; then nothing stays open. */
export async function openSharedServices(
  config: Config,
  {
    onLog,
    inspect,
    isWorker = false,
  }: { readonly onLog: (line: string) => void; readonly inspect: StartInspector; readonly isWorker?: boolean },
): Promise<SharedServices> {
  const redactor = new Redactor();
  registerSecrets(redactor, config);
  const log = createLog(redactor, onLog, { level: process.env.TOLLGATE_LOG, tenant: config.tenant });
  const of = config.tenant === undefined ? '' : `${config.tenant}: `;
  const tell = (line: string): void => onLog(`${of}${redactor.redact(line).value}\n`);
  const telemetry = loadTelemetry(process.env, { redactor, log, tell });
  const faults: FaultCounts = { audit: 0, state: 0, heads: 0 };
  const state = await openServingState(config, {
    redactor,
    onFault: () => void (faults.state += 1),
    isWorker,
  });
  let audit: AuditLog | undefined;
  try {
    const { folder, rotateBytes, replica } = config.audit;
    const troubles = new Troubles(state, Date.now);
    const onFault = (): void => {
      faults.audit += 1;
      troubles.note('audit-failed', 'AUDIT_FAILED');
    };
    audit = openAudit({ folder, rotateBytes, replica, onFault });
    const heads = openHeads({ folder, replica, state, audit, troubles, faults });
    const digest = createDigest(readAuditKey(config.state));
    const tally = new CallTally(state);
    const context = new ContextAccounts(state);
    const metrics = new Metrics(tally, faults, context);
    telemetry?.observe(metrics);
    const consents: Consents = new Consents(
      state,
      { folder: config.folder, inspect, digest },
      recordChanges({ consents: () => consents, audit, log }),
    );
    return {
      log,
      tell,
      redactor,
      state,
      seals: createSeals(state, Date.now),
      audit,
      sealing: openSealing(config, { audit, tell, redactor, replica, heads }),
      exportAudit: openExport(config, log),
      digest,
      consents,
      troubles,
      suspensions: new Suspensions(state),
      budgets: createBudgets(state),
      spills: new Spills(config.state),
      metrics,
      telemetry,
      tally,
      context,
      feed: new EventFeed(Date.now, (text) => redactor.redact(text).value),
      clients: new SessionClients(redactor),
      hiddenServers: new HiddenServers(),
      processGate: new ProcessGate(config.limits),
      concurrencyGateOf: createConcurrencyGates(),
      codeGateOf: createConcurrencyGates(),
    };
  } catch (thrown) {
    void audit?.close();
    void state.close();
    void telemetry?.close();
    throw thrown;
  }
}

/** Closes the services; the audit log near the end, so that the last records are written. */
export async function closeSharedServices({
  spills,
  audit,
  sealing,
  state,
  tally,
  troubles,
  context,
  budgets,
  telemetry,
  exportAudit,
}: SharedServices): Promise<void> {
  try {
    spills.close();
  } finally {
    await sealing
      .stop()
      .finally(() => audit.close())
      .finally(() => sealing.finish())
      .finally(() => exportAudit.close())
      .finally(() => tally.flush())
      .finally(() => troubles.flush())
      .finally(() => context.close())
      .finally(() => budgets.close())
      .finally(() => state.close())
      .finally(() => telemetry?.close());
  }
}

/** Starts the sealing of the log. The key is read when it is needed first, and is redacted everywhere. */
function openSealing(
  config: Config,
  {
    redactor,
    ...shared
  }: Pick<SharedServices, 'audit' | 'tell' | 'redactor'> & Pick<SealingSettings, 'replica' | 'heads'>,
): SealingSchedule {
  const { state, workspace } = config;
  const { folder, signing } = config.audit;
  const secret = openSecrets(() => config, { places: openPlaces({ state, env: process.env }), redactor });
  return new SealingSchedule({
    folder,
    signing,
    workspace,
    ...shared,
    key: () => signingKey({ state, signing, secret }),
  });
}

/** Publishes the heads of the log of a replica. A failure delays no call, and is counted and recorded. */
function openHeads({
  audit,
  troubles,
  faults,
  replica,
  ...places
}: Pick<SharedServices, 'audit' | 'troubles' | 'state'> & {
  readonly folder: string;
  readonly replica: string | undefined;
  readonly faults: FaultCounts;
}): HeadPublisher | undefined {
  if (replica === undefined) return undefined;
  let last: string | undefined;
  return new HeadPublisher({
    ...places,
    replica,
    onResult: (failure, atEnd) => {
      const before = last;
      last = failure?.message;
      if (failure === undefined) return before === undefined ? undefined : troubles.clear('heads-failed');
      faults.heads += 1;
      troubles.note('heads-failed', failure.code);
      if (failure.message !== before && atEnd === undefined)
        appendQuietly(audit, { type: 'proof', event: 'unpublished', outcome: 'error', reason: failure.message });
    },
  });
}

function openExport({ audit: { folder, export: settings }, state }: Config, log: Logger): ExportAudit {
  let running: AuditExport | undefined;
  const onState = (failure?: string): void =>
    log.warn(
      failure === undefined
        ? 'The audit log is exported again.'
        : `The audit log cannot be exported (${failure}). It is tried again until it works. Calls are not affected.`,
    );
  return {
    start: (headers) => {
      if (settings === undefined || running !== undefined) return;
      const target = exportTarget(settings, headers);
      running = new AuditExport({ state, folder, target, batch: settings.batch, onState });
    },
    get state() {
      return running?.state;
    },
    close: async () => running?.close(),
  };
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
