/** Tests servers that try to exhaust the machine: their limits stop only them, and other servers keep working. */
import { chmodSync, chownSync, existsSync, mkdirSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Session } from '../../facade/serve/facade-port.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

const CHAOS = path.join(import.meta.dirname, '..', 'fixtures', 'chaos.mjs');
const LIMITS = '{memoryMb: 200, processes: 40, fileMb: 8, cpuSeconds: 2}';
let folder: string;
let one: TestFacade;
let session: Session;

// One facade for all: after each bomb, its server works again.
beforeAll(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'tollgate-bombs-'));
  mkdirSync(path.join(folder, 'workspace'));
  chmodSync(folder, 0o755);
  // Under root, servers run as the owner of the workspace, which must be another user.
  if (process.getuid?.() === 0) chownSync(path.join(folder, 'workspace'), 4711, 4711);
  const server = (more: string): string =>
    `{command: ${JSON.stringify(process.execPath)}, args: [${JSON.stringify(CHAOS)}], env: {CHAOS_BOMBS: "yes"}, ` +
    `isolation: sandbox, ${more}}`;
  one = await startFacade(
    `version: 1
workspace: ./workspace
state: ./state
servers:
  bomb: ${server(`sandbox: {filesystem: {allowWrite: [.]}, limits: ${LIMITS}}, timeoutMs: 15000, maxRetries: 10`)}
  calm: ${server('sandbox: {limits: {memoryMb: 200}}')}
principals: [{id: alice, stdio: true}]
profiles: {default: {servers: [bomb, calm], expose: {primitives: workspace, tools: ["bomb.*", "calm.*"]}}}
rules: [{id: all, outcome: allow, when: {}}]
`,
    { folder },
  );
  session = one.open('alice');
  await one.list(session);
  expect(Object.fromEntries(one.assembled.catalog.problems)).toEqual({});
});
afterAll(async () => {
  await one.close();
  rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
});

/** Calls the bomb. Checks that the other server answers meanwhile, and this one again afterwards. */
async function survives(tool: string, args: unknown): Promise<string> {
  const bomb = one.call(session, `bomb_${tool}`, args);
  expect((await one.call(session, 'calm_echo', { n: 1 })).text).toBe('{"n":1}');
  const { code, text } = await bomb;
  await expect
    .poll(async () => (await one.call(session, 'bomb_echo', { n: 2 })).text, { timeout: 20_000 })
    .toBe('{"n":2}');
  return code === '' ? text : code;
}

describe('a resource bomb in a sandbox' + verifies('HE-07'), () => {
  it('ends only its own server if it fills the memory', async () => {
    expect(await survives('memory', {})).toBe('TOOL_CRASHED');
  });

  it('is stopped by the limit of processes', async () => {
    expect(await survives('processes', {})).toMatch(/^stopped by E/);
  });

  it('is stopped by the limit of file size', async () => {
    const file = path.join(folder, 'workspace', 'bomb');
    expect(await survives('disk', { file })).toMatch(/^stopped by E(FBIG|NOSPC)$/);
    expect(existsSync(`${file}.full`)).toBe(false);
    expect(statSync(file).size).toBeLessThanOrEqual(8 * 1024 * 1024);
  });

  it('ends only its own server if it uses up the processor time', async () => {
    expect(await survives('processor', {})).toMatch(/^(TOOL_CRASHED|TOOL_TIMEOUT)$/);
  });
});
