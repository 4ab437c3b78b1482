/** Owns one run of ripgrep in a sandbox: its arguments, its lines, its end; refuses configuration and rules from outside the workspace. */
import type { ChildProcess } from 'node:child_process';
import { createInterface } from 'node:readline';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { findHelper } from '../../../catalogs/programs/helper-programs.ts';
import { READER_READY, startReader } from '../../sandbox/bubblewrap/sandboxed-reader.ts';
import { signalGroup } from '../../sandbox/process-tree.ts';
import { headOf, invalidArguments, toolFailure } from '../workspace/file-text.ts';
import { compileGlob } from './glob-matcher.ts';
import type { SearchHit, SearchHits, SearchQuery, SearchScope } from './search-hits.ts';

/** Rules are the workspace's .gitignore files and nothing of the user's or of folders above. */
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

/** Text, or base64 where it is not valid UTF-8. */
interface Encoded {
  readonly text?: string;
  readonly bytes?: string;
}

/** Searches with ripgrep; false when there is none, or no sandbox for it. It sees the very folder or file that is open here. */
export async function searchWithRipgrep(ground: SearchScope, query: SearchQuery, hits: SearchHits): Promise<boolean> {
  const program = findHelper('rg');
  if (program === undefined) return false;
  const file = ground.name === undefined ? undefined : await ground.folder.openFile(ground.name);
  try {
    const child = startReader({
      program,
      args: argumentsOf(query, file !== undefined),
      workspace: ground.root,
      fd: file?.fd ?? ground.folder.fd,
      isFolder: file === undefined,
    });
    // rg's own --glob would bring ignored files back, so hits are chosen here.
    const glob = query.glob === undefined || file !== undefined ? undefined : compileGlob(query.glob);
    return await follow(
      child,
      ground,
      (hit) => glob?.(hit.path.slice(ground.prefix.length)) === false || hits.add(hit),
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
    // `--regexp=` and `--`: neither pattern nor path can become an option (option injection).
    `--regexp=${query.pattern}`,
    '--',
    fromStdin ? '-' : './',
  ];
}

async function follow(child: ChildProcess, ground: SearchScope, take: (hit: SearchHit) => boolean): Promise<boolean> {
  const stop = (): boolean => signalGroup(child, 'SIGKILL');
  ground.signal.addEventListener('abort', stop, { once: true });
  if (ground.signal.aborted) stop();
  let complaint = '';
  let [isReady, enough] = [false, false];
  child.stderr?.setEncoding('utf8').on('data', (text: string) => (complaint = headOf(complaint + text, 2000)));
  const ended = new Promise<number | null>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => resolve(code));
  });
  try {
    const lines =
      child.stdout === null ? [] : createInterface({ input: child.stdout, crlfDelay: Number.POSITIVE_INFINITY });
    for await (const line of lines) {
      if (enough || ground.signal.aborted) continue; // The last line of a killed rg is cut.
      if (!isReady) {
        // Anything else is said by the shell of a sandbox that was not set up.
        isReady = line === READER_READY;
        enough = !isReady && stop();
        continue;
      }
      const hit = hitOf(line, ground);
      if (hit !== undefined && !take(hit)) enough = stop();
    }
    const code = await ended;
    if (!isReady && !ground.signal.aborted) return false;
    if (code === 2 && complaint !== '' && !ground.signal.aborted) throw complained(complaint);
    return true;
  } finally {
    ground.signal.removeEventListener('abort', stop);
  }
}

function hitOf(line: string, ground: SearchScope): SearchHit | undefined {
  const { type, data } = JSON.parse(line) as Message;
  if (type !== 'match' && type !== 'context') return undefined;
  const path = ground.name === undefined ? ground.prefix + decode(data.path).replace(/^\.\//, '') : ground.prefix;
  return { path, line: data.line_number ?? 0, text: decode(data.lines), matches: type === 'match' };
}

function decode(encoded: Encoded | undefined): string {
  return encoded?.text ?? Buffer.from(encoded?.bytes ?? '', 'base64').toString('utf8');
}

function complained(complaint: string): Error {
  const line =
    complaint
      .split('\n')
      .filter((text) => text.trim() !== '')
      .at(-1) ?? '';
  if (/regex parse error/.test(complaint))
    return invalidArguments(
      `The pattern is refused: ${line.replace(/^error: /, '')}`,
      'Correct it, or use literal=true for plain text.',
    );
  return toolFailure(`The search failed: ${line}`, 'Search in a smaller folder.');
}
