/** Tests the container level without a daemon: the words for docker and podman, and, with a program in their place, what is started, passed and reaped. */
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import {
  type ContainerSpec,
  containerEnvironment,
  containerArguments as wordsFor,
} from '../../adapters/sandbox/container/container-arguments.ts';
import { startTimeOf } from '../../adapters/sandbox/process-tree.ts';
import type { LaunchHost } from '../../adapters/stdio/launch.ts';
import type { ServerSettings } from '../../adapters/supervisor/server-settings.ts';
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
const containerArguments = (one: ContainerSpec): readonly string[] => wordsFor(one, DOCKER);

/** The words that follow each flag. */
const after = (args: readonly string[], flag: string): readonly string[] =>
  args.flatMap((word, index) => (word === flag ? [args[index + 1] ?? ''] : []));

describe('the words for the client', () => {
  it(
    'leave a container nothing: no right, no network, nothing to write, an end to everything' +
      verifies('HB-10', 'HA-31'),
    () => {
      const args = containerArguments(contained());
      for (const flag of ['--rm', '--interactive', '--init', '--read-only']) expect(args).toContain(flag);
      expect(after(args, '--cap-drop')).toEqual(['ALL']);
      expect(after(args, '--security-opt')).toEqual([
        'no-new-privileges',
        expect.stringMatching(/^seccomp=\/.*\/adapters\/sandbox\/container\/seccomp\.json$/),
      ]);
      expect(after(args, '--network')).toEqual(['none']);
      expect(after(args, '--user')).toEqual(['1234:1235']);
      expect([after(args, '--memory'), after(args, '--memory-swap'), after(args, '--pids-limit')]).toEqual([
        ['300m'],
        ['300m'],
        ['70'],
      ]);
      expect(after(args, '--ulimit')).toEqual([
        `fsize=${80 << 20}:${80 << 20}`,
        'core=0:0',
        'msgqueue=0:0',
        'nofile=1200:1200',
        expect.stringMatching(/^nproc=(\d+):\1$/),
        'cpu=90:90',
      ]);
      expect(after(args, '--tmpfs')).toEqual([`/tmp:rw,nosuid,nodev,size=${80 << 20},mode=1777`]);
    },
  );

  it('cover what rules close and settings deny, and keep the folders above it in their place', () => {
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
    const mounts = after(containerArguments(one), '--mount').map((words) => words.replaceAll(workspace, ''));
    expect(mounts).toEqual(
      expect.arrayContaining([
        'type=bind,source=/a,target=/a',
        'type=bind,source=/a/docs,target=/a/docs,readonly',
        'type=bind,source=/hooks,target=/hooks,readonly',
        'type=bind,source=/dev/null,target=/a/.env,readonly',
      ]),
    );
    expect(mounts.findIndex((words) => words.includes('target=/a/docs'))).toBeGreaterThan(
      mounts.findIndex((words) => words.endsWith('target=/a')),
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
  ])('never hold %s', (flag) => {
    expect(containerArguments(contained())).not.toContain(flag);
  });

  it('show no value of the environment, which the client has in its own', () => {
    const one = contained();
    const args = containerArguments(one);
    expect(args.join(' ')).not.toContain(SECRET);
    expect(after(args, '--env')).toEqual(['TOKEN', 'LEVEL', 'HOME=/tmp']);
    expect(containerEnvironment(one)).toEqual({ TOKEN: SECRET, LEVEL: 'debug' });
  });

  it('start the program that the configuration shows, whatever the image would start', () => {
    const args = containerArguments(contained());
    expect(after(args, '--entrypoint')).toEqual(['node']);
    expect(args.slice(-3)).toEqual(['example/tickets@sha256:00', '/app/index.js', '--verbose']);
    expect(args.slice(0, 3)).toEqual(['run', '--name', 'tollgate-1-2-00000000']);
    expect(after(containerArguments(contained({ cwd: workspace })), '--workdir')).toEqual([workspace]);
  });

  it('mount what is allowed, and cover what is hidden in it: a folder by an empty one, a file by nothing', () => {
    expect(after(containerArguments(contained()), '--mount')).toEqual([
      `type=bind,source=${workspace},target=${workspace}`,
      `type=tmpfs,target=${workspace}/keys,tmpfs-size=4096,tmpfs-mode=0`,
      `type=bind,source=/dev/null,target=${workspace}/tollgate.yaml,readonly`,
    ]);
    const read = contained({
      sandbox: { ...contained().sandbox, filesystem: { allowRead: [workspace], allowWrite: [], denyRead: [] } },
      hidden: [],
    });
    expect(after(containerArguments(read), '--mount')).toEqual([
      `type=bind,source=${workspace},target=${workspace},readonly`,
    ]);
  });

  it('cannot be given further options by the name of a folder', () => {
    const tricky = path.join(workspace, 'a,readonly=false,source=');
    mkdirSync(tricky);
    const write = contained({
      sandbox: { ...contained().sandbox, filesystem: { allowRead: [tricky], allowWrite: [], denyRead: [] } },
      hidden: [],
    });
    expect(after(containerArguments(write), '--mount')).toEqual([
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
    'refuse %s, which would steer the client',
    (name) => {
      expect(() => containerArguments(contained({ env: { [name]: 'x' } }))).toThrow(
        expect.objectContaining({ code: 'SANDBOX_UNAVAILABLE' }) as Error,
      );
    },
  );

  it('lead to the proxy by its socket, and to nothing else, when there is one', () => {
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
    expect(after(args, '--network')).toEqual(['none']);
    expect(after(args, '--mount')).toEqual(
      expect.arrayContaining([
        'type=bind,source=/tmp/egress/proxy.sock,target=/run/tollgate/egress.sock,readonly',
        'type=bind,source=/tmp/preload.cjs,target=/run/tollgate/egress.cjs,readonly',
      ]),
    );
    const targets = after(args, '--mount').map((words) => /target=([^,]+)/.exec(words)?.[1]);
    expect(new Set(targets).size).toBe(targets.length);
    expect(after(args, '--env')).toContain('HTTPS_PROXY');
    expect(after(args, '--entrypoint')).toEqual(['/bin/sh']);
    expect(args.slice(-4)).toEqual(['bridge', 'node', '/app/index.js', '--verbose']);
  });
});

/** What docker answers where it can hold limits. */
const INFO = '{"MemoryLimit":true,"PidsLimit":true,"SecurityOptions":["name=seccomp"]}';

/** Stands alone where clients are looked for, and writes down how it was called; `ps` answers what the file `listed` holds. */
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

/** A client of that name, with those lines of a shell; there is no other. */
function write(name: string, script: string): void {
  writeFileSync(path.join(folder, name), `#!/bin/sh\n${script}`);
  chmodSync(path.join(folder, name), 0o755);
}

type Launch = typeof import('../../adapters/stdio/launch.ts').launch;

/** The first start of a process: nothing is known of engines yet. */
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

describe('a contained server', () => {
  it(
    'talks over the pipes of the client, gets its secret by the client alone, and is removed by name' +
      verifies('HA-31'),
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
      const name = after(run?.args ?? [], '--name')[0];
      expect(name).toMatch(new RegExp(`^tollgate-${process.pid}-${startTimeOf(process.pid)}-[0-9a-f]{8}$`));
      const ended = new Promise((resolve) => child.once('exit', resolve));
      kill();
      await ended;
      await vi.waitFor(() => expect(calls().at(-1)?.args).toEqual(['rm', '--force', name]), { timeout: 20_000 });
    },
  );

  it('is told of SIGTERM by the client, and removed at SIGKILL', async () => {
    const calls = fakeDocker('exec /bin/sleep 60');
    const { child, signal } = await start();
    const ended = new Promise((resolve) => child.once('exit', (_code, by) => resolve(by)));
    signal('SIGTERM');
    expect(await ended).toBe('SIGTERM');
    const second = await start();
    second.signal('SIGKILL');
    await vi.waitFor(() => expect(calls().at(-1)?.args.slice(0, 2)).toEqual(['rm', '--force']), { timeout: 20_000 });
  });

  it('starts after what a killed process left was removed, and only that, by processes of this PID namespace', async () => {
    const born = startTimeOf(process.pid);
    const dead = ['tollgate-999999999-1-0123abcd', `tollgate-${process.pid}-${born + 1}-0123abcd`];
    // The second does not say when its process was born.
    const others = [
      `tollgate-${process.pid}-${born}-0123abcd`,
      `tollgate-${process.pid}-0-0123abcd`,
      'postgres',
      'tollgate-of-somebody',
      '',
    ];
    const calls = fakeDocker('/bin/cat', [...dead, ...others].join('\n'));
    const { kill } = await start();
    const [, list, remove] = calls();
    const place = `tollgate.place=${hostname()}/${statSync('/proc/self/ns/pid').ino}`;
    expect(list?.args).toEqual(['ps', '--all', '--filter', `label=${place}`, '--format', '{{.Names}}']);
    expect(after(containerArguments(contained()), '--label')).toContain(place);
    expect(remove?.args).toEqual(['rm', '--force', ...dead]);
    kill();
    await sleep(50);
  });

  it('does not start without an answering engine, an image, or a client', async () => {
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

describe('for podman', () => {
  const PODMAN = { isPodman: true, isRootless: false, isRemote: false };

  it('a cover copies nothing of what it covers, and nothing else can be written', () => {
    const args = wordsFor(contained(), PODMAN);
    expect(args).toContain('--read-only-tmpfs=false');
    expect(args).not.toContain('keep-id');
    expect(
      [...after(args, '--tmpfs'), ...after(args, '--mount').filter((words) => words.startsWith('type=tmpfs'))].every(
        (words) => words.endsWith(',notmpcopyup'),
      ),
    ).toBe(true);
  });

  it('on another machine, a filter of this one is not named', () => {
    expect(after(wordsFor(contained(), { ...PODMAN, isRemote: true }), '--security-opt')).toEqual([
      'no-new-privileges',
    ]);
  });
});

describe('of two engines', () => {
  const podman = (host: object, run = 'exec /bin/cat'): void =>
    write(
      'podman',
      `case $1 in info) echo '${JSON.stringify({ host })}';; run) echo "$@" >'${folder}/ran'; ${run};; esac\n`,
    );
  const ROOTLESS = {
    cgroupControllers: ['memory', 'pids'],
    cgroupVersion: 'v2',
    cgroupManager: 'systemd',
    security: { rootless: true },
  };

  it('the one that answers is taken: podman, where docker is only a client; and it keeps the number of an ordinary user', async () => {
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

  it('the other is taken at the next start, when the first is gone after it had answered', async () => {
    write(
      'docker',
      `case $1 in info) [ ! -e '${folder}/gone' ] && echo '${INFO}';; run) : >'${folder}/gone'; echo 'docker: Cannot connect to the Docker daemon' >&2; exit 125;; esac\n`,
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

  it('the other is taken at the next start too, when the client of the first is gone', async () => {
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

  it('what both of two that begin at once would remove is removed by one, and holds up neither', async () => {
    const left = `${folder}/left`;
    writeFileSync(left, 'tollgate-999999999-1-0123abcd\n');
    write(
      'docker',
      `case $1 in info) echo '${INFO}';; ps) [ ! -e '${left}' ] || /bin/cat '${left}';; rm) [ "$2$3" != --forcetollgate-999999999-1-0123abcd ] || { /bin/rm -f '${left}'; echo 'Error: No such container' >&2; exit 1; };; run) exec /bin/cat;; esac\n`,
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
    ['an ordinary user and control groups of the first version', { ...ROOTLESS, cgroupVersion: 'v1' }],
    ['an ordinary user without systemd', { ...ROOTLESS, cgroupManager: 'cgroupfs' }],
  ])('none is taken that would run a server without its limits: podman with %s', async (_what, host) => {
    podman(host);
    await expect(start()).rejects.toMatchObject({
      code: 'SANDBOX_UNAVAILABLE',
      message: expect.stringContaining('cannot limit memory') as string,
    });
  });

  it('nor docker that cannot hold them', async () => {
    write('docker', 'echo \'{"MemoryLimit":false,"PidsLimit":true}\'\n');
    await expect(start()).rejects.toMatchObject({
      code: 'SANDBOX_UNAVAILABLE',
      message: expect.stringContaining('cannot limit memory') as string,
    });
  });
});

describe('what the client ends with', () => {
  const ended = async (run: string): Promise<Awaited<ReturnType<typeof start>>['refusal']> => {
    fakeDocker(run);
    const { child, refusal } = await start();
    child.stdout.resume();
    await new Promise((resolve) => child.once('close', resolve));
    return refusal;
  };

  it.each([
    [
      'its daemon is gone',
      'docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock.',
      125,
      'systemctl start docker',
    ],
    [
      'it has no image',
      'docker: Error response from daemon: pull access denied for example/tickets',
      125,
      'docker pull example/tickets:1',
    ],
    [
      'it cannot fetch its image',
      'Unable to find image example/tickets:1 locally\ndocker: Error response from daemon: dial tcp 192.0.2.1:80: connect: connection refused.',
      125,
      'docker pull example/tickets:1',
    ],
    [
      'the first process is not installed',
      'Error: container-init binary not found on the host: stat /usr/libexec/podman/catatonit',
      125,
      'install catatonit',
    ],
    [
      'the image has no such program',
      'docker: Error response from daemon: exec: node: executable file not found in PATH',
      127,
      'it must be a program of the image',
    ],
    [
      'its first process finds no such program',
      'ERROR (catatonit:6): failed to exec pid1: No such file or directory',
      1,
      'it must be a program of the image',
    ],
    [
      'the runtime fails',
      'Error: OCI runtime error: crun: cgroups in hybrid mode not supported',
      126,
      'runtime = "runc"',
    ],
    ['something else', 'Error: some new trouble', 125, 'tollgate doctor'],
  ])('is told as what must be mended, when %s', async (_when, said, code, fix) => {
    const refusal = await ended(`echo "${said}" >&2; exit ${code}`);
    expect(refusal?.()).toMatchObject({ code: 'SANDBOX_UNAVAILABLE', next: expect.stringContaining(fix) as string });
  });

  it.each([
    ['a server that ends with the same number', 'echo broken >&2; exit 125'],
    ['one that has spoken before', "echo hello; /bin/sleep 0.2; echo 'Error: mine' >&2; exit 125"],
    ['any other end', "echo 'Error: mine' >&2; exit 1"],
  ])('is the end of %s', async (_what, run) => {
    expect((await ended(run))?.()).toBeUndefined();
  });
});
