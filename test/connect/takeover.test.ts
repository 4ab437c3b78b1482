/**
 * Tests that `connect` replaces a server that import has added with the installed package, and that undo restores it.
 */
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { loadKnown } from '../../catalogs/servers/known-server.ts';
import { EXIT } from '../../facade/cli/command-io.ts';
import { loadConfig } from '../../facade/config/load-config.ts';
import { verifies } from '../verifies.ts';
import { filesIn, Place } from './place.ts';

let place: Place;

beforeEach(() => {
  place = new Place();
  place.fakeNpm(loadKnown('memory'));
  place.project.write(
    '.mcp.json',
    `{"mcpServers": {
  "memory": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory"]},
  "fs": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem@1.0.0", "/srv/data"]},
  "own": {"command": "node", "args": ["own.js"]}
}}`,
  );
});
afterEach(() => place.project.remove());

const project = (): unknown => [...filesIn(place.project.folder)].sort();
const args = (name: string): readonly string[] =>
  loadConfig(place.file, { env: {}, home: place.project.home }).servers.get(name)?.args ?? [];

describe('a server that import has added' + verifies('PF-11'), () => {
  it.each([
    ['copied', ['--copy', '--only', 'memory,own'], 'servers/memory.yaml'],
    ['included', [], '.mcp.json'],
  ])(
    'keeps its name if it was %s, when connect replaces it by the same package, and undo restores it',
    async (_name, more, source) => {
      const isCopy = more.length > 0;
      const { err: advice } = await place.run(['import', '--all', ...more, '--yes']);
      const next = isCopy
        ? 'approve memory'
        : 'connect memory\n  tollgate connect filesystem --name fs --set folder=/srv/data';
      expect(advice).toContain(`Next:\n  tollgate ${next}\n  tollgate approve own\n`);
      const before = project();
      const started = args('memory');
      const { err: preview } = await place.run(['connect', 'memory', '--dry-run']);
      expect(preview).toContain(`replaces memory from ${source}, the same package; undoing restores that`);
      expect(project()).toEqual(before);
      expect((await place.run(['connect', 'memory', '--yes'])).code).toBe(EXIT.approval);
      expect(args('memory')).toEqual([expect.stringContaining('/packages/memory/')]);
      expect((await place.run(['connect', 'memory', '--yes'])).code).toBe(EXIT.approval);
      expect((await place.run(['connect', '--undo', 'memory'])).code).toBe(EXIT.ok);
      expect([project(), args('memory')]).toEqual([before, started]);
      // The package of a copy is still there.
      expect(existsSync(path.join(place.state, 'packages', 'memory'))).toBe(isCopy);
      expect(existsSync(path.join(place.state, 'connected'))).toBe(false);
    },
  );

  it('keeps its settings in tollgate.yaml', async () => {
    await place.run(['import', '--all', '--yes']);
    const text = readFileSync(place.file, 'utf8');
    place.project.write('tollgate.yaml', text.replace(/(memory:\n\s+)(profiles:)/, '$1timeoutMs: 5000\n    $2'));
    await place.run(['connect', 'memory', '--yes']);
    const memory = loadConfig(place.file, { env: {}, home: place.project.home }).servers.get('memory');
    expect(memory).toMatchObject({
      command: 'node',
      timeoutMs: 5000,
      labels: ['internal'],
      source: 'servers/memory.yaml',
    });
  });

  it.each([
    ['copied', ['--copy']],
    ['included', []],
  ])('is not replaced if it was %s and runs something else', async (_name, more) => {
    place.project.write(
      '.mcp.json',
      more.length > 0
        ? '{"mcpServers": {"memory": {"command": "node", "args": ["another-memory.js"]}}}'
        : '{"mcpServers": {"memory": {"command": "npx", "args": ["-y", "another-memory"]}}}',
    );
    await place.run(['import', '--all', ...more, '--yes']);
    const before = project();
    expect(await place.run(['connect', 'memory', '--yes'])).toMatchObject({
      code: EXIT.usage,
      err: expect.stringContaining('another name with --name') as string,
    });
    expect(project()).toEqual(before);
  });
});
