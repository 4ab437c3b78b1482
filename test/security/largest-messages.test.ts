/**
 * Tests the largest legal messages and files, through the program with a real stdio server. No turn of the event loop
 * comes near the limit of the watchdog, and other calls are answered, even with sixteen such messages at the same time
 * (`npm run test:all`; `npm test` sends two).
 * With TOLLGATE_FIGURES set, it prints the longest turn of the main thread, for docs/performance.md.
 * Covers: facade/call, facade/serve.
 */

import { readFileSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { limitNow, THREE_ATTEMPTS } from '../bench/growth.ts';
import { server } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { partOf, RUNS_ALL, roundsOf } from '../harness/slices.ts';
import { Child, type Reply } from '../process/child.ts';
import { verifies } from '../verifies.ts';

const PRELOAD = path.join(import.meta.dirname, '..', 'fixtures', 'turns.mjs');
/** Half of what the watchdog allows to a stopping process (decision 46), ms of processor time. */
const LIMIT_MS = 1_000;
const MIB = 1_048_576;
const TIMEOUT_MS = 240_000;
const CONFIG = `version: 1
workspace: ./workspace
state: ./state
servers: {chaos: ${server(['chaos.mjs'], 'timeoutMs: 120000')}}
profiles: {default: {servers: [chaos], expose: {primitives: workspace, tools: ["chaos.*"]}}}
principals: [{id: agent, stdio: true}]
caps: {argBytes: 4194400}
rules:
  - {id: rest, outcome: allow, when: {}}
  - {id: bound, outcome: deny, when: {tools: [chaos.echo], args: {k7: {min: 1000000}}}}
`;

let project: Project;
let child: Child;
let turns: string;

const textOf = ({ result }: Reply): string => (result?.content ?? []).map(({ text }) => text ?? '').join('\n');
const codeOf = ({ result, error }: Reply): unknown => error?.data?.code ?? result?._meta?.['tollgate/code'];

/** Makes calls, with other calls next to them and after them. Returns the replies when all are answered. */
async function amongOthers(name: string, args: unknown, times = 1): Promise<readonly Reply[]> {
  const large = Array.from({ length: times }, () => child.call(name, args));
  const others = Array.from({ length: 5 }, (_, at) => child.call('chaos_echo', { token: `other-${at}` }));
  for (const [at, reply] of (await Promise.all(others)).entries()) expect(textOf(reply)).toContain(`other-${at}`);
  const replies = await Promise.all(large);
  expect(textOf(await child.call('chaos_echo', { token: 'after' }))).toContain('after');
  expect(child.process.exitCode).toBeNull();
  expect(child.process.signalCode).toBeNull();
  return replies;
}

/** Starts a new process with these files for each test, because the preload measures from its start. */
async function start(files: Readonly<Record<string, string>> = {}): Promise<void> {
  for (const [name, text] of Object.entries(files)) project.write(`workspace/${name}`, text);
  child = new Child(project, ['run'], {
    env: { NODE_OPTIONS: `--import ${pathToFileURL(PRELOAD).href}`, TOLLGATE_TEST_TURNS: turns },
  });
  await child.hello();
  await child.call('chaos_echo', { token: 'x' });
}

/**
 * Returns the rows that share a process, with their names. In `npm test` all do, because a start takes longer than a
 * row.
 */
function together<T extends readonly [string, ...unknown[]]>(
  rows: readonly T[],
): readonly { readonly what: string; readonly rows: readonly T[] }[] {
  return (RUNS_ALL ? rows.map((row) => [row]) : [rows]).map((some) => ({
    what: some.map(([name]) => name).join('; '),
    rows: some,
  }));
}

function expectShortTurns(what: string): void {
  const ms = Number(readFileSync(turns, 'latin1'));
  if (process.env.TOLLGATE_FIGURES !== undefined)
    process.stdout.write(`${what}: longest turn ${ms} ms of processor time\n`);
  expect(ms).toBeGreaterThan(0);
  expect(ms).toBeLessThan(limitNow(ms, LIMIT_MS));
}

beforeEach(async () => {
  project = new Project();
  turns = path.join(project.folder, 'turns');
  project.write('workspace/README.md', '# Hello\n');
  project.write('tollgate.yaml', CONFIG);
  await project.approve();
});
afterEach(async () => {
  await child.kill('SIGKILL');
  project.remove();
});

describe.skipIf(process.platform !== 'linux')(
  'a facade with the largest legal messages and files' + verifies('TR-44'),
  { ...THREE_ATTEMPTS, timeout: TIMEOUT_MS },
  () => {
    const results: readonly (readonly [string, unknown, number])[] = [
      ['keys', { keys: 240_000 }, 1],
      ['plain text', { unit: 'x', bytes: 15.9 * MIB }, 1],
      ['control characters', { unit: '\u0001', bytes: 1_990_000 }, 1],
      ['newlines', { unit: '\n', bytes: 7.9 * MIB }, 1],
      [`newlines, ${roundsOf(8, 2)} at once`, { unit: '\n', bytes: 7.9 * MIB }, roundsOf(8, 2)],
    ];
    inFull.each(together(partOf(results, 3)))('cuts and spills a result: $what', async ({ what, rows }) => {
      await start();
      for (const [, args, times] of rows)
        for (const reply of await amongOthers('chaos_big', args, times)) {
          expect(codeOf(reply)).toBeUndefined();
          expect(textOf(reply).length).toBeLessThan(100_000);
          expect(textOf(reply)).toContain('spill://');
        }
      expectShortTurns(`result of ${what}`);
    });

    const many = roundsOf(16, 2);
    const files: readonly (readonly [string, string, Readonly<Record<string, unknown>>, number])[] = [
      [`read of one line, ${many} at once`, 'read', { path: 'line' }, many],
      [`read of newlines, ${many} at once`, 'read', { path: 'newlines', offset: -5 }, many],
      [
        `search of newlines, ${roundsOf(4, 1)} at once`,
        'read',
        { path: 'searched', action: 'search', pattern: 'b' },
        roundsOf(4, 1),
      ],
      [
        `edit of a million places, ${many} at once`,
        'edit',
        { path: 'newlines', old_string: '\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n', new_string: 'c', replace_all: true },
        many,
      ],
      [
        `edit that finds nothing, ${many} at once`,
        'edit',
        { path: 'newlines', old_string: `${'\n'.repeat(500_000)}x`, new_string: 'c' },
        many,
      ],
    ];
    inFull.each(together(files))('lets other work run: $what', async ({ what, rows }) => {
      const newlines = '\n'.repeat(16 * MIB);
      await start({ line: 'x'.repeat(16 * MIB), newlines, searched: newlines.slice(0, roundsOf(16, 2) * MIB) });
      for (const [, tool, args, times] of rows)
        for (const reply of await amongOthers(tool, args, times)) expect(codeOf(reply)).not.toBe('INTERNAL');
      expectShortTurns(what);
    });

    it('makes a call with arguments of 4 MiB', async () => {
      await start();
      const [reply] = await amongOthers('chaos_echo', { text: 'x\n'.repeat(1_398_090) });
      expect(reply?.error).toBeUndefined();
      expect(textOf(reply as Reply)).toContain('spill://');
      expectShortTurns('arguments of 4 MiB');
    });

    const large: readonly (readonly [string, Readonly<Record<string, unknown>>])[] = [
      ['keys', Object.fromEntries(Array.from({ length: 60_000 }, (_, at) => [`k${at}`, at]))],
      ['numbers', { l: Array.from({ length: 240_000 }, () => 1) }],
      ['escapes', { text: JSON.stringify('"'.repeat(250_000)) }],
    ];
    inFull.each(together(large))('lets a rule read the arguments: $what', async ({ what, rows }) => {
      await start();
      for (const [, args] of rows) {
        const [reply] = await amongOthers('chaos_echo', args);
        // The policy may refuse to judge them (input over 256 KiB), but it must not block other calls.
        expect([undefined, 'POLICY_FAILED']).toContain(codeOf(reply as Reply));
      }
      expectShortTurns(`arguments of ${what}`);
    });

    inFull(
      'refuses a client that sends 16 MiB at the size of arguments, and one that sends more at the size of messages',
      async () => {
        await start();
        const [reply] = await amongOthers('chaos_echo', { text: '\n'.repeat(7.9 * MIB) });
        expect(codeOf(reply as Reply)).toBe('ARGS_INVALID');
        expectShortTurns('message of 16 MiB from a client');
        expect(codeOf(await child.call('chaos_echo', { text: 'x'.repeat(17 * MIB) }))).toBe('WIRE_SIZE');
      },
    );

    inFull(
      'refuses a result of more than 16 MiB or 250,000 values, and keeps the last large message of a server',
      async () => {
        await start();
        expect(codeOf(await child.call('chaos_big', { unit: 'x', bytes: 17 * MIB }))).toBe('UPSTREAM_TOO_LARGE');
        expect(codeOf(await child.call('chaos_big', { keys: 260_000 }))).toBe('UPSTREAM_TOO_LARGE');
        expect(textOf(await child.call('chaos_last', { bytes: 8 * MIB }))).toMatch(/^last words/);
      },
    );

    inFull(`ends in order after SIGTERM while ${roundsOf(8, 3)} of them run`, async () => {
      await start();
      const calls = Array.from({ length: roundsOf(8, 3) }, () =>
        child.call('chaos_big', { unit: '\n', bytes: 7.9 * MIB }),
      );
      await Promise.race(calls);
      child.process.kill('SIGTERM');
      expect(await child.ended).toEqual({ code: 0, signal: null });
      await Promise.allSettled(calls);
    });
  },
);
