/**
 * The prompts that a principal sees, and their names. Lists and requests use the same table. A prompt that differs from
 * the approved one is not in it.
 */
import { isDeepStrictEqual } from 'node:util';
import type { CancelSignal } from '../../adapters/rpc/cancellation.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { RawPrompt } from '../../catalogs/tools/definition-schema.ts';
import { type ExposableTool, exposedNames, findExposed } from '../../catalogs/tools/exposed-names.ts';
import { createValidator } from '../../catalogs/validation/validator.ts';
import type { ListDecision, Policy, Principal } from '../../policies/port.ts';
import type { PromptRule } from '../config/config.ts';
import type { Preconditions, PreconditionView, RequestSession } from '../consent/preconditions.ts';
import type { Redactor } from '../output/redactor.ts';
import type { Catalog } from './catalog.ts';
import { type ExposedTool, HiddenBy } from './exposed-tool.ts';
import type { HiddenTool } from './name-table.ts';
import { nameOfServer } from './name-tables.ts';
import { toolMatcher } from './served-server.ts';
import { listDecisions, listedText, readDefinitions, type ShownDefinition } from './server-definitions.ts';

/** What the tables are made of. */
export interface PromptTablesParts {
  readonly catalog: Pick<Catalog, 'servers'>;
  readonly policy: () => Policy;
  readonly rulesOf: (principal: Principal) => readonly PromptRule[];
  readonly maxArgBytes: (principal: Principal) => number;
  readonly view: Preconditions['view'];
  /** Returns the approved prompts of a server; undefined if any prompt is approved. */
  readonly approved: (server: string) => readonly RawPrompt[] | undefined;
  /** Tells whether a prompt has a template. Without one it is always refused, so it is not listed. */
  readonly hasTemplate: (id: string) => boolean;
  readonly redactor: Redactor;
  /** Reads what other processes changed in the shared state. See `State.refresh`. */
  readonly refresh: () => Promise<void> | undefined;
}

/** A prompt as a client sees it. */
export interface ExposedPrompt extends ExposedTool {
  /** The server's own definition. */
  readonly prompt: RawPrompt;
}

interface PromptTable {
  readonly policy: string;
  readonly view: string;
  readonly definitions: readonly ShownDefinition<'prompts'>[];
  readonly byName: ReadonlyMap<string, ExposedPrompt>;
  /** Name → its server, and the policy's reasons for hiding it. For the audit only. */
  readonly hidden: ReadonlyMap<string, HiddenTool>;
}

interface Candidate extends ShownDefinition<'prompts'> {
  readonly rule: PromptRule;
}

/** Builds and caches the tables. */
export class PromptTables {
  readonly #parts: PromptTablesParts;
  readonly #tables = new WeakMap<Principal, PromptTable>();

  constructor(parts: PromptTablesParts) {
    this.#parts = parts;
  }

  /** Finds a prompt by its name. Throws UNKNOWN_PROMPT, POLICY_FAILED, and the refusal of a precondition. */
  async resolve(principal: Principal, name: string, from: RequestSession): Promise<ExposedPrompt> {
    await this.#parts.refresh();
    const view = this.#parts.view(principal, from);
    if (view.refused !== undefined) throw view.refused;
    const { byName, hidden } = await this.#tableOf(principal, view);
    const found = findExposed(byName, name)?.value;
    if (found !== undefined) return found;
    const reasons = hidden.get(name)?.reasons;
    throw new TollgateError('UNKNOWN_PROMPT', reasons === undefined ? {} : { cause: new HiddenBy(reasons) });
  }

