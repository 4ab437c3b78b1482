/**
 * Tests the vault: what it stores, who can open it, and that it detects damage, unsafe files and parallel processes.
 * Covers: facade/secrets.
 */

import { execFile } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { type Keychain, openKeychain } from '../../facade/secrets/keychain.ts';
import { createPrivate, readPrivate, writePrivate } from '../../facade/secrets/private-file.ts';
import { Vault } from '../../facade/secrets/vault.ts';
import { readSealed, seal, unseal } from '../../facade/secrets/vault-file.ts';
import type { KeySources } from '../../facade/secrets/vault-key.ts';
import { inFull } from '../harness/full-tests.ts';
import { partOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';

let folder = '';
beforeEach(() => (folder = mkdtempSync(path.join(tmpdir(), 'tollgate-vault-'))));
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const file = (name: string): string => path.join(folder, name);
const NO_KEYCHAIN = async (): Promise<undefined> => undefined;
const withFile: KeySources = { passphrase: async () => undefined, keychain: NO_KEYCHAIN };
const withPassphrase = (passphrase: string | undefined): KeySources => ({
  passphrase: async () => passphrase,
  keychain: NO_KEYCHAIN,
});
const EARLY = Date.UTC(2026, 0, 2);
const open = (sources: KeySources = withFile): Vault => new Vault(folder, sources, () => EARLY);

/** A keychain in memory, because the machines of the tests have none. */
function memoryKeychain(entries = new Map<string, string>()): {
  readonly entries: Map<string, string>;
  readonly sources: KeySources;
} {
  const keychain: Keychain = {
    get: async (service, account) => entries.get(`${service}/${account}`),
    set: async (service, account, password) => void entries.set(`${service}/${account}`, password),
    remove: async (service, account) => void entries.delete(`${service}/${account}`),
  };
  return { entries, sources: { passphrase: async () => undefined, keychain: async () => keychain } };
}

async function failure(work: Promise<unknown>): Promise<string> {
  const thrown = await work.then(
    () => undefined,
    (error: unknown) => error,
  );
  expect(thrown).toBeInstanceOf(TollgateError);
  expect((thrown as TollgateError).code).toBe('VAULT_FAILED');
  expect((thrown as TollgateError).next.length).toBeGreaterThan(10);
  return (thrown as TollgateError).message;
}

describe('a vault', () => {
  it('keeps its values, and shows only names and times' + verifies('PF-04'), async () => {
    expect(await open().list()).toEqual([]);
    expect(await open().get('a')).toBeUndefined();
    expect(await open().set('b.token', 'value-of-b')).toBe(false);
    expect(await open().set('a', 'value of a\nand more')).toBe(false);
    expect(await open().set('a', 'another')).toBe(true);
    expect(await open().list()).toEqual([
      { name: 'a', setAt: '2026-01-02T00:00:00.000Z' },
      { name: 'b.token', setAt: '2026-01-02T00:00:00.000Z' },
    ]);
    expect(await open().get('a')).toBe('another');
    expect(await open().remove('a')).toBe(true);
    expect(await open().remove('a')).toBe(false);
    expect((await open().list()).map(({ name }) => name)).toEqual(['b.token']);
  });

  it('is on the disk without values or names in clear text, readable only by its owner', async () => {
    await open().set('github.token', 'sesame-sesame');
    const texts = readdirSync(folder)
      .map((name) => readFileSync(file(name), 'latin1'))
      .join();
    expect(texts).not.toContain('sesame');
    expect(texts).not.toContain('github');
    for (const name of ['vault.json', 'vault.key', 'vault.lock']) expect(statSync(file(name)).mode & 0o777).toBe(0o600);
  });

  it('accepts any name and any value', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.stringMatching(/^[A-Za-z_][\w.-]{0,20}$/),
        fc.string({ unit: 'grapheme' }),
        async (name, value) => {
          await open().set(name, value);
          expect(await open().get(name)).toBe(value);
        },
      ),
      { numRuns: 20 },
    );
    await open().set('__proto__', 'not a prototype');
    expect(await open().get('__proto__')).toBe('not a prototype');
    expect(await open().get('constructor')).toBeUndefined();
  });

  it('never uses a nonce twice', async () => {
    const nonces = new Set<string>();
    for (let at = 0; at < 20; at += 1) {
      await open().set('a', 'the same value');
      nonces.add(readSealed(readFileSync(file('vault.json'), 'utf8')).nonce);
    }
    expect(nonces.size).toBe(20);
  });

  it('loses nothing if several processes write at the same time', async () => {
    const main = path.join(import.meta.dirname, '..', '..', 'dist', 'facade', 'main.js');
    writeFileSync(file('tollgate.yaml'), 'version: 1\nworkspace: ./work\nstate: ./state\n');
    const { mkdirSync } = await import('node:fs');
    mkdirSync(file('work'));
    const names = partOf(['one', 'two', 'three', 'four'], 2);
    await Promise.all(
      names.map(async (name) => {
        const child = promisify(execFile)(
          process.execPath,
          [main, 'secret', 'set', name, '-c', file('tollgate.yaml')],
          { env: { PATH: process.env.PATH } },
        );
        child.child.stdin?.end(`value of ${name}\n`);
        await child;
      }),
    );
    const vault = new Vault(file('state'), withFile);
    expect((await vault.list()).map(({ name }) => name)).toEqual([...names].sort());
    for (const name of names) expect(await vault.get(name)).toBe(`value of ${name}`);
  });
});

