/** Attacks that create missing files which rules close to writes, and which git or an editor would run on the host. */
import { execFileSync } from 'node:child_process';
import { existsSync, lstatSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { sandboxedShell } from '../../adapters/primitives/shell/sandboxed-shell.ts';
import { createWorkspace } from '../../adapters/primitives/workspace/workspace-server.ts';
import { chooseSandboxUser } from '../../adapters/sandbox/sandbox-spec.ts';
import type { Confinement } from '../../catalogs/readers/confinement.ts';
import { openWorkspace, own } from '../sandbox/probe-targets.ts';
import { callText, sandboxOf } from '../sandbox/sandbox-fixture.ts';
import { startFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

const STARTER = path.join(import.meta.dirname, '..', '..', 'policies', 'starter', 'workspace.yaml');
const NOWHERE = { inside: [], outside: [] };

const cleanups: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const undo of cleanups.splice(0).reverse()) await undo();
});

/** Runs git on the host as the owner of the workspace. */
function git(folder: string, ...args: readonly string[]): string {
  const { uid, gid } = chooseSandboxUser(folder);
  const identity = process.getuid?.() === 0 ? { uid, gid } : {};
  return execFileSync('git', ['-C', folder, '-c', 'user.name=a', '-c', 'user.email=a@example.org', ...args], {
    encoding: 'utf8',
    env: { PATH: process.env.PATH, HOME: '/nonexistent' },
    stdio: 'pipe',
    ...identity,
  });
}

function repository(folder: string): void {
  mkdirSync(folder, { recursive: true });
  own(folder);
  git(folder, 'init', '-q');
  rmSync(path.join(folder, '.git', 'hooks'), { recursive: true, force: true });
}

/** Starts a facade over a repository, with the rules of starter `workspace`. `npm test` runs `script` there. */
async function underStarter(script: string): Promise<{
  readonly folder: string;
  readonly run: () => Promise<string>;
  readonly ask: (tool: string, args: object) => Promise<string>;
}> {
  const root = openWorkspace();
  cleanups.push(() => rmSync(root, { recursive: true, force: true }));
  const folder = path.join(root, 'project');
  repository(folder);
  repository(path.join(folder, 'nested'));
  writeFileSync(path.join(root, 'rules.yaml'), readFileSync(STARTER));
  writeFileSync(path.join(folder, 'package.json'), JSON.stringify({ scripts: { test: 'sh attack.sh' } }));
  writeFileSync(path.join(folder, 'attack.sh'), script);
  const config = `version: 1
workspace: project
state: ${root}/state
approvals: {waitMs: 0}
principals:
  - {id: agent, role: agent, profiles: [default]}
policies: [rules.yaml]
expose:
  primitives: workspace
`;
  const facade = await startFacade(config, { folder: root });
  cleanups.push(() => facade.close());
  const session = facade.open('agent');
  return {
    folder,
    run: async () => (await facade.call(session, 'bash', { command: 'npm test --silent' })).text,
    ask: async (tool, args) => (await facade.call(session, tool, args)).code,
  };
}

const redirectGit = (repo: string): string => `cp -r ${repo}/.git ${repo}/evil
printf '[core]\\n repositoryformatversion = 0\\n fsmonitor = "touch %s/pwned; false"\\n' "$PWD" > ${repo}/evil/config
echo ../evil > ${repo}/.git/commondir`;

