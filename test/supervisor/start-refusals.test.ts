/** Tests servers that are refused before a process is started, with a proposal for better settings. */
import { describe, expect, it } from 'vitest';
import { type ServerSettings, startRefusal } from '../../adapters/supervisor/server-settings.ts';

const settings = (over: Partial<ServerSettings>): ServerSettings => ({
  name: 'fs',
  transport: 'stdio',
  command: 'npx',
  args: ['-y', 'some-server'],
  env: {},
  headers: {},
  isolation: 'sandbox',
  connectTimeoutMs: 1000,
  maxRetries: 0,
  reconnectBackoffMs: 1000,
  ...over,
});
const network = (allowedDomains: readonly string[]): Partial<ServerSettings> => ({
  sandbox: {
    filesystem: { allowRead: [], allowWrite: [], denyRead: [] },
    network: { allowedDomains },
    limits: { memoryMb: 256, processes: 64, fileMb: 64 },
  },
});

describe('a program that fetches its package at every start', () => {
  it.each(['npx', '/usr/bin/npx', 'uvx', 'bunx', 'pipx'])(
    'is refused in a sandbox without network, with a proposal: %s',
    (command) => {
      const { isolation: _, ...unsaid } = settings({ command, ...network([]) });
      expect(startRefusal(unsaid)).toBeDefined();
      const refusal = startRefusal(settings({ command, ...network([]) }));
      expect(refusal?.message).toContain('its sandbox has no network');
      expect(refusal?.next).toContain('servers.fs (command: node, args: [path of its file])');
    },
  );

  it.each([
    ['with a domain', network(['example.org'])],
    ['without isolation', { isolation: 'direct' as const }],
    ['its own program', { command: 'node' }],
    ['in a container', { isolation: 'container' as const }],
  ])('may start %s', (_, over) => {
    expect(startRefusal(settings(over))).toBeUndefined();
  });

  it('reports first why its entry is unusable', () => {
    expect(startRefusal(settings({ ...network([]), unusable: 'it has no command.' }))?.message).toContain(
      'cannot be used: it has no command.',
    );
  });
});
