/**
 * Tests that an owner's command starts a disabled server again, in every process, without a restart of Tollgate.
 * Covers: facade/runtime, facade/call, facade/state.
 */

import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Restarts } from '../../adapters/supervisor/restarts.ts';
import { startRefusal } from '../../adapters/supervisor/server-settings.ts';
import { readReports } from '../../facade/runtime/servers/server-reports.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import { cli, dataOf, server } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { partOf } from '../harness/slices.ts';
import { isRunning, startedIn } from '../process/child.ts';
import { chaos } from '../stdio/misbehaving-server.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

let project: Project;
let facade: TestFacade;
beforeEach(() => {
  project = new Project();
  mkdirSync(path.join(project.folder, 'workspace'));
});
afterEach(async () => {
  await facade.close();
  project.remove();
});

async function start(settings: string): Promise<TestFacade> {
  facade = await startFacade(
    `version: 1
workspace: ./workspace
state: ./state
servers: {one: ${server(['chaos.mjs'], settings)}}
principals: [{id: alice, stdio: true, owner: true}]
profiles: {default: {servers: [one], expose: {tools: ["one.*"]}}}
rules: [{id: all, outcome: allow, when: {}}]
`,
    { folder: project.folder },
  );
  return facade;
}

const COMMANDS: readonly (readonly [string, readonly (readonly string[])[]])[] = [
  ['enable', [['servers', 'enable', 'one']]],
  [
    'disable and enable',
    [
      ['servers', 'disable', 'one'],
      ['servers', 'enable', 'one'],
    ],
  ],
  [
    'kill and lift',
    [
      ['kill', 'one'],
      ['kill', '--lift', 'one'],
    ],
  ],
  ['lift', [['kill', '--lift', 'one']]],
  ['restart', [['servers', 'restart', 'one']]],
];

describe('a keep-alive server that was disabled after four crashes', () => {
  it.each(partOf(COMMANDS, 2))(
    'is not retryable, and runs again after %s' + verifies('ST-53'),
    async (_name, commands) => {
      const one = await start('lifetime: keep-alive');
      const session = one.open('alice');
      const names = async (): Promise<readonly string[]> =>
        (await one.list(session)).map(({ name }) => name).filter((name) => name === 'one_echo');
      expect(await names()).toEqual(['one_echo']);
      // Three crashes are only counted. The fourth is real.
      const { supervisor } = one.assembled.catalog.servers.get('one')!.adapter as unknown as {
        readonly supervisor: { readonly restarts: Restarts };
      };
      for (let crash = 0; crash < 3; crash += 1)
        supervisor.restarts.noteLoss({ why: 'It ended.', mode: 'keep-alive', now: performance.now() - 60_000 });
      expect((await one.call(session, 'one_crash', {})).code).toBe('TOOL_CRASHED');
      expect(await one.call(session, 'one_echo', {})).toMatchObject({
        code: 'SERVER_UNAVAILABLE',
        result: { _meta: { 'tollgate/retryable': false } },
      });
      expect(await names()).toEqual([]);
      for (const command of commands) expect((await cli(project, command)).code, command.join(' ')).toBe(0);
      await expect.poll(names, { timeout: 20_000 }).toEqual(['one_echo']);
      expect((await one.call(session, 'one_echo', { back: 1 })).text).toBe('{"back":1}');
      expect(one.assembled.catalog.servers.get('one')?.adapter.health().state).toBe('healthy');
    },
  );
});

describe('an on-call server that crashed too often in a session', () => {
  it('can be called again after enable' + verifies('ST-53'), async () => {
    const one = await start('maxRetries: 0');
    const session = one.open('alice');
    await one.list(session);
    await one.call(session, 'one_crash', {});
    // Here a retry succeeds after the time in the message.
    expect(await one.call(session, 'one_echo', {})).toMatchObject({
      code: 'SERVER_UNAVAILABLE',
      result: { _meta: { 'tollgate/retryable': true } },
    });
    await cli(project, ['servers', 'enable', 'one']);
    await expect
      .poll(async () => (await one.call(session, 'one_echo', { back: 1 })).text, { timeout: 20_000 })
      .toBe('{"back":1}');
  });
});

describe('a running server' + verifies('AD-43'), () => {
  it('is restarted in every process that runs it, by a command that needs no token', async () => {
    const starts = path.join(project.folder, 'starts');
    const one = await start(`env: {CHAOS_STARTS: ${JSON.stringify(starts)}}`);
    one.assembled.warmUp();
    const session = one.open('alice');
    await one.call(session, 'one_echo', {});
    const [pid = 0] = startedIn(starts);
    const restart = async (name = 'one') => cli(project, ['servers', 'restart', name, '--as', 'alice', '--json']);
    const state = openState(path.join(project.folder, 'state'));
    await expect.poll(async () => (await readReports(state)).size, { timeout: 20_000 }).toBe(1);
    await state.close();
    expect(dataOf<{ processes: number[] }>((await restart()).out).processes).toEqual([process.pid]);
    await expect.poll(() => startedIn(starts).length, { timeout: 20_000 }).toBeGreaterThan(1);
    await expect.poll(() => isRunning(pid), { timeout: 20_000 }).toBe(false);
    await expect.poll(async () => (await one.call(session, 'one_echo', {})).code, { timeout: 20_000 }).toBe('');
    expect(one.records().find(({ event }) => event === 'restart')).toMatchObject({ server: 'one', by: 'alice' });
    expect((await restart('oen')).err).toContain('did you mean \\"one\\"?');
    await cli(project, ['kill', 'one']);
    expect((await restart()).err).toContain('stopped by the kill switch');
  });
});

describe('a refusal that needs an owner', () => {
  it('is not retryable' + verifies('ST-53'), async () => {
    await start('maxRetries: 0');
    for (const refused of [{ unusable: 'its command is no text' }, { isolation: 'sandbox' as const, command: 'npx' }])
      expect(startRefusal(chaos('ok', refused))?.retryable).toBe(false);
  });
});
