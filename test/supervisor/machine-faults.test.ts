/**
 * Tests faults of the machine and of neighbours: no resources for a start, a server that floods its output, and a
 * cancellation that races with the answer.
 */

import { type ChildProcessWithoutNullStreams, spawn, spawnSync } from 'node:child_process';
import { chmodSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import { readMessage } from '../../adapters/rpc/message-parser.ts';
import { Peer } from '../../adapters/rpc/peer.ts';
import { ServerPool } from '../../adapters/supervisor/server-pool.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { inFull } from '../harness/full-tests.ts';
import { roundsOf } from '../harness/slices.ts';
import { fixturePath } from '../state/temporary-folder.ts';
import {
  callOf,
  chaos,
  codeOf,
  FAST,
  HOST,
  refusalOf,
  serve,
  temporaryFolder,
  textOf,
} from '../stdio/misbehaving-server.ts';
import { verifies } from '../verifies.ts';

const FIXTURES = path.join(import.meta.dirname, '..', 'fixtures');
const pools: ServerPool[] = [];
const children: ChildProcessWithoutNullStreams[] = [];

afterEach(async () => {
  await Promise.all(pools.splice(0).map((pool) => pool.stopAll()));
  for (const child of children.splice(0)) child.kill('SIGKILL');
});

const OTHER_USER = process.getuid?.() === 0 ? { uid: 4712, gid: 4712 } : {};

/** Starts a process that starts a server on request. It runs as another user, because root has no process limit. */
async function starved(nofile = 256): Promise<{ readonly pid: number; ask(word: string): Promise<string> }> {
  const child = spawn(
    'prlimit',
    [`--nofile=${nofile}`, process.execPath, fixturePath('starved.ts'), fixturePath('chaos.mjs')],
    {
      stdio: 'pipe',
      ...OTHER_USER,
    },
  );
  children.push(child);
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const read = async (): Promise<string> => String((await lines.next()).value);
  expect(await read()).toBe('ready');
  return { pid: child.pid ?? 0, ask: (word) => (child.stdin.write(`${word}\n`), read()) };
}

describe('a start without resources', () => {
  it('fails with EMFILE while no descriptor is free, and succeeds later', async () => {
    const { ask } = await starved();
    expect(await ask('fill')).toBe('EMFILE');
    expect(await ask('start')).toMatch(/^SERVER_UNAVAILABLE: Server "poor" /);
    expect(await ask('free')).toBe('freed');
    await expect.poll(() => ask('start'), { timeout: 20_000 }).toBe('ok');
  });

  inFull('fails with EAGAIN while no further process is allowed, and succeeds later', async () => {
    const { pid, ask } = await starved();
    const prlimit = (...words: readonly string[]): string => {
      const { status, stdout, stderr } = spawnSync('prlimit', ['--pid', `${pid}`, ...words], {
        encoding: 'utf8',
        ...OTHER_USER,
      });
      expect([status, stderr]).toEqual([0, '']);
      return stdout.trim();
    };
    const most = prlimit('--nproc', '--output=HARD', '--noheadings');
    prlimit('--nproc=1:');
    expect(await ask('start')).toMatch(
      /^SERVER_UNAVAILABLE: Server "poor" did not start: it could not be started \(EAGAIN\)\.$/,
    );
    prlimit(`--nproc=${most}:`);
    await expect.poll(() => ask('start'), { timeout: 20_000 }).toBe('ok');
  });

  it('fails with EACCES if the file is not a program, and other servers keep working', async () => {
    const file = path.join(temporaryFolder(), 'plain');
    writeFileSync(file, 'x');
    chmodSync(file, 0o644);
    const pool = new ServerPool({ servers: 2, connections: 2 }, { host: HOST, onStderr: () => undefined, grace: FAST });
    pools.push(pool);
    const [plain, good] = [
      pool.add(chaos('ok', { name: 'plain', command: file, args: [] })),
      pool.add(chaos('ok', { name: 'good' })),
    ];
    expect(await refusalOf(plain.start())).toMatch(
      /^INIT_FAILED: Server "plain" did not start: it could not be started \(EACCES\)\./,
    );
    expect(await codeOf(plain.call(callOf('echo')))).toBe('SERVER_UNAVAILABLE');
    expect(await textOf(good, callOf('echo', { n: 1 }))).toBe('{"n":1}');
  });
});

describe('a server that floods its output', () => {
  it.each([
    ['junk in lines on stdout', { to: 'stdout', lines: true }],
    ['one line without an end on stdout', { to: 'stdout', lines: false }],
    ['lines on stderr', { to: 'stderr', lines: true }],
    ['one line without an end on stderr', { to: 'stderr', lines: false }],
  ])('does not block its neighbour, or fill the memory or the log: %s' + verifies('HE-07'), async (_what, args) => {
    const { pool, server, stderr } = serve(chaos('ok', { name: 'gusher', args: [path.join(FIXTURES, 'gusher.mjs')] }));
    pools.push(pool);
    const calm = pool.add(chaos('ok', { name: 'calm' }));
    await Promise.all([server.start(), calm.start()]);
    const before = process.memoryUsage().rss;
    const cancel = new AbortController();
    const flood = codeOf(
      server.call(callOf('gush', args, { signal: cancel.signal, timeoutMs: 60_000, hardTimeoutMs: 60_000 })),
    );
    for (let n = 0; n < roundsOf(50, 15); n++) expect(await textOf(calm, callOf('echo', { n }))).toBe(`{"n":${n}}`);
    // The line over the limit of 64 MiB is skipped, and gathered in a block that doubles until then.
    expect(process.memoryUsage().rss - before).toBeLessThan(256 * 1024 * 1024);
    expect(stderr.join('').length).toBeLessThan(3 * 1024 * 1024);
    cancel.abort();
    expect(await flood).toBe('CANCELLED');
    // The end of the endless line may be taken for the answer to the only call that is open.
    await expect.poll(() => textOf(server, callOf('echo')).catch(() => ''), { timeout: 20_000 }).toBe('echo');
  });
});

describe('bytes that arrive one by one, with pauses', () => {
  it('still form one answer', async () => {
    const { pool, server } = serve(chaos());
    pools.push(pool);
    expect(await textOf(server, callOf('bytes', { text: 'é∀ and more' }))).toBe('{"text":"é∀ and more"}');
  });
});

describe('a call whose answer, cancellation, timeout and end of the server race', () => {
  it('ends once, whatever comes first, and the server hears of a cancellation at most once', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.scheduler(),
        fc.subarray(['answer', 'error', 'cancel', 'again', 'end', 'progress'] as const, { minLength: 1 }),
        async (scheduler, happenings) => {
          const sent: { method?: string; params?: { requestId?: number } }[] = [];
          const peer = new Peer(
            { send: (text) => void sent.push(JSON.parse(text) as (typeof sent)[number]), backlog: () => 0 },
            { onToolsChanged: () => undefined, onDropped: () => undefined },
          );
          const receive = (message: object): void =>
            peer.receive(readMessage(Buffer.from(JSON.stringify({ jsonrpc: '2.0', ...message })), 'server'));
          const cancel = new AbortController();
          const ends: string[] = [];
          const call = peer.request({
            method: 'tools/call',
            params: () => '{}',
            timeoutMs: 5000,
            hardTimeoutMs: 5000,
            signal: cancel.signal,
            onProgress: () => undefined,
          });
          const done = call.then(
            () => void ends.push('answer'),
            (thrown: unknown) => void ends.push(thrown instanceof TollgateError ? thrown.code : 'error'),
          );
          const id = 1;
          const order: string[] = [];
          const acts = {
            answer: () => receive({ id, result: {} }),
            again: () => receive({ id, result: {} }),
            error: () => receive({ id, error: { code: 1, message: 'x' } }),
            cancel: () => cancel.abort(),
            end: () => peer.end(new TollgateError('TOOL_CRASHED')),
            progress: () => receive({ method: 'notifications/progress', params: { progressToken: id, progress: 1 } }),
          };
          for (const what of happenings) {
            void scheduler.schedule(Promise.resolve(what), what).then(() => {
              order.push(what);
              acts[what]();
            });
          }
          await scheduler.waitAll();
          peer.end(new TollgateError('TOOL_CRASHED'));
          await done;
          expect(ends).toHaveLength(1);
          const first = order.find((what) => what !== 'progress') ?? 'end';
          expect(ends[0]).toBe(
            { answer: 'answer', again: 'answer', error: 'error', cancel: 'CANCELLED', end: 'TOOL_CRASHED' }[
              first as 'answer'
            ],
          );
          expect(sent.filter(({ method }) => method === 'notifications/cancelled')).toHaveLength(
            first === 'cancel' ? 1 : 0,
          );
          expect(peer.inFlight).toBe(0);
        },
      ),
      { numRuns: roundsOf(200, 80) },
    );
  });
});
