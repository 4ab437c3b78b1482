/**
 * Tests other workspaces as an owner opens them and as an agent attacks them: closed without the upgrade, open only for
 * named folders, and closed again at once.
 */

import {
  existsSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createWorkspace } from '../../adapters/primitives/workspace/workspace-server.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { CallPathHandles } from '../../catalogs/readers/path-handles.ts';
import { loadConfig } from '../../facade/config/load-config.ts';
import { type Answer as CliAnswer, cli } from '../cli/terminal.ts';
import type { Project } from '../config/project.ts';
import { partOf } from '../harness/slices.ts';
import { OPEN, startRaw, tool } from '../properties/raw-facade.ts';
import { type Answer, startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

const FILES = {
  'lib/a.txt': 'needle in the library\n',
  'lib/.env': 'needle=secret\n',
  'lib/inner/b.txt': 'needle below\n',
  'lib/private/key.txt': 'needle of a key\n',
  'lib/.gitignore': 'built/\n',
  'lib/built/x.txt': 'needle built\n',
  'site/index.html': '<p>old</p>\n',
  'secret.txt': 'needle outside\n',
  'lib-private/s.txt': 'needle of a sibling\n',
  'workspace/own.txt': 'needle at home\n',
};

let folder: string;
let facade: TestFacade;
const others: TestFacade[] = [];
const at = (name: string): string => path.join(folder, name);

function configuration(): string {
  return JSON.stringify({
    workspace: 'workspace',
    state: 'state',
    otherWorkspaces: { read: ['lib'], write: ['site'] },
    principals: [
      { id: 'crosser', profiles: ['crossing'], stdio: true },
      { id: 'other', profiles: ['plain'], stdio: true },
      { id: 'admin', profiles: ['plain'], stdio: true, owner: true },
    ],
    profiles: { crossing: { expose: { primitives: 'workspace' } }, plain: { expose: { primitives: 'workspace' } } },
    rules: [
      {
        id: 'files',
        outcome: 'allow',
        when: { tools: ['workspace.read', 'workspace.write', 'workspace.edit', 'workspace.bash'] },
      },
      { id: 'no-keys', outcome: 'deny', when: { paths: ['**/.env', at('lib/private/**')] }, message: 'Keys.' },
    ],
  });
}

beforeEach(async () => {
  folder = realpathSync(mkdtempSync(path.join(tmpdir(), 'cross-')));
  for (const [name, text] of Object.entries(FILES)) {
    mkdirSync(path.dirname(at(name)), { recursive: true });
    writeFileSync(at(name), text);
  }
  facade = await startFacade(configuration(), { folder });
});

afterEach(async () => {
  await Promise.all([facade, ...others.splice(0)].map((one) => one.close()));
  rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
});

const run = (...argv: readonly string[]): Promise<CliAnswer> =>
  cli({ folder, home: folder } as Project, ['upgrades', ...argv, '--as', 'admin']);
const enable = (...more: readonly string[]): Promise<CliAnswer> => run('enable', 'cross_workspace', ...more);
const disable = (): Promise<CliAnswer> => run('disable', 'cross_workspace');
const call = (name: string, args: unknown, who = 'crosser'): Promise<Answer> =>
  facade.call(facade.open(who), name, args);
const read = (file: string, who?: string): Promise<Answer> => call('read', { path: file }, who);

describe('other workspaces' + verifies('ST-110', 'CY-30'), () => {
  it('are closed to every tool until an owner adds the upgrade, whether a file exists or not', async () => {
    const refusals: string[] = [];
    for (const [name, args] of [
      ['read', { path: at('lib/a.txt') }],
      ['read', { path: at('lib/missing.txt') }],
      ['read', { path: '../lib/a.txt' }],
      ['read', { path: at('lib'), action: 'search', pattern: 'needle' }],
      ['write', { path: at('site/new.html'), content: 'x' }],
      ['edit', { path: at('site/index.html'), old_string: 'old', new_string: 'new' }],
      ['bash', { command: 'true', cwd: at('lib') }],
    ] as const) {
      const answer = await call(name, args);
      expect([name, answer.code]).toEqual([name, 'DENIED']);
      refusals.push(answer.text.replace(/[0-9a-f-]{36}/g, ''));
    }
    expect(new Set(refusals).size).toBe(1);
    expect(refusals[0]).toContain('tollgate upgrades enable cross_workspace');
    expect(existsSync(at('site/new.html'))).toBe(false);
    expect((await read('own.txt')).text).toContain('needle at home');
  });

  it('are opened by an owner for one profile, and only as the configuration names them', async () => {
    const said = await enable('--profile', 'crossing', '--for', '8h', '--calls', '50');
    expect(said).toMatchObject({
      code: 0,
      err: expect.stringContaining(`  read    ${at('lib')}\n  write   ${at('site')}\n`),
    });
    expect((await read(at('lib/a.txt'))).text).toContain('needle in the library');
    expect((await read('../lib/a.txt')).text).toContain('needle in the library');
    expect((await call('read', { path: at('lib'), action: 'list' })).text.split('\n')).toEqual(
      expect.arrayContaining(['a.txt', 'inner/']),
    );
    expect((await call('read', { path: at('lib'), action: 'find', pattern: '**/*.txt' })).text.split('\n')).toEqual(
      ['a.txt', 'inner/b.txt', 'private/key.txt'].map((name) => at(`lib/${name}`)),
    );
    expect((await call('read', { path: at('lib/a.txt'), action: 'stat' })).text).toContain('kind: file');
    expect((await call('write', { path: at('site/deep/new.html'), content: 'new\n' })).code).toBe('');
    expect(readFileSync(at('site/deep/new.html'), 'utf8')).toBe('new\n');
    expect((await call('edit', { path: at('site/index.html'), old_string: 'old', new_string: 'new' })).code).toBe('');
    expect(readFileSync(at('site/index.html'), 'utf8')).toBe('<p>new</p>\n');
    expect(await read(at('lib/a.txt'), 'other')).toMatchObject({
      code: 'DENIED',
      text: expect.stringContaining('upgrades enable cross_workspace'),
    });
    for (const [name, args] of [
      ['write', { path: at('lib/a.txt'), content: 'x' }],
      ['edit', { path: at('lib/a.txt'), old_string: 'needle', new_string: 'x' }],
    ] as const) {
      expect(await call(name, args)).toMatchObject({
        code: 'DENIED',
        text: expect.stringContaining('only open for reading'),
      });
    }
    expect(readFileSync(at('lib/a.txt'), 'utf8')).toBe(FILES['lib/a.txt']);
  });

  it(
    'are judged by the rules at each call, and a search shows no line of a closed file' + verifies('ST-111'),
    async () => {
      await enable();
      for (const name of ['lib/.env', 'lib/private/key.txt'])
        expect(await read(at(name))).toMatchObject({ code: 'DENIED', text: expect.stringContaining('no-keys') });
      const found = (await call('read', { path: at('lib'), action: 'search', pattern: 'needle', hidden: true })).text;
      expect(found.split('\n').sort()).toEqual([
        `${at('lib/a.txt')}:1:needle in the library`,
        `${at('lib/built/x.txt')}:1:needle built`,
        `${at('lib/inner/b.txt')}:1:needle below`,
      ]);
      expect((await call('read', { path: at('lib/inner/b.txt'), action: 'search', pattern: 'needle' })).text).toBe(
        `${at('lib/inner/b.txt')}:1:needle below`,
      );
      // The .gitignore of the folder applies below it.
      expect((await call('read', { path: at('lib/inner'), action: 'list' })).text).toBe('b.txt');
      writeFileSync(at('lib/.gitignore'), 'inner/b.txt\n');
      expect((await call('read', { path: at('lib/inner'), action: 'list' })).text).toContain('no entries');
      // A second name does not hide a file from its rule.
      linkSync(at('lib/private/key.txt'), at('lib/harmless.txt'));
      expect((await read(at('lib/harmless.txt'))).code).toBe('DENIED');
      linkSync(at('lib/private/key.txt'), at('workspace/harmless.txt'));
      expect((await read('harmless.txt')).code).toBe('DENIED');
      expect((await call('read', { path: '.', action: 'search', pattern: 'needle' })).text).toBe(
        'own.txt:1:needle at home',
      );
    },
  );

  it('are closed to tools of other servers too, also through a parent folder', async () => {
    const raw = await startRaw(
      {
        desk: {
          tools: [tool('look', { inputSchema: OPEN })],
          settings: { semantics: { look: { verb: 'read', paths: ['path'] } } },
        },
      },
      { otherWorkspaces: { read: [at('lib')] } },
    );
    others.push(raw);
    const look = async (file: string): Promise<string> =>
      (await raw.call(raw.open('me'), 'desk_look', { path: file })).code;
    expect([await look(at('lib/a.txt')), await look(folder), await look(at('secret.txt'))]).toEqual([
      'DENIED',
      'DENIED',
      '',
    ]);
    expect(raw.calls('desk')).toHaveLength(1);
  });

  it('are in the audit: who opened them, each use, and who closed them' + verifies('ST-112'), async () => {
    await enable('--calls', '2');
    await read(at('lib/a.txt'));
    await read(at('lib/inner/b.txt'));
    expect((await read(at('lib/a.txt'))).code).toBe('BUDGET_EXCEEDED');
    expect((await read('own.txt')).code).toBe('');
    await disable();
    const records = facade.records();
    expect(records.filter(({ type }) => type === 'upgrade')).toMatchObject([
      { event: 'enabled', id: 'cross_workspace', by: 'admin', calls: 2 },
      { event: 'disabled', id: 'cross_workspace', by: 'admin' },
    ]);
    const intents = records.filter(({ type }) => type === 'intent').map((record) => JSON.stringify(record));
    expect(intents.map((text) => text.includes('upgrade:cross_workspace'))).toEqual([true, true, false]);
  });

  it('are closed at the next call, in every process' + verifies('ST-113'), async () => {
    const second = await startFacade(configuration(), { folder });
    others.push(second);
    await enable();
    const session = second.open('crosser');
    expect((await second.call(session, 'read', { path: at('lib/a.txt') })).code).toBe('');
    expect((await disable()).code).toBe(0);
    expect((await second.call(session, 'read', { path: at('lib/a.txt') })).code).toBe('DENIED');
    expect((await second.call(session, 'write', { path: at('site/late.html'), content: 'x' })).code).toBe('DENIED');
    expect(existsSync(at('site/late.html'))).toBe(false);
  });

  it('are not opened by an upgrade that would open nothing, or by anyone but an owner', async () => {
    expect(
      await cli({ folder, home: folder } as Project, ['upgrades', 'enable', 'cross_workspace', '--as', 'other']),
    ).toMatchObject({ code: 4 });
    writeFileSync(at('tollgate.yaml'), configuration().replace(/"otherWorkspaces":\{[^}]*\},/, ''));
    expect(await enable()).toMatchObject({
      code: 2,
      err: expect.stringContaining('There is no folder under otherWorkspaces'),
    });
  });
});

