/** Attacks between the check of a path and its use, and through files with several names, with starter `workspace`. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  chownSync,
  existsSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { supportsPathHandles } from '../../catalogs/readers/path-handles.ts';
import { findUnboundPrograms } from '../../facade/runtime/unbound-programs.ts';
import type { Session } from '../../facade/serve/facade-port.ts';
import { packageRoot } from '../../policies/rego/opa-program.ts';
import { roundsOf } from '../harness/slices.ts';
import { type Answer, startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

/** A program that alternates a link between two targets as fast as possible. The rename is atomic. */
const SWAP = `import os, sys
name = sys.argv[1]
targets = open(name + '.targets').read().split()
os.symlink(targets[0], name)
print('swapping', flush=True)
while True:
    for target in targets:
        os.symlink(target, name + '.new')
        os.rename(name + '.new', name)
`;
const SECRET = 'KEY=do-not-show-this';
const HOOK = '#!/bin/sh\n';
/** The longest wait for both targets of a swapped link, ms. */
const MOST_MS = 20_000;

let facade: TestFacade;
let session: Session;
let root: string;
let config: string;

const at = (name: string): string => path.join(root, name);
const call = (name: string, args: unknown): Promise<Answer> => facade.call(session, name, args);

beforeAll(async () => {
  root = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-opened-')));
  mkdirSync(at('.git/hooks'), { recursive: true });
  mkdirSync(at('free'));
  const rules = readFileSync(path.join(packageRoot(), 'policies', 'starter', 'workspace.yaml'), 'utf8');
  const state = mkdtempSync(path.join(tmpdir(), 'tollgate-opened-state-'));
  config = JSON.stringify({
    version: 1,
    workspace: '.',
    state,
    policies: ['policies/rules.yaml'],
    approvals: { waitMs: 0 },
    rules: [{ id: 'dots', outcome: 'deny', message: 'Closed.', when: { paths: ['..data/**', '..foo'] } }],
    principals: [{ id: 'agent', profiles: ['all'], stdio: true }],
    profiles: { all: { servers: [], expose: { primitives: 'workspace' } } },
  });
  const files = {
    'policies/rules.yaml': rules,
    '.env': SECRET,
    'a.txt': 'open\n',
    'swap.py': SWAP,
    '.git/hooks/pre-commit': HOOK,
    '..data/x': SECRET,
    '..foo': SECRET,
  };
  facade = await startFacade(config, { folder: root, files });
  // Commands run as the owner of the workspace.
  chmodSync(root, 0o755);
  if (process.getuid?.() === 0)
    for (const name of ['', 'free', 'a.txt', 'swap.py']) chownSync(at(name), 12_345, 12_345);
  session = facade.open('agent');
});
afterAll(async () => {
  await facade.close();
  rmSync(root, { recursive: true, force: true });
});

/** Repeats an attack while a background process of the owner swaps a link. Returns the codes of the answers. */
async function whileSwapping(
  name: string,
  targets: readonly string[],
  attack: (round: number) => Promise<Answer>,
): Promise<ReadonlySet<string>> {
  // Runs outside of Tollgate, because the starter would ask about a program that runs other code.
  writeFileSync(at(`${name}.targets`), targets.join(' '));
  const owner = process.getuid?.() === 0 ? { uid: 12_345, gid: 12_345 } : {};
  const swapper = spawn('bash', ['-c', `exec python3 swap.py ${name}`], {
    cwd: root,
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { PATH: '/usr/local/bin:/usr/bin:/bin' },
    ...owner,
  });
  await once(swapper.stdout, 'data');
  const codes = new Set<string>();
  const until = Date.now() + roundsOf(2500, 300);
  try {
    const isShort = (round: number): boolean => Date.now() < until || round < 100;
    // Both targets must occur. On a busy machine the swapper may run late.
    const isOneSided = (): boolean => !(codes.has('') && codes.has('DENIED')) && Date.now() < until + MOST_MS;
    for (let round = 0; isShort(round) || isOneSided(); round += 1) codes.add((await attack(round)).code);
    expect(swapper.exitCode).toBeNull();
  } finally {
    swapper.kill('SIGKILL');
  }
  return codes;
}

