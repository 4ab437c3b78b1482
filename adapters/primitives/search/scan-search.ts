/** Owns the search without ripgrep: file by file, in order; refuses a pattern that runs away, which would hold up every caller. */
import vm from 'node:vm';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { countLines } from '../../../catalogs/text/text-pages.ts';
import { TimeSlices } from '../../../catalogs/text/time-slices.ts';
import { withFileSnapshot } from '../workspace/file-snapshot.ts';
import { decodeText, invalidArguments } from '../workspace/file-text.ts';
import { walkFolder } from './folder-walk.ts';
import { compileGlob } from './glob-matcher.ts';
import type { SearchHits, SearchQuery, SearchScope } from './search-hits.ts';

/** A regular expression cannot be interrupted from outside, only by the time limit of a vm run (ReDoS). */
const FILE_MS = 250;
/** Lines that one vm run looks at. */
const LINES_A_RUN = 20_000;
const NEWLINE = 10;
const EVERY_LEVEL = 1000;

const FIND_LINES = new vm.Script(`(() => {
  const expression = new RegExp(pattern, flags);
  const found = [];
  let line = 0;
  for (const text of lines) { line += 1; if (expression.test(text)) found.push(line); }
  return found.join(' ');
})()`);

/** Searches a folder or one file. Throws ARGS_INVALID for a pattern that is none, or takes longer than 250 ms on one file. */
export async function searchByScan(ground: SearchScope, query: SearchQuery, hits: SearchHits): Promise<void> {
  const test = lineFinder(query);
  const pace = new TimeSlices(ground.signal);
  const glob = query.glob === undefined ? undefined : compileGlob(query.glob);
  if (ground.name !== undefined) {
    await withFileSnapshot({ folder: ground.folder, name: ground.name, signal: ground.signal }, ({ bytes }) =>
      addHits(bytes, { path: ground.prefix, context: query.context, test, hits, pace }),
    );
    return;
  }
  const how = { depth: EVERY_LEVEL, hidden: query.hidden, signal: ground.signal, ignored: ground.ignored, pace };
  for await (const entry of walkFolder(ground.folder, how, ground.prefix.replace(/\/$/, ''))) {
    if (entry.kind !== 'file' || glob?.(entry.path.slice(ground.prefix.length)) === false) continue;
    const goesOn = await withFileSnapshot(
      { folder: entry.folder, name: entry.name, signal: ground.signal },
      ({ bytes }) => addHits(bytes, { path: entry.path, context: query.context, test, hits, pace }),
    ).catch(passOver);
    if (!goesOn) return;
  }
}

type LineFinder = (lines: readonly string[]) => readonly number[];

function lineFinder(query: SearchQuery): LineFinder {
  const inline = /^\(\?i\)/.test(query.pattern) && !query.literal;
  const body = inline ? query.pattern.slice(4) : query.pattern;
  const pattern = query.literal ? body.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&') : body;
  const sandbox: Record<string, unknown> = { pattern, flags: query.ignoreCase || inline ? 'i' : '' };
  const context = vm.createContext(sandbox);
  return (lines) => {
    sandbox.lines = lines;
    try {
      const found: unknown = FIND_LINES.runInContext(context, { timeout: FILE_MS });
      return String(found)
        .split(' ')
        .filter((line) => line !== '')
        .map(Number);
    } catch (error) {
      const slow = (error as NodeJS.ErrnoException).code === 'ERR_SCRIPT_EXECUTION_TIMEOUT';
      if (slow)
        throw invalidArguments(
          'The pattern takes too long.',
          'Avoid nested repetition such as (a+)+, or use literal=true.',
        );
      throw invalidArguments(
        `The pattern is refused: ${(error as Error).message}`,
        'Correct it, or use literal=true for plain text.',
      );
    }
  };
}

/** A file that is gone, too large or not readable is passed over; a pattern that is refused, or a call that was given up, is not. */
function passOver(thrown: unknown): boolean {
  if (
    thrown instanceof TollgateError
      ? thrown.code !== 'ARGS_INVALID'
      : typeof (thrown as NodeJS.ErrnoException).code === 'string'
  )
    return true;
  throw thrown;
}

interface Looking {
  readonly path: string;
  readonly context: number;
  readonly test: LineFinder;
  readonly hits: SearchHits;
  readonly pace: TimeSlices;
}

/** Adds the lines of a file that match, and those around them. False when no more are wanted. */
async function addHits(bytes: Buffer, how: Looking): Promise<boolean> {
  const decoded = decodeText(bytes);
  if ('binary' in decoded) return true;
  const text = 'text' in decoded ? decoded.text : decoded.lossy;
  const runs = runsOf(text);
  const found: number[] = [];
  for (const [index, run] of runs.entries()) {
    for (const line of how.test(linesOf(run))) found.push(index * LINES_A_RUN + line);
    if (how.pace.isDue) await how.pace.rest();
  }
  const count = countLines(text);
  let open: { readonly index: number; readonly lines: readonly string[] } | undefined;
  const lineAt = (line: number): string => {
    const index = Math.floor((line - 1) / LINES_A_RUN);
    if (open?.index !== index) open = { index, lines: linesOf(runs[index] ?? '') };
    return open.lines[(line - 1) % LINES_A_RUN] ?? '';
  };
  const matching = new Set(found);
  let shown = 0;
  for (const match of found) {
    for (let line = Math.max(shown + 1, match - how.context); line <= Math.min(count, match + how.context); line += 1) {
      shown = line;
      if (!how.hits.add({ path: how.path, line, text: lineAt(line), matches: matching.has(line) })) return false;
    }
  }
  return true;
}

/** The text in parts of so many lines, so that a file of millions of them is never millions of texts. */
function runsOf(text: string): readonly string[] {
  const runs: string[] = [];
  let [from, lines] = [0, 0];
  for (let at = 0; at < text.length; at += 1) {
    if (text.charCodeAt(at) !== NEWLINE || (lines += 1) < LINES_A_RUN) continue;
    runs.push(text.slice(from, at + 1));
    [from, lines] = [at + 1, 0];
  }
  return from < text.length ? [...runs, text.slice(from)] : runs;
}

function linesOf(run: string): readonly string[] {
  const lines = run.split(/\r?\n/);
  return lines.at(-1) === '' ? lines.slice(0, -1) : lines;
}
