/** Tests that writes are atomic, checked by version, and exact to the byte. */
import { chmodSync, chownSync, existsSync, readdirSync, statSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { KeyedLocks, SeenVersions } from '../../adapters/primitives/workspace/action-context.ts';
import { verifies } from '../verifies.ts';
import { makeBench } from './workspace-harness.ts';

describe('write', () => {
  it('creates a file and its folders, and returns size, lines and version' + verifies('DC-03'), async () => {
    const bench = makeBench();
    const answer = await bench.text('write', { path: 'a/b/c.txt', content: 'one\ntwo\n' });
    expect(answer).toMatch(/^Created a\/b\/c\.txt: 8 bytes, 2 lines\. Version [0-9a-f]{12}\.$/);
    expect(bench.get('a/b/c.txt').toString()).toBe('one\ntwo\n');
    expect(await bench.text('write', { path: 'one', content: '\n' })).toMatch(/^Created one: 1 byte, 1 line\. /);
    expect(await bench.text('read', { action: 'stat', path: 'a/b/c.txt' })).toContain(
      /Version (\w+)/.exec(answer)?.[1],
    );
  });

  it('replaces in mode auto only the version that this scope has seen', async () => {
    const bench = makeBench({ f: 'old\n' });
    expect(await bench.failure('write', { path: 'f', content: 'new\n' })).toMatch(
      /exists and you have not read it.*\nRead it first: read path="f"/s,
    );
    await bench.text('read', { path: 'f' }, { scope: 'b' });
    expect(await bench.failure('write', { path: 'f', content: 'new\n' }, { scope: 'a' })).toContain('have not read');
    await bench.text('read', { path: 'f' });
    expect(await bench.text('write', { path: 'f', content: 'new\n' })).toContain('Replaced f');
    expect(await bench.failure('write', { path: 'f', content: 'b\n' }, { scope: 'b' })).toContain(
      'has changed since you saw it',
    );
    await bench.text('write', { path: 'f', content: 'newer\n', mode: 'auto' });
    await bench.server.endScope?.('a');
    expect(await bench.failure('write', { path: 'f', content: 'x' })).toContain('have not read');
  });

  it('fails in mode create if the file exists, replaces it in mode overwrite, adds in mode append', async () => {
    const bench = makeBench({ f: 'old\n' });
    expect(await bench.failure('write', { path: 'f', content: 'x', mode: 'create' })).toContain('exists');
    await bench.text('write', { path: 'f', content: 'new\n', mode: 'overwrite' });
    expect(await bench.text('write', { path: 'f', content: 'more', mode: 'append' })).toContain(
      'Appended to f: 4 bytes',
    );
    await bench.text('write', { path: 'g', content: 'first', mode: 'append' });
    expect([bench.get('f').toString(), bench.get('g').toString()]).toEqual(['new\nmore', 'first']);
    await bench.text('edit', { path: 'f', old_string: 'more', new_string: 'less' });
  });

  it('lets exactly one of many concurrent creates succeed', async () => {
    const bench = makeBench();
    const results = await Promise.all(
      Array.from({ length: 10 }, (_, at) =>
        bench.call('write', { path: 'one', content: `${at}`, mode: 'create' }, { scope: `s${at}` }),
      ),
    );
    expect(results.filter((result) => result.isError !== true)).toHaveLength(1);
    expect(readdirSync(bench.root)).toEqual(['one']);
  });

  it('requires a given version to be the current one', async () => {
    const bench = makeBench({ f: 'old\n' });
    const version = /version: (\w+)/.exec(await bench.text('read', { action: 'stat', path: 'f' }))?.[1];
    expect(await bench.failure('write', { path: 'f', content: 'x', version: '000000000000' })).toContain(
      `has version ${version}, not 000000000000`,
    );
    expect(await bench.failure('write', { path: 'none', content: 'x', version })).toContain('does not exist, not');
    await bench.text('write', { path: 'f', content: 'new\n', version });
    expect(bench.get('f').toString()).toBe('new\n');
  });

  it('keeps the mode, and writes through a symlink inside without replacing the link', async () => {
    const bench = makeBench({ run: '#!/bin/sh\n' });
    chmodSync(path.join(bench.root, 'run'), 0o755);
    symlinkSync('run', path.join(bench.root, 'link'));
    await bench.text('write', { path: 'link', content: '#!/bin/bash\n', mode: 'overwrite' });
    expect(bench.get('run').toString()).toBe('#!/bin/bash\n');
    expect(statSync(path.join(bench.root, 'run')).mode & 0o777).toBe(0o755);
  });

  it('gives new files of root to the owner of the folder, and keeps the owner of replaced files', async () => {
    const bench = makeBench({ mine: 'x' });
    const root = process.getuid?.() === 0;
    const uid = root ? 65534 : (process.getuid?.() ?? 0);
    if (root) for (const file of ['', 'mine']) chownSync(path.join(bench.root, file), uid, uid);
    await bench.text('write', { path: 'made/here', content: 'x' });
    await bench.text('write', { path: 'mine', content: 'y', mode: 'overwrite' });
    expect(['made', 'made/here', 'mine'].map((file) => statSync(path.join(bench.root, file)).uid)).toEqual([
      uid,
      uid,
      uid,
    ]);
  });

  it('refuses a folder, the root, and a path below a file', async () => {
    const bench = makeBench({ f: '', 'd/x': '' });
    for (const target of ['d', '.', 'd/'])
      expect(await bench.failure('write', { path: target, content: 'x', mode: 'overwrite' })).toContain(
        'is a directory',
      );
    expect(await bench.failure('write', { path: 'f/x', content: 'x' })).toContain('not a directory');
    expect(existsSync(path.join(bench.root, 'f/x'))).toBe(false);
  });

  it('stores text that is read back byte for byte', async () => {
    const bench = makeBench();
    const text = fc.string({
      unit: fc.constantFrom('a', 'é', '😀', '\n', '\r\n', '\r', '\ufeff', '\t', ' ', '\u2028'),
    });
    await fc.assert(
      fc.asyncProperty(text, async (content) => {
        await bench.text('write', { path: 'f', content, mode: 'overwrite' });
        expect(bench.get('f').equals(Buffer.from(content))).toBe(true);
        const result = await bench.call('read', { path: 'f' });
        if (content !== '') expect(result.content?.[0]?.text).toBe(content);
      }),
      { numRuns: 60 },
    );
  });

  it('gives large files versions made of size and time', async () => {
    const bench = makeBench({ big: Buffer.alloc(2 * 1024 * 1024, 'line\n') });
    expect(await bench.text('read', { action: 'stat', path: 'big' })).toMatch(/version: t[0-9a-f]{12}/);
    await bench.text('read', { path: 'big' });
    expect(await bench.text('write', { path: 'big', content: 'x'.repeat(1_500_000) })).toMatch(/Version t[0-9a-f]{12}/);
    await bench.text('write', { path: 'big', content: 'small' });
  });
});

describe('the shared state of actions', () => {
  it('keeps 4096 versions per scope', () => {
    const versions = new SeenVersions();
    for (let at = 0; at <= 4096; at += 1) versions.record('a', `f${at}`, 'v');
    expect([versions.lastSeen('a', 'f0'), versions.lastSeen('a', 'f1'), versions.lastSeen('b', 'f1')]).toEqual([
      undefined,
      'v',
      undefined,
    ]);
  });

  it('runs tasks with one lock in order, also after a failure', async () => {
    const locks = new KeyedLocks();
    const order: number[] = [];
    const slow = locks.hold('k', async () => {
      await new Promise((resolve) => setTimeout(resolve, 20));
      order.push(1);
      throw new Error('fails');
    });
    const next = locks.hold('k', async () => order.push(2));
    const other = locks.hold('other', async () => order.push(0));
    await expect(slow).rejects.toThrow('fails');
    await Promise.all([next, other]);
    expect(order).toEqual([0, 1, 2]);
  });
});