describe('a command under the rules of starter workspace', () => {
  for (const repo of ['.', 'nested']) {
    it(`cannot redirect the owner's git by .git/commondir in ${repo}` + verifies('TR-16'), async () => {
      const { folder, run } = await underStarter(`${redirectGit(repo)}; echo ran`);
      const text = await run();
      expect(text).toContain('ran');
      expect(text).toMatch(/commondir: (Read-only|Permission)/);
      expect(readFileSync(path.join(folder, repo, 'evil/config.withheld'), 'utf8')).toContain('fsmonitor');
      git(path.join(folder, repo), 'status', '--short');
      expect(existsSync(path.join(folder, 'pwned'))).toBe(false);
      await expect.poll(() => existsSync(path.join(folder, repo, '.git/commondir'))).toBe(false);
    });
  }

  it(
    'cannot create or move tasks of editors, hooks, workflows or settings of agents, and leaves no placeholder' +
      verifies('TR-16'),
    async () => {
      const names = [
        '.vscode/tasks.json',
        '.mcp.json',
        '.git/hooks/post-checkout',
        '.husky/pre-commit',
        '.claude/settings.json',
        '.gemini/settings.json',
        'opencode.json',
        '.github/workflows/a.yml',
        '.npmrc',
        '.git/config.worktree',
        'nested/.git/hooks/post-checkout',
      ];
      const folders = names.map((name) => path.dirname(name)).filter((name) => name !== '.' && name !== '.git');
      const { folder, run } = await underStarter(
        [
          ...folders.map((name) => `mkdir -p ${name}; mv ${name} moved; rm -rf ${name}`),
          'rmdir .mcp.json; mv .mcp.json m',
          ...names.map((name) => `mkdir -p $(dirname ${name}); echo x > ${name}`),
          'echo ran',
        ].join('\n'),
      );
      expect(await run()).toContain('ran');
      for (const name of names)
        expect(
          lstatSync(path.join(folder, name), { throwIfNoEntry: false })?.isFile() === true &&
            readFileSync(path.join(folder, name), 'utf8') !== '',
          name,
        ).toBe(false);
      await expect.poll(() => [...names, ...folders].filter((name) => existsSync(path.join(folder, name)))).toEqual([]);
    },
  );

  it(
    'can create a missing file that a rule closes by a pattern, which is then closed to the next command' +
      verifies('TR-89'),
    async () => {
      const { folder, run, ask } = await underStarter(
        'echo old > k.pem; echo old > id_rsa_new; mkdir -p app/.vscode; echo old > app/.vscode/tasks.json; echo ran',
      );
      for (const [name, code] of [
        ['k.pem', 'DENIED'],
        ['deep/er/k.pem', 'DENIED'],
        ['id_rsa_new', 'DENIED'],
        ['app/.vscode/tasks.json', 'APPROVAL_REQUIRED'],
        ['a/b/.vscode/x', 'APPROVAL_REQUIRED'],
      ] as const) {
        expect([
          name,
          await ask('write', { path: name, content: 'x' }),
          await ask('edit', { path: name, old_string: '', new_string: 'x' }),
        ]).toEqual([name, code, code]);
        expect([name, (await ask('read', { path: name })) === 'DENIED']).toEqual([name, code === 'DENIED']);
        expect(existsSync(path.join(folder, name))).toBe(false);
      }
      expect(await run()).toContain('ran');
      expect(
        ['k.pem', 'id_rsa_new', 'app/.vscode/tasks.json'].map((name) => readFileSync(path.join(folder, name), 'utf8')),
      ).toEqual(['old\n', 'old\n', 'old\n']);
      writeFileSync(
        path.join(folder, 'attack.sh'),
        'cat k.pem id_rsa_new; echo new > k.pem; echo new > app/.vscode/tasks.json; echo ran',
      );
      expect(await run()).not.toContain('old');
      expect(['k.pem', 'app/.vscode/tasks.json'].map((name) => readFileSync(path.join(folder, name), 'utf8'))).toEqual([
        'old\n',
        'old\n',
      ]);
    },
  );

  it('can still commit, branch and make worktrees, and commits no placeholder' + verifies('TR-16'), async () => {
    const { folder, run } = await underStarter(
      `set -e
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
git add package.json attack.sh
git commit -qm one
git branch b
git checkout -q b
git worktree add -q /tmp/w2
git worktree remove /tmp/w2
git add -A -- :!nested :!.npm
git status --short
git log --oneline --all | wc -l
echo ran`,
    );
    expect(await run()).toMatch(/1\nran$/);
    expect(git(folder, 'ls-files').trim().split('\n')).toEqual(['attack.sh', 'package.json']);
  });
});

describe('a placeholder', () => {
  const fixed: Confinement = { hidden: NOWHERE, fixed: { inside: ['**/.vscode/**'], outside: [] }, closedHosts: [] };

  it(
    'stays until the last of two commands has ended, and is kept if the owner has written into it' + verifies('TR-16'),
    async () => {
      const root = openWorkspace();
      cleanups.push(() => rmSync(root, { recursive: true, force: true }));
      const sandbox = sandboxOf([root], { memoryMb: 1024, processes: 128, fileMb: 64 });
      const server = createWorkspace({
        root,
        shell: sandboxedShell(() => ({ workspace: root, sandbox, hidden: [], fixed: [] })),
      });
      cleanups.push(() => server.stop());
      const bash = (command: string): Promise<string> => callText(server, 'bash', { command }, { confinement: fixed });
      const long = bash('touch begun; while [ ! -e go ]; do sleep 0.05; done; echo x > .vscode/a');
      await expect.poll(() => existsSync(path.join(root, 'begun')), { timeout: 20_000 }).toBe(true);
      expect(await bash('echo x > .vscode/b')).toMatch(/Read-only file system/);
      expect(existsSync(path.join(root, '.vscode'))).toBe(true);
      writeFileSync(path.join(root, '.vscode', 'mine'), 'x');
      writeFileSync(path.join(root, 'go'), '');
      expect(await long).toMatch(/Read-only file system/);
      expect(readFileSync(path.join(root, '.vscode', 'mine'), 'utf8')).toBe('x');
    },
  );
});
