/** Tests that no failed or interrupted start of a sandbox causes an unhandled rejection, which would end the facade. */
import { existsSync, rmSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { ControlGroup, ControlGroups } from '../../adapters/sandbox/bubblewrap/control-group.ts';
import { startSandboxed } from '../../adapters/sandbox/bubblewrap/sandbox-start.ts';
import type { SandboxSpec } from '../../adapters/sandbox/sandbox-spec.ts';
import { StdioConnection } from '../../adapters/stdio/stdio-connection.ts';
import { openWorkspace } from './probe-targets.ts';
import { sandboxOf, specOf, stdioSettings } from './sandbox-fixture.ts';

const LIMITS = { memoryMb: 64, processes: 64, fileMb: 16 };
let workspace: string;
let unhandled: unknown[];
const note = (thrown: unknown): number => unhandled.push(thrown);

beforeEach(() => {
  workspace = openWorkspace();
  unhandled = [];
  process.on('unhandledRejection', note);
});

afterEach(async () => {
  await new Promise((resolve) => setImmediate(resolve));
  process.off('unhandledRejection', note);
  rmSync(workspace, { recursive: true, force: true });
  expect(unhandled).toEqual([]);
});

const specFor = (...words: readonly string[]): SandboxSpec => specOf(workspace, words, { limits: LIMITS });

/** Control groups that only record their calls. */
function groupsOf(more: Partial<ControlGroup> = {}): {
  readonly groups: () => Promise<ControlGroups>;
  readonly calls: unknown[];
} {
  const calls: unknown[] = [];
  const moveIn: ControlGroup['moveIn'] = (first) => (calls.push(first), () => Promise.resolve());
  const group: ControlGroup = {
    commandPrefix: [],
    moveIn,
    hasKilled: () => false,
    remove: () => void calls.push('removed'),
    ...more,
  };
  return { groups: () => Promise.resolve({ parent: { version: 2, folder: '/' }, make: () => group }), calls };
}

describe('a sandbox', () => {
  it('whose process cannot be created moves no process into its group, because 0 would mean this process', async () => {
    const { groups, calls } = groupsOf({ commandPrefix: ['/no/such/program'] });
    await expect(startSandboxed(specFor('true'), groups)).rejects.toMatchObject({ code: 'SANDBOX_UNAVAILABLE' });
    expect(new Set(calls)).toEqual(new Set(['removed']));
  });

  it('that ends during its setup removes its group and reports the failure', async () => {
    const { groups, calls } = groupsOf({ commandPrefix: ['/bin/sh', '-c', 'exit 3'] });
    await expect(startSandboxed(specFor('true'), groups)).rejects.toMatchObject({ code: 'SANDBOX_UNAVAILABLE' });
    expect(calls).toEqual([expect.any(Number), 'removed', 'removed']);
  });

  it('does not start if control groups were available before and are not now', async () => {
    await expect(
      startSandboxed(specFor('true'), () => Promise.reject(new Error('no longer available'))),
    ).rejects.toMatchObject({
      code: 'SANDBOX_UNAVAILABLE',
      next: expect.stringContaining('restart Tollgate') as string,
    });
  });

  it('that ends after Tollgate closed its output does not end the facade', async () => {
    const { child, kill } = await startSandboxed(specFor('sleep', '60'), groupsOf().groups);
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.stderr.destroy();
    kill();
    await ended;
    await new Promise((resolve) => setTimeout(resolve, 20));
  });
});

describe('a server', () => {
  it.each(['direct', 'sandbox'] as const)(
    'that is stopped while its consent is checked does not run (%s)',
    async (isolation) => {
      const ran = path.join(workspace, 'ran');
      const connection: StdioConnection = new StdioConnection(
        stdioSettings(['touch', ran], { isolation, cwd: workspace, sandbox: sandboxOf([workspace], LIMITS) }),
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
