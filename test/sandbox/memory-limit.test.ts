/** Tests the one limit of memory of a whole sandbox by what goes around the limits of processes, measured in its control group; and the start where there is none. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { sandboxedShell } from '../../adapters/primitives/shell/sandboxed-shell.ts';
import { createWorkspace } from '../../adapters/primitives/workspace/workspace-server.ts';
import {
  type ControlGroup,
  type ControlGroups,
  ownControlGroups,
  tryControlGroups,
} from '../../adapters/sandbox/bubblewrap/control-group.ts';
import { startSandboxed } from '../../adapters/sandbox/bubblewrap/sandbox-start.ts';
import { startTimeOf } from '../../adapters/sandbox/process-tree.ts';
import type { SandboxSpec } from '../../adapters/sandbox/sandbox-spec.ts';
import { launch } from '../../adapters/stdio/launch.ts';
import { StdioConnection } from '../../adapters/stdio/stdio-connection.ts';
import type { ServerSettings } from '../../adapters/supervisor/server-settings.ts';
import { pidNamespace } from '../../catalogs/programs/pid-namespace.ts';
import { verifies } from '../verifies.ts';
import { OWNER, openWorkspace } from './probe-targets.ts';

const MB = 1024 * 1024;
const LIMIT_MB = 32;
const LIMITS = { memoryMb: LIMIT_MB, processes: 64, fileMb: 256 };
const NONE = (): Promise<undefined> => Promise.resolve(undefined);
const PYTHON = execFileSync('python3', ['-c', 'import sys; print(sys.executable)'], { encoding: 'utf8' }).trim();

let workspace: string;
let groups: ControlGroups;

beforeAll(async () => {
  const found = await ownControlGroups();
  expect(found, 'these tests need control groups that count memory: run them as root').toBeDefined();
  groups = found as ControlGroups;
});

beforeEach(() => {
  workspace = openWorkspace();
});

afterEach(() => {
  rmSync(workspace, { recursive: true, force: true });
});

/** Of this process: others make some at the same time. */
const foldersOfGroups = (): readonly string[] =>
  readdirSync(groups.parent.folder)
    .filter((name) => name.startsWith('tollgate-') && name.includes(`-${process.pid}-`))
    .map((name) => path.join(groups.parent.folder, name));

/** The most that a group held, in bytes, with its account of TCP where that is another. */
function peakOf(folder: string): number {
  const files = ['memory.peak', 'memory.max_usage_in_bytes', 'memory.kmem.tcp.max_usage_in_bytes']
    .map((name) => path.join(folder, name))
    .filter((file) => existsSync(file));
  return Math.max(...files.map((file) => Number(readFileSync(file, 'utf8'))));
}

interface Outcome {
  readonly out: string;
  readonly code: number | null;
  readonly lacked: boolean;
  /** In bytes; 0 without a group. */
  readonly peak: number;
}

async function run(
  words: readonly string[],
  { limits = LIMITS, counted = true }: { limits?: SandboxSpec['limits']; counted?: boolean } = {},
): Promise<Outcome> {
  const [command = '', ...args] = words;
  let peak = 0;
  const measured: ControlGroups = {
    ...groups,
    make: (...given): ControlGroup => {
      const before = foldersOfGroups();
      const group = groups.make(...given);
      const folder = foldersOfGroups().find((one) => !before.includes(one)) ?? '';
      return { ...group, remove: () => ((peak = peakOf(folder)), group.remove()) };
    },
  };
  const jail: SandboxSpec = {
    command,
    args,
    env: {},
    cwd: workspace,
    workspace,
    read: [],
    write: [workspace],
    hidden: [],
    limits,
    input: false,
  };
  const { child, hasLackedMemory } = await startSandboxed(jail, counted ? () => Promise.resolve(measured) : NONE);
  let out = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (text: Buffer) => (out += text.toString('utf8')));
  const code = await new Promise<number | null>((resolve) => child.once('close', resolve));
  return {
    out: out.trim(),
    code: code ?? (child.signalCode === 'SIGKILL' ? 137 : null),
    lacked: hasLackedMemory?.() === true,
    peak,
  };
}

