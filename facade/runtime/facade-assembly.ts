/** Assembles a running facade from a configuration, and replaces the configuration at a reload. */
import path from 'node:path';
import type { StartInspector } from '../../adapters/port.ts';
import { asTollgateError, type ErrorCode, TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Policy } from '../../policies/port.ts';
import { type AttentionItem, listAttention } from '../attention/attention-list.ts';
import { attentionSources } from '../attention/attention-sources.ts';
import { appendQuietly } from '../audit/audit-log.ts';
import type { Config } from '../config/config.ts';
import type { Problem } from '../config/config-problems.ts';
import { useProgramsOf } from '../config/servers/helper-program-settings.ts';
import type { AssembledFacade, AssembleFacade } from './assembled-facade.ts';
import { Snapshot } from './config-snapshot.ts';
import { Gateway } from './gateway.ts';
import { type BackendMakers, Backends } from './servers/backends.ts';
import { closeSharedServices, openSharedServices, registerSecrets, type SharedServices } from './shared-services.ts';
import { findUnboundPrograms } from './unbound-programs.ts';

/** The implementations that facade/main.ts passes in. */
export interface Implementations {
  /** `busy`: calls are served meanwhile, and must not be delayed. */
  readonly loadPolicy: (config: Config, options: { readonly opa?: string; readonly busy: boolean }) => Promise<Policy>;
  /** Reads the files that a server would run. */
  readonly inspect: StartInspector;
  /** `current` and `facade` return the present configuration and the facade, for what is started later. */
  readonly openBackends: (shared: SharedServices, current: () => Config, facade: () => Gateway) => BackendMakers;
}

type Options = Parameters<AssembleFacade>[1];

/** Returns the `AssembleFacade` function for these implementations. */
export function createFacadeAssembly(make: Implementations): AssembleFacade {
  return async (config, options) => {
    const shared = await openSharedServices(config, {
      onLog: options.onLog ?? (() => undefined),
      inspect: make.inspect,
      ...(options.isWorker === true && { isWorker: true }),
    });
    try {
      return await new Assembly(make, options, shared).start(config);
    } catch (thrown) {
      await closeSharedServices(shared);
      throw thrown;
    }
  };
}

class Assembly {
  readonly #make: Implementations;
  readonly #options: Options;
  readonly #shared: SharedServices;
  #backends: Backends | undefined;
  #gateway: Gateway | undefined;
  /** The last requested reload. Reloads run one after the other, so its configuration is in force at the end. */
  #last: Promise<unknown> = Promise.resolve();

  constructor(make: Implementations, options: Options, shared: SharedServices) {
    this.#make = make;
    this.#options = options;
    this.#shared = shared;
  }

