/**
 * The spills: what was cut from results, as files of one run of one principal, read in pages. No other reader gets
 * them. They are deleted with the run and after some time.
 */
import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import type { JsonDoc } from '../../adapters/rpc/wire-message.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { plural } from '../../catalogs/text/readable-text.ts';
import { segmentEnds } from '../../catalogs/text/text-segments.ts';
import { runWithinBounds, TimeSlices } from '../../catalogs/text/time-slices.ts';
import type { RawTool, ToolResult } from '../../catalogs/tools/tool-definition.ts';
import type { Effect } from '../../policies/port.ts';
import { isAlive, ownMark } from '../state/process-mark.ts';
import {
  readSpillFile,
  type Spill,
  type SpillFile,
  SpillIndex,
  type SpillLimit,
  type SpillOwner,
  writeSpillFile,
} from './spill-index.ts';
import { type Cap, cutText } from './text-cut.ts';

const SCHEME = 'spill://';
/** The folder for the spills of all processes in a state folder. */
const SPILLS = 'spills';
/** The most spills that a run keeps, and the bytes of all of them. Older ones are deleted. */
const OF_RUN: SpillLimit = { files: 64, bytes: 256 * 1_048_576 };
/** The same for all runs of a principal, because a client chooses the names of runs. */
const OF_PRINCIPAL: SpillLimit = { files: 1024, bytes: 1024 * 1_048_576 };
/**
 * Files that are deleted in one turn of the event loop. A spill that is too old is not read, even before it is deleted.
 */
const MOST_AT_ONCE = 64;
/** The longest time of a timer, ms. */
const MAX_TIMER_MS = 2_147_483_647;
/** Room for the footer of a page. */
const FOOTER_BYTES = 200;
const MATCHES = 100;
/** Segments between two checks of the clock. */
const SEGMENTS_A_LOOK = 4_096;
const MATCH_CHARS = 500;

/** Settings for tests: what a principal keeps, and a clock, ms. The clock must not be one that can be set. */
interface SpillOptions {
  readonly most?: SpillLimit;
  readonly now?: () => number;
}

/** The spills of one process. Files have mode 0600 in their own folder under the state folder. */
export class Spills {
  readonly #state: string;
  /** Made with the first spill. Its name begins with the mark of this process. */
  #folder: string | undefined;
  readonly #most: SpillLimit;
  readonly #now: () => number;
  #lines = new SpillIndex(({ file }) => removeFile(file));
  #keepMs = Number.POSITIVE_INFINITY;
  #timer: NodeJS.Timeout | undefined;

  /** Removes the spills of killed processes. */
  constructor(state: string, { most = OF_PRINCIPAL, now = () => performance.now() }: SpillOptions = {}) {
    this.#most = most;
    this.#now = now;
    this.#state = state;
    const all = path.join(state, SPILLS);
    for (const name of existsSync(all) ? readdirSync(all) : [])
      if (!isAlive(state, name.split('-')[0] ?? '')) rmSync(path.join(all, name), { recursive: true, force: true });
  }

  /** Sets the age at which spills are deleted, in ms, also for existing ones. */
  keepFor(ms: number): void {
    this.#keepMs = ms;
    this.#expire();
  }

  /** Returns true for a `path` argument that names a spill. */
  static names(value: unknown): value is string {
    return typeof value === 'string' && value.startsWith(SCHEME);
  }

