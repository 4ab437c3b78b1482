/** Follows the imports of test files, as text: nothing is loaded. */
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';

const texts = new Map<string, string>();

/** Returns the text of a file; `''` if there is none. */
export function textOf(file: string): string {
  const known = texts.get(file);
  if (known !== undefined) return known;
  const text = existsSync(file) ? readFileSync(file, 'utf8') : '';
  texts.set(file, text);
  return text;
}

const imports = new Map<string, readonly string[]>();

/** Returns the files that a file imports by a relative path. */
export function importsOf(file: string): readonly string[] {
  const known = imports.get(file);
  if (known !== undefined) return known;
  const found = [...textOf(file).matchAll(/(?:from|import)\s*\(?\s*'(\.[^']+)'/g)].map(([, name = '']) =>
    path.resolve(path.dirname(file), name),
  );
  imports.set(file, found);
  return found;
}

/** Returns a file and everything that it imports, within the folders of tests if `within` is given. */
export function closureOf(files: readonly string[], within = ''): ReadonlySet<string> {
  const found = new Set<string>();
  const queue = [...files];
  for (let file = queue.pop(); file !== undefined; file = queue.pop()) {
    if (found.has(file) || !file.startsWith(within)) continue;
    found.add(file);
    queue.push(...importsOf(file));
  }
  return found;
}

const TESTS = path.join(import.meta.dirname, '..');

/** Returns true if one of the test files, or a file of the tests that they import, names something. */
export function namesOneOf(files: readonly string[], what: RegExp): boolean {
  return [...closureOf(files, TESTS)].some((file) => what.test(textOf(file)));
}