describe('the key of a vault', () => {
  inFull('comes from the passphrase if one is set, and from no other source', async () => {
    await open(withPassphrase('correct horse')).set('a', 'value of a');
    expect(existsSync(file('vault.key'))).toBe(false);
    expect(open().origin()).toBe('passphrase');
    // The same letters as other code points, as a keyboard of another system produces them.
    await open(withPassphrase('caf\u00e9'))
      .list()
      .catch(() => undefined);
    expect(await open(withPassphrase('correct horse')).get('a')).toBe('value of a');
    expect(await failure(open(withPassphrase('wrong')).get('a'))).toContain('passphrase is wrong');
    expect(await failure(open(withPassphrase('wrong')).set('b', 'value of b'))).toContain('passphrase is wrong');
    expect(await failure(open(withPassphrase(undefined)).list())).toContain('locked with a passphrase');
    expect(await open(withPassphrase('correct horse')).list()).toHaveLength(1);
  });

  inFull('is the same for a passphrase with the same letters in other code points', async () => {
    await open(withPassphrase('caf\u00e9')).set('a', 'value of a');
    expect(await open(withPassphrase('cafe\u0301')).get('a')).toBe('value of a');
  });

  it('is stored only in the keychain if there is one', async () => {
    const { entries, sources } = memoryKeychain();
    await open(sources).set('a', 'value of a');
    expect(open().origin()).toBe('keychain');
    expect(existsSync(file('vault.key'))).toBe(false);
    expect(await open(sources).get('a')).toBe('value of a');
    expect(await failure(open().get('a'))).toContain('cannot be reached');
    const [account = ''] = entries.keys();
    entries.set(account, 'not a key');
    expect(await failure(open(sources).get('a'))).toContain('not a key');
    entries.clear();
    expect(await failure(open(sources).get('a'))).toContain('no key');
  });

  it('is stored in a file if the keychain fails, or does not keep it', async () => {
    const broken: Keychain = {
      get: async () => undefined,
      set: () => Promise.reject(new Error('locked')),
      remove: async () => undefined,
    };
    const forgetful: Keychain = { ...broken, set: async () => undefined };
    for (const keychain of [broken, forgetful]) {
      await open({ passphrase: async () => undefined, keychain: async () => keychain }).set('a', 'value of a');
      expect(open().origin()).toBe('file');
      unlinkSync(file('vault.json'));
    }
  });

  it('opens nothing if its file is missing, changed or readable by others, which is reported', async () => {
    await open().set('a', 'value of a');
    const key = readFileSync(file('vault.key'), 'utf8');
    chmodSync(file('vault.key'), 0o640);
    expect(await failure(open().get('a'))).toContain('other users');
    rmSync(file('vault.key'));
    expect(await failure(open().get('a'))).toContain('is missing');
    writePrivate(file('vault.key'), 'short');
    expect(await failure(open().get('a'))).toContain('not a key');
    writePrivate(file('vault.key'), Buffer.alloc(32).toString('base64'));
    expect(await failure(open().get('a'))).toContain('does not open');
    writePrivate(file('vault.key'), key);
    expect(await open().get('a')).toBe('value of a');
  });

  it('is not stored in the keyrings of the kernel, which do not survive a restart', async () => {
    expect(await openKeychain({})).toBe(process.platform === 'linux' ? undefined : expect.anything());
    // There is no bus at this address. A failing keychain must not make the vault fail.
    if (process.platform === 'linux')
      expect(await openKeychain({ DBUS_SESSION_BUS_ADDRESS: 'unix:path=/nonexistent' })).toBeUndefined();
  });
});

