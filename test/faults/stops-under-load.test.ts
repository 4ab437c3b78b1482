/**
 * Tests stop commands under load and with other faults: no call that begins after the command has returned runs.
 * Covers: facade/runtime, facade/call, facade/state.
 */
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { cli } from '../cli/terminal.ts';
import { roundsOf } from '../harness/slices.ts';
import type { Reply } from '../process/child.ts';
import { canMountDisks, empty, fill, mountSmallDisk, NO_DISKS, unmount } from '../state/small-disk.ts';
import { startFixture } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';
import { numbers, shuffled, TIMES } from './fault-seed.ts';
import { callOnce, codeOf, type Gateway, Ground, Load, SERVERS, type ServerName } from './gateway-load.ts';

/** Maximum milliseconds before the command. */
const PAUSE_MS = 300;
/** Calls through each gateway to each stopped server, in addition to the load. */
const CALLS = 4;
const REFUSALS = [
  'SWITCHED_OFF',
  'SERVER_UNAVAILABLE',
  'APPROVAL_REQUIRED',
  'TOOL_UNKNOWN',
  'STATE_FAILED',
  'CANCELLED',
];

/** A stop command, the servers that it stops, and the function that lifts the stop. */
interface Stop {
  readonly command: readonly string[];
  readonly stops: readonly ServerName[];
  readonly lift: (ground: Ground) => Promise<unknown>;
}

const run =
  (...command: readonly string[]) =>
  async (ground: Ground): Promise<void> => {
    const { code, out, err } = await cli(ground.project, command);
    if (code !== 0) throw new Error(`${command.join(' ')}: ${code} ${out}${err}`);
  };
const STOPS: readonly Stop[] = [
  { command: ['off'], stops: SERVERS, lift: run('on') },
  { command: ['kill', 'a'], stops: ['a'], lift: run('kill', '--lift', 'a') },
  { command: ['revoke', 'a'], stops: ['a'], lift: (ground) => ground.project.approve({ names: ['a'] }) },
  { command: ['servers', 'disable', 'a'], stops: ['a'], lift: run('servers', 'enable', 'a') },
];

/** Causes a fault during the command. `end` repairs it. */
type Fault = (place: {
  readonly ground: Ground;
  readonly gateways: readonly Gateway[];
}) => Promise<{ readonly end: () => Promise<void>; readonly frozen?: Gateway }>;

const FAULTS: Readonly<Record<string, Fault>> = {
  'under load': async () => ({ end: async () => undefined }),
  'with another process frozen in a transaction': async ({ ground }) => {
    const holder = startFixture('state-holder.mjs', [path.join(ground.state, 'state.db')]);
    await holder.line();
    const execute = async (line: string): Promise<void> => {
      // Another process may hold the lock for a moment.
      do holder.child.stdin?.write(`${line}\n`);
      while ((await holder.line()) !== 'done');
    };
    await execute('BEGIN IMMEDIATE');
    holder.child.kill('SIGSTOP');
    return {
      end: async () => {
        holder.child.kill('SIGCONT');
        await execute('ROLLBACK');
        holder.child.kill('SIGKILL');
      },
    };
  },
  'on a full disk': async ({ ground }) => {
    fill(ground.state);
    return { end: async () => empty(ground.state) };
  },
  'with a frozen gateway': async ({ gateways }) => {
    const [frozen] = gateways as readonly [Gateway];
    frozen.signal('SIGSTOP');
    return { frozen, end: async () => frozen.signal('SIGCONT') };
  },
};

/** Returns each stop and each fault once in random order, or all pairs with TIMES above 1. */
function rounds(chance: () => number): readonly (readonly [stop: Stop, fault: string])[] {
  const faults = shuffled(Object.keys(FAULTS), chance);
  const all = STOPS.flatMap((stop, at) =>
    faults.map((_, shift) => [stop, faults[(at + shift) % faults.length] ?? '', shift] as const),
  );
  const wanted = TIMES > 1 ? all : all.filter(([, , shift]) => shift === 0);
  return shuffled(wanted, chance).map(([stop, fault]) => [stop, fault]);
}

