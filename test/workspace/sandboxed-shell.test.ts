/** Tests commands in sandboxes: they see only the workspace, sessions work as without a sandbox, no process remains. */
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { openEgress } from '../../adapters/egress/open-egress.ts';
import type { PrimitiveBackend } from '../../adapters/port.ts';
import { type SandboxedShellSettings, sandboxedShell } from '../../adapters/primitives/shell/sandboxed-shell.ts';
import { createWorkspace } from '../../adapters/primitives/workspace/workspace-server.ts';
import { useHelpers } from '../../catalogs/programs/helper-programs.ts';
import { OWNER, openWorkspace, own } from '../sandbox/probe-targets.ts';
import { verifies } from '../verifies.ts';

let root: string;
let outside: string;
let server: PrimitiveBackend;
let more: Partial<SandboxedShellSettings>;

beforeEach(() => {
  [root, outside] = [openWorkspace(), openWorkspace()];
  more = {};
  const limits = { memoryMb: 1024, processes: 128, fileMb: 64 };
  const shell = sandboxedShell(() => ({
    workspace: root,
    sandbox: {
      filesystem: { allowRead: [], allowWrite: [root], denyRead: [] },
      network: { allowedDomains: [] },
      limits,
    },
    hidden: [],
    fixed: [path.join(root, 'tollgate.yaml')],
    ...more,
  }));
  server = createWorkspace({ root, shell });
});

afterEach(async () => {
  await server.stop();
  for (const folder of [root, outside]) rmSync(folder, { recursive: true, force: true });
});

async function call(tool: string, args: Readonly<Record<string, unknown>>): Promise<string> {
  const doc = await server.call({
    tool,
    args: { text: JSON.stringify(args), value: args, exact: true },
    scope: 'a',
    timeoutMs: 20_000,
    hardTimeoutMs: 600_000,
    signal: new AbortController().signal,
  });
  return (doc.value.content ?? []).map(({ text = '' }) => text).join('\n');
}

const bash = (command: string): Promise<string> => call('bash', { command });

const running = (word: string): number =>
  readdirSync('/proc').filter((pid) => {
    try {
      return /^\d+$/.test(pid) && readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(word);
    } catch {
      return false;
    }
  }).length;

