/** Attacks with repositories that a sandboxed command creates: the owner's git would run their settings on the host. */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { withholdSettings } from '../../adapters/sandbox/closed-paths/git-repositories.ts';
import { chooseSandboxUser } from '../../adapters/sandbox/sandbox-spec.ts';
import { launch } from '../../adapters/stdio/launch.ts';
import { cpuMs, limitNow } from '../bench/growth.ts';
import { partOf } from '../harness/slices.ts';
import { openWorkspace, own } from '../sandbox/probe-targets.ts';
import { sandboxOf, stdioSettings } from '../sandbox/sandbox-fixture.ts';
import { startFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

const STARTER = path.join(import.meta.dirname, '..', '..', 'policies', 'starter', 'workspace.yaml');
/** Shell functions for the attacks: settings and a hook that create the file `pwned`, and a commit. */
const FUNCTIONS = String.raw`
evil_config() { printf '[core]\n\trepositoryformatversion = 0\n\tfsmonitor = "touch %s/pwned; false"\n' "$ROOT"; }
hook() { printf '#!/bin/sh\ntouch %s/pwned\n' "$ROOT"; }
commit() { git -C sub -c user.name=a -c user.email=a@example.org commit -q --allow-empty -m x; }
`;

const cleanups: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const undo of cleanups.splice(0).reverse()) await undo();
});

/** rmSync cannot remove paths that are longer than the system allows. */
function remove(folder: string): void {
  spawnSync('rm', ['-rf', folder]);
}

/** Starts a facade over a workspace of an ordinary user, with the rules of starter `workspace`. */
async function underStarter(): Promise<{
  readonly folder: string;
  readonly run: (script: string, args?: object) => Promise<string>;
  readonly write: (file: string) => Promise<string>;
  readonly records: () => readonly Readonly<Record<string, unknown>>[];
}> {
  const root = openWorkspace();
  cleanups.push(() => remove(root));
  const folder = path.join(root, 'project');
  mkdirSync(folder);
  own(folder);
  writeFileSync(path.join(root, 'rules.yaml'), readFileSync(STARTER));
  writeFileSync(path.join(folder, 'package.json'), JSON.stringify({ scripts: { test: 'sh attack.sh' } }));
  const config = `version: 1
workspace: project
state: ${root}/state
principals:
  - {id: agent, role: agent, profiles: [default]}
policies: [rules.yaml]
expose:
  primitives: workspace
`;
  const facade = await startFacade(config, { folder: root });
  cleanups.push(() => facade.close());
  const session = facade.open('agent');
  const run = async (script: string, args: object = {}): Promise<string> => {
    writeFileSync(path.join(folder, 'attack.sh'), `ROOT=$PWD${FUNCTIONS}${script}\necho ran`);
    return (await facade.call(session, 'bash', { command: 'npm test --silent', ...args })).text;
  };
  const write = async (file: string): Promise<string> =>
    (await facade.call(session, 'write', { path: file, content: 'x' })).text;
  return { folder, run, write, records: () => facade.records() as readonly Readonly<Record<string, unknown>>[] };
}

/** Runs a command on the host as the owner of the workspace. It may fail. */
function asOwner(folder: string, command: string): string {
  const { uid, gid } = chooseSandboxUser(folder);
  const { stdout } = spawnSync('sh', ['-c', `${FUNCTIONS}${command}`], {
    cwd: folder,
    encoding: 'utf8',
    env: { PATH: process.env.PATH, HOME: '/nonexistent', ROOT: folder },
    ...(process.getuid?.() === 0 && { uid, gid }),
  });
  return stdout;
}

const NAMES =
  'export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org';

interface Attack {
  readonly name: string;
  readonly attack: string;
  readonly owner: string;
}
const ATTACKS = parse(
  readFileSync(path.join(import.meta.dirname, 'made-repositories.yaml'), 'utf8'),
) as readonly Attack[];

