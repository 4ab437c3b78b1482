/** Tests containers without an engine: the arguments for docker and podman, and starts with fake clients. */

import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { parse } from 'yaml';
import {
  containerArguments as argumentsFor,
  type ContainerSpec,
  containerEnvironment,
} from '../../adapters/sandbox/container/container-arguments.ts';
import { startTimeOf } from '../../adapters/sandbox/process-tree.ts';
import type { LaunchHost } from '../../adapters/stdio/launch.ts';
import type { ServerSettings } from '../../adapters/supervisor/server-settings.ts';
import { partOf } from '../harness/slices.ts';
import { openWorkspace } from '../sandbox/probe-targets.ts';
import { verifies } from '../verifies.ts';

const SECRET = 'value-of-the-token';
let folder: string;
let workspace: string;

beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'tollgate-container-'));
  workspace = openWorkspace();
  mkdirSync(path.join(workspace, 'keys'));
  writeFileSync(path.join(workspace, 'tollgate.yaml'), '');
});

afterEach(() => {
  for (const one of [folder, workspace]) rmSync(one, { recursive: true, force: true });
});

function contained(more: Partial<ContainerSpec> = {}): ContainerSpec {
  return {
    id: 'tollgate-1-2-00000000',
    server: 'tickets',
    image: 'example/tickets@sha256:00',
    command: 'node',
    args: ['/app/index.js', '--verbose'],
    env: { TOKEN: SECRET, LEVEL: 'debug' },
    sandbox: {
      filesystem: { allowRead: [], allowWrite: [workspace], denyRead: [path.join(workspace, 'keys')] },
      network: { allowedDomains: [] },
      limits: { memoryMb: 300, processes: 70, fileMb: 80, cpuSeconds: 90 },
    },
    hidden: [path.join(workspace, 'tollgate.yaml'), path.join(workspace, 'not-there')],
    identity: { uid: 1234, gid: 1235, drop: true },
    ...more,
  };
}

const DOCKER = { isPodman: false, isRootless: false, isRemote: false };
const containerArguments = (one: ContainerSpec): readonly string[] => argumentsFor(one, DOCKER);

/** Returns the values of an option. */
const valuesOf = (args: readonly string[], flag: string): readonly string[] =>
  args.flatMap((word, index) => (word === flag ? [args[index + 1] ?? ''] : []));

