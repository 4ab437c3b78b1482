/** One snapshot: all that follows from one configuration, in use from its first call to the end of its last. */

import { randomUUID } from 'node:crypto';
import { homedir } from 'node:os';
import { memoize } from '../../catalogs/text/collections.ts';
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';
import type { Policy, Principal } from '../../policies/port.ts';
import { type AuditLog, appendQuietly } from '../audit/audit-log.ts';
import { openRecorder, type Recorder } from '../audit/recording/recorder.ts';
import type { CallDependencies } from '../call/call.ts';
import { createFactNames } from '../call/fact-names.ts';
import type { OpenSession } from '../call/identify.ts';
import { WorkspaceFiles } from '../call/lowering/workspace-files.ts';
import type { EndedCall } from '../call/record.ts';
import { createLabels, type RunLabels } from '../call/run-labels.ts';
import type { CapsConfig, Config } from '../config/config.ts';
import { mergeProfiles } from '../config/profiles.ts';
import { backendsIn } from '../config/servers/configured-routes.ts';
import type { Approvals } from '../consent/approvals/approval-port.ts';
import { ApprovalQueue, createApprovalNotice } from '../consent/approvals/approval-queue.ts';
import { upgradePrecondition } from '../consent/capabilities/capability-precondition.ts';
import { Upgrades } from '../consent/capabilities/capability-upgrades.ts';
import { controlFilePrecondition } from '../consent/control-file-precondition.ts';
import { grantPrecondition } from '../consent/grants/grant-precondition.ts';
import { Grants } from '../consent/grants/grant-store.ts';
import { createPlans, listPlans, type RunPlans } from '../consent/plan-mode.ts';
import { joinPreconditions, type Preconditions } from '../consent/preconditions.ts';
import { pendingToolsPrecondition, recordToolDrift } from '../consent/servers/pending-tools.ts';
import type { ToolSet } from '../consent/servers/tool-set.ts';
import { KillSwitch, masterSwitchPrecondition } from '../consent/switch/kill-switch.ts';
import { suspensionPrecondition } from '../consent/switch/suspensions.ts';
import { Catalog } from '../exposure/catalog.ts';
import { NameTables } from '../exposure/name-tables.ts';
import { PromptTables } from '../exposure/prompt-tables.ts';
import type { UnshownExposure } from '../exposure/rego-exposures.ts';
import { ResourceTables } from '../exposure/resource-tables.ts';
import type { ServedServer } from '../exposure/served-server.ts';
import { createNameNotices, namePrecondition } from '../exposure/tool-name-check.ts';
import { createIdentify } from '../internal-servers/caller-identity.ts';
import { ServerRequests } from '../operations/server-requests.ts';
import type { Reply } from '../serve/facade-port.ts';
import { callEvent } from '../serve/host/event-feed.ts';
import { createRuns, type Runs } from '../serve/host/host-runs.ts';
import type { Metrics } from './metrics/metrics.ts';
import { RunExpiry } from './run-expiry.ts';
import { openKnownToolLists } from './servers/known-tool-lists.ts';
import type { SharedServices } from './shared-services.ts';

/** What a snapshot is made of. */
export interface SnapshotParts {
  readonly config: Config;
  readonly policy: Policy;
  /** Returns the servers of the configuration. Called last, because its changes cannot be undone. */
  readonly serve: () => ReadonlyMap<string, ServedServer>;
  /** Definitions of the primitives. */
  readonly primitives: readonly RawTool[];
  /** Rules that do not bind programs, a line each. */
  readonly unbound: readonly string[];
  /** The previous snapshot. What it knows of unchanged servers is carried over. */
  readonly before?: Snapshot;
  /** Called when a server reports that its list has changed. */
  readonly onChange: () => void;
}

/** The services of one snapshot: the dependencies of its calls, and those of hosts and commands. */
export type SnapshotServices = CallDependencies & {
  readonly approvals: Approvals;
  readonly nameTables: NameTables;
  readonly resources: ResourceTables;
  readonly prompts: PromptTables;
  readonly preconditions: Preconditions;
  readonly plans: RunPlans;
  readonly runs: Runs;
  readonly labels: RunLabels;
  readonly grants: Grants;
  readonly audit: AuditLog;
  readonly metrics: Metrics;
  readonly recorder?: Recorder;
};

/** A configuration in use. */
export class Snapshot {
  /** The number of the snapshot in its facade, from 1. */
  readonly number: number;
  readonly config: Config;
  readonly policy: Policy;
  readonly unbound: readonly string[];
  readonly catalog: Catalog;
  readonly deps: SnapshotServices;
  readonly #recorder: Recorder | undefined;
  readonly #approvals: ApprovalQueue;
  readonly #expiry: RunExpiry;
  readonly #warned = new Set<string>();
  #users = 0;
  #onUnused: (() => void) | undefined;

