/** Tests that no client misses a change that was taken back before anybody looked: what it was shown counts, not what a look saw. */
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
/** Times that it was told, of itself or with all. */
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
  // As another process does.
  state = openState(path.join(folder, 'state'));
  session = facade.open('local');
  expect(await names()).toContain('chaos_echo');
  facade.assembled.gateway.onToolsChanged((one) => (one === undefined || one === session) && told.push(one));
  // Both watches have looked: the first look compares whatever there is.
  await sleep(1100);
});
afterAll(async () => {
  await state.close();
  await facade.close();
  rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
});

const names = async (): Promise<readonly string[]> => (await facade.list(session)).map(({ name }) => name);
/** It lists when it is told, and never else, and sees everything in the end. */
const hears = (): Promise<void> =>
  expect
    .poll(async () => told.splice(0).length > 0 && (await names()).includes('chaos_echo'), { timeout: 20_000 })
    .toBe(true);

it('hears that everything is on again when it listed while it was off for a moment' + verifies('HA-19'), async () => {
  const killSwitch = new KillSwitch(state);
  await killSwitch.throw(ACT);
  expect(await names()).toEqual([]);
  await killSwitch.turnOn();
  await hears();
});

it('hears that a server is back that was killed for a moment, in which only a call noticed', async () => {
  const killSwitch = new KillSwitch(state);
  await killSwitch.throw({ server: 'chaos', ...ACT });
  expect((await facade.call(session, 'chaos_echo', {})).code).toBe('SERVER_UNAVAILABLE');
  expect(await names()).not.toContain('chaos_echo');
  await killSwitch.lift('chaos');
  await hears();
});

it('hears that a server may be used again that was out of use for a moment, in which it listed', async () => {
  const { consents } = facade.assembled;
  await consents.disable('chaos', { by: 'somebody', at: ACT.since });
  expect(await names()).not.toContain('chaos_echo');
  await consents.enable('chaos');
  await hears();
});