describe('the arguments for the client', () => {
  it(
    'give a container no rights, no network, no writable files outside of its mounts, and limits' +
      verifies('HB-10', 'HA-31'),
    () => {
      const args = containerArguments(contained());
      for (const flag of ['--rm', '--interactive', '--init', '--read-only']) expect(args).toContain(flag);
      expect(valuesOf(args, '--cap-drop')).toEqual(['ALL']);
      expect(valuesOf(args, '--security-opt')).toEqual([
        'no-new-privileges',
        expect.stringMatching(/^seccomp=\/.*\/adapters\/sandbox\/container\/seccomp\.json$/),
      ]);
      expect(valuesOf(args, '--network')).toEqual(['none']);
      expect(valuesOf(args, '--user')).toEqual(['1234:1235']);
      expect([valuesOf(args, '--memory'), valuesOf(args, '--memory-swap'), valuesOf(args, '--pids-limit')]).toEqual([
        ['300m'],
        ['300m'],
        ['70'],
      ]);
      expect(valuesOf(args, '--ulimit')).toEqual([
        `fsize=${80 << 20}:${80 << 20}`,
        'core=0:0',
        'msgqueue=0:0',
        'nofile=1200:1200',
        expect.stringMatching(/^nproc=(\d+):\1$/),
        'cpu=90:90',
      ]);
      expect(valuesOf(args, '--tmpfs')).toEqual([`/tmp:rw,nosuid,nodev,size=${80 << 20},mode=1777`]);
    },
  );

  it('mount over closed and denied paths, and mount the folders above them on themselves', () => {
    mkdirSync(path.join(workspace, 'a/docs'), { recursive: true });
    mkdirSync(path.join(workspace, 'hooks'));
    for (const file of ['a/.env', 'a/docs/x']) writeFileSync(path.join(workspace, file), '');
    const { sandbox } = contained();
    const filesystem = {
      ...sandbox.filesystem,
      denyWrite: [path.join(workspace, 'hooks'), path.join(workspace, 'none')],
    };
    const one = contained({
      sandbox: { ...sandbox, filesystem },
      closed: new Map([
        [path.join(workspace, 'a/.env'), 'hidden'],
        [path.join(workspace, 'a/docs'), 'fixed'],
      ]),
    });
    const mounts = valuesOf(containerArguments(one), '--mount').map((mount) => mount.replaceAll(workspace, ''));
    expect(mounts).toEqual(
      expect.arrayContaining([
        'type=bind,source=/a,target=/a',
        'type=bind,source=/a/docs,target=/a/docs,readonly',
        'type=bind,source=/hooks,target=/hooks,readonly',
        'type=bind,source=/dev/null,target=/a/.env,readonly',
      ]),
    );
    expect(mounts.findIndex((mount) => mount.includes('target=/a/docs'))).toBeGreaterThan(
      mounts.findIndex((mount) => mount.endsWith('target=/a')),
    );
  });

  it.each([
    '--privileged',
    '--pid',
    '--userns',
    '--cap-add',
    '--device',
    '--volume',
    '--publish',
    '--uts',
    '--cgroupns',
    '--group-add',
    '--volumes-from',
    '--env-file',
    '--tty',
  ])('never contain %s', (flag) => {
    expect(containerArguments(contained())).not.toContain(flag);
  });

  it('contain no values of variables, which the client gets in its environment', () => {
    const one = contained();
    const args = containerArguments(one);
    expect(args.join(' ')).not.toContain(SECRET);
    expect(valuesOf(args, '--env')).toEqual(['TOKEN', 'LEVEL', 'HOME=/tmp']);
    expect(containerEnvironment(one)).toEqual({ TOKEN: SECRET, LEVEL: 'debug' });
  });

  it('start the program of the configuration instead of the entry point of the image', () => {
    const args = containerArguments(contained());
    expect(valuesOf(args, '--entrypoint')).toEqual(['node']);
    expect(args.slice(-3)).toEqual(['example/tickets@sha256:00', '/app/index.js', '--verbose']);
    expect(args.slice(0, 3)).toEqual(['run', '--name', 'tollgate-1-2-00000000']);
    expect(valuesOf(containerArguments(contained({ cwd: workspace })), '--workdir')).toEqual([workspace]);
  });

  it('mount the allowed paths, an empty folder over a hidden folder, and /dev/null over a hidden file', () => {
    expect(valuesOf(containerArguments(contained()), '--mount')).toEqual([
      `type=bind,source=${workspace},target=${workspace}`,
      `type=tmpfs,target=${workspace}/keys,tmpfs-size=4096,tmpfs-mode=0`,
      `type=bind,source=/dev/null,target=${workspace}/tollgate.yaml,readonly`,
    ]);
    const read = contained({
      sandbox: { ...contained().sandbox, filesystem: { allowRead: [workspace], allowWrite: [], denyRead: [] } },
      hidden: [],
    });
    expect(valuesOf(containerArguments(read), '--mount')).toEqual([
      `type=bind,source=${workspace},target=${workspace},readonly`,
    ]);
  });

  it('do not get further options from the name of a folder', () => {
    const tricky = path.join(workspace, 'a,readonly=false,source=');
    mkdirSync(tricky);
    const write = contained({
      sandbox: { ...contained().sandbox, filesystem: { allowRead: [tricky], allowWrite: [], denyRead: [] } },
      hidden: [],
    });
    expect(valuesOf(containerArguments(write), '--mount')).toEqual([
      `type=bind,"source=${tricky}","target=${tricky}",readonly`,
    ]);
    const broken = path.join(workspace, 'a"b');
    mkdirSync(broken);
    expect(() =>
      containerArguments(
        contained({
          sandbox: { ...contained().sandbox, filesystem: { allowRead: [broken], allowWrite: [], denyRead: [] } },
        }),
      ),
    ).toThrow(/quotation mark/);
  });

  it.each(['DOCKER_HOST', 'CONTAINER_HOST', 'HOME', 'PATH', 'XDG_CONFIG_HOME'])(
    'refuse the variable %s, which would configure the client',
    (name) => {
      expect(() => containerArguments(contained({ env: { [name]: 'x' } }))).toThrow(
        expect.objectContaining({ code: 'SANDBOX_UNAVAILABLE' }) as Error,
      );
    },
  );

  it('give a server with allowed domains only the socket of the proxy', () => {
    const egress = {
      socket: '/tmp/egress/proxy.sock',
      env: { HTTPS_PROXY: 'http://127.0.0.1:3128' },
      mounts: [
        { from: '/tmp/preload.cjs', to: '/run/tollgate/egress.cjs' },
        { from: '/tmp/egress/proxy.sock', to: '/run/tollgate/egress.sock' },
      ],
      close: () => Promise.resolve(),
    };
    const args = containerArguments(contained({ egress }));
    expect(valuesOf(args, '--network')).toEqual(['none']);
    expect(valuesOf(args, '--mount')).toEqual(
      expect.arrayContaining([
        'type=bind,source=/tmp/egress/proxy.sock,target=/run/tollgate/egress.sock,readonly',
        'type=bind,source=/tmp/preload.cjs,target=/run/tollgate/egress.cjs,readonly',
      ]),
    );
    const targets = valuesOf(args, '--mount').map((words) => /target=([^,]+)/.exec(words)?.[1]);
    expect(new Set(targets).size).toBe(targets.length);
    expect(valuesOf(args, '--env')).toContain('HTTPS_PROXY');
    expect(valuesOf(args, '--entrypoint')).toEqual(['/bin/sh']);
    expect(args.slice(-4)).toEqual(['bridge', 'node', '/app/index.js', '--verbose']);
  });
});