  /**
   * Stores a text, at most `maxBytes` of it. The effect is that of the call it came from. Throws STATE_FAILED on a full
   * disk.
   */
  put(
    text: string,
    owner: SpillOwner,
    source: { effect: Effect; labels: readonly string[]; maxBytes: number },
  ): { handle: string; bytes: number } {
    const whole = Buffer.from(text, 'utf8');
    const kept = whole.length > source.maxBytes ? wholeCharacters(whole.subarray(0, source.maxBytes)) : whole;
    const id = randomBytes(16).toString('hex');
    this.#folder ??= path.join(this.#state, SPILLS, `${ownMark(this.#state)}-${randomBytes(4).toString('hex')}`);
    const file = path.join(this.#folder, id);
    let stored: SpillFile;
    try {
      mkdirSync(this.#folder, { recursive: true, mode: 0o700 });
      stored = writeSpillFile(file, kept);
    } catch (cause) {
      // The part that a full disk took is useless.
      removeFile(file);
      throw new TollgateError('STATE_FAILED', {
        detail: 'The rest of a long output could not be stored, so the output is withheld.',
        cause,
      });
    }
    const handle = `${SCHEME}${id}`;
    this.#lines.add(
      {
        ...owner,
        ...stored,
        handle,
        bytes: kept.length,
        effect: source.effect,
        labels: source.labels,
        at: this.#now(),
      },
      { run: OF_RUN, principal: this.#most },
    );
    this.#expire();
    return { handle, bytes: kept.length };
  }

  /**
   * Returns the effect and labels of reading this spill. Unknown, foreign and deleted handles give the same
   * ARGS_INVALID.
   */
  source(handle: string, owner: SpillOwner): { readonly effect: Effect; readonly labels: readonly string[] } {
    const { effect, labels } = this.#find(handle, owner);
    return { effect: { ...effect, verb: 'read', spill: true }, labels };
  }

  /**
   * Returns one page (`action` file) or the matching lines (`search`) of a spill, within the limit, with the exact next
   * call. `tool`: the exposed name for the next call; default `read`.
   */
  async read(
    args: Readonly<Record<string, unknown>>,
    owner: SpillOwner,
    how: Cap & { readonly tool?: string },
  ): Promise<JsonDoc<ToolResult>> {
    const handle = String(args.path);
    const spill = this.#find(handle, owner);
    return runWithinBounds(spill.bytes, () => readSpill(spill, { handle, args, how }));
  }

  /** How many there are, and bytes of all. */
  get kept(): { readonly files: number; readonly bytes: number } {
    return this.#lines.kept;
  }

  /** Deletes the spills of a run. */
  forget(owner: SpillOwner): void {
    this.#lines.dropRun(owner);
  }

  /** Deletes everything, at the end of the process. */
  close(): void {
    clearTimeout(this.#timer);
    this.#lines = new SpillIndex(() => undefined);
    if (this.#folder !== undefined) rmSync(this.#folder, { recursive: true, force: true });
  }

  #find(handle: string, owner: SpillOwner): Spill {
    const spill = this.#lines.find(handle);
    if (spill?.principal === owner.principal && spill.run === owner.run && !this.#isExpired(spill)) return spill;
    throw new TollgateError('ARGS_INVALID', {
      detail: 'path: there is no such spill in this run',
      next: 'Repeat the call that made it. A spill is deleted when its run ends, or after some time.',
    });
  }

  #isExpired({ at }: Spill): boolean {
    return this.#now() - at >= this.#keepMs;
  }

  /** Deletes spills that are too old, and checks again when the next one is. */
  #expire(): void {
    clearTimeout(this.#timer);
    let spill = this.#lines.oldest;
    for (let gone = 0; gone < MOST_AT_ONCE && spill !== undefined && this.#isExpired(spill); gone += 1) {
      this.#lines.drop(spill);
      spill = this.#lines.oldest;
    }
    if (spill === undefined) return;
    const ms = Math.max(0, Math.min(MAX_TIMER_MS, spill.at + this.#keepMs - this.#now()));
    this.#timer = setTimeout(() => this.#expire(), Math.ceil(ms)).unref();
  }
}

interface Ask {
  readonly handle: string;
  readonly args: Readonly<Record<string, unknown>>;
  readonly how: Cap & { readonly tool?: string };
}

async function readSpill(spill: Spill, ask: Ask): Promise<JsonDoc<ToolResult>> {
  const text = readSpillFile(spill);
  if (text === undefined)
    throw new TollgateError('STATE_FAILED', {
      detail: 'The file of this spill is gone, or another file has replaced it.',
      next: 'Repeat the call that made it.',
      retryable: false,
    });
  const action = ask.args.action ?? 'file';
  if (action === 'file') return textResult(...page(text, ask));
  if (action === 'search') return textResult(await search(text, ask.args));
  throw new TollgateError('ARGS_INVALID', {
    detail: `action: a spill can be read (file) or searched (search), not "${String(action)}"`,
  });
}

/**
 * A file that cannot be removed goes with the folder at the end. If not even the folder could be made, there is nothing
 * to remove.
 */
function removeFile(file: string): void {
  try {
    rmSync(file, { force: true });
  } catch {
    return;
  }
}

/** Cuts a buffer back to its last complete UTF-8 character. */
function wholeCharacters(bytes: Buffer): Buffer {
  let end = bytes.length;
  while (end > 0 && ((bytes[end - 1] ?? 0) & 0xc0) === 0x80) end -= 1;
  return bytes.subarray(0, Math.max(0, end - 1));
}

/** Returns the exact text of a page, and its footer as a separate item, so that the joined pages are the spill. */
function page(text: string, ask: Ask): readonly string[] {
  const {
    handle,
    args,
    how: { tool = 'read', ...cap },
  } = ask;
  const ends = segmentEnds(text);
  const asked = whole(args.offset, 1);
  const offset = asked < 0 ? Math.max(1, ends.length + asked + 1) : asked;
  const limit = whole(args.limit, cap.lines);
  if (limit < 1) throw new TollgateError('ARGS_INVALID', { detail: 'limit: expected at least 1' });
  if (offset === 0 || (offset > ends.length && ends.length > 0)) {
    throw new TollgateError('ARGS_INVALID', {
      detail: `offset: the spill has ${plural(ends.length, 'line')}, counted from 1`,
    });
  }
  const from = ends[offset - 2] ?? 0;
  const cut = cutText(
    text.slice(from, ends[Math.min(ends.length, offset - 1 + limit) - 1] ?? 0),
    { bytes: cap.bytes - FOOTER_BYTES, lines: Math.max(1, cap.lines - 2) },
    1,
  );
  // Only a rule or a budget leaves less than one line needs (see SEGMENT_CHARS). No line is skipped, and no next call
  // is named, because it would be repeated for ever.
  if (cut.head === '' && ends.length > 0) {
    return [
      `[tollgate: nothing was read: line ${offset} of ${ends.length} does not fit into the ${cap.bytes} bytes ` +
        `that a rule or a budget leaves here. Search, or read from offset ${offset} when more is left.]`,
    ];
  }
  const last = offset + cut.gap.first - 2;
  if (offset === 1 && last === ends.length) return [cut.head];
  const next = last < ends.length ? ` Next: ${tool} path="${handle}" offset=${last + 1}` : '';
  return [cut.head, `[tollgate: lines ${offset}-${last} of ${ends.length}.${next}]`];
}

function whole(value: unknown, fallback: number): number {
  return typeof value === 'number' && Number.isInteger(value) ? value : fallback;
}

/** Searches for plain text only, because a model's regular expression could block this thread. */
async function search(text: string, args: Readonly<Record<string, unknown>>): Promise<string> {
  const pattern = args.pattern;
  if (typeof pattern !== 'string' || pattern === '')
    throw new TollgateError('ARGS_INVALID', { detail: 'pattern: expected the text to search for' });
  const fold =
    args.ignore_case === true ? (line: string): string => line.toLowerCase() : (line: string): string => line;
  const wanted = fold(pattern);
  const hits: string[] = [];
  let total = 0;
  const ends = segmentEnds(text);
  const pace = new TimeSlices();
  for (const [index, end] of ends.entries()) {
    if (index % SEGMENTS_A_LOOK === 0 && pace.isDue) await pace.rest();
    const line = text.slice(ends[index - 1] ?? 0, end);
    if (!fold(line).includes(wanted)) continue;
    total += 1;
    if (hits.length < Math.min(MATCHES, whole(args.limit, MATCHES)))
      hits.push(`${index + 1}:${line.trimEnd().slice(0, MATCH_CHARS)}`);
  }
  const more = total > hits.length ? `\n[tollgate: ${hits.length} of ${total} matches. Use a longer pattern]` : '';
  return total === 0 ? '[tollgate: no match; the pattern is read as plain text]' : hits.join('\n') + more;
}

function textResult(...texts: readonly string[]): JsonDoc<ToolResult> {
  const value: ToolResult = { content: texts.map((text) => ({ type: 'text', text })) };
  return { text: JSON.stringify(value), value, exact: true };
}

/** Its name. No other tool is shown under this name; `tollgate tools` says so. */
export const READ_SPILL = 'read_spill';

/** Its definition. `path` accepts only a spill handle. */
export const SPILL_TOOL: RawTool = {
  name: READ_SPILL,
  description: 'Reads the rest of an earlier result that was cut. Use the path and offset that its last line names.',
  inputSchema: {
    type: 'object',
    properties: {
      path: { type: 'string', description: 'The spill:// handle.', pattern: '^spill://[0-9a-f]{32}$' },
      action: {
        type: 'string',
        description: 'file (default): a page of text; search: the lines that contain pattern.',
        enum: ['file', 'search'],
      },
      offset: { type: 'integer', description: 'First line, counted from 1. Negative: counted from the end.' },
      limit: { type: 'integer', description: 'The most lines or matches.' },
      pattern: { type: 'string', description: 'search: plain text to search for.' },
      ignore_case: { type: 'boolean', description: 'search: ignore case. Default false.' },
    },
    required: ['path'],
    additionalProperties: false,
  },
  annotations: { readOnlyHint: true },
};
