/** Tests a sandboxed server from outside: its start, what it is given, its signals and its end, and what stops it from starting at all. */
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
  const [command = '', ...args] = words;
  return {
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
      filesystem: { allowRead: [], allowWrite: [workspace], denyRead: [], ...filesystem },
      network: { allowedDomains: domains },
      limits: { memoryMb: 256, processes: 64, fileMb: 16, ...limits },
    },
  };
}

function host(more: Partial<LaunchHost> = {}): LaunchHost {
  return { workspace, hidden: [], secrets: (name) => Promise.resolve(`secret-${name}`), ...more };
}

async function begin(one: ServerSettings, more: Partial<LaunchHost> = {}): Promise<LaunchedProcess> {
  const launched = await launch(one, host(more));
  started.push(launched);
  return launched;
}

/** What a program printed, and how it ended. */
async function outcome({ child }: LaunchedProcess): Promise<{ readonly out: string; readonly code: number | null }> {
  let out = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (text: Buffer) => (out += text.toString('utf8')));
  const code = await new Promise<number | null>((resolve) => child.once('close', resolve));
  return { out, code };
}

const sh = async (script: string, given: Given = {}, more: Partial<ServerSettings> = {}): Promise<string> =>
  (await outcome(await begin({ ...settings(['sh', '-c', script], given), ...more }))).out.trim();

/** Process numbers whose command line holds a word. */
const running = (word: string): readonly string[] =>
  readdirSync('/proc').filter((pid) => {
    try {
      return /^\d+$/.test(pid) && readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').includes(word);
    } catch {
      return false;
    }
  });

