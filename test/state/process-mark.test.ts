import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { describe, expect, it } from 'vitest';
import { isRunning, OWN_PROCESS } from '../../facade/state/process-mark.ts';

describe('whether a process lives', () => {
  it('knows itself', () => {
    expect(OWN_PROCESS.pid).toBe(process.pid);
    expect(isRunning(OWN_PROCESS)).toBe(true);
  });

  it('does not take a reused pid for the process that had it', () => {
    expect(isRunning({ pid: process.pid, born: 'ffffffff.1' })).toBe(false);
  });

  it('goes by the pid alone where nothing else is known', () => {
    expect(isRunning({ pid: process.pid, born: '' })).toBe(true);
  });

  it('knows that a process has ended', async () => {
    const child = spawn('true');
    await once(child, 'exit');
    expect(isRunning({ pid: child.pid ?? 0, born: '' })).toBe(false);
  });

  it('takes a zombie for dead: it holds nothing any more', async () => {
    // The shell becomes `sleep`, which never waits for the child that the shell had.
    const parent = spawn('sh', ['-c', 'sleep 0.3 & echo $!; exec sleep 5'], { stdio: ['ignore', 'pipe', 'ignore'] });
    const [text] = (await once(parent.stdout, 'data')) as [Buffer];
    const pid = Number(text.toString());
    await expect.poll(() => isRunning({ pid, born: '' }), { timeout: 20_000 }).toBe(false);
    expect(() => process.kill(pid, 0)).not.toThrow();
    parent.kill('SIGKILL');
  });
});
