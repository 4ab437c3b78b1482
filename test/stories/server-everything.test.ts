/**
 * Tests the whole facade with the real server-everything: its list, its names, who sees it, and its changes.
 * Covers: facade/call.
 */

import path from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { inFull } from '../harness/full-tests.ts';
import { verifies } from '../verifies.ts';
import { startFacade, type TestFacade } from './facade.ts';

const everything = path.join(
  import.meta.dirname,
  '..',
  'servers',
  'node_modules',
  '@modelcontextprotocol',
  'server-everything',
  'dist',
  'index.js',
);
const story = path.join(import.meta.dirname, '..', 'fixtures', 'story-server.mjs');
let facade: TestFacade | undefined;

afterEach(async () => {
  await facade?.close();
  facade = undefined;
});

function config(parts: { principals: string; profiles: string; rules: string; tools?: string; more?: string }): string {
  return `version: 1
workspace: ./workspace
state: ./state
servers:
  everything:
    command: ${process.execPath}
    args: [${everything}, stdio]
    isolation: direct
    connectTimeoutMs: 20000
    semantics: { "get-*": read, echo: read }
    ${parts.tools ?? ''}
  story:
    command: ${process.execPath}
    args: [${story}]
    isolation: direct
    connectTimeoutMs: 20000
    semantics: { echo: read }
principals: ${parts.principals}
profiles: ${parts.profiles}
rules: ${parts.rules}
${parts.more ?? ''}
`;
}

const ALLOW = '[{ id: all, outcome: allow, when: { servers: [everything, story] } }]';
const names = (tools: readonly { name: string }[]): string[] => tools.map((tool) => tool.name).sort();

/** One facade for the tests that change nothing, with a principal for each. */
let shared: TestFacade;
beforeAll(async () => {
  shared = await startFacade(
    config({
      principals: `
  - { id: all, profiles: [all], stdio: true }
  - { id: named, profiles: [named], stdio: true }
  - { id: other, profiles: [other], stdio: true }
  - { id: equal, profiles: [equal], stdio: true }
  - { id: pinned, profiles: [pinned], stdio: true }
  - { id: limited, profiles: [bare, harbor], stdio: true }`,
      profiles: `
  all: { servers: [everything], expose: { tools: ["everything.*"] } }
  bare: { servers: [everything], expose: { primitives: {}, tools: ["everything.*"] } }
  named:
    servers: [everything]
    expose:
      primitives: {}
      tools: [{ tool: everything.echo, name: say, risk: [network, writes], description: Says it. }]
  other: { servers: [story], expose: { primitives: {}, tools: [{ tool: story.echo, name: say }] } }
  equal:
    servers: [everything, story]
    expose:
      primitives: {}
      tools:
        - { tool: everything.echo, name: say-it }
        - { tool: story.echo, name: say_it }
        - { tool: everything.get-sum, name: get-sum }
  pinned:
    servers: [everything]
    expose: { primitives: {}, tools: [{ tool: everything.get-sum, name: add-ten, pins: { b: 10 } }] }`,
      rules: ALLOW,
    }),
  );
});
afterAll(() => shared.close());