describe('a damaged vault', () => {
  it('is detected whichever byte is changed', async () => {
    await open().set('a', 'value of a');
    const text = readFileSync(file('vault.json'), 'utf8');
    const key = Buffer.from(readFileSync(file('vault.key'), 'utf8'), 'base64');
    fc.assert(
      fc.property(fc.nat(text.length - 2), fc.integer({ min: 33, max: 126 }), (at, letter) => {
        const changed = text.slice(0, at) + String.fromCharCode(letter) + text.slice(at + 1);
        let plain: string | undefined;
        try {
          plain = unseal(readSealed(changed), key);
        } catch (thrown) {
          expect((thrown as TollgateError).code).toBe('VAULT_FAILED');
          return;
        }
        // Base64 has unused bits, and JSON has several spellings, so a changed byte may leave the same content.
        expect(JSON.parse(plain)).toEqual({ a: { value: 'value of a', setAt: '2026-01-02T00:00:00.000Z' } });
      }),
      { numRuns: 500 },
    );
  });

  it.each([
    ['an empty file', ''],
    ['half a file', '{"tollgateVault":1,"key":{"fr'],
    ['another file', '[1]'],
    ['null', 'null'],
    ['no key', '{"tollgateVault":1,"nonce":"AAAAAAAAAAAAAAAA","text":""}'],
    [
      'a cheap derivation',
      '{"tollgateVault":1,"key":{"from":"passphrase","salt":"AA==","cost":2},"nonce":"AAAAAAAAAAAAAAAA","text":""}',
    ],
    [
      'an endless derivation',
      '{"tollgateVault":1,"key":{"from":"passphrase","salt":"AA==","cost":1073741824},' +
        '"nonce":"AAAAAAAAAAAAAAAA","text":""}',
    ],
  ])('is refused: %s', async (_name, text) => {
    writePrivate(file('vault.json'), text);
    expect(await failure(open(withPassphrase('x')).list())).toContain('damaged');
    expect(await failure(open(withPassphrase('x')).set('a', 'value'))).toContain('damaged');
    expect(readFileSync(file('vault.json'), 'utf8')).toBe(text);
  });

  it('is refused and not rewritten if a later version wrote it', async () => {
    writePrivate(file('vault.json'), '{"tollgateVault":2}');
    expect(await failure(open().set('a', 'value'))).toContain('newer');
    expect(readFileSync(file('vault.json'), 'utf8')).toBe('{"tollgateVault":2}');
  });

  it('does not open if the header names another origin of the key', () => {
    const key = Buffer.alloc(32, 7);
    const sealed = JSON.parse(seal('{}', key, { from: 'file' })) as { key: unknown };
    sealed.key = { from: 'keychain', account: 'x' };
    expect(() => unseal(readSealed(JSON.stringify(sealed)), key)).toThrow('does not open');
  });
});

describe('private files', () => {
  it('are never read through a link, nor if others can read them', () => {
    writePrivate(file('real'), 'text');
    symlinkSync(file('real'), file('link'));
    expect(() => readPrivate(file('link'))).toThrow('ELOOP');
    chmodSync(file('real'), 0o604);
    expect(() => readPrivate(file('real'))).toThrow('other users');
    expect(readPrivate(file('none'))).toBeUndefined();
  });

  it('are replaced completely, created once, and leave no other files', () => {
    writePrivate(file('a'), 'one');
    writePrivate(file('a'), 'two');
    expect(createPrivate(file('a'), 'three')).toBe(false);
    expect(createPrivate(file('b'), 'four')).toBe(true);
    expect([readPrivate(file('a')), readPrivate(file('b'))]).toEqual(['two', 'four']);
    expect(readdirSync(folder).sort()).toEqual(['a', 'b']);
  });

  it('report that they cannot be written', () => {
    expect(() => writePrivate('/dev/null/a', 'x')).toThrow('cannot be written');
    renameSync(folder, `${folder}-away`);
    rmSync(`${folder}-away`, { recursive: true });
  });
});
