/**
 * Tests supervision through a whole facade: cached lists, servers that are down, logs and records.
 * Covers: adapters/supervisor.
 */

import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Redactor } from '../../facade/output/redactor.ts';
import { readServerLog, ServerLogs } from '../../facade/runtime/servers/server-logs.ts';
import { server } from '../cli/terminal.ts';
import { inFull } from '../harness/full-tests.ts';
import { startedIn } from '../process/child.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

let folder: string;
let starts: string;
const running: TestFacade[] = [];

beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'tollgate-supervised-'));
  starts = path.join(folder, 'starts');
});
afterEach(async () => {
  await Promise.all(running.splice(0).map((one) => one.close()));
  rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
});

interface Setup {
  readonly mode?: string;
  readonly settings?: string;
  readonly rules?: string;
}

async function facade({
  mode = 'ok',
  settings = '',
  rules = '[{id: all, outcome: allow, when: {}}]',
}: Setup = {}): Promise<TestFacade> {
  const more = [
    `env: {CHAOS_STARTS: ${JSON.stringify(starts)}, API_KEY: "\${env:API_KEY}"}`,
    ...(settings === '' ? [] : [settings]),
  ].join(', ');
  const made = await startFacade(
    `version: 1
workspace: ./workspace
state: ./state
servers: {chaos: ${server(['chaos.mjs', mode], more)}}
principals: [{id: alice, stdio: true}, {id: bob, stdio: true}]
profiles: {default: {servers: [chaos], expose: {primitives: workspace, tools: ["chaos.*"]}}}
rules: ${rules}
`,
    { folder, env: { API_KEY: 'value-of-the-api-key' } },
  );
  running.push(made);
  return made;
}

const namesOf = (tools: readonly { readonly name: string }[]): readonly string[] =>
  tools.map(({ name }) => name).filter((name) => name.startsWith('chaos_'));
const eventsOf = ({ records }: TestFacade): readonly string[] =>
  records()
    .filter(({ type }) => type === 'server')
    .map(({ event }) => String(event));

describe('a list of tools', () => {
  it('starts a server once per state folder; later only a call starts it' + verifies('HA-06'), async () => {
    const first = await facade();
    const before = namesOf(await first.list(first.open('alice')));
    expect(before).toContain('chaos_echo');
    expect(startedIn(starts)).toHaveLength(1);
    await first.close();
    const second = await facade();
    const session = second.open('alice');
    expect(namesOf(await second.list(session))).toEqual(before);
    expect(await second.call(session, 'no_such_tool', {})).toMatchObject({ code: 'UNKNOWN_TOOL' });
    expect(startedIn(starts)).toHaveLength(1);
    expect((await second.call(session, 'chaos_echo', { n: 1 })).text).toBe('{"n":1}');
    expect(startedIn(starts)).toHaveLength(2);
    expect(statSync(path.join(folder, 'state', 'catalog')).mode & 0o777).toBe(0o700);
  });

  inFull('from the cache does not let a changed tool through' + verifies('HA-06'), async () => {
    const first = await facade();
    await first.list(first.open('alice'));
    await first.close();
    const kept = path.join(folder, 'state', 'catalog');
    const [name = ''] = readdirSync(kept);
    // Simulates that the server listed another description the last time.
    const old = readFileSync(path.join(kept, name), 'utf8').replace(
      '"name":"echo"',
      '"name":"echo","description":"old"',
    );
    (await import('node:fs')).writeFileSync(path.join(kept, name), old);
    const second = await facade();
    const session = second.open('alice');
    expect((await second.list(session)).find((tool) => tool.name === 'chaos_echo')?.description).toContain('old');
    expect(await second.call(session, 'chaos_echo', {})).toMatchObject({ code: 'PIN_MISMATCH' });
    await second.list(session);
    expect((await second.call(session, 'chaos_echo', {})).text).toBe('{}');
  });

  it('is read again after the definition of the server changed', async () => {
    const first = await facade();
    await first.list(first.open('alice'));
    await first.close();
    const second = await facade({ settings: 'cwd: .' });
    await second.list(second.open('alice'));
    expect(startedIn(starts)).toHaveLength(2);
  });
});

