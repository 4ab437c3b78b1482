/** Tests that runs of code do not hold the event loop of the facade, whatever their programs do. */

import { readFileSync } from 'node:fs';
import { afterEach, expect, it } from 'vitest';
import { limitNow, THREE_ATTEMPTS } from '../bench/growth.ts';
import { inFull } from '../harness/full-tests.ts';
import { partOf, roundsOf } from '../harness/slices.ts';
import type { TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';
import { runCode, startCodeFacade } from './code-facade.ts';

/** The limit of one turn on the machine on which it was chosen, ms of processor time. */
const MOST_MS = 20;

let facade: TestFacade;
afterEach(() => facade.close());

/** Processor time of the main thread, ms. */
const mainMs = (): number =>
  Number.parseInt(readFileSync(`/proc/self/task/${process.pid}/schedstat`, 'latin1'), 10) / 1e6;

/** Returns the longest turn of the main thread while `work` runs, in ms of processor time. */
async function longestTurn(work: () => Promise<unknown>): Promise<number> {
  let [longest, last] = [0, mainMs()];
  const look = (): void => {
    const now = mainMs();
    longest = Math.max(longest, now - last);
    last = now;
  };
  const ticking = setInterval(look, 1);
  try {
    await work();
    look();
    return longest;
  } finally {
    clearInterval(ticking);
  }
}

const ECHO = `const { echo } = require('host:mcp-stories');`;
const PROGRAMS = [
  ['an endless loop', 'for (;;);', 'CODE_LIMIT'],
  ['200 calls, one at a time', `${ECHO} for (let n = 0; n < 200; n += 1) echo({ text: 'n' + n });`, ''],
  [
    '200 calls at once',
    `${ECHO} await Promise.all(Array.from({ length: 200 }, (_, n) => echo.async({ text: 'n' + n })));`,
    '',
  ],
  ['a flood of promises', 'for (;;) await Promise.all(Array.from({ length: 1_000 }, async () => 1));', 'CODE_LIMIT'],
] as const;

inFull.each(partOf(PROGRAMS, 3))(
  'the event loop is never held over 20 ms by %s' + verifies('CM-44'),
  { ...THREE_ATTEMPTS, timeout: 60_000 },
  async (_, code, expected) => {
    facade = await startCodeFacade({ more: `code: {timeMs: ${roundsOf(1500, 500)}}` });
    const session = facade.open('alice');
    // The server has started, and the code of the facade is compiled, before it is measured.
    await runCode(facade, code.replace('for (;;)', 'for (let i = 0; i < 9; i += 1)'), session);
    const codes: string[] = [];
    const longest = await longestTurn(async () => codes.push((await runCode(facade, code, session)).code));
    expect(codes).toEqual([expected]);
    expect(longest).toBeLessThan(limitNow(longest, MOST_MS));
  },
);

it('values of 1 MB both ways hold the event loop about as long as the same direct call' + verifies('CM-44'), {
  ...THREE_ATTEMPTS,
  timeout: 60_000,
}, async () => {
  facade = await startCodeFacade();
  const session = facade.open('alice');
  const code = `${ECHO} for (let n = 0; n < 3; n += 1) echo({ text: 'x'.repeat(900_000) });`;
  const directly = async (): Promise<void> => {
    for (let n = 0; n < 3; n += 1) await facade.call(session, 'stories_echo', { text: 'x'.repeat(900_000) });
  };
  await directly();
  await runCode(facade, code, session);
  const direct = await longestTurn(directly);
  const longest = await longestTurn(() => runCode(facade, code, session));
  expect(longest).toBeLessThan(Math.max(limitNow(longest, MOST_MS), 1.5 * direct));
});

/** Calls of 400 kB in the log. */
const LOGGED = roundsOf(50, 20);

inFull(
  `a run that goes on from a log of ${0.4 * LOGGED} MB does not hold the event loop${verifies('CM-44')}`,
  {
    ...THREE_ATTEMPTS,
    timeout: 60_000,
  },
  async () => {
    facade = await startCodeFacade();
    const session = facade.open('alice');
    const code = `const { echo, wipe } = require('host:mcp-stories');
for (let n = 0; n < ${LOGGED}; n += 1) echo({ text: 'x'.repeat(400_000) + n });
wipe({});`;
    expect((await runCode(facade, code, session)).code).toBe('APPROVAL_REQUIRED');
    // Reading 20 MB at once takes a second.
    const longest = await longestTurn(() => runCode(facade, code, session));
    expect(longest).toBeLessThan(limitNow(longest, 5 * MOST_MS));
  },
);
