/** Tests lists with search: what they show, what promotion adds, and which changed definitions are refused. */
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { joinText } from '../../adapters/rpc/wire-message.ts';
import { openSession } from '../../facade/call/identify.ts';
import type { ExposedTool } from '../../facade/exposure/exposed-tool.ts';
import { noteFound } from '../../facade/exposure/list-tools.ts';
import { EMPTY_TABLE } from '../../facade/exposure/name-table.ts';
import type { Session } from '../../facade/serve/facade-port.ts';
import type { Principal } from '../../policies/port.ts';
import { ACT, allow, type RawFacade, startRaw, tool } from '../properties/raw-facade.ts';
import { verifies } from '../verifies.ts';

const NAMES = ['alpha', 'beta', 'gamma', 'delta'];
const ECHO = { raw: '{"content":[{"type":"text","text":"ran"}]}' };
const answers = Object.fromEntries(NAMES.map((name) => [name, ECHO]));
const FIXED = [
  'list_mcp_servers',
  'mcp_server_info',
  'manage_mcp',
  'propose_server',
  'attention_summary',
  'find_tools',
];
const expose = { primitives: { read: 'workspace' }, tools: ['one.*', 'tollgate.*'] };
const profile = (more: object): object => ({ servers: ['one', 'tollgate'], expose: { ...expose, ...more } });

async function start(more: object = {}): Promise<RawFacade> {
  return startRaw(
    { one: { tools: NAMES.map((name) => tool(name)), answers, settings: { semantics: { alpha: 'read' }, ...more } } },
    {
      rules: [allow('one', 'workspace', 'tollgate')],
      principals: ['plain', 'searched', 'promoted'].map((id) => ({ id, profiles: [id], stdio: true })),
      profiles: {
        plain: profile({}),
        searched: profile({ search: true }),
        promoted: profile({ search: true, promote: 2 }),
      },
    },
  );
}

const namesOf = async (facade: RawFacade, session: Session): Promise<readonly string[]> =>
  (await facade.list(session)).map(({ name }) => name);
const find = (facade: RawFacade, session: Session, query: string): Promise<unknown> =>
  facade.call(session, 'find_tools', { query });

describe('a list with search', () => {
  let facade: RawFacade;
  beforeAll(async () => {
    facade = await start();
  }, 60_000);
  afterAll(() => facade.close());

  it('shows primitives, search, management and the two wrappers, with their hints' + verifies('CM-01'), async () => {
    const shown = await facade.list(facade.open('searched'));
    expect(shown.map(({ name }) => name).sort()).toEqual(
      [
        'read',
        ...FIXED.map((name) => (name === 'find_tools' ? name : `tollgate_${name}`)),
        'call_read',
        'call_write',
      ].sort(),
    );
    const hints = new Map(shown.map(({ name, annotations }) => [name, annotations]));
    expect(hints.get('call_read')).toEqual({ readOnlyHint: true });
    expect(hints.get('call_write')).toMatchObject({ destructiveHint: true });
  });

  it('is the same as before without search, and knows no wrapper' + verifies('CM-01', 'CM-03'), async () => {
    const session = facade.open('plain');
    expect(await namesOf(facade, session)).toEqual(expect.arrayContaining(NAMES.map((name) => `one_${name}`)));
    const unknown = await facade.call(session, 'xall_read', { name: 'one_alpha' });
    for (const args of [{ name: 'one_alpha' }, { name: 'nothing' }, { name: 7 }]) {
      const answer = await facade.call(session, 'call_read', args);
      expect(answer).toEqual({
        ...unknown,
        error: { ...unknown.error, data: { ...(unknown.error?.data as object), decision: expect.any(String) } },
      });
    }
    expect(facade.calls('one')).toEqual([]);
  });

  it('hides from management nothing that is found' + verifies('CM-01'), async () => {
    const told = await facade.call(facade.open('searched'), 'tollgate_mcp_server_info', { server: 'one' });
    for (const name of NAMES) expect(told.text).toContain(`one_${name}`);
  });

  it('finds no tool of a server that the session has hidden' + verifies('CM-02'), async () => {
    const session = facade.open('searched');
    expect(JSON.stringify(await find(facade, session, 'alpha'))).toContain('one_alpha');
    await facade.call(session, 'tollgate_manage_mcp', { action: 'disable', server: 'one' });
    expect(JSON.stringify(await find(facade, session, 'alpha'))).not.toContain('one_alpha');
    expect((await facade.call(session, 'call_read', { name: 'one_alpha' })).code).toBe('UNKNOWN_TOOL');
  });

  it('sends the arguments of a wrapped call as they came' + verifies('CM-03'), async () => {
    const exact = '{ "n": 12345678901234567890.10, "b": [1e400 , "\\u00e9"] }';
    const text = `{"name": "one_alpha", "arguments": ${exact}}`;
    expect((await facade.call(facade.open('searched'), 'call_read', undefined, { text })).code).toBe('');
    expect(facade.calls('one').at(-1)).toMatchObject({ name: 'alpha', args: exact });
  });

  it('shows in promotion what was found or called last, in the order of the table' + verifies('CM-06'), async () => {
    const session = facade.open('promoted');
    const changed: unknown[] = [];
    facade.assembled.gateway.onToolsChanged((one) => changed.push(one));
    const fixed = await namesOf(facade, session);
    const added = async (): Promise<readonly string[]> =>
      (await namesOf(facade, session)).filter((name) => !fixed.includes(name));
    await find(facade, session, 'gamma');
    await vi.waitFor(() => expect(changed).toContain(session));
    expect(await added()).toEqual(['one_gamma']);
    await facade.call(session, 'call_read', { name: 'one_alpha' });
    expect(await added()).toEqual(['one_alpha', 'one_gamma']);
    const bytes = JSON.stringify(await facade.list(session));
    await facade.call(session, 'call_write', { name: 'one_gamma' });
    expect(JSON.stringify(await facade.list(session))).toBe(bytes);
    await find(facade, session, 'beta');
    expect(await added()).toEqual(['one_beta', 'one_gamma']);
    const shown = (await facade.list(session)).find(({ name }) => name === 'one_beta');
    expect(shown).toMatchObject({ description: 'The tool beta.', inputSchema: { type: 'object' } });
    const ids = await facade.assembled.gateway.listToolsWithIds(session, session.closed);
    expect(ids.kind === 'result' ? joinText(ids.text) : '').toContain('"ids":["one.beta"]');
  });

  it('promotes nothing by default' + verifies('CM-06'), async () => {
    const session = facade.open('searched');
    const before = await namesOf(facade, session);
    await find(facade, session, 'gamma');
    expect(await namesOf(facade, session)).toEqual(before);
  });
});

