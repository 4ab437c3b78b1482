/** Owns the marks around a command on a backend that hides exit codes and ends of output; refuses pages that its header does not count. */
import type { Mapping } from '../../../catalogs/primitives/primitive-mapping.ts';
import { matchMappingText } from './mapped-call.ts';

/** Lines of a page that are read, many more than are asked for. */
const MAX_LINES = 100_000;

/** What a page of process output says. Lines are counted from 0 since the process began, less those that were evicted. */
export interface OutputPage {
  readonly start: number;
  readonly lines: readonly string[];
  readonly total: number;
  /** The process has ended. `code` is absent when the backend did not learn it. */
  readonly ended?: { readonly code?: number };
  /** Lines that the backend dropped from the front of its buffer. */
  readonly evicted: number;
}

/** What the marks among some lines say; indexes into those lines. */
export interface CommandMarkers {
  /** The command's process group and its first line of output. */
  readonly begin?: { readonly group: number; readonly first: number };
  /** The mark's own index, the exit code, and whether processes were left in the background and ended. */
  readonly end?: { readonly index: number; readonly code: number; readonly leftovers: boolean };
}

/** A command to be run from `cwd`; without `input` its stdin is empty. */
export interface MarkedCommand {
  readonly command: string;
  readonly cwd: string;
  readonly token: string;
  readonly input: boolean;
}

/**
 * The command between marks: the first tells its process group, the last its exit code. An empty line stands before each, because
 * the backend cannot be asked for its line 0 and the command may not end its last line. Standard error joins standard output, so
 * that nothing comes after the last mark. That mark ends like a prompt, at which the backend answers at once, and the shell stays
 * for two seconds: the backend drops what it has not read when a process exits. The command is quoted, so that its faults of syntax
 * stay its own; the comment shows it to the backend's list of blocked commands, which does not look into quotes.
 */
export function markCommand({ command, cwd, token, input }: MarkedCommand): string {
  const bare = `# ; ${command.replaceAll(/[\r\n]+/g, ' ')}`;
  const environment = 'export NO_COLOR=1 TERM=dumb PAGER=cat GIT_PAGER=cat';
  const begin = `printf '\\n${token} begin %d\\n' "$BASHPID"; cd ${shellQuote(cwd)} && eval ${shellQuote(command)}`;
  const leftovers = 'left=0; kill -0 -- -$job && { left=1; kill -TERM -- -$job; sleep 0.3; kill -KILL -- -$job; }';
  const end = `printf '\\n${token} end %d %d >\\n' $code $left; sleep 2`;
  return `${bare}\nexec 2>/dev/null; set -m; ${environment}; (\n${begin}\n) ${input ? '' : '</dev/null '}2>&1 & job=$!; wait $job; code=$?; ${leftovers}; ${end}`;
}

/** Ends a process group: TERM, two seconds, KILL. Prints `gone>` only when nothing of it is left but zombies. */
export function endGroupCommand(group: number): string {
  const alive = `alive() { kill -0 -- -${group} && { [ ! -d /proc/self ] || cat /proc/[0-9]*/stat | sed 's/.*) //' | grep -qE '^[^ZX] [0-9]+ ${group} '; }; }`;
  const wait = 'for i in 1 2 3 4 5 6 7 8 9 10; do alive || break; sleep 0.2; done';
  return `exec 2>/dev/null; ${alive}; kill -TERM -- -${group}; ${wait}; alive && { kill -KILL -- -${group}; sleep 0.3; }; alive && echo 'left>' || echo 'gone>'; sleep 2`;
}

/** One word for a POSIX shell. */
export function shellQuote(word: string): string {
  return `'${word.replaceAll("'", "'\\''")}'`;
}

/** Reads a page of the backend; undefined when the text is none. Its header counts the lines, so output cannot forge the trailer. */
export function readOutputPage(mapping: Mapping, text: string): OutputPage | undefined {
  const groups = (name: string, where: string): Readonly<Record<string, string>> | undefined =>
    matchMappingText({ mapping }, name, where);
  const gap = text.indexOf('\n\n');
  const head = gap < 0 ? text : text.slice(0, gap);
  const header = groups('outputHeader', head);
  if (!header) return undefined;
  const count = Number(header.count);
  const rest = gap < 0 ? [] : text.slice(gap + 2).split('\n', MAX_LINES);
  const trailer = groups('completed', rest.slice(Math.max(count, 1)).join('\n'));
  const code = Number(trailer?.code ?? Number.NaN);
  const total = Number(header.total);
  return {
    start: Number(header.start ?? total - count),
    // A single empty line comes as this phrase.
    lines: count === 1 && rest[0] === '(No output in requested range)' ? [''] : rest.slice(0, count),
    total,
    ...(trailer ? { ended: Number.isNaN(code) ? {} : { code } } : {}),
    evicted: Number(groups('evicted', head)?.count ?? 0),
  };
}

/** Finds the marks of one token among lines. */
export function findMarkers(lines: readonly string[], token: string): CommandMarkers {
  const first = lines.findIndex((line) => line.startsWith(`${token} begin `));
  const index = lines.findLastIndex((line) => line.startsWith(`${token} end `));
  const [, , code = '', left] = (lines[index] ?? '').split(' ');
  return {
    ...(first >= 0 ? { begin: { group: Number(lines[first]?.split(' ')[2]), first: first + 1 } } : {}),
    ...(index >= 0 ? { end: { index, code: Number(code), leftovers: left === '1' } } : {}),
  };
}
