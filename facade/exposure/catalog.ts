/**
 * The tools that the servers offer, now and as they were approved. A known list starts no server, unapproved tools are
 * not shown, and a failed server delays no other.
 */
import { isDeepStrictEqual } from 'node:util';
import { asTollgateError, type TollgateError } from '../../catalogs/errors/error-table.ts';
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';
import type { Admission } from '../consent/servers/server-consents.ts';
import { toolDriftOf } from '../consent/servers/tool-set.ts';
import type { ServedServer } from './served-server.ts';
import { ToolEntry } from './tool-entry.ts';

/** The parts that a catalog uses. */
export interface CatalogParts {
  /** Called when a list that clients may have seen has changed, or may have changed. */
  readonly onChange: () => void;
  /** Called after a server was asked, also without success. `isKept`: its list is known from before. */
  readonly onListed: (server: string, isKept?: boolean) => void;
  /** Returns the present consents to servers. A server without an entry needs no consent. */
  readonly consent: (servers: readonly string[]) => Promise<ReadonlyMap<string, Admission>>;
  /** Called when a server with approved tools has listed them. Never rejects. */
  readonly onListing: (
    server: string,
    parts: { readonly approved: readonly RawTool[]; readonly now: readonly RawTool[] },
  ) => Promise<void>;
  /** Lists of earlier processes, for servers whose tools are all approved, so that a list need not start them. */
  readonly known: KnownToolLists;
}

/** Stores lists between processes. */
export interface KnownToolLists {
  load(server: string): readonly RawTool[] | undefined;
  save(server: string, tools: readonly RawTool[]): void;
}

/** The last list of a server, or its approved tools. */
interface Listing {
  readonly raw: readonly RawTool[];
  readonly entries: readonly ToolEntry[];
}

/** How servers are asked. `mayStart`: whether the caller may start a server; absent: any server. */
interface Asking {
  readonly waitMs?: number | undefined;
  readonly scope?: string;
  readonly mayStart?: (server: string) => boolean;
}

const FREE: Admission = { mark: '', hints: false };

/** Milliseconds until a server that failed is asked again, so that it does not slow every list. */
const RETRY_MS = 5_000;

/** The tools of all servers. `revision` increases whenever any list changes. */
export class Catalog {
  readonly servers: ReadonlyMap<string, ServedServer>;
  /** Server → the error that says why its tools are missing. Callers may see it. */
  readonly problems = new Map<string, TollgateError>();
  revision = 0;
  readonly #parts: CatalogParts;
  readonly #listings = new Map<string, Listing>();
  readonly #admissions = new Map<string, Admission>();
  readonly #current = new Set<string>();
  readonly #running = new ListRequests();
  readonly #retryAt = new Map<string, number>();

  /** Copies what the catalog `before` knows of the same servers. That catalog gets no more changes. */
  constructor(servers: ReadonlyMap<string, ServedServer>, parts: CatalogParts, before?: Catalog) {
    this.servers = servers;
    this.#parts = parts;
    if (before !== undefined) this.#takeOver(before);
    for (const [name, served] of servers) {
      served.adapter.onToolsChanged((renewed) => {
        this.#current.delete(name);
        this.#retryAt.delete(name);
        if (renewed === undefined) parts.onChange();
      });
    }
  }

  /** Returns true if the known tool list is current. Returns false while the server is being asked. */
  isCurrent(server: string): boolean {
    return (
      this.#current.has(server) && !this.#running.has(server) && this.servers.get(server)?.adapter.isAsleep?.() !== true
    );
  }

  /** Returns the last list of the server, even if it does not run now. */
  entries(server: string): readonly ToolEntry[] {
    return this.#listings.get(server)?.entries ?? [];
  }

  /** Returns the same list as the server sent it, or as it was approved. A new list is another array. */
  original(server: string): readonly RawTool[] {
    return this.#listings.get(server)?.raw ?? [];
  }

  /**
   * Asks the named servers without a current list, all at once. A server that fails does not affect the others. Its
   * error is kept, and it is asked again after five seconds or after it sends something.
   * Waits at most the connect timeout of a server, and at most `waitMs` from the time it was asked. A later answer is
   * announced as a change. `scope`: the session that asks.
   * `sleeping: 'let'` starts no server with a known list (HA-06). `'leave'` asks no server. A stopped server that the
   * caller may not start is not asked either. Its approved or last list is used.
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
   * Reads the decisions about servers. After a new decision, the known list of a server is no longer current, and its
   * failure is forgotten.
   */
  async #readConsent(names: readonly string[]): Promise<void> {
    for (const [name, admission] of await this.#parts.consent(names)) {
      const served = this.servers.get(name);
      if (served === undefined || this.#admissions.get(name)?.mark === admission.mark) continue;
      this.#admissions.set(name, admission);
      this.#current.delete(name);
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
    return (isAsleep || !this.#current.has(name)) && (this.#retryAt.get(name) ?? 0) <= Date.now();
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
      if (before.#current.has(name)) this.#current.add(name);
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
      this.#current.add(name);
      const raw = await served.adapter.listTools();
      // A start takes time, so decisions made meanwhile are read before the list is compared.
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
      // A client whose tool list lacks this server needs a notification.
      if (wasDown || (before === undefined ? isMissed() : !isSame)) this.#parts.onChange();
    } catch (thrown) {
      this.#noteFailure(name, thrown);
    } finally {
      this.#parts.onListed(name);
    }
  }

  #noteFailure(name: string, thrown: unknown): void {
    this.#current.delete(name);
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
   * Stores a list. A changed tool is stored as it was approved, and a new tool as it is. Both are hidden, and a call of
   * them gets the reason.
   */
  #keep(served: ServedServer, raw: readonly RawTool[]): void {
    const { name } = served;
    const admission = this.#admissions.get(name) ?? FREE;
    const hints = 'refusal' in admission ? false : admission.hints;
    const approved = this.#setOf(name) ?? raw;
    const { pending } = toolDriftOf(approved, raw);
    const old = new Map(approved.map((tool) => [tool.name, tool]));
    const entries = raw.map((tool) => {
      const stored = old.get(tool.name) ?? tool;
      // Of two equal definitions, that of the server has its text.
      const shown = isDeepStrictEqual(stored, tool) ? tool : stored;
      return new ToolEntry(served, shown, { hints, pending: pending.get(tool.name) });
    });
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

/** Asks one server. `isMissed` returns whether a caller stopped waiting for the answer. Never rejects. */
export type ListRequest = (isMissed: () => boolean) => Promise<void>;

/** The running requests of one catalog. */
export class ListRequests {
  readonly #running = new Map<string, RunningRequest>();

  /** Returns true while a server is being asked. */
  has(server: string): boolean {
    return this.#running.has(server);
  }

  /** Asks a server, or waits for the running request. Resolves with the answer, or `waitMs` after the request began. */
  async ask(server: string, request: ListRequest, waitMs?: number): Promise<void> {
    const asking = this.#running.get(server) ?? this.#begin(server, request);
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

  #begin(server: string, request: ListRequest): RunningRequest {
    const asking: RunningRequest = { done: Promise.resolve(), since: performance.now(), missed: false };
    this.#running.set(server, asking);
    asking.done = request(() => asking.missed).finally(() => this.#running.delete(server));
    return asking;
  }
}
