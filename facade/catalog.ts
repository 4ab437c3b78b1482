/** Owns what the servers offer at present: one entry per tool, audited, lazily projected; refuses a hostile tool alone. */
import { createHash } from 'node:crypto';
import type { PrimitiveBackend, ServerAdapter } from '../adapters/port.ts';
import { auditTool } from '../catalogs/audit.ts';
import { asTollgateError } from '../catalogs/errors.ts';
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
    this.#output ??= createValidator(this.tool.outputSchema);
    return this.#output;
  }

  /** The schema for a provider profile; undefined puts this tool, and no other, into quarantine. */
  projection(profile: string): Projection | undefined {
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
}

interface Listing {
  readonly raw: readonly RawTool[];
  readonly entries: readonly ToolEntry[];
}

/** The tools of all servers. `revision` rises whenever any list changes. */
export class Catalog {
  readonly servers: ReadonlyMap<string, Served>;
  readonly #listings = new Map<string, Listing>();
  /** Server → one public line why its tools are missing. */
  readonly problems = new Map<string, string>();
  revision = 0;

  constructor(servers: ReadonlyMap<string, Served>) {
    this.servers = servers;
  }

  /** Brings the named servers' lists up to date, all at once; one that fails is missing alone, with its reason kept. */
  async refresh(names: readonly string[], signal: AbortSignal): Promise<void> {
    await Promise.all(names.map((name) => this.#refreshOne(name, signal)));
  }

  entries(server: string): readonly ToolEntry[] {
    return this.#listings.get(server)?.entries ?? [];
  }

  async #refreshOne(name: string, signal: AbortSignal): Promise<void> {
    const served = this.servers.get(name);
    if (served === undefined) return;
    const before = this.#listings.get(name);
    try {
      const raw = await served.adapter.listTools(signal);
      this.problems.delete(name);
      if (raw === before?.raw) return;
      this.#listings.set(name, { raw, entries: raw.map((tool) => new ToolEntry(served, tool)) });
    } catch (thrown) {
      this.problems.set(name, asTollgateError(thrown).message);
      if (before === undefined) return;
      this.#listings.delete(name);
    }
    this.revision += 1;
  }
}
