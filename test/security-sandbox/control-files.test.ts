/**
 * Attacks on control files: through links, unusual names, folders that do not exist yet, and edits on the disk.
 * Covers: adapters/sandbox.
 */
import {
  chmodSync,
  cpSync,
  existsSync,
  lchownSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { sandboxedShell } from '../../adapters/primitives/shell/sandboxed-shell.ts';
import { createWorkspace } from '../../adapters/primitives/workspace/workspace-server.ts';
import { readConfig } from '../../facade/cli/command-facade.ts';
import { EXIT } from '../../facade/cli/command-io.ts';
import { startScreen } from '../../facade/cli/server-consent/consent-screens.ts';
import type { Config, ServerConfig } from '../../facade/config/config.ts';
import { loadInForce } from '../../facade/config/config-in-force.ts';
import { realPlaces } from '../../facade/config/reading/control-files.ts';
import { reviewStart } from '../../facade/consent/servers/consent-review.ts';
import { type Answer, cli } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { withConsents } from '../consent/consent-facade.ts';
import { Child } from '../process/child.ts';
import { allow, startRaw, tool } from '../properties/raw-facade.ts';
import { Reloadable } from '../runtime/edited-project.ts';
import { openWorkspace, own } from '../sandbox/probe-targets.ts';
import { callText, sandboxOf } from '../sandbox/sandbox-fixture.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

const ALLOW_ALL = 'rules:\n  - {id: all, outcome: allow, when: {verbs: [read, write, destructive, execute]}}\n';
const TOKEN = 'sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08';
const FIXTURE = path.join(import.meta.dirname, '..', 'fixtures', 'notes-server.mjs');

const cleanups: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const undo of cleanups.splice(0).reverse()) await undo();
});

/** Starts a facade with its configuration in the workspace, and a policy that allows everything. */
async function startInWorkspace(policy: string, plant: (folder: string) => void): Promise<TestFacade> {
  const root = openWorkspace();
  cleanups.push(() => rmSync(root, { recursive: true, force: true }));
  const [folder, state] = [path.join(root, 'project'), path.join(root, 'state')];
  mkdirSync(folder);
  plant(folder);
  const facade = await startFacade(
    `version: 1
workspace: .
state: ${state}
principals:
  - {id: agent, role: agent, profiles: [default]}
policies: [${policy}]
expose:
  primitives: workspace
`,
    { folder },
  );
  cleanups.push(() => facade.close());
  return facade;
}

const put = (folder: string, name: string, text: string): void => {
  mkdirSync(path.dirname(path.join(folder, name)), { recursive: true });
  writeFileSync(path.join(folder, name), text);
};

describe('a write to a control file', () => {
  const linked = (folder: string): void => {
    put(folder, 'cfg/real.yaml', ALLOW_ALL);
    put(folder, 'policies/.keep', '');
    symlinkSync('../cfg/real.yaml', path.join(folder, 'policies/rules.yaml'));
  };
  const folderLink = (folder: string): void => {
    put(folder, 'elsewhere/deep/rules.yaml', ALLOW_ALL);
    symlinkSync('elsewhere/deep', path.join(folder, 'policies'));
  };
  const inRego = (folder: string): void => {
    put(folder, 'rules.yaml', ALLOW_ALL);
    put(folder, '..policies/x.yaml', ALLOW_ALL);
  };
  it.each([
    ['a linked rules file', 'policies/rules.yaml', linked, ['cfg/real.yaml', 'policies/rules.yaml']],
    [
      'a linked folder of rules',
      'policies/rules.yaml',
      folderLink,
      ['elsewhere/deep/rules.yaml', 'policies/rules.yaml'],
    ],
    ['a name that starts with two dots', '..policies/x.yaml', inRego, ['..policies/x.yaml']],
    ['a servers folder that does not exist yet', 'rules.yaml', inRego, ['servers/evil.yaml']],
  ])('of the kind "%s" is refused under every name' + verifies('TR-30'), async (_, policy, plant, names) => {
    const facade = await startInWorkspace(policy, plant);
    const session = facade.open('agent');
    for (const name of names) {
      const answer = await facade.call(session, 'write', { path: name, content: 'rules: []\n' });
      expect([name, answer.code, answer.text]).toEqual([name, 'DENIED', expect.stringContaining('control-files')]);
    }
    // Other files can be written.
    expect((await facade.call(session, 'write', { path: 'notes.txt', content: 'x' })).code).toBe('');
  });
});

