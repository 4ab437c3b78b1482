/** Owns the servers of a configuration as they are when none is started; loaded by facade/main.ts for commands that only ask what a call would do. */
import { createInProcess, type InProcess } from '../adapters/internal/in-process.ts';
import { createWorkspace } from '../adapters/internal/workspace.ts';
import type { LaunchHost } from '../adapters/launch.ts';
import { createMapped } from '../adapters/mapped/backend.ts';
import { ServerPool } from '../adapters/pool.ts';
import type { ServerAdapter } from '../adapters/port.ts';
import { NO_CONFINEMENT } from '../catalogs/confinement.ts';
import { TollgateError } from '../catalogs/errors.ts';
import { SHIPPED } from '../catalogs/shipped.ts';
import { type BackendMakers, Backends } from './backends.ts';
import type { Served } from './catalog.ts';
import type { Config } from './config/config.ts';

/** For adapters that are only looked at. */
const NO_START: LaunchHost = {
  workspace: '/',
  hidden: [],
  secrets: () => Promise.reject(new TollgateError('SECRET_MISSING')),
};

/** What makes servers over a pool. */
export function makersOver(pool: ServerPool): BackendMakers {
  return {
    sync: (settings) => pool.sync(settings),
    workspace: (root) => createWorkspace({ root }),
    shipped: (name) => shippedServer(name, () => Promise.reject(new TollgateError('SERVER_UNAVAILABLE'))),
    mapped: createMapped,
    warmUp: () => undefined,
    startAhead: (servers) => pool.warmUp(servers),
    stop: () => pool.stopAll(),
  };
}

/** A server of catalogs/shipped.ts with its answers. */
export function shippedServer(name: string, answer: InProcess['answer'], close?: () => void): ServerAdapter {
  return createInProcess({
    name,
    tools: SHIPPED.get(name)?.tools ?? [],
    answer,
    ...(close === undefined ? {} : { close }),
  });
}

/** Adapters without processes (see ServeOffline in facade/assembled.ts). */
export function serveOffline(config: Config): ReadonlyMap<string, Served> {
  return new Backends(makersOver(new ServerPool(config.limits, { host: NO_START, onStderr: () => undefined }))).serve(
    config,
    () => NO_CONFINEMENT,
  );
}
