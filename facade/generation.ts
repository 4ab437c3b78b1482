/** Owns one generation: all that one configuration became, whole and unchanging, from its first call to the end of its last; refuses to mix with another. */
import { randomUUID } from 'node:crypto';
import type { RawTool } from '../catalogs/tool.ts';
import type { Policy, Principal } from '../policies/port.ts';
import { createNotice } from './approvals/notice.ts';
import { ApprovalQueue } from './approvals/queue.ts';
import type { Deps } from './call.ts';
import type { Served } from './catalog.ts';
import { Catalog } from './catalog.ts';
import type { CapsConfig, Config } from './config/config.ts';
import { mergeProfiles } from './config/profiles.ts';
import { backendsIn } from './config/routes.ts';
import { noteDrift } from './consent/drift.ts';
import { pendingStanding } from './consent/standing.ts';
import { Exposures } from './exposure.ts';
import { Grants } from './grants/grants.ts';
import { grantStanding } from './grants/standing.ts';
import { createLabels } from './labels.ts';
import { createIdentify } from './manage/identity.ts';
import { ownFilesStanding } from './own-files.ts';
import { createPlans, listPlans } from './plan.ts';
import { openRecorder, type Recorder } from './recording/writer.ts';
import { RunExpiry } from './run-expiry.ts';
import { createRuns } from './runs.ts';
import { callEvent } from './servers/call-event.ts';
import { KillSwitch } from './servers/kill-switch.ts';
import { openKnownLists } from './servers/known-lists.ts';
import type { OpenSession } from './session.ts';
import { appendQuietly, type Shared } from './shared.ts';
import { joinStanding } from './standing.ts';
import { switchStanding } from './switch/standing.ts';
import { nameStanding } from './tool-names.ts';
import { createNotices } from './unoffered.ts';
import { upgradeStanding } from './upgrades/standing.ts';
import { Upgrades } from './upgrades/upgrades.ts';
import type { Unshown } from './wanted.ts';
import { WorkspaceFiles } from './workspace-files.ts';

/** What a generation is made of. */
export interface GenerationParts {
  readonly config: Config;
  readonly policy: Policy;
  /** The servers of the configuration. Asked last: what it changes cannot be taken back. */
  readonly serve: () => ReadonlyMap<string, Served>;
  /** Definitions of the primitives. */
  readonly primitives: readonly RawTool[];
  /** Rules that do not bind programs, a line each. */
  readonly unbound: readonly string[];
  /** The one before: what it knows of servers that did not change is taken over. */
  readonly before?: Generation;
  /** Told when a server says that its list has changed. */
  readonly onChange: () => void;
}

/** One configuration at work. */
export class Generation {
  /** Of those of one facade, from 1. */
  readonly number: number;
  readonly config: Config;
  readonly policy: Policy;
  readonly unbound: readonly string[];
  readonly catalog: Catalog;
  readonly deps: Deps;
  readonly #recorder: Recorder | undefined;
  readonly #approvals: ApprovalQueue;
  readonly #expiry: RunExpiry;
  readonly #warned = new Set<string>();
  #inside = 0;
  #onEmpty: (() => void) | undefined;

