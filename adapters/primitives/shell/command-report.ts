/** Formats the output and the end of a command. A non-zero exit code is not an error of the tool. */
import { plural } from '../../../catalogs/text/readable-text.ts';
import { note, type PageRequest } from '../../../catalogs/text/text-pages.ts';
import type { ToolResult } from '../../../catalogs/tools/tool-definition.ts';
import { headOf, invalidArguments, printableName, textResult } from '../workspace/file-text.ts';
import type { OutputLines, OutputLog } from './output-log.ts';

/** The reported state of a command, here or on another server. Times in Unix milliseconds. */
export interface ReportedCommand {
  readonly command: string;
  readonly log: OutputLog;
  readonly startedAt: number;
  /** `isIncomplete`: the end of the output may be missing. */
  readonly end:
    | {
        readonly code: number | 'unknown';
        readonly signal?: string;
        readonly leftovers: boolean;
        readonly isIncomplete?: boolean;
        readonly outOfMemory?: boolean;
        readonly withheld?: readonly string[];
        readonly lost?: readonly string[];
        readonly at: number;
      }
    | undefined;
}

const PAGE_LINES = 2000;
const PAGE_BYTES = 30_000;
const ALL = Number.MAX_SAFE_INTEGER;

/** Returns the whole output of a finished run. The facade cuts it and spills the rest. */
export function wholeOutput(session: ReportedCommand, limit: number | undefined): ToolResult {
  const all = session.log.lines(1, ALL);
  const cut = limit !== undefined && all.lines.length > limit ? headAndTail(all.lines, limit) : joinLines(all);
  return textResult(exitLine(session) + cut, endNote(session), withheldNote(session));
}

function exitLine(session: ReportedCommand): string {
  const { end } = session;
  if (end === undefined || end.code === 0) return '';
  return `exit ${end.code}${end.signal === undefined ? '' : ` (${end.signal})`}\n`;
}

function endNote(session: ReportedCommand): string | undefined {
  const lost = session.end?.lost ?? [];
  if (lost.length > 0)
    return note(
      `Tollgate ended the command: a program outside its sandbox replaced ${namesOf(lost)} while it ran, and rules ` +
        'close this path to the command. Run it again',
    );
  if (session.end?.isIncomplete === true)
    return note('the backend did not report how the command ended; the end of its output may be missing');
  if (session.end?.outOfMemory === true)
    return note(
      'the system ended the command: its processes and its files in /tmp together needed more memory than ' +
        'bash.limits.memoryMb',
    );
  if (session.end?.leftovers === true)
    return note('processes that the command left in the background were ended; use action="start" to keep one');
  return session.log.total === 0 && session.end?.code === 0 ? note('no output, exit 0') : undefined;
}

const MAX_WITHHELD = 10;

function withheldNote({ end }: ReportedCommand): string | undefined {
  const files = end?.withheld ?? [];
  if (files.length === 0) return undefined;
  return note(
    `git on the host would run programs that these files name, so .withheld was appended to their names: ` +
      `${namesOf(files)}. A person can check them and rename them back`,
  );
}

function namesOf(files: readonly string[]): string {
  const more = files.length > MAX_WITHHELD ? ` and ${files.length - MAX_WITHHELD} more` : '';
  return files.slice(0, MAX_WITHHELD).map(printableName).join(', ') + more;
}

/** Returns 30 % of the lines from the head and the rest from the tail, where results and errors usually are. */
function headAndTail(lines: readonly string[], limit: number): string {
  const head = Math.floor(limit * 0.3);
  const tail = limit - head;
  const cut = note(`lines ${head + 1}-${lines.length - tail} of ${lines.length} were cut by limit`);
  return [...lines.slice(0, head), cut, ...lines.slice(lines.length - tail)].join('\n');
}

function joinLines({ lines, gap }: OutputLines): string {
  if (gap === undefined) return lines.join('\n');
  return [...lines.slice(0, gap.before), note(`${gap.lines} lines here were dropped`), ...lines.slice(gap.before)].join(
    '\n',
  );
}

/** Returns the output that has not been shown yet, and marks it as shown. */
export function newOutput(session: ReportedCommand, limit: number | undefined): string {
  return joinLines(session.log.next(limit ?? PAGE_LINES, PAGE_BYTES));
}

/** Returns the new output of a session, and its state. */
export function sessionReport(id: string, session: ReportedCommand, limit: number | undefined): ToolResult {
  const text = newOutput(session, limit);
  const { unread } = session.log;
  if (unread > 0 || session.end === undefined) {
    const state = session.end === undefined ? 'is running' : `has ended (exit ${session.end.code})`;
    return textResult(
      text,
      note(`session ${id} ${state}, ${plural(unread, 'more line')} to show. ${nextPollCall(id)}`),
    );
  }
  const time = formatSeconds(session.end.at - session.startedAt);
  return textResult(
    exitLine(session) + text,
    endNote(session),
    withheldNote(session),
    note(`session ${id} has ended: exit ${session.end.code} after ${time}`),
  );
}

/** Returns lines by number, whether shown before or not. A negative `offset` counts from the end. */
export function outputHistory(id: string, session: ReportedCommand, { offset = 1, limit }: PageRequest): ToolResult {
  const total = session.log.total;
  if (offset === 0)
    throw invalidArguments(
      'offset counts from 1; 0 is no line.',
      'Use offset=1, or a negative offset to count from the end.',
    );
  const from = offset < 0 ? Math.max(1, total + offset + 1) : offset;
  const page = session.log.lines(from, limit ?? PAGE_LINES);
  return textResult(joinLines(page), note(`session ${id}: lines ${from}-${page.to} of ${total}, ${stateOf(session)}`));
}

/** Lists sessions: id, state, age, unread lines and command. */
export function sessionList(sessions: Iterable<readonly [id: string, ReportedCommand]>): ToolResult {
  const lines = [...sessions].map(([id, session]) => {
    const age = formatSeconds(Date.now() - session.startedAt);
    const command = headOf(printableName(session.command), 200);
    return `${id} ${stateOf(session)}, age ${age}, ${plural(session.log.unread, 'unread line')}: ${command}`;
  });
  return textResult(lines.length > 0 ? lines.join('\n') : note('no sessions'));
}

/** Returns the output of a run that was not finished after `ms` milliseconds and continues as a session. */
export function continuedRun(
  id: string,
  session: ReportedCommand,
  { ms, limit }: { readonly ms: number; readonly limit: number | undefined },
): ToolResult {
  const state = `not finished after ${formatSeconds(ms)}; it continues as session ${id}, without stdin.`;
  return textResult(newOutput(session, limit), note(`${state} ${nextPollCall(id)}`));
}

/** Returns the last output of a session that was killed. */
export function killedReport(id: string, session: ReportedCommand, limit: number | undefined): ToolResult {
  return textResult(newOutput(session, limit), note(`session ${id} and all its processes were ended`));
}

function stateOf({ end }: ReportedCommand): string {
  return end === undefined ? 'running' : `exit ${end.code}`;
}

/** Returns the call that shows the next output. */
function nextPollCall(id: string): string {
  return `Next: bash action="poll" session="${id}"`;
}

/** Formats milliseconds as seconds. */
export function formatSeconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`;
}
