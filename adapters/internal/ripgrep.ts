/** Owns one run of ripgrep: its arguments, its lines, its end; refuses configuration and rules from outside the workspace. */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { createInterface } from 'node:readline';
import { compileGlob } from './globs.ts';
import type { Hit, Hits, Query } from './hits.ts';
import type { Ground } from './search.ts';
import { failed, headOf, invalid } from './text.ts';

/** Rules are the workspace's .gitignore files and nothing of the user's or of folders above. */
const FIXED = ['--json', '--crlf', '--no-config', '--no-messages', '--no-require-git', '--no-ignore-global', '--no-ignore-exclude', '--no-ignore-dot', '--sort=path', '--max-filesize=16M'];

interface Message {
  readonly type: string;
  readonly data: { readonly path?: Encoded; readonly lines?: Encoded; readonly line_number?: number | null };
}

/** Text, or base64 where it is not valid UTF-8. */
interface Encoded {
  readonly text?: string;
  readonly bytes?: string;
}

/** Searches with `rg` from PATH; false when there is none. The child gets an open folder or file, so no swapped link misleads it. */
export async function ripgrep(ground: Ground, query: Query, hits: Hits): Promise<boolean> {
  const file = ground.name === undefined ? undefined : await ground.folder.openFile(ground.name);
  try {
    const child = spawn('rg', argumentsOf(query, file !== undefined), {
      cwd: ground.folder.forChild(),
      env: { PATH: process.env['PATH'], LC_ALL: 'C.UTF-8' },
      stdio: [file === undefined ? 'ignore' : file.fd, 'pipe', 'pipe'],
    });
    // rg's own --glob would bring ignored files back, so hits are chosen here.
    const glob = query.glob === undefined || file !== undefined ? undefined : compileGlob(query.glob);
    return await follow(child, ground, (hit) => glob?.(hit.path.slice(ground.prefix.length)) === false || hits.add(hit));
  } finally {
    await file?.close();
  }
}

function argumentsOf(query: Query, fromStdin: boolean): readonly string[] {
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

async function follow(child: ChildProcess, ground: Ground, take: (hit: Hit) => boolean): Promise<boolean> {
  const stop = (): boolean => child.kill('SIGKILL');
  ground.signal.addEventListener('abort', stop, { once: true });
  if (ground.signal.aborted) stop();
  let complaint = '';
  let enough = false;
  child.stderr?.setEncoding('utf8').on('data', (text: string) => (complaint = headOf(complaint + text, 2000)));
  const ended = new Promise<number | 'absent' | null>((resolve, reject) => {
    child.once('error', (error: NodeJS.ErrnoException) => (error.code === 'ENOENT' ? resolve('absent') : reject(error)));
    child.once('close', (code) => resolve(code));
  });
  try {
    const lines = child.stdout === null ? [] : createInterface({ input: child.stdout, crlfDelay: Number.POSITIVE_INFINITY });
    for await (const line of lines) {
      if (enough || ground.signal.aborted) continue; // The last line of a killed rg is cut.
      const hit = hitOf(line, ground);
      if (hit !== undefined && !take(hit)) enough = stop();
    }
    const code = await ended;
    if (code === 'absent') return false;
    if (code === 2 && complaint !== '' && !ground.signal.aborted) throw complained(complaint);
    return true;
  } finally {
    ground.signal.removeEventListener('abort', stop);
  }
}

function hitOf(line: string, ground: Ground): Hit | undefined {
  const { type, data } = JSON.parse(line) as Message;
  if (type !== 'match' && type !== 'context') return undefined;
  const path = ground.name === undefined ? ground.prefix + decode(data.path).replace(/^\.\//, '') : ground.prefix;
  return { path, line: data.line_number ?? 0, text: decode(data.lines), matches: type === 'match' };
}

function decode(encoded: Encoded | undefined): string {
  return encoded?.text ?? Buffer.from(encoded?.bytes ?? '', 'base64').toString('utf8');
}

function complained(complaint: string): Error {
  const line = complaint.split('\n').filter((text) => text.trim() !== '').at(-1) ?? '';
  if (/regex parse error/.test(complaint)) return invalid(`The pattern is refused: ${line.replace(/^error: /, '')}`, 'Correct it, or use literal=true for plain text.');
  return failed(`The search failed: ${line}`, 'Search in a smaller folder.');
}
