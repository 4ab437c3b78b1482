/**
 * Tests that an unchanged large program is read once, over all processes, and that only a sealed digest is believed.
 */

import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { chmodSync, chownSync, mkdtempSync, realpathSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { DigestStore } from '../../adapters/port.ts';
import { digestStartFile } from '../../adapters/stdio/file-digests.ts';
import { createDigestStore } from '../../facade/consent/servers/server-consents.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import { verifies } from '../verifies.ts';

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');
/** Returns the identity of a file in the store. */
function identityOf(name: string): string {
  const { dev, ino, size, mtimeNs, ctimeNs } = statSync(name, { bigint: true });
  return [name, dev, ino, size, mtimeNs, ctimeNs].join('\0');
}

class Rows implements DigestStore {
  readonly rows = new Map<string, string>();
  get = async (identity: string): Promise<string | undefined> => this.rows.get(identity);
  put = async (identity: string, digest: string): Promise<void> => void this.rows.set(identity, digest);
}

let folder: string;
let file: string;
let store: Rows;
const TEXT = 'x'.repeat(3 * 1024 * 1024 + 5);
beforeEach(() => {
  folder = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-digests-')));
  file = path.join(folder, 'program');
  writeFileSync(file, TEXT);
  store = new Rows();
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 5_000 });
});
afterEach(() => {
  vi.useRealTimers();
  rmSync(folder, { recursive: true, force: true });
});

describe('the digest of a program', () => {
  it('covers its bytes, and the next process reads it from the store' + verifies('HA-15'), async () => {
    expect(await digestStartFile(file, { store })).toEqual({ path: file, sha256: sha256(TEXT) });
    expect([...store.rows]).toEqual([[identityOf(file), sha256(TEXT)]]);
    // A file that another process has read, and this one has not.
    const other = path.join(folder, 'other');
    writeFileSync(other, TEXT);
    store.rows.set(identityOf(other), 'from the store');
    expect((await digestStartFile(other, { store }))?.sha256).toBe('from the store');
  });

  it('is computed again when the file was written, whatever its size and modification time', async () => {
    await digestStartFile(file, { store });
    writeFileSync(file, TEXT.replace('x', 'y'));
    expect((await digestStartFile(file, { store }))?.sha256).toBe(sha256(TEXT.replace('x', 'y')));
  });

  it('is not stored while a change could have the same timestamp', async () => {
    vi.useRealTimers();
    writeFileSync(file, `${TEXT}y`);
    expect((await digestStartFile(file, { store }))?.sha256).toBe(sha256(`${TEXT}y`));
    expect(store.rows.size).toBe(0);
  });

  // chown needs root, which is also when the sandbox changes to the workspace's owner. A file that everyone may write
  // needs no root.
  it.each([
    ['its own user', (name: string) => chownSync(name, 1000, 1000)],
    ['everybody', (name: string) => chmodSync(name, 0o666)],
  ])(
    'is computed at each check if %s may write the file through a shared map, which changes no timestamp' +
      verifies('HA-15'),
    async (_who, open) => {
      open(file);
      await digestStartFile(file, { store });
      const times = identityOf(file);
      // The map makes its page dirty before the check, as an attacker would, and writes after it.
      const script = `
import mmap, sys
f = open(sys.argv[1], "r+b")
m = mmap.mmap(f.fileno(), 0)
m[0:1] = b"x"
print("mapped", flush=True)
sys.stdin.readline()
m[0:1] = b"E"
`;
      const child = spawn('python3', ['-c', script, file], { stdio: ['pipe', 'pipe', 'inherit'] });
      await once(child.stdout, 'data');
      const mapped = identityOf(file);
      expect((await digestStartFile(file, { store }))?.sha256).toBe(sha256(TEXT));
      child.stdin.end('\n');
      await once(child, 'exit');
      expect([identityOf(file) === mapped, times !== mapped]).toEqual([true, true]);
      expect((await digestStartFile(file, { store }))?.sha256).toBe(sha256(TEXT.replace('x', 'E')));
      expect(store.rows.size).toBe(0);
    },
  );

  it('is not stored for a small file, and does not exist for a missing one', async () => {
    writeFileSync(file, 'small');
    expect((await digestStartFile(file, { store }))?.sha256).toBe(sha256('small'));
    expect([
      store.rows.size,
      await digestStartFile(path.join(folder, 'none'), { store }),
      await digestStartFile(folder, { store }),
    ]).toEqual([0, undefined, undefined]);
  });
});

describe('the store of digests', () => {
  it(
    'returns a digest only for the exact identity, and ignores rows with a wrong seal' + verifies('HA-15'),
    async () => {
      const state = openState(folder);
      const rows = createDigestStore(state, (text) => sha256(`key ${text}`));
      const digest = sha256('program');
      await rows.put('/a\x001\x002', digest);
      expect([await rows.get('/a\x001\x002'), await rows.get('/a\x001\x003'), await rows.get('/b\x001\x002')]).toEqual([
        digest,
        undefined,
        undefined,
      ]);
      expect(await createDigestStore(state, (text) => sha256(`other ${text}`)).get('/a\x001\x002')).toBeUndefined();
      await state.put('file-digest', '/a', `${sha256('evil')}${(await state.get('file-digest', '/a'))?.slice(64)}`);
      expect(await rows.get('/a\x001\x002')).toBeUndefined();
      await state.close();
      await rows.put('/a\x001\x002', digest);
      expect(await rows.get('/a\x001\x002')).toBeUndefined();
    },
  );
});
