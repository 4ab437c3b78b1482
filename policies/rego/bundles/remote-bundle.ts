/** Owns a bundle that lies on a server: fetched, verified, kept for a start without network, asked for anew; refuses what is not signed as it must be. */
import { createHash, randomUUID } from 'node:crypto';
import { mkdir, readFile, rename, stat, utimes, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { BundleServer, Policy } from '../../port.ts';
import { fetchBundle } from './bundle-fetch.ts';
import { type Bundle, openBundle, unpackBundle } from './bundle-format.ts';

/** What a bundle on a server is handled with. */
export interface RemoteOptions {
  readonly server: BundleServer;
  /** How messages name it. */
  readonly name: string;
  /** Folder of the bundles that were fetched. */
  readonly cache: string;
  /** Judges what can be loaded at all beside the `ids` of the rules in YAML; throws. Only what passes is kept. */
  readonly judge: (bundle: Bundle, ids: readonly string[]) => Promise<void>;
  readonly ids: readonly string[];
}

/** A bundle that was loaded, as plain data: another thread goes on with it. */
export interface RemoteState {
  readonly options: Omit<RemoteOptions, 'judge'>;
  readonly active: string;
  readonly failures: number;
  readonly told: string;
  readonly remarks: readonly string[];
}

const FRESH = { active: '', failures: 0, told: '', remarks: [] } as const;

/** A bundle on this disk. */
interface Kept {
  readonly bundle: Bundle;
  readonly hash: string;
  readonly etag?: string;
  /** When the server was asked last, ms since 1970. */
  readonly askedAt: number;
}

type Told = Parameters<NonNullable<Policy['follow']>>[0];

/** Pauses grow up to so many polling intervals while the server cannot be reached. */
const MAX_BACKOFF = 16;
/** A part of each pause is by chance, so that a fleet does not ask at once. */
const JITTER = 0.2;

/** The address and path of a bundle for messages: without query, which may hold a credential. */
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
  /** The failure that was told last, so that each is told once. */
  #told: string;
  /** Lines for a person: why the bundle is not the newest. */
  remarks: readonly string[];

  constructor(options: RemoteOptions, { active, failures, told, remarks }: Omit<RemoteState, 'options'> = FRESH) {
    this.#options = options;
    [this.#active, this.#failures, this.#told, this.remarks] = [active, failures, told, remarks];
    this.#file = path.join(
      options.cache,
      'bundles',
      createHash('sha256').update(options.server.url).digest('hex').slice(0, 32),
    );
  }

  /**
   * The bundle: what was fetched less than a polling interval ago, else what the server has now, else the last good one,
   * with a remark. Verified anew each time. Throws POLICY_INVALID when there is none.
   */
  async load(): Promise<Bundle> {
    const { server, name } = this.#options;
    const kept = await this.#readKept();
    if (kept !== undefined && Date.now() - kept.askedAt < server.pollMs) return this.#use(kept);
    try {
      return this.#use((await this.#ask(kept)) ?? kept!);
    } catch (thrown) {
      if (kept === undefined) throw this.#refusal(thrown);
      this.#told = reason(thrown);
      this.#failures = 1;
      this.remarks = [
        `The bundle ${name} was not taken: ${reason(thrown)}. The last good one is in force; it was current at ${new Date(kept.askedAt).toISOString()}.`,
      ];
      return this.#use(kept);
    }
  }

  /** Asks again and again (see Policy.follow). */
  follow(told: Told): void {
    const { pollMs } = this.#options.server;
    const pause = pollMs * Math.min(2 ** this.#failures, MAX_BACKOFF) * (1 - JITTER / 2 + JITTER * Math.random());
    this.#timer = setTimeout(() => {
      void this.#poll(told).then(() => {
        if (!this.#stop.signal.aborted) this.follow(told);
      });
    }, pause).unref();
  }

  get state(): RemoteState {
    const { judge: _, ...options } = this.#options;
    return { options, active: this.#active, failures: this.#failures, told: this.#told, remarks: this.remarks };
  }

  close(): void {
    this.#stop.abort();
    clearTimeout(this.#timer);
  }

  /** Never rejects. Another process may have fetched meanwhile. */
  async #poll(told: Told): Promise<void> {
    try {
      const kept = await this.#readKept();
      const known =
        kept !== undefined &&
        (kept.hash !== this.#active || Date.now() - kept.askedAt < this.#options.server.pollMs / 2);
      const newest = known ? kept : ((await this.#ask(kept)) ?? kept);
      this.#failures = 0;
      this.#told = '';
      if (newest === undefined || newest.hash === this.#active || this.#stop.signal.aborted) return;
      this.#active = newest.hash;
      told.changed();
    } catch (thrown) {
      if (this.#stop.signal.aborted) return;
      this.#failures += 1;
      if (reason(thrown) !== this.#told) told.failed(this.#refusal(thrown));
      this.#told = reason(thrown);
    }
  }

  #use(kept: Kept): Bundle {
    this.#active = kept.hash;
    return kept.bundle;
  }

  /** What the server has, once it is judged and kept; undefined when that is what was kept before. */
  async #ask(kept: Kept | undefined): Promise<Kept | undefined> {
    const { server, judge, ids } = this.#options;
    const fetched = await fetchBundle(server, {
      stop: this.#stop.signal,
      ...(kept?.etag === undefined ? {} : { etag: kept.etag }),
    });
    if (fetched === undefined) {
      await utimes(this.#file, new Date(), new Date());
      return undefined;
    }
    const bundle = await this.#verify(fetched.bytes);
    await judge(bundle, ids);
    const hash = hashOf(fetched.bytes);
    const head = { hash, ...(fetched.etag === undefined ? {} : { etag: fetched.etag }) };
    await this.#keep(Buffer.concat([Buffer.from(`${JSON.stringify(head)}\n`), fetched.bytes]));
    return { ...head, bundle, askedAt: Date.now() };
  }

  async #verify(bytes: Uint8Array): Promise<Bundle> {
    const { keys, scope } = this.#options.server;
    const files = unpackBundle(bytes);
    if (keys !== undefined)
      await (await import('./bundle-signatures.ts')).verifyFiles(files, {
        keys: await Promise.all(keys.map((key) => readFile(key, 'utf8'))),
        ...(scope === undefined ? {} : { scope }),
      });
    return openBundle(files);
  }

  /** One file, head and bytes, so that no reader finds the one without the other. */
  async #keep(bytes: Uint8Array): Promise<void> {
    await mkdir(path.dirname(this.#file), { recursive: true, mode: 0o700 });
    const part = `${this.#file}.${process.pid}-${randomUUID()}`;
    await writeFile(part, bytes, { mode: 0o600 });
    await rename(part, this.#file);
  }

  /** What lies on the disk, if it is whole and still signed by a key of now. */
  async #readKept(): Promise<Kept | undefined> {
    try {
      const [bytes, { mtimeMs }] = await Promise.all([readFile(this.#file), stat(this.#file)]);
      const end = bytes.indexOf('\n');
      const head = JSON.parse(bytes.toString('utf8', 0, end)) as { readonly hash: string; readonly etag?: string };
      const packed = bytes.subarray(end + 1);
      if (hashOf(packed) !== head.hash) return undefined;
      return { ...head, bundle: await this.#verify(packed), askedAt: mtimeMs };
    } catch {
      // Nothing of use: as if it had never been fetched.
      return undefined;
    }
  }

  #refusal(thrown: unknown): TollgateError {
    const next = 'Publish a bundle that can be taken, or correct url, token and verify of the policy.';
    return new TollgateError('POLICY_INVALID', {
      detail: `The bundle ${this.#options.name} is refused: ${reason(thrown)}.`,
      next,
      cause: thrown,
    });
  }
}

/** Public: what fails below is said in words of ours, and with the system's codes in brackets. */
function reason(thrown: unknown): string {
  const code = (thrown as { readonly code?: unknown }).code;
  if (thrown instanceof TollgateError || !(thrown instanceof Error))
    return thrown instanceof TollgateError ? thrown.message.replace(/\.$/, '') : 'it cannot be read';
  if (thrown instanceof SyntaxError) return 'a JSON file in it is not well formed';
  return typeof code === 'string' ? `it cannot be read (${code})` : thrown.message;
}

function hashOf(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}
