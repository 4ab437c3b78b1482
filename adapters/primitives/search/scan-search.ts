/**
 * Searches without ripgrep, file by file. A pattern that takes too long is refused, because it would block all
 * callers.
 */
import vm from 'node:vm';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { countLines } from '../../../catalogs/text/text-pages.ts';
import { isScriptTimeout, runWithinMs } from '../../../catalogs/text/thread-clock.ts';
import { TimeSlices } from '../../../catalogs/text/time-slices.ts';
import { withFileSnapshot } from '../workspace/file-snapshot.ts';
import { decodeText, invalidArguments } from '../workspace/file-text.ts';
import type { OpenFolder } from '../workspace/open-folder.ts';
import { walkFolder } from './folder-walk.ts';
import { compileGlob } from './glob-matcher.ts';
import type { SearchHits, SearchQuery, SearchScope } from './search-hits.ts';

/**
 * Milliseconds of processor time for one chunk of lines. Only the timeout of `vm` can interrupt a regular expression
 * (ReDoS).
 */
const CHUNK_MS = 250;
/** Lines of one chunk. */
const CHUNK_LINES = 20_000;
const NEWLINE = 10;
const ALL_LEVELS = 1000;

const FIND_LINES = new vm.Script(`(() => {
  const expression = new RegExp(pattern, flags);
  const found = [];
  let line = 0;
  for (const text of lines) { line += 1; if (expression.test(text)) found.push(line); }
  return found.join(' ');
})()`);

/**
 * Searches a folder or one file. Throws ARGS_INVALID for a pattern that is invalid, or takes more than 250 ms of
 * processor time for a chunk of lines.
 */
export async function searchByScan(scope: SearchScope, query: SearchQuery, hits: SearchHits): Promise<void> {
  const findLines = lineFinder(query);
  const pace = new TimeSlices(scope.signal);
  const glob = query.glob === undefined ? undefined : compileGlob(query.glob);
  const scanFile = (file: { folder: OpenFolder; name: string; path: string }): Promise<boolean> =>
    withFileSnapshot({ ...file, signal: scope.signal }, ({ bytes }) =>
      addHits(bytes, { path: file.path, context: query.context, findLines, hits, pace }),
    );
  if (scope.name !== undefined) {
    await scanFile({ folder: scope.folder, name: scope.name, path: scope.prefix });
    return;
  }
  const options = { depth: ALL_LEVELS, hidden: query.hidden, signal: scope.signal, ignored: scope.ignored, pace };
  for await (const entry of walkFolder(scope.folder, options, scope.prefix.replace(/\/$/, ''))) {
    if (entry.kind !== 'file' || glob?.(entry.path.slice(scope.prefix.length)) === false) continue;
    if (!(await scanFile(entry).catch(skipUnreadable))) return;
  }
}

type LineFinder = (lines: readonly string[]) => readonly number[];

function lineFinder(query: SearchQuery): LineFinder {
  const hasInlineFlag = /^\(\?i\)/.test(query.pattern) && !query.literal;
  const body = hasInlineFlag ? query.pattern.slice(4) : query.pattern;
  const pattern = query.literal ? body.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&') : body;
  const sandbox: Record<string, unknown> = { pattern, flags: query.ignoreCase || hasInlineFlag ? 'i' : '' };
  const context = vm.createContext(sandbox);
  return (lines) => {
    sandbox.lines = lines;
    try {
      const found: unknown = runWithinMs(CHUNK_MS, (timeout) => FIND_LINES.runInContext(context, { timeout }));
      return String(found)
        .split(' ')
        .filter((line) => line !== '')
        .map(Number);
    } catch (error) {
      if (isScriptTimeout(error))
        throw invalidArguments(
          'The pattern takes too long.',
          'Avoid nested repetition such as (a+)+, or use literal=true.',
        );
      throw invalidArguments(
        `The pattern is not valid: ${(error as Error).message}`,
        'Correct it, or use literal=true for plain text.',
      );
    }
  };
}

/** Skips a file that is gone, too large or unreadable. Rethrows errors of the pattern and of a cancelled call. */
function skipUnreadable(thrown: unknown): boolean {
  if (
    thrown instanceof TollgateError
      ? thrown.code !== 'ARGS_INVALID'
      : typeof (thrown as NodeJS.ErrnoException).code === 'string'
  )
    return true;
  throw thrown;
}

interface ScanOptions {
  readonly path: string;
  readonly context: number;
  readonly findLines: LineFinder;
  readonly hits: SearchHits;
  readonly pace: TimeSlices;
}

/** Adds the matching lines of a file and the lines around them. Returns false if no more hits are wanted. */
async function addHits(bytes: Buffer, options: ScanOptions): Promise<boolean> {
  const decoded = decodeText(bytes);
  if ('binary' in decoded) return true;
  const text = 'text' in decoded ? decoded.text : decoded.lossy;
  const chunks = chunksOf(text);
  const found: number[] = [];
  for (const [index, chunk] of chunks.entries()) {
    for (const line of options.findLines(linesOf(chunk))) found.push(index * CHUNK_LINES + line);
    if (options.pace.isDue) await options.pace.rest();
  }
  const count = countLines(text);
  let openChunk: { readonly index: number; readonly lines: readonly string[] } | undefined;
  const lineAt = (line: number): string => {
    const index = Math.floor((line - 1) / CHUNK_LINES);
    if (openChunk?.index !== index) openChunk = { index, lines: linesOf(chunks[index] ?? '') };
    return openChunk.lines[(line - 1) % CHUNK_LINES] ?? '';
  };
  const matching = new Set(found);
  let lastAdded = 0;
  for (const match of found) {
    for (
      let line = Math.max(lastAdded + 1, match - options.context);
      line <= Math.min(count, match + options.context);
      line += 1
    ) {
      lastAdded = line;
      if (!options.hits.add({ path: options.path, line, text: lineAt(line), matches: matching.has(line) }))
        return false;
    }
  }
  return true;
}

/** Splits a text into chunks of lines, so that a file with millions of lines does not become millions of strings. */
function chunksOf(text: string): readonly string[] {
  const chunks: string[] = [];
  let [from, lines] = [0, 0];
  for (let at = 0; at < text.length; at += 1) {
    if (text.charCodeAt(at) !== NEWLINE || (lines += 1) < CHUNK_LINES) continue;
    chunks.push(text.slice(from, at + 1));
    [from, lines] = [at + 1, 0];
  }
  return from < text.length ? [...chunks, text.slice(from)] : chunks;
}

function linesOf(chunk: string): readonly string[] {
  const lines = chunk.split(/\r?\n/);
  return lines.at(-1) === '' ? lines.slice(0, -1) : lines;
}
