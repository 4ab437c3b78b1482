/**
 * Makes legal names for properties: one bijection for a whole schema, the same in every session and for every order of
 * keys.
 */
import { createHash } from 'node:crypto';
import { childrenOf, type JsonSchema, schemaEntries, stringsOf } from '../schemas/json-schema.ts';

/** Original name → shown name, for names that had to change. */
export type Renames = ReadonlyMap<string, string>;

const MAX = 64;

/**
 * Returns a new name for each name that `legal` refuses: a slug, with a short hash of the full name if another name
 * has the same slug. One map serves the whole schema, so a shown name never means two originals.
 */
export function renameProperties(tree: JsonSchema, legal: RegExp): Renames {
  const names = collect(tree);
  const illegal = [...names].filter((name) => !legal.test(name));
  if (illegal.length === 0) return new Map();
  const wanted = new Map<string, number>();
  for (const name of illegal) wanted.set(slug(name), (wanted.get(slug(name)) ?? 0) + 1);
  return new Map(
    illegal.map((name) => {
      const short = slug(name);
      const free = short.length <= MAX && !names.has(short) && wanted.get(short) === 1 && short !== '';
      return [name, free ? short : hashed(name, names)] as const;
    }),
  );
}

function collect(tree: JsonSchema): ReadonlySet<string> {
  const names = new Set<string>();
  const stack = [tree];
  for (let node = stack.pop(); node !== undefined; node = stack.pop()) {
    for (const [name] of schemaEntries(node.properties)) names.add(name);
    for (const name of stringsOf(node.required)) names.add(name);
    stack.push(...childrenOf(node));
  }
  return names;
}

function slug(name: string): string {
  const plain = name.replace(/[^A-Za-z0-9_]+/g, '_').replace(/^_+(?=[A-Za-z])|_+$/g, '');
  return /^[A-Za-z_]/.test(plain) ? plain : plain === '' ? '' : `_${plain}`;
}

function hashed(name: string, taken: ReadonlySet<string>): string {
  const base = slug(name).slice(0, MAX - 9) || 'name';
  for (let salt = ''; ; salt += '+') {
    const shown = `${base}_${createHash('sha256')
      .update(name + salt)
      .digest('hex')
      .slice(0, 8)}`;
    if (!taken.has(shown)) return shown;
  }
}