describe('other workspaces with the upgrade, under attack' + verifies('ST-114'), () => {
  const ATTACKS: readonly (readonly [
    what: string,
    prepare: () => void,
    name: string,
    args: () => Record<string, unknown>,
  ])[] = [
    [
      'a link in the folder that leads out',
      () => symlinkSync(at('secret.txt'), at('lib/link')),
      'read',
      () => ({ path: at('lib/link') }),
    ],
    [
      'a link to a folder that leads out',
      () => symlinkSync(folder, at('site/up')),
      'write',
      () => ({ path: at('site/up/made.txt'), content: 'x' }),
    ],
    [
      'a dangling link that leads out',
      () => symlinkSync(at('made.txt'), at('site/new')),
      'write',
      () => ({ path: at('site/new'), content: 'x' }),
    ],
    ['`..` out of the folder', () => undefined, 'read', () => ({ path: `${at('lib')}/../secret.txt` })],
    [
      '`..` behind a link',
      () => symlinkSync(at('lib/inner'), at('workspace/in')),
      'read',
      () => ({ path: 'in/../../secret.txt' }),
    ],
    ['a sibling whose name begins alike', () => undefined, 'read', () => ({ path: at('lib-private/s.txt') })],
    ['the folder around', () => undefined, 'read', () => ({ path: folder, action: 'search', pattern: 'needle' })],
    ['the state folder', () => undefined, 'read', () => ({ path: at('state'), action: 'list' })],
    ['the configuration', () => undefined, 'write', () => ({ path: at('tollgate.yaml'), content: 'x' })],
    [
      'a link in the folder to the state',
      () => symlinkSync(at('state'), at('lib/s')),
      'read',
      () => ({ path: at('lib/s'), action: 'list' }),
    ],
    [
      'the whole folder, replaced by a link',
      () => (renameSync(at('lib'), at('lib-old')), symlinkSync(at('lib-private'), at('lib'))),
      'read',
      () => ({ path: at('lib/s.txt') }),
    ],
    [
      'the folder itself, replaced by a file',
      () => rmSync(at('site'), { recursive: true }),
      'write',
      () => ({ path: at('site'), content: 'x' }),
    ],
    ['a command there', () => undefined, 'bash', () => ({ command: 'cat index.html', cwd: at('site') })],
    ['a path as a URI', () => undefined, 'read', () => ({ path: `file://${at('secret.txt')}` })],
  ];
  it.each(partOf(ATTACKS, 4))('refuse %s', async (_what, prepare, name, args) => {
    await enable();
    prepare();
    const answer = await call(name, args());
    expect(['DENIED', 'ARGS_INVALID', 'TOOL_FAILED']).toContain(
      answer.code === '' && answer.result?.isError === true ? 'TOOL_FAILED' : answer.code,
    );
    expect(answer.text).not.toMatch(/needle|audit|<p>/);
    expect([existsSync(at('made.txt')), existsSync(at('site/made.txt'))]).toEqual([false, false]);
    expect(readFileSync(at('tollgate.yaml'), 'utf8')).toBe(configuration());
  });

  it('show and change nothing if the upgrade ends during a call' + verifies('ST-113'), async () => {
    const workspace = createWorkspace({ root: at('workspace') });
    const held = new CallPathHandles([at('workspace')]);
    const closed = (): TollgateError => new TollgateError('DENIED', { detail: 'Closed.' });
    const attempt = async (tool: string, value: Record<string, unknown>, asked: number): Promise<unknown> => {
      let left = asked;
      const beyond = async (): Promise<readonly string[]> => {
        left -= 1;
        if (left < 0) throw closed();
        return [at('lib'), at('site')];
      };
      return workspace.call({
        tool,
        args: { text: JSON.stringify(value), value, exact: true },
        scope: 's',
        signal: new AbortController().signal,
        timeoutMs: 5000,
        hardTimeoutMs: 5000,
        pathHandles: held,
        outsideFolders: beyond,
      });
    };
    const CALLS = [
      ['read', { path: at('lib/a.txt') }],
      ['read', { path: at('lib'), action: 'search', pattern: 'needle' }],
      ['read', { path: at('lib'), action: 'list' }],
      ['write', { path: at('site/new.html'), content: 'x' }],
      ['edit', { path: at('site/index.html'), old_string: 'old', new_string: 'new' }],
    ] as const;
    for (const [tool, args] of CALLS) {
      let asked = 0;
      for (; asked < 10; asked += 1) {
        const done = await attempt(tool, args, asked).catch((thrown: unknown) => thrown);
        if (!(done instanceof TollgateError)) break;
        expect([tool, asked, done.code]).toEqual([tool, asked, 'DENIED']);
        expect([existsSync(at('site/new.html')), readFileSync(at('site/index.html'), 'utf8')]).toEqual([
          false,
          FILES['site/index.html'],
        ]);
      }
      // Checked when the call begins and before it answers; for a change, when its turn comes and right before it is
      // stored.
      const least = tool === 'read' ? 2 : 4;
      expect([tool, asked >= least && asked < 10]).toEqual([tool, true]);
      rmSync(at('site/new.html'), { force: true });
      writeFileSync(at('site/index.html'), FILES['site/index.html']);
    }
    held.close();
    await workspace.stop();
  });
});

