/** Tests undo out of order, with a configuration that broke meanwhile, and as root in a project of another user. */
import { chownSync, readdirSync, statSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { EXIT } from '../../facade/cli/command-io.ts';
import { loadConfig } from '../../facade/config/load-config.ts';
import { approveAll } from '../consent/approve-servers.ts';
import { verifies } from '../verifies.ts';
import { atHome, type Home } from './home.ts';

const FILE = 'project/.cursor/mcp.json';
const SERVER = '{"mcpServers": {"one": {"command": "node", "args": ["one.js"]}}}';
const USER = 12_345;

/** Imports the servers of the project's file as copies, then moves them behind Tollgate. */
async function moved(home: Home): Promise<void> {
  home.write(FILE, SERVER);
  expect((await home.run(['import', '.cursor/mcp.json', '--copy', '--yes'])).code).toBe(EXIT.ok);
  expect(
    (await home.run(['export', '--client', 'cursor', '--file', '.cursor/mcp.json', '--replace', '--yes'])).code,
  ).toBe(EXIT.ok);
  expect(home.read(FILE)).not.toContain('one.js');
}

describe('--undo' + verifies('PF-11'), () => {
  it("refuses to undo an import if a later export removed its servers from a client's file", async () => {
    await atHome([], async (home) => {
      const before = home.snapshot();
      await moved(home);
      const later = home.snapshot();
      const { code, err } = await home.run(['import', '--undo']);
      expect([code, err]).toEqual([
        EXIT.usage,
        expect.stringContaining(
          'because Tollgate has them: one. Without the import they would be lost.\n' +
            'Restore them there first: tollgate export --undo\n',
        ),
      ]);
      expect(home.snapshot()).toEqual(later);
      expect((await home.run(['export', '--undo'])).code).toBe(EXIT.ok);
      expect(home.read(FILE)).toBe(SERVER);
      expect((await home.run(['import', '--undo'])).code).toBe(EXIT.ok);
      expect(Object.keys(home.snapshot())).toEqual([...Object.keys(before), FILE].sort());
      expect(home.exists('project/servers')).toBe(false);
    });
  });

  it('needs only the backups: import and export can be undone with a refused configuration', async () => {
    await atHome([], async (home) => {
      await moved(home);
      const text = home.read('project/tollgate.yaml');
      home.write('project/tollgate.yaml', `${text}profiles: {default: {servers: [gone]}}\n`);
      expect((await home.run(['export', '--undo'])).code).toBe(EXIT.ok);
      expect((await home.run(['import', '--undo'])).code).toBe(EXIT.ok);
      expect([home.read(FILE), home.exists('project/servers')]).toEqual([SERVER, false]);
    });
  });

  it('says what to correct if the state folder is not known', async () => {
    await atHome([], async (home) => {
      home.write('project/tollgate.yaml', 'version: 1\nstate: ${NO_SUCH}/x\n');
      expect(await home.run(['import', '--undo'])).toMatchObject({
        code: EXIT.usage,
        err: expect.stringContaining('Correct the line `state`') as string,
      });
    });
  });

  it('revokes the consent to imported servers, and keeps the consent to others', async () => {
    await atHome([], async (home) => {
      const config = () => loadConfig(home.project.file, { env: home.env, home: home.project.home });
      home.write(FILE, SERVER);
      home.write('project/servers/other.yaml', 'command: node\n');
      await home.run(['import', '.cursor/mcp.json', '--copy', '--yes']);
      await approveAll(config(), ['one', 'other']);
      expect((await home.run(['import', '--undo'])).err).toMatch(
        /^Restored: servers\/one\.yaml\. No longer approved: one\.\nNo owner has accepted this configuration yet/,
      );
      expect(readdirSync(home.file('project/servers'))).toEqual(['other.yaml']);
      expect((await home.run(['audit', 'list', '--type', 'consent', '--json'])).out).toContain('"revoked"');
    });
  });

  it('keeps the owner of the files if root imports and undoes in a project of another user', async () => {
    await atHome([], async (home) => {
      home.write(FILE, SERVER);
      const owned = [home.file('project'), path.dirname(home.file(FILE)), home.file(FILE), home.project.file];
      for (const one of owned) chownSync(one, USER, USER);
      await home.run(['import', '.cursor/mcp.json', '--copy', '--yes']);
      const { code, err } = await home.run([
        'export',
        '--client',
        'cursor',
        '--file',
        '.cursor/mcp.json',
        '--replace',
        '--yes',
      ]);
      expect([code, err]).toEqual([EXIT.ok, expect.stringContaining('Written.')]);
      const owners = [...owned, home.file('project/servers'), home.file('project/servers/one.yaml')].map(
        (one) => statSync(one).uid,
      );
      expect(new Set(owners)).toEqual(new Set([USER]));
      for (const command of ['export', 'import']) expect((await home.run([command, '--undo'])).code).toBe(EXIT.ok);
      expect([statSync(home.file(FILE)).uid, home.read(FILE)]).toEqual([USER, SERVER]);
    });
  });
});
