/** Owns what outlives a configuration: log, state, audit, budgets, spills, secrets, metrics; opened once a process, refused whole when one part fails. */
import type { Inspect } from '../adapters/port.ts';
import { asTollgateError } from '../catalogs/errors.ts';
import { createDigest, readAuditKey } from './audit/key.ts';
import { type AuditEntry, type AuditLog, openAudit } from './audit/log.ts';
import { type Budgets, createBudgets, createGate, type Gate } from './budget.ts';
import type { Config } from './config/config.ts';
import { Consents } from './consent/consents.ts';
import { countFaults } from './faults.ts';
import { createLog, type Logger } from './log.ts';
import { Aside } from './manage/aside.ts';
import { type Faults, Metrics } from './metrics.ts';
import { Redactor } from './output/redact.ts';
import { Spills } from './output/spills.ts';
import { EventFeed } from './servers/feed.ts';
import type { OpenSession } from './session.ts';
import { followState } from './state/follow.ts';
import type { State } from './state/state.ts';
import { Tally } from './statistics.ts';

/** What every generation works with. */
export interface Shared {
  readonly log: Logger;
  /** One line for the person who started this process; secrets are redacted. */
  readonly tell: (line: string) => void;
  readonly redactor: Redactor;
  readonly state: State;
  readonly audit: AuditLog;
  readonly digest: (text: string) => string;
  readonly budgets: Budgets;
  /** What people agreed to of servers. */
  readonly consents: Consents;
  readonly spills: Spills;
  readonly metrics: Metrics;
  /** What hosts are told of calls, after a restart too. */
  readonly tally: Tally;
  /** What happened to servers lately. */
  readonly feed: EventFeed;
  /** What sessions have put aside. */
  readonly aside: Aside;
  /** The calls at once of a session. A new limit begins a new gate; calls that wait at the old one are not lost. */
  readonly gateOf: (session: OpenSession, limit: number) => Gate;
}

/** Opens all parts. Throws STATE_TOO_NEW, STATE_FAILED, STATE_LOST, AUDIT_FAILED; what was opened before is closed again. */
export async function openShared(
  config: Config,
  { onLog, inspect }: { readonly onLog: (line: string) => void; readonly inspect: Inspect },
): Promise<Shared> {
  const redactor = new Redactor();
  registerSecrets(redactor, config);
  const log = createLog(redactor, onLog, process.env.TOLLGATE_LOG);
  const faults: Faults = { audit: 0, state: 0 };
  const state = countFaults(await followState(config.state), () => void (faults.state += 1));
  let audit: AuditLog | undefined;
  try {
    audit = countFaults(
      openAudit({ folder: config.audit.folder, rotateBytes: config.audit.rotateBytes }),
      () => void (faults.audit += 1),
    );
    const digest = createDigest(readAuditKey(config.state));
    const tally = new Tally(state);
    const consents = new Consents(state, { folder: config.folder, inspect, digest });
    return {
      log,
      tell: (line) => onLog(`${redactor.redact(line).value}\n`),
      redactor,
      state,
      audit,
      digest,
      consents,
      budgets: createBudgets(state),
      spills: new Spills(config.state),
      metrics: new Metrics(tally, faults),
      tally,
      feed: new EventFeed(Date.now, (text) => redactor.redact(text).value),
      aside: new Aside(),
      gateOf: createGates(),
    };
  } catch (thrown) {
    void audit?.close();
    void state.close();
    throw thrown;
  }
}

/** Closes what `openShared` opened, the log last, so that the last records are written. */
export async function closeShared({ spills, audit, state, tally }: Shared): Promise<void> {
  try {
    spills.close();
  } finally {
    await audit
      .close()
      .finally(() => tally.flush())
      .finally(() => state.close());
  }
}

/** Secrets are only ever added: a result may still hold one that the configuration no longer has. */
export function registerSecrets(redactor: Redactor, config: Config): void {
  for (const secret of config.secrets) redactor.register(secret);
}

/** Appends a record beside a call: one that cannot be written stops nothing, the next call is refused for the same reason. */
export function appendQuietly(audit: AuditLog, entry: AuditEntry): void {
  try {
    audit.append(entry);
  } catch (thrown) {
    if (asTollgateError(thrown).code !== 'AUDIT_FAILED') throw thrown;
  }
}

function createGates(): Shared['gateOf'] {
  const gates = new WeakMap<OpenSession, { readonly limit: number; readonly gate: Gate }>();
  return (session, limit) => {
    const known = gates.get(session);
    if (known?.limit === limit) return known.gate;
    const gate = createGate(limit);
    gates.set(session, { limit, gate });
    return gate;
  };
}
