/** Tests the way back of a server that was given up: by a person's word, in every process, without a restart. */
import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Restarts } from '../../adapters/supervisor/restarts.ts';
import { startRefusal } from '../../adapters/supervisor/server-settings.ts';
import { cli, server } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
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

const WAYS: readonly (readonly [string, readonly (readonly string[])[]])[] = [
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
];

describe('a kept server that was given up after four crashes', () => {
  it.each(WAYS)(
    'is refused without a word of trying again, and comes back by %s' + verifies('ST-53'),
    async (_way, commands) => {
      const one = await start('lifetime: keep-alive');
      const session = one.open('alice');
      const names = async (): Promise<readonly string[]> =>
        (await one.list(session)).map(({ name }) => name).filter((name) => name === 'one_echo');
      expect(await names()).toEqual(['one_echo']);
      // Three crashes as they would be counted; the fourth is one.
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

describe('a process on call that its session has lost too often', () => {
  it('is called again after enable' + verifies('ST-53'), async () => {
    const one = await start('maxRetries: 0');
    const session = one.open('alice');
    await one.list(session);
    await one.call(session, 'one_crash', {});
    // Here a retry helps, after the time that is named.
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

describe('a refusal that only a person can lift', () => {
  it('is not retryable' + verifies('ST-53'), async () => {
    await start('maxRetries: 0');
    for (const refused of [{ unusable: 'its command is no text' }, { isolation: 'sandbox' as const, command: 'npx' }])
      expect(startRefusal(chaos('ok', refused))?.retryable).toBe(false);
  });
});