const python = (script: string): readonly string[] => [PYTHON, '-c', script];

/** Each takes 200 MB and more, and prints `held` when it has them; none is data of one process. */
const BOMBS: ReadonlyMap<string, readonly string[]> = new Map([
  [
    'of many processes',
    python(`
import os
for i in range(16):
  if os.fork() == 0:
    a = bytearray(b"x" * (14 << 20)); __import__("time").sleep(0.3); os._exit(0)
print("held" if all(os.wait()[1] == 0 for i in range(16)) else "not all")`),
  ],
  [
    'of the stack moved by mremap',
    [
      'perl',
      '-e',
      `
my ($old, $new) = (4096, 256 << 20); open my $maps, "<", "/proc/self/maps"; my ($at) = map { /^([0-9a-f]+)-.*\\[stack\\]/ ? hex $1 : () } <$maps>;
open my $zero, "<", "/dev/zero"; my $moved = syscall(${process.arch === 'arm64' ? 216 : 25}, $at, $old, $new, 1, 0);
print $moved > 0 && syscall(${process.arch === 'arm64' ? 63 : 0}, fileno $zero, $moved, $new) == $new ? "held" : "moved: $moved, $!"`,
    ],
  ],
  ['of files in /tmp', ['sh', '-c', 'exec dd if=/dev/zero of=/tmp/file bs=1M count=200 && echo held']],
  [
    'of shared maps',
    python('import mmap\nm = mmap.mmap(-1, 256 << 20)\nfor at in range(0, 256 << 20, 4096): m[at] = 1\nprint("held")'),
  ],
  [
    'of files of no folder',
    python('import os\nfd = os.memfd_create("x")\nfor i in range(200): os.write(fd, b"x" * (1 << 20))\nprint("held")'),
  ],
  [
    'of shared memory of System V',
    [
      'perl',
      '-e',
      'my $block = "x" x (8 << 20); for (1..30) { my $id = shmget(0, 8 << 20, 0600) // last; shmwrite($id, $block, 0, 8 << 20) or last; $n++ } print "held" if $n == 30',
    ],
  ],
  [
    'of pipes',
    python(`
import fcntl, os
held, kept = 0, []
for i in range(100):
  r, w = os.pipe(); kept.append((r, w)); fcntl.fcntl(w, 1031, 1 << 20); os.set_blocking(w, False)
  try:
    while True: held += os.write(w, b"x" * 65536)
  except BlockingIOError: pass
print("held" if held >= 60 << 20 else held)`),
  ],
  [
    'of buffers of sockets',
    python(`
import socket
held, kept = 0, []
for i in range(400):
  a, b = socket.socketpair(); kept.append((a, b)); a.setblocking(False)
  try:
    while True: held += a.send(b"x" * 65536)
  except BlockingIOError: pass
print("held" if held >= 60 << 20 else held)`),
  ],
  [
    'of buffers of TCP',
    python(`
import socket
held, kept, door = 0, [], socket.create_server(("127.0.0.1", 0))
for i in range(60):
  a = socket.create_connection(door.getsockname()); kept.append((a, door.accept())); a.setblocking(False)
  try:
    while True: held += a.send(b"x" * 65536)
  except BlockingIOError: pass
print("held" if held >= 120 << 20 else held)`),
  ],
  [
    'of tables of pages',
    python(
      'import mmap\nkept = []\nfor i in range(30000): kept.append(mmap.mmap(-1, 2 << 20)); kept[-1][0] = 1\nprint("held")',
    ),
  ],
]);

describe('what no limit of a process counts, the sandbox counts as one: a bomb' + verifies('HE-07'), () => {
  it.each([...BOMBS])('%s', async (name, words) => {
    const { out, peak } = await run(words);
    expect(out).not.toBe('held');
    expect(peak).toBeGreaterThan(MB);
    // What has arrived by TCP is let in, and only then the sender is refused.
    expect(peak).toBeLessThanOrEqual(LIMIT_MB * MB * (name === 'of buffers of TCP' ? 1.5 : 1));
  });

  it('and its group goes with it', async () => {
    await expect.poll(() => foldersOfGroups()).toEqual([]);
  });
});

