/** Owns the search without ripgrep: file by file, in order; refuses a pattern that runs away, which would hold up every caller. */
import vm from 'node:vm';
import { compileGlob } from './globs.ts';
import type { Hits, Query } from './hits.ts';
import type { Ground } from './search.ts';
import { takeSnapshot } from './snapshot.ts';
import { decodeText, invalid } from './text.ts';
import { walk } from './walk.ts';

/** A regular expression cannot be interrupted from outside, only by the time limit of a vm run (ReDoS). */
const FILE_MS = 250;
const MAX_FILE = 16 * 1024 * 1024;
const EVERY_LEVEL = 1000;

const FIND_LINES = new vm.Script(`(() => {
  const expression = new RegExp(pattern, flags);
  const found = [];
  let line = 0;
  for (const text of lines) { line += 1; if (expression.test(text)) found.push(line); }
  return found.join(' ');
})()`);

/** Searches a folder or one file. Throws ARGS_INVALID for a pattern that is none, or takes longer than 250 ms on one file. */
export async function scan(ground: Ground, query: Query, hits: Hits): Promise<void> {
  const test = lineFinder(query);
  const glob = query.glob === undefined ? undefined : compileGlob(query.glob);
  if (ground.name !== undefined) {
    const file = await takeSnapshot(ground.folder, ground.name);
    addHits(file.bytes, { path: ground.prefix, context: query.context, test, hits });
    return;
  }
  const how = { depth: EVERY_LEVEL, hidden: query.hidden, signal: ground.signal, ignored: ground.ignored };
  for await (const entry of walk(ground.folder, how, ground.prefix.replace(/\/$/, ''))) {
    if (entry.kind !== 'file' || glob?.(entry.path.slice(ground.prefix.length)) === false) continue;
    const file = await takeSnapshot(entry.folder, entry.name).catch(() => undefined);
    if (file === undefined || file.bytes.length > MAX_FILE) continue;
    if (!addHits(file.bytes, { path: entry.path, context: query.context, test, hits })) return;
  }
}

type LineFinder = (lines: readonly string[]) => readonly number[];

function lineFinder(query: Query): LineFinder {
  const inline = /^\(\?i\)/.test(query.pattern) && !query.literal;
  const body = inline ? query.pattern.slice(4) : query.pattern;
  const pattern = query.literal ? body.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&') : body;
  const sandbox: Record<string, unknown> = { pattern, flags: query.ignoreCase || inline ? 'i' : '' };
  const context = vm.createContext(sandbox);
  return (lines) => {
    sandbox['lines'] = lines;
    try {
      const found: unknown = FIND_LINES.runInContext(context, { timeout: FILE_MS });
      return String(found).split(' ').filter((line) => line !== '').map(Number);
    } catch (error) {
      const slow = (error as NodeJS.ErrnoException).code === 'ERR_SCRIPT_EXECUTION_TIMEOUT';
      if (slow) throw invalid('The pattern takes too long.', 'Avoid nested repetition such as (a+)+, or use literal=true.');
      throw invalid(`The pattern is refused: ${(error as Error).message}`, 'Correct it, or use literal=true for plain text.');
    }
  };
}

function addHits(bytes: Buffer, how: { path: string; context: number; test: LineFinder; hits: Hits }): boolean {
  const decoded = decodeText(bytes);
  if ('binary' in decoded) return true;
  const lines = ('text' in decoded ? decoded.text : decoded.lossy).split(/\r?\n/);
  if (lines.at(-1) === '') lines.pop();
  const found = how.test(lines);
  const matching = new Set(found);
  let shown = 0;
  for (const match of found) {
    for (let line = Math.max(shown + 1, match - how.context); line <= Math.min(lines.length, match + how.context); line += 1) {
      shown = line;
      if (!how.hits.add({ path: how.path, line, text: lines[line - 1] ?? '', matches: matching.has(line) })) return false;
    }
  }
  return true;
}