describe('a repository that a command creates', () => {
  it.each(partOf(ATTACKS, 4))(
    "runs no program in the owner's git: $name" + verifies('TR-17'),
    async ({ attack, owner }) => {
      const control = openWorkspace();
      cleanups.push(() => remove(control));
      asOwner(control, `${attack}\n${owner}`);
      expect(existsSync(path.join(control, 'pwned')), 'the attack works without a sandbox').toBe(true);
      const { folder, run, records } = await underStarter();
      const text = await run(attack);
      expect(text).toContain('ran');
      asOwner(folder, owner);
      expect(existsSync(path.join(folder, 'pwned'))).toBe(false);
      expect(text).toMatch(/git on the host would run programs that these files name/);
      expect(records().filter(({ event }) => event === 'settings-withheld')).toMatchObject([
        { type: 'server', server: 'workspace', outcome: 'deny' },
      ]);
    },
  );

  it('has its settings withheld while the command still runs' + verifies('TR-17'), async () => {
    const { folder, run } = await underStarter();
    await run('git init -q sub; git -C sub config core.fsmonitor "touch $ROOT/pwned; false"; touch made; sleep 60', {
      action: 'start',
      wait_ms: 100,
    });
    await expect.poll(() => existsSync(path.join(folder, 'sub/.git/config.withheld')), { timeout: 20_000 }).toBe(true);
    asOwner(folder, 'git -C sub status');
    expect(existsSync(path.join(folder, 'pwned'))).toBe(false);
  });

  it('that belongs to the owner keeps its settings, unless a command changes them' + verifies('TR-17'), async () => {
    const { folder, run } = await underStarter();
    asOwner(
      folder,
      `git init -q --bare mirror; git -C mirror config core.hooksPath /nonexistent
       git init -q own; git -C own config core.hooksPath /nonexistent; sleep 0.3`,
    );
    expect(await run('mkdir x; touch mirror/refs/y')).not.toContain('withheld');
    expect(asOwner(folder, 'git -C mirror config core.hooksPath; git -C own config core.hooksPath')).toBe(
      '/nonexistent\n/nonexistent\n',
    );
    expect(await run('echo "[core]" >> mirror/config; echo x >> own/.git/config')).toMatch(
      /names: mirror\/config\. A person/,
    );
    expect(asOwner(folder, 'git -C own config core.hooksPath; cat mirror/config.withheld | grep hooksPath')).toMatch(
      /^\/nonexistent\n\thooksPath = \/nonexistent\n$/,
    );
  });

  it('with harmless settings is not changed: init, commit, clone, worktree' + verifies('TR-17'), async () => {
    const { folder, run } = await underStarter();
    const text = await run(
      `set -e; ${NAMES}
git init -q one; cd one; echo a > a; git add a; git commit -qm one; git branch b; git worktree add -q ../wt b; cd ..
git clone -q one two; git -C two config user.name "a"; git -C two log --oneline | wc -l`,
    );
    expect(text.trim()).toBe('1\nran');
    expect(
      asOwner(
        folder,
        'git -C two remote -v | wc -l; git -C wt log --oneline | wc -l; git -C one status --short | wc -l',
      ),
    ).toBe('2\n1\n0\n');
  });

  it('cannot be created with the write tool' + verifies('TR-17'), async () => {
    const { write } = await underStarter();
    for (const file of ['sub/.git', 'kit/HEAD', 'kit.git/config', 'sub/.git/config']) {
      expect(await write(file), file).toMatch(/^Refused by rule no-git-/);
    }
  });
});

