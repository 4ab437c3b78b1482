/** Attacks by a repository that a sandboxed command makes itself: what git of the owner, or the owner's editor, would run on the host. */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { withholdSettings } from '../../adapters/sandbox/closed-paths/git-repositories.ts';
import { chooseSandboxUser } from '../../adapters/sandbox/sandbox-spec.ts';
import { launch } from '../../adapters/stdio/launch.ts';
import { cpuMs } from '../bench/growth.ts';
import { openWorkspace, own } from '../sandbox/probe-targets.ts';
import { startFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

const STARTER = path.join(import.meta.dirname, '..', '..', 'policies', 'starter', 'workspace.yaml');
/** Settings whose program leaves a mark; `$ROOT` is the workspace. */
const EVIL = `[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = "touch $ROOT/pwned; false"\\n`;
const HOOK = 'printf "#!/bin/sh\\ntouch $ROOT/pwned\\n"';

const done: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const undo of done.splice(0).reverse()) await undo();
});

/** rmSync does not reach paths that are longer than the system takes. */
function remove(folder: string): void {
  spawnSync('rm', ['-rf', folder]);
}

/** A workspace of an ordinary user, and a facade with the rules of starter `workspace`, under which `npm test` runs a script. */
async function underStarter(): Promise<{
  readonly folder: string;
  readonly run: (script: string, args?: object) => Promise<string>;
  readonly write: (file: string) => Promise<string>;
  readonly records: () => readonly Readonly<Record<string, unknown>>[];
}> {
  const root = openWorkspace();
  done.push(() => remove(root));
  const folder = path.join(root, 'project');
  mkdirSync(folder);
  own(folder);
  writeFileSync(path.join(root, 'rules.yaml'), readFileSync(STARTER));
  writeFileSync(path.join(folder, 'package.json'), JSON.stringify({ scripts: { test: 'sh attack.sh' } }));
  const config = `version: 1\nworkspace: project\nstate: ${root}/state\nprincipals:\n  - {id: agent, role: agent, profiles: [default]}\npolicies: [rules.yaml]\nexpose:\n  primitives: workspace\n`;
  const facade = await startFacade(config, { folder: root });
  done.push(() => facade.close());
  const session = facade.open('agent');
  const run = async (script: string, args: object = {}): Promise<string> => {
    writeFileSync(path.join(folder, 'attack.sh'), `ROOT=$PWD\n${script}\necho ran`);
    return (await facade.call(session, 'bash', { command: 'npm test --silent', ...args })).text;
  };
  const write = async (file: string): Promise<string> =>
    (await facade.call(session, 'write', { path: file, content: 'x' })).text;
  return { folder, run, write, records: () => facade.records() as readonly Readonly<Record<string, unknown>>[] };
}

/** Runs a command on the host as the owner of the workspace. Whether git finds a repository is not the question. */
function asOwner(folder: string, command: string): string {
  const { uid, gid } = chooseSandboxUser(folder);
  const { stdout } = spawnSync('sh', ['-c', command], {
    cwd: folder,
    encoding: 'utf8',
    env: { PATH: process.env.PATH, HOME: '/nonexistent', ROOT: folder },
    ...(process.getuid?.() === 0 && { uid, gid }),
  });
  return stdout;
}

const NAMES =
  'export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org';

const COMMIT = 'git -C sub -c user.name=a -c user.email=a@example.org commit -q --allow-empty -m x';

