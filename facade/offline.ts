/** Owns the servers of a configuration as they are when none is started; loaded by facade/main.ts for commands that only ask what a call would do. */
import { createWorkspace } from '../adapters/internal/workspace.ts';
import type { LaunchHost } from '../adapters/launch.ts';
import { createMapped } from '../adapters/mapped/backend.ts';
import { ServerPool } from '../adapters/pool.ts';
import { NO_CONFINEMENT } from '../catalogs/confinement.ts';
import { TollgateError } from '../catalogs/errors.ts';
import { Backends, type BackendMakers } from './backends.ts';
import type { Served } from './catalog.ts';
import type { Config } from './config/config.ts';

/** For adapters that are only looked at. */
const NO_START: LaunchHost = { workspace: '/', hidden: [], secrets: () => Promise.reject(new TollgateError('SECRET_MISSING')) };

/** What makes servers over a pool. */
export function makersOver(pool: ServerPool): BackendMakers {
  return { sync: (settings) => pool.sync(settings), workspace: (root) => createWorkspace({ root }), mapped: createMapped, warmUp: () => pool.warmUp(), stop: () => pool.stopAll() };
}

/** Adapters without processes (see ServeOffline in facade/assembled.ts). */
export function serveOffline(config: Config): ReadonlyMap<string, Served> {
  return new Backends(makersOver(new ServerPool(config.limits, { host: NO_START, onStderr: () => undefined }))).serve(config, () => NO_CONFINEMENT);
}
