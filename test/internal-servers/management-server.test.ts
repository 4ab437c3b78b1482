/**
 * Tests the management tools (HA-20) through the complete facade: what a model may learn of its servers, and that it
 * can only disable.
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { dropRequests, listRequests, noteRequest } from '../../facade/internal-servers/enable-requests.ts';
import type { Session } from '../../facade/serve/facade-port.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import { type Answer, cli, dataOf } from '../cli/terminal.ts';
import type { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

const STORY = path.join(import.meta.dirname, '..', 'fixtures', 'story-server.mjs');
const SECRETS = /story-server|\/node|sentinel|HOME|TOKEN|sha256:/;
let folder: string;
const facades: TestFacade[] = [];
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'tollgate-manage-'));
});
afterEach(async () => {
  await Promise.all(facades.splice(0).map((one) => one.close()));
  rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
});

const ALL = '[{id: all, outcome: allow, when: {verbs: [read, write, destructive, execute]}}]';

async function start({ rules = ALL, approved = ['stories'], names = '"tollgate.*"' } = {}): Promise<TestFacade> {
  const server = (more = ''): string =>
    `{command: ${JSON.stringify(process.execPath)}, args: ${JSON.stringify([STORY])}, ` +
    `env: {TOKEN: sentinel-value}, isolation: direct${more}}`;
  const yaml = `version: 1
workspace: ./workspace
state: ./state
servers:
  stories: ${server(', semantics: {"*_one": read}')}
  waiting: ${server()}
  gone: {command: /nowhere/at/all/sentinel, isolation: direct}
  foreign: ${server()}
principals:
  - {id: alice, stdio: true, profiles: [work]}
  - {id: bob, stdio: true, profiles: [work]}
  - {id: boss, stdio: true, owner: true}
profiles:
  work:
    servers: [stories, waiting, tollgate]
    expose: {primitives: {read: workspace}, tools: ["stories.*", "waiting.*", ${names}]}
  others: {servers: [foreign, gone], expose: {primitives: {}}}
rules: ${rules}
`;
  const facade = await startFacade(yaml, { folder, approved });
  facades.push(facade);
  return facade;
}

const names = async (facade: TestFacade, session: Session): Promise<readonly string[]> =>
  (await facade.list(session)).map(({ name }) => name);
const ask = async (facade: TestFacade, session: Session, name: string, args: unknown = {}): Promise<string> =>
  (await facade.call(session, `tollgate_${name}`, args)).text;

describe('the management tools that show servers' + verifies('HA-20'), () => {
  inFull("list the servers of the caller's own profiles with state, consent, and tools that it can see", async () => {
    const facade = await start();
    const session = facade.open('alice');
    const count = (await names(facade, session)).filter((name) => name.startsWith('stories_')).length;
    const lines = (await ask(facade, session, 'list_mcp_servers')).split('\n');
    expect(lines).toEqual([
      `stories: healthy, consent any tools, tools that you can see: ${count}`,
      'waiting: not approved, consent unapproved, tools that you can see: 0',
      'tollgate: healthy, consent not needed, tools that you can see: 5',
      'workspace: idle, consent not needed, tools that you can see: 1',
    ]);
  });

  it('count what waits for the owner, and name no item of another principal' + verifies('AD-50'), async () => {
    const facade = await start();
    await facade.call(facade.open('bob'), 'tollgate_manage_mcp', { action: 'enable', server: 'waiting' });
    const text = await ask(facade, facade.open('alice'), 'attention_summary');
    expect(text.split('\n')).toEqual(expect.arrayContaining(['server-requested: 1', 'server-unapproved: 3']));
    expect(text).not.toMatch(/bob|waiting/);
  });

  inFull('show tools that the caller sees anyway, and never how a server is run', async () => {
    const facade = await start({
      rules: `[
        {id: all, outcome: allow, when: {verbs: [read, write, destructive, execute]}},
        {id: no-echo, outcome: deny, message: No., when: {tools: [stories.echo]}}]`,
    });
    const session = facade.open('alice');
    const shown = (await names(facade, session)).filter((name) => name.startsWith('stories_'));
    const info = await ask(facade, session, 'mcp_server_info', { server: 'stories' });
    expect([...info.matchAll(/^- ([^:]+):/gm)].map(([, name]) => name)).toEqual(shown);
    expect(info).not.toContain('echo:');
    for (const name of ['stories', 'waiting', 'tollgate', 'workspace'])
      expect(await ask(facade, session, 'mcp_server_info', { server: name })).not.toMatch(SECRETS);
    expect(await ask(facade, session, 'list_mcp_servers')).not.toMatch(SECRETS);
  });

  inFull("show only the name of a server without approval, and the reason in Tollgate's words", async () => {
    const facade = await start();
    const session = facade.open('alice');
    await facade.list(session);
    const info = await ask(facade, session, 'mcp_server_info', { server: 'waiting' });
    expect(info).toMatch(/^waiting: not approved, consent unapproved\nIts tools are missing: /);
    expect(info.split('\n')).toHaveLength(2);
  });

  it('answer for a server of others as for an unknown one', async () => {
    const facade = await start();
    const session = facade.open('alice');
    const answers = await Promise.all(
      ['foreign', 'gone', 'never-was'].map((name) =>
        facade.call(session, 'tollgate_mcp_server_info', { server: name }),
      ),
    );
    expect(new Set(answers.map(({ code, text }) => `${code} ${text}`)).size).toBe(1);
    expect(answers[0]?.code).toBe('ARGS_INVALID');
    const managed = await Promise.all(
      ['foreign', 'never-was'].flatMap((server) =>
        ['enable', 'disable'].map((action) => facade.call(session, 'tollgate_manage_mcp', { action, server })),
      ),
    );
    expect(new Set(managed.map(({ text }) => text)).size).toBe(1);
    for (const args of [
      { server: '../x' },
      { server: 'Stories' },
      {},
      { server: 'stories', env: true },
      { name: 'stories' },
    ])
      expect((await facade.call(session, 'tollgate_mcp_server_info', args)).code).toBe('ARGS_INVALID');
  });
});

describe('the management tools that change servers' + verifies('HA-20'), () => {
  inFull('disable a server for this session only, and enable it again', async () => {
    const facade = await start();
    const [session, other, bob] = [facade.open('alice'), facade.open('alice'), facade.open('bob')];
    const before = await names(facade, session);
    expect(await ask(facade, session, 'manage_mcp', { action: 'disable', server: 'stories' })).toContain(
      'disabled for this session',
    );
    expect((await names(facade, session)).filter((name) => name.startsWith('stories_'))).toEqual([]);
    const [tool = ''] = before.filter((name) => name.startsWith('stories_'));
    expect((await facade.call(session, tool, {})).code).toBe('UNKNOWN_TOOL');
    expect(await ask(facade, session, 'list_mcp_servers')).toContain('stories: disabled for this session');
    for (const one of [other, bob, facade.open('alice')]) expect(await names(facade, one)).toEqual(before);
    expect(await ask(facade, session, 'manage_mcp', { action: 'enable', server: 'stories' })).toContain(
      'is enabled: its tools',
    );
    expect(await names(facade, session)).toEqual(before);
    expect((await facade.call(session, 'tollgate_manage_mcp', { action: 'disable', server: 'tollgate' })).code).toBe(
      'ARGS_INVALID',
    );
    expect(await ask(facade, session, 'manage_mcp', { action: 'disable', server: 'workspace' })).toContain(
      'disabled for this session',
    );
    expect(await names(facade, session)).not.toContain('read');
  });

  it('never enable a server for others: they store a request once, for a person, and change nothing', async () => {
    const facade = await start();
    const session = facade.open('alice');
    const before = await names(facade, session);
    for (let time = 0; time < 3; time += 1)
      expect(await ask(facade, session, 'manage_mcp', { action: 'enable', server: 'waiting' })).toContain(
        '`tollgate approve waiting`',
      );
    expect(await ask(facade, session, 'manage_mcp', { action: 'enable', server: 'stories' })).toContain(
      'enabled already',
    );
    expect(await names(facade, session)).toEqual(before);
    const state = openState(path.join(folder, 'state'));
    expect(await listRequests(state)).toMatchObject([{ server: 'waiting', principal: 'alice' }]);
    await noteRequest(state, { server: 'gone', principal: 'bob', since: 1 });
    await dropRequests(state, 'gone');
    expect(await listRequests(state)).toHaveLength(1);
    await state.close();
    expect(facade.records().filter(({ event }) => event === 'server-requested')).toMatchObject([
      { type: 'approval', outcome: 'ask', server: 'waiting', principal: { id: 'alice' } },
    ]);
  });

  inFull('show the request to the owner until the owner has decided', async () => {
    const facade = await start();
    await ask(facade, facade.open('alice'), 'manage_mcp', { action: 'enable', server: 'waiting' });
    const tollgate = (...words: readonly string[]): Promise<Answer> => cli({ folder, home: folder } as Project, words);
    expect((await tollgate('servers')).err).toContain(
      'An agent of alice asks for waiting. See `tollgate servers info waiting`',
    );
    expect(dataOf((await tollgate('servers', '--json')).out)).toMatchObject({
      requests: [{ server: 'waiting', principal: 'alice' }],
    });
    expect((await tollgate('servers', 'disable', 'waiting', '--as', 'boss')).code).toBe(0);
    expect(dataOf((await tollgate('servers', '--json')).out)).toMatchObject({ requests: [] });
    expect(await ask(facade, facade.open('alice'), 'manage_mcp', { action: 'enable', server: 'waiting' })).toContain(
      '`tollgate servers enable waiting`',
    );
    expect(await ask(facade, facade.open('alice'), 'list_mcp_servers')).toContain(
      'waiting: disabled, consent unapproved',
    );
  });

  inFull('are subject to rules under every name: showing reads, changing is destructive', async () => {
    const facade = await start({
      rules: '[{id: reading, outcome: allow, when: {verbs: [read]}}]',
      names:
        '"tollgate.*", {tool: tollgate.manage_mcp, name: servers_off}, ' +
        '{tool: tollgate.list_mcp_servers, name: my_servers}',
    });
    const session = facade.open('alice');
    expect((await names(facade, session)).filter((name) => /mcp|servers/.test(name)).sort()).toEqual([
      'my_servers',
      'tollgate_mcp_server_info',
    ]);
    expect((await facade.call(session, 'my_servers', {})).code).toBe('');
    for (const name of ['servers_off', 'tollgate_manage_mcp'])
      expect((await facade.call(session, name, { action: 'disable', server: 'stories' })).code).toBe('UNKNOWN_TOOL');
  });

  it('obey budgets, and leave records without the answers', async () => {
    const facade = await start({ rules: ALL });
    const session = facade.open('alice');
    await ask(facade, session, 'list_mcp_servers');
    await ask(facade, session, 'manage_mcp', { action: 'disable', server: 'stories' });
    const outcomes = facade.records().filter(({ type, server }) => type === 'outcome' && server === 'tollgate');
    expect(outcomes).toMatchObject([
      { tool: 'list_mcp_servers', verb: 'read', hits: 4, executed: 'yes' },
      { tool: 'manage_mcp', verb: 'destructive', executed: 'yes' },
    ]);
    expect(JSON.stringify(outcomes)).not.toContain('stories');
  });
});
