/** Tests `tollgate export`: the form of every client, servers that move behind Tollgate, refusals, and undo. */

import {
  chmodSync,
  chownSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  rmdirSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { parse } from 'smol-toml';
import { describe, expect, it } from 'vitest';
import { EXIT } from '../../facade/cli/command-io.ts';
import { listBackups } from '../../facade/clients/changes/backups.ts';
import { readTarget, writeChanges } from '../../facade/clients/changes/client-file-changes.ts';
import { openUndo } from '../../facade/clients/changes/undo-plan.ts';
import { readClientFile } from '../../facade/clients/client-file-reader.ts';
import { CLIENTS, type ClientId, clientOf } from '../../facade/clients/client-formats.ts';
import { clientPlaces } from '../../facade/clients/client-places.ts';
import { isOurs } from '../../facade/clients/found-client-files.ts';
import { loadConfig } from '../../facade/config/load-config.ts';
import { openPlaces } from '../../facade/secrets/secrets.ts';
import { dataOf } from '../cli/terminal.ts';
import { inFull } from '../harness/full-tests.ts';
import { partOf, roundsOf } from '../harness/slices.ts';
import { atHome, type Home, WITH_INSTALLERS } from './home.ts';
import { randomFile } from './jsonc.ts';
import { SAMPLES, VALUES } from './samples.ts';

const ids = CLIENTS.map(({ id }) => id);

/** Some clients have their sample in the user's file, which needs --user. */
const flags = (id: ClientId): readonly string[] => (['cursor', 'gemini'].includes(id) ? ['--user'] : []);
const run = (home: Home, id: ClientId, ...more: readonly string[]) =>
  home.run(['export', '--client', id, ...flags(id), ...more]);
const config = (home: Home) => loadConfig(home.project.file, { env: home.env, home: home.project.home });
const entriesOf = (home: Home, id: ClientId) =>
  readClientFile(home.file(SAMPLES[id].file), { shown: id, project: home.project.folder }).entries;

describe('tollgate export', () => {
  // Moving, which runs for every client, reads, writes and restores its form too.
  it.each(partOf(ids, 4))('%s: adds Tollgate, keeps everything else, and restores the bytes on undo', async (id) => {
    await atHome([id], async (home) => {
      const before = home.snapshot();
      const others = entriesOf(home, id).map(({ original }) => original);
      const { code, out, err } = await run(home, id, '--yes');
      expect([code, out]).toEqual([EXIT.ok, '']);
      expect(err).toContain(
        [
          'reaches these without Tollgate:',
          ...others.filter((name) => name !== 'off').map((name) => `  ${name}`),
          'Move them behind it:',
          `  tollgate export --client ${[id, ...flags(id)].join(' ')} --replace\n`,
        ].join('\n'),
      );
      for (const value of VALUES) expect(err).not.toContain(value);
      const entries = entriesOf(home, id);
      expect(entries.map(({ original }) => original)).toEqual([...others, 'tollgate']);
      expect(entries.at(-1)).toMatchObject({
        transport: 'stdio',
        command: 'tollgate',
        args: ['run', '--config', home.project.file],
      });
      expect(isOurs(entries.at(-1) ?? expect.fail())).toBe(true);
      expect((await run(home, id, '--yes')).err).toContain('is correct already');
      expect(await home.run(['export', '--undo', '--json'])).toMatchObject({ code: EXIT.ok, err: '' });
      expect(home.snapshot()).toEqual(before);
    });
  });

  it.each(partOf(ids, 3))('%s: moves its servers behind Tollgate, and back on undo', async (id) => {
    await atHome(
      [id],
      async (home) => {
        const before = home.snapshot();
        const { code, out } = await run(home, id, '--replace', '--secrets', 'vault', '--yes', '--json');
        expect(code).toBe(EXIT.ok);
        const data = dataOf<{
          readonly moved: readonly { readonly name: string }[];
          readonly left: readonly { readonly name: string }[];
        }>(out);
        expect(data.moved.map(({ name }) => name)).toEqual(SAMPLES[id].servers);
        expect(
          entriesOf(home, id)
            .map(({ name }) => name)
            .filter((name) => SAMPLES[id].servers.includes(name)),
        ).toEqual([]);
        expect([...config(home).servers.keys()].sort()).toEqual([...SAMPLES[id].servers].sort());
        for (const value of VALUES) expect(out + home.state()).not.toContain(value);
        await home.run(['export', '--undo']);
        expect(home.snapshot()).toEqual(before);
      },
      WITH_INSTALLERS,
    );
  });

  it.each(partOf(ids, 5))('%s: creates a missing file, and removes it on undo', async (id) => {
    await atHome([], async (home) => {
      const before = home.snapshot();
      const place = clientPlaces({
        cwd: home.project.folder,
        home: home.project.home,
        env: {},
        platform: process.platform,
      }).find(
        ({ client }) =>
          client.id === id && client.places[0]?.[0] === (id === 'cursor' ? 'project' : client.places[0]?.[0]),
      );
      const dry = await home.run(['export', '--client', id, '--dry-run']);
      expect(dry.code).toBe(EXIT.ok);
      expect(home.snapshot()).toEqual(before);
      await home.run(['export', '--client', id, '--yes']);
      const made = Object.keys(home.snapshot()).filter((name) => !(name in before));
      expect(made).toHaveLength(1);
      expect(path.basename(made[0] ?? '')).toBe(path.basename(place?.file ?? ''));
      expect(
        readClientFile(home.file(made[0] ?? ''), { shown: 'f', project: '/' }).entries.map(({ original }) => original),
      ).toEqual(['tollgate']);
      await home.run(['export', '--undo']);
      expect(home.snapshot()).toEqual(before);
    });
  });

  it.each([
    [
      'claude-code',
      'project/.mcp.json',
      {
        mcpServers: {
          tollgate: {
            type: 'http',
            url: 'http://127.0.0.1:7310/mcp',
            headers: { Authorization: 'Bearer ${TOLLGATE_TOKEN}' },
          },
        },
      },
    ],
    [
      'vscode',
      'project/.vscode/mcp.json',
      {
        servers: {
          tollgate: {
            type: 'http',
            url: 'http://127.0.0.1:7310/mcp',
            headers: { Authorization: 'Bearer ${input:tollgate-token}' },
          },
        },
        inputs: [
          {
            type: 'promptString',
            id: 'tollgate-token',
            description: 'Access token of Tollgate (tollgate serve prints it)',
            password: true,
          },
        ],
      },
    ],
    [
      'cursor',
      'project/.cursor/mcp.json',
      {
        mcpServers: {
          tollgate: { url: 'http://127.0.0.1:7310/mcp', headers: { Authorization: 'Bearer ${env:TOLLGATE_TOKEN}' } },
        },
      },
    ],
    [
      'windsurf',
      '.codeium/windsurf/mcp_config.json',
      {
        mcpServers: {
          tollgate: {
            serverUrl: 'http://127.0.0.1:7310/mcp',
            headers: { Authorization: 'Bearer ${env:TOLLGATE_TOKEN}' },
          },
        },
      },
    ],
    [
      'gemini',
      'project/.gemini/settings.json',
      {
        mcpServers: {
          tollgate: { httpUrl: 'http://127.0.0.1:7310/mcp', headers: { Authorization: 'Bearer ${TOLLGATE_TOKEN}' } },
        },
      },
    ],
    [
      'codex',
      '.codex/config.toml',
      { mcp_servers: { tollgate: { url: 'http://127.0.0.1:7310/mcp', bearer_token_env_var: 'TOLLGATE_TOKEN' } } },
    ],
    [
      'opencode',
      'project/opencode.json',
      {
        mcp: {
          tollgate: {
            type: 'remote',
            url: 'http://127.0.0.1:7310/mcp',
            headers: { Authorization: 'Bearer {env:TOLLGATE_TOKEN}' },
          },
        },
      },
    ],
  ])('%s over HTTP names where the token is, and holds none', async (id, file, wanted) => {
    await atHome([], async (home) => {
      expect((await home.run(['export', '--client', id, '--http', '--yes'])).code).toBe(EXIT.ok);
      const text = home.read(file);
      expect(file.endsWith('.toml') ? parse(text) : JSON.parse(text)).toEqual(wanted);
    });
  });

  it.each(['claude-desktop', 'zed'])('%s: refuses --http, because it has no place for a token', async (id) => {
    await atHome([], async (home) => {
      expect(await home.run(['export', '--client', id, '--http', '--yes'])).toMatchObject({
        code: EXIT.usage,
        err: expect.stringContaining('outside its file') as string,
      });
    });
  });

  it('needs a fixed port for --http, and writes no header if there is no token', async () => {
    await atHome(
      [],
      async (home) => {
        expect((await home.run(['export', '--client', 'cursor', '--http', '--yes'])).err).toContain('listen.port is 0');
      },
      'version: 1\nlisten: {port: 0}\n',
    );
    await atHome(
      [],
      async (home) => {
        await home.run(['export', '--client', 'cursor', '--http', '--yes']);
        expect(JSON.parse(home.read('project/.cursor/mcp.json'))).toEqual({
          mcpServers: { tollgate: { url: 'http://[::1]:80/mcp' } },
        });
      },
      'version: 1\nlisten: {port: 80, host: "::1", auth: none}\n',
    );
  });

  it('writes the path of Node for Claude Desktop, which does not know the PATH of a shell', async () => {
    await atHome(
      [],
      async (home) => {
        const bin = home.file('bin');
        mkdirSync(bin);
        writeFileSync(path.join(bin, 'main.js'), '');
        chmodSync(path.join(bin, 'main.js'), 0o755);
        symlinkSync(path.join(bin, 'main.js'), path.join(bin, 'tollgate'));
        await home.run(['export', '--client', 'claude-desktop', '--yes'], { env: { PATH: `relative:${bin}` } });
        const { mcpServers } = JSON.parse(home.read('.config/Claude/claude_desktop_config.json')) as {
          mcpServers: { tollgate: unknown };
        };
        expect(mcpServers.tollgate).toEqual({
          command: process.execPath,
          args: [path.join(bin, 'main.js'), 'run', '--config', home.project.file],
        });
        await home.run(['export', '--client', 'cursor', '--as', 'alice', '--yes'], { self: ['/n', '/m.js'] });
        expect(JSON.parse(home.read('project/.cursor/mcp.json'))).toEqual({
          mcpServers: {
            tollgate: { command: '/n', args: ['/m.js', 'run', '--config', home.project.file, '--as', 'alice'] },
          },
        });
        expect((await home.run(['export', '--client', 'cursor', '--as', 'alicia'])).err).toContain('"alice"');
      },
      'version: 1\nprincipals: [{id: alice}]\n',
    );
  });
});

describe('tollgate export --replace', () => {
  it('removes a server that Tollgate has already, and leaves one that differs', async () => {
    await atHome(
      [],
      async (home) => {
        home.write(
          'project/.mcp.json',
          `{"mcpServers": {
            "same": {"command": "x", "args": ["\${HERE}"], "env": {"A": "1"}},
            "other": {"command": "y"},
            "off": {"command": "z", "disabled": true}
          }}`,
        );
        const { out, err } = await home.run(
          ['export', '--client', 'claude-code', '--replace', '--yes', '--secrets', 'vault'],
          { env: { HERE: 'h' } },
        );
        expect(out).toBe('');
        expect(err).toMatch(/- same: x/);
        expect(err).toMatch(/other: there is a server other already/);
        expect(Object.keys((JSON.parse(home.read('project/.mcp.json')) as { mcpServers: object }).mcpServers)).toEqual([
          'other',
          'off',
          'tollgate',
        ]);
      },
      'version: 1\nservers: {same: {command: x, args: [h]}, other: {command: something-else}}\n',
    );
  });

  it('copies a server that was included from the file, so that Tollgate keeps it', async () => {
    await atHome(['cursor'], async (home) => {
      await home.run(['import', '--all', '--yes']);
      await run(home, 'cursor', '--replace', '--secrets', 'vault', '--yes');
      const { servers, warnings } = config(home);
      expect([...servers.keys()]).toEqual(['linear']);
      expect(servers.get('linear')?.unusable).toBeUndefined();
      expect(warnings).toEqual([]);
      expect(entriesOf(home, 'cursor').map(({ original }) => original)).toEqual(['tollgate']);
    });
  });

  it('removes the servers of this project from ~/.claude.json, and no others', async () => {
    await atHome([], async (home) => {
      const others = { '/elsewhere': { mcpServers: { theirs: { command: 'x' } }, history: ['a'] } };
      home.write(
        '.claude.json',
        JSON.stringify(
          {
            numStartups: 3,
            mcpServers: { all: { command: 'x' } },
            projects: {
              [home.project.folder]: { mcpServers: { mine: { command: 'y' } }, allowedTools: [] },
              ...others,
            },
          },
          null,
          2,
        ),
      );
      const { err } = await home.run(['export', '--client', 'claude-code', '--dry-run']);
      expect(err).toContain('tollgate export --client claude-code --user --replace');
      await home.run(['export', '--client', 'claude-code', '--user', '--replace', '--yes']);
      expect(JSON.parse(home.read('.claude.json'))).toEqual({
        numStartups: 3,
        mcpServers: { tollgate: { type: 'stdio', command: 'tollgate', args: ['run', '--config', home.project.file] } },
        projects: { [home.project.folder]: { mcpServers: {}, allowedTools: [] }, ...others },
      });
    });
  });

  inFull('gives the same servers after import, export and import again', async () => {
    await atHome(
      ['claude-code', 'windsurf'],
      async (home) => {
        await home.run(['import', '--all', '--copy', '--secrets', 'vault', '--yes']);
        const once = [...config(home).servers.values()];
        for (const id of ['claude-code', 'windsurf'] as const)
          await run(home, id, '--replace', '--secrets', 'vault', '--yes');
        expect([...config(home).servers.values()]).toEqual(once);
        const again = await home.run(['import', '--all', '--copy', '--secrets', 'vault', '--yes']);
        expect(again.err).toBe('There is nothing to write.\n');
      },
      WITH_INSTALLERS,
    );
  });
});

describe('files that are not written', () => {
  const target = (home: Home): string => home.file('project/.cursor/mcp.json');

  it.each<readonly [string, (home: Home) => void, string]>([
    ['a link', (home) => symlinkSync(home.write('real.json', '{}'), target(home)), 'is a link'],
    ['a dangling link', (home) => symlinkSync(home.file('nowhere.json'), target(home)), 'is a link'],
    [
      'a file in a folder that a cloned project brings as a link',
      (home) => {
        rmdirSync(path.dirname(target(home)));
        mkdirSync(home.file('elsewhere'));
        symlinkSync(home.file('elsewhere'), path.dirname(target(home)));
      },
      'is a link, so the text would be written elsewhere',
    ],
    ['a folder', (home) => mkdirSync(target(home)), 'is not a plain file'],
    [
      'a file of somebody else',
      (home) => chownSync(home.write('project/.cursor/mcp.json', '{}'), 12_345, 12_345),
      'belongs to another user',
    ],
    [
      'a file that everybody can write',
      (home) => chmodSync(home.write('project/.cursor/mcp.json', '{}'), 0o666),
      'is writable for everyone',
    ],
    [
      'a file in a folder that everybody can write',
      (home) => chmodSync(path.dirname(target(home)), 0o777),
      'is writable for everyone',
    ],
    ['a file that is no text', (home) => writeFileSync(target(home), Buffer.from([0xff, 0xfe, 0])), 'UTF-8'],
    ['a broken file', (home) => void home.write('project/.cursor/mcp.json', '{"mcpServers": {'), 'is not valid JSON'],
    [
      'a key that stands twice',
      (home) => void home.write('project/.cursor/mcp.json', '{"mcpServers": {}, "mcpServers": {}}'),
      'has a key twice',
    ],
    [
      'another server of that name',
      (home) => void home.write('project/.cursor/mcp.json', '{"mcpServers": {"tollgate": {"command": "evil"}}}'),
      'is not Tollgate',
    ],
  ])('%s', async (_name, prepare, why) => {
    await atHome([], async (home) => {
      mkdirSync(path.dirname(target(home)), { recursive: true });
      prepare(home);
      const before = home.snapshot();
      expect(await home.run(['export', '--client', 'cursor', '--yes'])).toMatchObject({
        code: EXIT.usage,
        err: expect.stringContaining(why) as string,
      });
      expect(home.snapshot()).toEqual(before);
      expect(home.exists('nowhere.json')).toBe(false);
    });
  });

  it('refuses an unknown client, and needs consent', async () => {
    await atHome([], async (home) => {
      expect((await home.run(['export'])).err).toContain('--client claude-code');
      expect((await home.run(['export', '--client', 'vscod'])).err).toContain('"vscode"');
      expect(await home.run(['export', '--client', 'cursor'])).toMatchObject({
        code: EXIT.usage,
        err: expect.stringContaining('use --yes') as string,
      });
      home.write('project/.cursor/mcp.json', '{"mcpServers": {"a": {"command": "x", "env": {"TOKEN": "abcdefgh1"}}}}');
      expect(await home.run(['export', '--client', 'cursor', '--replace', '--yes'])).toMatchObject({
        code: EXIT.usage,
        err: expect.stringContaining('--secrets vault') as string,
      });
      expect((await home.run(['export', '--client', 'cursor', '--file', 'other.json', '--yes'])).code).toBe(EXIT.ok);
      expect(home.exists('project/other.json')).toBe(true);
    });
  });

  it('writes nothing if one of several files changed meanwhile, and keeps file permissions', async () => {
    await atHome([], async (home) => {
      const [one, two] = [home.write('a.json', 'a'), home.write('b.json', 'b')];
      chmodSync(one, 0o640);
      const state = home.file('.local/s');
      const { vault } = openPlaces({ state, env: {} });
      const at = { state, changer: 'export', now: 0, vault } as const;
      await expect(
        writeChanges(
          [
            { file: one, before: 'a', after: 'A' },
            { file: two, before: 'old', after: 'B' },
          ],
          at,
        ),
      ).rejects.toThrow('was changed meanwhile');
      expect(home.read('a.json')).toBe('a');
      // The second name is a folder, so it cannot be written, and the first file stays as it was.
      await expect(
        writeChanges(
          [
            { file: one, before: 'a', after: 'A' },
            { file: path.join(one, 'below'), after: 'B' },
          ],
          at,
        ),
      ).rejects.toThrow();
      expect(home.read('a.json')).toBe('a');
      expect(listBackups(state)).toEqual([]);
      await writeChanges([{ file: one, before: 'a', after: 'A' }], at);
      expect([home.read('a.json'), lstatSync(one).mode & 0o777]).toEqual(['A', 0o640]);
      (await openUndo(at)).restore();
      expect([home.read('a.json'), lstatSync(one).mode & 0o777]).toEqual(['a', 0o640]);
    });
  });
});

inFull('restores the bytes of any file on undo', async () => {
  await atHome([], async (home) => {
    let count = 0;
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom('cursor', 'vscode', 'zed'),
        fc.boolean(),
        fc.nat(),
        async (id, replace, seed) => {
          const container = clientOf(id)?.container ?? '';
          const text = fc.sample(randomFile(container), { numRuns: 1, seed })[0]?.text ?? '';
          const name = `f${(count += 1)}.json`;
          const file = home.write(`project/${name}`, text);
          const { code, err } = await home.run([
            'export',
            '--client',
            id,
            '--file',
            name,
            '--yes',
            ...(replace ? ['--replace', '--secrets', 'vault'] : []),
          ]);
          expect(code, err).toBe(EXIT.ok);
          expect(readTarget(file)).not.toBe(text);
          expect((await home.run(['export', '--undo'])).code).toBe(EXIT.ok);
          expect(readTarget(file)).toBe(text);
          expect(
            readdirSync(home.file('project')).filter(
              (one) => one !== 'servers' && !/^(f\d+\.json|tollgate\.yaml)$/.test(one),
            ),
          ).toEqual([]);
        },
      ),
      { numRuns: roundsOf(30, 8) },
    );
    expect(listBackups(config(home).state)).toEqual([]);
  });
});

it('keeps backups private, with their time', async () => {
  await atHome(['cursor'], async (home) => {
    await run(home, 'cursor', '--yes');
    const [backup] = listBackups(config(home).state);
    expect(lstatSync(backup?.file ?? '').mode & 0o777).toBe(0o600);
    expect(lstatSync(path.dirname(backup?.file ?? '')).mode & 0o777).toBe(0o700);
    utimesSync(backup?.file ?? '', 1000, 1000);
    expect(listBackups(config(home).state)[0]?.at).toBe(1_000_000);
  });
});
