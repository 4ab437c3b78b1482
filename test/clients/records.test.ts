/** Tests the audit records of setup changes: names and user, never a value or path; without a record no change. */
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { EXIT } from '../../facade/cli/command-io.ts';
import { start } from '../cli/terminal.ts';
import { acceptNow } from '../stories/accept-configuration.ts';
import { verifies } from '../verifies.ts';
import { atHome, type Home } from './home.ts';
import { VALUES } from './samples.ts';

interface Setup {
  readonly event: string;
  readonly by: string;
  readonly clients?: readonly string[];
  readonly servers?: readonly string[];
  readonly secrets?: readonly string[];
}

async function setups(home: Home): Promise<readonly Setup[]> {
  const { out } = await home.run(['audit', 'export', '--type', 'setup']);
  for (const value of [...VALUES, 'sesame', home.project.home]) expect(out).not.toContain(value);
  return out
    .trim()
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Setup);
}

async function pipe(home: Home, words: readonly string[], value: string): Promise<number> {
  const running = start(home.project, words, { env: home.env });
  running.stdin.end(value);
  return (await running.ended).code;
}

describe('the audit records of a setup', () => {
  it(
    'name the user, clients, servers and secrets of an import, an export and their undo' + verifies('PF-09', 'PF-04'),
    async () => {
      await atHome(['cursor', 'zed'], async (home) => {
        expect((await home.run(['import', '--all', '--copy', '--secrets', 'vault', '--dry-run'])).code).toBe(EXIT.ok);
        expect(await setups(home)).toEqual([]);
        await home.run(['import', '--all', '--copy', '--secrets', 'vault', '--yes']);
        await home.run(['import', '--undo']);
        await home.run(['export', '--client', 'zed', '--yes']);
        await home.run(['export', '--undo']);
        // The configuration is in the workspace, so what a command writes is accepted, and that is recorded too.
        const [imported, undone, exported, taken, ...rest] = (await setups(home)).filter(
          ({ event }) => event !== 'configuration-accepted',
        );
        expect(imported).toMatchObject({ event: 'imported', outcome: 'allow', by: 'somebody' });
        expect([...(imported?.clients ?? [])].sort()).toEqual(['cursor', 'zed']);
        expect([imported?.servers?.length, imported?.secrets?.length].every((count) => (count ?? 0) > 0)).toBe(true);
        expect(undone).toMatchObject({
          event: 'import-undone',
          clients: imported?.clients,
          servers: imported?.servers,
          secrets: imported?.secrets,
        });
        expect([exported, taken, rest]).toMatchObject([
          { event: 'exported', clients: ['zed'], servers: [], secrets: [] },
          { event: 'export-undone', clients: ['zed'] },
          [],
        ]);
        expect((await home.run(['audit', 'list', '--type', 'setup'])).out).toMatch(/ exported \(zed\) by somebody$/m);
      });
    },
  );

  it('name no client for a server of its own file', async () => {
    await atHome([], async (home) => {
      home.write('project/notes.toml', 'name = "notes"\n\n[server]\ncommand = "node"\nargs = ["notes.mjs"]\n');
      expect(await home.run(['import', 'notes.toml', '--yes'])).toMatchObject({ code: EXIT.ok });
      expect(await setups(home)).toMatchObject([{ event: 'imported', clients: ['file'], servers: ['notes'] }]);
    });
  });

  it(
    'have the name of a secret that is set, rotated or removed; a refused command leaves no record' + verifies('PF-04'),
    async () => {
      await atHome([], async (home) => {
        expect(await pipe(home, ['secret', 'set', 'gh.token'], 'sesame-open')).toBe(EXIT.ok);
        expect(await pipe(home, ['secret', 'rotate', 'gh.token'], 'sesame-other')).toBe(EXIT.ok);
        expect(await pipe(home, ['secret', 'rotate', 'gh.token'], 'x')).toBe(EXIT.usage);
        expect((await home.run(['secret', 'rm', 'gh.token'])).code).toBe(EXIT.ok);
        expect((await home.run(['secret', 'rm', 'gh.token'])).code).not.toBe(EXIT.ok);
        expect((await setups(home)).map(({ event, by, secrets }) => [event, by, secrets])).toEqual(
          ['set', 'rotated', 'removed'].map((what) => [`secret-${what}`, 'somebody', ['gh.token']]),
        );
      });
    },
  );

  it('are needed: a change that cannot be recorded is not made', async () => {
    await atHome(['cursor'], async (home) => {
      const before = home.snapshot();
      home.write('blocked', 'a file where the folder of the log should be');
      const words = ['import', '--all', '--copy', '--secrets', 'vault', '--yes'];
      home.project.write('tollgate.yaml', `version: 1\naudit: {folder: ${home.file('blocked')}}\n`);
      acceptNow(path.join(home.project.folder, 'tollgate.yaml'), { env: home.env, home: home.project.home });
      const yaml = home.snapshot()['project/tollgate.yaml'];
      expect((await home.run(words)).err).toContain('AUDIT_FAILED');
      expect((await home.run(['export', '--client', 'cursor', '--user', '--yes'])).err).toContain('AUDIT_FAILED');
      expect(await pipe(home, ['secret', 'set', 'gh.token'], 'sesame-open')).not.toBe(EXIT.ok);
      const { blocked: _blocked, 'project/tollgate.yaml': after, ...rest } = home.snapshot();
      const { 'project/tollgate.yaml': _yaml, ...old } = before;
      expect([after, rest]).toEqual([yaml, old]);
      expect((await home.run(['secret', 'list'])).err).toContain('No secrets');
    });
  });
});