  /** Opens the recorder. Throws STATE_FAILED if recordings are configured and cannot be kept. */
  constructor(shared: SharedServices, parts: SnapshotParts) {
    const { config, policy, before } = parts;
    const { state, audit } = shared;
    this.number = (before?.number ?? 0) + 1;
    this.config = config;
    this.policy = policy;
    this.unbound = parts.unbound;
    this.#recorder = openConfiguredRecorder(config, shared);
    const names = namePrecondition(config, { entriesOf: (server) => this.catalog.entries(server) });
    const { catalog, onListed } = this.#createCatalog(shared, parts, names);
    this.catalog = catalog;
    for (const server of catalog.servers.keys()) onListed(server, true);
    const runs = createRuns(config, shared, Date.now);
    this.#expiry = new RunExpiry(
      [(signal) => runs.sweep(signal), (signal) => listPlans(state, Date.now(), signal)],
      (err) => shared.log.error({ err }, 'records of runs'),
    );
    shared.spills.keepFor(config.runs.keepMs);
    const grants = new Grants({ state, now: Date.now, append: (entry) => audit.append(entry) });
    const isAsleep = (server: string): boolean => this.catalog.servers.get(server)?.adapter.isAsleep?.() === true;
    const upgrades = new Upgrades({ state, now: Date.now, append: (entry) => audit.append(entry) });
    const preconditions = joinPreconditions([
      masterSwitchPrecondition(new KillSwitch(state)),
      suspensionPrecondition(shared.suspensions),
      upgradePrecondition(config, { upgrades, entriesOf: (server) => this.catalog.entries(server) }),
      runs.standing,
      grantPrecondition({ profiles: config.profiles, grantsOf: (origin) => grants.of(origin), isAsleep }),
      pendingToolsPrecondition(shared.consents.tools),
      names,
      controlFilePrecondition(config),
      shared.hiddenServers,
    ]);
    this.#approvals = openApprovals(config, shared, { catalog: this.catalog, isAsleep });
    this.deps = this.#createServices(shared, parts, { runs, grants, preconditions });
  }

  #createCatalog(
    shared: SharedServices,
    { config, policy, before, serve, onChange }: SnapshotParts,
    names: ReturnType<typeof namePrecondition>,
  ): { readonly catalog: Catalog; readonly onListed: (server: string, isCarriedOver?: boolean) => void } {
    const { state, consents, audit, log, digest, redactor } = shared;
    const notices = createNameNotices(policy, (line) => log.warn(line));
    const onListed = (server: string, isCarriedOver = false): void => {
      const unknown = names.unknownOf(server).filter(({ isIdle }) => !isCarriedOver || isIdle !== true);
      for (const { file, line, column, message } of unknown)
        this.#warnOnce(`${file}:${line}:${column}: ${message}`, shared);
      // For servers that ship with Tollgate, this was done when the policy was loaded.
      if (config.servers.has(server))
        void notices
          .judge(server, this.catalog.entries(server))
          .catch((err: unknown) => log.error({ err }, 'unoffered'));
    };
    const catalog = new Catalog(
      serve(),
      {
        onChange,
        onListed,
        known: openKnownToolLists({ config, digest, redactor, onFault: (err) => log.error({ err }, 'known lists') }),
        consent: async (servers) => {
          await state.refresh();
          return consents.admit(servers.filter((name) => config.servers.has(name)));
        },
        onListing: (server, drift) => {
          const startedAt = (name: string): number => consents.startedAt(name);
          return recordToolDrift({ tools: consents.tools, startedAt, audit, log }, server, drift);
        },
      },
      before?.catalog,
    );
    return { catalog, onListed };
  }

  #createServices(
    shared: SharedServices,
    { config, policy, primitives, onChange }: SnapshotParts,
    { runs, grants, preconditions }: Pick<SnapshotServices, 'runs' | 'grants' | 'preconditions'>,
  ): SnapshotServices {
    const { budgets, spills, redactor, metrics, processGate, concurrencyGateOf, state, hiddenServers } = shared;
    const { catalog } = this;
    const refresh = (): Promise<void> | undefined => state.refresh();
    const serversOf = (principal: Principal): readonly string[] => this.serversOf(principal);
    const capsOf = memoize(
      (principal: Principal): CapsConfig => ({ ...config.caps, ...mergeProfiles(config, principal.profiles).caps }),
    );
    const rulesOf = memoize((principal: Principal) => mergeProfiles(config, principal.profiles));
    const maxArgBytes = (principal: Principal): number => capsOf(principal).argBytes;
    const shown = { catalog, policy: () => policy, maxArgBytes, view: preconditions.view, redactor, refresh };
    const resources = new ResourceTables({
      ...shown,
      serversOf: (principal) => rulesOf(principal).resources,
      approved: (server) => {
        const set = this.approvedSet(server, shared);
        return set === undefined ? undefined : (set.templates ?? []);
      },
    });
    const services: SnapshotServices = {
      refresh,
      files: new WorkspaceFiles(config),
      resources,
      prompts: new PromptTables({
        ...shown,
        rulesOf: (principal) => rulesOf(principal).prompts,
        approved: (server) => this.approvedSet(server, shared)?.prompts,
        hasTemplate: (id) => config.prompts.has(id),
      }),
      promptTemplate: (id) => config.prompts.get(id),
      shownUri: (principal, server, uri) => resources.shownUri(principal, server, uri),
      serverRequests: (call) => new ServerRequests(services, call),
      nameTables: new NameTables({
        catalog,
        policy: () => policy,
        primitives,
        serversOf,
        profileOf: rulesOf,
        maxArgBytes,
        view: preconditions.view,
        refresh,
        aliased: (principal, name) => this.#aliased(principal, name),
        tell: (refused) => refused.forEach((one) => this.#noteUnshown(one, shared)),
      }),
      policy: () => policy,
      budgets,
      labels: createLabels({ state, runs, sticky: config.labels.sticky, now: Date.now }),
      plans: createPlans(config, state, Date.now),
      runs,
      grants,
      metrics,
      preconditions,
      identify: createIdentify({ catalog, runs, hiddenServers, serversOf, onChange }),
      approvals: this.#approvals,
      spills,
      ...recordParts(config, shared),
      capsOf,
      now: Date.now,
      newId: randomUUID,
      processGate,
      concurrencyLimitOf: (session) => concurrencyGateOf(session, capsOf(session.principal).concurrent),
      ...(this.#recorder !== undefined && { recorder: this.#recorder }),
      ...reportsTo(shared, config.servers),
    };
    return services;
  }

  /**
   * Returns what people approved of an external server: undefined if everything it says is approved, an empty set
   * without consent.
   */
  approvedSet(server: string, { consents }: Pick<SharedServices, 'consents'>): Omit<ToolSet, 'hints'> | undefined {
    if (!this.config.servers.has(server)) return undefined;
    const admission = consents.admit([server]).get(server);
    return admission === undefined || 'refusal' in admission ? { tools: [], prompts: [] } : admission.set;
  }

  /** Reports a member of `expose` in Rego that shows no tool, once in the log and once in the audit. */
  #noteUnshown({ line, place, tool }: UnshownExposure, shared: SharedServices): void {
    if (!this.#warned.has(line))
      appendQuietly(shared.audit, { type: 'config', event: 'unshown', outcome: 'error', place, tool });
    this.#warnOnce(line, shared);
  }

  #warnOnce(line: string, { log }: Pick<SharedServices, 'log'>): void {
    if (!this.#warned.has(line)) log.warn(line);
    this.#warned.add(line);
  }

  /** Returns the servers in the profiles of a principal, and those that serve its primitives. */
  serversOf(principal: Principal): readonly string[] {
    const profiles = principal.profiles.flatMap((name) => this.config.profiles.get(name) ?? []);
    return [...new Set(profiles.flatMap((profile) => [...profile.servers, ...backendsIn(profile.primitives)]))];
  }

  /**
   * Returns the lists of the principal's servers as they sent them. Servers that ship with Tollgate have none, because
   * without Tollgate the client would not have them.
   */
  originalLists(principal: Principal): readonly (readonly RawTool[])[] {
    return this.serversOf(principal)
      .filter((name) => this.config.servers.has(name))
      .map((name) => this.catalog.original(name));
  }

  /** Returns the servers of which a profile shows a tool with this name. */
  #aliased(principal: Principal, name: string): readonly string[] {
    const rules = principal.profiles.flatMap((profile) => this.config.profiles.get(profile)?.expose ?? []);
    return rules
      .filter((rule) => rule.name?.replaceAll('-', '_') === name.replaceAll('-', '_'))
      .map(({ tool }) => tool.slice(0, tool.indexOf('.')));
  }

  /** Tells the servers of a session how long the session needs them (CY-23). */
  demand({ id, principal }: OpenSession): void {
    const { lifetimes } = mergeProfiles(this.config, principal.profiles);
    const session = { scope: id, profiles: principal.profiles };
    for (const name of this.serversOf(principal))
      this.catalog.servers.get(name)?.adapter.demand?.(session, lifetimes[name]);
  }

  /** Returns the servers that start with a session, if they may start. Throws STATE_FAILED. */
  startsWith(session: OpenSession): readonly string[] {
    const { starts } = mergeProfiles(this.config, session.principal.profiles);
    const wanted = this.serversOf(session.principal).filter((name) => starts[name] === 'eager');
    if (wanted.length === 0) return wanted;
    const { refused, mayStart } = this.deps.preconditions.view(session.principal, session);
    return refused === undefined ? wanted.filter((name) => mayStart?.(name) !== false) : [];
  }

  /** Runs work. The snapshot stays open until the work has ended. */
  within<T>(work: (deps: SnapshotServices) => Promise<T>): Promise<T> {
    this.#users += 1;
    const done = work(this.deps);
    done.then(this.#release, this.#release);
    return done;
  }

  readonly #release = (): void => {
    this.#users -= 1;
    if (this.#users === 0) this.#onUnused?.();
  };

  /** Ends all waits for a person, because another snapshot replaces this one. */
  retire(): void {
    this.#approvals.end();
  }

  /** Resolves when no call uses the snapshot. Call it after the replacement. */
  async empty(): Promise<void> {
    if (this.#users > 0) await new Promise<void>((resolve) => (this.#onUnused = resolve));
  }

  /** Closes the policy and the recordings. Can be called again. */
  async close(): Promise<void> {
    this.policy.close();
    await this.#expiry.close();
    await this.#recorder?.close();
  }
}

/** Returns what calls report to. */
function reportsTo(
  shared: SharedServices,
  servers: Config['servers'],
): Pick<SnapshotServices, 'followInner' | 'onEnd'> {
  return {
    followInner: shared.telemetry?.followInner,
    onEnd: (end, answered) => reportEnd(shared, { end, answered, servers }),
  };
}

/** Counts, announces and logs the end of a call. */
function reportEnd(
  { metrics, context, feed, log, telemetry, troubles }: SharedServices,
  {
    end,
    answered,
    servers,
  }: { readonly end: EndedCall; readonly answered: Reply; readonly servers: Config['servers'] },
): void {
  const { error, start } = end;
  const now = Date.now();
  const event = callEvent(end, now);
  metrics.onEnd(end, now);
  context.onEnd(end, answered);
  feed.note(event);
  const ids = telemetry?.idsOf(start.id);
  telemetry?.onEnd(end, answered, servers.get(end.judged?.lowered?.effect.server ?? ''));
  log.debug(ids === undefined ? event : { ...event, ...ids }, 'call');
  if (error?.code === 'POLICY_FAILED') troubles.note('policy-failed', error.code);
  for (const { id } of end.judged?.decision?.reasons ?? []) troubles.noteHit(id);
  if (error?.code === 'INTERNAL' || error?.code === 'POLICY_FAILED')
    log.error({ decision: start.id, correlation: event.correlation, ...ids, err: error.cause ?? error }, error.code);
}

function openApprovals(
  config: Config,
  { state, audit, digest, redactor, tell, metrics, consents }: SharedServices,
  { catalog, isAsleep }: { readonly catalog: Catalog; readonly isAsleep: (server: string) => boolean },
): ApprovalQueue {
  const killSwitch = new KillSwitch(state);
  return new ApprovalQueue({
    settings: config.approvals,
    state,
    digest,
    redactor,
    now: Date.now,
    append: (entry) => audit.append(entry),
    pinOf: ({ server, tool }) => catalog.entries(server).find((entry) => entry.tool.name === tool)?.pin,
    setOf: (server) => digest(JSON.stringify(catalog.entries(server).map(({ tool, pin }) => [tool.name, pin]))),
    refusalOf: async (name, before) => {
      const killed = killSwitch.refusalOf(name);
      const server = config.servers.get(name);
      // Internal servers need no consent.
      if (killed !== undefined || server === undefined) return killed;
      return (
        consents.refusalOf(name) ?? (before === 'asking' && isAsleep(name) ? consents.refuseProbe(server) : undefined)
      );
    },
    asksCaller: ({ profiles }) => mergeProfiles(config, profiles).approvals === 'caller',
    onAsked: createApprovalNotice(tell, Date.now),
    onWaiting: (change) => metrics.onWaiting(change),
  });
}

/** What the records of calls are made with. */
function recordParts(
  config: Config,
  { audit, digest, redactor }: SharedServices,
): Pick<SharedServices, 'audit' | 'digest' | 'redactor'> & Pick<CallDependencies, 'factNames'> {
  const factNames = createFactNames(config.audit.facts, { redactor, home: homedir(), workspace: config.workspace });
  return { audit, digest, redactor, factNames };
}

function openConfiguredRecorder(config: Config, { log, audit, digest }: SharedServices): Recorder | undefined {
  return openRecorder({
    state: config.state,
    settings: config.audit,
    digest,
    now: Date.now,
    onFault: (error) => {
      log.error({ err: error.cause }, error.message);
      appendQuietly(audit, { type: 'config', event: 'unrecorded', outcome: 'error', code: error.code });
    },
  });
}
