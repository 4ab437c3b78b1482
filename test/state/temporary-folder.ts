/** Temporary folders and processes of tests, which end with the test. */

import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import type { Instant } from '../../facade/state/budget-clock.ts';

/** Returns a folder that is removed after the test. */
export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** A running process. `lines` are its lines of output so far, `line` returns the next one, `ended` all of them. */
export interface Fixture {
  readonly child: ChildProcess;
  readonly lines: readonly string[];
  line(): Promise<string>;
  readonly ended: Promise<string[]>;
}

/** Returns the path of a fixture. The build compiles those in TypeScript. */
export function fixturePath(name: string): string {
  const compiled = name.endsWith('.ts');
  return join(import.meta.dirname, '../..', compiled ? 'dist' : '', 'test/fixtures', name.replace(/\.ts$/, '.js'));
}

/** Starts a fixture as a process, and kills it at the end of the test. Its files can grow to `fileBytes`. */
export function startFixture(name: string, args: readonly string[], fileBytes?: number): Fixture {
  const limit = fileBytes === undefined ? [] : ['prlimit', `--fsize=${fileBytes}`];
  const [command = '', ...words] = [...limit, process.execPath, fixturePath(name), ...args];
  const child = spawn(command, words, { stdio: ['pipe', 'pipe', 'inherit'] });
  onTestFinished(() => void child.kill('SIGKILL'));
  const lines: string[] = [];
  const waiting: ((line: string) => void)[] = [];
  let rest = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    const parts = (rest + text).split('\n');
    rest = parts.pop() ?? '';
    for (const part of parts) {
      lines.push(part);
      waiting.shift()?.(part);
    }
  });
  const ended = new Promise<string[]>((resolve) => child.once('close', () => resolve(lines)));
  return { child, lines, ended, line: () => new Promise((resolve) => waiting.push(resolve)) };
}

/** Returns a moment at which both clocks of the machine agree, ms. */
export function momentAt(now: number): Instant {
  return { wall: now, monotonic: now, boot: 'one' };
}
