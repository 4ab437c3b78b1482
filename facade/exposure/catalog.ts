/**
 * The tools that the servers offer, now and as they were approved. A known list starts no server, unapproved tools are
 * not shown, and a dead server delays no other.
 */
import { isDeepStrictEqual } from 'node:util';
import { asTollgateError, type TollgateError } from '../../catalogs/errors/error-table.ts';
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';
import type { Admission } from '../consent/servers/server-consents.ts';
import { toolDriftOf } from '../consent/servers/tool-set.ts';
import type { ServedServer } from './served-server.ts';
import { ToolEntry } from './tool-entry.ts';

/** What the catalog calls and remembers. */
export interface CatalogParts {
  /** A list that clients may have seen has changed, or may have. */
  readonly onChange: () => void;
  /** A server was asked, with or without success; `isKept`: its list is known from before. */
  readonly onListed: (server: string, isKept?: boolean) => void;
  /** The present consents to servers. A server that is not in the answer needs no consent. */
  readonly consent: (servers: readonly string[]) => Promise<ReadonlyMap<string, Admission>>;
  /** A server whose tools were approved has listed them. Never rejects. */
  readonly onListing: (
    server: string,
    parts: { readonly approved: readonly RawTool[]; readonly now: readonly RawTool[] },
  ) => Promise<void>;
  /** Lists from earlier processes, for servers that may list anything, so that a list starts none of them. */
  readonly known: KnownToolLists;
}

/** Where lists are kept between processes. */
export interface KnownToolLists {
  load(server: string): readonly RawTool[] | undefined;
  save(server: string, tools: readonly RawTool[]): void;
}

/** What a server last listed, or was approved to list. */
interface Listing {
  readonly raw: readonly RawTool[];
  readonly entries: readonly ToolEntry[];
}

/** How servers are asked. `mayStart`: whether the asker may have a server started; absent: any. */
interface Asking {
  readonly waitMs?: number | undefined;
  readonly scope?: string;
  readonly mayStart?: (server: string) => boolean;
}

const FREE: Admission = { mark: '', hints: false };

/**
 * Milliseconds for which a server that could not be listed is not asked again, so that one dead server does not slow
 * every list.
 */
const RETRY_MS = 5_000;

/** The tools of all servers. `revision` rises whenever any list changes. */
export class Catalog {
  readonly servers: ReadonlyMap<string, ServedServer>;
  /** Server → one public line that says why its tools are missing. */
  readonly problems = new Map<string, TollgateError>();
  revision = 0;
  readonly #parts: CatalogParts;
  readonly #listings = new Map<string, Listing>();
  readonly #admissions = new Map<string, Admission>();
  readonly #fresh = new Set<string>();
  readonly #running = new ListRequests();
  readonly #retryAt = new Map<string, number>();

  /** Takes over what the catalog `before` knows of the same servers. That catalog gets no more changes. */
  constructor(servers: ReadonlyMap<string, ServedServer>, parts: CatalogParts, before?: Catalog) {
    this.servers = servers;
    this.#parts = parts;
    if (before !== undefined) this.#takeOver(before);
    for (const [name, served] of servers) {
      served.adapter.onToolsChanged((renewed) => {
        this.#fresh.delete(name);
        this.#retryAt.delete(name);
        if (renewed === undefined) parts.onChange();
      });
    }
  }

  /** True if what is known of this server's tools is what it last said; false while it is being asked again. */
  isFresh(server: string): boolean {
    return (
      this.#fresh.has(server) && !this.#running.has(server) && this.servers.get(server)?.adapter.isAsleep?.() !== true
    );
  }

  /** Returns what the server last listed, even if it does not run now. */
  entries(server: string): readonly ToolEntry[] {
    return this.#listings.get(server)?.entries ?? [];
  }