describe('shared memory, which the group counts,', () => {
  it('is there for Python without a file' + verifies('HE-07'), async () => {
    expect(
      (await run(python('import mmap\nm = mmap.mmap(-1, 8 << 20)\nm[0:4] = b"here"\nprint(m[0:4].decode())'))).out,
    ).toBe('here');
  });

  it('is there for the calls that PostgreSQL begins with' + verifies('HE-07'), async () => {
    expect(
      (
        await run([
          'perl',
          '-e',
          'my $id = shmget(5432, 56, 01600); my $sem = semget(5432, 17, 01600); print defined $id && defined $sem && shmwrite($id, "postmaster", 0, 10) ? "here" : $!',
        ])
      ).out,
    ).toBe('here');
  });

  it('is refused where no group can be had, and so is nothing else' + verifies('HE-07'), async () => {
    expect(
      (
        await run(
          python(
            'import mmap, os\ntry: mmap.mmap(-1, 4096)\nexcept PermissionError as e: print(e.errno)\ntry: os.memfd_create("x")\nexcept OSError as e: print(e.errno)',
          ),
          { counted: false },
        )
      ).out,
    ).toBe('1\n38');
    expect(await run(['echo', 'started'], { counted: false })).toMatchObject({
      out: 'started',
      code: 0,
      lacked: false,
      peak: 0,
    });
    // A process by itself has its limit there too.
    expect((await run(python('bytearray(128 << 20)'), { counted: false })).out).toContain('MemoryError');
  });
});

describe('an end for lack of memory is told', () => {
  const bomb = ['dd', 'if=/dev/zero', 'of=/tmp/file', 'bs=1M', 'count=200'] as const;

  it('by the sandbox, and only such an end' + verifies('HE-07'), async () => {
    expect(await run(bomb)).toMatchObject({ code: 137, lacked: true });
    expect(await run(['sh', '-c', 'kill -9 $$'])).toMatchObject({ code: 137, lacked: false });
  });

  it('of a server, in its log and as the reason of its loss' + verifies('HE-07'), async () => {
    const [command, ...args] = bomb;
    const settings: ServerSettings = {
      name: 'one',
      transport: 'stdio',
      command,
      args,
      env: {},
      headers: {},
      connectTimeoutMs: 1000,
      maxRetries: 0,
      reconnectBackoffMs: 100,
      sandbox: {
        filesystem: { allowRead: [], allowWrite: [], denyRead: [] },
        network: { allowedDomains: [] },
        limits: LIMITS,
      },
    };
    const lines: string[] = [];
    const connection = new StdioConnection(settings, {
      host: { workspace, hidden: [], secrets: () => Promise.resolve('') },
      onStderr: (_, line) => lines.push(line),
    });
    const [why, exit] = await new Promise<readonly [string, string | number | undefined]>((resolve, reject) => {
      const nothing = (): void => undefined;
      connection
        .start({
          onMessage: nothing,
          onBad: nothing,
          onTooLarge: nothing,
          onFailed: nothing,
          onClosed: (...told) => resolve([told[0], told[1]]),
        })
        .catch(reject);
    });
    expect(why).toBe('was ended by the system: all its processes together needed more memory than limits.memoryMb');
    expect(exit).toBe('memory');
    expect(lines).toEqual([`(${why})`]);
  });

  it('of a command of the agent, in its answer' + verifies('HE-07'), async () => {
    const shell = sandboxedShell(() => ({
      workspace,
      sandbox: {
        filesystem: { allowRead: [], allowWrite: [workspace], denyRead: [] },
        network: { allowedDomains: [] },
        limits: LIMITS,
      },
      hidden: [],
      fixed: [],
    }));
    const backend = createWorkspace({ root: workspace, shell });
    const value = { command: `exec ${bomb.join(' ')}` };
    const { value: answer } = await backend.call({
      tool: 'bash',
      args: { text: JSON.stringify(value), value, exact: true },
      scope: 'a',
      timeoutMs: 20_000,
      hardTimeoutMs: 60_000,
      signal: new AbortController().signal,
    });
    await backend.stop();
    expect((answer.content ?? []).map(({ text = '' }) => text).join('\n')).toMatch(
      /^exit 137.*[^]*the system ended the command: .*bash\.limits\.memoryMb/,
    );
  });
});

