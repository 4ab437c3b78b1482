/** Attacks on closed files of a running command: something outside removes or replaces them, and so their mounts. */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, lstatSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { withholdSettings } from '../../adapters/sandbox/closed-paths/git-repositories.ts';
import { gitSettingsIn } from '../../adapters/sandbox/closed-paths/git-settings.ts';
import { reserveNames } from '../../adapters/sandbox/closed-paths/placeholders.ts';
import { chooseSandboxUser } from '../../adapters/sandbox/sandbox-spec.ts';
import { openWorkspace, own } from '../sandbox/probe-targets.ts';
import { startFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

const STARTER = path.join(import.meta.dirname, '..', '..', 'policies', 'starter', 'workspace.yaml');
const WAIT = { timeout: 30_000 };

const cleanups: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const undo of cleanups.splice(0).reverse()) await undo();
});

/** Runs a shell command on the host as the owner of the workspace. */
function asOwner(folder: string, command: string): string {
  const { uid, gid } = chooseSandboxUser(folder);
  const { stdout, stderr } = spawnSync('sh', ['-c', command], {
    cwd: folder,
    encoding: 'utf8',
    env: { PATH: process.env.PATH, HOME: '/nonexistent' },
    ...(process.getuid?.() === 0 && { uid, gid }),
  });
  return stdout + stderr;
}

interface Gateway {
  /** Starts a script as a background command, and returns its session. */
  readonly start: (script: string) => Promise<string>;
  readonly end: (id: string) => Promise<string>;
  readonly run: (script: string) => Promise<string>;
  readonly kill: (id: string) => Promise<string>;
  readonly records: () => readonly Readonly<Record<string, unknown>>[];
}

/** Creates a workspace of an ordinary user with a repository. */
function project(): string {
  const root = openWorkspace();
  cleanups.push(() => rmSync(root, { recursive: true, force: true }));
  const folder = path.join(root, 'project');
  mkdirSync(folder);
  writeFileSync(path.join(folder, 'Makefile'), 'test:\n\t@sh ./$(shell cat script)\n');
  own(folder);
  asOwner(folder, 'git init -q');
  return folder;
}

/** Returns the key of a repository, as `repositoryKey` does. */
function keyOf(folder: string): string {
  const { dev, ino } = lstatSync(folder, { bigint: true });
  return `${dev}:${ino}`;
}

let scripts = 0;

/** Starts a facade on a workspace, with the rules of starter `workspace`. `make test` runs the script of the agent. */
async function gateway(folder: string): Promise<Gateway> {
  const root = path.join(path.dirname(folder), `gateway${(scripts += 1)}`);
  mkdirSync(root);
  writeFileSync(path.join(root, 'rules.yaml'), readFileSync(STARTER));
  const facade = await startFacade(
    `version: 1
workspace: ${folder}
state: ${root}/state
principals:
  - {id: agent, role: agent, profiles: [default]}
policies: [rules.yaml]
expose:
  primitives: workspace
`,
    { folder: root },
  );
  cleanups.push(() => facade.close());
  const session = facade.open('agent');
  const bash = async (script: string, args: object): Promise<string> => {
    const name = `script${(scripts += 1)}.sh`;
    writeFileSync(path.join(folder, name), script);
    writeFileSync(path.join(folder, 'script'), name);
    return (await facade.call(session, 'bash', { command: 'make test', ...args })).text;
  };
  return {
    start: async (script) => /session (s\d+)/.exec(await bash(script, { action: 'start', wait_ms: 1 }))?.[1] ?? 'none',
    end: async (id) => {
      let text = '';
      await expect
        .poll(
          async () =>
            (text += (await facade.call(session, 'bash', { action: 'poll', session: id, wait_ms: 200 })).text),
          WAIT,
        )
        .toContain('has ended');
      return text;
    },
    run: (script) => bash(script, {}),
    kill: async (id) => (await facade.call(session, 'bash', { action: 'kill', session: id })).text,
    records: () => facade.records() as readonly Readonly<Record<string, unknown>>[],
  };
}

const appears = (folder: string, name: string): Promise<void> =>
  expect.poll(() => existsSync(path.join(folder, name)), WAIT).toBe(true);
const evil = (file: string): string => `printf '[core]\\n\\tfsmonitor = "touch %s/pwned; false"\\n' "$PWD" >> ${file}`;