/** What the agent's command does, and what the owner then does with git. */
const ATTACKS: Readonly<Record<string, readonly [attack: string, owner: string]>> = {
  'a nested repository with fsmonitor': [
    `git init -q sub; printf '${EVIL}' | sed "s#.ROOT#$ROOT#" > sub/.git/config`,
    'git -C sub status',
  ],
  'a repository at the top, where there was none': [
    `git init -q; printf '${EVIL}' | sed "s#.ROOT#$ROOT#" > .git/config`,
    'git status',
  ],
  'settings added by git itself': [
    'git init -q sub; git -C sub config core.fsmonitor "touch $ROOT/pwned; false"',
    'git -C sub status',
  ],
  'settings on the line of their section': [
    'git init -q sub; echo "[core] fsmonitor = touch $ROOT/pwned" >> sub/.git/config',
    'git -C sub status',
  ],
  'settings that are included': [
    'git init -q sub; git config -f more core.fsmonitor "touch $ROOT/pwned; false"; git -C sub config include.path $ROOT/more',
    'git -C sub status',
  ],
  'a hook': [
    `git init -q sub; mkdir -p sub/.git/hooks; ${HOOK} > sub/.git/hooks/pre-commit; chmod +x sub/.git/hooks/pre-commit`,
    COMMIT,
  ],
  'hooks behind a link': [
    `mkdir h; ${HOOK} > h/pre-commit; chmod +x h/pre-commit; git init -q sub; rm -rf sub/.git/hooks; ln -s ../../h sub/.git/hooks`,
    COMMIT,
  ],
  'a .git that is a file': [
    'git init -q --separate-git-dir=meta sub; git -C sub config core.fsmonitor "touch $ROOT/pwned; false"',
    'git -C sub status',
  ],
  'a .git that is a link': [
    'git init -q sub; git -C sub config core.fsmonitor "touch $ROOT/pwned; false"; mv sub/.git meta; ln -s ../meta sub/.git',
    'git -C sub status',
  ],
  'a bare repository with files of its own': [
    'git init -q --bare kit; git -C kit config core.bare false; git -C kit config core.worktree $ROOT/kit; git -C kit config core.fsmonitor "touch $ROOT/pwned; false"',
    'git -C kit status',
  ],
  'settings of a common folder': [
    'git init -q a; git init -q b; mkdir c; mv b/.git/objects b/.git/refs b/.git/config c; git config -f c/config core.fsmonitor "touch $ROOT/pwned; false"; rm -rf a/.git/objects a/.git/refs; echo ../../c > a/.git/commondir',
    'git -C a status',
  ],
  'settings in a link': [
    'git init -q sub; git config -f meta core.fsmonitor "touch $ROOT/pwned; false"; rm sub/.git/config; ln -s ../../meta sub/.git/config',
    'git -C sub status',
  ],
  'settings of a worktree': [
    'git init -q sub; git -C sub config extensions.worktreeConfig true; git config -f sub/.git/config.worktree core.fsmonitor "touch $ROOT/pwned; false"',
    'git -C sub status',
  ],
  'a folder whose name a shell would read': [
    "mkdir '${A}'; git init -q '${A}/sub'; git -C '${A}/sub' config core.fsmonitor \"touch $ROOT/pwned; false\"",
    "git -C '${A}/sub' status",
  ],
  'a folder whose name is no text': [
    'O=$(printf "o\\\\377"); git init -q "$O"; git -C "$O" config core.fsmonitor "touch $ROOT/pwned; false"',
    'git -C o* status',
  ],
  'a repository beside a hook with a long name': [
    'git init -q sub; git -C sub config core.fsmonitor "touch $ROOT/pwned; false"; git init -q a; L=$(printf "%0250d" 0); mkdir -p a/.git/hooks; touch a/.git/hooks/$L; cp -r a z; cp -r a t',
    'git -C sub status',
  ],
  'a repository beside folders that are nested too deeply': [
    'git init -q sub; git -C sub config core.fsmonitor "touch $ROOT/pwned; false"; L=$(printf "%0200d" 0); mkdir a z; for d in a z; do (cd $d; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25; do mkdir $L; cd $L; done); done',
    'git -C sub status',
  ],
  'settings of a repository that the owner makes later': [
    'mkdir -p sub/.git; git config -f sub/.git/config core.fsmonitor "touch $ROOT/pwned; false"',
    'git init -q sub; git -C sub status',
  ],
  'a hook in a repository that the owner makes later': [
    `mkdir -p sub/.git/hooks; ${HOOK} > sub/.git/hooks/pre-commit; chmod +x sub/.git/hooks/pre-commit`,
    `git init -q sub; ${COMMIT}`,
  ],
  'a folder that its owner cannot list': [
    'mkdir d; git init -q d/sub; git -C d/sub config core.fsmonitor "touch $ROOT/pwned; false"; chmod 111 d d/sub/.git',
    'cd d/sub && git status',
  ],
};