describe('a sandboxed server', () => {
  it('finds what its script needs behind a node_modules that is a link', async () => {
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
    'is the default, runs as the owner of the workspace, and sees next to nothing' +
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

  it('answers over its pipes, gets its end as its own exit code, and is missed by nobody when it is short', async () => {
    for (const code of [0, 3])
      expect(await outcome(await begin(settings(['sh', '-c', `exit ${code}`])))).toEqual({ out: '', code });
    const cat = await begin(settings(['cat']));
    cat.child.stdin.end('hello');
    expect(await outcome(cat)).toEqual({ out: 'hello', code: 0 });
  });

  it('has its own variables and secrets, and next to nothing of ours', async () => {
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

  it('never has its environment in an argument list, of any process' + verifies('PF-04'), async () => {
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
    // Of its environment, only that of the program itself holds it: not that of the programs around it.
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

  it('inherits no descriptor that a careless parent left open', async () => {
    const file = path.join(workspace, 'left');
    writeFileSync(file, '');
    const program = `const {launch} = await import(${JSON.stringify(DIST)});
const {child} = await launch(${JSON.stringify(settings(['sh', '-c', 'ls -l /proc/self/fd']))}, {workspace: ${JSON.stringify(workspace)}, hidden: [], secrets: async () => ''});
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

  it('writes where it may, reads where it may, and sees neither what is hidden nor what is taken out', async () => {
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
          `cd ${docs}; for f in a keys/b state/c d ../e; do cat $f 2>/dev/null || printf 'no:%s' $f; printf ' '; done; touch x 2>/dev/null || echo ro; echo ok >${workspace}/made; ls -ld ${workspace}/made | cut -d' ' -f3`,
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

  it(
    'writes nothing of what denyWrite names in it, nor moves it away, and sees nothing more for it' + verifies('CY-24'),
    async () => {
      for (const name of ['a/hooks', 'b', 'c', 'outer/in']) mkdirSync(path.join(workspace, name), { recursive: true });
      for (const name of ['a', 'a/hooks', 'b', 'c', 'outer', 'outer/in']) own(path.join(workspace, name));
      writeFileSync(path.join(workspace, 'outer/other'), 'not given');
      const at = (...names: readonly string[]): string[] => names.map((name) => path.join(workspace, name));
      const given = { allowWrite: at('a', 'b', 'outer/in'), denyWrite: at('a/hooks', 'outer', 'b', 'none') };
      const said = await sh(
        `cd ${workspace}; for f in a a/hooks b outer/in; do touch $f/new 2>/dev/null && echo $f; done; mv a/hooks a/moved 2>/dev/null && echo moved; cat outer/other 2>/dev/null; ls -d a/hooks b outer/in`,
        given,
      );
      expect(said.split('\n')).toEqual(['a', 'a/hooks', 'b', 'outer/in']);
      expect(existsSync(path.join(workspace, 'a/hooks/new'))).toBe(false);
    },
  );

  it('cannot write the workspace when it may only read it', async () => {
    expect(await sh(`cd ${workspace} && : >x`, { allowRead: [workspace], allowWrite: [] })).toMatch(/Read-only/);
    expect(await sh(`ls -d ${workspace}`, { allowWrite: [] })).toMatch(/No such file/);
  });

  it('sees its own package, read-only, and not the folder around it', async () => {
    const outer = openWorkspace();
    remove.push(outer);
    mkdirSync(path.join(outer, 'app/src'), { recursive: true });
    writeFileSync(path.join(outer, 'secret'), '');
    writeFileSync(path.join(outer, 'app/package.json'), '{"type": "module"}');
    writeFileSync(path.join(outer, 'app/lib.js'), 'export const answer = 42;');
    writeFileSync(
      path.join(outer, 'app/src/index.js'),
      "import {answer} from '../lib.js'; import fs from 'node:fs'; let w = 'rw'; try { fs.writeFileSync(import.meta.dirname + '/x', '') } catch (e) { w = e.code } console.log(answer, fs.readdirSync(import.meta.dirname + '/../..'), w);",
    );
    symlinkSync(path.join(outer, 'app'), path.join(outer, 'current'));
    for (const file of [path.join(outer, 'app/src/index.js'), path.join(outer, 'current/src/index.js')]) {
      const { out } = await outcome(await begin(settings([process.execPath, file])));
      expect(out.trim()).toMatch(/^42 \[.*\] EROFS$/s);
      expect(out).not.toContain('secret');
    }
  });

  it('works in a project that only root may walk to', async () => {
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

  it('starts in its folder, or in an empty one in its place', async () => {
    mkdirSync(path.join(workspace, 'sub'));
    expect(await sh('pwd', {}, { cwd: path.join(workspace, 'sub') })).toBe(path.join(workspace, 'sub'));
    expect(await sh('pwd; ls -A')).toBe(process.cwd());
  });
});

describe('its limits', () => {
  it('end a process that computes for too long' + verifies('HE-07'), async () => {
    const { code } = await outcome(
      await begin(settings(['sh', '-c', 'while :; do :; done'], { limits: { cpuSeconds: 1 } })),
    );
    expect(code).toBe(128 + 9);
  });

  it(
    "are each server's own: one that uses up its processes takes none from another of the same user" +
      verifies('HE-07'),
    async () => {
      const greedy = await begin(
        settings(
          [
            'perl',
            '-e',
            '$| = 1; for (1..40) { my $p = fork; last unless defined $p; if (!$p) { sleep 60; exit } } print "full"; sleep 60',
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

describe('its end', () => {
  it('comes by SIGTERM, which reaches the program and not only the sandbox around it', async () => {
    const one = await begin(
      settings(['sh', '-c', 'trap "echo told; exit 7" TERM; echo ready; while :; do sleep 0.05; done']),
    );
    await new Promise((resolve) => one.child.stdout.once('data', resolve));
    const ended = outcome(one);
    expect(one.signal(0)).toBe(true);
    expect(one.signal('SIGTERM')).toBe(true);
    expect(await ended).toEqual({ out: expect.stringContaining('told\n') as string, code: 7 });
    expect([one.signal(0), one.signal('SIGTERM')]).toEqual([false, false]);
  });

  it.each(['kill', 'SIGKILL'] as const)(
    'by %s takes all that it started, in whatever session' + verifies('PF-02'),
    async (how) => {
      const one = await begin(
        settings([
          'sh',
          '-c',
          'setsid sleep 72.5 & setsid sh -c "trap : TERM; sleep 72.5; sleep 72.5" & echo ready; sleep 72.5',
        ]),
      );
      await new Promise((resolve) => one.child.stdout.once('data', resolve));
      await vi.waitFor(() => expect(running('72.5').length).toBeGreaterThanOrEqual(3), { timeout: 20_000 });
      if (how === 'kill') one.kill();
      else one.signal('SIGKILL');
      await vi.waitFor(() => expect(running('72.5')).toEqual([]), { timeout: 20_000 });
    },
  );

  it('takes with it what it left in the background', async () => {
    expect(await sh('setsid sleep 73.5 >/dev/null 2>&1 & echo bye')).toBe('bye');
    await vi.waitFor(() => expect(running('73.5')).toEqual([]), { timeout: 20_000 });
  });

  it('comes with the facade, however that is killed' + verifies('PF-02'), async () => {
    const program = `const {launch} = await import(${JSON.stringify(DIST)});
await launch(${JSON.stringify(settings(['sh', '-c', 'setsid sleep 74.5 & sleep 74.5']))}, {workspace: ${JSON.stringify(workspace)}, hidden: [], secrets: async () => ''});
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

describe('its way out', () => {
  it('is the proxy alone, bridged for programs that know nothing of it, and closed with the server', async () => {
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
          'perl -MIO::Socket::INET -e \'my $s = IO::Socket::INET->new(PeerAddr => "127.0.0.1:3128") or die $!; print $s "CONNECT other.example:443 HTTP/1.1\\r\\nHost: other.example:443\\r\\n\\r\\n"; print scalar <$s>\'; echo $HTTPS_PROXY',
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

  it('is not left open when the start fails, and nothing starts when there is none', async () => {
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

describe('what cannot be isolated does not start, and says what to do', () => {
  it.each(['bwrap', 'prlimit'])('without %s' + verifies('PF-02', 'CY-24'), async (missing) => {
    const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-path-'));
    remove.push(folder);
    chmodSync(folder, 0o755);
    useHelpers({ programs: { [missing]: path.join(folder, missing) }, writable: [] });
    await expect(begin(settings(['true']))).rejects.toMatchObject({
      code: 'SANDBOX_UNAVAILABLE',
      message: expect.stringContaining(missing) as string,
      next: expect.stringMatching(/sudo apt-get install (?:bubblewrap|util-linux)/) as string,
    });
  });

  it('or starts with tools that lie outside of the system, and says so where their folder is closed', async () => {
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

  it('as root in a workspace of root', async () => {
    const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-root-'));
    remove.push(folder);
    await expect(begin(settings(['true']), { workspace: folder })).rejects.toMatchObject({
      code: 'SANDBOX_UNAVAILABLE',
      next: expect.stringContaining('chown -R USER: WORKSPACE') as string,
    });
  });

  it('with a bubblewrap that fails: its words, which hold paths, stay out of the message', async () => {
    const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-path-'));
    remove.push(folder);
    chmodSync(folder, 0o755);
    for (const [words, wanted] of [
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
      writeFileSync(path.join(folder, 'bwrap'), `#!/bin/sh\necho "${words}" >&2; exit 1\n`, { mode: 0o755 });
      useHelpers({ programs: { bwrap: path.join(folder, 'bwrap') }, writable: [] });
      const refusal = await begin(settings(['true'])).then(
        () => undefined,
        (thrown: unknown) => thrown as Error & { next: string },
      );
      expect(refusal).toMatchObject({ code: 'SANDBOX_UNAVAILABLE', message: expect.stringMatching(wanted) as string });
      expect(`${refusal?.message} ${refusal?.next}`).not.toContain('/home/me');
    }
  });

  it('with a sandbox that does not isolate: the proof at the first start refuses it' + verifies('PF-02'), async () => {
    const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-path-'));
    remove.push(folder);
    chmodSync(folder, 0o755);
    // The real one without namespaces of processes and networks, without a filter, and with the files of the host.
    const weaken = `const { readFileSync, writeFileSync } = require('node:fs');
      const words = readFileSync(4, 'utf8').replace(/--unshare-(?:pid|net)\\0/g, '').replace(/--seccomp\\0\\d+\\0/, '');
      writeFileSync(process.argv[2], words.replace(/--size\\0\\d+\\0--tmpfs\\0\\/tmp\\0/, '--bind\\0/tmp\\0/tmp\\0').replace('--proc\\0/proc', '--ro-bind\\0/proc\\0/proc'));`;
    writeFileSync(path.join(folder, 'weaken.cjs'), weaken);
    writeFileSync(
      path.join(folder, 'bwrap'),
      `#!/bin/sh\nfile=$(mktemp)\n${process.execPath} ${folder}/weaken.cjs "$file"\nexec 4<"$file"\nrm "$file"\nexec /usr/bin/bwrap "$@"\n`,
      { mode: 0o755 },
    );
    // Without namespaces, what other tests run as this user would count against its limit of processes.
    writeFileSync(path.join(folder, 'prlimit'), '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n', {
      mode: 0o755,
    });
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
  });

  it('with a bubblewrap that starts the program before its mounts were looked at', async () => {
    const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-path-'));
    remove.push(folder);
    chmodSync(folder, 0o755);
    // Sets nothing up: runs the words after --, with the descriptors that a sandbox would be told by.
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
