/** Tests undo after later edits, per client, and that backups show no key. */

import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { EXIT } from '../../facade/cli/command-io.ts';
import { listBackups } from '../../facade/clients/changes/backups.ts';
import { mergeLines, restoreText } from '../../facade/clients/changes/three-way-restore.ts';
import { changeServers } from '../../facade/clients/client-file-edit.ts';
import { clientOf } from '../../facade/clients/client-formats.ts';
import { loadConfig } from '../../facade/config/load-config.ts';
import { inFull } from '../harness/full-tests.ts';
import { verifies } from '../verifies.ts';
import { atHome, type Home } from './home.ts';

const CURSOR = '.cursor/mcp.json';
const VSCODE = '.config/Code/User/mcp.json';
const KEY = 'sk-proj-Zx81kPq02LmVt77';

const cursorText = `{
  // mine
  "mcpServers": {
    "one": {"command": "node", "args": ["one.js"], "env": {"API_KEY": "${KEY}"}},
    "two": {
      "command": "node",
      "args": ["two.js"]
    }
  }
}
`;
const vscodeText =
  '{\r\n\t"servers": {\r\n\t\t"three": {"type": "stdio", "command": "node", "args": ["3.js"]}\r\n\t}\r\n}\r\n';

/** Moves the servers of two clients behind Tollgate, Cursor first. */
async function moveBoth(home: Home): Promise<void> {
  home.write(CURSOR, cursorText);
  home.write(VSCODE, vscodeText);
  for (const client of ['cursor', 'vscode']) {
    const words = ['export', '--client', client, '--user', '--replace', '--secrets', 'vault', '--yes'];
    expect((await home.run(words)).code).toBe(EXIT.ok);
  }
  expect(home.read(CURSOR) + home.read(VSCODE)).not.toMatch(/one\.js|two\.js|3\.js/);
}

const undo = (home: Home, ...words: string[]) => home.run(['export', '--undo', ...words]);

describe('undo of one client' + verifies('FH-05'), () => {
  inFull('restores the bytes in any order', async () => {
    await atHome([], async (home) => {
      await moveBoth(home);
      expect((await undo(home, '--client', 'cursor')).code).toBe(EXIT.ok);
      expect(home.read(CURSOR)).toBe(cursorText);
      expect(home.read(VSCODE)).not.toBe(vscodeText);
      expect((await undo(home, '--client', 'cursor')).err).toContain('nothing to undo for export of cursor');
      expect((await undo(home, '--client', 'vscode')).code).toBe(EXIT.ok);
      expect(home.read(VSCODE)).toBe(vscodeText);
    });
  });

  it('keeps the edits of others in the same file and in tollgate.yaml', async () => {
    await atHome([], async (home) => {
      await moveBoth(home);
      const edited = JSON.parse(home.read(CURSOR).replace('// mine', '')) as { mcpServers: Record<string, unknown> };
      home.write(
        CURSOR,
        JSON.stringify({
          ...edited,
          mcpServers: { ...edited.mcpServers, new: { url: 'https://n.example' } },
          theme: 'dark',
        }),
      );
      home.write('project/tollgate.yaml', `# more\n${home.read('project/tollgate.yaml')}`);
      expect((await undo(home, '--client', 'cursor')).code).toBe(EXIT.ok);
      expect(JSON.parse(home.read(CURSOR))).toEqual({
        mcpServers: {
          new: { url: 'https://n.example' },
          one: { command: 'node', args: ['one.js'], env: { API_KEY: KEY } },
          two: { command: 'node', args: ['two.js'] },
        },
        theme: 'dark',
      });
      expect(home.read('project/tollgate.yaml')).toContain('# more');
    });
  });

  it('refuses a file that only a person can restore, and changes nothing', async () => {
    await atHome([], async (home) => {
      await moveBoth(home);
      home.write(CURSOR, '{"mcpServers": not json');
      const before = home.snapshot();
      expect(await undo(home, '--client', 'cursor')).toMatchObject({
        code: EXIT.usage,
        err: expect.stringContaining('undoing would lose that change') as string,
      });
      expect(home.snapshot()).toEqual(before);
    });
  });
});

it('seals what backups keep of the files' + verifies('FH-06'), async () => {
  await atHome([], async (home) => {
    await moveBoth(home);
    const { state } = loadConfig(home.file('project/tollgate.yaml'), { env: home.env, home: home.project.home });
    const texts = listBackups(state).map(({ file }) => readFileSync(file, 'utf8'));
    expect(texts).toHaveLength(2);
    for (const text of texts) expect(text).not.toMatch(/Zx81kPq02|one\.js|3\.js/);
    home.write(`${state.slice(home.project.home.length + 1)}/vault.key`, `${Buffer.alloc(32).toString('base64')}\n`);
    expect(await undo(home)).toMatchObject({
      code: EXIT.unexpected,
      err: expect.stringContaining('cannot be opened with the key of the vault') as string,
    });
    expect(home.read(CURSOR)).not.toContain('one.js');
  });
});

const name = fc.constantFrom('a', 'b', 'c', 'd', 'e');
const server = fc.record({
  command: fc.constantFrom('node', 'x'),
  args: fc.array(fc.constantFrom('1', '2'), { maxLength: 2 }),
});
const servers = fc.dictionary(name, server, { noNullPrototype: true });
const spacing = fc.constantFrom(undefined, 1, '\t');

describe('restoring a text' + verifies('FH-05'), () => {
  const cursor = clientOf('cursor');
  if (cursor === undefined) throw new Error('no format');
  const own = { add: { name: 'tollgate', value: { command: 'tollgate', args: ['run'] } } };

  it('brings back what was removed, removes what was added, and keeps every other edit', () => {
    fc.assert(
      fc.property(servers, servers, spacing, spacing, fc.boolean(), (old, foreign, style, theirs, keeps) => {
        const before = JSON.stringify({ mcpServers: old, other: [1] }, null, style);
        const after = changeServers(before, cursor, {
          ...own,
          remove: Object.keys(old).map((key) => ['mcpServers', key]),
        });
        const ours = JSON.parse(after) as { mcpServers: Record<string, unknown> };
        const rest = keeps ? ours.mcpServers : {};
        const current = JSON.stringify({ ...ours, mcpServers: { ...rest, ...foreign }, more: true }, null, theirs);
        const restored = restoreText({ before, after, current }, cursor);
        expect(restored).toBeDefined();
        // A server that someone has added again meanwhile is theirs.
        expect(JSON.parse(restored ?? '')).toEqual({ mcpServers: { ...old, ...foreign }, other: [1], more: true });
      }),
      { numRuns: 100 },
    );
  });

  it('restores the bytes if no one has edited the file, whatever it was', () => {
    fc.assert(
      fc.property(fc.string(), fc.string(), (before, after) => {
        expect(restoreText({ before, after, current: after }, cursor)).toBe(before);
      }),
    );
  });
});

it('merges long files without comparing each line with each other', () => {
  const lines = 'same\n'.repeat(20_000);
  const merge = (first: string, end: string): boolean =>
    mergeLines({
      before: `${first.toLowerCase()}${lines}b\nd\n`,
      after: `${first}${lines}B\nd\n`,
      current: `${first}${lines}B\nd\n${end}`,
    }) === `${first.toLowerCase()}${lines}b\nd\n${end}`;
  expect([merge('', 'c\n'), merge('A\n', 'c\n')]).toEqual([true, false]);
});
