/** Texts of any length: a start, a repeated unit, an end. The corpus contains shapes that were expensive once. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';

/** A shape of texts: `before`, then `unit` repeated, then `after`. */
export interface Shape {
  readonly before: string;
  readonly unit: string;
  readonly after: string;
}

/** The shapes for every target, from corpus/shapes.json. */
export const CORPUS = JSON.parse(
  readFileSync(path.join(import.meta.dirname, 'corpus', 'shapes.json'), 'utf8'),
) as readonly Shape[];

/** Returns a text of about `size` characters. */
export function grow({ before, unit, after }: Shape, size: number): string {
  const count = Math.max(1, Math.ceil((size - before.length - after.length) / unit.length));
  const text = before + unit.repeat(count) + after;
  // V8 joins the parts when a character is read first. Do it here, so that it is not measured.
  text.charCodeAt(text.length - 1);
  return text;
}

/** Tokens of every format: JSON, HTML, shell, globs, addresses, patterns, control characters. */
const PIECES = [
  'a',
  'b',
  '0',
  '9',
  ' ',
  '  ',
  '\t',
  '\n',
  '\r\n',
  '\r',
  '"',
  '\\',
  '\\"',
  '\\u0041',
  '\\ud800',
  "'",
  '/',
  '//',
  '../',
  './',
  '..',
  '*',
  '**',
  '?',
  '[',
  ']',
  '[]',
  '{',
  '}',
  '{}',
  '{a,',
  ',',
  ':',
  ';',
  '"k":',
  '1e9',
  '-',
  '0.1',
  '<',
  '>',
  '</',
  '<a href=',
  '<p>',
  '<!--',
  '-->',
  '<script>',
  '&amp;',
  '&#',
  '$(',
  '$((',
  ')',
  '(',
  '`',
  '|',
  '&&',
  '||',
  '>',
  '<<',
  '#',
  '!',
  '=',
  '@',
  '%',
  '%25',
  '%2e',
  '\u0000',
  '\u001b[',
  '\u001b]',
  '\u0007',
  '\u200b',
  '\u202e',
  'é',
  '😀',
  '\ud83d',
  '\ufeff',
  '\u{e0041}',
  'http://',
  'example.org',
  '127.0.0.1',
  '::',
  'file:',
  'aaaaaaaa',
  '=='.repeat(4),
  'AAAA',
  '12: ',
  '[tollgate: ',
  '\\\\',
  '\\x',
  '~',
  '1,',
  '"x",',
  '[[',
  '{"a":',
];

/** Generates shapes of these tokens. */
export const shapes: fc.Arbitrary<Shape> = fc.record({
  before: fc.array(fc.constantFrom(...PIECES), { maxLength: 3 }).map((pieces) => pieces.join('')),
  unit: fc.array(fc.constantFrom(...PIECES), { minLength: 1, maxLength: 4 }).map((pieces) => pieces.join('')),
  after: fc.array(fc.constantFrom(...PIECES), { maxLength: 3 }).map((pieces) => pieces.join('')),
});