  /** Throws STATE_FAILED when recordings are asked for and cannot be kept. */
  constructor(shared: Shared, parts: GenerationParts) {
    const { config, policy, before } = parts;
    this.number = (before?.number ?? 0) + 1;
    this.config = config;
    this.policy = policy;
    this.unbound = parts.unbound;
    this.#recorder = recorderOf(config, shared);
    const names = nameStanding(config, { entriesOf: (server) => this.catalog.entries(server) });
    const notices = createNotices(policy, (line) => shared.log.warn(line));
    // What ships with Tollgate was judged when the policy was loaded, by what it really does; its list says less.
    const judge = (server: string, isKept = false): void => {
      const unknown = names.unknownOf(server).filter(({ isIdle }) => !isKept || isIdle !== true);
      for (const { file, line, column, message } of unknown)
        this.#warnOnce(`${file}:${line}:${column}: ${message}`, shared);
      if (config.servers.has(server))
        void notices
          .judge(server, this.catalog.entries(server))
          .catch((err: unknown) => shared.log.error({ err }, 'unoffered'));
    };
    const known = openKnownLists({
      config,
      digest: shared.digest,
      redactor: shared.redactor,
      onFault: (err) => shared.log.error({ err }, 'known lists'),
    });
    this.catalog = new Catalog(
      parts.serve(),
      {
        onChange: parts.onChange,
        onListed: judge,
        known,
        consent: async (names) => {
          await shared.state.fresh();
          return shared.consents.admit(names.filter((name) => config.servers.has(name)));
        },
        onListing: (server, drift) => noteDrift(shared, server, drift),
      },
      before?.catalog,
    );
    for (const server of this.catalog.servers.keys()) judge(server, true);
    const capsOf = perObject(
      (principal: Principal): CapsConfig => ({ ...config.caps, ...mergeProfiles(config, principal.profiles).caps }),
    );
    const runs = createRuns(config, shared.state, Date.now);
    this.#expiry = new RunExpiry(
      [(signal) => runs.sweep(signal), (signal) => listPlans(shared.state, Date.now(), signal)],
      (err) => shared.log.error({ err }, 'records of runs'),
    );
    shared.spills.keepFor(config.runs.keepMs);
    const grants = new Grants({ state: shared.state, now: Date.now, append: (entry) => shared.audit.append(entry) });
    const isAsleep = (server: string): boolean => this.catalog.servers.get(server)?.adapter.isAsleep?.() === true;
    const byGrants = grantStanding({ profiles: config.profiles, grantsOf: (origin) => grants.of(origin), isAsleep });
    const upgrades = new Upgrades({
      state: shared.state,
      now: Date.now,
      append: (entry) => shared.audit.append(entry),
    });
    const standing = joinStanding([
      switchStanding(new KillSwitch(shared.state)),
      upgradeStanding(config, { upgrades, entriesOf: (server) => this.catalog.entries(server) }),
      runs.standing,
      byGrants,
      pendingStanding(shared.consents.tools),
      names,
      ownFilesStanding(config),
      shared.aside,
    ]);
    const exposures = new Exposures({
      catalog: this.catalog,
      policy: () => policy,
      primitives: parts.primitives,
      serversOf: (principal) => this.serversOf(principal),
      routesOf: perObject((principal: Principal) => mergeProfiles(config, principal.profiles).primitives),
      maxArgBytes: (principal) => capsOf(principal).argBytes,
      view: standing.view,
      fresh: () => shared.state.fresh(),
      aliased: (principal, name) => this.#aliased(principal, name),
      tell: (refused) => refused.forEach((one) => this.#noteUnshown(one, shared)),
    });
    const { audit, digest, budgets, spills, redactor, metrics, log, gateOf, state } = shared;
    this.#approvals = approvalsOf(config, shared, { catalog: this.catalog, isAsleep });
    this.deps = {
      fresh: () => state.fresh(),
      files: new WorkspaceFiles(config),
      exposures,
      policy: () => policy,
      budgets,
      labels: createLabels({ state, runs, sticky: config.labels.sticky, now: Date.now }),
      plans: createPlans(config, state, Date.now),
      runs,
      grants,
      metrics,
      standing,
      identify: createIdentify({
        catalog: this.catalog,
        runs,
        aside: shared.aside,
        serversOf: (principal) => this.serversOf(principal),
        onChange: parts.onChange,
      }),
      approvals: this.#approvals,
      audit,
      digest,
      spills,
      redactor,
      capsOf,
      now: Date.now,
      newId: randomUUID,
      gateOf: (session) => gateOf(session, capsOf(session.principal).concurrent),
      ...(this.#recorder === undefined ? {} : { recorder: this.#recorder }),
      onEnd: (trace, error) => {
        const event = callEvent(trace, error, Date.now());
        metrics.onEnd(trace, error, Date.now());
        shared.feed.note(event);
        log.debug(event, 'call');
        if (error?.code === 'INTERNAL' || error?.code === 'POLICY_FAILED')
          log.error({ decision: trace.id, correlation: event.correlation, err: error.cause ?? error }, error.code);
      },
    };
  }

  /** A member of `expose` in Rego that shows nothing: once in the log and once in the audit, where it says what the owner's policy did not do. */
  #noteUnshown({ line, place, tool }: Unshown, shared: Shared): void {
    if (!this.#warned.has(line))
      appendQuietly(shared.audit, { type: 'config', event: 'unshown', outcome: 'error', place, tool });
    this.#warnOnce(line, shared);
  }

  #warnOnce(line: string, { log }: Pick<Shared, 'log'>): void {
    if (!this.#warned.has(line)) log.warn(line);
    this.#warned.add(line);
  }

  /** Names of the servers in a principal's profiles, and of those that serve its primitives. */
  serversOf(principal: Principal): readonly string[] {
    const profiles = principal.profiles.flatMap((name) => this.config.profiles.get(name) ?? []);
    return [...new Set(profiles.flatMap((profile) => [...profile.servers, ...backendsIn(profile.primitives)]))];
  }

  /** The servers of which a profile shows a tool by this name. */
  #aliased(principal: Principal, name: string): readonly string[] {
    const rules = principal.profiles.flatMap((profile) => this.config.profiles.get(profile)?.expose ?? []);
    return rules
      .filter((rule) => rule.name?.replaceAll('-', '_') === name.replaceAll('-', '_'))
      .map(({ tool }) => tool.slice(0, tool.indexOf('.')));
  }

