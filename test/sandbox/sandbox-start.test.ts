/**
 * Tests a sandboxed server: its start, its files, its limits, its signals and end, and what prevents its start.
 * Covers: adapters/sandbox.
 */
import { spawn, spawnSync } from 'node:child_process';
import {
  chmodSync,
  closeSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { openEgress } from '../../adapters/egress/open-egress.ts';
import type { SandboxSettings } from '../../adapters/sandbox/sandbox-spec.ts';
import { type LaunchedProcess, type LaunchHost, launch } from '../../adapters/stdio/launch.ts';
import type { ServerSettings } from '../../adapters/supervisor/server-settings.ts';
import { useHelpers } from '../../catalogs/programs/helper-programs.ts';
import { verifies } from '../verifies.ts';
import { OWNER, openWorkspace, own } from './probe-targets.ts';
import { sandboxOf, stdioSettings } from './sandbox-fixture.ts';

const DIST = path.join(import.meta.dirname, '..', '..', 'dist', 'adapters', 'stdio', 'launch.js');
let workspace: string;
const started: LaunchedProcess[] = [];
const remove: string[] = [];

beforeEach(() => {
  workspace = openWorkspace();
  remove.push(workspace);
});

afterEach(() => {
  useHelpers({ programs: {}, writable: [] });
  for (const one of started.splice(0)) one.kill();
  for (const one of remove.splice(0)) rmSync(one, { recursive: true, force: true });
});

type Given = Partial<SandboxSettings['filesystem']> & {
  readonly domains?: readonly string[];
  readonly limits?: Partial<SandboxSettings['limits']>;
};

function settings(words: readonly string[], { domains = [], limits, ...filesystem }: Given = {}): ServerSettings {
  const sandbox = sandboxOf([workspace], limits);
  return stdioSettings(words, {
    sandbox: {
      ...sandbox,
      filesystem: { ...sandbox.filesystem, ...filesystem },
      network: { allowedDomains: domains },
    },
  });
}

function host(more: Partial<LaunchHost> = {}): LaunchHost {
  return { workspace, hidden: [], secrets: (name) => Promise.resolve(`secret-${name}`), ...more };
}

async function begin(one: ServerSettings, more: Partial<LaunchHost> = {}): Promise<LaunchedProcess> {
  const launched = await launch(one, host(more));
  started.push(launched);
  return launched;
}

/** Returns what a program printed, and its exit code. */
async function outcome({ child }: LaunchedProcess): Promise<{ readonly out: string; readonly code: number | null }> {
  let out = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (text: Buffer) => (out += text.toString('utf8')));
  const code = await new Promise<number | null>((resolve) => child.once('close', resolve));
  return { out, code };
}

const sh = async (script: string, given: Given = {}, more: Partial<ServerSettings> = {}): Promise<string> =>
  (await outcome(await begin({ ...settings(['sh', '-c', script], given), ...more }))).out.trim();

/** Returns the ids of processes whose command line contains a word. */
const running = (word: string): readonly string[] =>
  readdirSync('/proc').filter((pid) => {
    try {
      return /^\d+$/.test(pid) && readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').includes(word);
    } catch {
      return false;
    }
  });