describe('the configuration of other workspaces' + verifies('ST-115'), () => {
  const REFUSED: readonly (readonly [what: string, settings: () => object, message: string])[] = [
    ['the workspace', () => ({ read: ['workspace'] }), 'without the capability'],
    ['a folder around the workspace', () => ({ read: ['around'] }), 'without the capability'],
    ['a folder in the workspace', () => ({ read: ['workspace/sub'] }), 'without the capability'],
    ['a link that lies in the workspace', () => ({ read: ['workspace/out'] }), 'without the capability'],
    ['the state folder', () => ({ read: ['state'] }), "Tollgate's own state"],
    ['a folder of the audit', () => ({ write: ['log/inner'] }), "Tollgate's own state"],
    ['the home folder', () => ({ read: ['~'] }), 'home folder'],
    ['keys of the user', () => ({ read: ['~/.ssh'] }), 'keys or tokens'],
    ['the whole disk', () => ({ read: ['/'] }), 'whole disk'],
    ['settings of the system, to write', () => ({ write: ['/usr/lib'] }), 'must not be written'],
    ['a folder of policies', () => ({ read: ['rules'] }), 'files of this configuration'],
    ['the folder of server files', () => ({ write: ['servers'] }), 'files of this configuration'],
    ['a folder that is not there', () => ({ read: ['nowhere'] }), 'there is no such folder'],
    ['a file', () => ({ read: ['secret.txt'] }), 'there is no such folder'],
    ['one folder twice', () => ({ read: ['lib'], write: ['lib/inner'] }), 'another entry names it'],
    ['what a sandbox may write', () => ({ read: ['given'] }), 'without the capability'],
    ['what a sandbox may read', () => ({ read: ['shown/deep'] }), 'without the capability'],
    ['a folder in which a server starts', () => ({ read: ['begun'] }), 'without the capability'],
    ['a folder of a helper program, to write', () => ({ write: ['tools'] }), 'the program "rg"'],
    [
      'a folder of a program that gives a secret, to write',
      () => ({ write: ['secrets'] }),
      'the program that gives secret "token"',
    ],
    [
      "Tollgate's own program, to write",
      () => ({ write: [path.resolve(import.meta.dirname, '..', '..')] }),
      'the program of Tollgate',
    ],
  ];
  it.each(partOf(REFUSED, 6))('refuses %s', (what, settings, message) => {
    for (const name of [
      'workspace/sub',
      'around/workspace',
      'state',
      'log/inner',
      'home/.ssh',
      'rules',
      'servers',
      'given',
      'shown/deep',
      'begun',
      'tools',
      'secrets',
    ])
      mkdirSync(at(name), { recursive: true });
    symlinkSync(at('lib'), at('workspace/out'));
    for (const name of ['tools/rg', 'secrets/print']) writeFileSync(at(name), '#!/bin/sh\n', { mode: 0o755 });
    writeFileSync(at('rules/rules.yaml'), 'rules: []\n');
    const config = {
      workspace: what === 'a folder around the workspace' ? 'around/workspace' : 'workspace',
      state: 'state',
      audit: { folder: 'log' },
      otherWorkspaces: settings(),
      policies: ['rules/rules.yaml'],
      bash: { filesystem: { allowWrite: ['.', at('given')], allowRead: [at('shown')] } },
      servers: { begun: { command: 'begun', cwd: 'begun' } },
      programs: { rg: at('tools/rg') },
      secrets: { token: { exec: [at('secrets/print')] } },
    };
    writeFileSync(at('tried.yaml'), JSON.stringify(config));
    const problems = (): string => {
      try {
        loadConfig(at('tried.yaml'), { env: {}, home: at('home') });
        return '';
      } catch (thrown) {
        return JSON.stringify((thrown as TollgateError).data);
      }
    };
    expect(JSON.parse(problems())).toMatchObject({ problems: [{ message: expect.stringContaining(message) }] });
  });
});
