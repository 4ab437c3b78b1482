/** Owns how a document is taken apart: passages of whole paragraphs where that is possible; refuses to lose a character of the text. */

/** Characters of one passage at most. */
const MAX_CHUNK = 1200;
const MAX_TITLE = 200;

/** The passages of a text in order; none for a blank one. Joined they are the text, but for white space around paragraphs. */
export function chunksOf(text: string): readonly string[] {
  const paragraphs = text
    .replaceAll('\r\n', '\n')
    .split(/\n[ \t]*\n/)
    .map((part) => part.trim())
    .filter((part) => part !== '');
  const chunks: string[] = [];
  for (const piece of paragraphs.flatMap(piecesOf)) {
    const last = chunks.at(-1);
    // A heading begins a passage of its own, so that it stands with what it is about.
    const joins = last !== undefined && !/^#{1,6} /.test(piece) && last.length + piece.length + 2 <= MAX_CHUNK;
    if (joins) chunks[chunks.length - 1] = `${last}\n\n${piece}`;
    else chunks.push(piece);
  }
  return chunks;
}

/** The first heading of Markdown, else the name that is given; one line. */
export function titleOf(text: string, name: string): string {
  const heading = /^#{1,6} +(.+?)(?: +#*)?$/m.exec(text.slice(0, 20_000))?.[1];
  const title = (heading ?? name).replace(/\s+/g, ' ').trim();
  return title.slice(0, characterBoundary(title, MAX_TITLE));
}

/** A paragraph that is too long, cut at the last white space that leaves no tiny piece, and never inside a character. */
function piecesOf(paragraph: string): readonly string[] {
  const pieces: string[] = [];
  let rest = paragraph;
  while (rest.length > MAX_CHUNK) {
    const blank = Math.max(rest.lastIndexOf(' ', MAX_CHUNK), rest.lastIndexOf('\n', MAX_CHUNK));
    const cut = blank > MAX_CHUNK / 2 ? blank : characterBoundary(rest, MAX_CHUNK);
    pieces.push(rest.slice(0, cut).trim());
    rest = rest.slice(cut).trim();
  }
  return rest === '' ? pieces : [...pieces, rest];
}

/** A place at or before `at` that parts no surrogate pair. */
export function characterBoundary(text: string, at: number): number {
  const code = text.charCodeAt(at);
  return code >= 0xdc00 && code <= 0xdfff ? at - 1 : at;
}
