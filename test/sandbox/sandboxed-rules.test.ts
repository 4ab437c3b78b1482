/** Tests with a whole facade that rules on paths and hosts bind commands and servers in real sandboxes. */
import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { loadConfig } from '../../facade/config/load-config.ts';
import { cli } from '../cli/terminal.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';
import { OWNER, own } from './probe-targets.ts';

const open: TestFacade[] = [];
const folders: string[] = [];
afterEach(async () => {
  for (const facade of open.splice(0)) await facade.close();
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
});

const ALL = `
  - {id: all, outcome: allow, when: {}}
`;

interface Project {
  readonly facade: TestFacade;
  readonly workspace: string;
  bash(command: string, as?: string): Promise<string>;
  call(name: string, args: Readonly<Record<string, unknown>>, as?: string): Promise<string>;
  put(name: string, text: string): void;
}

/** Starts a facade. By default, the workspace is the folder of the configuration. `files` belong to its owner. */
async function start(
  rules: string,
  {
    more = '',
    files = {},
    workspace: name = '.',
  }: { more?: string; files?: Readonly<Record<string, string>>; workspace?: string } = {},
): Promise<Project> {
  const folder = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-rules-')));
  folders.push(folder);
  chmodSync(folder, 0o755);
  const workspace = path.join(folder, name);
  own(folder);
  const put = (file: string, text: string): void => {
    const names = file.split('/');
    names.forEach((_, index) => {
      const at = path.join(workspace, ...names.slice(0, index + 1));
      if (index < names.length - 1) mkdirSync(at, { recursive: true });
      else writeFileSync(at, text);
      own(at);
    });
  };
  mkdirSync(workspace, { recursive: true });
  own(workspace);
  for (const [file, text] of Object.entries(files)) put(file, text);
  const state = path.join(mkdtempSync(path.join(tmpdir(), 'tollgate-state-')), 'state');
  folders.push(path.dirname(state));
  const config = `version: 1
workspace: ${name}
state: ${state}
approvals: {waitMs: 0}
principals:
  - {id: ada, role: developer, stdio: true}
  - {id: bot, role: agent, stdio: true}
${more}
rules:${rules}`;
  const facade = await startFacade(config, { folder });
  own(path.join(folder, 'tollgate.yaml'));
  open.push(facade);
  const call = async (tool: string, args: Readonly<Record<string, unknown>>, as = 'ada'): Promise<string> =>
    (await facade.call(facade.open(as), tool, args)).text;
  return { facade, workspace, put, call, bash: (command, as) => call('bash', { command }, as) };
}

const SECRET = 'KEY=the-secret-itself';

