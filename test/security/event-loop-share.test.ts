/**
 * Tests attacks with ignore rules and globs: many parallel calls must not add up to one long turn of the event loop.
 */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createWorkspace } from '../../adapters/primitives/workspace/workspace-server.ts';
import { CallPathHandles } from '../../catalogs/readers/path-handles.ts';
import { cpuMs, limitNow, THREE_ATTEMPTS } from '../bench/growth.ts';
import { openWorkspace } from '../sandbox/probe-targets.ts';
import { verifies } from '../verifies.ts';

/** The limit of one turn, ms of processor time. The watchdog ends the process at 5,000. */
const MOST_MS = 2_000;

let root: string;
beforeEach(() => {
  root = openWorkspace();
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

type Read = (args: object, timeoutMs?: number) => Promise<string>;

/** Returns the longest turn while `work` runs, in ms of processor time. */
async function longestTurn(work: (read: Read) => Promise<unknown>): Promise<number> {
  const server = createWorkspace({ root });
  let longest = 0;
  let last = cpuMs();
  const look = (): void => {
    longest = Math.max(longest, cpuMs() - last);
    last = cpuMs();
  };
  const ticking = setInterval(look, 1);
  const read: Read = async (args, timeoutMs = 60_000) => {
    const doc = await server.call({
      tool: 'read',
      args: { text: JSON.stringify(args), value: { ...args }, exact: true },
      scope: 'a',
      timeoutMs,
      hardTimeoutMs: timeoutMs,
      signal: new AbortController().signal,
    });
    return (doc.value.content ?? []).map(({ text = '' }) => text).join('\n');
  };
  try {
    await server.start();
    await work(read);
    look();
    return longest;
  } finally {
    clearInterval(ticking);
    await server.stop();
  }
}

describe('one call', THREE_ATTEMPTS, () => {
  it.each([
    ['names that do not exist', (index: number) => `${index}${'/b'.repeat(2000)}`],
    ['ways up and down again', (index: number) => `${'a/../'.repeat(800)}${index}`],
    ['encoded names', (index: number) => `${'%61/'.repeat(1000)}${index}`],
  ])(
    'with hundreds of long paths of %s is judged in less time than a turn may take' + verifies('TR-46'),
    (_, pathOf) => {
      const paths = new CallPathHandles([root]);
      const before = cpuMs();
      for (let index = 0; index < 250; index += 1) paths.of(pathOf(index));
      const took = cpuMs() - before;
      paths.close();
      expect(took).toBeLessThan(limitNow(took, MOST_MS));
    },
  );
});

describe('many parallel calls', THREE_ATTEMPTS, () => {
  it('that list folders under thousands of long ignore rules let other work run' + verifies('TR-46'), async () => {
    let folder = root;
    for (let level = 0; level < 16; level += 1) {
      writeFileSync(
        path.join(folder, '.gitignore'),
        Array.from({ length: 64 }, (_, rule) => `/**${'a*'.repeat(490)}b${rule}`).join('\n'),
      );
      folder = path.join(folder, 'a'.repeat(240));
      mkdirSync(folder, { recursive: true });
    }
    const turn = await longestTurn((read) =>
      Promise.allSettled(Array.from({ length: 4 }, () => read({ action: 'list', path: '.', depth: 20 }, 3_000))),
    );
    expect(turn).toBeLessThan(limitNow(turn, MOST_MS));
  }, 120_000);
});
