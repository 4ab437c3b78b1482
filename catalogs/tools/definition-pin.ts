/**
 * The pin of a set of tools: one hash over their complete definitions. No field is left out, because an attack would
 * hide there.
 */

import { createHash } from 'node:crypto';
import { groupBy } from '../text/collections.ts';
import type { RawTool } from './tool-definition.ts';

/** The form of a written pin. */
export const PIN_PATTERN = /^sha256:[0-9a-f]{64}$/;

/**
 * SHA-256 over everything that the definitions say, independent of the order of tools and of keys. The prefix separates
 * it from other hashes, and the number rises with the format.
 */
export function pinOf(tools: readonly RawTool[]): string {
  const sorted = [...tools].sort((one, other) => (one.name < other.name ? -1 : one.name > other.name ? 1 : 0));
  return `sha256:${createHash('sha256')
    .update(`tollgate-tools\0${1}\0${canonicalJson(sorted)}`)
    .digest('hex')}`;
}

/** Returns the definition of each tool of a list, by name. A name that appears twice is defined by both. */
export function pinsOf(tools: readonly RawTool[]): ReadonlyMap<string, string> {
  const byName = groupBy(tools, ({ name }) => name);
  return new Map([...byName].map(([name, definitions]) => [name, pinOf(definitions)]));
}

/** Returns JSON with keys in order; for values that came from JSON. */
export function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join()}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const object = value as Readonly<Record<string, unknown>>;
  let members = '';
  for (const key of Object.keys(object).sort())
    members += `${members === '' ? '' : ','}${JSON.stringify(key)}:${canonicalJson(object[key])}`;
  return `{${members}}`;
}
