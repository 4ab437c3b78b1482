/** Owns what a provider profile may say: limits and choices as data; knows no provider by name. */
import { readFileSync } from 'node:fs';
import { TollgateError } from '../errors/error-table.ts';

/** How schemas are shown to one family of hosts (schema-primitives A7). Files: catalogs/profiles/<name>.json. */
export interface SchemaProfile {
  readonly name: string;
  /** Keywords that a node may carry. */
  readonly keywords: readonly string[];
  /** Keywords that the root may carry. */
  readonly rootKeywords: readonly string[];
  /** `words`: constraints move into descriptions; `keep`: they stay, only the root is cleaned. */
  readonly constraints: 'words' | 'keep';
  /** `keep`: nested anyOf; `merge`: no union at all. */
  readonly unions: 'keep' | 'merge';
  /** How null is shown: not at all, as a list of types, or by OpenAPI's keyword. */
  readonly nulls: 'absent' | 'list' | 'keyword';
  /**
   * True: as strict modes of providers want it. Every object is closed and requires all of its properties; what is optional admits null, and
   * null means that it is left out.
   */
  readonly strict: boolean;
  /** How a value of any type is shown: as a union of types, or as a string that holds JSON text. In a union, objects and lists are texts too where `openObjects` says so. */
  readonly any: 'union' | 'text';
  /** How an object without declared names is shown, and in strict profiles any that takes names it does not declare: open, or as a string that holds JSON text. */
  readonly openObjects: 'open' | 'text';
  /** Regular expression for property names. */
  readonly propertyName: string;
  /** Object levels; deeper objects are shown open. */
  readonly maxDepth: number;
  /** Bytes of compact JSON that the projection aims at. */
  readonly maxBytes: number;
  /** Characters of one description. */
  readonly maxDescription: number;
}

const FOLDER = new URL('.//', import.meta.url);
const loaded = new Map<string, SchemaProfile>();

/** Loads a profile by name, such as `portable` (the default), `flat`, `openai`. Throws CONFIG_INVALID for a name without a file. */
export function loadSchemaProfile(name = 'portable'): SchemaProfile {
  const known = loaded.get(name);
  if (known !== undefined) return known;
  const data = read(name);
  const parent = typeof data.extends === 'string' ? loadSchemaProfile(data.extends) : {};
  const { extends: _parent, ...own } = data;
  const profile = Object.freeze({ ...parent, ...own, name }) as SchemaProfile;
  loaded.set(name, profile);
  return profile;
}

function read(name: string): Record<string, unknown> {
  try {
    // The name comes from configuration or policy: it must not walk out of the folder.
    if (!/^[a-z][a-z0-9-]{0,40}$/.test(name)) throw new Error('not a profile name');
    return JSON.parse(readFileSync(new URL(`${name}.json`, FOLDER), 'utf8')) as Record<string, unknown>;
  } catch (cause) {
    throw new TollgateError('CONFIG_INVALID', {
      detail: `There is no schema profile "${name.slice(0, 40)}".`,
      next: 'Use portable, flat, openai, gemini-legacy, nova or faithful.',
      cause,
    });
  }
}