describe('a link that is swapped between the check and the use of a path', () => {
  it('does not redirect a write to the configuration' + verifies('TR-10'), async () => {
    const codes = await whileSwapping('x', ['a.txt', 'tollgate.yaml'], (round) =>
      call('write', {
        path: 'x',
        content: 'bash: {isolation: direct}\n',
        mode: round % 2 === 0 ? 'overwrite' : 'append',
      }),
    );
    expect(readFileSync(at('tollgate.yaml'), 'utf8')).toBe(config);
    // Both targets occurred, otherwise the attack did not happen.
    expect(codes).toContain('');
    expect(codes).toContain('DENIED');
    expect([...codes].filter((code) => !['', 'DENIED', 'TOOL_FAILED'].includes(code))).toEqual([]);
  });

  it('does not reveal anything of .env' + verifies('TR-10'), async () => {
    const attempts = [
      { path: 'y' },
      { path: 'y', action: 'search', pattern: '.' },
      { path: '.', action: 'search', pattern: 'KEY' },
      { path: 'y', action: 'stat' },
    ];
    const size = `size: ${SECRET.length}`;
    const codes = await whileSwapping('y', ['a.txt', '.env'], async (round) => {
      const answer = await call('read', attempts[round % attempts.length]);
      expect(answer.text).not.toContain('do-not-show-this');
      expect(answer.text).not.toContain(size);
      return answer;
    });
    expect(codes).toContain('');
    expect(codes).toContain('DENIED');
  });

  it('does not redirect a new file to .git/hooks' + verifies('TR-10'), async () => {
    const codes = await whileSwapping('z', ['free', '.git/hooks'], (round) =>
      call('write', { path: `z/post-${round % 50}`, content: HOOK, mode: 'overwrite' }),
    );
    expect(readdirSync(at('.git/hooks'))).toEqual(['pre-commit']);
    expect(readdirSync(at('free'))).not.toEqual([]);
    expect(codes).toContain('');
    expect(codes).toContain('DENIED');
  });
});

describe('another name of a protected file', () => {
  it('does not allow a write to the configuration through a hard link' + verifies('TR-12'), async () => {
    linkSync(at('tollgate.yaml'), at('free/notes.yaml'));
    for (const [name, args] of [
      ['write', { content: 'x', mode: 'overwrite' }],
      ['write', { content: 'x', mode: 'append' }],
      ['edit', { old_string: 'version', new_string: 'x' }],
    ] as const) {
      expect((await call(name, { path: 'free/notes.yaml', ...args })).text, JSON.stringify(args)).toContain(
        'control-files',
      );
    }
    expect(readFileSync(at('tollgate.yaml'), 'utf8')).toBe(config);
    expect(readFileSync(at('free/notes.yaml'), 'utf8')).toBe(config);
  });

  it(
    'does not allow to read, search, describe or write .env through a hard link, even a new one' + verifies('TR-12'),
    async () => {
      linkSync(at('a.txt'), at('free/second-name'));
      expect((await call('read', { path: 'free/second-name' })).code).toBe('');
      for (const name of ['free/one', 'free/two']) {
        linkSync(at('.env'), at(name));
        for (const args of [{}, { action: 'search', pattern: 'KEY' }, { action: 'stat' }])
          expect((await call('read', { path: name, ...args })).text).toContain('no-secret-files');
        expect((await call('read', { path: 'free', action: 'search', pattern: 'KEY' })).text).toContain('no match');
        expect((await call('write', { path: name, content: 'x', mode: 'append' })).text).toContain('no-secret-files');
        expect((await call('edit', { path: name, old_string: 'KEY', new_string: 'x' })).text).toContain(
          'no-secret-files',
        );
      }
      expect(readFileSync(at('.env'), 'utf8')).toBe(SECRET);
    },
  );

  it(
    'does not affect a file whose other names are outside of the workspace, as with pnpm' + verifies('TR-12'),
    async () => {
      const store = mkdtempSync(path.join(path.dirname(root), 'tollgate-store-'));
      writeFileSync(path.join(store, 'index.js'), 'module.exports = 1;\n');
      mkdirSync(at('node_modules/one'), { recursive: true });
      linkSync(path.join(store, 'index.js'), at('node_modules/one/index.js'));
      expect((await call('read', { path: 'node_modules/one/index.js' })).text).toBe('module.exports = 1;\n');
      expect((await call('edit', { path: 'node_modules/one/index.js', old_string: '1', new_string: '2' })).code).toBe(
        '',
      );
      expect(readFileSync(path.join(store, 'index.js'), 'utf8')).toBe('module.exports = 1;\n');
      rmSync(store, { recursive: true });
    },
  );

  it('is also a symbolic link to it, or a chain of links', async () => {
    symlinkSync('../.env', at('free/link'));
    symlinkSync('link', at('free/chain'));
    for (const name of ['free/link', 'free/chain'])
      expect((await call('read', { path: name })).text).toContain('no-secret-files');
  });
});

