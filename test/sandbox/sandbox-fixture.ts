/** Settings, specs and calls that tests of sandboxes share. */
import type { ServerAdapter, UpstreamCall } from '../../adapters/port.ts';
import type { SandboxSettings, SandboxSpec } from '../../adapters/sandbox/sandbox-spec.ts';
import type { ServerSettings } from '../../adapters/supervisor/server-settings.ts';
import { callOf } from '../stdio/misbehaving-server.ts';

/** Returns sandbox settings without a network, with these writable folders. */
export function sandboxOf(
  allowWrite: readonly string[] = [],
  limits: Partial<SandboxSettings['limits']> = {},
): SandboxSettings {
  return {
    filesystem: { allowRead: [], allowWrite, denyRead: [] },
    network: { allowedDomains: [] },
    limits: { memoryMb: 256, processes: 64, fileMb: 16, ...limits },
  };
}

/** Returns settings of a server "one" with this command line. */
export function stdioSettings(
  [command = '', ...args]: readonly string[],
  more: Partial<ServerSettings> = {},
): ServerSettings {
  return {
    name: 'one',
    transport: 'stdio',
    command,
    args,
    env: {},
    headers: {},
    connectTimeoutMs: 1000,
    maxRetries: 0,
    reconnectBackoffMs: 100,
    ...more,
  };
}

/** Returns the spec of a sandbox for this command line, without input and visible files. */
export function specOf(
  workspace: string,
  [command = '', ...args]: readonly string[],
  more: Partial<SandboxSpec> = {},
): SandboxSpec {
  const { limits } = sandboxOf();
  return {
    command,
    args,
    env: {},
    cwd: workspace,
    workspace,
    read: [],
    write: [],
    hidden: [],
    limits,
    input: false,
    ...more,
  };
}

/** Calls a tool with long timeouts, and returns the text of its result. */
export async function callText(
  server: ServerAdapter,
  tool: string,
  args: object,
  more: Partial<UpstreamCall> = {},
): Promise<string> {
  const { value } = await server.call(callOf(tool, args, { timeoutMs: 20_000, hardTimeoutMs: 60_000, ...more }));
  return (value.content ?? []).map(({ text = '' }) => text).join('\n');
}
