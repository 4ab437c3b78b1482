/** The format of a provider profile: limits and choices as data. The code knows no provider by name. */
import { readFileSync } from 'node:fs';
import { TollgateError } from '../errors/error-table.ts';

/** How schemas are shown to one family of hosts. Files: catalogs/profiles/<name>.json. */
export interface SchemaProfile {
  readonly name: string;
  /** Keywords that a node may have. */
  readonly keywords: readonly string[];
  /** Keywords that the root may have. */
  readonly rootKeywords: readonly string[];
  /**
   * `words`: constraints move into descriptions; `keep`: they stay, and only the root is cleaned; `none`: the schema is
   * shown as the server sent it. The other fields then apply only to a schema whose root is not an object.
   */
  readonly constraints: 'words' | 'keep' | 'none';
  /** `keep`: nested anyOf; `merge`: no union at all. */
  readonly unions: 'keep' | 'merge';
  /** How null is shown: not at all, as a list of types, or by OpenAPI's keyword. */
  readonly nulls: 'absent' | 'list' | 'keyword';
  /**
   * True: for strict modes of providers. Every object is closed and requires all of its properties; an optional one
   * allows null, which means that it is left out.
   */
  readonly strict: boolean;
  /**
   * How a value of any type is shown: as a union of types, or as a string with JSON text. In a union, objects and lists
   * are texts too if `openObjects` says so.
   */
  readonly any: 'union' | 'text';
  /**
   * How an object without declared names is shown, and in strict profiles any that accepts undeclared names: open, or
   * as a string with JSON text.
   */
  readonly openObjects: 'open' | 'text';
  /** Regular expression for property names. */
  readonly propertyName: string;
  /** Object levels; deeper objects are shown open. */
  readonly maxDepth: number;
  /** Bytes of compact JSON that the projection should not exceed. */
  readonly maxBytes: number;
  /** Characters of one description. */
  readonly maxDescription: number;
}

const FOLDER = new URL('.//', import.meta.url);
const loaded = new Map<string, SchemaProfile>();

/**
 * Loads a profile by name, such as `portable` (the default), `flat`, `openai`. Throws CONFIG_INVALID for an unknown
 * name.
 */
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
    // The name comes from configuration or policy, so it must not leave the folder.
    if (!/^[a-z][a-z0-9-]{0,40}$/.test(name)) throw new Error('not a profile name');
    return JSON.parse(readFileSync(new URL(`${name}.json`, FOLDER), 'utf8')) as Record<string, unknown>;
  } catch (cause) {
    throw new TollgateError('CONFIG_INVALID', {
      detail: `There is no schema profile "${name.slice(0, 40)}".`,
      next: 'Use portable, flat, openai, gemini-legacy, nova, depth5, faithful or exact.',
      cause,
    });
  }
}
