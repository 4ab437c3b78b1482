/** Owns the description of a shown node: the server's prose and the generated words in one text that keeps to its limit. */
import { cleanDescription } from '../text.ts';
import type { Rendering } from './emit.ts';
import { type Schema, schemasOf, strings, without } from './schema.ts';
import { constraintWords, cutWord } from './words.ts';

/** Description and words in one text; when it is too long the words stay and the prose is cut (schema-primitives A6.17). */
export function described(schema: Schema, node: Schema, rendering: Rendering): Schema {
  // Words stay whole in full detail; where bytes are short they are cut like the prose.
  const words = cleanDescription([...strings(node.words), ...constraintWords(node)].join(', '), {
    max: Math.max(60, rendering.maxDescription),
  });
  const room = Math.max(0, rendering.maxDescription - words.length - 2);
  const prose = typeof node.description === 'string' && room > 1 ? cutWord(node.description, room) : '';
  const text = sentence(prose, words);
  if (text === '') return schema;
  if (!Array.isArray(schema.anyOf)) return { ...without(schema, ['description']), description: text };
  // Vertex refuses any keyword beside anyOf, so the text stands in the first branch.
  const [first = {}, ...rest] = schemasOf(schema.anyOf);
  const inner =
    typeof first.description === 'string' && !text.includes(first.description)
      ? sentence(text, first.description)
      : text;
  return { ...schema, anyOf: [{ ...first, description: cutWord(inner, rendering.profile.maxDescription) }, ...rest] };
}

function sentence(first: string, second: string): string {
  if (first === '' || second === '') return first + second;
  return `${first}${/[.!?:…]$/.test(first) ? ' ' : '. '}${second}`;
}