describe('a tool whose server is down', () => {
  inFull(
    'answers SERVER_UNAVAILABLE immediately, is not listed, and comes back by itself' +
      verifies('HE-09', 'PF-14', 'ST-80'),
    async () => {
      const one = await facade({ settings: 'lifetime: keep-alive' });
      const session = one.open('alice');
      await one.list(session);
      expect(await one.call(session, 'chaos_crash', {})).toMatchObject({ code: 'TOOL_CRASHED' });
      expect(await one.call(session, 'chaos_echo', {})).toMatchObject({
        code: 'SERVER_UNAVAILABLE',
        result: { isError: true, _meta: { 'tollgate/retryable': true } },
      });
      expect(await one.call(session, 'chaos_nothing', {})).toMatchObject({ code: 'UNKNOWN_TOOL' });
      expect(namesOf(await one.list(session))).toEqual([]);
      await expect.poll(async () => namesOf(await one.list(session)).length, { timeout: 20_000 }).toBeGreaterThan(20);
      expect((await one.call(session, 'chaos_echo', { back: 1 })).text).toBe('{"back":1}');
      expect(eventsOf(one)).toEqual(['started', 'tools.discovered', 'crashed', 'restarted', 'tools.refreshed']);
      expect(one.records().find(({ event }) => event === 'tools.refreshed')).toMatchObject({
        outcome: 'allow',
        added: 0,
        removed: 0,
        changed: 0,
        unchanged: 29,
      });
      expect(one.records().find(({ event }) => event === 'crashed')).toMatchObject({
        outcome: 'error',
        exit: 3,
        inMs: 1000,
        attempt: 1,
        maxAttempts: 3,
      });
      expect(one.records().find(({ event }) => event === 'restarted')).toMatchObject({ attempt: 1 });
    },
  );

  it(
    'answers the same if it cannot restart, and is unknown to a principal who may never call it' + verifies('HE-09'),
    async () => {
      const one = await facade({
        settings: 'maxRetries: 0',
        rules: '[{id: alice, outcome: allow, when: {principals: [alice]}}]',
      });
      const [alice, bob] = [one.open('alice'), one.open('bob')];
      await one.list(alice);
      await one.call(alice, 'chaos_crash', {});
      for (const _ of [1, 2])
        expect(await one.call(alice, 'chaos_echo', {})).toMatchObject({ code: 'SERVER_UNAVAILABLE' });
      expect(await one.call(bob, 'chaos_echo', {})).toMatchObject({ code: 'UNKNOWN_TOOL' });
    },
  );

  it('is refused to the session that keeps crashing it, and to no other' + verifies('HA-08'), async () => {
    const one = await facade({ settings: 'maxRetries: 1' });
    const [alice, bob, again] = [one.open('alice'), one.open('bob'), one.open('alice')];
    await one.list(alice);
    for (const _ of [1, 2]) expect(await one.call(alice, 'chaos_crash', {})).toMatchObject({ code: 'TOOL_CRASHED' });
    expect(await one.call(alice, 'chaos_echo', {})).toMatchObject({
      code: 'SERVER_UNAVAILABLE',
      text: expect.stringMatching(
        /^Server "chaos" was lost 2 times within ten minutes during calls of this session, which may call it again in/,
      ),
    });
    expect(startedIn(starts)).toHaveLength(2);
    expect((await one.call(bob, 'chaos_echo', { b: 1 })).text).toBe('{"b":1}');
    // A restart for other sessions does not lift the refusal.
    expect(await one.call(alice, 'chaos_echo', {})).toMatchObject({ code: 'SERVER_UNAVAILABLE' });
    expect((await one.call(again, 'chaos_echo', { c: 1 })).text).toBe('{"c":1}');
    expect(namesOf(await one.list(alice))).toContain('chaos_echo');
  });

  it('is restarted only by the next call if it is lazy' + verifies('HA-08'), async () => {
    const one = await facade();
    const session = one.open('alice');
    await one.list(session);
    await one.call(session, 'chaos_crash', {});
    expect(namesOf(await one.list(session))).toContain('chaos_echo');
    expect(startedIn(starts)).toHaveLength(1);
    expect((await one.call(session, 'chaos_echo', { n: 2 })).text).toBe('{"n":2}');
    expect(startedIn(starts)).toHaveLength(2);
  });
});