let ground: Ground;
beforeEach(async ({ skip }) => {
  // The log is on another disk: with a full disk of its own, no call would run in any case.
  ground = new Ground({ more: 'audit: {folder: ./audit}\n' });
  skip(!canMountDisks(), NO_DISKS);
  mountSmallDisk(ground.state, 16);
  await ground.project.approve();
});
afterEach(async () => {
  await ground.remove().catch(() => undefined);
  unmount(ground.state);
  ground.project.remove();
});

/** Waits until each server runs a call of each gateway. */
async function untilAllRun(gateways: readonly Gateway[], what: string): Promise<void> {
  for (const [at, gateway] of gateways.entries()) {
    for (const server of SERVERS) {
      let last: Reply | undefined;
      const isRunning = async (): Promise<boolean> =>
        codeOf((last = await callOnce(gateway, { tool: `${server}_echo`, token: `p${at}` }))) === 'ok';
      await expect
        .poll(isRunning, { timeout: 20_000 })
        .toBe(true)
        .catch(() => expect.fail(`${what}: ${server} does not run again: ${JSON.stringify(last)}`));
    }
  }
}

async function playRound(
  load: Load,
  gateways: readonly Gateway[],
  [stop, name, chance]: readonly [stop: Stop, fault: string, chance: () => number],
): Promise<void> {
  const what = `tollgate ${stop.command.join(' ')}, ${name}`;
  await untilAllRun(gateways, `before ${what}`);
  const fault = await (FAULTS[name] as Fault)({ ground, gateways });
  await sleep(chance() * PAUSE_MS);
  const { code, output } = await ground.type(stop.command);
  // A command that needs the database may fail without it. It still stops the server.
  const isStopped = ['off', 'kill'].includes(stop.command[0] ?? '');
  expect([what, isStopped ? code : [0, 1].includes(code ?? -1), output]).toEqual([what, isStopped ? 0 : true, output]);
  const first = load.sent.length;
  const asked = gateways.flatMap((gateway, at) =>
    stop.stops.flatMap((server) =>
      Array.from({ length: CALLS }, async (_, n) => ({
        gateway,
        token: `after-${first}-${at}-${server}-${n}`,
        server,
      })),
    ),
  );
  const after = await Promise.all(asked);
  const codes = Promise.all(
    after.map(async ({ gateway, token, server }) => codeOf(await callOnce(gateway, { tool: `${server}_echo`, token }))),
  );
  await sleep(100);
  await fault.end();
  expect(
    (await codes).filter((one) => !REFUSALS.includes(one)),
    what,
  ).toEqual([]);
  const during = load.sent.slice(first).filter(({ server }) => stop.stops.includes(server));
  await Promise.all(during.map(({ done }) => done));
  await (code === 0 ? stop.lift(ground) : run('kill', '--lift', 'a')(ground));
  await untilAllRun(gateways, `after ${what}`);
  const forbidden = new Set([...after, ...during].map(({ token }) => token));
  expect(
    stop.stops.flatMap((server) => ground.ran(server)).filter((token) => forbidden.has(token)),
    what,
  ).toEqual([]);
}

it(
  'no call that begins after a stop command has returned runs, and calls run again after the stop is lifted' +
    verifies('ST-11'),
  async () => {
    const chance = numbers();
    const gateways = await Promise.all([ground.gateway(), ground.gateway()]);
    const load = new Load(gateways, { chance, inFlight: 3, pauseMs: roundsOf(0, 15) });
    for (const [stop, fault] of rounds(chance)) await playRound(load, gateways, [stop, fault, chance]);
    await load.end();
    await Promise.all(gateways.map((gateway) => gateway.end()));
    await expect.poll(() => ground.running()).toEqual([]);
  },
  120_000 * (TIMES > 1 ? 4 : 1),
);
