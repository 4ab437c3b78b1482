/** Owns one command on a backend, read through an own cursor over pages that repeat and shift; refuses to guess an exit code. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { CancelSignal } from '../../rpc/cancellation.ts';
import type { ReportedCommand } from '../shell/command-report.ts';
import { OutputLog } from '../shell/output-log.ts';
import { toolFailure } from '../workspace/file-text.ts';
import { endGroupCommand, findMarkers, type OutputPage, readOutputPage } from './command-markers.ts';
import { callMappingStep, type MappedCall, matchMappingText } from './mapped-call.ts';

const PAGE_LINES = 2000;
const POLL_MS = 150;
/** Longer than the two seconds between TERM and KILL, and the backend's own second. */
const KILL_MS = 6000;
const MARK_MS = 1000;
/** For the first mark, on a busy machine. */
const BEGIN_MS = 3000;

type End = NonNullable<ReportedCommand['end']>;

/** A command that runs or ran on a backend. Times in milliseconds. */
export class MappedSession implements ReportedCommand {
  readonly command: string;
  readonly log = new OutputLog();
  readonly startedAt = Date.now();
  readonly #pid: number;
  readonly #token: string;
  #group: number | undefined;
  /** The backend's next line to read. Its line 0 cannot be asked for; the marks leave it empty. */
  #next = 1;
  #partial = '';
  #end: End | undefined;
  #killed = false;

  constructor(given: { readonly pid: number; readonly token: string; readonly command: string }) {
    this.#pid = given.pid;
    this.#token = given.token;
    this.command = given.command;
  }

  get end(): End | undefined {
    return this.#end;
  }

  get pid(): number {
    return this.#pid;
  }

