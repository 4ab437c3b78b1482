/** One tool of one server: checked, pinned, and projected on demand. A hostile definition is quarantined alone. */
import { judgeTool } from '../../catalogs/lint/definition-audit.ts';
import { loadSchemaProfile } from '../../catalogs/profiles/schema-profile.ts';
import { type ArgumentBound, tightenSchema } from '../../catalogs/projection/argument-bounds.ts';
import { type Projection, projectSchema } from '../../catalogs/projection/schema-projection.ts';
import { pinOf } from '../../catalogs/tools/definition-pin.ts';
import type { RawTool, Semantics } from '../../catalogs/tools/tool-definition.ts';
import { createValidator, type Validator } from '../../catalogs/validation/validator.ts';
import type { PendingReason } from '../consent/servers/tool-set.ts';
import type { ServedServer } from './served-server.ts';

/** One tool of one server. Projections and validators are built on first use and cached. */
export class ToolEntry {
  readonly server: ServedServer;
  /** The definition as it is shown. */
  readonly tool: RawTool;
  readonly semantics: Semantics;
  /** The hash of the whole raw definition, so that a call reaches the listed tool. */
  readonly pin: string;
  /** Why an owner must review it first. Until then it is neither shown nor called. */
  readonly pending: PendingReason | undefined;
  quarantine: string | undefined;
  #input: Validator | undefined;
  #output: Validator | undefined;
  readonly #projections = new Map<string, Projection>();

  /** `hints`: an owner has confirmed the server's annotations. */
  constructor(
    server: ServedServer,
    tool: RawTool,
    { hints, pending }: { hints: boolean; pending: PendingReason | undefined },
  ) {
    this.server = server;
    const { quarantine, shown } = judgeTool(tool);
    this.tool = shown;
    this.pending = pending;
    this.quarantine = quarantine;
    this.semantics = server.semanticsOf(tool.name, hints && quarantine === undefined ? tool.annotations : undefined);
    this.pin = pinOf([tool]);
  }

  get input(): Validator {
    this.#input ??= createValidator(this.tool.inputSchema);
    return this.#input;
  }

  /** The validator of structuredContent; undefined if the tool declares no output schema. */
  get output(): Validator | undefined {
    if (this.tool.outputSchema === undefined) return undefined;
    this.#output ??= createValidator(this.tool.outputSchema, 'output');
    return this.#output;
  }

  /**
   * Returns the schema for a provider profile, with bounds of the policy. Undefined means that this tool is
   * quarantined.
   */
  projection(profile: string, bounds: readonly ArgumentBound[] = []): Projection | undefined {
    if (bounds.length > 0) return this.#bounded(profile, bounds);
    const known = this.#projections.get(profile);
    if (known !== undefined) return known;
    const made = projectSchema(this.tool.inputSchema as Record<string, unknown>, loadSchemaProfile(profile));
    if ('quarantined' in made) {
      this.quarantine = made.quarantined;
      return undefined;
    }
    this.#projections.set(profile, made);
    return made;
  }

  /**
   * Applies bounds. They are only described in words if they allow no value, or if the schema is shown as the server
   * sent it.
   */
  #bounded(profile: string, bounds: readonly ArgumentBound[]): Projection | undefined {
    const made = projectSchema(tightenSchema(this.tool.inputSchema, bounds), loadSchemaProfile(profile));
    return 'quarantined' in made || made.isExact ? this.projection(profile) : made;
  }
}
