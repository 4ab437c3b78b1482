/** Tests the memory limit of a whole sandbox, with memory that no limit of a process counts, and without a limit. */
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
import { pidNamespace } from '../../catalogs/programs/pid-namespace.ts';
import { verifies } from '../verifies.ts';
import { OWNER, openWorkspace } from './probe-targets.ts';
import { callText, sandboxOf, specOf, stdioSettings } from './sandbox-fixture.ts';

const MB = 1024 * 1024;
const LIMIT_MB = 32;
const LIMITS = { memoryMb: LIMIT_MB, processes: 64, fileMb: 256 };
const NONE = (): Promise<undefined> => Promise.resolve(undefined);
const PYTHON = execFileSync('python3', ['-c', 'import sys; print(sys.executable)'], { encoding: 'utf8' }).trim();

let workspace: string;
let groups: ControlGroups;
let isCounted = false;

beforeAll(async () => {
  const found = await ownControlGroups();
  isCounted = found !== undefined;
  groups = found as ControlGroups;
});

beforeEach(({ skip }) => {
  workspace = openWorkspace();
  skip(!isCounted, 'This user has no control groups that count memory.');
});

afterEach(() => {
  rmSync(workspace, { recursive: true, force: true });
});

/** Returns the groups of this process: other test processes make groups at the same time. */
const groupFolders = (): readonly string[] =>
  readdirSync(groups.parent.folder)
    .filter((name) => name.startsWith('tollgate-') && name.includes(`-${process.pid}-`))
    .map((name) => path.join(groups.parent.folder, name));

/** Returns the highest memory use of a group in bytes, including TCP, which version 1 counts separately. */
function peakOf(folder: string): number {
  const files = ['memory.peak', 'memory.max_usage_in_bytes', 'memory.kmem.tcp.max_usage_in_bytes']
    .map((name) => path.join(folder, name))
    .filter((file) => existsSync(file));
  return Math.max(...files.map((file) => Number(readFileSync(file, 'utf8'))));
}

interface Outcome {
  readonly out: string;
  readonly code: number | null;
  readonly hasLackedMemory: boolean;
  /** In bytes; 0 without a group. */
  readonly peak: number;
}

async function run(
  words: readonly string[],
  { limits = LIMITS, counted = true }: { limits?: SandboxSpec['limits']; counted?: boolean } = {},
): Promise<Outcome> {
  let peak = 0;
  const measured: ControlGroups = {
    ...groups,
    make: (...given): ControlGroup => {
      const before = groupFolders();
      const group = groups.make(...given);
      const folder = groupFolders().find((one) => !before.includes(one)) ?? '';
      return { ...group, remove: () => ((peak = peakOf(folder)), group.remove()) };
    },
  };
  const spec = specOf(workspace, words, { write: [workspace], limits });
  const { child, hasLackedMemory } = await startSandboxed(spec, counted ? () => Promise.resolve(measured) : NONE);
  let out = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (text: Buffer) => (out += text.toString('utf8')));
  const code = await new Promise<number | null>((resolve) => child.once('close', resolve));
  return {
    out: out.trim(),
    code: code ?? (child.signalCode === 'SIGKILL' ? 137 : null),
    hasLackedMemory: hasLackedMemory?.() === true,
    peak,
  };
}

const python = (script: string): readonly string[] => [PYTHON, '-c', script];

