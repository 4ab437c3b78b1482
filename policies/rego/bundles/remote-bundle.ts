/** A bundle on a server: fetches and verifies it, caches it for a start without network, and polls for a newer one. */

import { randomUUID } from 'node:crypto';
import { mkdir, readFile, rename, stat, utimes, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { definedFields } from '../../../catalogs/text/collections.ts';
import type { BundleServer, Policy } from '../../port.ts';
import { fetchBundle } from './bundle-fetch.ts';
import { type Bundle, openBundle, sha256Hex, unpackBundle } from './bundle-format.ts';

/** Settings of a bundle on a server. */
interface RemoteOptions {
  readonly server: BundleServer;
  /** Name in messages. */
  readonly name: string;
  /** Folder for fetched bundles. */
  readonly cache: string;
  /**
   * Throws if the bundle cannot be loaded together with the YAML rules that have these `ids`. Then it is not cached.
   */
  readonly check: (bundle: Bundle, ids: readonly string[]) => Promise<void>;
  readonly ids: readonly string[];
}

/** State of a loaded bundle as plain data, so that another thread can continue with it. */
export interface RemoteState {
  readonly options: Omit<RemoteOptions, 'check'>;
  readonly active: string;
  readonly failures: number;
  readonly reported: string;
  readonly remarks: readonly string[];
}

const INITIAL_STATE = { active: '', failures: 0, reported: '', remarks: [] } as const;

/** A bundle in the cache folder. */
interface CachedBundle {
  readonly bundle: Bundle;
  readonly hash: string;
  readonly etag?: string;
  /** Time of the last request to the server, in ms since 1970. */
  readonly requestedAt: number;
}

type Listener = Parameters<NonNullable<Policy['follow']>>[0];

/** While the server cannot be reached, pauses grow up to this many poll intervals. */
const MAX_BACKOFF = 16;
/** Share of each pause that is random, so that many machines do not poll at the same time. */
const JITTER = 0.2;

/** Returns host and path of a bundle for messages. The query is left out, because it may contain a credential. */
export function bundleName({ url }: BundleServer): string {
  const { host, pathname } = new URL(url);
  return `${host}${pathname}`;
}

/** One bundle of one configuration. */
export class RemoteBundle {
  readonly #options: RemoteOptions;
  readonly #file: string;
  readonly #stop = new AbortController();
  #timer: NodeJS.Timeout | undefined;
  #active: string;
  #failures: number;
  /** The failure that was reported last, so that each is reported once. */
  #reported: string;
  /** Messages for a person that say why this is not the newest bundle. */
  remarks: readonly string[];

  constructor(
    options: RemoteOptions,
    { active, failures, reported, remarks }: Omit<RemoteState, 'options'> = INITIAL_STATE,
  ) {
    this.#options = options;
    [this.#active, this.#failures, this.#reported, this.remarks] = [active, failures, reported, remarks];
    this.#file = path.join(options.cache, 'bundles', sha256Hex(options.server.url).slice(0, 32));
  }

  /**
   * Returns the cached bundle if it is newer than one poll interval, otherwise the bundle of the server. If that fails,
   * returns the cached one with a remark. Verifies it each time. Throws POLICY_INVALID if there is no bundle.
   */
  async load(): Promise<Bundle> {
    const { server, name } = this.#options;
    const cached = await this.#readCache();
    if (cached !== undefined && Date.now() - cached.requestedAt < server.pollMs) return this.#use(cached);
    try {
      return this.#use((await this.#fetch(cached)) ?? cached!);
    } catch (thrown) {
      if (cached === undefined) throw this.#refusal(thrown);
      this.#reported = reason(thrown);
      this.#failures = 1;
      this.remarks = [
        `The bundle ${name} could not be updated: ${reason(thrown)}. The last good one is in use; it ` +
          `was current at ${new Date(cached.requestedAt).toISOString()}.`,
      ];
      return this.#use(cached);
    }
  }

  /** Polls the server until `close` (see Policy.follow). */
  follow(listener: Listener): void {
    const { pollMs } = this.#options.server;
    const pause = pollMs * Math.min(2 ** this.#failures, MAX_BACKOFF) * (1 - JITTER / 2 + JITTER * Math.random());
    this.#timer = setTimeout(() => {
      void this.#poll(listener).then(() => {
        if (!this.#stop.signal.aborted) this.follow(listener);
      });
    }, pause).unref();
  }

  get state(): RemoteState {
    const { check: _, ...options } = this.#options;
    const [active, failures, reported] = [this.#active, this.#failures, this.#reported];
    return { options, active, failures, reported, remarks: this.remarks };
  }

  close(): void {
    this.#stop.abort();
    clearTimeout(this.#timer);
  }

  /** Never rejects. Another process may have fetched the bundle in the meantime. */
  async #poll(listener: Listener): Promise<void> {
    try {
      const cached = await this.#readCache();
      const isCurrent =
        cached !== undefined &&
        (cached.hash !== this.#active || Date.now() - cached.requestedAt < this.#options.server.pollMs / 2);
      const newest = isCurrent ? cached : ((await this.#fetch(cached)) ?? cached);
      this.#failures = 0;
      this.#reported = '';
      if (newest === undefined || newest.hash === this.#active || this.#stop.signal.aborted) return;
      this.#active = newest.hash;
      listener.changed();
    } catch (thrown) {
      if (this.#stop.signal.aborted) return;
      this.#failures += 1;
      if (reason(thrown) !== this.#reported) listener.failed(this.#refusal(thrown));
      this.#reported = reason(thrown);
    }
  }

  #use(cached: CachedBundle): Bundle {
    this.#active = cached.hash;
    return cached.bundle;
  }

  /** Fetches, checks and caches the bundle of the server. Returns undefined if the cached bundle is current. */
  async #fetch(cached: CachedBundle | undefined): Promise<CachedBundle | undefined> {
    const { server, check, ids } = this.#options;
    const fetched = await fetchBundle(server, {
      stop: this.#stop.signal,
      ...definedFields({ etag: cached?.etag }),
    });
    if (fetched === undefined) {
      await utimes(this.#file, new Date(), new Date());
      return undefined;
    }
    const bundle = await this.#verify(fetched.bytes);
    await check(bundle, ids);
    const hash = sha256Hex(fetched.bytes);
    const head = definedFields({ hash, etag: fetched.etag });
    await this.#writeCache(Buffer.concat([Buffer.from(`${JSON.stringify(head)}\n`), fetched.bytes]));
    return { ...head, bundle, requestedAt: Date.now() };
  }

  async #verify(bytes: Uint8Array): Promise<Bundle> {
    const { keys, scope } = this.#options.server;
    const files = unpackBundle(bytes);
    if (keys !== undefined)
      await (await import('./bundle-signatures.ts')).verifyFiles(files, {
        keys: await Promise.all(keys.map((key) => readFile(key, 'utf8'))),
        ...definedFields({ scope }),
      });
    return openBundle(files);
  }

  /** Writes head and bytes to one file, so that no reader finds one without the other. */
  async #writeCache(bytes: Uint8Array): Promise<void> {
    await mkdir(path.dirname(this.#file), { recursive: true, mode: 0o700 });
    const part = `${this.#file}.${process.pid}-${randomUUID()}`;
    await writeFile(part, bytes, { mode: 0o600 });
    await rename(part, this.#file);
  }

  /** Returns the cached bundle if it is complete and signed by a current key. */
  async #readCache(): Promise<CachedBundle | undefined> {
    try {
      const [bytes, { mtimeMs }] = await Promise.all([readFile(this.#file), stat(this.#file)]);
      const end = bytes.indexOf('\n');
      const head = JSON.parse(bytes.toString('utf8', 0, end)) as { readonly hash: string; readonly etag?: string };
      const packed = bytes.subarray(end + 1);
      if (sha256Hex(packed) !== head.hash) return undefined;
      return { ...head, bundle: await this.#verify(packed), requestedAt: mtimeMs };
    } catch {
      // A damaged file counts as missing.
      return undefined;
    }
  }

  #refusal(thrown: unknown): TollgateError {
    const next = 'Publish a valid bundle, or correct url, token and verify of the policy.';
    return new TollgateError('POLICY_INVALID', {
      detail: `The bundle ${this.#options.name} is refused: ${reason(thrown)}.`,
      next,
      cause: thrown,
    });
  }
}

/** Returns a public reason: our own words, with the error codes of the system in brackets. */
function reason(thrown: unknown): string {
  const code = (thrown as { readonly code?: unknown }).code;
  if (thrown instanceof TollgateError || !(thrown instanceof Error))
    return thrown instanceof TollgateError ? thrown.message.replace(/\.$/, '') : 'it cannot be read';
  if (thrown instanceof SyntaxError) return 'a JSON file in it is invalid';
  return typeof code === 'string' ? `it cannot be read (${code})` : thrown.message;
}
