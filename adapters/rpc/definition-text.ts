/** Keeps the JSON of listed definitions, so that a client gets the bytes of the server where nothing had to change. */
import { closingQuote, jsonString } from '../../catalogs/text/json-string.ts';
import { jsonMembers } from './json-scan.ts';
import { isObject } from './wire-message.ts';

const texts = new WeakMap<object, string>();

const [QUOTE, COMMA] = [34, 44];
/** [ and {, ] and }. */
const [OPEN, CLOSE] = [new Set([91, 123]), new Set([93, 125])];

/** Keeps the text of each object in a list. `text`: the JSON of the list. Linear in its length. */
export function keepDefinitionTexts(list: readonly unknown[], text: string): void {
  for (const [at, item] of jsonItems(text).entries()) {
    const definition = list[at];
    if (isObject(definition)) texts.set(definition, item);
  }
}

/**
 * Returns the JSON of a definition as it is shown. A member whose value is that of `source` is written as the server of
 * `source` wrote it.
 */
export function definitionJson(shown: object, source: Readonly<Record<string, unknown>>): string {
  const text = texts.get(source);
  if (text === undefined) return JSON.stringify(shown);
  const written = new Map(jsonMembers(text).map(({ key, start, end }) => [key, text.slice(start, end)]));
  const members = Object.entries(shown)
    .filter(([, value]) => value !== undefined)
    .map(([key, value]) => {
      const same = value === source[key] ? written.get(key) : undefined;
      return `${jsonString(key)}:${same ?? JSON.stringify(value)}`;
    });
  return `{${members.join(',')}}`;
}

/** Returns the texts of the items of an array. The text must be valid JSON. */
export function jsonItems(text: string): readonly string[] {
  const items: string[] = [];
  let [depth, from] = [0, 1];
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    if (unit === QUOTE) at = closingQuote(text, at);
    else if (OPEN.has(unit)) depth += 1;
    else if (CLOSE.has(unit)) depth -= 1;
    if (depth > 1 || (depth === 1 && unit !== COMMA)) continue;
    items.push(text.slice(from, at));
    from = at + 1;
  }
  return items;
}
