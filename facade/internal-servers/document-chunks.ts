/** Splits a document into passages of whole paragraphs, if possible. No character except white space is lost. */

/** UTF-16 units of one passage at most. */
const MAX_CHUNK = 1200;
const MAX_TITLE = 200;

/** Returns the passages of a text, in order. Together they are the text, except for white space around paragraphs. */
export function chunksOf(text: string): readonly string[] {
  const paragraphs = text
    .replaceAll('\r\n', '\n')
    .split(/\n[ \t]*\n/)
    .map((part) => part.trim())
    .filter((part) => part !== '');
  const chunks: string[] = [];
  for (const part of paragraphs.flatMap(splitLong)) {
    const last = chunks.at(-1);
    // A heading begins a new passage, so that it stays with its text.
    const joins = last !== undefined && !/^#{1,6} /.test(part) && last.length + part.length + 2 <= MAX_CHUNK;
    if (joins) chunks[chunks.length - 1] = `${last}\n\n${part}`;
    else chunks.push(part);
  }
  return chunks;
}

/** Returns the first Markdown heading, or else the name, in one line. */
export function titleOf(text: string, name: string): string {
  const heading = /^#{1,6} +(.+?)(?: +#*)?$/m.exec(text.slice(0, 20_000))?.[1];
  const title = (heading ?? name).replace(/\s+/g, ' ').trim();
  return title.slice(0, characterBoundary(title, MAX_TITLE));
}

/** Cuts a long paragraph at white space in the second half of a passage if there is one, never inside a character. */
function splitLong(paragraph: string): readonly string[] {
  const parts: string[] = [];
  let rest = paragraph;
  while (rest.length > MAX_CHUNK) {
    const blank = Math.max(rest.lastIndexOf(' ', MAX_CHUNK), rest.lastIndexOf('\n', MAX_CHUNK));
    const cut = blank > MAX_CHUNK / 2 ? blank : characterBoundary(rest, MAX_CHUNK);
    parts.push(rest.slice(0, cut).trim());
    rest = rest.slice(cut).trim();
  }
  return rest === '' ? parts : [...parts, rest];
}

/** Returns an offset at or before `at` that does not divide a surrogate pair. */
export function characterBoundary(text: string, at: number): number {
  const code = text.charCodeAt(at);
  return code >= 0xdc00 && code <= 0xdfff ? at - 1 : at;
}