describe('a closed file that is replaced while a command runs', () => {
  it("by the owner's git ends the command, and settings that it added are withheld" + verifies('TR-91'), async () => {
    const folder = project();
    const { start, end, records } = await gateway(folder);
    const id = await start(`touch began; while :; do (${evil('.git/config')}) 2>/dev/null && sleep 60; done`);
    await appears(folder, 'began');
    expect(asOwner(folder, 'git remote add origin https://example.org/x')).toBe('');
    const text = await end(id);
    asOwner(folder, 'git status');
    expect(existsSync(path.join(folder, 'pwned'))).toBe(false);
    expect(text).toMatch(/a program outside its sandbox replaced \.git\/config while it ran/);
    // It may have written only into the old file, which git has replaced.
    const wrote = asOwner(folder, 'cat .git/config.withheld').includes('pwned');
    expect([text.includes('.git/config. A person'), asOwner(folder, 'cat .git/config').includes('pwned')]).toEqual([
      wrote,
      false,
    ]);
    expect(records().filter(({ event }) => event === 'cover-lost')).toMatchObject([
      { server: 'workspace', outcome: 'error', files: ['.git/config'], count: 1 },
    ]);
  });

  it("by the owner's git keeps its settings if the command did nothing" + verifies('TR-91'), async () => {
    const folder = project();
    const { start, end } = await gateway(folder);
    const id = await start('touch began; sleep 60');
    await appears(folder, 'began');
    asOwner(folder, 'git remote add origin https://example.org/x');
    expect(await end(id)).not.toContain('withheld');
    expect(asOwner(folder, 'git remote')).toBe('origin\n');
  });

  it('by an older command that created its repository ends the younger command' + verifies('TR-91'), async () => {
    const folder = project();
    const { start, end } = await gateway(folder);
    const older = await start(
      `git init -q sub; touch made; while [ ! -e go ]; do sleep 0.05; done
       rm sub/.git/config; touch gone; sleep 1`,
    );
    await appears(folder, 'made');
    const younger = await start(`touch began; while [ ! -e gone ]; do :; done; ${evil('sub/.git/config')}; sleep 60`);
    await appears(folder, 'began');
    writeFileSync(path.join(folder, 'go'), '');
    expect(await end(younger)).toContain('a program outside its sandbox replaced');
    await end(older);
    asOwner(folder, 'git -C sub status');
    expect(existsSync(path.join(folder, 'pwned'))).toBe(false);
  });

  it('by the scan of an older command cannot be filled in by the younger command' + verifies('TR-91'), async () => {
    const folder = project();
    const { start, end } = await gateway(folder);
    const older = await start(
      `git init -q sub; ${evil('sub/.git/config')}; touch made; while [ ! -e go ]; do sleep 0.05; done`,
    );
    await appears(folder, 'made');
    const younger = await start(
      `touch began; cp sub/.git/config text; while :; do cp -n text sub/.git/config 2>/dev/null; done`,
    );
    await appears(folder, 'began');
    writeFileSync(path.join(folder, 'go'), '');
    await end(older);
    await end(younger);
    asOwner(folder, 'git -C sub status');
    expect(existsSync(path.join(folder, 'pwned'))).toBe(false);
  });

  it(
    'together with its repository does not end other commands, and a new repository there is scanned' +
      verifies('TR-91'),
    async () => {
      const folder = project();
      const { run, start, end } = await gateway(folder);
      asOwner(folder, 'git init -q sub');
      const id = await start(
        `touch began; while [ -e sub ]; do sleep 0.05; done; sleep 0.5
         git init -q sub; ${evil('sub/.git/config')}; echo whole`,
      );
      await appears(folder, 'began');
      asOwner(folder, 'mv sub gone; rm -rf gone');
      expect(await run('git init -q sub2; sleep 4')).not.toContain('withheld');
      expect(await end(id)).toMatch(/whole[^]*sub\/\.git\/config\. A person/);
      asOwner(folder, 'git -C sub status');
      expect(existsSync(path.join(folder, 'pwned'))).toBe(false);
    },
  );

  it.each(['sub', '.'])(
    'or is part of a repository that a second command completes is withheld, in %s' + verifies('TR-17'),
    async (where) => {
      const folder = project();
      rmSync(path.join(folder, '.git'), { recursive: true });
      const { run } = await gateway(folder);
      const first = await run(
        `git init -q ${where}; ${evil(`${where}/.git/config`)}
         mv ${where}/.git/refs ${where}/.git/r; mv ${where}/.git ${where}/aside`,
      );
      const second = await run(`mv ${where}/aside/r ${where}/aside/refs; mv ${where}/aside ${where}/.git`);
      asOwner(folder, `git -C ${where} status`);
      expect([existsSync(path.join(folder, 'pwned')), (first + second).includes('withheld')]).toEqual([false, true]);
    },
  );

  it(
    'is not removed by the Tollgate process that created its placeholder while another sandbox uses it' +
      verifies('TR-91'),
    async () => {
      const folder = project();
      const place = path.join(folder, '.cursor');
      const { release } = reserveNames([place]);
      // Another Tollgate process mounts an existing name like this.
      const other = spawn('bwrap', ['--bind', '/', '/', '--ro-bind', place, place, 'sh', '-c', 'echo ready; cat'], {
        stdio: ['pipe', 'pipe', 'inherit'],
      });
      cleanups.push(() => void other.kill('SIGKILL'));
      await once(other.stdout, 'data');
      release();
      expect(existsSync(place)).toBe(true);
      other.stdin.end();
      await once(other, 'exit');
      await expect.poll(() => existsSync(place), WAIT).toBe(false);
    },
  );

  it('stays closed until the last process of a killed command has ended' + verifies('TR-91'), async () => {
    const folder = project();
    const { start, kill } = await gateway(folder);
    writeFileSync(
      path.join(folder, 'worker.pl'),
      `$SIG{TERM} = 'IGNORE';
while (1) {
  rename "hold$ARGV[0]", '.zed';
  mkdir '.cursor';
  if (open(F, '>', '.mcp.json')) { close F; }
  if (open(F, '>', '.git/commondir')) { print F "../x"; close F; }
}`,
    );
    for (let round = 0; round < 3; round += 1) {
      const id = await start(
        `trap '' TERM; for i in $(seq 16); do mkdir -p hold$i/e; perl worker.pl $i & done
         touch began${round}; wait`,
      );
      await appears(folder, `began${round}`);
      await kill(id);
      expect(readdirSync(folder).filter((name) => ['.zed', '.cursor', '.mcp.json'].includes(name))).toEqual([]);
      expect(readdirSync(path.join(folder, '.git'))).not.toContain('commondir');
    }
  });

  it.each([
    ['unchanged', '', false],
    ['with a harmless addition', '[branch "b"]\n\tremote = o\n', false],
    ['with another program', '[alias]\n\tx = !true\n', true],
  ])('keeps settings that the owner made long before, unless programs are added: %s', async (_, more, isWithheld) => {
    const folder = project();
    const file = path.join(folder, '.git/config');
    writeFileSync(file, `${readFileSync(file, 'utf8')}[pager] # mine\n\tdiff = less\n`);
    const before = gitSettingsIn([file], Date.now() + 700_000);
    expect(gitSettingsIn([file], Date.now())).toEqual(before);
    writeFileSync(file, readFileSync(file, 'utf8') + more);
    const withheld: string[] = [];
    await withholdSettings(
      {
        writable: [folder],
        closed: new Map([[file, 'fixed']]),
        known: new Set([keyOf(path.dirname(file))]),
        since: Date.now() - 1000,
        lost: new Set([file]),
        before,
      },
      withheld,
    );
    expect(withheld).toEqual(isWithheld ? [file] : []);
  });

  it.each([
    ['the second of two lines', 'a\n\tfsmonitor = b\n', 'b\n\tfsmonitor = a\n'],
    ['a continued line', '"a \\', '"a \\\n;b"\n'],
    ['a line under another header', '"a"\n[pager] # mine\n', '"a"\n[submodule "x"]\n[pager] # mine\n\tbranch = run\n'],
  ])('does not count this as a setting of the owner: %s', async (_, old, changed) => {
    const folder = project();
    const file = path.join(folder, '.git/config');
    const text = readFileSync(file, 'utf8');
    writeFileSync(file, `${text}[core]\n\tfsmonitor = ${old}`);
    const before = gitSettingsIn([file], Date.now() + 700_000);
    writeFileSync(file, `${text}[core]\n\tfsmonitor = ${changed}`);
    const withheld: string[] = [];
    await withholdSettings(
      {
        writable: [folder],
        closed: new Map([[file, 'fixed']]),
        known: new Set([keyOf(path.dirname(file))]),
        since: Date.now() - 1000,
        lost: new Set([file]),
        before,
      },
      withheld,
    );
    expect(withheld).toEqual([file]);
  });

  it('is withheld if it is the plan of a rebase that would run a command' + verifies('TR-91'), async () => {
    const folder = project();
    const { run } = await gateway(folder);
    expect(
      await run(
        'mkdir .git/rebase-merge; printf "pick 1\\n\\texec touch pwned\\n" > .git/rebase-merge/git-rebase-todo',
      ),
    ).toContain('.git/rebase-merge/git-rebase-todo');
    expect(readdirSync(path.join(folder, '.git/rebase-merge'))).toEqual(['git-rebase-todo.withheld']);
    expect(await run('mkdir -p .git/rebase-merge; echo "pick 1" > .git/rebase-merge/git-rebase-todo')).not.toContain(
      'withheld',
    );
  });
});
