/**
 * Tests the ready profile of DesktopCommander: what `connect` makes of it, with the real server in its sandbox. npm is
 * replaced by a link to the package that tests have installed.
 */

import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { parse } from 'yaml';
import { loadMapping } from '../../catalogs/primitives/primitive-mapping.ts';
import { loadKnown } from '../../catalogs/servers/known-server.ts';
import { type Answer, dataOf, type Running, start } from '../cli/terminal.ts';
import { inFull } from '../harness/full-tests.ts';
import { giveAway } from '../servers/system.ts';
import { verifies } from '../verifies.ts';
import { Place } from './place.ts';

const INSTALLED = path.join(import.meta.dirname, '..', 'servers', 'node_modules');
const known = loadKnown('desktop-commander');
let place: Place;
let running: Running | undefined;
let lastId = 1;

interface Connected {
  readonly approved: boolean;
  readonly data: { readonly start: { readonly hash: string }; readonly tools?: { readonly hash: string } };
  readonly reach: { readonly runs: readonly string[]; readonly asks: readonly string[] };
}

const connect = async (...words: string[]): Promise<Connected> => {
  const argv = ['connect', 'desktop-commander', '--yes', '--json', ...words];
  const answer: Answer = await place.run(argv);
  if (!answer.out.includes('"data"')) throw new Error(answer.err + answer.out);
  return dataOf<Connected>(answer.out);
};

/** Sends a request to `tollgate run`, and returns its result. */
async function ask(method: string, params: unknown): Promise<{ readonly [key: string]: unknown }> {
  lastId += 1;
  running?.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id: lastId, method, params })}\n`);
  const mine = (): string | undefined => lines.find((line) => line.includes(`"id":${lastId}`));
  await vi.waitUntil(mine, { timeout: 60_000 });
  const { result, error } = JSON.parse(mine() ?? '{}') as { result?: Record<string, unknown>; error?: unknown };
  return result ?? { error };
}
const call = async (name: string, args: unknown): Promise<string> =>
  JSON.stringify(await ask('tools/call', { name, arguments: args }));
const lines: string[] = [];
let done: Connected;

beforeAll(async () => {
  place = new Place();
  place.npm(
    `ln -s '${INSTALLED}' node_modules
printf '%s' '${JSON.stringify({ packages: { [`node_modules/${known.package?.name}`]: known.package } })}' > package-lock.json`,
  );
  const work = path.join(place.project.folder, 'work');
  writeFileSync(path.join(work, 'notes.txt'), 'the minutes of monday\n');
  writeFileSync(path.join(place.project.folder, 'private.txt'), 'not for the agent\n', { mode: 0o644 });
  giveAway(work);
  const first = await connect();
  const second = await connect('--approve', first.data.start.hash);
  done = await connect('--approve', first.data.start.hash, second.data.tools?.hash ?? '');
  running = start(place.project, ['run'], { env: place.env });
  running.wire.on('data', (chunk: Buffer) => lines.push(...chunk.toString('utf8').split('\n')));
  await ask('initialize', {
    protocolVersion: '2025-06-18',
    capabilities: {},
    clientInfo: { name: 'test', version: '1' },
  });
  running.stdin.write('{"jsonrpc":"2.0","method":"notifications/initialized"}\n');
}, 120_000);
afterAll(async () => {
  running?.stop();
  await running?.ended;
  // The link is removed first, so that removing the project does not follow it.
  rmSync(path.join(place.state, 'packages', 'desktop-commander', known.package?.version ?? '', 'node_modules'));
  place.project.remove();
});

describe('the ready profile of DesktopCommander' + verifies('CY-29'), () => {
  it('shows the tools that read, allows them, and nothing else', async () => {
    expect(done.approved).toBe(true);
    expect([...done.reach.runs].sort()).toEqual([...(known.tools ?? [])].sort());
    expect(done.reach.asks).toEqual([]);
    const { tools } = loadMapping('desktop-commander');
    for (const name of known.tools ?? []) expect(tools.get(name)?.verb, name).toBe('read');
    const listed = (await ask('tools/list', {})).tools as readonly { readonly name: string }[];
    expect(listed.map(({ name }) => name).filter((name) => name.startsWith('desktop-commander'))).toHaveLength(
      known.tools?.length ?? 0,
    );
    for (const name of ['write_file', 'start_process', 'set_config_value'])
      expect(await call(`desktop-commander_${name}`, {})).toMatch(/UNKNOWN_TOOL|Unknown tool|no tool/i);
  });

  inFull('reads and searches in the folder, and sees nothing outside of it', async () => {
    const work = path.join(place.project.folder, 'work');
    expect(await call('desktop-commander_read_file', { path: path.join(work, 'notes.txt') })).toContain(
      'the minutes of monday',
    );
    expect(await call('desktop-commander_list_directory', { path: work })).toContain('notes.txt');
    const outside = path.join(place.project.folder, 'private.txt');
    expect(existsSync(outside)).toBe(true);
    expect(await call('desktop-commander_read_file', { path: outside })).not.toContain('not for the agent');
    expect(
      await call('desktop-commander_read_file', { path: 'https://registry.npmjs.org/', isUrl: true }),
    ).not.toContain('<html');
  });

  it('gives a read-only folder, no network, and turns telemetry off; it relies on no list of the server', () => {
    const file = parse(
      readFileSync(path.join(place.project.folder, 'servers', 'desktop-commander.yaml'), 'utf8'),
    ) as Record<string, unknown>;
    expect(file).toMatchObject({
      env: { DESKTOP_COMMANDER_DISABLE_TELEMETRY: 'true' },
      sandbox: { filesystem: { allowRead: ['${workspaceFolder}'] } },
      tools: { allow: known.tools },
      mapping: 'desktop-commander',
    });
    expect(JSON.stringify(file)).not.toMatch(/allowWrite|allowedDomains|blockedCommands|allowedDirectories|isolation/);
  });
});
