/** Owns what the servers offer at present: one entry per tool, audited, lazily projected; refuses a hostile tool alone. */
import { createHash } from 'node:crypto';
import type { PrimitiveBackend, ServerAdapter } from '../adapters/port.ts';
import { auditTool } from '../catalogs/audit.ts';
import { asTollgateError, type ErrorCode } from '../catalogs/errors.ts';
import { tighten, type Bound } from '../catalogs/projection/bounds.ts';
import { loadSchemaProfile, project, type Projection } from '../catalogs/projection/project.ts';
import type { RawTool, Semantics } from '../catalogs/tool.ts';
import { createValidator, type Validator } from '../catalogs/validate.ts';

/** A server as the facade holds it. */
export interface Served {
  readonly name: string;
  readonly adapter: ServerAdapter;
  /** Present when it can serve primitives. */
  readonly backend?: PrimitiveBackend;
  readonly semanticsOf: (tool: string) => Semantics;
  readonly labels: readonly string[];
  readonly validateOutput?: 'off' | 'warn' | 'strict';
  readonly timeoutMs: number;
  readonly hardTimeoutMs: number;
}

/** One tool of one server. Projections and validators are made on first use and kept with the entry. */
export class ToolEntry {
  readonly server: Served;
  readonly tool: RawTool;
  readonly semantics: Semantics;
  /** SHA-256 of the whole raw definition: what was listed is what is called. */
  readonly pin: string;
  readonly notes: readonly string[];
  quarantine: string | undefined;
  #input: Validator | undefined;
  #output: Validator | undefined;
  readonly #projections = new Map<string, Projection>();

  constructor(server: Served, tool: RawTool) {
    const audit = auditTool(tool);
    this.server = server;
    this.tool = tool;
    this.semantics = server.semanticsOf(tool.name);
    this.pin = createHash('sha256').update(JSON.stringify(tool)).digest('hex');
    this.quarantine = audit.quarantine;
    this.notes = audit.notes;
  }

  get input(): Validator {
    this.#input ??= createValidator(this.tool.inputSchema);
    return this.#input;
  }

  /** Judge of structuredContent; undefined when the tool declares no output schema. */
  get output(): Validator | undefined {
    if (this.tool.outputSchema === undefined) return undefined;
    this.#output ??= createValidator(this.tool.outputSchema, 'output');
    return this.#output;
  }

  /** The schema for a provider profile, with bounds of policy; undefined puts this tool, and no other, into quarantine. */
  projection(profile: string, bounds: readonly Bound[] = []): Projection | undefined {
    if (bounds.length > 0) return this.#bounded(profile, bounds) ?? this.projection(profile);
    const known = this.#projections.get(profile);
    if (known !== undefined) return known;
    const made = project(this.tool.inputSchema as Record<string, unknown>, loadSchemaProfile(profile));
    if ('quarantined' in made) {
      this.quarantine = made.quarantined;
      return undefined;
    }
    this.#projections.set(profile, made);
    return made;
  }

  /** Bounds that leave nothing to show, such as no value at all, are left to the words. */
  #bounded(profile: string, bounds: readonly Bound[]): Projection | undefined {
    const made = project(tighten(this.tool.inputSchema, bounds), loadSchemaProfile(profile));
    return 'quarantined' in made ? undefined : made;
  }
}

/** How asking a server for its tools ended. */
export interface Listed {
  readonly server: string;
  readonly tools?: number;
  readonly code?: ErrorCode;
}

interface Listing {
  readonly raw: readonly RawTool[];
  readonly entries: readonly ToolEntry[];
}

/** Milliseconds for which a server that could not be listed is left alone, so that one dead server does not slow every list. */
const RETRY_MS = 5_000;

/** The tools of all servers. `revision` rises whenever any list changes. */
export class Catalog {
  readonly servers: ReadonlyMap<string, Served>;
  /** Server → one public line why its tools are missing. */
  readonly problems = new Map<string, string>();
  revision = 0;
  readonly #onListed: (listed: Listed) => void;
  readonly #listings = new Map<string, Listing>();
  readonly #fresh = new Set<string>();
  readonly #running = new Map<string, Promise<void>>();
  readonly #retryAt = new Map<string, number>();

  /**
   * `onChange` is told when a server says that its list has changed, `onListed` of every listing, for the audit. What the
   * catalog `before` knows of the same servers is taken over; from now on it hears of no change any more.
   */
  constructor(servers: ReadonlyMap<string, Served>, told: { onChange: () => void; onListed: (listed: Listed) => void }, before?: Catalog) {
    this.servers = servers;
    this.#onListed = told.onListed;
    if (before !== undefined) this.#takeOver(before);
    for (const { name, adapter } of servers.values()) {
      adapter.onToolsChanged(() => {
        this.#fresh.delete(name);
        told.onChange();
      });
    }
  }

  /** True when what is known of this server's tools is what it last said; not while it is being asked anew. */
  isFresh(server: string): boolean {
    return this.#fresh.has(server) && !this.#running.has(server);
  }

  entries(server: string): readonly ToolEntry[] {
    return this.#listings.get(server)?.entries ?? [];
  }

  /**
   * Lists the named servers that are not fresh, all at once; one that fails is missing alone, with its reason kept, and is
   * tried again after five seconds. Waits for a server at most its connect timeout.
   */
  async refresh(names: readonly string[]): Promise<void> {
    const wanted = names.filter((name) => this.#running.has(name) || (!this.#fresh.has(name) && (this.#retryAt.get(name) ?? 0) <= Date.now()));
    await Promise.all(wanted.map((name) => {
      const running = this.#running.get(name) ?? this.#refreshOne(name).finally(() => this.#running.delete(name));
      this.#running.set(name, running);
      return running;
    }));
  }

  #takeOver(before: Catalog): void {
    this.revision = before.revision + 1;
    for (const [name, served] of this.servers) {
      if (before.servers.get(name) !== served || before.#running.has(name)) continue;
      const listing = before.#listings.get(name);
      const problem = before.problems.get(name);
      const retryAt = before.#retryAt.get(name);
      if (listing !== undefined) this.#listings.set(name, listing);
      if (problem !== undefined) this.problems.set(name, problem);
      if (retryAt !== undefined) this.#retryAt.set(name, retryAt);
      if (before.#fresh.has(name)) this.#fresh.add(name);
    }
  }

  async #refreshOne(name: string): Promise<void> {
    const served = this.servers.get(name);
    if (served === undefined) return;
    try {
      this.#fresh.add(name);
      const raw = await served.adapter.listTools();
      if (this.problems.delete(name) || raw !== this.#listings.get(name)?.raw) this.#listings.set(name, { raw, entries: raw.map((tool) => new ToolEntry(served, tool)) });
      else return;
      this.#onListed({ server: name, tools: raw.length });
    } catch (thrown) {
      this.#fresh.delete(name);
      const error = asTollgateError(thrown);
      this.problems.set(name, error.message);
      this.#onListed({ server: name, code: error.code });
      this.#retryAt.set(name, Date.now() + RETRY_MS);
      if (!this.#listings.delete(name)) return;
    }
    this.revision += 1;
  }
}