describe('a rule that denies a path', () => {
  const CLOSED = `
  - {id: no-env, outcome: deny, when: {paths: ["**/.env", "**/secrets/**"]}}
${ALL}`;

  it('hides it from read and from every program of a command' + verifies('PF-02'), async () => {
    const { bash, call } = await start(CLOSED, {
      files: { '.env': SECRET, 'app/.env': SECRET, 'app/secrets/one': SECRET, 'app/open.txt': 'KEY of nothing' },
    });
    expect(await call('read', { path: '.env' })).toContain('no-env');
    expect(await bash('cat .env app/.env; cat app/secrets/one')).not.toContain('secret-itself');
    expect(await bash('grep -rs KEY . --include=.env --include=one --include=open.txt')).toBe(
      'exit 2\n./app/open.txt:KEY of nothing',
    );
    expect(
      await bash(
        `python3 -c "print(open('.env').read())" 2>&1; perl -pe 1 app/.env
         tar cf - . 2>/dev/null | grep -ac secret-itself`,
      ),
    ).not.toMatch(/secret-itself|[1-9]$/);
  });

  it('still applies after a command tried to move, link, open or unmount the path', async () => {
    const { bash, workspace } = await start(
      `
  - {id: deep, outcome: deny, when: {paths: [config/live/keys/**, config/.token]}}
${ALL}`,
      { files: { 'config/live/keys/one': SECRET, 'config/.token': SECRET, 'config/open': 'open' } },
    );
    const attempts = [
      'mv config c2',
      'mv config/live config/l2',
      'mv config/.token t',
      'ln config/.token t',
      'chmod 777 config/live/keys',
      'umount config/.token',
      'rm -rf config/live',
      'cp -r config copy',
      'cat config/open',
    ];
    const output = await bash(attempts.join('; '));
    expect(output).toMatch(/busy/);
    expect(output).toMatch(/open$/);
    expect(
      await bash('cat config/.token c2/.token t copy/.token; grep -rs secret-itself . --exclude=tollgate.yaml'),
    ).not.toContain('secret-itself');
    expect(readFileSync(path.join(workspace, 'config/live/keys/one'), 'utf8')).toBe(SECRET);
  });

  it('applies in a folder that could not be listed during the search', async () => {
    const { bash } = await start(CLOSED, { files: { 'app/x': 'x' } });
    await bash('mkdir shut && echo KEY=made >shut/.env && chmod 000 shut');
    expect(await bash('chmod 755 shut; cat shut/.env')).not.toContain('KEY=made');
  });

  it('applies to files made since the last command, but not to those that the running command makes', async () => {
    const { bash, put } = await start(CLOSED);
    put('late/.env', SECRET);
    expect(await bash('cat late/.env')).not.toContain('secret-itself');
    expect(await bash('mkdir n; echo mine >n/.env; cat n/.env')).toBe('mine');
    expect(await bash('cat n/.env')).not.toContain('mine');
  });

  it('makes git fail at a denied file instead of removing it from the repository', async () => {
    const { bash, workspace } = await start(CLOSED, { files: { '.env': SECRET, x: 'x' } });
    execFileSync('sh', ['-c', 'git init -q . && git add .env x && git -c user.email=a@b -c user.name=a commit -qm 1'], {
      cwd: workspace,
      env: { PATH: process.env.PATH },
      ...(process.getuid?.() === 0 && { uid: OWNER, gid: OWNER }),
    });
    expect(await bash('git add -A; git ls-files')).toMatch(/fatal[^]*\.env\nx$/);
  });

  it('applies while a session moves folders during the start of the next command', async () => {
    const { bash, call } = await start(CLOSED, { files: { 'a/.env': SECRET } });
    await call('bash', {
      action: 'start',
      command: 'while :; do mv a b; mv b a; mkdir c; mv c d; rmdir d; done 2>/dev/null',
      wait_ms: 100,
    });
    for (let tries = 0; tries < 6; tries += 1) expect(await bash('cat */.env')).not.toContain('secret-itself');
    await call('bash', { action: 'kill', session: 's1' });
  });

  it('applies in a project that only root may enter', async () => {
    const { bash, workspace, facade } = await start(CLOSED, {
      workspace: 'ws',
      files: { 'a/.env': SECRET, open: 'open', 'secrets/x': SECRET },
    });
    chmodSync(facade.folder, 0o700);
    if (process.getuid?.() === 0) chownSync(facade.folder, 0, 0);
    expect(await bash('cat open; cat a/.env secrets/x; mv a b')).toMatch(/^exit 1\nopen[^]*denied[^]*denied[^]*busy/);
    expect(existsSync(path.join(workspace, 'a/.env'))).toBe(true);
  });

  it('applies to sessions too', async () => {
    const { call } = await start(CLOSED, { files: { '.env': SECRET } });
    expect(await call('bash', { action: 'start', command: 'cat .env; echo done', wait_ms: 3000 })).toMatch(/done/);
  });

  it('does not hide a file behind a link whose name is denied, as with read', async () => {
    const { bash, call, workspace } = await start(CLOSED, { files: { real: 'plain' } });
    symlinkSync('real', path.join(workspace, '.env'));
    expect(await call('read', { path: '.env' })).toBe(await bash('cat .env'));
  });

  it('applies only to the callers that it names', async () => {
    const { bash } = await start(
      `
  - {id: not-for-agents, outcome: deny, when: {roles: [agent], paths: ["**/.env"]}}
${ALL}`,
      { files: { '.env': SECRET } },
    );
    expect(await bash('cat .env', 'bot')).not.toContain('secret-itself');
    expect(await bash('cat .env', 'ada')).toBe(SECRET);
  });

  it('hides it with outcome ask too, but not in shadow mode, and not if the rule names another tool', async () => {
    const { bash, call } = await start(
      `
  - {id: ask, outcome: ask, when: {paths: [asked]}}
  - {id: trial, outcome: deny, mode: shadow, when: {paths: [tried]}}
  - {id: one-tool, outcome: deny, when: {tools: [workspace.read], paths: [named]}}
${ALL}`,
      { files: { asked: SECRET, tried: 'tried ', named: 'named' } },
    );
    expect(await bash('cat asked tried named')).toMatch(/tried named$/);
    expect(await bash('cat asked')).not.toContain('secret');
    expect(await call('read', { path: 'named' })).toContain('one-tool');
  });

  it('on the whole workspace hides every file from a command', async () => {
    const { bash } = await start(
      `
  - {id: shut, outcome: deny, when: {verbs: [read], paths: ["**"]}}
${ALL}`,
      { files: { x: SECRET } },
    );
    expect(await bash('pwd; ls; cat ~/x')).not.toContain('secret-itself');
  });

  it('refuses the command if it would need too many mounts, and says how to write the rule', async () => {
    const files = Object.fromEntries(Array.from({ length: 401 }, (_, index) => [`keys/${index}.pem`, 'x']));
    const { bash } = await start(
      `
  - {id: pem, outcome: deny, when: {paths: ["**/*.pem"]}}
${ALL}`,
      { files },
    );
    expect(await bash('echo ran')).toMatch(/more than 400 files[^]*folder\/\*\*/);
  });
});