  /** Takes all output that the backend holds by now. */
  async refresh(work: MappedCall): Promise<void> {
    let evicted = 0;
    while (this.#end === undefined) {
      const page = await readOutput(work, this.#pid, { start: Math.max(1, this.#next - evicted), count: PAGE_LINES });
      if (page === undefined) return this.#finish({ code: 'unknown', torn: !this.#killed, leftovers: false });
      if (page.evicted > evicted) {
        evicted = page.evicted;
        // The backend counts from the first line that it still holds: ask again, at the shifted place.
        if (page.start + evicted !== this.#next && this.#next > evicted) continue;
      }
      this.#take(page);
      if (page.start + page.lines.length < page.total) continue;
      if (page.ended !== undefined && this.#end === undefined) await this.#conclude(work, page.ended.code);
      return;
    }
  }

  /** Waits until `until` holds, the command ends or the time is over. Looks every 150 ms: the backend cannot wait at an offset. */
  async waitFor(work: MappedCall, wait: { readonly ms: number; readonly until: () => boolean }): Promise<void> {
    const deadline = Date.now() + wait.ms;
    for (;;) {
      await this.refresh(work);
      const left = deadline - Date.now();
      if (this.#end !== undefined || wait.until() || left <= 0) return;
      await cancellableSleep(Math.min(POLL_MS, left), work.call.signal);
    }
  }

  /** Ends the command's process group, then the shell around it, and checks both. Throws TOOL_FAILED when something is left. */
  async kill(work: MappedCall): Promise<void> {
    await this.refresh(work);
    if (this.#end !== undefined) return;
    this.#killed = true;
    // A command that has only just begun has not told its group yet: without it only the shell would end, not its children.
    await this.waitFor(work, { ms: BEGIN_MS, until: () => this.#group !== undefined });
    if (this.#end !== undefined) return;
    if (this.#group !== undefined) {
      await endGroup(work, this.#group);
      // The shell around it now prints the last mark.
      await this.waitFor(work, { ms: MARK_MS, until: () => false });
    }
    await callMappingStep(work, 'terminate', { pid: this.#pid });
    const deadline = Date.now() + KILL_MS;
    while (this.end === undefined && (await isListed(work, this.#pid))) {
      if (Date.now() > deadline) throw toolFailure('The session was told to end, but it still runs.', 'Tell the user.');
      await cancellableSleep(POLL_MS, work.call.signal);
    }
    await this.refresh(work);
    if (this.end === undefined) this.#finish({ code: 'unknown', leftovers: false });
  }

  /** Moves a page into the log. The last line of a running command may still grow: only what is new of it is taken. */
  #take(page: OutputPage): void {
    const grows = page.ended === undefined && page.start + page.lines.length >= page.total;
    const whole = grows ? page.lines.slice(0, -1) : page.lines;
    this.#next = page.start + page.evicted + whole.length;
    const { begin, end } = findMarkers(whole, this.#token);
    if (this.#group === undefined && begin === undefined) return;
    this.#group ??= begin?.group;
    const lines = whole.slice(begin?.first ?? 0, end?.index);
    // The line end that stands before the last mark is ours.
    if (end !== undefined && lines.at(-1) === '' && lines.length > 0) lines.pop();
    for (const line of lines) this.#push(`${line}\n`);
    if (end !== undefined) return this.#finish({ code: end.code, leftovers: end.leftovers && !this.#killed });
    const last = grows ? (page.lines.at(-1) ?? '') : '';
    if (last !== '' && !last.startsWith(this.#token)) this.#push(last);
  }

  /** `#partial` is the beginning of the line that the log already has. */
  #push(text: string): void {
    const fresh = text.startsWith(this.#partial) ? text.slice(this.#partial.length) : text;
    this.#partial = text.endsWith('\n') ? '' : text;
    this.log.push(Buffer.from(fresh));
  }

  /** The process is gone without its last mark: it was killed, the shell refused the command, or the backend lost the end. */
  async #conclude(work: MappedCall, code: number | undefined): Promise<void> {
    const began = this.#group !== undefined;
    if (!began) {
      const all = await readOutput(work, this.#pid, { start: -PAGE_LINES, count: PAGE_LINES });
      for (const line of all?.lines ?? []) this.#push(`${line}\n`);
    }
    this.#finish({ code: code ?? 'unknown', torn: began && !this.#killed, leftovers: false });
  }

  #finish(end: Omit<End, 'at'>): void {
    this.#end = { ...end, at: Date.now() };
  }
}

async function isListed(work: MappedCall, pid: number): Promise<boolean> {
  const { text } = await callMappingStep(work, 'sessions', {});
  return text.split('\n').some((line) => Number(matchMappingText(work, 'sessionLine', line)?.pid) === pid);
}

async function endGroup(work: MappedCall, group: number): Promise<void> {
  const answer = await callMappingStep(work, 'spawn', { command: endGroupCommand(group), wait: KILL_MS });
  const pid = Number(matchMappingText(work, 'pid', answer.text)?.pid);
  const deadline = Date.now() + KILL_MS;
  while (Date.now() < deadline && Number.isInteger(pid)) {
    const page = await readOutput(work, pid, { start: -5, count: 5 });
    if (page?.lines.includes('gone>')) return;
    if (page === undefined || page.ended !== undefined || page.lines.includes('left>')) break;
    await cancellableSleep(POLL_MS, work.call.signal);
  }
  throw toolFailure('The session was told to end, but a process of it still runs.', 'Tell the user.');
}

async function readOutput(
  work: MappedCall,
  pid: number,
  range: { readonly start: number; readonly count: number },
): Promise<OutputPage | undefined> {
  const answer = await callMappingStep(work, 'output', { pid, ...range });
  return answer.failed ? undefined : readOutputPage(work.mapping, answer.text);
}

/** Sleeps; throws CANCELLED when the caller gives up. */
export function cancellableSleep(ms: number, signal: CancelSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = (): void => {
      clearTimeout(timer);
      reject(new TollgateError('CANCELLED'));
    };
    const timer = setTimeout(() => {
      signal.removeEventListener('abort', stop);
      resolve();
    }, ms);
    if (signal.aborted) stop();
    else signal.addEventListener('abort', stop, { once: true });
  });
}