/** Each program takes at least 200 MB, not as data of one process, and prints `held` if it gets them. */
const BOMBS: ReadonlyMap<string, readonly string[]> = new Map([
  [
    'many processes',
    python(`
import os
for i in range(16):
  if os.fork() == 0:
    a = bytearray(b"x" * (14 << 20)); __import__("time").sleep(0.3); os._exit(0)
print("held" if all(os.wait()[1] == 0 for i in range(16)) else "not all")`),
  ],
  [
    'the stack, moved by mremap',
    [
      'perl',
      '-e',
      `
my ($old, $new) = (4096, 256 << 20); open my $maps, "<", "/proc/self/maps";
my ($at) = map { /^([0-9a-f]+)-.*\\[stack\\]/ ? hex $1 : () } <$maps>; open my $zero, "<", "/dev/zero";
my $moved = syscall(${process.arch === 'arm64' ? 216 : 25}, $at, $old, $new, 1, 0);
my $read = $moved > 0 && syscall(${process.arch === 'arm64' ? 63 : 0}, fileno $zero, $moved, $new);
print $read == $new ? "held" : "moved: $moved, $!"`,
    ],
  ],
  ['files in /tmp', ['sh', '-c', 'exec dd if=/dev/zero of=/tmp/file bs=1M count=200 && echo held']],
  [
    'shared memory maps',
    python(`
import mmap
m = mmap.mmap(-1, 256 << 20)
for at in range(0, 256 << 20, 4096): m[at] = 1
print("held")`),
  ],
  [
    'memory files (memfd_create)',
    python(`
import os
fd = os.memfd_create("x")
for i in range(200): os.write(fd, b"x" * (1 << 20))
print("held")`),
  ],
  [
    'shared memory of System V',
    [
      'perl',
      '-e',
      `my $block = "x" x (8 << 20);
for (1..30) { my $id = shmget(0, 8 << 20, 0600) // last; shmwrite($id, $block, 0, 8 << 20) or last; $n++ }
print "held" if $n == 30`,
    ],
  ],
  [
    'pipes',
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
    'socket buffers',
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
    'TCP buffers',
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
    'page tables',
    python(`
import mmap
kept = []
for i in range(30000): kept.append(mmap.mmap(-1, 2 << 20)); kept[-1][0] = 1
print("held")`),
  ],
]);

describe('the memory limit of a sandbox' + verifies('HE-07'), () => {
  it.each([...BOMBS])('stops a program that fills %s', async (name, words) => {
    const { out, peak } = await run(words);
    expect(out).not.toBe('held');
    expect(peak).toBeGreaterThan(MB);
    // The kernel accepts data that arrived by TCP, and only then refuses the sender.
    expect(peak).toBeLessThanOrEqual(LIMIT_MB * MB * (name === 'TCP buffers' ? 1.5 : 1));
  });

  it('leaves no control group behind', async () => {
    await expect.poll(() => groupFolders()).toEqual([]);
  });
});

describe('shared memory in a sandbox', () => {
  it('works for Python without a file' + verifies('HE-07'), async () => {
    expect(
      (
        await run(
          python(`
import mmap
m = mmap.mmap(-1, 8 << 20)
m[0:4] = b"here"
print(m[0:4].decode())`),
        )
      ).out,
    ).toBe('here');
  });

  it('works for the calls with which PostgreSQL starts' + verifies('HE-07'), async () => {
    expect(
      (
        await run([
          'perl',
          '-e',
          `my $id = shmget(5432, 56, 01600); my $sem = semget(5432, 17, 01600);
print defined $id && defined $sem && shmwrite($id, "postmaster", 0, 10) ? "here" : $!`,
        ])
      ).out,
    ).toBe('here');
  });

  it('is refused without a control group, and nothing else is refused' + verifies('HE-07'), async () => {
    expect(
      (
        await run(
          python(`
import mmap, os
try: mmap.mmap(-1, 4096)
except PermissionError as e: print(e.errno)
try: os.memfd_create("x")
except OSError as e: print(e.errno)`),
          { counted: false },
        )
      ).out,
    ).toBe('1\n38');
    expect(await run(['echo', 'started'], { counted: false })).toMatchObject({
      out: 'started',
      code: 0,
      hasLackedMemory: false,
      peak: 0,
    });
    // Each process still has its own limit.
    expect((await run(python('bytearray(128 << 20)'), { counted: false })).out).toContain('MemoryError');
  });
});

