/**
 * Runs ripgrep in a sandbox and reads its matches. Configuration and ignore rules from outside the workspace are not
 * used.
 */
import type { ChildProcess } from 'node:child_process';
import { createInterface } from 'node:readline';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { findHelper } from '../../../catalogs/programs/helper-programs.ts';
import { READER_READY, startReader } from '../../sandbox/bubblewrap/sandboxed-reader.ts';
import { signalGroup } from '../../sandbox/process-tree.ts';
import { headOf, invalidArguments, toolFailure } from '../workspace/file-text.ts';
import { compileGlob } from './glob-matcher.ts';
import type { SearchHit, SearchHits, SearchQuery, SearchScope } from './search-hits.ts';

/** Only .gitignore files of the workspace apply, not those of the user or of folders above. */
const FIXED = [
  '--json',
  '--crlf',
  '--no-config',
  '--no-messages',
  '--no-require-git',
  '--no-ignore-global',
  '--no-ignore-exclude',
  '--no-ignore-dot',
  '--sort=path',
  '--max-filesize=16M',
];

interface Message {
  readonly type: string;
  readonly data: { readonly path?: Encoded; readonly lines?: Encoded; readonly line_number?: number | null };
}

/** A text, or base64 if it is not valid UTF-8. */
interface Encoded {
  readonly text?: string;
  readonly bytes?: string;
}

/** Searches the open folder or file with ripgrep. Returns false if ripgrep or its sandbox is not available. */
export async function searchWithRipgrep(scope: SearchScope, query: SearchQuery, hits: SearchHits): Promise<boolean> {
  const program = findHelper('rg');
  if (program === undefined) return false;
  const file = scope.name === undefined ? undefined : await scope.folder.openFile(scope.name);
  try {
    const child = startReader({
      program,
      args: argumentsOf(query, file !== undefined),
      workspace: scope.root,
      fd: file?.fd ?? scope.folder.fd,
      isFolder: file === undefined,
    });
    // --glob of ripgrep would include ignored files, so the glob is matched here.
    const glob = query.glob === undefined || file !== undefined ? undefined : compileGlob(query.glob);
    return await readHits(
      child,
      scope,
      (hit) => glob?.(hit.path.slice(scope.prefix.length)) === false || hits.add(hit),
    );
  } catch (thrown) {
    if (thrown instanceof TollgateError && thrown.code === 'SANDBOX_UNAVAILABLE') return false;
    throw thrown;
  } finally {
    await file?.close();
  }
}

function argumentsOf(query: SearchQuery, fromStdin: boolean): readonly string[] {
  return [
    ...FIXED,
    ...(query.hidden ? ['--hidden', '--no-ignore'] : []),
    ...(query.ignoreCase ? ['--ignore-case'] : []),
    ...(query.literal ? ['--fixed-strings'] : []),
    ...(query.context > 0 ? [`--context=${query.context}`] : []),
    // `--regexp=` and `--` prevent option injection by the pattern or the path.
    `--regexp=${query.pattern}`,
    '--',
    fromStdin ? '-' : './',
  ];
}

async function readHits(child: ChildProcess, scope: SearchScope, onHit: (hit: SearchHit) => boolean): Promise<boolean> {
  const stop = (): boolean => signalGroup(child, 'SIGKILL');
  scope.signal.addEventListener('abort', stop, { once: true });
  if (scope.signal.aborted) stop();
  let errorText = '';
  let [isReady, isStopped] = [false, false];
  child.stderr?.setEncoding('utf8').on('data', (text: string) => (errorText = headOf(errorText + text, 2000)));
  const ended = new Promise<number | null>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => resolve(code));
  });
  try {
    const lines =
      child.stdout === null ? [] : createInterface({ input: child.stdout, crlfDelay: Number.POSITIVE_INFINITY });
    for await (const line of lines) {
      if (isStopped || scope.signal.aborted) continue; // The last line of a killed ripgrep may be cut.
      if (!isReady) {
        // Another first line comes from a sandbox that could not be set up.
        isReady = line === READER_READY;
        isStopped = !isReady && stop();
        continue;
      }
      const hit = hitOf(line, scope);
      if (hit !== undefined && !onHit(hit)) isStopped = stop();
    }
    const code = await ended;
    if (!isReady && !scope.signal.aborted) return false;
    if (code === 2 && errorText !== '' && !scope.signal.aborted) throw ripgrepError(errorText);
    return true;
  } finally {
    scope.signal.removeEventListener('abort', stop);
  }
}

function hitOf(line: string, scope: SearchScope): SearchHit | undefined {
  const { type, data } = JSON.parse(line) as Message;
  if (type !== 'match' && type !== 'context') return undefined;
  const path = scope.name === undefined ? scope.prefix + decode(data.path).replace(/^\.\//, '') : scope.prefix;
  return { path, line: data.line_number ?? 0, text: decode(data.lines), matches: type === 'match' };
}

function decode(encoded: Encoded | undefined): string {
  return encoded?.text ?? Buffer.from(encoded?.bytes ?? '', 'base64').toString('utf8');
}

function ripgrepError(errorText: string): Error {
  const line =
    errorText
      .split('\n')
      .filter((text) => text.trim() !== '')
      .at(-1) ?? '';
  if (/regex parse error/.test(errorText))
    return invalidArguments(
      `The pattern is not valid: ${line.replace(/^error: /, '')}`,
      'Correct it, or use literal=true for plain text.',
    );
  return toolFailure(`The search failed: ${line}`, 'Search in a smaller folder.');
}
