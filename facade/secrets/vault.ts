/** The encrypted vault in the state folder. A lock prevents that processes overwrite each other's changes. */
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { openDatabase } from '../state/database.ts';
import { readPrivate, writePrivate } from './private-file.ts';
import { type KeyOrigin, readSealed, seal, unseal } from './vault-file.ts';
import { findKey, type KeySources, makeKey, type VaultKey } from './vault-key.ts';

/** One secret. `setAt`: ISO time. */
interface Entry {
  readonly value: string;
  readonly setAt: string;
}

/** The part of a secret that may be shown. */
export interface VaultItem {
  readonly name: string;
  readonly setAt: string;
}

type Entries = ReadonlyMap<string, Entry>;

/** The vault of one state folder. Every method throws VAULT_FAILED if it cannot be read or written. */
export class Vault {
  readonly #folder: string;
  readonly #sources: KeySources;
  readonly #now: () => number;
  #key: VaultKey | undefined;

  constructor(folder: string, sources: KeySources, now: () => number = Date.now) {
    this.#folder = folder;
    this.#sources = sources;
    this.#now = now;
  }

  /** Returns names and times, sorted, without values. */
  async list(): Promise<readonly VaultItem[]> {
    return [...(await this.#read())]
      .map(([name, { setAt }]) => ({ name, setAt }))
      .sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  async get(name: string): Promise<string | undefined> {
    return (await this.#read()).get(name)?.value;
  }

  /** Sets a secret. Returns true if it replaced one. */
  set(name: string, value: string): Promise<boolean> {
    return this.#change((entries) => ({
      entries: new Map([...entries, [name, { value, setAt: new Date(this.#now()).toISOString() }]]),
      result: entries.has(name),
    }));
  }

  /** Removes a secret. Returns false if there was none. */
  remove(name: string): Promise<boolean> {
    return this.#change((entries) => ({
      entries: new Map([...entries].filter(([known]) => known !== name)),
      result: entries.has(name),
    }));
  }

  /** Encrypts a text with the key of the vault, which is made if there is none. Any vault with this key reads it. */
  async seal(text: string): Promise<string> {
    if (readPrivate(this.#file) === undefined) await this.#change((entries) => ({ entries, result: undefined }));
    const { key, origin } = await this.#keyFor(readPrivate(this.#file) ?? '');
    return seal(text, key, origin);
  }

  /** Decrypts what `seal` has encrypted. */
  async unseal(text: string): Promise<string> {
    const sealed = readSealed(text);
    const key =
      this.#key !== undefined && sameKey(this.#key.origin, sealed.key)
        ? this.#key.key
        : await findKey(this.#folder, sealed.key, this.#sources);
    return unseal(sealed, key);
  }

  /** Returns where the key comes from; undefined while there is no vault. */
  origin(): KeyOrigin['from'] | undefined {
    const text = readPrivate(this.#file);
    return text === undefined ? undefined : readSealed(text).key.from;
  }

  get #file(): string {
    return path.join(this.#folder, 'vault.json');
  }

  async #read(): Promise<Entries> {
    const text = readPrivate(this.#file);
    if (text === undefined) return new Map();
    return open(text, await this.#keyFor(text));
  }

  /** Finds the key before it takes the lock, because a person may be asked for the key. */
  async #change<T>(work: (entries: Entries) => { readonly entries: Entries; readonly result: T }): Promise<T> {
    const before = readPrivate(this.#file);
    const key = before === undefined ? await makeKey(this.#folder, this.#sources) : await this.#keyFor(before);
    const lock = openDatabase(path.join(this.#folder, 'vault.lock'), { version: 1, sql: '' });
    try {
      return lock.transact(() => {
        const text = readPrivate(this.#file);
        if (text !== undefined && !sameKey(readSealed(text).key, key.origin))
          throw new TollgateError('VAULT_FAILED', {
            detail: 'Another process created the vault at the same time.',
            next: 'Run the command again.',
          });
        const { entries, result } = work(text === undefined ? new Map() : open(text, key));
        writePrivate(this.#file, seal(JSON.stringify(Object.fromEntries(entries)), key.key, key.origin));
        this.#key = key;
        return result;
      });
    } finally {
      lock.close();
    }
  }

  /** Deriving a key takes about 0.2 s, so it is kept while the vault names the same one. */
  async #keyFor(text: string): Promise<VaultKey> {
    const origin = readSealed(text).key;
    if (this.#key !== undefined && sameKey(this.#key.origin, origin)) return this.#key;
    const key = { key: await findKey(this.#folder, origin, this.#sources), origin };
    open(text, key);
    return (this.#key = key);
  }
}

function open(text: string, { key }: VaultKey): Entries {
  const value = JSON.parse(unseal(readSealed(text), key)) as Record<string, Entry>;
  return new Map(Object.entries(value));
}

function sameKey(one: KeyOrigin, other: KeyOrigin): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}
