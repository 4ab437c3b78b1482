/**
 * The largest legal messages through a real stdio server: the watchdog does not end the process, and others are answered.
 * With TOLLGATE_FIGURES set it prints the longest turn of the main thread; docs/performance.md keeps these figures.
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { server } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { Child, type Reply } from '../process/child.ts';
import { verifies } from '../verifies.ts';

const PRELOAD = path.join(import.meta.dirname, '..', 'fixtures', 'turns.mjs');
/** The limit of the watchdog (decision 46), in milliseconds of processor time. */
const LIMIT_MS = 5_000;
const TIMEOUT_MS = 240_000;
const CONFIG = `version: 1
workspace: ./workspace
state: ./state
servers: {chaos: ${server(['chaos.mjs'], 'timeoutMs: 120000')}}
profiles: {default: {servers: [chaos], expose: {primitives: workspace, tools: ["chaos.*"]}}}
principals: [{id: agent, stdio: true}]
caps: {argBytes: 4194400}
rules: [{id: rest, outcome: allow, when: {}}]
`;

let project: Project;
let child: Child;
let turns: string;

const textOf = ({ result }: Reply): string => (result?.content ?? []).map(({ text }) => text ?? '').join('\n');

/** Makes a call and other calls next to it. Returns its reply, after the others and the next call were answered. */
async function amongOthers(name: string, args: unknown): Promise<Reply> {
  const large = child.call(name, args);
  const others = Array.from({ length: 5 }, (_, at) => child.call('chaos_echo', { token: `other-${at}` }));
  for (const [at, reply] of (await Promise.all(others)).entries()) expect(textOf(reply)).toContain(`other-${at}`);
  const reply = await large;
  expect(textOf(await child.call('chaos_echo', { token: 'after' }))).toContain('after');
  expect(child.process.exitCode).toBeNull();
  expect(child.process.signalCode).toBeNull();
  return reply;
}

function expectShortTurns(what: string): void {
  const ms = Number(readFileSync(turns, 'latin1'));
  if (process.env['TOLLGATE_FIGURES'] !== undefined) process.stdout.write(`${what}: longest turn ${ms} ms of processor time\n`);
  expect(ms).toBeGreaterThan(0);
  expect(ms).toBeLessThan(LIMIT_MS);
}

beforeEach(async () => {
  project = new Project();
  turns = path.join(project.folder, 'turns');
  project.write('workspace/README.md', '# Hello\n');
  project.write('tollgate.yaml', CONFIG);
  await project.approve();
  child = new Child(project, ['run'], { env: { NODE_OPTIONS: `--import ${pathToFileURL(PRELOAD).href}`, TOLLGATE_TEST_TURNS: turns } });
  await child.hello();
  await child.call('chaos_echo', { token: 'x' });
});
afterEach(async () => {
  await child.kill('SIGKILL');
  project.remove();
});

describe.skipIf(process.platform !== 'linux')('the largest legal messages' + verifies('TR-44'), () => {
  const results: readonly (readonly [string, { unit: string; bytes: number }])[] = [
    ['newlines', { unit: '\n', bytes: 31 * 1_048_576 }],
    ['plain text', { unit: 'x', bytes: 62 * 1_048_576 }],
  ];
  it.each(results)('a result of 62 MiB is cut and kept, and the process goes on: %s', async (what, args) => {
    const reply = await amongOthers('chaos_big', args);
    expect(reply.result?.isError ?? false).toBe(false);
    expect(textOf(reply).length).toBeLessThan(40_000);
    expect(textOf(reply)).toContain('spill://');
    expectShortTurns(`result of 62 MiB, ${what}`);
  }, TIMEOUT_MS);

  it('arguments of 4 MiB are carried out, and the process goes on', async () => {
    const reply = await amongOthers('chaos_echo', { text: 'x\n'.repeat(1_398_090) });
    expect(reply.error).toBeUndefined();
    expect(textOf(reply)).toContain('spill://');
    expectShortTurns('arguments of 4 MiB');
  }, TIMEOUT_MS);
});
