/** Converts an HTML page to the text that a reader sees, with links. Drops scripts, styles and comments. */

/** Elements that are dropped with their content. */
const DROPPED = 'script|style|template|noscript|svg|iframe|object|head';
const MAX_ATTRIBUTES = 4096;
const BLOCK_TAGS =
  'p|div|section|article|header|footer|main|nav|aside|ul|ol|table|tr|blockquote|pre|figure|form|fieldset|' +
  'dl|dt|dd|h[1-6]|br|hr';
const BLOCK = new RegExp(`</?(?:${BLOCK_TAGS})\\b[^<>]*>`, 'gi');
const ENTITIES: Readonly<Record<string, string>> = {
  amp: '&',
  lt: '<',
  gt: '>',
  quot: '"',
  apos: "'",
  nbsp: ' ',
  ndash: '–',
  mdash: '—',
  hellip: '…',
  copy: '©',
  laquo: '«',
  raquo: '»',
  middot: '·',
  bull: '•',
};

/** Converts HTML to text in linear time. Broken markup can only spoil the layout. */
export function textOfHtml(html: string): string {
  const title = /<title[^<>]*>([^<]*)<\/title/i.exec(html.slice(0, 100_000))?.[1];
  const body = withoutDropped(withoutComments(html));
  const marked = body
    .replace(/<h([1-6])\b[^<>]*>/gi, (_whole, level: string) => `\n\n${'#'.repeat(Number(level))} `)
    .replace(/<li\b[^<>]*>/gi, '\n- ')
    .replace(/<t[dh]\b[^<>]*>/gi, ' | ')
    .replace(/<a\b([^<>]*)>([^<]*)<\/a\s*>/gi, (_whole, attributes: string, text: string) => linkOf(attributes, text))
    .replace(BLOCK, '\n')
    .replace(/<[^<>]*>/g, ' ');
  const text = decode(marked)
    .replace(/[^\S\n]+/g, ' ')
    .replace(/ ?\n ?/g, '\n')
    .replace(/\n{3,}/g, '\n\n')
    .trim();
  return title === undefined ? text : `${decode(title).trim()}\n\n${text}`;
}

function linkOf(attributes: string, text: string): string {
  const [, href] = /\bhref\s?=\s?["']?([^"'\s]{1,2000})/i.exec(attributes.slice(0, MAX_ATTRIBUTES)) ?? [];
  return href === undefined || text.trim() === '' ? text : `${text} (${href})`;
}

/** Removes comments without a regular expression, which takes quadratic time for many `<!--` without `-->`. */
function withoutComments(html: string): string {
  const parts: string[] = [];
  let at = 0;
  for (let start = html.indexOf('<!--'); start >= 0; start = html.indexOf('<!--', at)) {
    parts.push(html.slice(at, start));
    const end = html.indexOf('-->', start + 4);
    at = end < 0 ? html.length : end + 3;
  }
  return [...parts, html.slice(at)].join(' ');
}

/** Removes dropped elements. If the closing tag is missing, the rest of the page is dropped, as in a browser. */
function withoutDropped(html: string): string {
  const open = new RegExp(`<(${DROPPED})\\b[^<>]*>`, 'gi');
  const parts: string[] = [];
  let at = 0;
  for (let found = open.exec(html); found !== null; found = open.exec(html)) {
    parts.push(html.slice(at, found.index));
    const close = new RegExp(`</${found[1] ?? ''}\\s*>`, 'gi');
    close.lastIndex = open.lastIndex;
    at = close.exec(html) === null ? html.length : close.lastIndex;
    open.lastIndex = at;
  }
  return [...parts, html.slice(at)].join(' ');
}

function decode(text: string): string {
  return text.replace(/&(#\d{1,7}|#x[\da-f]{1,6}|[a-z]{2,8});/gi, (whole, name: string) => {
    if (!name.startsWith('#')) return ENTITIES[name.toLowerCase()] ?? whole;
    const point = /^#x/i.test(name) ? Number.parseInt(name.slice(2), 16) : Number(name.slice(1));
    return point > 0 && point <= 0x10ffff && (point < 0xd800 || point > 0xdfff) ? String.fromCodePoint(point) : '';
  });
}