/** The answer of a docker that can enforce limits. */
const INFO = '{"MemoryLimit":true,"PidsLimit":true,"SecurityOptions":["name=seccomp"]}';

/** Writes a fake docker that logs its calls. Its `run` executes the given command, and its `ps` prints `listed`. */
function fakeDocker(
  run = '/bin/cat',
  listed = '',
): () => readonly { readonly args: readonly string[]; readonly token: string }[] {
  writeFileSync(path.join(folder, 'listed'), listed);
  const log = path.join(folder, 'log');
  writeFileSync(log, '');
  write(
    'docker',
    `
{ printf '%s\\037' "$TOKEN" "$@"; echo; } >>'${log}'
case $1 in info) echo '${INFO}';; ps) /bin/cat '${folder}/listed';; run) ${run};; esac
`,
  );
  return () =>
    readFileSync(log, 'utf8')
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => line.split('\x1f'))
      .map(([token = '', ...args]) => ({ token, args: args.slice(0, -1) }));
}

/** Writes a fake client: a shell script. */
function write(name: string, script: string): void {
  writeFileSync(path.join(folder, name), `#!/bin/sh\n${script}`);
  chmodSync(path.join(folder, name), 0o755);
}

type Launch = typeof import('../../adapters/stdio/launch.ts').launch;

/** Starts a server like a new process, which has not chosen an engine yet. */
async function start(more: Partial<ServerSettings> = {}): ReturnType<Launch> {
  vi.resetModules();
  return startAgain(more);
}

async function startAgain(more: Partial<ServerSettings> = {}): ReturnType<Launch> {
  (await import('../../catalogs/programs/helper-programs.ts')).useHelpers({
    programs: { docker: path.join(folder, 'docker'), podman: path.join(folder, 'podman') },
    writable: [],
  });
  const { launch } = await import('../../adapters/stdio/launch.ts');
  const host: LaunchHost = { workspace, hidden: [], secrets: () => Promise.resolve(SECRET) };
  const { sandbox } = contained();
  return launch(
    {
      name: 'tickets',
      transport: 'stdio',
      command: 'node',
      args: ['/app/index.js'],
      env: { TOKEN: '${secret:token}' },
      headers: {},
      isolation: 'container',
      sandbox: { ...sandbox, image: 'example/tickets:1' },
      connectTimeoutMs: 1000,
      maxRetries: 0,
      reconnectBackoffMs: 100,
      ...more,
    },
    host,
  );
}

