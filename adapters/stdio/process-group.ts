/** Owns the end of a child and of everything it started; refuses to leave a process behind. */
import type { ChildProcess } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import type { StopGrace } from '../supervisor/server-settings.ts';
import type { LaunchedProcess } from './launch.ts';

const POLL_MS = 10;
/** After SIGKILL only the kernel is slow; zombies that nobody reaps must not hold us up. */
const KILL_WAIT_MS = 1000;

/**
 * Ordered stop (MCP 2025-11-25, lifecycle, stdio): close stdin, wait, SIGTERM, wait, SIGKILL; then what was made for it
 * goes too.
 */
export async function stopInOrder(launched: LaunchedProcess, grace: StopGrace): Promise<void> {
  try {
    await stopProcess(launched, grace);
  } finally {
    await launched.release();
  }
}

async function stopProcess({ child, signal, kill }: LaunchedProcess, grace: StopGrace): Promise<void> {
  child.stdin.end();
  await until(() => hasExited(child), grace.closeMs);
  if (!signal('SIGTERM')) return;
  await until(() => !signal(0), grace.termMs);
  if (!signal(0)) return;
  kill();
  await until(() => !signal(0), KILL_WAIT_MS);
}

function hasExited(child: ChildProcess): boolean {
  return child.pid === undefined || child.exitCode !== null || child.signalCode !== null;
}

async function until(done: () => boolean, ms: number): Promise<void> {
  const end = performance.now() + ms;
  while (!done() && performance.now() < end) await sleep(POLL_MS);
}
