import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { describe, expect, it, onTestFinished } from 'vitest';
import { isRunning, OWN_PROCESS } from '../../facade/state/process-mark.ts';

describe('isRunning', () => {
  it('is true for the own process', () => {
    expect(OWN_PROCESS.pid).toBe(process.pid);
    expect(isRunning(OWN_PROCESS)).toBe(true);
  });

  it('is false for a reused pid', () => {
    expect(isRunning({ pid: process.pid, born: 'ffffffff.1' })).toBe(false);
  });

  it('uses only the pid if the start is unknown', () => {
    expect(isRunning({ pid: process.pid, born: '' })).toBe(true);
  });

  it('is false for a process that has ended', async () => {
    const child = spawn('true');
    await once(child, 'exit');
    expect(isRunning({ pid: child.pid ?? 0, born: '' })).toBe(false);
  });

  it('is false for a zombie, which holds nothing any more', async () => {
    // The shell is replaced by `sleep`, which never waits for the child of the shell.
    const parent = spawn('sh', ['-c', 'sleep 0.3 & echo $!; exec sleep 600'], { stdio: ['ignore', 'pipe', 'ignore'] });
    onTestFinished(() => void parent.kill('SIGKILL'));
    const [text] = (await once(parent.stdout, 'data')) as [Buffer];
    const pid = Number(text.toString());
    await expect.poll(() => isRunning({ pid, born: '' }), { timeout: 20_000 }).toBe(false);
    expect(() => process.kill(pid, 0)).not.toThrow();
  });
});