describe('a server in a container', () => {
  it(
    'uses the pipes of the client, gets its secret only through the client, and is removed by name' + verifies('HA-31'),
    async () => {
      const calls = fakeDocker();
      const { child, kill, signal } = await start();
      await vi.waitFor(() => expect(calls()).toHaveLength(3), { timeout: 20_000 });
      const run = calls()[2];
      expect(run?.token).toBe(SECRET);
      expect(run?.args.join(' ')).not.toContain(SECRET);
      const echoed = new Promise((resolve) =>
        child.stdout.once('data', (chunk: Buffer) => resolve(chunk.toString('utf8'))),
      );
      child.stdin.write('hello\n');
      expect(await echoed).toBe('hello\n');
      expect(signal(0)).toBe(true);
      const name = valuesOf(run?.args ?? [], '--name')[0];
      expect(name).toMatch(new RegExp(`^tollgate-${process.pid}-${startTimeOf(process.pid)}-[0-9a-f]{8}$`));
      const ended = new Promise((resolve) => child.once('exit', resolve));
      kill();
      await ended;
      await vi.waitFor(() => expect(calls().at(-1)?.args).toEqual(['rm', '--force', name]), { timeout: 20_000 });
    },
  );

  it('gets SIGTERM through the client, and is removed at SIGKILL', async () => {
    const calls = fakeDocker('exec /bin/sleep 60');
    const { child, signal } = await start();
    const ended = new Promise((resolve) => child.once('exit', (_code, by) => resolve(by)));
    signal('SIGTERM');
    expect(await ended).toBe('SIGTERM');
    const second = await start();
    second.signal('SIGKILL');
    await vi.waitFor(() => expect(calls().at(-1)?.args.slice(0, 2)).toEqual(['rm', '--force']), { timeout: 20_000 });
  });

  it('starts after containers of dead processes of this PID namespace were removed', async () => {
    const startTime = startTimeOf(process.pid);
    const dead = ['tollgate-999999999-1-0123abcd', `tollgate-${process.pid}-${startTime + 1}-0123abcd`];
    // The second does not contain the start time of its process.
    const others = [
      `tollgate-${process.pid}-${startTime}-0123abcd`,
      `tollgate-${process.pid}-0-0123abcd`,
      'postgres',
      'tollgate-of-somebody',
      '',
    ];
    const calls = fakeDocker('/bin/cat', [...dead, ...others].join('\n'));
    const { kill } = await start();
    const [, list, remove] = calls();
    const label = `tollgate.place=${hostname()}/${statSync('/proc/self/ns/pid').ino}`;
    expect(list?.args).toEqual(['ps', '--all', '--filter', `label=${label}`, '--format', '{{.Names}}']);
    expect(valuesOf(containerArguments(contained()), '--label')).toContain(label);
    expect(remove?.args).toEqual(['rm', '--force', ...dead]);
    kill();
    await sleep(50);
  });

  it('does not start without an engine that answers, an image, or a client', async () => {
    write('docker', 'echo Cannot connect to the daemon >&2; exit 1\n');
    await expect(start()).rejects.toMatchObject({
      code: 'SANDBOX_UNAVAILABLE',
      message: expect.stringContaining('docker does not answer ("Cannot connect to the daemon")') as string,
      next: expect.stringContaining('systemctl start docker') as string,
    });
    await expect(start({ sandbox: contained().sandbox })).rejects.toMatchObject({
      code: 'SANDBOX_UNAVAILABLE',
      message: expect.stringContaining('no image') as string,
    });
    rmSync(path.join(folder, 'docker'));
    await expect(start()).rejects.toMatchObject({
      code: 'SANDBOX_UNAVAILABLE',
      next: expect.stringContaining('podman') as string,
    });
  });
});

describe('the arguments for podman', () => {
  const PODMAN = { isPodman: true, isRootless: false, isRemote: false };

  it('do not copy hidden files into the empty folders over them, and allow no other writable folders', () => {
    const args = argumentsFor(contained(), PODMAN);
    expect(args).toContain('--read-only-tmpfs=false');
    expect(args).not.toContain('keep-id');
    expect(
      [
        ...valuesOf(args, '--tmpfs'),
        ...valuesOf(args, '--mount').filter((mount) => mount.startsWith('type=tmpfs')),
      ].every((options) => options.endsWith(',notmpcopyup')),
    ).toBe(true);
  });

  it('do not name the filter file of this machine if the engine runs on another', () => {
    expect(valuesOf(argumentsFor(contained(), { ...PODMAN, isRemote: true }), '--security-opt')).toEqual([
      'no-new-privileges',
    ]);
  });
});