  /** Returns the server that a name belongs to, as far as it is known: for the record of a refusal. */
  serverOf(principal: Principal, name: string): string | undefined {
    const table = this.#tables.get(principal);
    const shown = table === undefined ? undefined : findExposed(table.byName, name)?.value.server.name;
    return shown ?? table?.hidden.get(name)?.server ?? nameOfServer(name, [...this.#parts.catalog.servers.keys()]);
  }

  /** Returns the JSON of a list. Throws POLICY_FAILED, CANCELLED, and the refusal of a precondition. */
  async list(principal: Principal, from: RequestSession & { readonly signal: CancelSignal }): Promise<string> {
    await this.#parts.refresh();
    const view = this.#parts.view(principal, from);
    if (view.unlisted !== undefined) throw view.unlisted;
    if (view.listsNothing === true) return '{"prompts":[]}';
    const { byName } = await this.#tableOf(principal, view, from.signal);
    const listed = [...byName.values()].filter(({ server, prompt }) =>
      this.#parts.hasTemplate(`${server.name}.${prompt.name}`),
    );
    return `{"prompts":[${listed.map(({ text }) => text).join(',')}]}`;
  }

  async #tableOf(principal: Principal, view: PreconditionView, signal?: CancelSignal): Promise<PromptTable> {
    const policy = this.#parts.policy();
    const definitions = await this.#definitions(principal, signal);
    const cached = this.#tables.get(principal);
    if (
      cached?.policy === policy.revision &&
      cached.view === view.revision &&
      isDeepStrictEqual(cached.definitions, definitions)
    )
      return cached;
    const candidates = this.#candidates(principal, definitions).filter(
      ({ served, definition }) => !view.hides({ server: served.name, tool: definition.name }),
    );
    const decisions = await listDecisions(
      policy,
      principal,
      candidates.map(({ served, definition: { name } }) => ({
        kind: 'prompt',
        server: served.name,
        tool: name,
        verb: 'read',
        facts: [],
      })),
    );
    const table = this.#build(candidates, decisions, this.#parts.maxArgBytes(principal));
    const made = { ...table, policy: policy.revision, view: view.revision, definitions };
    this.#tables.set(principal, made);
    return made;
  }

  async #definitions(principal: Principal, signal?: CancelSignal): Promise<readonly ShownDefinition<'prompts'>[]> {
    const { catalog, rulesOf, redactor, approved } = this.#parts;
    const named = new Set(rulesOf(principal).map(({ prompt }) => prompt.slice(0, prompt.indexOf('.'))));
    const servers = [...named].flatMap((name) => catalog.servers.get(name) ?? []);
    return readDefinitions({
      servers,
      kind: 'prompts',
      redactor,
      profiles: principal.profiles,
      ...(signal !== undefined && { signal }),
      admits: ({ name }, definition) => approved(name)?.some((one) => isDeepStrictEqual(one, definition)) ?? true,
    });
  }

  /** Of several rules that show a prompt, the last one counts. */
  #candidates(principal: Principal, definitions: PromptTable['definitions']): readonly Candidate[] {
    const rules = this.#parts.rulesOf(principal).map((rule) => ({ rule, matches: toolMatcher(rule.prompt) }));
    return definitions.flatMap((shown) => {
      const found = rules.findLast(({ matches }) => matches(`${shown.served.name}.${shown.definition.name}`));
      return found === undefined ? [] : [{ ...shown, rule: found.rule }];
    });
  }

  #build(
    candidates: readonly Candidate[],
    decisions: readonly ListDecision[],
    maxBytes: number,
  ): Pick<PromptTable, 'byName' | 'hidden'> {
    const names = candidates.map(
      ({ served, definition, rule: { name } }): ExposableTool => ({
        server: served.name,
        tool: definition.name,
        ...(name !== undefined && { alias: name }),
      }),
    );
    const { nameOf } = exposedNames(names);
    const byName = new Map<string, ExposedPrompt>();
    const hidden = new Map<string, HiddenTool>();
    for (const [at, { served, definition, source, rule }] of candidates.entries()) {
      const [name, decision] = [nameOf.get(names[at] as ExposableTool), decisions[at]];
      if (name === undefined || decision === undefined) continue;
      if (decision.verdict === 'never') {
        hidden.set(name, { server: served.name, reasons: decision.reasons });
        continue;
      }
      const { description = definition.description } = rule;
      const shown = { ...definition, name, ...(description !== undefined && { description }) };
      byName.set(name, {
        name,
        server: served,
        prompt: definition,
        args: { ...argumentsOf(definition), lift: (args) => ({ args, changed: false }), pins: {}, maxBytes },
        pin: JSON.stringify(definition),
        text: listedText(shown, { verdict: decision.verdict, source }),
        decision,
      });
    }
    return { byName, hidden };
  }
}

/** The arguments of a prompt are texts (MCP 2025-11-25, server/prompts). */
function argumentsOf({ arguments: declared = [] }: RawPrompt): Pick<ExposedTool['args'], 'schema' | 'validator'> {
  const schema = {
    type: 'object',
    properties: Object.fromEntries(declared.map(({ name }) => [name, { type: 'string' }])),
    required: declared.filter(({ required }) => required === true).map(({ name }) => name),
    additionalProperties: false,
  };
  return { schema, validator: createValidator(schema) };
}