describe('a shell command in the sandbox', () => {
  const shellOver = (root: string, fixed: readonly string[]): ((command: string) => Promise<string>) => {
    const sandbox = sandboxOf([root], { memoryMb: 1024, processes: 128, fileMb: 64 });
    const server = createWorkspace({
      root,
      shell: sandboxedShell(() => ({ workspace: root, sandbox, hidden: [], fixed })),
    });
    cleanups.push(() => server.stop());
    return (command) => callText(server, 'bash', { command });
  };

  it(
    'cannot create servers/, or a control file in a missing folder, and leaves no placeholder' + verifies('TR-30'),
    async () => {
      const root = openWorkspace();
      cleanups.push(() => rmSync(root, { recursive: true, force: true }));
      const bash = shellOver(root, [path.join(root, 'servers'), path.join(root, '.vscode', 'mcp.json')]);
      const text = await bash(
        `echo x >servers/evil.yaml; rm -rf servers; mv servers away; mkdir -p servers/deep
         echo x >.vscode/mcp.json; mv .vscode other; ls -A`,
      );
      expect(text).toMatch(/Read-only file system/);
      expect(text).toMatch(/Device or resource busy/);
      expect(existsSync(path.join(root, 'servers/evil.yaml'))).toBe(false);
      await expect
        .poll(() => existsSync(path.join(root, 'servers')) || existsSync(path.join(root, '.vscode')))
        .toBe(false);
    },
  );

  it('cannot write the target of a linked rules file' + verifies('TR-30'), async () => {
    const root = openWorkspace();
    cleanups.push(() => rmSync(root, { recursive: true, force: true }));
    put(root, 'cfg/real.yaml', ALLOW_ALL);
    put(root, 'policies/.keep', '');
    symlinkSync('../cfg/real.yaml', path.join(root, 'policies/rules.yaml'));
    for (const name of ['cfg', 'cfg/real.yaml', 'policies']) own(path.join(root, name));
    const facade = { controlFiles: [path.join(root, 'policies/rules.yaml'), path.join(root, 'cfg/real.yaml')] } as Pick<
      Config,
      'controlFiles'
    >;
    expect(
      await shellOver(
        root,
        realPlaces(facade.controlFiles),
      )('echo x >policies/rules.yaml; echo x >cfg/real.yaml; mv cfg away; cat cfg/real.yaml'),
    ).toMatch(/Read-only file system[^]*Read-only file system[^]*busy[^]*id: all/);
    expect(readFileSync(path.join(root, 'cfg/real.yaml'), 'utf8')).toBe(ALLOW_ALL);
  });
});

describe('an edit of the semantics of an approved server', () => {
  const configure = (semantics: string): Readonly<Record<string, string>> => ({
    'tollgate.yaml': `version: 1
workspace: workspace
state: state
policies: [rules.yaml]
principals: [{id: agent, role: agent, profiles: [default]}]
expose: {tools: ["notes.*"]}
`,
    'rules.yaml': 'rules:\n  - {id: reads, outcome: allow, when: {verbs: [read]}}\n',
    'servers/notes.yaml': `command: ${process.execPath}
args: [${FIXTURE}, mode]
isolation: direct
profiles: [default]
semantics: {${semantics}}
`,
  });
  const begin = async (semantics: string): Promise<Reloadable> => {
    const facade = await new Reloadable(configure(semantics)).start();
    cleanups.push(() => facade.close());
    return facade;
  };

  it.each([
    ['while the server runs', true],
    ['before it is started', false],
  ])('voids its approval %s, also outside of the workspace' + verifies('TR-36'), async (_when, isRunning) => {
    const facade = await begin('find: read, admin: destructive');
    const session = facade.open('agent');
    if (isRunning) expect((await facade.call(session, 'notes_find', { text: 'a' })).code).toBe('');
    expect((await facade.call(session, 'notes_admin', { text: 'x' })).code).toMatch(/DENIED|UNKNOWN_TOOL|^-?\d*$/);
    facade.write('servers/notes.yaml', configure('find: read, admin: read')['servers/notes.yaml'] ?? '');
    await facade.reload();
    const refused = await facade.call(facade.open('agent'), 'notes_admin', { text: 'x' });
    expect(refused).toMatchObject({
      code: 'SERVER_UNAVAILABLE',
      text: expect.stringContaining('semantics[1] differs from what was approved') as string,
    });
    const ran = facade.at('mode.log');
    expect(existsSync(ran) ? readFileSync(ran, 'utf8') : '').not.toContain('admin');
  });

  it('is shown on the approval screen with the earlier value' + verifies('TR-36'), async () => {
    const facade = await begin('admin: destructive');
    facade.write('servers/notes.yaml', configure('admin: read')['servers/notes.yaml'] ?? '');
    const config = facade.read();
    const screen = await withConsents(config, async (consents) => {
      const server = config.servers.get('notes') as ServerConfig;
      return startScreen(server, await reviewStart(server, consents));
    });
    expect(screen).toContain('  tools    "admin: read"\n');
    expect(screen).toContain('    semantics[0]: was "admin: destructive", is "admin: read"\n');
  });
});

