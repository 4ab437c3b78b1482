/**
 * Tests real third-party servers, everything and filesystem, each with its own HOME.
 * Covers: adapters/stdio.
 */
import { mkdirSync, readFileSync, realpathSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { verifies } from '../verifies.ts';
import { type Bench, callOf, chaos, codeOf, serve, temporaryFolder, textOf } from './misbehaving-server.ts';

const MODULES = resolve(import.meta.dirname, '../servers/node_modules/@modelcontextprotocol');
const folder = realpathSync(temporaryFolder());
let everything: Bench;
let filesystem: Bench;

function start(name: string, args: readonly string[]): Bench {
  const home = temporaryFolder();
  return serve(
    chaos('ok', {
      name,
      args: [join(MODULES, `server-${name}/dist/index.js`), ...args],
      env: { HOME: home },
      cwd: home,
      connectTimeoutMs: 20_000,
    }),
  );
}

beforeAll(() => {
  everything = start('everything', []);
  filesystem = start('filesystem', [folder]);
});
afterAll(async () => {
  await Promise.all([everything, filesystem].map(({ pool }) => pool.stopAll()));
});

it('server-everything and server-filesystem start in parallel' + verifies('HA-05'), async () => {
  const infos = await Promise.all([everything, filesystem].map(({ server }) => server.start()));
  expect(infos.every((info) => info.protocolVersion === '2025-11-25')).toBe(true);
});

describe('server-everything', () => {
  it('lists tools with their schemas, answers calls and reports progress' + verifies('HA-27', 'HE-01'), async () => {
    const { server } = everything;
    const tools = await server.listTools();
    expect(tools.map((tool) => tool.name)).toContain('echo');
    expect(tools.find((tool) => tool.outputSchema !== undefined)?.name).toBe('get-structured-content');
    expect(await textOf(server, callOf('echo', { message: 'hällo' }))).toBe('Echo: hällo');
    const seen: unknown[] = [];
    await server.call(
      callOf(
        'trigger-long-running-operation',
        { duration: 1, steps: 4 },
        { onProgress: (params) => seen.push(params.progress) },
      ),
    );
    expect(seen).toEqual([1, 2, 3, 4]);
    const { value, text } = await server.call(callOf('get-structured-content', { location: 'Chicago' }));
    expect(value.structuredContent).toMatchObject({ temperature: expect.any(Number) as number });
    expect(JSON.parse(text)).toEqual(value);
    expect(server.health()).toMatchObject({ state: 'healthy', badLines: 0 });
  });

  it('answers wrong arguments with its own error, and can be cancelled', async () => {
    const { server } = everything;
    const wrong = await server.call(callOf('echo', {}));
    expect(wrong.value.isError).toBe(true);
    const controller = new AbortController();
    const long = codeOf(
      server.call(callOf('trigger-long-running-operation', { duration: 20, steps: 2 }, { signal: controller.signal })),
    );
    setTimeout(() => controller.abort(), 50);
    expect(await long).toBe('CANCELLED');
    expect(await textOf(server, callOf('echo', { message: 'still here' }))).toBe('Echo: still here');
  });
});

describe('server-filesystem', () => {
  it('reads and writes only in its folder', async () => {
    mkdirSync(join(folder, 'sub'));
    writeFileSync(join(folder, 'sub/a.txt'), 'one\ntwo\n');
    const { server } = filesystem;
    expect((await server.listTools()).length).toBeGreaterThan(10);
    expect(await textOf(server, callOf('read_text_file', { path: join(folder, 'sub/a.txt') }))).toBe('one\ntwo\n');
    await server.call(callOf('write_file', { path: join(folder, 'b.txt'), content: 'drei' }));
    expect(readFileSync(join(folder, 'b.txt'), 'utf8')).toBe('drei');
    expect((await server.call(callOf('read_text_file', { path: '/etc/passwd' }))).value.isError).toBe(true);
  });
});
