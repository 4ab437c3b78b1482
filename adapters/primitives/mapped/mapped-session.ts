/**
 * One command that runs on a backend. Reads its output page by page, with a cursor of its own because pages overlap and
 * shift. Never guesses an exit code.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { abortSignalOf, type CancelSignal } from '../../rpc/cancellation.ts';
import type { ReportedCommand } from '../shell/command-report.ts';
import { OutputLog } from '../shell/output-log.ts';
import { toolFailure } from '../workspace/file-text.ts';
import { endGroupCommand, findMarkers, type OutputPage, readOutputPage } from './command-markers.ts';
import { callMappingStep, type MappedCall, matchMappingText } from './mapped-call.ts';

const PAGE_LINES = 2000;
const POLL_MS = 150;
/** Longer than the two seconds between SIGTERM and SIGKILL plus one second of the backend. */
const KILL_MS = 6000;
/** Time for the end marker to arrive. */
const MARKER_MS = 1000;
/** Time for the first marker to arrive on a busy machine. */
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
  /** The next line to read. The backend cannot return its line 0, which is empty because of the first marker. */
  #next = 1;
  #partial = '';
  #end: End | undefined;
  #killed = false;

  constructor(options: { readonly pid: number; readonly token: string; readonly command: string }) {
    this.#pid = options.pid;
    this.#token = options.token;
    this.command = options.command;
  }

  get end(): End | undefined {
    return this.#end;
  }

  get pid(): number {
    return this.#pid;
  }

  /** Reads all output that the backend has so far. */
  async refresh(call: MappedCall): Promise<void> {
    let evicted = 0;
    while (this.#end === undefined) {
      const page = await readOutput(call, this.#pid, { start: Math.max(1, this.#next - evicted), count: PAGE_LINES });
      if (page === undefined) return this.#finish({ code: 'unknown', isIncomplete: !this.#killed, leftovers: false });
      if (page.evicted > evicted) {
        evicted = page.evicted;
        // The backend counts from the first line that it still has: read again at the shifted position.
        if (page.start + evicted !== this.#next && this.#next > evicted) continue;
      }
      this.#addPage(page);
      if (page.start + page.lines.length < page.total) continue;
      if (page.ended !== undefined && this.#end === undefined) await this.#conclude(call, page.ended.code);
      return;
    }
  }

  /**
   * Waits until `until` returns true, the command ends, or `ms` have passed. Polls every 150 ms, because the backend
   * cannot wait for output after an offset.
   */
  async waitFor(call: MappedCall, wait: { readonly ms: number; readonly until: () => boolean }): Promise<void> {
    const deadline = Date.now() + wait.ms;
    for (;;) {
      await this.refresh(call);
      const remaining = deadline - Date.now();
      if (this.#end !== undefined || wait.until() || remaining <= 0) return;
      await cancellableSleep(Math.min(POLL_MS, remaining), call.request.signal);
    }
  }

  /**
   * Ends the process group of the command, then its shell, and checks both. Throws TOOL_FAILED if a process still
   * runs.
   */
  async kill(call: MappedCall): Promise<void> {
    await this.refresh(call);
    if (this.#end !== undefined) return;
    this.#killed = true;
    // Without the group, only the shell would end, not its children. A new command has not printed its group yet.
    await this.waitFor(call, { ms: BEGIN_MS, until: () => this.#group !== undefined });
    if (this.#end !== undefined) return;
    if (this.#group !== undefined) {
      await endGroup(call, this.#group);
      // The shell now prints the end marker.
      await this.waitFor(call, { ms: MARKER_MS, until: () => false });
    }
    await callMappingStep(call, 'terminate', { pid: this.#pid });
    const deadline = Date.now() + KILL_MS;
    while (this.end === undefined && (await isListed(call, this.#pid))) {
      if (Date.now() > deadline)
        throw toolFailure('The session was told to end, but it is still running.', 'Tell the user.');
      await cancellableSleep(POLL_MS, call.request.signal);
    }
    await this.refresh(call);
    if (this.end === undefined) this.#finish({ code: 'unknown', leftovers: false });
  }

  /** Adds a page to the log. The last line of a running command may still grow, so only its new part is added. */
  #addPage(page: OutputPage): void {
    const isGrowing = page.ended === undefined && page.start + page.lines.length >= page.total;
    const complete = isGrowing ? page.lines.slice(0, -1) : page.lines;
    this.#next = page.start + page.evicted + complete.length;
    const { begin, end } = findMarkers(complete, this.#token);
    if (this.#group === undefined && begin === undefined) return;
    this.#group ??= begin?.group;
    const lines = complete.slice(begin?.first ?? 0, end?.index);
    // The end marker adds a line end before itself.
    if (end !== undefined && lines.at(-1) === '' && lines.length > 0) lines.pop();
    for (const line of lines) this.#push(`${line}\n`);
    if (end !== undefined) return this.#finish({ code: end.code, leftovers: end.leftovers && !this.#killed });
    const last = isGrowing ? (page.lines.at(-1) ?? '') : '';
    if (last !== '' && !last.startsWith(this.#token)) this.#push(last);
  }

  /** Adds text to the log. `#partial` is the part of the current line that the log already has. */
  #push(text: string): void {
    const added = text.startsWith(this.#partial) ? text.slice(this.#partial.length) : text;
    this.#partial = text.endsWith('\n') ? '' : text;
    this.log.push(Buffer.from(added));
  }

  /**
   * Ends the session when the process has ended without its end marker: it was killed, the shell refused the command,
   * or the backend lost the end of the output.
   */
  async #conclude(call: MappedCall, code: number | undefined): Promise<void> {
    const hasBegun = this.#group !== undefined;
    if (!hasBegun) {
      const all = await readOutput(call, this.#pid, { start: -PAGE_LINES, count: PAGE_LINES });
      for (const line of all?.lines ?? []) this.#push(`${line}\n`);
    }
    this.#finish({ code: code ?? 'unknown', isIncomplete: hasBegun && !this.#killed, leftovers: false });
  }

  #finish(end: Omit<End, 'at'>): void {
    this.#end = { ...end, at: Date.now() };
  }
}

async function isListed(call: MappedCall, pid: number): Promise<boolean> {
  const { text } = await callMappingStep(call, 'sessions', {});
  return text.split('\n').some((line) => Number(matchMappingText(call, 'sessionLine', line)?.pid) === pid);
}

async function endGroup(call: MappedCall, group: number): Promise<void> {
  const answer = await callMappingStep(call, 'spawn', { command: endGroupCommand(group), wait: KILL_MS });
  const pid = Number(matchMappingText(call, 'pid', answer.text)?.pid);
  const deadline = Date.now() + KILL_MS;
  while (Date.now() < deadline && Number.isInteger(pid)) {
    const page = await readOutput(call, pid, { start: -5, count: 5 });
    if (page?.lines.includes('gone>')) return;
    if (page === undefined || page.ended !== undefined || page.lines.includes('left>')) break;
    await cancellableSleep(POLL_MS, call.request.signal);
  }
  throw toolFailure('The session was told to end, but one of its processes is still running.', 'Tell the user.');
}

async function readOutput(
  call: MappedCall,
  pid: number,
  range: { readonly start: number; readonly count: number },
): Promise<OutputPage | undefined> {
  const answer = await callMappingStep(call, 'output', { pid, ...range });
  return answer.failed ? undefined : readOutputPage(call.mapping, answer.text);
}

/** Sleeps for `ms` milliseconds. Throws CANCELLED when the signal is aborted. */
export async function cancellableSleep(ms: number, signal: CancelSignal): Promise<void> {
  await sleep(ms, undefined, { signal: abortSignalOf(signal) }).catch(() => {
    throw new TollgateError('CANCELLED');
  });
}