describe('a sandboxed server', () => {
  it('loads modules through a node_modules that is a link', async () => {
    const [project, store] = [
      mkdtempSync(path.join(tmpdir(), 'tollgate-linked-')),
      mkdtempSync(path.join(tmpdir(), 'tollgate-store-')),
    ];
    remove.push(project, store);
    for (const folder of [project, store]) chmodSync(folder, 0o755);
    mkdirSync(path.join(store, 'node_modules/dep'), { recursive: true });
    writeFileSync(path.join(store, 'node_modules/dep/index.js'), "module.exports = 'from the link';");
    writeFileSync(path.join(project, 'package.json'), '{}');
    writeFileSync(path.join(project, 'main.js'), "console.log(require('dep'));");
    symlinkSync(path.join(store, 'node_modules'), path.join(project, 'node_modules'));
    expect((await outcome(await begin(settings([process.execPath, path.join(project, 'main.js')])))).out).toBe(
      'from the link\n',
    );
  });

  it(
    'is the default; it runs as the owner of the workspace and sees only system folders' +
      verifies('PF-02', 'CY-24', 'HB-10'),
    async () => {
      const root = await sh(
        'id -u; hostname; echo "$HOME"; ls /; ls -A "$HOME"; ls /home /root 2>&1 | head -1',
        {},
        { cwd: workspace },
      );
      expect(root.split('\n').filter((line) => !/^lib/.test(line))).toEqual(
        [
          `${OWNER}`,
          'sandbox',
          '/tmp/home',
          'bin',
          'dev',
          'etc',
          'proc',
          'run',
          'sbin',
          'tmp',
          'usr',
          expect.stringContaining('No such file') as string,
        ].filter((line) => line !== undefined),
      );
    },
  );

  it('answers over its pipes and keeps its exit code, even if it ends at once', async () => {
    for (const code of [0, 3])
      expect(await outcome(await begin(settings(['sh', '-c', `exit ${code}`])))).toEqual({ out: '', code });
    const cat = await begin(settings(['cat']));
    cat.child.stdin.end('hello');
    expect(await outcome(cat)).toEqual({ out: 'hello', code: 0 });
  });

  it('gets its own variables and secrets, and no variable of Tollgate except the locale', async () => {
    process.env.TOLLGATE_TEST_LEAK = 'leaked';
    const names = await sh(
      'env | cut -d= -f1 | sort; echo "$TOKEN"',
      {},
      { env: { TOKEN: 'x ${secret:a} y', LEVEL: '1' } },
    );
    delete process.env.TOLLGATE_TEST_LEAK;
    expect(
      names
        .split('\n')
        .filter((line) => !['LANG', 'LC_ALL', 'LC_CTYPE', 'TZ', 'PWD', '_', 'SHLVL', 'OLDPWD'].includes(line)),
    ).toEqual(['HOME', 'LEVEL', 'LOGNAME', 'PATH', 'TMPDIR', 'TOKEN', 'USER', 'x secret-a y']);
  });

  it('never has its environment in the argument list of any process' + verifies('PF-04'), async () => {
    const one = await begin({ ...settings(['sleep', '71.25']), env: { TOKEN: '${secret:very-own}' } });
    await vi.waitFor(() => expect(running('71.25').length).toBeGreaterThanOrEqual(2), { timeout: 20_000 });
    const lists = readdirSync('/proc')
      .filter((pid) => /^\d+$/.test(pid))
      .map((pid) => {
        try {
          return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
        } catch {
          return '';
        }
      });
    expect(lists.filter((list) => list.includes('secret-very-own'))).toEqual([]);
    // Only the program itself has the secret in its environment, not the programs that start it.
    const holders = (): readonly string[] =>
      readdirSync('/proc').filter((pid) => {
        try {
          return /^\d+$/.test(pid) && readFileSync(`/proc/${pid}/environ`, 'utf8').includes('secret-very-own');
        } catch {
          return false;
        }
      });
    await vi.waitFor(() => expect(holders()).not.toEqual([]), { timeout: 20_000 });
    expect(holders()).toHaveLength(1);
    one.kill();
  });

  it('does not inherit a descriptor that the parent of Tollgate left open', async () => {
    const file = path.join(workspace, 'left');
    writeFileSync(file, '');
    const program = `const {launch} = await import(${JSON.stringify(DIST)});
const host = {workspace: ${JSON.stringify(workspace)}, hidden: [], secrets: async () => ''};
const {child} = await launch(${JSON.stringify(settings(['sh', '-c', 'ls -l /proc/self/fd']))}, host);
child.stdout.pipe(process.stdout);`;
    const fd = openSync(file, 'r');
    const { stdout } = spawnSync(process.execPath, ['--input-type=module', '-e', program], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'inherit', ...Array.from({ length: 16 }, () => fd)],
    });
    closeSync(fd);
    expect(stdout).toMatch(/ 0 -> /);
    expect(stdout).not.toContain('left');
  });

  it('writes and reads where its settings allow it, and does not see hidden paths and paths in denyRead', async () => {
    const outer = openWorkspace();
    remove.push(outer);
    for (const name of ['docs', 'docs/keys', 'docs/state']) mkdirSync(path.join(outer, name));
    for (const name of ['docs/a', 'docs/keys/b', 'docs/state/c', 'docs/d', 'e'])
      writeFileSync(path.join(outer, name), name);
    const docs = path.join(outer, 'docs');
    const one = {
      ...settings(
        [
          'sh',
          '-c',
          `cd ${docs}
           for f in a keys/b state/c d ../e; do cat $f 2>/dev/null || printf 'no:%s' $f; printf ' '; done
           touch x 2>/dev/null || echo ro
           echo ok >${workspace}/made; ls -ld ${workspace}/made | cut -d' ' -f3`,
        ],
        { allowRead: [docs], denyRead: [path.join(docs, 'keys')] },
      ),
    };
    const { out } = await outcome(
      await begin(one, { hidden: [path.join(docs, 'state'), path.join(docs, 'd'), path.join(docs, 'not-there')] }),
    );
    expect(out.trim().split('\n')).toEqual(['docs/a no:keys/b no:state/c no:d no:../e ro', 'user']);
    expect(spawnSync('stat', ['-c', '%u', path.join(workspace, 'made')], { encoding: 'utf8' }).stdout.trim()).toBe(
      `${OWNER}`,
    );
  });

  it('cannot write or move paths in denyWrite, and does not see more because of them' + verifies('CY-24'), async () => {
    for (const name of ['a/hooks', 'b', 'c', 'outer/in']) mkdirSync(path.join(workspace, name), { recursive: true });
    for (const name of ['a', 'a/hooks', 'b', 'c', 'outer', 'outer/in']) own(path.join(workspace, name));
    writeFileSync(path.join(workspace, 'outer/other'), 'not given');
    const at = (...names: readonly string[]): string[] => names.map((name) => path.join(workspace, name));
    const given = { allowWrite: at('a', 'b', 'outer/in'), denyWrite: at('a/hooks', 'outer', 'b', 'none') };
    const output = await sh(
      `cd ${workspace}
         for f in a a/hooks b outer/in; do touch $f/new 2>/dev/null && echo $f; done
         mv a/hooks a/moved 2>/dev/null && echo moved; cat outer/other 2>/dev/null; ls -d a/hooks b outer/in`,
      given,
    );
    expect(output.split('\n')).toEqual(['a', 'a/hooks', 'b', 'outer/in']);
    expect(existsSync(path.join(workspace, 'a/hooks/new'))).toBe(false);
  });

  it('cannot write to the workspace if it may only read it', async () => {
    expect(await sh(`cd ${workspace} && : >x`, { allowRead: [workspace], allowWrite: [] })).toMatch(/Read-only/);
    expect(await sh(`ls -d ${workspace}`, { allowWrite: [] })).toMatch(/No such file/);
  });

  it('sees its own package read-only, but not the folder around it', async () => {
    const outer = openWorkspace();
    remove.push(outer);
    mkdirSync(path.join(outer, 'app/src'), { recursive: true });
    writeFileSync(path.join(outer, 'secret'), '');
    writeFileSync(path.join(outer, 'app/package.json'), '{"type": "module"}');
    writeFileSync(path.join(outer, 'app/lib.js'), 'export const answer = 42;');
    writeFileSync(
      path.join(outer, 'app/src/index.js'),
      `import {answer} from '../lib.js'; import fs from 'node:fs';
let w = 'rw'; try { fs.writeFileSync(import.meta.dirname + '/x', '') } catch (e) { w = e.code }
console.log(answer, fs.readdirSync(import.meta.dirname + '/../..'), w);`,
    );
    symlinkSync(path.join(outer, 'app'), path.join(outer, 'current'));
    for (const file of [path.join(outer, 'app/src/index.js'), path.join(outer, 'current/src/index.js')]) {
      const { out } = await outcome(await begin(settings([process.execPath, file])));
      expect(out.trim()).toMatch(/^42 \[.*\] EROFS$/s);
      expect(out).not.toContain('secret');
    }
  });

  it('works in a project that only root can reach', async () => {
    const outer = mkdtempSync(path.join(homedir(), '.tollgate-test-'));
    remove.push(outer);
    const inner = path.join(outer, 'project');
    mkdirSync(inner, { mode: 0o755 });
    own(inner);
    const one = {
      ...settings(['sh', '-c', 'id -u; pwd; echo made >file; cat file'], { allowWrite: [inner] }),
      cwd: inner,
    };
    const { out, code } = await outcome(await begin(one, { workspace: inner }));
    expect([out.trim().split('\n'), code]).toEqual([[`${OWNER}`, inner, 'made'], 0]);
  });

  it('starts in its working folder, or in an empty folder with this name if it may not see it', async () => {
    mkdirSync(path.join(workspace, 'sub'));
    expect(await sh('pwd', {}, { cwd: path.join(workspace, 'sub') })).toBe(path.join(workspace, 'sub'));
    expect(await sh('pwd; ls -A')).toBe(process.cwd());
  });
});

