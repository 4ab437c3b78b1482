/** Attacks that create a file that rules close to writes and which does not exist yet: what git or an editor runs later, on the host. */
import { execFileSync } from 'node:child_process';
import { existsSync, lstatSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { sandboxedShell } from '../../adapters/primitives/shell/sandboxed-shell.ts';
import { createWorkspace } from '../../adapters/primitives/workspace/workspace-server.ts';
import { chooseSandboxUser } from '../../adapters/sandbox/sandbox-spec.ts';
import type { Confinement } from '../../catalogs/readers/confinement.ts';
import { openWorkspace, own } from '../sandbox/probe-targets.ts';
import { startFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

const STARTER = path.join(import.meta.dirname, '..', '..', 'policies', 'starter', 'workspace.yaml');
const NOWHERE = { inside: [], outside: [] };

const done: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const undo of done.splice(0).reverse()) await undo();
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

/** A repository with the rules of starter `workspace`, in which `npm test` runs `script`. */
async function underStarter(script: string): Promise<{
  readonly folder: string;
  readonly run: () => Promise<string>;
  readonly ask: (tool: string, args: object) => Promise<string>;
}> {
  const root = openWorkspace();
  done.push(() => rmSync(root, { recursive: true, force: true }));
  const folder = path.join(root, 'project');
  repository(folder);
  repository(path.join(folder, 'nested'));
  writeFileSync(path.join(root, 'rules.yaml'), readFileSync(STARTER));
  writeFileSync(path.join(folder, 'package.json'), JSON.stringify({ scripts: { test: 'sh attack.sh' } }));
  writeFileSync(path.join(folder, 'attack.sh'), script);
  const config = `version: 1\nworkspace: project\nstate: ${root}/state\napprovals: {waitMs: 0}\nprincipals:\n  - {id: agent, role: agent, profiles: [default]}\npolicies: [rules.yaml]\nexpose:\n  primitives: workspace\n`;
  const facade = await startFacade(config, { folder: root });
  done.push(() => facade.close());
  const session = facade.open('agent');
  return {
    folder,
    run: async () => (await facade.call(session, 'bash', { command: 'npm test --silent' })).text,
    ask: async (tool, args) => (await facade.call(session, tool, args)).code,
  };
}

const SHIFT = (repo: string): string =>
  `cp -r ${repo}/.git ${repo}/evil; printf '[core]\\n repositoryformatversion = 0\\n fsmonitor = "touch %s/pwned; false"\\n' "$PWD" > ${repo}/evil/config; echo ../evil > ${repo}/.git/commondir`;

describe('a command under the rules of starter workspace', () => {
  for (const repo of ['.', 'nested']) {
    it(`does not redirect git of the owner by .git/commondir in ${repo}` + verifies('TR-16'), async () => {
      const { folder, run } = await underStarter(`${SHIFT(repo)}; echo ran`);
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
    'creates no task of an editor, no hook, no workflow, no settings of an agent, nor moves the names away; nothing is left behind' +
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
    'a missing name that a rule closes by a pattern is refused to read, write and edit; a command may create it, and the next one is held to it' +
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

  it('still commits, branches and makes worktrees, and adds no placeholder' + verifies('TR-16'), async () => {
    const { folder, run } = await underStarter(
      'set -e\nexport GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org\ngit add package.json attack.sh\ngit commit -qm one\ngit branch b\ngit checkout -q b\ngit worktree add -q /tmp/w2\ngit worktree remove /tmp/w2\ngit add -A -- :!nested :!.npm\ngit status --short\ngit log --oneline --all | wc -l\necho ran',
    );
    expect(await run()).toMatch(/1\nran$/);
    expect(git(folder, 'ls-files').trim().split('\n')).toEqual(['attack.sh', 'package.json']);
  });
});

describe('a name that is held', () => {
  const fixed: Confinement = { hidden: NOWHERE, fixed: { inside: ['**/.vscode/**'], outside: [] }, closedHosts: [] };

  it(
    'stays held until the last of two commands ends, and goes to the owner who writes into it' + verifies('TR-16'),
    async () => {
      const root = openWorkspace();
      done.push(() => rmSync(root, { recursive: true, force: true }));
      const sandbox = {
        filesystem: { allowRead: [], allowWrite: [root], denyRead: [] },
        network: { allowedDomains: [] },
        limits: { memoryMb: 1024, processes: 128, fileMb: 64 },
      };
      const server = createWorkspace({
        root,
        shell: sandboxedShell(() => ({ workspace: root, sandbox, hidden: [], fixed: [] })),
      });
      done.push(() => server.stop());
      const bash = async (command: string): Promise<string> => {
        const args = { command };
        const doc = await server.call({
          tool: 'bash',
          args: { text: JSON.stringify(args), value: args, exact: true },
          scope: 'a',
          confinement: fixed,
          timeoutMs: 20_000,
          hardTimeoutMs: 60_000,
          signal: new AbortController().signal,
        });
        return (doc.value.content ?? []).map(({ text = '' }) => text).join('\n');
      };
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