describe('a rule that denies writing', () => {
  const GIT = `
  - {id: no-hooks, outcome: deny, when: {verbs: [write, destructive], paths: ["**/.git/hooks/**", "**/.git/config"]}}
${ALL}`;

  it('protects the hooks and settings of git from commands, which can still commit', async () => {
    const { bash, workspace } = await start(GIT);
    expect(
      await bash('git init -q . && git config user.email a@b && git config user.name a && mkdir -p sub && echo ok'),
    ).toContain('ok');
    const output = await bash(
      `echo evil >.git/hooks/pre-commit; mv .git .g; rm -rf .git/hooks; mv .git/hooks h
       git config core.fsmonitor evil
       echo x >x; git add x && git commit -qm first && git log --format=%s`,
    );
    expect(output).toMatch(/Read-only file system/);
    expect(output).toMatch(/first$/);
    expect(existsSync(path.join(workspace, '.git/hooks/pre-commit'))).toBe(false);
    expect(readFileSync(path.join(workspace, '.git/config'), 'utf8')).not.toContain('evil');
  });

  it('leaves the files readable', async () => {
    const { bash } = await start(
      `
  - {id: fixed, outcome: deny, when: {verbs: [write], paths: [docs/**]}}
${ALL}`,
      { files: { 'docs/a/b': 'text', 'docs/c': 'c' } },
    );
    expect(await bash('cat docs/a/b; echo x >docs/a/b; echo x >docs/new; rm docs/c; mv docs d')).toMatch(
      /text[^]*Read-only[^]*Read-only[^]*Read-only[^]*busy/,
    );
  });

  it('is built in for tollgate.yaml and policies, also if a command moves their folder', async () => {
    const { bash, workspace } = await start(ALL, {
      more: 'policies: [rules/own.yaml]',
      files: { 'rules/own.yaml': 'rules: []\n' },
    });
    const before = readFileSync(path.join(workspace, 'tollgate.yaml'), 'utf8');
    const output = await bash(
      `echo x >>tollgate.yaml; mv tollgate.yaml t
       mv rules r2; mkdir -p rules; echo "rules: [x]" >rules/own.yaml; rm -f rules/own.yaml`,
    );
    expect(output).toMatch(/Read-only[^]*busy[^]*busy/);
    expect(readFileSync(path.join(workspace, 'tollgate.yaml'), 'utf8')).toBe(before);
    expect(readFileSync(path.join(workspace, 'rules/own.yaml'), 'utf8')).toBe('rules: []\n');
  });
});