  async start(config: Config): Promise<AssembledFacade> {
    const backends = (this.#backends = new Backends(
      this.#make.openBackends(
        this.#shared,
        () => this.#gateway?.snapshot.config ?? config,
        () => this.#gateway!,
      ),
    ));
    const snapshot = await this.#load(config, 'loaded');
    const gateway = (this.#gateway = new Gateway({ shared: this.#shared, backends, snapshot }));
    const attention = (): Promise<readonly AttentionItem[]> => this.#attention(gateway.snapshot.config);
    return {
      gateway,
      get config() {
        return gateway.snapshot.config;
      },
      get catalog() {
        return gateway.snapshot.catalog;
      },
      get deps() {
        return gateway.snapshot.deps;
      },
      state: this.#shared.state,
      consents: this.#shared.consents,
      suspensions: this.#shared.suspensions,
      feed: this.#shared.feed,
      attention,
      warmUp: () => {
        const { troubles } = this.#shared;
        troubles.clear('reload-refused');
        troubles.noteRules(gateway.snapshot.policy.ruleIds ?? []);
        backends.warmUp();
        gateway.watchAttention(attention);
      },
      serversOf: (principal) => gateway.snapshot.serversOf(principal),
      notices: noticesOf(snapshot),
      onFault: (thrown) => this.#shared.log.error({ err: thrown }, 'fault'),
      reload: (read, listening) => {
        const done = this.#last.then(() => this.#reload(gateway, read, listening));
        this.#last = done.catch(() => undefined);
        return done;
      },
    };
  }

  #attention(config: Config): Promise<readonly AttentionItem[]> {
    const { state, consents, redactor } = this.#shared;
    return listAttention(attentionSources({ config, state, consents, now: Date.now }), redactor);
  }

  async #reload(gateway: Gateway, read: () => Config, listening: boolean): Promise<readonly string[]> {
    const before = gateway.snapshot;
    let config: Config;
    try {
      config = read();
      refuseFixedChanges(before.config, config, listening);
    } catch (thrown) {
      this.#recordRefusal(thrown, 'reload');
      throw thrown;
    }
    const next = await this.#load(config, 'reloaded', before);
    const ended = gateway.swap(next);
    this.#shared.troubles.clear('reload-refused');
    this.#shared.troubles.noteRules(next.policy.ruleIds ?? []);
    const known = new Set(noticesOf(before));
    const lost = ended.map((id) => `A session of ${id} has ended: the principal was removed, or has another token.`);
    return [...lost, ...noticesOf(next).filter((notice) => !known.has(notice))];
  }

  /** Makes the next snapshot. The audit also records a refused configuration. */
  async #load(config: Config, event: 'loaded' | 'reloaded', before?: Snapshot): Promise<Snapshot> {
    let policy: Policy | undefined;
    try {
      useProgramsOf(config);
      policy = await this.#make.loadPolicy(config, { ...this.#options, busy: before !== undefined });
      const compiled = policy;
      const primitives = await this.#backends!.primitives(config);
      registerSecrets(this.#shared.redactor, config);
      const unbound = await findUnboundPrograms(config, compiled);
      // A configuration that cannot be recorded does not take effect.
      this.#shared.audit.append({ type: 'config', event, outcome: 'allow', revision: policy.revision });
      return new Snapshot(this.#shared, {
        config,
        policy,
        serve: () => this.#backends!.serve(config, (server) => compiled.confinement(server)),
        unbound,
        primitives,
        onChange: () => this.#gateway?.noteChange(),
        ...(before === undefined ? {} : { before }),
      });
    } catch (thrown) {
      policy?.close();
      if (before !== undefined) useProgramsOf(before.config);
      this.#recordRefusal(thrown, before === undefined ? 'start' : 'reload');
      throw thrown;
    }
  }

  #recordRefusal(thrown: unknown, at: 'start' | 'reload'): void {
    const { code, data } = asTollgateError(thrown);
    if (at === 'reload') this.#shared.troubles.note('reload-refused', code);
    const problems = Array.isArray(data.problems) ? { problems: data.problems.length } : {};
    appendQuietly(this.#shared.audit, {
      type: 'config',
      event: 'refused',
      outcome: 'error',
      code: code satisfies ErrorCode,
      ...problems,
    });
  }
}

/**
 * Throws CONFIG_INVALID for changes that a running process cannot make: open files, and the address of the listener.
 */
function refuseFixedChanges(before: Config, after: Config, listening: boolean): void {
  const problems: Problem[] = [];
  const compare = (at: readonly string[], pick: (config: Config) => unknown): void => {
    if (JSON.stringify(pick(before)) === JSON.stringify(pick(after))) return;
    problems.push({
      file: path.basename(after.file),
      ...after.ruleDocument.placeOf(at, 'key'),
      message: `${at.join('.')} cannot change while Tollgate runs; restart it, or restore the former value`,
    });
  };
  compare(['state'], ({ state }) => state);
  // By default the log is in the state folder, so a changed `state` is reported once.
  if (problems.length === 0)
    compare(['audit'], ({ audit: { folder, rotateBytes, replica } }) => ({ folder, rotateBytes, replica }));
  compare(['limits'], ({ limits }) => limits);
  compare(['programs'], ({ programs }) => programs);
  compare(['tenants'], ({ tenants }) => [...tenants]);
  // An issuer whose tokens are no longer accepted must not keep its sessions until a restart.
  if (listening) compare(['listen'], ({ listen: { jwt: _reloaded, ...listen } }) => listen);
  if (problems.length > 0)
    throw new TollgateError('CONFIG_INVALID', {
      detail: `${path.basename(after.file)} changes settings that are fixed while Tollgate runs.`,
      data: { problems },
    });
}

/** Returns what a person should know about a configuration and its policy. */
function noticesOf({ config, policy, unbound }: Snapshot): readonly string[] {
  const direct = [...config.servers.values()]
    .filter((server) => server.isolation === 'direct' && server.transport === 'stdio')
    .map(({ name }) => name);
  const rights =
    direct.length === 0 ? [] : [`Servers without isolation, which run with all of your rights: ${direct.join(', ')}.`];
  const kept =
    config.audit.facts === 'full'
      ? ['audit.facts is full: the arguments of calls are stored, encrypted, in the state folder.']
      : [];
  return [
    ...config.warnings
      .filter(({ minor }) => minor !== true)
      .map(({ file, line, column, message }) => `${file}:${line}:${column}: ${message}`),
    ...rights,
    ...kept,
    ...unbound,
    ...(policy.remarks ?? []),
  ];
}