describe('a command in a sandbox', () => {
  it('leaves no cache and no log of npm in the workspace', async () => {
    writeFileSync(
      path.join(root, 'package.json'),
      '{"name": "a", "version": "1.0.0", "scripts": {"test": "echo ran"}}',
    );
    own(path.join(root, 'package.json'));
    expect(await bash('npm test && npm install --no-audit && echo installed')).toMatch(/ran[^]*installed/);
    expect(readdirSync(root)).not.toContain('.npm');
  });

  it('runs in the workspace as its owner, with HOME in the workspace' + verifies('PF-02'), async () => {
    mkdirSync(path.join(root, 'sub'));
    own(path.join(root, 'sub'));
    expect(
      await call('bash', {
        command: 'id -u; pwd; echo "$HOME"; echo made >file; cat ../notes 2>&1; git --version | cut -c1-3',
        cwd: 'sub',
      }),
    ).toBe(`${OWNER}\n${root}/sub\n${root}\ncat: ../notes: No such file or directory\ngit`);
    expect(statSync(path.join(root, 'sub/file')).uid).toBe(OWNER);
  });

  it.each(['run', 'start'])('reads no startup file of the workspace: %s' + verifies('TR-53'), async (action) => {
    for (const name of ['.bashrc', '.bash_profile', '.bash_login', '.profile', '.bash_logout', '.inputrc']) {
      await call('write', { path: name, content: 'echo read by the shell\n' });
    }
    expect(await call('bash', { action, command: 'pwd', ...(action === 'start' && { wait_ms: 5000 }) })).toMatch(
      new RegExp(`^${root}(?:\\n\\[tollgate: [^\\n]*)?$`),
    );
  });

  it('changes files that write created, and write changes its files', async () => {
    await call('write', { path: 'deep/notes.txt', content: 'one\n' });
    expect(await bash('echo two >>deep/notes.txt; mkdir deep/er; echo three >deep/er/x; cat deep/notes.txt')).toBe(
      'one\ntwo',
    );
    await call('edit', { path: 'deep/er/x', old_string: 'three', new_string: 'four' });
    expect(await bash('cat deep/er/x; stat -c %u deep deep/notes.txt deep/er/x | sort -u')).toBe(`four\n${OWNER}`);
  });

  it('sees no files outside, has no network, and no secret of the facade', async () => {
    writeFileSync(path.join(outside, 'secret'), 'the secret', { mode: 0o644 });
    process.env.TOLLGATE_BASH_LEAK = 'leaked';
    const text = await bash(
      `cat ${outside}/secret /etc/shadow 2>&1; ls / | tr '\\n' ' '; cat /proc/net/route | wc -l; ` +
        'env | grep -c LEAK; cat /proc/*/environ 2>/dev/null | grep -c LEAK',
    );
    delete process.env.TOLLGATE_BASH_LEAK;
    expect(text).not.toContain('the secret');
    expect(text.trim().split('\n').slice(-3)).toEqual([expect.stringMatching(/ 1$/) as string, '0', '0']);
  });

  it('can read the configuration and rules in the workspace, but cannot change them', async () => {
    writeFileSync(path.join(root, 'tollgate.yaml'), 'version: 1\n');
    own(path.join(root, 'tollgate.yaml'));
    const text = await bash(
      'cat tollgate.yaml; echo x >>tollgate.yaml; rm -f tollgate.yaml; mv tollgate.yaml y; ln tollgate.yaml z',
    );
    expect(text).toMatch(/^exit 1\nversion: 1\n[^]*Read-only file system[^]*Device or resource busy/);
    expect(readFileSync(path.join(root, 'tollgate.yaml'), 'utf8')).toBe('version: 1\n');
  });

  it('does not see configuration and rules outside the workspace', async () => {
    writeFileSync(path.join(outside, 'rules.yaml'), 'rules: []\n');
    more = { fixed: [path.join(outside, 'rules.yaml')] };
    expect(await bash(`cat ${outside}/rules.yaml`)).toMatch(/No such file/);
  });

  it('follows the additional, denied and read-only folders of its settings', async () => {
    for (const name of ['keys', 'hooks']) mkdirSync(path.join(root, name), { mode: 0o777 });
    writeFileSync(path.join(root, 'keys/one'), 'key');
    writeFileSync(path.join(outside, 'tool'), 'tool');
    own(path.join(root, 'keys'));
    more = {
      sandbox: {
        filesystem: {
          allowRead: [outside],
          allowWrite: [root],
          denyRead: [path.join(root, 'keys')],
          denyWrite: [path.join(root, 'hooks')],
        },
        network: { allowedDomains: [] },
        limits: { memoryMb: 512, processes: 64, fileMb: 16, cpuSeconds: 7200 },
      },
    };
    expect(await bash('ulimit -t')).toBe('7200');
    expect(
      await bash(
        `cat ${outside}/tool; cat keys/one 2>/dev/null || echo ' hidden'; ` +
          'touch hooks/x 2>/dev/null || mv hooks y 2>/dev/null || echo fixed',
      ),
    ).toBe('tool hidden\nfixed');
  });

  it('reaches the domains of its settings until it ends', async () => {
    const limits = { memoryMb: 512, processes: 64, fileMb: 16 };
    const close = vi.fn();
    more = {
      sandbox: {
        filesystem: { allowRead: [], allowWrite: [root], denyRead: [] },
        network: { allowedDomains: ['allowed.example'] },
        limits,
      },
      openEgress: async () => {
        const egress = await openEgress(
          { server: 'workspace', allowedDomains: ['allowed.example'], owner: OWNER },
          { onBlocked: () => undefined },
        );
        return { ...egress, close: () => (close(), egress.close()) };
      },
    };
    expect(
      await bash(
        'exec 5<>/dev/tcp/127.0.0.1/3128; ' +
          'printf "CONNECT other.example:443 HTTP/1.1\\r\\nHost: other.example:443\\r\\n\\r\\n" >&5; head -1 <&5',
      ),
    ).toContain('403');
    await vi.waitFor(() => expect(close).toHaveBeenCalledTimes(1), { timeout: 20_000 });
  });

  it('reports its exit code, and a signal as shells do', async () => {
    expect(await bash('exit 3')).toMatch(/exit (?:code )?3/);
    expect(await bash('kill -TERM $$')).toMatch(/143|SIGTERM/);
  });

  it('does not run if no sandbox can be created, and the refusal says what to install', async () => {
    useHelpers({ programs: { bwrap: path.join(outside, 'bwrap') }, writable: [] });
    try {
      await expect(bash(`touch ${root}/ran`)).rejects.toMatchObject({
        code: 'SANDBOX_UNAVAILABLE',
        next: expect.stringMatching(/sudo apt-get install bubblewrap/) as string,
      });
    } finally {
      useHelpers({ programs: {}, writable: [] });
    }
    expect(readdirSync(root)).not.toContain('ran');
  });

  it('is refused if it is too long', async () => {
    expect(await bash(`: ${'x'.repeat(200_000)}`)).toMatch(/too long/);
  });
});

describe('a session in a sandbox', () => {
  it('accepts input, returns output, and is killed with all its processes' + verifies('PF-02'), async () => {
    const first = await call('bash', {
      action: 'start',
      command: 'setsid sleep 75.5 & while read line; do echo "got $line"; done',
      wait_ms: 200,
    });
    expect(first).toContain('s1');
    expect(await call('bash', { action: 'send', session: 's1', input: 'hello', wait_ms: 20_000 })).toContain(
      'got hello',
    );
    expect(await call('bash', { action: 'list' })).toMatch(/s1 running/);
    await vi.waitFor(() => expect(running('75.5')).toBeGreaterThan(0), { timeout: 20_000 });
    expect(await call('bash', { action: 'kill', session: 's1' })).toMatch(/all its processes were ended/);
    await vi.waitFor(() => expect(running('75.5')).toBe(0), { timeout: 20_000 });
    expect(await call('bash', { action: 'poll', session: 's1', wait_ms: 20_000 })).toMatch(/143|137|SIG/);
  });

  it('ends when its input ends', async () => {
    await call('bash', { action: 'start', command: 'cat; echo bye', wait_ms: 100 });
    let told = await call('bash', { action: 'send', session: 's1', input: 'last', eof: true, wait_ms: 20_000 });
    for (let round = 0; round < 20 && !told.includes('bye'); round += 1)
      told += await call('bash', { action: 'poll', session: 's1', wait_ms: 1000 });
    expect(told).toMatch(/last[^]*bye/);
  });

  it('is killed even if it ignores SIGTERM', async () => {
    await call('bash', { action: 'start', command: 'trap : TERM; while :; do sleep 76.5; done', wait_ms: 200 });
    await call('bash', { action: 'kill', session: 's1' });
    await vi.waitFor(() => expect(running('76.5')).toBe(0), { timeout: 20_000 });
  });

  it('ends with the workspace', async () => {
    await call('bash', { action: 'start', command: 'sleep 77.5', wait_ms: 100 });
    await server.stop();
    await vi.waitFor(() => expect(running('77.5')).toBe(0), { timeout: 20_000 });
  });
});
