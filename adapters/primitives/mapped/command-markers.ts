/**
 * Wraps a command in marker lines, for a backend that reports neither its exit code nor the end of its output, and
 * finds these markers again in the pages of output.
 */
import type { Mapping } from '../../../catalogs/primitives/primitive-mapping.ts';
import { matchMappingText } from './mapped-call.ts';

/** Most lines of one page that are read. Requested pages are much smaller. */
const MAX_LINES = 100_000;

/** A page of process output. Lines count from 0 at the start of the process, without evicted lines. */
export interface OutputPage {
  readonly start: number;
  readonly lines: readonly string[];
  readonly total: number;
  /** Present if the process has ended. `code` is absent if the backend does not know it. */
  readonly ended?: { readonly code?: number };
  /** Lines that the backend dropped from the front of its buffer. */
  readonly evicted: number;
}

/** The markers found in some lines, as indexes into these lines. */
export interface CommandMarkers {
  /** Process group of the command, and index of its first line of output. */
  readonly begin?: { readonly group: number; readonly first: number };
  /** Index of the end marker, the exit code, and whether background processes were left and ended. */
  readonly end?: { readonly index: number; readonly code: number; readonly leftovers: boolean };
}

/** A command to run in `cwd`. Without `input`, its stdin is empty. `token` makes its markers unique. */
export interface MarkedCommand {
  readonly command: string;
  readonly cwd: string;
  readonly token: string;
  readonly input: boolean;
}

/**
 * Returns a script that runs the command between two markers. The first marker reports its process group, the last one
 * its exit code.
 * - An empty line precedes each marker: the backend cannot return its line 0, and the command may not end its last
 *   line.
 * - stderr is merged into stdout, so that no output follows the end marker.
 * - The end marker looks like a prompt, so that the backend answers at once. The shell then waits two seconds, because
 *   the backend drops unread output when a process exits.
 * - The command is quoted, so that its syntax errors do not break the script. The comment repeats it for the backend's
 *   list of blocked commands, which does not look inside quotes.
 */
export function markCommand({ command, cwd, token, input }: MarkedCommand): string {
  const comment = `# ; ${command.replaceAll(/[\r\n]+/g, ' ')}`;
  const environment = 'export NO_COLOR=1 TERM=dumb PAGER=cat GIT_PAGER=cat';
  const begin = `printf '\\n${token} begin %d\\n' "$BASHPID"; cd ${shellQuote(cwd)} && eval ${shellQuote(command)}`;
  const leftovers = 'left=0; kill -0 -- -$job && { left=1; kill -TERM -- -$job; sleep 0.3; kill -KILL -- -$job; }';
  const end = `printf '\\n${token} end %d %d >\\n' $code $left; sleep 2`;
  const redirections = `${input ? '' : '</dev/null '}2>&1`;
  const job = `(\n${begin}\n) ${redirections} & job=$!; wait $job; code=$?`;
  return `${comment}\nexec 2>/dev/null; set -m; ${environment}; ${job}; ${leftovers}; ${end}`;
}

/**
 * Returns a script that ends a process group: SIGTERM, and SIGKILL after two seconds. It prints `gone>` if only zombies
 * of the group are left, else `left>`.
 */
export function endGroupCommand(group: number): string {
  const inProc = `cat /proc/[0-9]*/stat | sed 's/.*) //' | grep -qE '^[^ZX] [0-9]+ ${group} '`;
  const alive = `alive() { kill -0 -- -${group} && { [ ! -d /proc/self ] || ${inProc}; }; }`;
  const wait = 'for i in 1 2 3 4 5 6 7 8 9 10; do alive || break; sleep 0.2; done';
  const kill = `alive && { kill -KILL -- -${group}; sleep 0.3; }`;
  const report = "alive && echo 'left>' || echo 'gone>'; sleep 2";
  return `exec 2>/dev/null; ${alive}; kill -TERM -- -${group}; ${wait}; ${kill}; ${report}`;
}

/** Quotes a text as one word of a POSIX shell. */
export function shellQuote(word: string): string {
  return `'${word.replaceAll("'", "'\\''")}'`;
}

/**
 * Parses a page of the backend. Returns undefined if the text is not a page. The header gives the number of lines, so
 * output of the command cannot forge the trailer.
 */
export function readOutputPage(mapping: Mapping, text: string): OutputPage | undefined {
  const match = (name: string, part: string): Readonly<Record<string, string>> | undefined =>
    matchMappingText({ mapping }, name, part);
  const gap = text.indexOf('\n\n');
  const head = gap < 0 ? text : text.slice(0, gap);
  const header = match('outputHeader', head);
  if (!header) return undefined;
  const count = Number(header.count);
  const rest = gap < 0 ? [] : text.slice(gap + 2).split('\n', MAX_LINES);
  const trailer = match('completed', rest.slice(Math.max(count, 1)).join('\n'));
  const code = Number(trailer?.code ?? Number.NaN);
  const total = Number(header.total);
  return {
    start: Number(header.start ?? total - count),
    // The backend writes this phrase for a single empty line.
    lines: count === 1 && rest[0] === '(No output in requested range)' ? [''] : rest.slice(0, count),
    total,
    ...(trailer ? { ended: Number.isNaN(code) ? {} : { code } } : {}),
    evicted: Number(match('evicted', head)?.count ?? 0),
  };
}

/** Finds the markers of one token in some lines. */
export function findMarkers(lines: readonly string[], token: string): CommandMarkers {
  const first = lines.findIndex((line) => line.startsWith(`${token} begin `));
  const index = lines.findLastIndex((line) => line.startsWith(`${token} end `));
  const [, , code = '', left] = (lines[index] ?? '').split(' ');
  return {
    ...(first >= 0 ? { begin: { group: Number(lines[first]?.split(' ')[2]), first: first + 1 } } : {}),
    ...(index >= 0 ? { end: { index, code: Number(code), leftovers: left === '1' } } : {}),
  };
}