describe('a server without a sandbox', () => {
  it(
    'cannot change control files outside of the workspace by any path, or read the state folder' + verifies('TR-30'),
    async () => {
      const semantics = {
        put: { verb: 'write', paths: ['path'] },
        move: { verb: 'destructive', paths: ['from', 'to'] },
        get: { verb: 'read', paths: ['path'] },
      };
      const facade = await startRaw(
        { files: { tools: [tool('put'), tool('move'), tool('get')], settings: { semantics } } },
        { rules: [allow('files')] },
      );
      cleanups.push(() => facade.close());
      const session = facade.open('me');
      const [config, elsewhere] = [path.join(facade.folder, 'tollgate.yaml'), openWorkspace()];
      cleanups.push(() => rmSync(elsewhere, { recursive: true, force: true }));
      symlinkSync(config, path.join(elsewhere, 'link'));
      symlinkSync(facade.folder, path.join(elsewhere, 'folder'));
      const attacks: readonly (readonly [string, Readonly<Record<string, string>>])[] = [
        ['files_put', { path: config }],
        ['files_put', { path: `${elsewhere}/link` }],
        ['files_put', { path: `${elsewhere}/folder/tollgate.yaml` }],
        ['files_put', { path: `../${path.basename(config)}` }],
        ['files_put', { path: path.join(facade.folder, 'servers', 'evil.yaml') }],
        ['files_move', { from: path.join(elsewhere, 'x'), to: facade.folder }],
        ['files_move', { from: facade.folder, to: path.join(elsewhere, 'y') }],
        ['files_move', { from: path.dirname(facade.folder), to: elsewhere }],
        ['files_get', { path: path.join(facade.folder, 'state', 'token') }],
        ['files_put', { path: path.join(facade.folder, 'state', 'audit', 'x') }],
      ];
      for (const [name, args] of attacks) {
        const answer = await facade.call(session, name, args);
        expect([name, args, answer.code, answer.text]).toEqual([
          name,
          args,
          'DENIED',
          expect.stringContaining('control-files'),
        ]);
      }
      expect(facade.calls('files')).toEqual([]);
      // Other files there can be written, and control files without secrets can be read.
      for (const [name, args] of [
        ['files_put', { path: path.join(elsewhere, 'notes.txt') }],
        ['files_put', { path: path.join(facade.folder, 'notes.txt') }],
        ['files_get', { path: config }],
        ['files_get', { path: elsewhere }],
      ] as const)
        expect([name, args, (await facade.call(session, name, args)).code]).toEqual([name, args, '']);
      expect(
        facade
          .records()
          .filter(({ code }) => code === 'DENIED')
          .every(({ reasons }) => JSON.stringify(reasons).includes('control-files')),
      ).toBe(true);
    },
  );
});

