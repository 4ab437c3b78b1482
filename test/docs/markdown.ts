/** Reads the documentation: its files, headings, tables, code blocks and links. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

const FENCES = /^```\w*\n.*?^```$/gms;

/** The root of the project. */
export const ROOT = path.join(import.meta.dirname, '..', '..');

/** README.md and everything under docs/, relative to the root. */
export const PAGES: readonly string[] = [
  'README.md',
  ...readdirSync(path.join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.md'))
    .map((name) => path.posix.join('docs', name))
    .sort(),
];

/** A fenced block with its language and the line, from 1, on which it begins. */
export interface Block {
  readonly page: string;
  readonly line: number;
  readonly language: string;
  readonly text: string;
}

/** The text of a file, by its path relative to the root. */
export function readPage(page: string): string {
  return readFileSync(path.join(ROOT, page), 'utf8');
}

/** Every fenced block of a page. */
export function blocksOf(page: string): readonly Block[] {
  const text = readPage(page);
  return [...text.matchAll(/^```(\w*)\n(.*?)^```$/gms)].map((found) => ({
    page,
    line: text.slice(0, found.index).split('\n').length,
    language: found[1] ?? '',
    text: found[2] ?? '',
  }));
}

/** A page without its fenced blocks. */
export function proseOf(page: string): string {
  return readPage(page).replace(FENCES, '');
}

/** The text under a heading, up to the next one of the same or a higher level. Throws when there is none. */
export function sectionOf(page: string, heading: string): string {
  const text = readPage(page);
  // A comment in a block begins like a heading.
  const masked = text.replace(FENCES, (block) => block.replaceAll('#', ' '));
  const start = masked.indexOf(`${heading}\n`);
  if (start < 0) throw new Error(`${page} has no heading ${heading}`);
  const level = /^#+/.exec(heading)?.[0].length ?? 1;
  const end = masked.slice(start + heading.length).search(new RegExp(`^#{1,${level}} `, 'm'));
  return end < 0
    ? text.slice(start + heading.length)
    : text.slice(start + heading.length, start + heading.length + end);
}

/** Rows of all tables in a text, without heads and rulers. Cells are trimmed; `\|` is a bar. */
export function rowsOf(text: string): readonly (readonly string[])[] {
  const lines = text.split('\n');
  const isRow = (line: string | undefined): boolean => line?.startsWith('|') === true;
  const isRuler = (line: string | undefined): boolean => /^\|(-+\|)+$/.test(line ?? '');
  return lines
    .filter((line, index) => isRow(line) && !isRuler(line) && !isRuler(lines[index + 1]))
    .map((line) =>
      line
        .slice(1, -1)
        .split(/(?<!\\)\|/)
        .map((cell) => cell.trim().replaceAll('\\|', '|')),
    );
}

/** Texts in backticks, outside of fenced blocks. */
export function codeIn(text: string): readonly string[] {
  return [...text.replace(FENCES, '').matchAll(/`([^`]+)`/g)].map((found) => found[1] ?? '');
}

/** The anchors of a page's headings, as forges make them. */
export function anchorsOf(page: string): ReadonlySet<string> {
  const headings = [...proseOf(page).matchAll(/^#+ (.*)$/gm)].map((found) => found[1] ?? '');
  return new Set(
    headings.map((heading) =>
      heading
        .toLowerCase()
        .replace(/[^\w\- ]/g, '')
        .replaceAll(' ', '-'),
    ),
  );
}