describe('withholdSettings', () => {
  it.each(ATTACKS)("runs no program in the owner's git after $name" + verifies('TR-17'), async ({ attack, owner }) => {
    const [control, root] = [openWorkspace(), openWorkspace()];
    cleanups.push(() => {
      remove(control);
      remove(root);
    });
    asOwner(control, `${attack}\n${owner}`);
    expect(existsSync(path.join(control, 'pwned')), 'the attack works').toBe(true);
    const [since, withheld] = [Date.now(), [] as string[]];
    asOwner(root, attack);
    await withholdSettings(
      { writable: [root], closed: new Map(), known: new Set(), since, lost: new Set(), before: new Map() },
      withheld,
    );
    asOwner(root, owner);
    expect(existsSync(path.join(root, 'pwned'))).toBe(false);
    expect(withheld).not.toEqual([]);
  });

  it('is fast for much white space in settings and for many hooks' + verifies('TR-17'), async () => {
    const root = openWorkspace();
    cleanups.push(() => remove(root));
    asOwner(root, 'git init -q sub; git init -q other');
    writeFileSync(path.join(root, 'sub/.git/config'), `[user]\n\tname =${' '.repeat(65_000)}"\n`);
    for (let number = 2; number < 5000; number += 1) writeFileSync(path.join(root, `other/.git/hooks/x${number}`), '');
    const scope = {
      writable: [root],
      closed: new Map(),
      known: new Set<string>(),
      since: Date.now(),
      lost: new Set<string>(),
      before: new Map(),
    };
    const [began, withheld] = [cpuMs(), [] as string[]];
    await withholdSettings(scope, withheld);
    const took = cpuMs() - began;
    expect(withheld.map((file) => path.relative(root, file))).toEqual(
      expect.arrayContaining(['sub/.git/config', 'other/.git/hooks']),
    );
    expect(took).toBeLessThan(limitNow(took, 2000));
  });
});

describe('withholdSettings in folders with unusual names', () => {
  it('moves the folders to the top, and scans them there' + verifies('TR-17'), async () => {
    const root = openWorkspace();
    cleanups.push(() => remove(root));
    const deep = 'L=$(printf "%0200d" 0); for i in $(seq 25); do mkdir $L; cd $L; done';
    asOwner(
      root,
      `git init -q --bare g; git config -f g/config core.fsmonitor false
       mkdir "$(printf "o\\377")" s a; touch "s/$(printf "o\\377")"; cd a; ${deep}; mv $ROOT/g g`,
    );
    const withheld: string[] = [];
    await withholdSettings(
      { writable: [root], closed: new Map(), known: new Set(), since: Date.now(), lost: new Set(), before: new Map() },
      withheld,
    );
    expect(readdirSync(root).sort()).toEqual(['a', 'o\ufffd.withheld', 's', `${'0'.repeat(50)}.withheld`].sort());
    expect(asOwner(root, 'find . -name "config*" | sed "s#.*/##"')).toBe('config.withheld\n');
    expect(withheld).toHaveLength(4);
  });
});

describe('a server in a sandbox', () => {
  it('that creates such a repository is reported by name' + verifies('TR-17'), async () => {
    const workspace = openWorkspace();
    cleanups.push(() => remove(workspace));
    const reported: unknown[] = [];
    const fixed = { inside: ['**/.git/config'], outside: [] };
    const attack = `cd ${workspace}; git init -q sub
      git -C sub config core.fsmonitor "touch ${workspace}/pwned; false"; echo '{}'`;
    const settings = stdioSettings(['/bin/sh', '-c', attack], {
      name: 'maker',
      isolation: 'sandbox',
      confinement: { hidden: { inside: [], outside: [] }, fixed, closedHosts: [] },
      sandbox: sandboxOf([workspace], { fileMb: 64 }),
    });
    const launched = await launch(settings, {
      workspace,
      hidden: [],
      secrets: () => Promise.reject(new Error('none')),
      onWithheld: (server, { withheld }) => reported.push(server, ...withheld),
    });
    launched.child.stdout.resume();
    if (launched.child.exitCode === null) await new Promise((resolve) => launched.child.once('exit', resolve));
    await launched.release();
    asOwner(workspace, 'git -C sub status');
    expect(existsSync(path.join(workspace, 'pwned'))).toBe(false);
    expect(reported).toEqual(['maker', path.join(workspace, 'sub/.git/config')]);
  });
});