describe('a configuration in the workspace that was edited on the disk', () => {
  const yaml = (more = ''): string => `version: 1
workspace: .
bash: {isolation: direct}
servers: {notes: {command: ${process.execPath}, args: [${FIXTURE}], semantics: {wipe: destructive}}}
policies: [rules.yaml]
profiles: {default: {servers: [notes], expose: {primitives: workspace, tools: ["notes.*"]}}}
${more}`;
  let project: Project;
  let child: Child | undefined;
  beforeEach(async () => {
    project = new Project();
    project.write(
      'rules.yaml',
      `rules:
  - {id: run, outcome: allow, when: {tools: [workspace.*]}}
  - {id: notes, outcome: allow, when: {servers: [notes], verbs: [read]}}
`,
    );
    project.write('tollgate.yaml', yaml());
    expect((await cli(project, ['reload'])).code).toBe(EXIT.approval);
    expect((await acceptByHash()).code).toBe(EXIT.ok);
  });
  afterEach(async () => {
    child?.process.kill('SIGKILL');
    await child?.ended;
    child = undefined;
    project.remove();
  });
  /** Gives all files to an ordinary user: commands in a sandbox run as the owner of the workspace. */
  const chownAll = (folder: string): void =>
    [
      folder,
      ...readdirSync(folder, { recursive: true, encoding: 'utf8' }).map((name) => path.join(folder, name)),
    ].forEach((file) => lchownSync(file, 1000, 1000));
  const acceptByHash = async (): Promise<Answer> => {
    const { hash } = JSON.parse((await cli(project, ['reload', '--json'])).out) as { hash: string };
    return cli(project, ['reload', '--yes', hash]);
  };
  const startUnaccepted = async (): Promise<Child> => {
    child = new Child(project, ['run'], { asItIs: true });
    await child.hello();
    return child;
  };
  const bash = async (agent: Child, command: string): Promise<string> =>
    JSON.stringify(await agent.call('bash', { command }));

  it('does not apply files in servers/ that a command created' + verifies('TR-31'), async () => {
    const agent = await startUnaccepted();
    await bash(
      agent,
      'mkdir -p servers && echo "semantics: {wipe: read}" >servers/notes.yaml && echo "command: sh" >servers/evil.yaml',
    );
    expect(existsSync(path.join(project.folder, 'servers/evil.yaml'))).toBe(true);
    await expect
      .poll(() => agent.err)
      .toMatch(
        /Not in force: servers\/evil\.yaml, servers\/notes\.yaml differ from what an owner accepted\..*tollgate reload/,
      );
    expect(agent.err).not.toContain('Reloaded');
    const { config } = loadInForce(project.file, { env: {}, home: project.home });
    expect([...config.servers.keys()]).toEqual(['notes']);
    expect(config.servers.get('notes')?.semantics).toMatchObject([
      { pattern: 'wipe', semantics: { verb: 'destructive' } },
    ]);
  });

  it(
    'does not apply an edited tollgate.yaml, neither in the running process nor at the next start' + verifies('TR-31'),
    async () => {
      const agent = await startUnaccepted();
      await bash(
        agent,
        `echo "rules: [{id: evil, outcome: allow, when: {}}]" >>tollgate.yaml
         printf "rules:\\n  - {id: all, outcome: allow, when: {}}\\n" >rules.yaml`,
      );
      await expect.poll(() => agent.err).toContain('Not in force: rules.yaml, tollgate.yaml differ');
      expect(loadInForce(project.file, { env: {}, home: project.home }).config.rules).toEqual([]);
      agent.process.kill('SIGKILL');
      await agent.ended;
      const next = await startUnaccepted();
      await expect.poll(() => next.err).toContain('Not in force: rules.yaml, tollgate.yaml differ');
      expect(next.err).not.toContain('NOT RELOADED');
    },
  );

  it('does not use a forged acceptance in another state folder' + verifies('TR-31'), () => {
    const forged = path.join(project.root, 'forged');
    project.write('tollgate.yaml', yaml(`state: ${forged}\nrules: [{id: evil, outcome: allow, when: {}}]`));
    const { acceptedFolder: honest } = loadInForce(project.file, { env: {}, home: project.home }).config;
    cpSync(honest, path.join(forged, 'accepted', path.basename(honest)), { recursive: true });
    expect(loadInForce(project.file, { env: {}, home: project.home }).config.rules).toEqual([]);
  });

  it(
    'refuses a folder of acceptances in the workspace, or in a folder that a sandbox may write' + verifies('TR-38'),
    async () => {
      const inside = path.join(project.folder, 'xdg');
      expect(() => loadInForce(project.file, { env: { XDG_STATE_HOME: inside }, home: project.home })).toThrow(
        expect.objectContaining({ code: 'CONFIG_INVALID' }),
      );
      // Another `state` changes nothing: the accepted copy is never in it.
      const elsewhere = path.join(project.root, 'state');
      const messages = (more: string, env: Record<string, string>): readonly string[] =>
        project
          .load(
            yaml(`state: ${elsewhere}\n${more}`).replace(
              'bash: {isolation: direct}\n',
              more.includes('bash:') ? '' : 'bash: {isolation: direct}\n',
            ),
            env,
          )
          .problems.map(({ line, message }) => `${line}: ${message}`);
      expect(messages('', { XDG_STATE_HOME: inside })).toEqual([
        '2: the workspace contains the folder of accepted configurations, so an agent could accept its own; ' +
          'name another workspace, or set XDG_STATE_HOME to a folder outside it',
      ]);
      const apart = path.join(project.root, 'apart');
      expect(messages(`bash: {filesystem: {allowWrite: [${apart}]}}`, { XDG_STATE_HOME: apart })).toEqual([
        expect.stringContaining("it contains or is part of Tollgate's own state"),
      ]);
      for (const command of ['run', 'serve']) {
        child = new Child(project, [command], { asItIs: true, env: { XDG_STATE_HOME: inside } });
        expect([command, (await child.ended).code, existsSync(inside)]).toEqual([command, EXIT.usage, false]);
        expect(child.err).toContain('CONFIG_INVALID');
      }
    },
  );

  it('still starts and reloads with broken server files' + verifies('TR-34'), async () => {
    const agent = await startUnaccepted();
    await bash(
      agent,
      `mkdir -p servers; echo "{{{" >servers/broken.yaml; mkfifo servers/pipe.yaml; ln -s / servers/root.yaml
       echo ": : :" >rules.yaml`,
    );
    await expect.poll(() => agent.err).toContain('Not in force');
    agent.process.kill('SIGKILL');
    await agent.ended;
    const next = await startUnaccepted();
    expect(await bash(next, 'echo works')).toContain('works');
    expect(await cli(project, ['reload'])).toMatchObject({
      code: EXIT.usage,
      err: expect.stringMatching(/^CONFIG_INVALID/) as string,
    });
  });

  it(
    'applies within a second after an owner accepted the shown hash, and this is recorded' + verifies('TR-33'),
    async () => {
      const agent = await startUnaccepted();
      project.write(
        'tollgate.yaml',
        yaml('caps: {bytes: 20000}\nrules: [{id: more, outcome: allow, when: {verbs: [write]}}]'),
      );
      const shown = await cli(project, ['reload']);
      expect(shown).toMatchObject({
        code: EXIT.approval,
        out:
          'May allow more:\n  tollgate.yaml: rule more (allow) is new\n' +
          'Allows less:\n  caps.bytes: 30000 → 20000\n',
      });
      const hash = /--yes ([\da-f]{64})/.exec(shown.err)?.[1] ?? '';
      expect(await cli(project, ['reload', '--yes', 'f'.repeat(64)])).toMatchObject({
        code: EXIT.refused,
        err: expect.stringMatching(/^PIN_MISMATCH/) as string,
      });
      // A later change is not part of what was accepted.
      project.write('servers/late.yaml', 'command: sh\n');
      expect((await cli(project, ['reload', '--yes', hash])).code).toBe(EXIT.refused);
      rmSync(path.join(project.folder, 'servers'), { recursive: true });
      expect((await cli(project, ['reload', '--yes', hash])).code).toBe(EXIT.ok);
      await expect.poll(() => agent.err, { interval: 20 }).toContain('Reloaded: policy revision');
      expect(loadInForce(project.file, { env: {}, home: project.home }).config.rules).toHaveLength(1);
      expect((await cli(project, ['audit', 'list', '--type', 'setup', '--json'])).out).toContain(
        `"accepted": "${hash}"`,
      );
    },
  );

  it('cannot be accepted by a principal that only the edited file makes an owner' + verifies('TR-33'), async () => {
    project.write(
      'tollgate.yaml',
      yaml('principals: [{id: mia, role: dev, owner: true}, {id: ann, role: dev, profiles: [default]}]'),
    );
    expect((await acceptByHash()).code).toBe(EXIT.ok);
    project.write(
      'tollgate.yaml',
      yaml('principals: [{id: mia, role: dev, owner: true}, {id: ann, role: dev, owner: true, profiles: [default]}]'),
    );
    expect(await cli(project, ['reload', '--as', 'ann'])).toMatchObject({
      code: EXIT.auth,
      err: expect.stringMatching(/^IDENTITY: ann is no owner/) as string,
    });
  });

  it('cannot be accepted if no one could accept a later change' + verifies('TR-33'), async () => {
    project.write('tollgate.yaml', yaml(`principals: [{id: ann, role: dev, owner: true, token: "${TOKEN}"}]`));
    expect(await cli(project, ['reload'])).toMatchObject({
      code: EXIT.auth,
      err: expect.stringMatching(/^IDENTITY: .* no later change/) as string,
    });
    project.write(
      'tollgate.yaml',
      yaml(`principals: [{id: ann, role: dev, owner: true, stdio: true, token: "${TOKEN}"}]`),
    );
    expect((await acceptByHash()).code).toBe(EXIT.ok);
    project.write('tollgate.yaml', yaml());
    expect((await acceptByHash()).code).toBe(EXIT.ok);
  });

  it('does not start without an accepted copy, and names the command that accepts it' + verifies('TR-32'), async () => {
    rmSync(loadInForce(project.file, { env: {}, home: project.home }).config.acceptedFolder, { recursive: true });
    for (const command of ['run', 'serve']) {
      child = new Child(project, [command], { asItIs: true });
      expect(await child.ended).toEqual({ code: EXIT.approval, signal: null });
      expect(child.err).toBe(
        'CONFIG_NOT_ACCEPTED: No owner has accepted tollgate.yaml, servers, rules.yaml, which an agent could have ' +
          'written: they are in the workspace or in a folder that a sandbox may write.\n' +
          'Read it, then accept it with: tollgate reload\n',
      );
    }
  });

  it(
    'is not used before the first acceptance by commands that decide something, or to name helper programs' +
      verifies('TR-37'),
    async () => {
      rmSync(loadInForce(project.file, { env: {}, home: project.home }).config.acceptedFolder, { recursive: true });
      const helper = path.join(project.root, 'opa');
      writeFileSync(helper, `#!/bin/sh\necho ran >>${path.join(project.root, 'ran')}\n`, { mode: 0o755 });
      const forged = path.join(project.root, 'forged');
      project.write('tollgate.yaml', yaml(`programs: {opa: ${helper}}\nstate: ${forged}`));
      for (const argv of [
        ['tools'],
        ['try', 'read', '{"path": "a"}'],
        ['approve', 'notes'],
        ['servers'],
        ['secret', 'set', 'a.key'],
      ]) {
        expect([argv, (await new Child(project, argv, { asItIs: true }).ended).code]).toEqual([argv, EXIT.approval]);
      }
      // Until then, commands that only read and write files use the default state folder.
      for (const argv of [
        ['connect', 'nothing'],
        ['export', '--client', 'claude-code', '--dry-run'],
        ['knowledge', 'list'],
        ['policy', 'mode', 'rules.yaml', 'warn'],
        ['policy', 'replay'],
        ['policy', 'test'],
      ]) {
        expect((await new Child(project, argv, { asItIs: true }).ended).signal).toBe(null);
        expect([argv, existsSync(forged)]).toEqual([argv, false]);
      }
      project.write('rego/a.rego', 'package policy.a\n');
      project.write('tollgate.yaml', yaml(`programs: {opa: ${helper}}`).replace('[rules.yaml]', '[rules.yaml, rego]'));
      for (const command of ['check', 'reload']) await new Child(project, [command], { asItIs: true }).ended;
      expect([existsSync(path.join(project.root, 'ran')), existsSync(forged)]).toEqual([false, false]);
    },
  );

  it(
    'cannot name another state folder for commands that only read files, even after an acceptance' + verifies('TR-37'),
    () => {
      const [io, options] = [{ cwd: project.folder, env: {}, home: project.home }, { config: 'tollgate.yaml' }];
      const { state, audit } = loadInForce(project.file, io).config;
      project.write(
        'tollgate.yaml',
        yaml(`state: ${path.join(project.root, 'forged')}\naudit: {folder: ${path.join(project.root, 'log')}}`),
      );
      expect(readConfig(options, io)).toMatchObject({ state, audit: { folder: audit.folder } });
      rmSync(loadInForce(project.file, io).config.acceptedFolder, { recursive: true });
      expect(readConfig(options, io)).toMatchObject({ state, audit: { folder: audit.folder } });
    },
  );

  it('is accepted when a command of the owner rewrites it: init --force, policy fmt' + verifies('TR-35'), async () => {
    project.write('tollgate.yaml', `${yaml()}rules: [{id: evil, outcome: allow, when: {}}]\n`);
    expect(await cli(project, ['init', '--force'])).toMatchObject({
      code: EXIT.ok,
      err: expect.not.stringContaining('Not accepted') as string,
    });
    expect(loadInForce(project.file, { env: {}, home: project.home })).toMatchObject({
      config: { rules: [] },
      differing: [],
    });
    project.write('tollgate.yaml', yaml().replace('[rules.yaml]', '[rules.yaml, rego]'));
    project.write(
      'rego/a.rego',
      'package policy.a\ndeny contains {"id": "r", "message": "No."} if   input.effect.arguments.no\n',
    );
    expect((await acceptByHash()).code).toBe(EXIT.ok);
    expect(await cli(project, ['policy', 'fmt'])).toMatchObject({
      code: EXIT.ok,
      out: 'rego/a.rego\n',
      err: expect.stringMatching(/^1 of 1 file of Rego formatted; .*\n$/) as string,
    });
    const { accepted, differing } = loadInForce(project.file, { env: {}, home: project.home });
    expect([differing, accepted?.files.get(path.join(project.folder, 'rego/a.rego'))?.toString()]).toEqual([
      [],
      readFileSync(path.join(project.folder, 'rego/a.rego'), 'utf8'),
    ]);
    expect(accepted?.files.get(path.join(project.folder, 'rego/a.rego'))?.toString()).not.toContain('if   ');
  });

  it(
    'does not apply a file behind a link that a command put in the place of a linked control file' + verifies('TR-31'),
    async () => {
      rmSync(path.join(project.folder, 'rules.yaml'));
      project.write('cfg/real.yaml', 'rules:\n  - {id: run, outcome: allow, when: {tools: [workspace.*]}}\n');
      symlinkSync('cfg/real.yaml', path.join(project.folder, 'rules.yaml'));
      project.write('tollgate.yaml', yaml().replace('bash: {isolation: direct}\n', ''));
      chownAll(project.folder);
      for (const folder of [project.root, project.home, project.folder]) chmodSync(folder, 0o755);
      expect((await acceptByHash()).code).toBe(EXIT.ok);
      const agent = await startUnaccepted();
      const output = await bash(
        agent,
        `printf "rules:\\n  - {id: evil, outcome: allow, when: {}}\\n" >evil.yaml &&
         ln -sfn evil.yaml rules.yaml && readlink rules.yaml`,
      );
      expect(output).toContain('evil.yaml');
      const only = {
        config: { policies: [{ path: path.join(project.folder, 'rules.yaml') }] },
        differing: ['rules.yaml'],
      };
      await expect.poll(() => agent.err).toContain('Not in force: rules.yaml differs from what an owner accepted.');
      expect(agent.err).not.toContain('Reloaded');
      const inForce = loadInForce(project.file, { env: {}, home: project.home });
      expect(inForce).toMatchObject(only);
      expect(readFileSync(inForce.config.at(path.join(project.folder, 'rules.yaml')), 'utf8')).not.toContain('evil');
      agent.process.kill('SIGKILL');
      await agent.ended;
      expect((await startUnaccepted()).err).toContain('Not in force: rules.yaml differs');
      expect((await cli(project, ['check'])).err).toContain('Not in force: rules.yaml differs');
      expect(await cli(project, ['reload'])).toMatchObject({
        code: EXIT.approval,
        out: expect.stringContaining('rule evil (allow) is new') as string,
      });
    },
  );

  it('stays unaccepted if a command of the owner edits another file' + verifies('TR-35'), async () => {
    project.write('rules.yaml', 'rules:\n  - {id: all, outcome: allow, when: {}}\n');
    const moded = await cli(project, ['policy', 'mode', 'rules.yaml', 'warn']);
    expect(moded).toMatchObject({
      code: EXIT.ok,
      err: expect.stringContaining(
        'These files differ from the accepted ones, and are not accepted by this: rules.yaml.',
      ) as string,
    });
    const { config, differing } = loadInForce(project.file, { env: {}, home: project.home });
    expect([config.policies[0]?.mode, differing]).toEqual(['warn', ['rules.yaml']]);
    project.write(
      'tollgate.yaml',
      `${readFileSync(project.file, 'utf8')}rules: [{id: evil, outcome: allow, when: {}}]\n`,
    );
    expect(await cli(project, ['policy', 'mode', 'rules.yaml', 'shadow'])).toMatchObject({
      err: expect.stringContaining('Not accepted, because it was changed before: tollgate.yaml') as string,
    });
    expect(loadInForce(project.file, { env: {}, home: project.home }).config).toMatchObject({
      rules: [],
      policies: [{ mode: 'warn' }],
    });
  });
});