describe('an end because of the memory limit', () => {
  const bomb = ['dd', 'if=/dev/zero', 'of=/tmp/file', 'bs=1M', 'count=200'] as const;

  it('is reported by the sandbox, unlike other kills' + verifies('HE-07'), async () => {
    expect(await run(bomb)).toMatchObject({ code: 137, hasLackedMemory: true });
    expect(await run(['sh', '-c', 'kill -9 $$'])).toMatchObject({ code: 137, hasLackedMemory: false });
  });

  it('is reported in the log of a server and as the reason why it ended' + verifies('HE-07'), async () => {
    const settings = stdioSettings(bomb, { sandbox: sandboxOf([], LIMITS) });
    const lines: string[] = [];
    const connection = new StdioConnection(settings, {
      host: { workspace, hidden: [], secrets: () => Promise.resolve('') },
      onStderr: (_, line) => lines.push(line),
    });
    const [why, exit] = await new Promise<readonly [string, string | number | undefined]>((resolve, reject) => {
      const ignore = (): void => undefined;
      connection
        .start({
          onMessage: ignore,
          onBad: ignore,
          onTooLarge: ignore,
          onFailed: ignore,
          onClosed: (why, exit) => resolve([why, exit]),
        })
        .catch(reject);
    });
    expect(why).toBe('was ended by the system: all its processes together needed more memory than limits.memoryMb');
    expect(exit).toBe('memory');
    expect(lines).toEqual([`(${why})`]);
  });

  it('is reported in the result of a command' + verifies('HE-07'), async () => {
    const shell = sandboxedShell(() => ({
      workspace,
      sandbox: sandboxOf([workspace], LIMITS),
      hidden: [],
      fixed: [],
    }));
    const backend = createWorkspace({ root: workspace, shell });
    const output = await callText(backend, 'bash', { command: `exec ${bomb.join(' ')}` });
    await backend.stop();
    expect(output).toMatch(/^exit 137.*[^]*the system ended the command: .*bash\.limits\.memoryMb/);
  });
});

describe('a control group', () => {
  const made: string[] = [];
  const plant = (name: string): string => {
    const folder = path.join(groups.parent.folder, name);
    mkdirSync(folder);
    made.push(folder);
    return folder;
  };
  afterAll(() => made.filter((folder) => existsSync(folder)).forEach((folder) => rmdirSync(folder)));

  it('of a dead process is removed at the next start, unlike one of another PID namespace', async () => {
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

  it('is not used if no process can be moved into it', async () => {
    expect(await tryControlGroups(undefined)).toBeUndefined();
    expect(await tryControlGroups({ ...groups.parent, folder: path.join(workspace, 'gone') })).toBeUndefined();
    // The other version cannot limit anything here.
    expect(await tryControlGroups({ ...groups.parent, version: groups.parent.version === 1 ? 2 : 1 })).toBeUndefined();
  });

  it('that cannot be created or entered stops the start, so that no server starts with weaker limits', async () => {
    const failing = { ...groups.make(LIMITS, OWNER), moveIn: () => () => Promise.reject(new Error('gone')) };
    const spec = specOf(workspace, ['true'], { limits: LIMITS });
    const make = (): never => {
      throw new Error('no space');
    };
    const known = ownControlGroups();
    expect(ownControlGroups()).toBe(known);
    for (const broken of [
      { ...groups, make },
      { ...groups, make: () => failing },
    ]) {
      await expect(startSandboxed(spec, () => Promise.resolve(broken))).rejects.toMatchObject({
        code: 'SANDBOX_UNAVAILABLE',
        message: expect.stringContaining('control group') as string,
      });
    }
    // This process may have been moved, so the next start searches again.
    expect(ownControlGroups()).not.toBe(known);
    expect(await ownControlGroups()).toBeDefined();
  });

  it('contains every process of a server, including those of bubblewrap', async () => {
    const launched = await launch(stdioSettings(['cat'], { cwd: workspace }), {
      workspace,
      hidden: [],
      secrets: () => Promise.resolve(''),
    });
    const mine = groupFolders().find(
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