describe('the limits of a sandboxed server', () => {
  it('end a process that uses too much processor time' + verifies('HE-07'), async () => {
    const { code } = await outcome(
      await begin(settings(['sh', '-c', 'while :; do :; done'], { limits: { cpuSeconds: 1 } })),
    );
    expect(code).toBe(128 + 9);
  });

  it(
    'count per server: one that reaches its limit of processes does not affect another server of the same user' +
      verifies('HE-07'),
    async () => {
      const greedy = await begin(
        settings(
          [
            'perl',
            '-e',
            `$| = 1; for (1..40) { my $p = fork; last unless defined $p; if (!$p) { sleep 60; exit } }
             print "full"; sleep 60`,
          ],
          { limits: { processes: 20 } },
        ),
      );
      await new Promise((resolve) => greedy.child.stdout.once('data', resolve));
      expect(await sh('for i in 1 2 3 4 5; do sleep 0.01 & done; wait; echo fine', { limits: { processes: 20 } })).toBe(
        'fine',
      );
    },
  );
});

describe('the end of a sandboxed server', () => {
  it('follows SIGTERM, which reaches the program and not only bubblewrap', async () => {
    const one = await begin(
      settings(['sh', '-c', 'trap "echo told; exit 7" TERM; echo ready; while :; do sleep 0.05; done']),
    );
    await new Promise((resolve) => one.child.stdout.once('data', resolve));
    const ended = outcome(one);
    expect(one.signal(0)).toBe(true);
    expect(one.signal('SIGTERM')).toBe(true);
    expect(await ended).toEqual({ out: expect.stringContaining('told\n') as string, code: 7 });
    // bubblewrap can end before the first process inside, which the kernel then ends.
    await expect.poll(() => [one.signal(0), one.signal('SIGTERM')]).toEqual([false, false]);
  });

  it.each(['kill', 'SIGKILL'] as const)(
    'by %s ends all processes that it started, in any session' + verifies('PF-02'),
    async (way) => {
      const one = await begin(
        settings([
          'sh',
          '-c',
          'setsid sleep 72.5 & setsid sh -c "trap : TERM; sleep 72.5; sleep 72.5" & echo ready; sleep 72.5',
        ]),
      );
      await new Promise((resolve) => one.child.stdout.once('data', resolve));
      await vi.waitFor(() => expect(running('72.5').length).toBeGreaterThanOrEqual(3), { timeout: 20_000 });
      if (way === 'kill') one.kill();
      else one.signal('SIGKILL');
      await vi.waitFor(() => expect(running('72.5')).toEqual([]), { timeout: 20_000 });
    },
  );

  it('ends processes that it left in the background', async () => {
    expect(await sh('setsid sleep 73.5 >/dev/null 2>&1 & echo bye')).toBe('bye');
    await vi.waitFor(() => expect(running('73.5')).toEqual([]), { timeout: 20_000 });
  });

  it('follows when the facade is killed' + verifies('PF-02'), async () => {
    const program = `const {launch} = await import(${JSON.stringify(DIST)});
const host = {workspace: ${JSON.stringify(workspace)}, hidden: [], secrets: async () => ''};
await launch(${JSON.stringify(settings(['sh', '-c', 'setsid sleep 74.5 & sleep 74.5']))}, host);
console.log('up'); setInterval(() => {}, 1000);`;
    const facade = spawn(process.execPath, ['--input-type=module', '-e', program], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    await new Promise((resolve) => facade.stdout.once('data', resolve));
    await vi.waitFor(() => expect(running('74.5').length).toBeGreaterThanOrEqual(2), { timeout: 20_000 });
    facade.kill('SIGKILL');
    await vi.waitFor(() => expect(running('74.5')).toEqual([]), { timeout: 20_000 });
  });
});

describe('the network of a sandboxed server', () => {
  it('is only the proxy, which a bridge offers on a local port, and which is closed with the server', async () => {
    const egress = await openEgress(
      { server: 'one', allowedDomains: ['allowed.example'], owner: OWNER },
      { onBlocked: () => undefined },
    );
    const close = vi.fn(egress.close);
    const one = await begin(
      settings(
        [
          'sh',
          '-c',
          `perl -MIO::Socket::INET -e 'my $s = IO::Socket::INET->new(PeerAddr => "127.0.0.1:3128") or die $!;
             print $s "CONNECT other.example:443 HTTP/1.1\\r\\nHost: other.example:443\\r\\n\\r\\n";
             print scalar <$s>'
           echo $HTTPS_PROXY`,
        ],
        { domains: ['allowed.example'] },
      ),
      { openEgress: async () => ({ ...egress, close }) },
    );
    expect((await outcome(one)).out).toMatch(/^HTTP\/1\.1 403 .*\r\nhttp:\/\/127\.0\.0\.1:3128\n$/);
    await one.release();
    await one.release();
    expect(close).toHaveBeenCalledTimes(1);
  });

  it('is closed if the start fails, and without a proxy the server does not start', async () => {
    const close = vi.fn(() => Promise.resolve());
    await expect(
      begin(settings(['no-such-program-here'], { domains: ['a.example'] }), {
        openEgress: () => Promise.resolve({ socket: '/none', env: {}, mounts: [], close }),
      }),
    ).rejects.toMatchObject({ code: 'INIT_FAILED' });
    expect(close).toHaveBeenCalledTimes(1);
    await expect(begin(settings(['true'], { domains: ['a.example'] }))).rejects.toMatchObject({
      code: 'SANDBOX_UNAVAILABLE',
    });
  });
});

describe('a server that cannot be isolated', () => {
  it.each(['bwrap', 'prlimit'])(
    'does not start without %s, and says how to install it' + verifies('PF-02', 'CY-24'),
    async (missing) => {
      const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-path-'));
      remove.push(folder);
      chmodSync(folder, 0o755);
      useHelpers({ programs: { [missing]: path.join(folder, missing) }, writable: [] });
      await expect(begin(settings(['true']))).rejects.toMatchObject({
        code: 'SANDBOX_UNAVAILABLE',
        message: expect.stringContaining(missing) as string,
        next: expect.stringMatching(/sudo apt-get install (?:bubblewrap|util-linux)/) as string,
      });
    },
  );

  it('starts with tools outside of the system folders, unless its user cannot reach them', async () => {
    const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-path-'));
    remove.push(folder);
    for (const name of ['bwrap', 'prlimit']) copyFileSync(`/usr/bin/${name}`, path.join(folder, name));
    useHelpers({
      programs: { bwrap: path.join(folder, 'bwrap'), prlimit: path.join(folder, 'prlimit') },
      writable: [],
    });
    chmodSync(folder, 0o755);
    expect((await outcome(await begin(settings(['echo', 'in'])))).out).toBe('in\n');
    useHelpers({ programs: { bwrap: path.join(folder, 'bwrap') }, writable: [] });
    chmodSync(folder, 0o700);
    if (process.getuid?.() === 0)
      await expect(begin(settings(['echo', 'in']))).rejects.toMatchObject({
        code: 'SANDBOX_UNAVAILABLE',
        message: expect.stringMatching(/cannot reach a folder that the sandbox needs/) as string,
      });
  });

  it('does not start as root in a workspace of root', async () => {
    const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-root-'));
    remove.push(folder);
    await expect(begin(settings(['true']), { workspace: folder })).rejects.toMatchObject({
      code: 'SANDBOX_UNAVAILABLE',
      next: expect.stringContaining('chown -R USER: WORKSPACE') as string,
    });
  });

  it('does not start if bubblewrap fails, and the message contains no path of its output', async () => {
    const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-path-'));
    remove.push(folder);
    chmodSync(folder, 0o755);
    for (const [output, message] of [
      ['bwrap: setting up uid map: Permission denied', /namespaces/],
      [
        "bwrap: Can't find source path /home/me/secret: Permission denied",
        /cannot reach a folder that the sandbox needs/,
      ],
      [
        "bwrap: Can't mkdir /home/me/node_modules: Read-only file system",
        /bubblewrap did not set the sandbox up: "bwrap: Can't mkdir \(a path\): Read-only file system"/,
      ],
      ["bwrap: Can't mount proc on /newroot/proc: Device busy", /on \/newroot\/proc: Device busy/],
    ] as const) {
      writeFileSync(path.join(folder, 'bwrap'), `#!/bin/sh\necho "${output}" >&2; exit 1\n`, { mode: 0o755 });
      useHelpers({ programs: { bwrap: path.join(folder, 'bwrap') }, writable: [] });
      const refusal = await begin(settings(['true'])).then(
        () => undefined,
        (thrown: unknown) => thrown as Error & { next: string },
      );
      expect(refusal).toMatchObject({ code: 'SANDBOX_UNAVAILABLE', message: expect.stringMatching(message) as string });
      expect(`${refusal?.message} ${refusal?.next}`).not.toContain('/home/me');
    }
  });

  it(
    'does not start in a sandbox that does not isolate: the self-test at the first start refuses it' +
      verifies('PF-02'),
    async () => {
      const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-path-'));
      remove.push(folder);
      chmodSync(folder, 0o755);
      // Runs bubblewrap without PID and network namespaces, without a filter, and with the /tmp and /proc of the host.
      const weaken = `const { readFileSync, writeFileSync } = require('node:fs');
      writeFileSync(process.argv[2], readFileSync(4, 'utf8')
        .replace(/--unshare-(?:pid|net)\\0/g, '').replace(/--seccomp\\0\\d+\\0/, '')
        .replace(/--size\\0\\d+\\0--tmpfs\\0\\/tmp\\0/, '--bind\\0/tmp\\0/tmp\\0')
        .replace('--proc\\0/proc', '--ro-bind\\0/proc\\0/proc'));`;
      writeFileSync(path.join(folder, 'weaken.cjs'), weaken);
      writeFileSync(
        path.join(folder, 'bwrap'),
        `#!/bin/sh
file=$(mktemp)
${process.execPath} ${folder}/weaken.cjs "$file"
exec 4<"$file"
rm "$file"
exec /usr/bin/bwrap "$@"
`,
        { mode: 0o755 },
      );
      // Without namespaces, processes of other tests would count against the limit of this user.
      writeFileSync(
        path.join(folder, 'prlimit'),
        '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n',
        {
          mode: 0o755,
        },
      );
      vi.resetModules();
      (await import('../../catalogs/programs/helper-programs.ts')).useHelpers({
        programs: { bwrap: path.join(folder, 'bwrap'), prlimit: path.join(folder, 'prlimit') },
        writable: [],
      });
      const fresh = await import('../../adapters/stdio/launch.ts');
      const refusal = await fresh.launch(settings(['true']), host()).then(
        () => undefined,
        (thrown: unknown) => thrown as Error,
      );
      expect(refusal).toMatchObject({ code: 'SANDBOX_UNAVAILABLE' });
      for (const broken of [
        'files of the host cannot be seen',
        'ports of the host cannot be reached',
        'system calls are filtered',
        'other processes cannot be seen',
      ])
        expect(refusal?.message).toContain(broken);
    },
  );

  it('does not start with a bubblewrap that runs the program before its mounts were checked', async () => {
    const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-path-'));
    remove.push(folder);
    chmodSync(folder, 0o755);
    // Sets nothing up: it reports a process and runs the command after --.
    writeFileSync(
      path.join(folder, 'bwrap'),
      '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; echo "{ \\"child-pid\\": $$ }" >&6; exec "$@"\n',
      { mode: 0o755 },
    );
    vi.resetModules();
    (await import('../../catalogs/programs/helper-programs.ts')).useHelpers({
      programs: { bwrap: path.join(folder, 'bwrap') },
      writable: [],
    });
    const fresh = await import('../../adapters/stdio/launch.ts');
    await expect(fresh.launch(settings(['true']), host())).rejects.toMatchObject({ code: 'SANDBOX_UNAVAILABLE' });
  });
});