describe('a name that starts with two dots', () => {
  it('is matched by rules like any other name' + verifies('TR-13'), async () => {
    for (const name of ['..foo', '..data/x', './..foo', 'free/../..data/x'])
      expect((await call('read', { path: name })).text, name).toContain('dots');
    expect((await call('write', { path: '..data/new', content: 'x' })).text).toContain('dots');
    expect(existsSync(at('..data/new'))).toBe(false);
  });
});

describe('the descriptors of paths', () => {
  it('are closed after every outcome' + verifies('TR-11'), async () => {
    const calls: readonly (readonly [string, Record<string, unknown>])[] = [
      ['read', { path: 'a.txt' }],
      ['read', { path: 'absent' }],
      ['read', { path: 'absent/deep/er' }],
      ['read', { path: '.env' }],
      ['read', { path: '/etc/passwd' }],
      ['read', { path: '.', action: 'list' }],
      ['read', { path: '.', action: 'search', pattern: 'open' }],
      ['read', { path: 'a.txt', action: 'search', pattern: '(' }],
      ['read', { path: 'free/one' }],
      ['read', { path: 'a.txt', offset: 99 }],
      ['write', { path: 'free/new/deep.txt', content: 'x', mode: 'overwrite' }],
      ['write', { path: 'a.txt', content: 'x', mode: 'create' }],
      ['write', { path: 'a.txt/x', content: 'x' }],
      ['write', { path: '.husky/x', content: 'x' }],
      ['edit', { path: 'a.txt', old_string: 'absent', new_string: 'x' }],
      ['bash', { command: 'true', cwd: 'free' }],
      ['bash', { command: 'true', cwd: 'absent' }],
      ['bash', { command: 'echo $HOME', cwd: 'free' }],
    ];
    for (const [name, args] of calls) await call(name, args);
    const before = readdirSync('/proc/self/fd').length;
    const codes = new Set<string>();
    for (let round = 0; round < 3; round += 1)
      for (const [name, args] of calls) codes.add((await call(name, args)).code);
    await expect.poll(() => readdirSync('/proc/self/fd').length).toBeLessThanOrEqual(before);
    expect([...codes].sort()).toEqual(expect.arrayContaining(['', 'APPROVAL_REQUIRED', 'ARGS_INVALID', 'DENIED']));
  });
});

describe('a platform without descriptors of paths', () => {
  const isSupported = (): boolean => supportsPathHandles('darwin', () => false);

  it(
    'warns at the start, and refuses bash with rules on paths until the owner accepts the risk' + verifies('TR-14'),
    async () => {
      const policy = facade.assembled.deps.policy();
      const { config: loaded } = facade.assembled;
      expect(supportsPathHandles('linux', () => true)).toBe(true);
      expect(supportsPathHandles('linux', () => false)).toBe(false);
      expect(await findUnboundPrograms(loaded, policy)).not.toContainEqual(expect.stringContaining('swaps links'));
      const problems = [
        expect.objectContaining({
          file: 'tollgate.yaml',
          message: expect.stringContaining('bash: {acceptPathRaces: true}') as string,
        }),
      ];
      await expect(findUnboundPrograms(loaded, policy, isSupported)).rejects.toMatchObject({
        code: 'CONFIG_INVALID',
        data: { problems },
      });
      const accepted = { ...loaded, bash: { ...loaded.bash, acceptPathRaces: true } };
      expect(await findUnboundPrograms(accepted, policy, isSupported)).toContainEqual(
        expect.stringContaining('a process that swaps links'),
      );
      const without = {
        ...loaded,
        profiles: new Map(
          [...loaded.profiles].map(([name, profile]) => [
            name,
            { ...profile, primitives: { read: [{ server: 'workspace' }] } },
          ]),
        ),
      };
      expect(await findUnboundPrograms(without, policy, isSupported)).toContainEqual(
        expect.stringContaining('a process that swaps links'),
      );
    },
  );
});