const SERVER = `
import { createInterface } from 'node:readline';
import { readFileSync, writeFileSync } from 'node:fs';
const tools = {
  read: ({ file }) => readFileSync(file, 'utf8'),
  write: ({ file }) => (writeFileSync(file, 'changed'), 'written'),
  reach: ({ url }) => fetch(url).then((got) => 'got ' + got.status, (thrown) => String(thrown.cause ?? thrown)),
};
const serverInfo = { name: 'x', version: '1' };
createInterface({ input: process.stdin }).on('line', async (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const say = (result) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', id, result }) + '\\n');
  if (method === 'initialize') return say({ protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo });
  if (method === 'tools/list')
    return say({ tools: Object.keys(tools).map((name) => ({ name, inputSchema: { type: 'object' } })) });
  let text; try { text = await tools[params.name](params.arguments); } catch (thrown) { text = String(thrown); }
  say({ content: [{ type: 'text', text }] });
});
`;

const servers = (sandbox: string): string => `servers:
  x: {command: node, args: [index.mjs], cwd: server, sandbox: ${sandbox}}
profiles: {default: {servers: [x]}}
expose: {tools: ["x.*"]}
`;

describe('a server in a sandbox', () => {
  it('cannot read or change paths that rules deny to all callers, whatever arguments its tools get', async () => {
    const { call, workspace } = await start(
      `
  - {id: no-env, outcome: deny, when: {paths: ["**/.env"]}}
  - {id: fixed, outcome: deny, when: {verbs: [write, destructive], paths: [docs/**]}}
  - {id: of-others, outcome: deny, when: {servers: [workspace], paths: [mine]}}
${ALL}`,
      {
        more: servers('{filesystem: {allowWrite: [.]}}'),
        files: {
          'server/index.mjs': SERVER,
          'server/package.json': '{}',
          '.env': SECRET,
          'docs/a': 'text',
          mine: 'mine',
        },
      },
    );
    const at = (file: string): string => path.join(workspace, file);
    expect(await call('x_read', { file: at('.env') })).toMatch(/EACCES/);
    expect(await call('x_read', { file: at('docs/a') })).toBe('text');
    expect(await call('x_write', { file: at('docs/a') })).toMatch(/EROFS/);
    expect(await call('x_write', { file: at('free') })).toBe('written');
    expect(await call('x_read', { file: at('mine') })).toBe('mine');
  });

  it('cannot read a denied path in its own folder in the workspace either', async () => {
    const { call, workspace } = await start(
      `
  - {id: no-env, outcome: deny, when: {paths: ["**/.env"]}}
${ALL}`,
      {
        more: servers('{}'),
        files: { 'server/index.mjs': SERVER, 'server/package.json': '{}', 'server/.env': SECRET },
      },
    );
    expect(await call('x_read', { file: path.join(workspace, 'server/.env') })).toMatch(/EACCES/);
  });

  it('cannot reach a host that a rule denies, even if allowedDomains lists it' + verifies('HA-31'), async () => {
    const { call, facade } = await start(
      `
  - {id: no-evil, outcome: deny, when: {hosts: ["*.evil.example", one.example], servers: [x]}}
  - {id: no-plain, outcome: ask, when: {urls: ["http://two.example"]}}
${ALL}`,
      {
        more: servers('{network: {allowedDomains: ["*.evil.example", one.example, two.example]}}'),
        files: { 'server/index.mjs': SERVER, 'server/package.json': '{}' },
      },
    );
    for (const url of ['https://a.evil.example/', 'https://one.example/', 'http://two.example/'])
      expect(await call('x_reach', { url })).toContain('Tollgate: not-allowed');
    expect(facade.records().filter(({ event }) => event === 'egress-blocked')).toHaveLength(3);
  });

  it('starts again if a reload changes the paths that are closed to it', async () => {
    const files = { 'server/index.mjs': SERVER, 'server/package.json': '{}', secret: SECRET };
    const { call, workspace, facade } = await start(ALL, { more: servers('{filesystem: {allowWrite: [.]}}'), files });
    const file = path.join(workspace, 'secret');
    expect(await call('x_read', { file })).toBe(SECRET);
    const config = path.join(workspace, 'tollgate.yaml');
    writeFileSync(
      config,
      readFileSync(config, 'utf8').replace(
        'rules:',
        'rules:\n  - {id: closed, outcome: deny, when: {paths: [secret]}}',
      ),
    );
    await facade.assembled.reload(() => loadConfig(config, { env: {}, home: '/home/nobody-at-all' }), false);
    expect(await call('x_read', { file })).toMatch(/EACCES/);
  });
});