describe('a definition that changes after it was found', () => {
  let facade: RawFacade;
  afterEach(() => facade.close());

  it('is refused until it is found again, also after a list' + verifies('CM-05'), async () => {
    facade = await startRaw(
      { one: { tools: [tool('alpha'), ACT], answers: { alpha: ECHO } } },
      { profiles: { all: { servers: ['one'], expose: { primitives: {}, tools: ['one.*'], search: true } } } },
    );
    const session = facade.open('me');
    await find(facade, session, 'alpha');
    const call = (): Promise<{ code: string; text: string }> =>
      facade.call(session, 'call_write', { name: 'one_alpha' });
    expect((await call()).code).toBe('');
    facade.redefine('one', {
      tools: [tool('alpha', { description: 'Another tool.' }), ACT],
      answers: { alpha: ECHO },
    });
    await facade.call(session, 'call_write', { name: 'one_act', arguments: { ...ECHO, notify: true } });
    await vi.waitFor(async () => expect((await call()).code).toBe('PIN_MISMATCH'));
    await facade.list(session);
    expect((await call()).text).toContain('find_tools');
    await find(facade, session, 'alpha');
    expect((await call()).code).toBe('');
  });
});

describe('what a session keeps', () => {
  it('of found tools is bounded, and the oldest is forgotten first' + verifies('CM-05'), () => {
    const session = openSession({ id: 'me' } as Principal, 'stdio');
    const tools = Array.from({ length: 3_000 }, (_, at) => ({ name: `tool_${at}`, pin: 'p' }) as ExposedTool);
    noteFound(session, EMPTY_TABLE, tools);
    expect(session.found.size).toBe(1_000);
    expect([...session.found.keys()].at(-1)).toBe('tool_2999');
  });
});

describe('the names of the wrappers', () => {
  it('belong to no other tool, with and without search' + verifies('CM-04'), async () => {
    const profiles = Object.fromEntries(
      [false, true].map((search) => [
        `search-${search}`,
        {
          servers: ['call'],
          expose: { primitives: {}, tools: ['call.*', { tool: 'call.alpha', name: 'find_tools' }], search },
        },
      ]),
    );
    const facade = await startRaw(
      { call: { tools: [tool('read'), tool('write'), tool('alpha')], answers } },
      {
        principals: Object.keys(profiles).map((id) => ({ id, profiles: [id], stdio: true })),
        profiles,
      },
    );
    try {
      const plain = await namesOf(facade, facade.open('search-false'));
      expect(plain).not.toContain('call_read');
      expect(plain.filter((name) => name.startsWith('call_read_'))).toHaveLength(1);
      const session = facade.open('search-true');
      expect(await namesOf(facade, session)).toEqual(['find_tools', 'call_read', 'call_write']);
      expect((await facade.call(session, 'find_tools', { query: 'write' })).text).toContain('call_write_');
    } finally {
      await facade.close();
    }
  });
});
