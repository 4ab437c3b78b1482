/**
 * Tests the knowledge server through the complete facade: off by default, tied to the caller, limited, stopped, and
 * recorded without content.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { CODE, KNOWLEDGE, MANAGEMENT, PROMPTS, SHIPPED } from '../../catalogs/servers/shipped-servers.ts';
import { pinOf } from '../../catalogs/tools/definition-pin.ts';
import { KillSwitch } from '../../facade/consent/switch/kill-switch.ts';
import { createKnowledgeCollection } from '../../facade/internal-servers/knowledge-collection.ts';
import { openKnowledgeStore } from '../../facade/internal-servers/knowledge-store.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import { withProject } from '../config/project.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';
import { document, fact } from './sample-store.ts';

let folder: string;
const open: TestFacade[] = [];
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'tollgate-kb-'));
});
afterEach(async () => {
  await Promise.all(open.splice(0).map((facade) => facade.close()));
  rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
});

const EXPOSE =
  '{primitives: {}, tools: ["knowledge.*", knowledge.kb_search, {tool: knowledge.kb_search, name: kb_search}]}';

async function start(more = '', rules = '[{id: reading, outcome: allow, when: {verbs: [read]}}]'): Promise<TestFacade> {
  const facade = await startFacade(
    `version: 1
workspace: ./workspace
state: ./state
principals:
  - {id: alice, stdio: true, profiles: [kb], space: team}
  - {id: bob, stdio: true, profiles: [kb], space: team}
  - {id: carol, stdio: true, profiles: [kb]}
  - {id: plain, stdio: true}
profiles: {kb: {servers: [knowledge], expose: ${EXPOSE}}}
rules: ${rules}
${more}`,
    { folder },
  );
  open.push(facade);
  return facade;
}

function fill(): void {
  const store = openKnowledgeStore(path.join(folder, 'state'));
  const shelf = createKnowledgeCollection(store.database);
  shelf.keep(document('# Guide\n\nThe harbour opens at nine.', { name: 'guide.md', labels: ['internal'] }));
  shelf.keep(document('A private harbour note of bob.', { user: 'bob' }));
  shelf.keep(document('The harbour of elsewhere.', { space: 'elsewhere' }));
  shelf.keep(document('Alice likes the harbour.', { kind: 'memory', user: 'alice' }));
  shelf.keep(document('The harbour of another talk.', { kind: 'memory', user: 'alice', conversation: 'another' }));
  shelf.setFact(fact('harbour.depth', '12 m'));
  shelf.setFact(fact('harbour.depth', '9 m', { user: 'bob', labels: ['secret'] }));
  store.close();
}

describe('internal servers', () => {
  it('keep their published definitions: a change is a new pin, written here' + verifies('CY-02'), () => {
    expect(Object.fromEntries([...SHIPPED].map(([name, { tools }]) => [name, pinOf(tools)]))).toEqual({
      [CODE]: 'sha256:c1342285ef6051a7d3bff04465c971f144798c08ff30b91aa85857580569b6fa',
      [KNOWLEDGE]: 'sha256:9f212abf33bc59dc10eadf140f1a667e2aabfafbecfc1910b13b69f353f79b34',
      [MANAGEMENT]: 'sha256:87c0029139c1d97e3cbc0d9c9eb05e60e69acbaf250ecf380a8098bb8243255a',
      // The server of the owner's prompts has no tools.
      [PROMPTS]: 'sha256:8f501952b178fe6e673cc89b727dbc402a850cd21bbc87b53304a9a9ee770f17',
    });
    for (const { tools, semantics } of SHIPPED.values()) {
      expect([...semantics.keys()]).toEqual(tools.map(({ name }) => name));
      for (const { name, inputSchema } of tools) {
        expect(name).toMatch(/^[a-z]+(_[a-z]+)+$/);
        expect(inputSchema).toMatchObject({ additionalProperties: false });
      }
    }
  });

  it('are off in a profile that does not list them' + verifies('CY-10', 'HA-20'), async () => {
    const facade = await startFacade(
      `version: 1
workspace: ./workspace
state: ./state
principals: [{id: me, stdio: true}]
rules: [{id: all, outcome: allow, when: {verbs: [read]}}]
`,
      { folder },
    );
    open.push(facade);
    const session = facade.open('me');
    expect((await facade.list(session)).map(({ name }) => name)).toEqual(['read', 'bash']);
    expect([...facade.assembled.catalog.servers.keys()]).toEqual(['workspace']);
    for (const name of ['kb_search', 'knowledge_kb_search', 'manage_mcp', 'tollgate_manage_mcp'])
      expect((await facade.call(session, name, {})).code).toBe('UNKNOWN_TOOL');
  });

  it('have reserved names, which may only be used where servers with tools are named', () => {
    withProject((project) => {
      const messages = (yaml: string): string =>
        project
          .load(`version: 1\n${yaml}`)
          .problems.map(({ message }) => message)
          .join('\n');
      for (const name of SHIPPED.keys()) {
        expect(messages(`servers: {${name}: {command: x}}`)).toContain('the name is reserved for Tollgate;');
        expect(messages(`profiles: {p: {expose: {primitives: ${name}}}}`)).toContain(
          'has its own tools and no primitives',
        );
        expect(messages(`profiles: {p: {servers: [${name}], expose: {tools: ["${name}.*"]}}}`)).toBe('');
      }
      expect(messages('profiles: {p: {expose: {tools: [knowledge.*]}}}')).toContain('does not reach server');
      expect(messages('knowledge: {requests: 0, more: 1}')).toMatch(/requests[^]*more|more[^]*requests/);
    });
  });

  it('are subject to rules, and a rule for a tool that they do not have is refused', async () => {
    fill();
    const facade = await start(
      '',
      `[
  {id: reading, outcome: allow, when: {servers: [knowledge]}},
  {id: no-facts, outcome: deny, message: No facts., when: {tools: [knowledge.facts_get]}},
  {id: own, outcome: deny, message: Not that.,
    when: {trust: [internal], tools: [knowledge.kb_search], args: {query: {pattern: harbour}}}}]`,
    );
    const session = facade.open('alice');
    expect((await facade.list(session)).map(({ name }) => name).sort()).toEqual([
      'kb_search',
      'knowledge_kb_search',
      'knowledge_memory_search',
    ]);
    expect((await facade.call(session, 'kb_search', { query: 'harbour' })).code).toBe('DENIED');
    await expect(
      startFacade(
        'version: 1\nworkspace: ./workspace\nrules: [{id: a, outcome: allow, when: {tools: [knowledge.kb_serch]}}]\n',
        {},
      ),
    ).rejects.toThrow(/kb_serch/);
  });
});

describe('the knowledge server' + verifies('CY-10'), () => {
  it.each(['kb_search', 'knowledge_kb_search'])(
    'answers %s for its caller only, with titles, sources and labels',
    async (name) => {
      fill();
      const facade = await start('', `[{id: reading, outcome: allow, when: {verbs: [read]}}]`);
      const of = async (principal: string): Promise<string> =>
        (await facade.call(facade.open(principal), name, { query: 'harbour' })).text;
      expect(await of('alice')).toBe(
        'Guide (source 1, part 1, labels: internal)\n# Guide\n\nThe harbour opens at nine.',
      );
      expect(await of('bob')).toContain('A private harbour note of bob.');
      expect(await of('bob')).not.toContain('elsewhere');
      expect(await of('carol')).toBe('Nothing was found.');
    },
  );

  it('ignores every statement of a model or client about whose data to read', async () => {
    fill();
    const facade = await start();
    const session = facade.open('alice');
    for (const name of [
      'user',
      'user_id',
      'space',
      'space_id',
      'conversation',
      'conversation_id',
      'turn',
      'scope',
      '__proto__',
    ]) {
      const answer = await facade.call(session, 'kb_search', undefined, {
        text: `{"query": "harbour", ${JSON.stringify(name)}: "bob"}`,
      });
      expect([name, answer.code]).toEqual([name, 'ARGS_INVALID']);
    }
    const meta = {
      'tollgate/user': 'bob',
      'tollgate/space': 'elsewhere',
      user: 'bob',
      identity: { scope: { user: 'bob' } },
    };
    expect((await facade.call(session, 'kb_search', { query: 'harbour' }, { meta })).text).not.toMatch(/bob|elsewhere/);
    expect((await facade.call(session, 'kb_search', { query: 'harbour', limit: '3' })).code).not.toBe('INTERNAL');
    for (const args of [
      {},
      { query: '' },
      { query: 'x'.repeat(1001) },
      { query: 'x', limit: 0 },
      { query: 'x', limit: 21 },
      { query: ['x'] },
    ])
      expect((await facade.call(session, 'kb_search', args)).code).toBe('ARGS_INVALID');
    for (const args of [{}, { keys: [] }, { keys: ['a'], subject: 'a' }, { keys: 'a'.repeat(300) }])
      expect((await facade.call(session, 'knowledge_facts_get', args)).code).toBe('ARGS_INVALID');
  });

  it('ties memories to the conversation of the run, and facts to user and space', async () => {
    fill();
    const facade = await start();
    const session = facade.open('alice');
    const memory = (await facade.call(session, 'knowledge_memory_search', { query: 'harbour' })).text;
    expect(memory).toContain('Alice likes the harbour.');
    expect(memory).not.toContain('another talk');
    const run = await facade.assembled.deps.runs.open({
      principal: 'alice',
      origin: session.principal.origin,
      conversation: 'another',
    });
    expect(
      (
        await facade.call(
          session,
          'knowledge_memory_search',
          { query: 'harbour' },
          { meta: { 'tollgate/run': run.name } },
        )
      ).text,
    ).toContain('The harbour of another talk.');
    expect((await facade.call(session, 'knowledge_facts_get', { keys: ['harbour.depth', 'none'] })).text).toBe(
      'harbour.depth = 12 m\n(of the space, from owner, 1970-01-01T00:00:00.000Z)',
    );
    expect((await facade.call(facade.open('bob'), 'knowledge_facts_get', { subject: 'harbour' })).text).toMatch(
      /^harbour\.depth = 9 m\n\(of this user.*labels: secret\)\n\nharbour\.depth = 12 m/,
    );
  });

  it('adds the labels of what it found to the result and to the run', async () => {
    fill();
    const facade = await start(
      '',
      `[
  {id: reading, outcome: allow, when: {verbs: [read]}},
  {id: none-after, outcome: deny, message: The run has seen internal text.,
    when: {tools: [knowledge.facts_get], labels: [internal]}}]`,
    );
    const [session, other] = [facade.open('alice'), facade.open('alice')];
    expect((await facade.call(session, 'knowledge_facts_get', { subject: 'harbour' })).code).toBe('');
    const { result } = await facade.call(session, 'kb_search', { query: 'harbour' });
    expect(result?._meta?.['tollgate/labels']).toEqual(['internal']);
    expect((await facade.call(session, 'knowledge_facts_get', { subject: 'harbour' })).code).toBe('DENIED');
    expect(
      (await facade.call(other, 'kb_search', { query: 'nothing-of-this' })).result?._meta?.['tollgate/labels'],
    ).toBeUndefined();
    expect((await facade.call(other, 'knowledge_facts_get', { subject: 'harbour' })).code).toBe('');
  });

  it('has limits for each turn, and names the one that is used up' + verifies('TR-61'), async () => {
    fill();
    const facade = await start('knowledge: {requests: 3, bytes: 1024, candidates: 2}');
    const session = facade.open('alice');
    const ask = (query: string, from = session): ReturnType<TestFacade['call']> =>
      facade.call(from, 'kb_search', { query });
    for (let time = 0; time < 3; time += 1) expect((await ask('nothing-of-this')).code).toBe('');
    const refused = await ask('harbour');
    expect(refused.code).toBe('BUDGET_EXCEEDED');
    expect(refused.text).toContain('its 3 requests to the knowledge server (knowledge.requests)');
    // Another turn, and another user, have their own limits.
    const next = await facade.assembled.deps.runs.open({
      principal: 'alice',
      origin: session.principal.origin,
      owned: true,
    });
    expect(
      (await facade.call(session, 'kb_search', { query: 'harbour' }, { meta: { 'tollgate/run': next.name } })).code,
    ).toBe('');
    const bob = facade.open('bob');
    expect((await ask('harbour', bob)).text).toContain('private harbour note');
    expect((await ask('harbour', bob)).text).toContain(
      'its 2 results from the knowledge server (knowledge.candidates)',
    );
    // A run that the client names does not start a new turn.
    expect(
      (await facade.call(session, 'kb_search', { query: 'harbour' }, { meta: { 'tollgate/run': 'next' } })).code,
    ).toBe('BUDGET_EXCEEDED');
    expect(
      facade
        .records()
        .filter(({ code }) => code === 'BUDGET_EXCEEDED')
        .slice(0, 2),
    ).toMatchObject([
      { type: 'outcome', executed: 'no', whose: { user: 'alice', space: 'team' } },
      { executed: 'no', whose: { user: 'bob' } },
    ]);
  });

  it('answers with the items that the bytes of the turn allow, and with none if there are no bytes', async () => {
    const store = openKnowledgeStore(path.join(folder, 'state'));
    const shelf = createKnowledgeCollection(store.database);
    for (let at = 0; at < 4; at += 1) shelf.keep(document(`harbour ${String(at).repeat(500)}`, { name: `n${at}` }));
    store.close();
    const facade = await start('knowledge: {bytes: 1300}');
    const session = facade.open('alice');
    const first = await facade.call(session, 'kb_search', { query: 'harbour' });
    expect(first.text.match(/^harbour/gm)).toHaveLength(2);
    expect(first.text).toContain('[2 more do not fit into the limit of this turn]');
    expect((await facade.call(session, 'kb_search', { query: 'harbour' })).text).toContain('(knowledge.bytes)');
  });

  it('is recorded with counts and scope, without questions and answers', async () => {
    fill();
    const facade = await start();
    const session = facade.open('alice');
    await facade.call(session, 'kb_search', { query: 'harbour opens' });
    await facade.call(session, 'knowledge_facts_get', { keys: ['harbour.depth'] });
    const outcomes = facade.records().filter(({ type }) => type === 'outcome');
    expect(outcomes).toMatchObject([
      {
        server: 'knowledge',
        tool: 'kb_search',
        verb: 'read',
        executed: 'yes',
        hits: 1,
        whose: { user: 'alice', space: 'team', conversation: session.id, turn: session.id },
      },
      { tool: 'facts_get', hits: 1 },
    ]);
    for (const { ms, upstreamMs, sizes } of outcomes as readonly {
      ms?: unknown;
      upstreamMs?: unknown;
      sizes?: { raw?: unknown };
    }[])
      expect([typeof ms, typeof upstreamMs, typeof sizes?.raw]).toEqual(['number', 'number', 'number']);
    expect(JSON.stringify(facade.records())).not.toMatch(/harbour|nine|12 m|depth/);
  });

  it('obeys the kill switch, and redacts secrets of the configuration in its answers', async () => {
    const store = openKnowledgeStore(path.join(folder, 'state'));
    createKnowledgeCollection(store.database).keep(document('The password is value-of-the-token, they say.'));
    store.close();
    const facade = await start();
    facade.assembled.deps.redactor.register('value-of-the-token');
    const session = facade.open('alice');
    expect((await facade.call(session, 'kb_search', { query: 'password' })).text).not.toContain('value-of-the-token');
    const state = openState(path.join(folder, 'state'));
    const killSwitch = new KillSwitch(state);
    await killSwitch.throw({ server: 'knowledge', since: '', by: 'me' });
    expect(await facade.call(session, 'kb_search', { query: 'password' })).toMatchObject({
      code: 'SERVER_UNAVAILABLE',
      text: expect.stringContaining('kill switch') as string,
    });
    await killSwitch.lift('knowledge');
    expect((await facade.call(session, 'kb_search', { query: 'password' })).code).toBe('');
    await state.close();
  });
});