describe('a group', () => {
  const made: string[] = [];
  const plant = (name: string): string => {
    const folder = path.join(groups.parent.folder, name);
    mkdirSync(folder);
    made.push(folder);
    return folder;
  };
  afterAll(() => made.filter((folder) => existsSync(folder)).forEach((folder) => rmdirSync(folder)));

  it('that a killed Tollgate left is removed at the next start, and that of a living one or of another PID namespace is not', async () => {
    const [pid, born, here] = [process.pid, startTimeOf(process.pid), pidNamespace()];
    const [gone, reborn, living, elsewhere] = [
      plant(`tollgate-${here}-4194304-7-00000001`),
      plant(`tollgate-${here}-${pid}-${born + 1}-00000002`),
      plant(`tollgate-${here}-${pid}-${born}-00000003`),
      plant(`tollgate-1${here}-4194304-7-00000004`),
    ];
    expect(await tryControlGroups(groups.parent)).toBeDefined();
    expect([gone, reborn, living, elsewhere].map((folder) => existsSync(folder))).toEqual([false, false, true, true]);
  });

  it('is not had where a process cannot be moved into it', async () => {
    expect(await tryControlGroups(undefined)).toBeUndefined();
    expect(await tryControlGroups({ ...groups.parent, folder: path.join(workspace, 'gone') })).toBeUndefined();
    // Where nothing can be limited.
    expect(await tryControlGroups({ ...groups.parent, version: groups.parent.version === 1 ? 2 : 1 })).toBeUndefined();
  });

  it('that cannot be made or entered after all stops the start, and a server is never started with less', async () => {
    const failing = { ...groups.make(LIMITS, OWNER), moveIn: () => () => Promise.reject(new Error('gone')) };
    const jail: SandboxSpec = {
      command: 'true',
      args: [],
      env: {},
      cwd: workspace,
      workspace,
      read: [],
      write: [],
      hidden: [],
      limits: LIMITS,
      input: false,
    };
    const make = (): never => {
      throw new Error('no space');
    };
    const known = ownControlGroups();
    expect(ownControlGroups()).toBe(known);
    for (const broken of [
      { ...groups, make },
      { ...groups, make: () => failing },
    ]) {
      await expect(startSandboxed(jail, () => Promise.resolve(broken))).rejects.toMatchObject({
        code: 'SANDBOX_UNAVAILABLE',
        message: expect.stringContaining('control group') as string,
      });
    }
    // We may have been moved: the next start looks anew.
    expect(ownControlGroups()).not.toBe(known);
    expect(await ownControlGroups()).toBeDefined();
  });

  it('holds every process of a server, those of its way in too', async () => {
    const launched = await launch(
      {
        name: 'one',
        transport: 'stdio',
        command: 'cat',
        args: [],
        env: {},
        headers: {},
        connectTimeoutMs: 1000,
        maxRetries: 0,
        reconnectBackoffMs: 100,
        cwd: workspace,
      },
      { workspace, hidden: [], secrets: () => Promise.resolve('') },
    );
    const mine = foldersOfGroups().find(
      (folder) =>
        folder.includes(`-${process.pid}-`) &&
        readFileSync(path.join(folder, 'cgroup.procs'), 'utf8').split('\n').includes(`${launched.child.pid}`),
    );
    // The two of bubblewrap, and the program.
    expect(
      readFileSync(path.join(mine ?? '', 'cgroup.procs'), 'utf8')
        .trim()
        .split('\n'),
    ).toHaveLength(3);
    launched.kill();
    await expect.poll(() => existsSync(mine ?? '')).toBe(false);
  });
});
