/**
 * Tests real third-party servers in sandboxes: they serve the primitives, and reach only the workspace.
 * Covers: adapters/sandbox.
 */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import type { ServerAdapter } from '../../adapters/port.ts';
import { createMappedBackend } from '../../adapters/primitives/mapped/mapped-backend.ts';
import { ServerPool } from '../../adapters/supervisor/server-pool.ts';
import { loadMapping } from '../../catalogs/primitives/primitive-mapping.ts';
import { verifies } from '../verifies.ts';
import { openWorkspace, own } from './probe-targets.ts';
import { callText, sandboxOf } from './sandbox-fixture.ts';

const MODULES = path.join(import.meta.dirname, '..', 'servers', 'node_modules');
const remove: string[] = [];
const pools: ServerPool[] = [];

afterEach(async () => {
  await Promise.all(pools.splice(0).map((pool) => pool.stopAll()));
  for (const folder of remove.splice(0)) rmSync(folder, { recursive: true, force: true });
});

interface Opened {
  readonly root: string;
  readonly outside: string;
  readonly inner: ServerAdapter;
}

function open(name: string, script: string, args: (root: string) => readonly string[]): Opened {
  const [root, outside] = [openWorkspace(), openWorkspace()];
  remove.push(root, outside);
  writeFileSync(path.join(outside, 'secret'), 'the secret', { mode: 0o644 });
  const home = path.join(outside, 'home');
  mkdirSync(path.join(home, '.claude-server-commander'), { recursive: true });
  writeFileSync(
    path.join(home, '.claude-server-commander/config.json'),
    JSON.stringify({ telemetryEnabled: false, allowedDirectories: [] }),
  );
  for (const file of ['home', 'home/.claude-server-commander', 'home/.claude-server-commander/config.json'])
    own(path.join(outside, file));
  const host = { workspace: root, hidden: [], secrets: () => Promise.reject(new Error('none')) };
  const pool = new ServerPool(
    { servers: 1, connections: 1 },
    { host, onStderr: () => undefined, grace: { closeMs: 500, termMs: 2000 } },
  );
  pools.push(pool);
  const inner = pool.add({
    name,
    transport: 'stdio',
    command: process.execPath,
    args: [path.join(MODULES, script), ...args(root)],
    env: { HOME: home },
    headers: {},
    connectTimeoutMs: 60_000,
    maxRetries: 0,
    reconnectBackoffMs: 100,
    sandbox: sandboxOf([root, home], { fileMb: 64 }),
  });
  return { root, outside, inner };
}

describe('in a sandbox that mounts only the workspace', () => {
  it('server-filesystem reads and writes files of the workspace' + verifies('CY-24', 'HB-10'), async () => {
    const { root, outside, inner } = open(
      'server-filesystem',
      '@modelcontextprotocol/server-filesystem/dist/index.js',
      (folder) => [folder],
    );
    await inner.start();
    const backend = createMappedBackend({ inner, mapping: loadMapping('server-filesystem'), root });
    await callText(backend, 'write', { path: 'notes.txt', content: 'hello\n' });
    expect(await callText(backend, 'read', { path: 'notes.txt' })).toContain('hello');
    expect(await callText(inner, 'read_text_file', { path: path.join(outside, 'secret') })).not.toContain('the secret');
  });

  it(
    'DesktopCommander runs commands, and reaches no other file although its own settings allow the whole disk' +
      verifies('CY-24'),
    async () => {
      const { root, outside, inner } = open(
        'desktop-commander',
        '@wonderwhy-er/desktop-commander/dist/index.js',
        () => [],
      );
      await inner.start();
      const backend = createMappedBackend({ inner, mapping: loadMapping('desktop-commander'), root });
      await callText(backend, 'write', { path: 'notes.txt', content: 'hello\n' });
      expect(
        await callText(backend, 'bash', { command: `cat notes.txt; cat ${outside}/secret; id -u; touch /usr/x` }),
      ).toMatch(/hello\n[^]*No such file[^]*Read-only/);
      expect(await callText(inner, 'read_file', { path: path.join(outside, 'secret') })).not.toContain('the secret');
      expect(await callText(inner, 'read_file', { path: '/etc/shadow' })).not.toContain('root:');
    },
  );
});