describe('what a server writes to stderr', () => {
  it('is redacted in the private log of the server, and appears in no reply' + verifies('HE-07'), async () => {
    const one = await facade({ mode: 'tells' });
    const session = one.open('alice');
    const { text } = await one.call(session, 'chaos_echo', {});
    expect(text).toBe('{}');
    await expect
      .poll(() => readServerLog(path.join(folder, 'state'), 'chaos') ?? '', { timeout: 20_000 })
      .toMatch(/the key is \[redacted\]\n/);
    const log = readServerLog(path.join(folder, 'state'), 'chaos') ?? '';
    expect(log).not.toContain('value-of-the-api-key');
    expect(log).toMatch(/^\d{4}-\d\d-\d\dT[\d:.]+Z \d+ /);
    expect(log).not.toContain('\u001b');
    expect(statSync(path.join(folder, 'state', 'logs', 'chaos.log')).mode & 0o777).toBe(0o600);
  });

  it('is limited in size, and a failure to write it is reported once', () => {
    const faults: unknown[] = [];
    const state = path.join(folder, 'logs-only');
    const logs = new ServerLogs({
      state,
      redactor: new Redactor(),
      onFault: (thrown) => faults.push(thrown),
      maxBytes: 2000,
    });
    for (let n = 0; n < 200; n++) logs.write('a', `line ${n}`);
    const text = readServerLog(state, 'a') ?? '';
    expect(text.length).toBeLessThan(4500);
    expect(text).toMatch(/line 199\n$/);
    expect(
      text
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => Number(line.split(' ').at(-1))),
    ).toEqual(
      Array.from(
        { length: text.trimEnd().split('\n').length },
        (_, n, first = 200 - text.trimEnd().split('\n').length) => first + n,
      ),
    );
    expect(readServerLog(state, 'b')).toBeUndefined();
    const broken = new ServerLogs({
      state: '/dev/null/nowhere',
      redactor: new Redactor(),
      onFault: (thrown) => faults.push(thrown),
    });
    broken.write('a', 'x');
    broken.write('a', 'y');
    expect(faults).toHaveLength(1);
  });
});

describe('a profile', () => {
  it('keeps a server running for its own sessions only' + verifies('CY-23'), async () => {
    const made = await startFacade(
      `version: 1
workspace: ./workspace
state: ./state
servers: {chaos: ${server(['chaos.mjs'], 'lifetime: ephemeral')}}
principals: [{id: alice, stdio: true, profiles: [keep]}]
profiles: {keep: {servers: [chaos], lifetimes: {chaos: keep-alive}, expose: {tools: ["chaos.*"]}}}
rules: [{id: all, outcome: allow, when: {}}]
`,
      { folder },
    );
    running.push(made);
    const session = made.open('alice');
    const pid = async (): Promise<number> =>
      (JSON.parse((await made.call(session, 'chaos_env', {})).text) as { pid: number }).pid;
    const before = await pid();
    expect(await made.call(session, 'chaos_crash', {})).toMatchObject({ code: 'TOOL_CRASHED' });
    // A keep-alive server is restarted by Tollgate, not by a call.
    expect(await made.call(session, 'chaos_env', {})).toMatchObject({ code: 'SERVER_UNAVAILABLE' });
    await expect.poll(async () => (await made.call(session, 'chaos_env', {})).code, { timeout: 20_000 }).toBe('');
    expect(await pid()).not.toBe(before);
  });
});

describe('an eager server', () => {
  it(
    'starts with a session whose profile asks for it and may use it, and with Tollgate if some profile asks for it' +
      verifies('CY-23'),
    async () => {
      const setup = `version: 1
workspace: ./workspace
state: ./state
servers:
  ahead: ${server(['chaos.mjs'], `env: {CHAOS_STARTS: ${JSON.stringify(path.join(folder, 'ahead'))}}`)}
  waived: ${server(['chaos.mjs'], `start: eager, env: {CHAOS_STARTS: ${JSON.stringify(path.join(folder, 'waived'))}}`)}
principals:
  - {id: alice, stdio: true, profiles: [hasty]}
  - {id: bob, stdio: true, profiles: [patient]}
  - {id: carol, stdio: true, profiles: [guarded]}
profiles:
  hasty: {servers: [ahead], starts: {ahead: eager}}
  patient: {servers: [ahead, waived], starts: {waived: lazy}}
  guarded: {servers: [ahead], starts: {ahead: eager}, grants: required}
rules: [{id: all, outcome: allow, when: {}}]
`;
      const made = await startFacade(setup, { folder });
      running.push(made);
      const started = (name: string): number => startedIn(path.join(folder, name)).length;
      // Opening and closing a session for a command starts no server.
      await made.assembled.gateway.closeSession(made.open('alice'));
      made.assembled.warmUp();
      made.open('bob');
      made.open('carol');
      // A start would be visible in the same turn of the event loop, so there was none.
      expect(made.assembled.catalog.servers.get('ahead')?.adapter.isAsleep?.()).toBe(true);
      made.open('alice');
      await expect.poll(() => started('ahead'), { timeout: 20_000 }).toBe(1);
      made.open('alice');
      expect([
        made.assembled.catalog.servers.get('waived')?.adapter.isAsleep?.(),
        started('waived'),
        started('ahead'),
      ]).toEqual([true, 0, 1]);
    },
  );

  it('runs before the first call, once the facade serves' + verifies('HA-06'), async () => {
    const one = await facade({ settings: 'start: eager' });
    expect(startedIn(starts)).toHaveLength(0);
    one.assembled.warmUp();
    await expect.poll(() => startedIn(starts).length, { timeout: 20_000 }).toBe(1);
    await sleep(50);
    expect(existsSync(starts)).toBe(true);
  });
});
