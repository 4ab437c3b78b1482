/** Starts real third-party servers for tests of mappings, each with its own HOME and without telemetry. */
import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import type { PrimitiveBackend, ServerAdapter } from '../../adapters/port.ts';
import { createMappedBackend } from '../../adapters/primitives/mapped/mapped-backend.ts';
import { createWorkspace } from '../../adapters/primitives/workspace/workspace-server.ts';
import { ServerPool } from '../../adapters/supervisor/server-pool.ts';
import { loadMapping } from '../../catalogs/primitives/primitive-mapping.ts';
import { HOST } from '../stdio/misbehaving-server.ts';

export type BackendName = 'workspace' | 'desktop-commander' | 'server-filesystem';

/** A backend with an empty workspace. `close` ends its processes and removes its folders. */
export interface Opened {
  readonly root: string;
  readonly backend: PrimitiveBackend;
  /** The server behind the backend. Absent for the workspace server. */
  readonly inner?: ServerAdapter;
  readonly close: () => Promise<void>;
}

const MODULES = path.join(path.dirname(fileURLToPath(import.meta.url)), '..', 'servers', 'node_modules');
const PROGRAMS = {
  'desktop-commander': '@wonderwhy-er/desktop-commander/dist/index.js',
  'server-filesystem': '@modelcontextprotocol/server-filesystem/dist/index.js',
} as const;

/** Opens a backend by name with a new folder as its workspace. */
export async function openBackend(name: BackendName): Promise<Opened> {
  const base = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-mapped-')));
  const root = path.join(base, 'workspace');
  mkdirSync(root);
  const remove = (): void => rmSync(base, { recursive: true, force: true });
  if (name === 'workspace') {
    const backend = createWorkspace({ root });
    await backend.start();
    return { root, backend, close: () => backend.stop().finally(remove) };
  }
  const home = path.join(base, 'home');
  mkdirSync(path.join(home, '.claude-server-commander'), { recursive: true });
  const config = { telemetryEnabled: false, allowedDirectories: [root], blockedCommands: ['sudo'] };
  writeFileSync(path.join(home, '.claude-server-commander', 'config.json'), JSON.stringify(config));
  const pool = new ServerPool(
    { servers: 1, connections: 1 },
    { host: HOST, onStderr: () => undefined, grace: { closeMs: 500, termMs: 2000 } },
  );
  const inner = pool.add({
    name,
    transport: 'stdio',
    command: process.execPath,
    args: [path.join(MODULES, PROGRAMS[name]), ...(name === 'server-filesystem' ? [root] : [])],
    env: { HOME: home },
    headers: {},
    isolation: 'direct',
    connectTimeoutMs: 60_000,
    maxRetries: 0,
    reconnectBackoffMs: 100,
  });
  await inner.start();
  const backend = createMappedBackend({ inner, mapping: loadMapping(name), root });
  return { root, backend, inner, close: () => backend.stop().finally(remove) };
}