describe('a repository that a command makes', () => {
  it.each(Object.entries(ATTACKS))(
    '%s runs nothing when the owner uses git there' + verifies('TR-17'),
    async (_, [attack, owner]) => {
      const control = openWorkspace();
      done.push(() => remove(control));
      asOwner(control, `${attack}; ${owner}`);
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

  it('is withheld while its command still runs' + verifies('TR-17'), async () => {
    const { folder, run } = await underStarter();
    await run('git init -q sub; git -C sub config core.fsmonitor "touch $ROOT/pwned; false"; touch made; sleep 60', {
      action: 'start',
      wait_ms: 100,
    });
    await expect.poll(() => existsSync(path.join(folder, 'sub/.git/config.withheld')), { timeout: 20_000 }).toBe(true);
    asOwner(folder, 'git -C sub status');
    expect(existsSync(path.join(folder, 'pwned'))).toBe(false);
  });

  it('of the owner keeps its settings, unless a command changes them' + verifies('TR-17'), async () => {
    const { folder, run } = await underStarter();
    asOwner(
      folder,
      'git init -q --bare mirror; git -C mirror config core.hooksPath /nonexistent; git init -q own; git -C own config core.hooksPath /nonexistent; sleep 0.3',
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

  it('with plain settings stays as it is: init, commit, clone, worktree' + verifies('TR-17'), async () => {
    const { folder, run } = await underStarter();
    const text = await run(
      `set -e; ${NAMES}\ngit init -q one; cd one; echo a > a; git add a; git commit -qm one; git branch b; git worktree add -q ../wt b; cd ..; git clone -q one two; git -C two config user.name "a"; git -C two log --oneline | wc -l`,
    );
    expect(text.trim()).toBe('1\nran');
    expect(
      asOwner(
        folder,
        'git -C two remote -v | wc -l; git -C wt log --oneline | wc -l; git -C one status --short | wc -l',
      ),
    ).toBe('2\n1\n0\n');
  });

  it('is not made by writes either' + verifies('TR-17'), async () => {
    const { write } = await underStarter();
    for (const file of ['sub/.git', 'kit/HEAD', 'kit.git/config', 'sub/.git/config']) {
      expect(await write(file), file).toMatch(/^Refused by rule no-git-/);
    }
  });
});

describe('a look at repositories', () => {
  it('takes no longer for white space in settings and for many hooks' + verifies('TR-17'), async () => {
    const root = openWorkspace();
    done.push(() => remove(root));
    asOwner(root, 'git init -q sub; git init -q other');
    writeFileSync(path.join(root, 'sub/.git/config'), `[user]\n\tname =${' '.repeat(65_000)}"\n`);
    for (let number = 2; number < 5000; number += 1) writeFileSync(path.join(root, `other/.git/hooks/x${number}`), '');
    const grounds = {
      writable: [root],
      closed: new Map(),
      known: new Set<string>(),
      since: Date.now(),
      lost: new Set<string>(),
      before: new Map(),
    };
    const [began, withheld] = [cpuMs(), [] as string[]];
    await withholdSettings(grounds, withheld);
    const took = cpuMs() - began;
    expect(withheld.map((file) => path.relative(root, file))).toEqual(
      expect.arrayContaining(['sub/.git/config', 'other/.git/hooks']),
    );
    expect(took).toBeLessThan(2000);
  });
});

describe('a look at folders with odd names', () => {
  it('moves them to the top, and looks into them there' + verifies('TR-17'), async () => {
    const root = openWorkspace();
    done.push(() => remove(root));
    const deep =
      'L=$(printf "%0200d" 0); for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25; do mkdir $L; cd $L; done';
    asOwner(
      root,
      `git init -q --bare g; git config -f g/config core.fsmonitor false; mkdir "$(printf "o\\377")" s a; touch "s/$(printf "o\\377")"; cd a; ${deep}; mv $ROOT/g g`,
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
  it('that makes a repository is recorded with its name' + verifies('TR-17'), async () => {
    const workspace = openWorkspace();
    done.push(() => remove(workspace));
    const told: unknown[] = [];
    const fixed = { inside: ['**/.git/config'], outside: [] };
    const attack = `cd ${workspace}; git init -q sub; git -C sub config core.fsmonitor "touch ${workspace}/pwned; false"; echo '{}'`;
    const settings = {
      name: 'maker',
      command: '/bin/sh',
      args: ['-c', attack],
      env: {},
      isolation: 'sandbox',
      confinement: { hidden: { inside: [], outside: [] }, fixed, closedHosts: [] },
      sandbox: {
        filesystem: { allowRead: [], allowWrite: [workspace], denyRead: [] },
        network: { allowedDomains: [] },
        limits: { memoryMb: 256, processes: 64, fileMb: 64 },
      },
    } as unknown as Parameters<typeof launch>[0];
    const launched = await launch(settings, {
      workspace,
      hidden: [],
      secrets: () => Promise.reject(new Error('none')),
      onWithheld: (server, { withheld }) => told.push(server, ...withheld),
    });
    launched.child.stdout.resume();
    if (launched.child.exitCode === null) await new Promise((resolve) => launched.child.once('exit', resolve));
    await launched.release();
    asOwner(workspace, 'git -C sub status');
    expect(existsSync(path.join(workspace, 'pwned'))).toBe(false);
    expect(told).toEqual(['maker', path.join(workspace, 'sub/.git/config')]);
  });
});
