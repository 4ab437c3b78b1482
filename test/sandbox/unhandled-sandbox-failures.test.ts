/** Owns the checks that a start of a sandbox which fails, or one that ends in an odd way, leaves no failure unheard, which would end the facade, and touches no process but its own. */
import { existsSync, rmSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { ControlGroup, ControlGroups } from '../../adapters/sandbox/bubblewrap/control-group.ts';
import { startSandboxed } from '../../adapters/sandbox/bubblewrap/sandbox-start.ts';
import type { SandboxSpec } from '../../adapters/sandbox/sandbox-spec.ts';
import { StdioConnection } from '../../adapters/stdio/stdio-connection.ts';
import { openWorkspace } from './probe-targets.ts';

const LIMITS = { memoryMb: 64, processes: 64, fileMb: 16 };
let workspace: string;
let unheard: unknown[];
const note = (thrown: unknown): number => unheard.push(thrown);

beforeEach(() => {
  workspace = openWorkspace();
  unheard = [];
  process.on('unhandledRejection', note);
});

afterEach(async () => {
  await new Promise((resolve) => setImmediate(resolve));
  process.off('unhandledRejection', note);
  rmSync(workspace, { recursive: true, force: true });
  expect(unheard).toEqual([]);
});

const jail = (...[command = 'true', ...args]: readonly string[]): SandboxSpec => ({
  command,
  args,
  env: {},
  cwd: workspace,
  workspace,
  read: [],
  write: [],
  hidden: [],
  limits: LIMITS,
  input: false,
});

/** Control groups that only write down what is asked of them. */
function groupsOf(more: Partial<ControlGroup> = {}): {
  readonly groups: () => Promise<ControlGroups>;
  readonly told: unknown[];
} {
  const told: unknown[] = [];
  const hold: ControlGroup['moveIn'] = (first) => (told.push(first), () => Promise.resolve());
  const group: ControlGroup = {
    commandPrefix: [],
    moveIn: hold,
    hasKilled: () => false,
    remove: () => void told.push('removed'),
    ...more,
  };
  return { groups: () => Promise.resolve({ parent: { version: 2, folder: '/' }, make: () => group }), told };
}

describe('a sandbox', () => {
  it('whose process cannot be made moves nobody into its control group: 0 would be ourselves', async () => {
    const { groups, told } = groupsOf({ commandPrefix: ['/no/such/program'] });
    await expect(startSandboxed(jail(), groups)).rejects.toMatchObject({ code: 'SANDBOX_UNAVAILABLE' });
    expect(new Set(told)).toEqual(new Set(['removed']));
  });

  it('that ends while it is set up gives its group back, and says so', async () => {
    const { groups, told } = groupsOf({ commandPrefix: ['/bin/sh', '-c', 'exit 3'] });
    await expect(startSandboxed(jail(), groups)).rejects.toMatchObject({ code: 'SANDBOX_UNAVAILABLE' });
    expect(told).toEqual([expect.any(Number), 'removed', 'removed']);
  });

  it('is not started where control groups were had and are none any more', async () => {
    await expect(startSandboxed(jail(), () => Promise.reject(new Error('none any more')))).rejects.toMatchObject({
      code: 'SANDBOX_UNAVAILABLE',
      next: expect.stringContaining('restart Tollgate') as string,
    });
  });

  it('that ends after its output was closed here ends alone', async () => {
    const { child, kill } = await startSandboxed(jail('sleep', '60'), groupsOf().groups);
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.stderr.destroy();
    kill();
    await ended;
    await new Promise((resolve) => setTimeout(resolve, 20));
  });
});

describe('a server', () => {
  it.each(['direct', 'sandbox'] as const)(
    'that is given up while its start is agreed to does not run (%s)',
    async (isolation) => {
      const ran = path.join(workspace, 'ran');
      const connection: StdioConnection = new StdioConnection(
        {
          name: 'one',
          transport: 'stdio',
          command: 'touch',
          args: [ran],
          env: {},
          headers: {},
          isolation,
          cwd: workspace,
          connectTimeoutMs: 1000,
          maxRetries: 0,
          reconnectBackoffMs: 100,
          sandbox: {
            filesystem: { allowRead: [], allowWrite: [workspace], denyRead: [] },
            network: { allowedDomains: [] },
            limits: LIMITS,
          },
        },
        {
          host: { workspace, hidden: [], secrets: () => Promise.resolve('') },
          onStderr: () => undefined,
          consent: async () => {
            connection.killNow();
            return undefined;
          },
        },
      );
      const start = connection.start({
        onMessage: () => undefined,
        onBad: () => undefined,
        onTooLarge: () => undefined,
        onFailed: () => undefined,
        onClosed: () => undefined,
      });
      await expect(start).rejects.toMatchObject({
        code: 'SERVER_UNAVAILABLE',
        message: expect.stringContaining('before it ran') as string,
      });
      expect(existsSync(ran)).toBe(false);
    },
  );
});
