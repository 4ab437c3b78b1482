/**
 * Writes texts as JSON, and finds the end of a JSON string. Most texts are short and plain, and JSON.stringify takes
 * several times as long for these.
 */

const [FIRST_PLAIN, LAST_PLAIN, QUOTE, BACKSLASH] = [32, 126, 34, 92];

/** Returns the same as JSON.stringify. */
export function jsonString(text: string): string {
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    if (unit < FIRST_PLAIN || unit > LAST_PLAIN || unit === QUOTE || unit === BACKSLASH) return JSON.stringify(text);
  }
  return `"${text}"`;
}

/** Returns `,"key":value` for a JSON object, and '' for a value that is absent. `key` needs no escapes. */
export function jsonMember(key: string, value: string | number | boolean | undefined): string {
  if (value === undefined) return '';
  return `,"${key}":${typeof value === 'string' ? jsonString(value) : value}`;
}

/**
 * Returns the place of the quote that ends the string which begins at `open`; the length of the text if none does.
 * Each run of backslashes is counted once, before the quote after it.
 */
export function closingQuote(text: string, open: number): number {
  for (let close = text.indexOf('"', open + 1); close !== -1; close = text.indexOf('"', close + 1)) {
    let first = close;
    while (text.charCodeAt(first - 1) === BACKSLASH) first--;
    if ((close - first) % 2 === 0) return close;
  }
  return text.length;
}
