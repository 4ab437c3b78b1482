/** Tests on the real servers what ends with a call, a scope or a backend. No process may remain. */

import { execFileSync } from 'node:child_process';
import { existsSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { inFull } from '../harness/full-tests.ts';
import { verifies } from '../verifies.ts';
import { type Opened, openBackend } from './third-party-servers.ts';

type Args = Readonly<Record<string, unknown>>;

const call = (
  opened: Opened,
  tool: string,
  given: { readonly args: Args; readonly scope?: string; readonly signal?: AbortSignal },
) =>
  opened.backend.call({
    tool,
    args: { text: JSON.stringify(given.args), value: given.args, exact: true },
    scope: given.scope ?? 's',
    signal: given.signal ?? new AbortController().signal,
    timeoutMs: 30_000,
    hardTimeoutMs: 30_000,
  });
/** Returns a command that no concurrent run of these tests uses. */
const sleep = (seconds: number, which: number): string => `sleep ${seconds}.${which}${process.pid}`;
const running = (words: string): number =>
  execFileSync('ps', ['-eo', 'args'], { encoding: 'utf8' })
    .split('\n')
    .filter((line) => line.trim() === words).length;
const until = async (holds: () => boolean): Promise<void> => {
  for (let tries = 0; !holds() && tries < 200; tries += 1) await new Promise((resolve) => setTimeout(resolve, 100));
};

describe('desktop-commander', () => {
  let opened: Opened;
  beforeAll(async () => {
    opened = await openBackend('desktop-commander');
  });
  // Changes nothing after the last test, which closes the backend.
  afterAll(() => opened.close());

  inFull(
    'ends a cancelled command and its children',
    async () => {
      const caller = new AbortController();
      const given = call(opened, 'bash', {
        args: { command: `${sleep(71, 1)} & ${sleep(71, 2)}; echo over > late` },
        signal: caller.signal,
      });
      await until(() => running(sleep(71, 2)) === 1);
      caller.abort();
      await expect(given).rejects.toMatchObject({ code: 'CANCELLED' });
      await until(() => running(sleep(71, 1)) + running(sleep(71, 2)) === 0);
      expect(running(sleep(71, 1)) + running(sleep(71, 2))).toBe(0);
      expect(existsSync(path.join(opened.root, 'late'))).toBe(false);
    },
    60_000,
  );

  inFull(
    'ends the sessions of a scope when the scope ends, and no others',
    async () => {
      await call(opened, 'bash', { args: { action: 'start', command: sleep(72, 1), wait_ms: 200 }, scope: 'one' });
      await call(opened, 'bash', { args: { action: 'start', command: sleep(72, 2), wait_ms: 200 }, scope: 'two' });
      await until(() => running(sleep(72, 1)) + running(sleep(72, 2)) === 2);
      await opened.backend.endScope?.('one');
      expect([running(sleep(72, 1)), running(sleep(72, 2))]).toEqual([0, 1]);
      const { value } = await call(opened, 'bash', { args: { action: 'list' }, scope: 'one' });
      expect(value.content?.[0]?.text).toContain('no sessions');
    },
    60_000,
  );

  it('does not show a session to another scope' + verifies('CY-18'), async () => {
    const { value } = await call(opened, 'bash', { args: { action: 'poll', session: 's1' }, scope: 'three' });
    expect(value.isError).toBe(true);
  });

  it('refuses a symlink that leads out of the workspace, before the server sees it' + verifies('CY-18'), async () => {
    symlinkSync('/etc', path.join(opened.root, 'out'));
    await expect(call(opened, 'read', { args: { path: 'out/hostname' } })).rejects.toMatchObject({ code: 'DENIED' });
    await expect(call(opened, 'bash', { args: { command: 'pwd', cwd: 'out' } })).rejects.toBeInstanceOf(TollgateError);
  });

  inFull(
    'ends all commands when it is stopped',
    async () => {
      await call(opened, 'bash', { args: { action: 'start', command: sleep(73, 1), wait_ms: 200 } });
      await until(() => running(sleep(73, 1)) === 1);
      await opened.close();
      expect(running(sleep(73, 1))).toBe(0);
    },
    60_000,
  );
});

describe('server-filesystem', () => {
  let opened: Opened;
  beforeAll(async () => {
    opened = await openBackend('server-filesystem');
  });
  afterAll(() => opened.close());

  it('runs edits of one file one after the other, so that none is lost', async () => {
    const words = Array.from({ length: 12 }, (_, index) => `word${String.fromCharCode(97 + index)}`);
    writeFileSync(path.join(opened.root, 'a.txt'), `${words.join('\n')}\n`);
    await Promise.all(
      words.map((word) =>
        call(opened, 'edit', { args: { path: 'a.txt', old_string: word, new_string: word.toUpperCase() } }),
      ),
    );
    const { value } = await call(opened, 'read', { args: { path: 'a.txt' } });
    expect(value.content?.[0]?.text).toBe(`${words.join('\n').toUpperCase()}\n`);
  });

  it('forgets the versions that a scope has read when it ends, so a later write needs a new read', async () => {
    writeFileSync(path.join(opened.root, 'b.txt'), 'old\n');
    await call(opened, 'read', { args: { path: 'b.txt' }, scope: 'reader' });
    await opened.backend.endScope?.('reader');
    const { value } = await call(opened, 'write', { args: { path: 'b.txt', content: 'new\n' }, scope: 'reader' });
    expect(value.isError).toBe(true);
  });

  it('keeps the mode of a file that it edits', async () => {
    const file = path.join(opened.root, 'run.sh');
    writeFileSync(file, 'echo one\n', { mode: 0o755 });
    await call(opened, 'edit', { args: { path: 'run.sh', old_string: 'one', new_string: 'two' } });
    expect(execFileSync(file, { encoding: 'utf8', shell: true })).toBe('two\n');
  });

  it('starts, lists tools and reports its health as the server behind it does', async () => {
    expect((await opened.backend.start()).name).toBe(opened.backend.info()?.name);
    expect(opened.backend.health().state).toBe('healthy');
  });
});