describe('a rule that a sandbox cannot enforce', () => {
  const LOOSE = `
  - {id: late, outcome: deny, when: {paths: [x], labels: [secret]}}
  - {id: mine, outcome: deny, when: {roles: [agent], paths: [y]}}
`;
  const notes = (project: Project): readonly string[] =>
    project.facade.assembled.notices.filter((line) => /bind/.test(line));

  it('is reported at the start if someone may use commands or a server', async () => {
    const project = await start(`${LOOSE}${ALL}`, { more: servers('{}'), files: { 'server/index.mjs': SERVER } });
    expect(notes(project)).toEqual([
      expect.stringMatching(
        /^tollgate\.yaml:\d+:\d+: "late" does not bind commands of bash, the program of x: /,
      ) as string,
      expect.stringMatching(/"mine" does not bind the program of x: it is about some callers/) as string,
    ]);
  });

  it('is not reported for commands and servers that no one may use', async () => {
    const closed = await start(
      `${LOOSE}
  - {id: none, outcome: deny, when: {verbs: [execute]}}
  - {id: reads, outcome: allow, when: {verbs: [read]}}`,
      { more: servers('{}').replace(/^profiles:[^]*/m, ''), files: { 'server/index.mjs': SERVER } },
    );
    expect(notes(closed)).toEqual([]);
    expect(notes(await start(`${LOOSE}${ALL}`, { more: 'expose: {primitives: {read: workspace}}' }))).toEqual([]);
  });

  it('is any rule for commands without isolation', async () => {
    const project = await start(`${LOOSE}${ALL}`, { more: 'bash: {isolation: direct}', files: { '.env': SECRET } });
    expect(notes(project)).toEqual([expect.stringMatching(/^Commands of bash run without isolation/) as string]);
    expect(await project.bash('cat .env')).toBe(SECRET);
  });

  it('is reported by tollgate check, as text and as JSON', async () => {
    const { workspace } = await start(`${LOOSE}${ALL}`);
    const project = { folder: workspace, home: '/home/nobody-at-all' } as Parameters<typeof cli>[0];
    const { err } = await cli(project, ['check']);
    expect(err).toMatch(/"late" does not bind commands of bash/);
    const { out } = await cli(project, ['check', '--json']);
    expect(JSON.parse(out)).toMatchObject({ unbound: [expect.stringContaining('"late"') as string] });
  });
});
