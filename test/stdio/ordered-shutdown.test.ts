/** Tests the ordered stop of a server: which signals its process gets, in which order and after which time. */
import { spawn } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { signalGroup } from '../../adapters/sandbox/process-tree.ts';
import type { LaunchedProcess } from '../../adapters/stdio/launch.ts';
import { DEFAULT_GRACE, stopInOrder } from '../../adapters/stdio/stdio-connection.ts';
import { verifies } from '../verifies.ts';

/** A program that reports what it receives, and ends only by SIGKILL. */
const STUBBORN = `
process.stdin.on('end', () => console.log('end of input')).resume();
process.on('SIGTERM', () => console.log('SIGTERM'));
setInterval(() => {}, 1000);
console.log('ready')`;

describe('stopInOrder' + verifies('PF-15'), () => {
  it('closes stdin, sends SIGTERM and SIGKILL, each after its wait, and then releases the proxy', async () => {
    const child = spawn(process.execPath, ['-e', STUBBORN], { detached: true, stdio: 'pipe' });
    const received: (readonly [string, number])[] = [];
    child.stdout.setEncoding('utf8').on('data', (text: string) =>
      received.push(
        ...text
          .trim()
          .split('\n')
          .map((line) => [line, performance.now()] as const),
      ),
    );
    await expect.poll(() => received.length, { timeout: 20_000 }).toBe(1);
    const ended = new Promise<readonly [string, number]>((resolve) =>
      child.once('close', (_code, signal) => resolve([String(signal), performance.now()])),
    );
    let releasedAt = 0;
    const launched = {
      child,
      signal: (name: NodeJS.Signals | 0) => signalGroup(child, name),
      kill: () => signalGroup(child, 'SIGKILL'),
      release: () => Promise.resolve(void (releasedAt = performance.now())),
    } as unknown as LaunchedProcess;
    const grace = { closeMs: 2000, termMs: 2000 };
    const from = performance.now();
    await stopInOrder(launched, grace);
    const [signal, killedAt] = await ended;
    expect([...received.slice(1).map(([line]) => line), signal]).toEqual(['end of input', 'SIGTERM', 'SIGKILL']);
    // Other load on the machine can only delay it.
    expect(killedAt - from).toBeGreaterThanOrEqual(grace.closeMs + grace.termMs - 5);
    expect(releasedAt).toBeGreaterThanOrEqual(from + grace.closeMs + grace.termMs - 5);
  });

  it('waits by default 5 s after it closed stdin, and 3 s after SIGTERM', () =>
    expect(DEFAULT_GRACE).toEqual({ closeMs: 5000, termMs: 3000 }));
});
