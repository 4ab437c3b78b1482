/** Tests two PID namespaces with one state folder: process ids of one mean nothing in the other. */
import { spawn } from 'node:child_process';
import { appendFileSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { expect, it, onTestFinished } from 'vitest';
import { fixturePath, temporaryFolder } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';

interface User {
  ask(question: string): Promise<string>;
  kill(): Promise<void>;
}

/** Starts a Tollgate process as the first process of a PID namespace. */
async function startUser(folder: string, audit: string): Promise<User> {
  const child = spawn(
    'unshare',
    [
      '--user',
      '--map-root-user',
      '--pid',
      '--fork',
      '--kill-child',
      '--mount-proc',
      process.execPath,
      fixturePath('state-user.ts'),
      folder,
      audit,
    ],
    { stdio: ['pipe', 'pipe', 'inherit'] },
  );
  onTestFinished(() => void child.kill('SIGKILL'));
  const waiting: ((line: string) => void)[] = [];
  createInterface({ input: child.stdout }).on('line', (line) => waiting.shift()?.(line));
  const next = (): Promise<string> => new Promise((resolve) => waiting.push(resolve));
  expect(await next()).toBe('ready');
  const ended = new Promise<void>((resolve) => child.once('close', () => resolve()));
  return {
    ask: (question) => {
      child.stdin.write(`${question}\n`);
      return next();
    },
    kill: async () => {
      child.kill('SIGKILL');
      await ended;
    },
  };
}

it('processes of two PID namespaces do not free slots, or remove spills or records, of each other' +
  verifies('ST-05'), async () => {
  const folder = temporaryFolder();
  const audit = path.join(folder, 'audit');
  const [one, other] = [await startUser(folder, audit), await startUser(folder, audit)];
  // Both have the id 1 in their namespace.
  expect([await one.ask('pid'), await other.ask('pid')]).toEqual(['1', '1']);
  expect(await one.ask('take')).toBe('granted');
  for (let tries = 0; tries < 3; tries += 1) expect(await other.ask('take')).toBe('refused');
  expect([await one.ask('clean'), await other.ask('clean')]).toEqual(['2', '2']);
  // No other process may cut the half-written record of a writer.
  for (const name of readdirSync(audit).filter((file) => file.endsWith('.jsonl')))
    appendFileSync(path.join(audit, name), '{"half');
  expect([await one.ask('recover'), await other.ask('recover')]).toEqual(['0', '0']);
  await one.kill();
  expect([await other.ask('take'), await other.ask('clean'), await other.ask('recover')]).toEqual([
    'granted',
    '1',
    '1',
  ]);
  await other.kill();
}, 60_000);
