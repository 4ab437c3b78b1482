/** Tests stops that are typed at any moment, whatever else is wrong: no call that begins after the command has returned is run, and calls run again after the stop is taken back. */
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { Reply } from '../process/child.ts';
import { empty, fill, mountSmallDisk, unmount } from '../state/small-disk.ts';
import { startFixture } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';
import { numbers, shuffled, TIMES } from './fault-seed.ts';
import { callOnce, codeOf, type Gateway, Ground, Load, SERVERS, type ServerName } from './gateway-load.ts';

/** Before the command at most, ms. */
const PAUSE_MS = 300;
/** Calls to each stopped server of each gateway, besides the load. */
const CALLS = 4;
const REFUSALS = [
  'SWITCHED_OFF',
  'SERVER_UNAVAILABLE',
  'APPROVAL_REQUIRED',
  'TOOL_UNKNOWN',
  'STATE_FAILED',
  'CANCELLED',
];

/** A stop, what it stops, and what takes it back. */
interface Stop {
  readonly words: readonly string[];
  readonly stops: readonly ServerName[];
  readonly back: (ground: Ground) => Promise<unknown>;
}

const typed =
  (...words: readonly string[]) =>
  async (ground: Ground): Promise<void> => {
    const { code, said } = await ground.type(words);
    if (code !== 0) throw new Error(`${words.join(' ')}: ${code} ${said}`);
  };
const STOPS: readonly Stop[] = [
  { words: ['off'], stops: SERVERS, back: typed('on') },
  { words: ['kill', 'a'], stops: ['a'], back: typed('kill', '--lift', 'a') },
  { words: ['revoke', 'a'], stops: ['a'], back: (ground) => ground.project.approve({ names: ['a'] }) },
  { words: ['servers', 'disable', 'a'], stops: ['a'], back: typed('servers', 'enable', 'a') },
];

/** Something that is wrong while the command is typed. `end` makes it right. */
type Fault = (place: {
  readonly ground: Ground;
  readonly gateways: readonly Gateway[];
}) => Promise<{ readonly end: () => Promise<void>; readonly frozen?: Gateway }>;

const FAULTS: Readonly<Record<string, Fault>> = {
  'under load': async () => ({ end: async () => undefined }),
  'with another process frozen in a transaction': async ({ ground }) => {
    const holder = startFixture('state-holder.mjs', [path.join(ground.state, 'state.db')]);
    await holder.line();
    const say = async (line: string): Promise<void> => {
      // The lock may be taken for a moment.
      do holder.child.stdin?.write(`${line}\n`);
      while ((await holder.line()) !== 'done');
    };
    await say('BEGIN IMMEDIATE');
    holder.child.kill('SIGSTOP');
    return {
      end: async () => {
        holder.child.kill('SIGCONT');
        await say('ROLLBACK');
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

/** At the gate each stop and each fault once, in an order of chance; by hand all pairs of them. */
function rounds(chance: () => number): readonly (readonly [stop: Stop, fault: string])[] {
  const faults = shuffled(Object.keys(FAULTS), chance);
  const all = STOPS.flatMap((stop, at) =>
    faults.map((_, shift) => [stop, faults[(at + shift) % faults.length] ?? '', shift] as const),
  );
  const wanted = TIMES > 1 ? all : all.filter(([, , shift]) => shift === 0);
  return shuffled(wanted, chance).map(([stop, fault]) => [stop, fault]);
}

let ground: Ground;
beforeEach(async () => {
  // The log lies elsewhere: on a full disk of its own nothing runs in any case.
  ground = new Ground({ more: 'audit: {folder: ./audit}\n' });
  mountSmallDisk(ground.state, 16);
  await ground.project.approve();
});
afterEach(async () => {
  await ground.remove().catch(() => undefined);
  unmount(ground.state);
  ground.project.remove();
});

/** Until each server runs a call of each gateway. */
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
  const what = `tollgate ${stop.words.join(' ')}, ${name}`;
  await untilAllRun(gateways, `before ${what}`);
  const fault = await (FAULTS[name] as Fault)({ ground, gateways });
  await sleep(chance() * PAUSE_MS);
  const { code, said } = await ground.type(stop.words);
  // What needs the database says so where it cannot have it; the server is stopped all the same.
  const isStopped = ['off', 'kill'].includes(stop.words[0] ?? '');
  expect([what, isStopped ? code : [0, 1].includes(code ?? -1), said]).toEqual([what, isStopped ? 0 : true, said]);
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
  await (code === 0 ? stop.back(ground) : typed('kill', '--lift', 'a')(ground));
  await untilAllRun(gateways, `after ${what}`);
  const forbidden = new Set([...after, ...during].map(({ token }) => token));
  expect(
    stop.stops.flatMap((server) => ground.ran(server)).filter((token) => forbidden.has(token)),
    what,
  ).toEqual([]);
}

it(
  'no call that begins after a stop has returned is run, and calls run again afterwards' + verifies('ST-11'),
  async () => {
    const chance = numbers();
    const gateways = await Promise.all([ground.gateway(), ground.gateway()]);
    const load = new Load(gateways, { chance, inFlight: 3 });
    for (const [stop, fault] of rounds(chance)) await playRound(load, gateways, [stop, fault, chance]);
    await load.end();
    await Promise.all(gateways.map((gateway) => gateway.end()));
    await expect.poll(() => ground.running()).toEqual([]);
  },
  120_000 * (TIMES > 1 ? 4 : 1),
);
