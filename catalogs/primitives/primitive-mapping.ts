/** The format of a mapping that lets an external server serve primitives. A mapping with unknown tools is refused. */
import { readFileSync } from 'node:fs';
import { parse } from 'yaml';
import { TollgateError } from '../errors/error-table.ts';
import type { Semantics } from '../tools/tool-definition.ts';

/** How an action is carried out; each strategy has one file in adapters/primitives/mapped/. */
const STRATEGIES = [
  'whole-file',
  'paged-file',
  'list',
  'tree-find',
  'search-session',
  'info',
  'store',
  'read-modify-write',
  'checked-edit',
  'process',
] as const;
export type Strategy = (typeof STRATEGIES)[number];

/** Converts a value of the caller to what the server expects. */
type Transform = 'matching-line' | 'any-depth';

/**
 * One argument of a server's tool: a literal, or a value of the call, shifted or converted. Absent values stay absent.
 */
export type ArgumentTemplate = string | number | boolean | ValueTemplate;

/** `add` shifts a positive number; `map` replaces the values that it names, and others by the default. */
interface ValueTemplate {
  readonly from: string;
  readonly default?: string | number | boolean;
  readonly add?: number;
  readonly as?: Transform;
  readonly map?: Readonly<Record<string, string>>;
}

/** A call of one tool of the server, as a template. */
export interface MappingStep {
  readonly tool: string;
  readonly arguments: Readonly<Record<string, ArgumentTemplate>>;
}

/**
 * An action that the server supports: its main tool, which the policy decides on, and the strategy that carries it out.
 */
export interface ServedAction extends MappingStep {
  readonly strategy: Strategy;
  /** The meaning of the lowered arguments, if it differs from the tool's own. */
  readonly semantics: Semantics;
}

/** An action that the server cannot do correctly: what is missing, for the model to read. */
export interface MissingAction {
  readonly missing: string;
}

/** A mapping, complete and checked. Keys of `actions`: `read.file` … `bash.list`, `write`, `edit`. */
export interface Mapping {
  readonly id: string;
  /** Package and version with which every text below was measured. */
  readonly measured: string;
  /** What each tool of the server does, for tools that are passed through too. */
  readonly tools: ReadonlyMap<string, Semantics>;
  /**
   * Tools that can undo the server's limits or run anything, with words of risk: see policies/lib/gate.rego (CY-07).
   */
  readonly highRisk: ReadonlyMap<string, readonly string[]>;
  readonly actions: ReadonlyMap<string, ServedAction | MissingAction>;
  /** Tools that strategies call besides the main one, by role. */
  readonly steps: ReadonlyMap<string, MappingStep>;
  /** Texts of the server, by role: regular expressions with named groups, matched over lines. */
  readonly texts: ReadonlyMap<string, RegExp>;
  /** Largest file, in bytes, that the server can return completely. */
  readonly maxFileBytes: number;
}

/** Ids of the built-in mappings. */
export const MAPPINGS = ['desktop-commander', 'server-filesystem'] as const;

interface RawMapping {
  readonly id: string;
  readonly measured: string;
  readonly maxFileBytes: number;
  readonly tools: Record<string, Semantics>;
  readonly highRisk?: Record<string, readonly string[]>;
  readonly actions: Record<string, { missing: string } | (MappingStep & { strategy: Strategy; semantics?: Semantics })>;
  readonly steps: Record<string, MappingStep>;
  readonly texts: Record<string, string>;
}

/** The built-in mappings that were read. Reading one takes longer than reading most configurations. */
const known = new Map<string, Mapping>();

/** Reads a built-in mapping, once in a process. Throws CONFIG_INVALID for an unknown id or a contradictory mapping. */
export function loadMapping(id: string): Mapping {
  if (!(MAPPINGS as readonly string[]).includes(id)) {
    throw new TollgateError('CONFIG_INVALID', {
      detail: `there is no mapping of this name; the mappings are ${MAPPINGS.join(', ')}`,
    });
  }
  const mapping = known.get(id) ?? parseMapping(readFileSync(new URL(`./${id}.yaml`, import.meta.url), 'utf8'));
  known.set(id, mapping);
  return mapping;
}

/** Reads a mapping's text. Throws CONFIG_INVALID if it names a tool without semantics or an unknown strategy. */
export function parseMapping(text: string): Mapping {
  const raw = parse(text) as RawMapping;
  const tools = new Map(Object.entries(raw.tools));
  const semanticsOf = (tool: string): Semantics => {
    const found = tools.get(tool);
    if (!found)
      throw new TollgateError('CONFIG_INVALID', {
        detail: `mapping ${raw.id} uses the tool ${tool}, which its table does not classify`,
      });
    return found;
  };
  const actions = new Map<string, ServedAction | MissingAction>();
  for (const [key, action] of Object.entries(raw.actions)) {
    if ('missing' in action) {
      actions.set(key, action);
      continue;
    }
    if (!STRATEGIES.includes(action.strategy))
      throw new TollgateError('CONFIG_INVALID', { detail: `mapping ${raw.id}: ${key} names an unknown strategy` });
    actions.set(key, { ...action, semantics: action.semantics ?? semanticsOf(action.tool) });
  }
  for (const step of Object.values(raw.steps)) semanticsOf(step.tool);
  const highRisk = new Map(Object.entries(raw.highRisk ?? {}));
  for (const tool of highRisk.keys()) semanticsOf(tool);
  const texts = new Map(Object.entries(raw.texts).map(([name, source]) => [name, new RegExp(source, 'mu')]));
  return {
    id: raw.id,
    measured: raw.measured,
    tools,
    highRisk,
    actions,
    steps: new Map(Object.entries(raw.steps)),
    texts,
    maxFileBytes: raw.maxFileBytes,
  };
}

/** Fills a step's arguments from values. Pure; arguments without a value are left out. */
export function renderArguments(
  step: MappingStep,
  values: Readonly<Record<string, unknown>>,
): Readonly<Record<string, unknown>> {
  const filled = Object.entries(step.arguments).map(([name, template]) => [name, fill(template, values)] as const);
  return Object.fromEntries(filled.filter(([, value]) => value !== undefined));
}

function fill(template: ArgumentTemplate, values: Readonly<Record<string, unknown>>): unknown {
  if (typeof template !== 'object') return template;
  const given = Object.hasOwn(values, template.from) ? values[template.from] : undefined;
  const value = (template.map ? new Map(Object.entries(template.map)).get(String(given)) : given) ?? template.default;
  if (value === undefined) return undefined;
  if (template.add !== undefined && typeof value === 'number') return value > 0 ? value + template.add : value;
  return template.as ? transform(template.as, value, values) : value;
}

function transform(kind: Transform, value: unknown, values: Readonly<Record<string, unknown>>): unknown {
  const text = String(value);
  // A glob with a slash would be relative to the folder in which the server happens to run.
  if (kind === 'any-depth') return text.startsWith('**/') ? text : `**/${text}`;
  // The server shows only what matched, so the match is widened to its line. Plain text is escaped for the same reason.
  return `^.*(?:${values.literal === true ? text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&') : text}).*$`;
}
