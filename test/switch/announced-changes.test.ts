/**
 * Tests that no client misses a change that was undone before a check: what the client was shown counts, not what the
 * check saw.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { KillSwitch } from '../../facade/consent/switch/kill-switch.ts';
import type { Session } from '../../facade/serve/facade-port.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import type { State } from '../../facade/state/state-port.ts';
import { server } from '../cli/terminal.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

let folder: string;
let facade: TestFacade;
let state: State;
let session: Session;
/** The notifications for the session or for all. */
const told: unknown[] = [];
const ACT = { since: '2026-01-01T00:00:00.000Z', by: 'somebody' };

beforeAll(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'tollgate-heard-'));
  facade = await startFacade(
    `version: 1
workspace: ./workspace
state: ./state
servers: {chaos: ${server(['chaos.mjs', 'ok'])}}
profiles: {default: {servers: [chaos], expose: {primitives: workspace, tools: ["chaos.*"]}}}
rules: [{id: all, outcome: allow, when: {}}]
`,
    { folder },
  );
  // Like another process.
  state = openState(path.join(folder, 'state'));
  session = facade.open('local');
  expect(await names()).toContain('chaos_echo');
  facade.assembled.gateway.onToolsChanged((one) => (one === undefined || one === session) && told.push(one));
  // Both watchers have checked once. Their first check compares anything.
  await sleep(1100);
});
afterAll(async () => {
  await state.close();
  await facade.close();
  rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
});

const names = async (): Promise<readonly string[]> => (await facade.list(session)).map(({ name }) => name);
/** Waits until the client, which lists only after a notification, sees the tool. */
const hears = (): Promise<void> =>
  expect
    .poll(async () => told.splice(0).length > 0 && (await names()).includes('chaos_echo'), { timeout: 20_000 })
    .toBe(true);

it('a client is notified that everything is on again after it was off for a moment' + verifies('HA-19'), async () => {
  const killSwitch = new KillSwitch(state);
  await killSwitch.throw(ACT);
  expect(await names()).toEqual([]);
  await killSwitch.turnOn();
  await hears();
});

it('a client is notified that a server is back after it was killed for a moment', async () => {
  const killSwitch = new KillSwitch(state);
  await killSwitch.throw({ server: 'chaos', ...ACT });
  expect((await facade.call(session, 'chaos_echo', {})).code).toBe('SERVER_UNAVAILABLE');
  expect(await names()).not.toContain('chaos_echo');
  await killSwitch.lift('chaos');
  await hears();
});

it('a client is notified that a server is enabled again after it was disabled for a moment', async () => {
  const { consents } = facade.assembled;
  await consents.disable('chaos', { by: 'somebody', at: ACT.since });
  expect(await names()).not.toContain('chaos_echo');
  await consents.enable('chaos');
  await hears();
});