describe('a real server behind the facade' + verifies('HA-27'), () => {
  it('lists, calls and says where a result came from', async () => {
    const session = shared.open('all');
    const tools = await shared.list(session);
    expect(names(tools)).toEqual(
      expect.arrayContaining(
        ['everything_echo', 'everything_get-sum', 'read', 'bash'].filter((name) => name.startsWith('everything')),
      ),
    );
    const answer = await shared.call(session, 'everything_get-sum', { a: 2, b: 40 });
    expect(answer.text).toContain('42');
    expect(answer.result?._meta?.['tollgate/provenance']).toMatchObject({ server: 'everything', tool: 'get-sum' });
  });

  it('passes progress to a client that asked for it', async () => {
    const { gateway } = shared.assembled;
    const seen: unknown[] = [];
    const args = { duration: 1, steps: 3 };
    const reply = await gateway.perform(shared.open('all'), {
      name: 'everything_trigger-long-running-operation',
      args: { text: JSON.stringify(args), value: args, exact: true },
      signal: new AbortController().signal,
      onProgress: (params) => seen.push(params.progress),
    });
    expect(reply.kind).toBe('result');
    expect(seen).toEqual([1, 2, 3]);
  });

  inFull('follows allowTools and denyTools' + verifies('HA-03'), async () => {
    const shown = async (tools: string): Promise<string[]> => {
      facade = await startFacade(
        config({
          principals: '[{ id: a, profiles: [p], stdio: true }]',
          profiles: '{ p: { servers: [everything], expose: { primitives: {}, tools: ["everything.*"] } } }',
          rules: ALLOW,
          tools,
        }),
      );
      const listed = names(await facade.list(facade.open('a')));
      const denied = await facade.call(facade.open('a'), 'everything_get-tiny-image', {});
      expect(denied.code).toBe('UNKNOWN_TOOL');
      await facade.close();
      facade = undefined;
      return listed;
    };
    expect(await shown('tools: { allow: [echo, get-sum] }')).toEqual(['everything_echo', 'everything_get-sum']);
    expect(
      await shown('tools: { allow: ["get-*"], deny: [get-env, "get-*image", get-annotated-message] }'),
    ).not.toContain('everything_get-env');
    expect(await shown('tools: { deny: ["get-*"] }')).toContain('everything_echo');
  });

  inFull(
    'shows each role and profile its own tools, and calls follow the list' + verifies('CY-11', 'CY-16'),
    async () => {
      facade = await startFacade(
        config({
          principals: `
  - { id: boss, role: owner, profiles: [p], stdio: true }
  - { id: hand, role: user, profiles: [p], stdio: true }
  - { id: guest, role: user, stdio: true }`,
          profiles: '{ p: { servers: [everything], expose: { primitives: {}, tools: ["everything.*"] } } }',
          rules: `
  - { id: all, outcome: allow, when: { servers: [everything] } }
  - id: owner-only
    outcome: deny
    message: Only the owner.
    when: { tools: [everything.get-env], roles: [user] }`,
        }),
      );
      const [boss, hand, guest] = [facade.open('boss'), facade.open('hand'), facade.open('guest')];
      expect(names(await facade.list(boss))).toContain('everything_get-env');
      expect(names(await facade.list(hand))).not.toContain('everything_get-env');
      expect(names(await facade.list(guest)).filter((name) => name.startsWith('everything'))).toEqual([]);
      expect((await facade.call(hand, 'everything_get-env', {})).code).toBe('UNKNOWN_TOOL');
      expect((await facade.call(guest, 'everything_echo', { message: 'x' })).code).toBe('UNKNOWN_TOOL');
      const unknown = await facade.call(hand, 'everything_get-enx', {});
      const hidden = await facade.call(hand, 'everything_get-env', {});
      expect({ ...hidden.error, data: undefined }).toEqual({ ...unknown.error, data: undefined });
    },
  );

  it('gives tools of several servers stable names, with risk first' + verifies('CY-12', 'CY-13', 'DC-02'), async () => {
    const [one] = await shared.list(shared.open('named'));
    expect(one).toMatchObject({ name: 'say', description: '[uses the network; writes] Says it.' });
    expect((await shared.call(shared.open('named'), 'say', { message: 'hi' })).text).toContain('hi');
    expect((await shared.call(shared.open('other'), 'say', { text: 'hi' })).text).toBe('hi');
  });

  it('shows neither of two tools with one name, and finds a tool that a model writes with hyphens', async () => {
    const session = shared.open('equal');
    expect(names(await shared.list(session))).toEqual(['get-sum']);
    expect((await shared.call(session, 'get_sum', { a: 1, b: 1 })).text).toContain('2');
    expect((await shared.call(session, 'say-it', { message: 'x' })).code).toBe('UNKNOWN_TOOL');
  });

  it('hides a pinned argument, and sends its value whatever the caller writes', async () => {
    const session = shared.open('pinned');
    const [tool] = await shared.list(session);
    expect(Object.keys((tool?.inputSchema as { properties: object }).properties)).toEqual(['a']);
    for (const args of [{ a: 1 }, { a: 1, b: 99 }, { a: 1, B: 99 }])
      expect((await shared.call(session, 'add-ten', args)).text).toContain('11');
  });

  inFull('denies everything without a rule, and lists nothing', async () => {
    facade = await startFacade(
      config({
        principals: '[{ id: a, profiles: [p], stdio: true }]',
        profiles: '{ p: { servers: [everything], expose: { tools: ["everything.*"] } } }',
        rules: '[]',
      }),
    );
    const session = facade.open('a');
    expect(await facade.list(session)).toEqual([]);
    expect((await facade.call(session, 'read', { path: 'x' })).code).toBe('UNKNOWN_TOOL');
  });
});

describe('the budgets of a profile', () => {
  it('allow five calls per run (Harbor), then refuse and say so' + verifies('HB-05', 'HA-21'), async () => {
    // The profile requires grants too.
    for (const scope of ['mcp:tools.call', 'mcp:server.connect'])
      await shared.assembled.deps.grants.add(
        { origin: 'limited', profile: 'harbor', scope, kind: 'always' },
        'limited',
      );
    const session = shared.open('limited');
    const codes: string[] = [];
    for (let index = 0; index < 6; index += 1)
      codes.push((await shared.call(session, 'everything_echo', { message: String(index) })).code);
    expect(codes).toEqual(['', '', '', '', '', 'BUDGET_EXCEEDED']);
    const second = await shared.assembled.deps.runs.open({ principal: 'limited', origin: 'limited', owned: true });
    expect(
      (
        await shared.call(
          session,
          'everything_echo',
          { message: 'other run' },
          { meta: { 'tollgate/run': second.name } },
        )
      ).code,
    ).toBe('');
    expect(shared.callRecords().at(-3)).toMatchObject({
      type: 'budget',
      code: 'BUDGET_EXCEEDED',
      budget: 'harbor-run-calls',
      scope: 'run',
      unit: 'calls',
      limit: 5,
      left: 0,
    });
  });
});