describe('the choice of an engine', () => {
  const podman = (host: object, run = 'exec /bin/cat'): void =>
    write(
      'podman',
      `case $1 in
info) echo '${JSON.stringify({ host })}';;
run) echo "$@" >'${folder}/ran'; ${run};;
esac
`,
    );
  const ROOTLESS = {
    cgroupControllers: ['memory', 'pids'],
    cgroupVersion: 'v2',
    cgroupManager: 'systemd',
    security: { rootless: true },
  };

  it('takes podman if docker does not answer, and keeps the user id with rootless podman', async () => {
    write('docker', 'exit 1\n');
    podman(ROOTLESS);
    const { child, kill } = await start();
    child.stdin.write('hello\n');
    await new Promise((resolve) => child.stdout.once('data', resolve));
    expect(readFileSync(path.join(folder, 'ran'), 'utf8')).toContain(
      '--read-only --read-only-tmpfs=false --userns keep-id --cap-drop ALL',
    );
    kill();
  });

  it('takes the other engine at the next start if the first no longer answers', async () => {
    write(
      'docker',
      `case $1 in
info) [ ! -e '${folder}/gone' ] && echo '${INFO}';;
run) : >'${folder}/gone'; echo 'docker: Cannot connect to the Docker daemon' >&2; exit 125;;
esac
`,
    );
    podman(ROOTLESS);
    const first = await start();
    first.child.stdout.resume();
    await new Promise((resolve) => first.child.once('close', resolve));
    expect(first.refusal?.()).toMatchObject({ code: 'SANDBOX_UNAVAILABLE' });
    const { child, kill } = await startAgain();
    child.stdin.write('hello\n');
    expect(String(await new Promise((resolve) => child.stdout.once('data', resolve)))).toBe('hello\n');
    kill();
  });

  it('takes the other engine at the next start if the client of the first is gone', async () => {
    write('docker', `case $1 in info) echo '${INFO}';; ps) /bin/rm '${folder}/docker';; esac\n`);
    podman(ROOTLESS);
    await expect(start()).rejects.toMatchObject({
      code: 'SANDBOX_UNAVAILABLE',
      message: expect.stringContaining('docker could not be started (ENOENT)') as string,
    });
    const { child, kill } = await startAgain();
    expect(child.pid).toBeDefined();
    kill();
  });

  it('succeeds if another process removes the same orphans at the same time, but not if they stay', async () => {
    const left = `${folder}/left`;
    writeFileSync(left, 'tollgate-999999999-1-0123abcd\n');
    write(
      'docker',
      `case $1 in
info) echo '${INFO}';;
ps) [ ! -e '${left}' ] || /bin/cat '${left}';;
rm) [ "$2$3" != --forcetollgate-999999999-1-0123abcd ] ||
  { /bin/rm -f '${left}'; echo 'Error: No such container' >&2; exit 1; };;
run) exec /bin/cat;;
esac
`,
    );
    const { child, kill } = await start();
    expect(child.pid).toBeDefined();
    kill();
    writeFileSync(left, 'tollgate-999999999-1-0123abcd\n');
    write('docker', `case $1 in info) echo '${INFO}';; ps) /bin/cat '${left}';; rm) exit 1;; esac\n`);
    await expect(start()).rejects.toMatchObject({
      code: 'SANDBOX_UNAVAILABLE',
      message: expect.stringContaining('could not be removed') as string,
    });
  });

  it.each([
    ['no control groups', { cgroupControllers: [], cgroupVersion: 'v2', security: { rootless: false } }],
    ['an ordinary user and control groups of version 1', { ...ROOTLESS, cgroupVersion: 'v1' }],
    ['an ordinary user without systemd', { ...ROOTLESS, cgroupManager: 'cgroupfs' }],
  ])('refuses podman that cannot enforce limits: with %s', async (_title, host) => {
    podman(host);
    await expect(start()).rejects.toMatchObject({
      code: 'SANDBOX_UNAVAILABLE',
      message: expect.stringContaining('cannot limit memory') as string,
    });
  });

  it('refuses docker that cannot enforce limits', async () => {
    write('docker', 'echo \'{"MemoryLimit":false,"PidsLimit":true}\'\n');
    await expect(start()).rejects.toMatchObject({
      code: 'SANDBOX_UNAVAILABLE',
      message: expect.stringContaining('cannot limit memory') as string,
    });
  });
});

/** A failure of the client before the server started. */
interface ClientFailure {
  readonly name: string;
  readonly prints: string;
  readonly exit: number;
  /** Part of what the refusal tells the user to do. */
  readonly next: string;
}

describe('the refusal after the client has ended', () => {
  const refusalAfter = async (run: string): Promise<Awaited<ReturnType<typeof start>>['refusal']> => {
    fakeDocker(run);
    const { child, refusal } = await start();
    child.stdout.resume();
    await new Promise((resolve) => child.once('close', resolve));
    return refusal;
  };

  const FAILURES = parse(
    readFileSync(path.join(import.meta.dirname, 'client-failures.yaml'), 'utf8'),
  ) as readonly ClientFailure[];

  it.each(partOf(FAILURES, 2))('says what to do if $name', async ({ prints, exit, next }) => {
    const refusal = await refusalAfter(`echo "${prints}" >&2; exit ${exit}`);
    expect(refusal?.()).toMatchObject({ code: 'SANDBOX_UNAVAILABLE', next: expect.stringContaining(next) as string });
  });

  it.each([
    ['the server ends with the same exit code', 'echo broken >&2; exit 125'],
    ['the server has answered before', "echo hello; /bin/sleep 0.2; echo 'Error: mine' >&2; exit 125"],
    ['the exit code is another', "echo 'Error: mine' >&2; exit 1"],
  ])('does not exist if %s', async (_title, run) => {
    expect((await refusalAfter(run))?.()).toBeUndefined();
  });
});