  /**
   * Asks the named servers whose list is not known, all at once. One that fails is unavailable alone: its reason is
   * kept, and it is asked again after five seconds, or when it sends something. Waits for a server at most its connect
   * timeout, and not longer than `waitMs` from the time it was asked; a later answer is announced as a change. `scope`:
   * the session that asks. With `sleeping: 'let'` no server with a known list is started (HA-06); with `'leave'` none
   * is asked at all. A server that is not running and may not be started is not asked either: its approved or last list
   * is used.
   */
  async refresh(
    names: readonly string[],
    sleeping: 'let' | 'wake' | 'leave',
    { waitMs, scope = '', mayStart }: Asking = {},
  ): Promise<void> {
    await this.#readConsent(names);
    const open =
      mayStart === undefined
        ? names
        : names.filter((name) => mayStart(name) || this.servers.get(name)?.adapter.isAsleep?.() !== true);
    const wanted =
      sleeping === 'leave' ? [] : open.filter((name) => this.#running.has(name) || this.#isDue(name, sleeping));
    await Promise.all(
      wanted.map((name) => this.#running.ask(name, (isMissed) => this.#refreshOne(name, { scope, isMissed }), waitMs)),
    );
  }

  /**
   * What was decided about a server since it was last asked. What is known of it is then invalid, except for a caller
   * who asks for the reason.
   */
  async #readConsent(names: readonly string[]): Promise<void> {
    for (const [name, admission] of await this.#parts.consent(names)) {
      const served = this.servers.get(name);
      if (served === undefined || this.#admissions.get(name)?.mark === admission.mark) continue;
      this.#admissions.set(name, admission);
      this.#fresh.delete(name);
      this.#retryAt.delete(name);
      this.problems.delete(name);
      this.revision += 1;
      if ('refusal' in admission) {
        this.problems.set(name, admission.refusal);
        continue;
      }
      const raw = admission.set?.tools ?? this.#parts.known.load(name);
      if (raw === undefined) this.#listings.delete(name);
      else {
        this.#keep(served, raw);
        // Names are checked against a known list too, because its server may not be asked for a long time.
        this.#parts.onListed(name, true);
      }
    }
  }

  #isDue(name: string, sleeping: 'let' | 'wake'): boolean {
    if ('refusal' in (this.#admissions.get(name) ?? FREE)) return false;
    const isAsleep = this.servers.get(name)?.adapter.isAsleep?.() === true;
    if (isAsleep && sleeping === 'let' && this.#listings.has(name) && !this.problems.has(name)) return false;
    return (isAsleep || !this.#fresh.has(name)) && (this.#retryAt.get(name) ?? 0) <= Date.now();
  }

  #takeOver(before: Catalog): void {
    this.revision = before.revision + 1;
    for (const [name, served] of this.servers) {
      if (before.servers.get(name) !== served || before.#running.has(name)) continue;
      const listing = before.#listings.get(name);
      const problem = before.problems.get(name);
      const retryAt = before.#retryAt.get(name);
      const admission = before.#admissions.get(name);
      if (admission !== undefined) this.#admissions.set(name, admission);
      if (listing !== undefined) this.#listings.set(name, listing);
      if (problem !== undefined) this.problems.set(name, problem);
      if (retryAt !== undefined) this.#retryAt.set(name, retryAt);
      if (before.#fresh.has(name)) this.#fresh.add(name);
    }
  }

  async #refreshOne(
    name: string,
    { scope, isMissed }: { readonly scope: string; readonly isMissed: () => boolean },
  ): Promise<void> {
    const served = this.servers.get(name);
    if (served === undefined) return;
    try {
      await served.adapter.wake?.(scope);
      this.#fresh.add(name);
      const raw = await served.adapter.listTools();
      // A start may take long, so the list is compared with what was decided meanwhile.
      await this.#readConsent([name]);
      const admission = this.#admissions.get(name) ?? FREE;
      if ('refusal' in admission) return;
      if ('set' in admission) await this.#parts.onListing(name, { approved: admission.set.tools, now: raw });
      const before = this.#listings.get(name);
      const wasDown = this.problems.delete(name);
      if (!wasDown && raw === before?.raw) return;
      this.#keep(served, raw);
      const isSame = before !== undefined && isDeepStrictEqual(raw, before.raw);
      if (!isSame && this.#setOf(name) === undefined) this.#parts.known.save(name, raw);
      // A client whose tool list lacks this server is told that the list changed.
      if (wasDown || (before === undefined ? isMissed() : !isSame)) this.#parts.onChange();
    } catch (thrown) {
      this.#noteFailure(name, thrown);
    } finally {
      this.#parts.onListed(name);
    }
  }

  #noteFailure(name: string, thrown: unknown): void {
    this.#fresh.delete(name);
    this.#retryAt.set(name, Date.now() + RETRY_MS);
    if (!this.problems.has(name)) {
      this.revision += 1;
      if (this.#listings.has(name)) this.#parts.onChange();
    }
    this.problems.set(name, asTollgateError(thrown));
  }

  #setOf(name: string): readonly RawTool[] | undefined {
    const admission = this.#admissions.get(name) ?? FREE;
    return 'refusal' in admission ? [] : admission.set?.tools;
  }

  /**
   * A changed tool is listed as it was approved, and a new one as it came. Neither is shown, and a caller of it is told
   * why.
   */
  #keep(served: ServedServer, raw: readonly RawTool[]): void {
    const { name } = served;
    const admission = this.#admissions.get(name) ?? FREE;
    const hints = 'refusal' in admission ? false : admission.hints;
    const approved = this.#setOf(name) ?? raw;
    const { pending } = toolDriftOf(approved, raw);
    const old = new Map(approved.map((tool) => [tool.name, tool]));
    const entries = raw.map(
      (tool) => new ToolEntry(served, old.get(tool.name) ?? tool, { hints, pending: pending.get(tool.name) }),
    );
    this.#listings.set(name, { raw, entries });
    this.revision += 1;
  }
}

interface RunningRequest {
  done: Promise<void>;
  /** Monotonic milliseconds. */
  readonly since: number;
  missed: boolean;
}

/** Asks one server; `isAbandoned` says whether a caller has left without the answer. Never rejects. */
export type ListRequest = (isMissed: () => boolean) => Promise<void>;

/** The open questions of one catalog. */
export class ListRequests {
  readonly #running = new Map<string, RunningRequest>();

  /** True while a server is being asked. */
  has(server: string): boolean {
    return this.#running.has(server);
  }

  /** Asks, or joins an open question. Resolves with the answer, or once the server has been asked for `waitMs`. */
  async ask(server: string, question: ListRequest, waitMs?: number): Promise<void> {
    const asking = this.#running.get(server) ?? this.#begin(server, question);
    if (waitMs === undefined) return asking.done;
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(
        () => {
          asking.missed = true;
          resolve();
        },
        asking.since + waitMs - performance.now(),
      );
    });
    await Promise.race([asking.done, late]).finally(() => clearTimeout(timer));
  }

  #begin(server: string, question: ListRequest): RunningRequest {
    const asking: RunningRequest = { done: Promise.resolve(), since: performance.now(), missed: false };
    this.#running.set(server, asking);
    asking.done = question(() => asking.missed).finally(() => this.#running.delete(server));
    return asking;
  }
}
