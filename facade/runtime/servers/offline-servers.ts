/** Makes the servers of a configuration without starting any, for commands that ask what a call would do. */
import type { ServerAdapter } from '../../../adapters/port.ts';
import { createMappedBackend } from '../../../adapters/primitives/mapped/mapped-backend.ts';
import {
  createInProcessServer,
  type InProcessServerParts,
} from '../../../adapters/primitives/workspace/in-process-server.ts';
import { createWorkspace } from '../../../adapters/primitives/workspace/workspace-server.ts';
import type { LaunchHost } from '../../../adapters/stdio/launch.ts';
import { ServerPool } from '../../../adapters/supervisor/server-pool.ts';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { NO_CONFINEMENT } from '../../../catalogs/readers/confinement.ts';
import type { RawTool } from '../../../catalogs/tools/tool-definition.ts';
import type { Config } from '../../config/config.ts';
import type { ServedServer } from '../../exposure/served-server.ts';
import { type BackendMakers, Backends } from './backends.ts';

/** For adapters that are never called. */
const NO_START: LaunchHost = {
  workspace: '/',
  hidden: [],
  secrets: () => Promise.reject(new TollgateError('SECRET_MISSING')),
};

/** Returns the makers of servers over a pool. */
export function poolBackendMakers(pool: ServerPool): BackendMakers {
  return {
    sync: (settings) => pool.sync(settings),
    workspace: (root) => createWorkspace({ root }),
    shipped: (name, tools) =>
      shippedServer(name, tools, { answer: () => Promise.reject(new TollgateError('SERVER_UNAVAILABLE')) }),
    mapped: createMappedBackend,
    warmUp: () => undefined,
    startAhead: (servers) => pool.warmUp(servers),
    stop: () => pool.stopAll(),
  };
}

/** Makes an internal server of catalogs/servers/shipped-servers.ts. */
export function shippedServer(
  name: string,
  tools: readonly RawTool[],
  parts: Pick<InProcessServerParts, 'answer' | 'prompts' | 'close'>,
): ServerAdapter {
  return createInProcessServer({ name, tools, ...parts });
}

/** Returns adapters without processes, as `ServeOffline` of assembled-facade.ts says. */
export function serveOffline(config: Config): ReadonlyMap<string, ServedServer> {
  return new Backends(
    poolBackendMakers(new ServerPool(config.limits, { host: NO_START, onStderr: () => undefined })),
  ).serve(config, () => NO_CONFINEMENT);
}