  /** Tells the servers of a session how long it wants them to stay (CY-23). */
  demand({ id, principal }: OpenSession): void {
    const { lifetimes } = mergeProfiles(this.config, principal.profiles);
    for (const name of this.serversOf(principal)) this.catalog.servers.get(name)?.adapter.demand?.(id, lifetimes[name]);
  }

  /** Servers that the profile of a session wants started with it, of those that may be. Throws STATE_FAILED. */
  startsWith(session: OpenSession): readonly string[] {
    const { starts } = mergeProfiles(this.config, session.principal.profiles);
    const wanted = this.serversOf(session.principal).filter((name) => starts[name] === 'eager');
    if (wanted.length === 0) return wanted;
    const { off, mayStart } = this.deps.standing.view(session.principal, session);
    return off === undefined ? wanted.filter((name) => mayStart?.(name) !== false) : [];
  }

  /** Does work that keeps this generation alive until it has ended. */
  async within<T>(work: (deps: Deps) => Promise<T>): Promise<T> {
    this.#inside += 1;
    try {
      return await work(this.deps);
    } finally {
      this.#inside -= 1;
      if (this.#inside === 0) this.#onEmpty?.();
    }
  }

  /** Another takes its place: no call waits for a person any more under this one. */
  retire(): void {
    this.#approvals.end();
  }

  /** Resolves when nothing works with it; for the time when another has taken its place. */
  async empty(): Promise<void> {
    if (this.#inside > 0) await new Promise<void>((resolve) => (this.#onEmpty = resolve));
  }

  /** Closes the policy and the recordings; idempotent. */
  async close(): Promise<void> {
    this.policy.close();
    await this.#expiry.close();
    await this.#recorder?.close();
  }
}

/** Makes something once for each object: principals and sessions live long, calls do not. */
function perObject<K extends object, V>(make: (key: K) => V): (key: K) => V {
  const known = new WeakMap<K, V>();
  return (key) => {
    const value = known.get(key) ?? make(key);
    known.set(key, value);
    return value;
  };
}

function approvalsOf(
  config: Config,
  { state, audit, digest, redactor, tell, metrics, consents }: Shared,
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
      // What ships with Tollgate needs no consent.
      if (killed !== undefined || server === undefined) return killed;
      return (
        consents.refusalOf(name) ?? (before === 'asking' && isAsleep(name) ? consents.refuseLook(server) : undefined)
      );
    },
    onAsked: createNotice(tell, Date.now),
    onWaiting: (change) => metrics.onWaiting(change),
  });
}

function recorderOf(config: Config, { log, audit }: Shared): Recorder | undefined {
  return openRecorder({
    state: config.state,
    settings: config.recording,
    now: Date.now,
    onFault: (error) => {
      log.error({ err: error.cause }, error.message);
      appendQuietly(audit, { type: 'config', event: 'unrecorded', outcome: 'error', code: error.code });
    },
  });
}
