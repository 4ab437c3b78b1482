/** Finds texts that may name files in a word of a command line, for any program. */
import { fileURLToPath } from 'node:url';

const MAX_PIECES = 64;

/**
 * Returns all texts of a word that may name a file: the word, what follows each `=`, what is joined to a short option
 * or an `@`, the parts between quotes, brackets, spaces, commas and colons, and a dotted module as its path. At most
 * 64, each once.
 */
export function fileTextsIn(word: string): readonly string[] {
  const parts = word.split(/["'`()[\]{}<>|&;,=\s]+/);
  const glued = /^-[^-]/.test(word) ? [word.slice(2)] : word.startsWith('@') ? [word.slice(1)] : [];
  const after = [...word.matchAll(/=/g)].map(({ index }) => word.slice(index + 1));
  const all = [
    word,
    ...after,
    ...glued,
    ...parts,
    ...parts.flatMap((part) => (part.includes('://') ? [] : part.split(':'))),
  ].flatMap((piece) => [piece, ...modulesOf(piece)]);
  return [...new Set(all)].filter((piece) => piece !== '' && !piece.includes('\0')).slice(0, MAX_PIECES);
}

/** Returns a part as a path; for the address of a file, the file. Undefined for another address. */
export function filePathOf(piece: string): string | undefined {
  if (!piece.startsWith('file:')) return piece;
  try {
    return new URL(piece).host === '' ? fileURLToPath(piece) : undefined;
  } catch {
    return undefined;
  }
}

/** `a.b` is `a/b`, and `a` is run first. */
function modulesOf(piece: string): readonly string[] {
  const name = /^-m/.test(piece) ? piece.slice(2) : piece;
  if (!/^\w+(?:\.\w+)+$/.test(name)) return [];
  const parts = name.split('.');
  return parts.map((_part, index) => parts.slice(0, index + 1).join('/'));
}
