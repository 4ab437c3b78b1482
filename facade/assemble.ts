/** Owns how a configuration becomes a running facade, and how the next one takes its place; knows implementations by their ports alone. */
import path from 'node:path';
import type { Inspect } from '../adapters/port.ts';
import { asTollgateError, type ErrorCode, TollgateError } from '../catalogs/errors.ts';
import type { Policy } from '../policies/port.ts';
import type { Assemble, Assembled } from './assembled.ts';
import { type BackendMakers, Backends } from './backends.ts';
import type { Config, Problem } from './config/config.ts';
import { useProgramsOf } from './config/programs.ts';
import { Gateway } from './gateway.ts';
import { Generation } from './generation.ts';
import { appendQuietly, closeShared, openShared, registerSecrets, type Shared } from './shared.ts';
import { findUnbound } from './unbound.ts';

/** What facade/main.ts gives. */
export interface Implementations {
  /** `busy`: calls are served meanwhile, and must not be held up. */
  readonly loadPolicy: (config: Config, options: { readonly opa?: string; readonly busy: boolean }) => Promise<Policy>;
  /** Looks at the files that a server would run. */
  readonly inspect: Inspect;
  /** `current` is the configuration of now, for what is started later. */
  readonly openBackends: (shared: Shared, current: () => Config) => BackendMakers;
}

type Options = Parameters<Assemble>[1];

/** Makes `assemble` (see Assemble in facade/assembled.ts) from the implementations. */
export function createAssemble(make: Implementations): Assemble {
  return async (config, options) => {
    const shared = await openShared(config, { onLog: options.onLog ?? (() => undefined), inspect: make.inspect });
    try {
      return await new Assembly(make, options, shared).start(config);
    } catch (thrown) {
      await closeShared(shared);
      throw thrown;
    }
  };
}

class Assembly {
  readonly #make: Implementations;
  readonly #options: Options;
  readonly #shared: Shared;
  #backends: Backends | undefined;
  #gateway: Gateway | undefined;
  /** Reloads come one after the other: the one that was asked for last is in force at the end. */
  #last: Promise<unknown> = Promise.resolve();

  constructor(make: Implementations, options: Options, shared: Shared) {
    this.#make = make;
    this.#options = options;
    this.#shared = shared;
  }

  async start(config: Config): Promise<Assembled> {
    const backends = (this.#backends = new Backends(
      this.#make.openBackends(this.#shared, () => this.#gateway?.generation.config ?? config),
    ));
    const generation = await this.#generate(config, 'loaded');
    const gateway = (this.#gateway = new Gateway({ shared: this.#shared, backends, generation }));
    return {
      gateway,
      get config() {
        return gateway.generation.config;
      },
      get catalog() {
        return gateway.generation.catalog;
      },
      get deps() {
        return gateway.generation.deps;
      },
      consents: this.#shared.consents,
      feed: this.#shared.feed,
      warmUp: () => backends.warmUp(),
      serversOf: (principal) => gateway.generation.serversOf(principal),
      notices: noticesOf(generation),
      onFault: (thrown) => this.#shared.log.error({ err: thrown }, 'fault'),
      reload: (read, listening) => {
        const done = this.#last.then(() => this.#reload(gateway, read, listening));
        this.#last = done.catch(() => undefined);
        return done;
      },
    };
  }

  async #reload(gateway: Gateway, read: () => Config, listening: boolean): Promise<readonly string[]> {
    const before = gateway.generation;
    let config: Config;
    try {
      config = read();
      refuseMoved(before.config, config, listening);
    } catch (thrown) {
      this.#recordRefusal(thrown);
      throw thrown;
    }
    const next = await this.#generate(config, 'reloaded', before);
    const ended = gateway.swap(next);
    const known = new Set(noticesOf(before));
    const lost = ended.map(
      (id) => `A session of ${id} has ended: the principal is gone, or proves itself in another way.`,
    );
    return [...lost, ...noticesOf(next).filter((notice) => !known.has(notice))];
  }

  /** A configuration that is refused stands in the audit too: somebody tried to use it. */
  async #generate(config: Config, event: 'loaded' | 'reloaded', before?: Generation): Promise<Generation> {
    let policy: Policy | undefined;
    try {
      useProgramsOf(config);
      policy = await this.#make.loadPolicy(config, { ...this.#options, busy: before !== undefined });
      const loaded = policy;
      const primitives = await this.#backends!.primitives(config);
      registerSecrets(this.#shared.redactor, config);
      const unbound = await findUnbound(config, loaded);
      // What cannot be recorded does not become active.
      this.#shared.audit.append({ type: 'config', event, outcome: 'allow', revision: policy.revision });
      return new Generation(this.#shared, {
        config,
        policy,
        serve: () => this.#backends!.serve(config, (server) => loaded.confinement(server)),
        unbound,
        primitives,
        onChange: () => this.#gateway?.noteChange(),
        ...(before === undefined ? {} : { before }),
      });
    } catch (thrown) {
      policy?.close();
      if (before !== undefined) useProgramsOf(before.config);
      this.#recordRefusal(thrown);
      throw thrown;
    }
  }

  #recordRefusal(thrown: unknown): void {
    const { code, data } = asTollgateError(thrown);
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

/** Refuses what a running process cannot change: files that are open, and the address that clients know. */
function refuseMoved(before: Config, after: Config, listening: boolean): void {
  const problems: Problem[] = [];
  const compare = (at: readonly string[], pick: (config: Config) => unknown): void => {
    if (JSON.stringify(pick(before)) === JSON.stringify(pick(after))) return;
    problems.push({
      file: path.basename(after.file),
      ...after.ruleDocument.placeOf(at, 'key'),
      message: `${at.join('.')} cannot change while Tollgate runs; restart it, or put back what was there`,
    });
  };
  compare(['state'], ({ state }) => state);
  // The log lies in the state folder unless another is named: one change, one problem.
  if (problems.length === 0) compare(['audit'], ({ audit }) => audit);
  compare(['limits'], ({ limits }) => limits);
  compare(['programs'], ({ programs }) => programs);
  if (listening) compare(['listen'], ({ listen }) => listen);
  if (problems.length > 0)
    throw new TollgateError('CONFIG_INVALID', {
      detail: `${path.basename(after.file)} changes what is fixed at the start.`,
      data: { problems },
    });
}

/** What a person should know of a configuration and its policy. */
function noticesOf({ config, policy, unbound }: Generation): readonly string[] {
  const direct = [...config.servers.values()]
    .filter((server) => server.isolation === 'direct' && server.transport === 'stdio')
    .map(({ name }) => name);
  const rights =
    direct.length === 0 ? [] : [`Servers without isolation, which run with all of your rights: ${direct.join(', ')}.`];
  const kept =
    config.recording.mode === 'off'
      ? []
      : [`Recording is ${config.recording.mode}: the arguments of calls are kept, encrypted, in the state folder.`];
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
