/**
 * Writes texts of servers as source text: names of members, string literals, comments. No text can end a comment or a
 * string early, and hidden characters are written visibly.
 */
import { isJsonObject } from '../../../catalogs/schemas/json-schema.ts';
import { cleanDescription, escapeHostile } from '../../../catalogs/text/hostile-text.ts';
import { isIdentifier } from './function-names.ts';

/** Characters of one description in declarations. */
const MAX_DESCRIPTION = 2_000;
/** A text is cut to this before it is cleaned, because cleaning refuses texts with millions of hidden characters. */
const MAX_CLEANED = 100_000;

/** Returns a string literal that means exactly `text`. */
export function stringLiteral(text: string): string {
  const escaped = escapeHostile(JSON.stringify(text)).text;
  return escaped.replace(/[\u2028\u2029]/g, (line) => `\\u${line.charCodeAt(0).toString(16)}`);
}

/**
 * Returns a member's name as objects and types write it: with quotes if it is no identifier. In an object,
 * `__proto__: …` would set the prototype, so this name is written in brackets.
 */
export function memberName(name: string): string {
  if (name === '__proto__') return '["__proto__"]';
  return isIdentifier(name) ? name : stringLiteral(name);
}

/** Returns a JSON value as code: `{owner: "a", "two words": [1, null]}`. */
export function valueLiteral(value: unknown): string {
  if (typeof value === 'string') return stringLiteral(value);
  if (Array.isArray(value)) return `[${value.map(valueLiteral).join(', ')}]`;
  if (!isJsonObject(value)) return JSON.stringify(value) ?? 'null';
  return `{${Object.entries(value)
    .map(([name, inner]) => `${memberName(name)}: ${valueLiteral(inner)}`)
    .join(', ')}}`;
}

/** Returns a description as a comment can have it (HA-22), of at most `max` characters. */
export function commentText(text: string, max = MAX_DESCRIPTION): string {
  return cleanDescription(text.slice(0, MAX_CLEANED), { max });
}

/**
 * Returns a comment of texts that `commentText` cleaned, one line or several, with its last line end. Empty for none.
 */
export function docComment(texts: readonly string[], indent: string): string {
  const lines = texts.flatMap((text) => text.split(/[\n\u2028\u2029]/)).filter((line) => line.trim() !== '');
  if (lines.length === 0) return '';
  if (lines.length === 1) return `${indent}/** ${lines[0]} */\n`;
  return `${indent}/**\n${lines.map((line) => `${indent} * ${line}\n`).join('')}${indent} */\n`;
}
