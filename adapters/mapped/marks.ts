/** Owns the marks around a command on a backend that hides exit codes and ends of output; refuses output without them. */
import type { Mapping } from '../../catalogs/primitives/mapping.ts';

/** What a page of process output says. Lines are counted from 0 since the process began. */
export interface OutputPage {
  readonly start: number;
  readonly lines: readonly string[];
  readonly total: number;
  /** Set once the process has ended; NaN when the backend did not learn its code. */
  readonly ended?: number;
  /** Lines that the backend dropped from the front of its buffer. */
  readonly evicted: number;
}

/** Output between the marks. `line` counts from 0 at the first line of the command itself. */
export interface Marks {
  /** Process group of the command. */
  readonly group?: number;
  /** Index, in the page, of the first line of the command's own output. */
  readonly first?: number;
  /** Index, in the page, of the mark of the end. */
  readonly last?: number;
  readonly code?: number;
}

/**
 * The command between marks: the first tells its process group, the last its exit code. An empty line stands before each,
 * because the backend cannot be asked for its line 0 and the command may not end its last line. Standard error joins standard
 * output, so that nothing comes after the last mark; the pause lets the backend read the mark before it sees the exit.
 */
export function wrapCommand({ command, cwd, token }: { readonly command: string; readonly cwd: string; readonly token: string }): string {
  const mark = (what: string, value: string): string => `printf '\\n${token} ${what} %d\\n' "${value}"`;
  const environment = 'export NO_COLOR=1 TERM=dumb PAGER=cat GIT_PAGER=cat';
  return `set -m; ${environment}; (\n${mark('start', '$BASHPID')}; cd ${quote(cwd)} && {\n${command}\n}\n) 2>&1; ${mark('exit', '$?')}; sleep 0.1`;
}

/** Ends a process group and prints `gone` only when nothing of it is left: TERM, two seconds, KILL. */
export function endGroupCommand(group: number): string {
  const alive = `kill -0 -- -${group} 2>/dev/null`;
  const wait = `for i in 1 2 3 4 5 6 7 8 9 10; do ${alive} || break; sleep 0.2; done`;
  return `kill -TERM -- -${group} 2>/dev/null; ${wait}; ${alive} && { kill -KILL -- -${group}; sleep 0.3; }; ${alive} && echo left || echo gone`;
}

/** One word for a POSIX shell. */
export function quote(word: string): string {
  return `'${word.replaceAll("'", "'\\''")}'`;
}

/** Reads a page of the backend. Undefined when the text is none: its header counts the lines, so a trailer cannot be forged by output. */
export function readPage(mapping: Mapping, text: string): OutputPage | undefined {
  const match = (name: string, where: string): Readonly<Record<string, string>> | undefined => {
    const found = mapping.texts.get(name)?.exec(where);
    return found ? { ...found.groups } : undefined;
  };
  const gap = text.indexOf('\n\n');
  const head = gap < 0 ? text : text.slice(0, gap);
  const header = match('outputHeader', head) ?? match('outputTail', head);
  if (!header) return undefined;
  const count = Number(header['count']);
  const rest = gap < 0 ? [] : text.slice(gap + 2).split('\n');
  const trailer = match('completed', rest.slice(Math.max(count, 1)).join('\n'));
  const lines = rest.slice(0, count);
  return {
    start: Number(header['start'] ?? 0),
    lines: count === 1 && lines[0] === '(No output in requested range)' ? [''] : lines,
    total: Number(header['total'] ?? count),
    ...(trailer ? { ended: Number(trailer['code']) } : {}),
    evicted: Number(match('evicted', head)?.['count'] ?? 0),
  };
}

/** Finds the marks of one token among lines. */
export function findMarks(lines: readonly string[], token: string): Marks {
  const first = lines.findIndex((line) => line.startsWith(`${token} start `));
  const last = lines.findLastIndex((line) => line.startsWith(`${token} exit `));
  return {
    ...(first >= 0 ? { first: first + 1, group: numberAfter(lines[first]) } : {}),
    ...(last >= 0 ? { last, code: numberAfter(lines[last]) } : {}),
  };
}

function numberAfter(line: string | undefined): number {
  return Number(line?.slice(line.lastIndexOf(' ') + 1));
}
