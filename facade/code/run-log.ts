/**
 * The log of one run of code: its calls and their answers. From it the run goes on after a wait for a person, or after
 * the process was killed, and makes no call twice. Each line is written before what it states takes effect.
 */
import { closeSync, fstatSync, mkdirSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { TimeSlices } from '../../catalogs/text/time-slices.ts';
import type { ShownRun } from '../consent/approvals/loop-approval.ts';
import type { SandboxAnswer, SandboxCall } from './sandbox/sandbox-program.ts';

/** What a run begins with. */
export interface RunStart {
  readonly id: string;
  /** The id of the principal. No other may continue the run. */
  readonly principal: string;
  /** The labels of what the code and its variables may come from. */
  readonly labels?: readonly string[];
  readonly code: string;
  /** JSON text of the arguments of a snippet. */
  readonly args?: string;
  /** JSON text of the variables of the session at the start. */
  readonly variables?: string;
  /** Milliseconds since 1970. */
  readonly startedAt: number;
  /** Calls at the same time. If it changed, calls would be sent in another order than their answers are known in. */
  readonly parallel: number;
}

/** One call of a run, as far as it is known. */
export interface LoggedCall extends Pick<SandboxCall, 'seq' | 'module' | 'function' | 'args'> {
  /** The call was given to its server. Without an answer, it is not known whether it ran. */
  readonly isSent: boolean;
  readonly answer?: SandboxAnswer;
}

/** What a person is shown about a call that the run waits for. Made once, because a dry run reads again. */
export interface LoggedPlan {
  readonly seq: number;
  /** It may have run before the run was interrupted. */
  readonly isAgain: boolean;
  /** The policy under which the dry run was made. */
  readonly revision: string;
  readonly shown: ShownRun;
}

type Line =
  | ({ readonly t: 'plan' } & LoggedPlan)
  | ({ readonly t: 'run' } & RunStart)
  | ({ readonly t: 'call' } & Pick<SandboxCall, 'seq' | 'module' | 'function' | 'args'>)
  | { readonly t: 'sent'; readonly seq: number }
  | { readonly t: 'done'; readonly seq: number; readonly answer: SandboxAnswer; readonly labels?: readonly string[] };

/** Bytes of one log. A run that reads more must be split. */
const MAX_BYTES = 64 * 1_048_576;

/** A log that is open for writing. Methods throw STATE_FAILED if a line cannot be written. */
export class RunLog {
  readonly start: RunStart;
  readonly #fd: number;
  readonly #calls = new Map<number, LoggedCall>();
  /** The numbers of the answered calls, in the order in which the code got the answers. */
  readonly #order: number[] = [];
  readonly #labels = new Set<string>();
  /** Lines of calls. Each is written together with the next line about its call: until then nothing has happened. */
  readonly #unwritten = new Map<number, Line>();
  #plan: LoggedPlan | undefined;
  #bytes: number;
  /** A line may be written in part. */
  #isTorn = false;

  private constructor(file: string, start: RunStart) {
    this.start = start;
    for (const label of start.labels ?? []) this.#labels.add(label);
    this.#fd = openSync(file, 'a', 0o600);
    this.#bytes = fstatSync(this.#fd).size;
  }

  /** Begins the log of a new run. */
  static create(folder: string, start: RunStart): RunLog {
    return guarded(() => {
      mkdirSync(folder, { recursive: true, mode: 0o700 });
      const log = new RunLog(fileOf(folder, start.id), start);
      return log.#begun(() => log.#write({ t: 'run', ...start }));
    });
  }

  /** Opens the log of an earlier run. Returns undefined if there is none. */
  static async open(folder: string, id: string): Promise<RunLog | undefined> {
    const lines = await readLines(fileOf(folder, id)).catch((cause: unknown) => {
      throw unusable(cause);
    });
    return guarded(() => {
      const [first, ...rest] = lines;
      if (first?.t !== 'run') return undefined;
      const { t: _, ...start } = first;
      const log = new RunLog(fileOf(folder, id), start);
      // A torn last line has no line end, and the next line must not continue it.
      log.#begun(() => writeFileSync(log.#fd, '\n'));
      for (const line of rest) log.#note(line);
      return log;
    });
  }

  /** The calls by number. */
  get calls(): ReadonlyMap<number, LoggedCall> {
    return this.#calls;
  }

  get order(): readonly number[] {
    return this.#order;
  }

  /** The labels of the start and of the answers. */
  get labels(): readonly string[] {
    return [...this.#labels];
  }

  /** What a person was shown last. */
  get plan(): LoggedPlan | undefined {
    return this.#plan;
  }

  notePlan(plan: LoggedPlan): void {
    this.#add({ t: 'plan', ...plan });
  }

  /** Notes that the code makes a call. */
  noteCall({ seq, module, function: name, args }: SandboxCall): void {
    const line: Line = { t: 'call', seq, module, function: name, args };
    this.#unwritten.set(seq, line);
    this.#note(line);
  }

  /** Notes that a call goes to its server. */
  noteSent(seq: number): void {
    this.#add({ t: 'sent', seq });
  }

  /** Notes the answer that the code will get. */
  noteDone(seq: number, answer: SandboxAnswer, labels: readonly string[]): void {
    this.#add({ t: 'done', seq, answer, ...(labels.length > 0 && { labels }) });
  }

  /** Closes the log. It stays on the disk. */
  close(): void {
    closeSync(this.#fd);
  }

  /** Removes the log of a run that has ended. */
  static remove(folder: string, id: string): void {
    rmSync(fileOf(folder, id), { force: true });
  }

  /** Writes the first bytes. On a full disk, the file is closed again. */
  #begun(write: () => void): this {
    try {
      write();
      return this;
    } catch (thrown) {
      this.close();
      throw thrown;
    }
  }

  #add(line: Exclude<Line, { readonly t: 'run' }>): void {
    const call = line.t === 'plan' ? undefined : this.#unwritten.get(line.seq);
    guarded(() => (call === undefined ? this.#write(line) : this.#write(call, line)));
    if (call !== undefined) this.#unwritten.delete(line.seq);
    this.#note(line);
  }

  #write(...lines: readonly Line[]): void {
    const text = lines.map((line) => `${JSON.stringify(line)}\n`).join('');
    this.#bytes += text.length;
    if (this.#bytes > MAX_BYTES)
      throw new TollgateError('CODE_LIMIT', {
        detail: `The answers to the calls of this run are longer than ${MAX_BYTES} bytes together.`,
        next: 'Read less in one run, or split it into several.',
      });
    // What follows a torn line would be lost with it.
    if (this.#isTorn)
      throw new TollgateError('STATE_FAILED', { detail: 'The log of a run of code ends in its middle.' });
    this.#isTorn = true;
    writeFileSync(this.#fd, text);
    this.#isTorn = false;
  }

  #note(line: Line): void {
    if (line.t === 'run') return;
    if (line.t === 'plan') {
      const { t: _, ...plan } = line;
      this.#plan = plan;
      return;
    }
    if (line.t === 'call') {
      const { t: _, ...call } = line;
      this.#calls.set(call.seq, { ...call, isSent: false });
      return;
    }
    const call = this.#calls.get(line.seq);
    if (call === undefined) return;
    if (line.t === 'sent') this.#calls.set(line.seq, { ...call, isSent: true });
    else {
      this.#calls.set(line.seq, { ...call, answer: line.answer });
      this.#order.push(line.seq);
      for (const label of line.labels ?? []) this.#labels.add(label);
    }
  }
}

function fileOf(folder: string, id: string): string {
  return path.join(folder, `${id}.jsonl`);
}

/** Reads the whole lines. A process that was killed while it wrote leaves a torn last line, which states nothing. */
async function readLines(file: string): Promise<readonly Line[]> {
  let bytes: Buffer;
  try {
    bytes = await readFile(file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
  const lines: Line[] = [];
  const slices = new TimeSlices();
  let from = 0;
  for (let end = bytes.indexOf('\n'); end >= 0; end = bytes.indexOf('\n', from)) {
    const line = bytes.toString('utf8', from, end);
    from = end + 1;
    if (slices.isDue) await slices.rest();
    try {
      if (line !== '') lines.push(JSON.parse(line) as Line);
    } catch {
      // The torn line of an earlier crash, which a later line follows.
    }
  }
  return lines;
}

function guarded<T>(work: () => T): T {
  try {
    return work();
  } catch (cause) {
    if (cause instanceof TollgateError) throw cause;
    throw unusable(cause);
  }
}

function unusable(cause: unknown): TollgateError {
  return new TollgateError('STATE_FAILED', { detail: 'The log of a run of code cannot be read or written.', cause });
}
