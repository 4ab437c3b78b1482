/** Tests `tollgate import`: what it lists, includes, copies, leaves out, keeps secret and undoes. */

import { chmodSync, mkdirSync, readdirSync, statSync, symlinkSync } from 'node:fs';
import { PassThrough } from 'node:stream';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { EXIT } from '../../facade/cli/command-io.ts';
import { CLIENTS } from '../../facade/clients/client-formats.ts';
import { loadConfig } from '../../facade/config/load-config.ts';
import { openPlaces } from '../../facade/secrets/secrets.ts';
import { dataOf, start } from '../cli/terminal.ts';
import { inFull } from '../harness/full-tests.ts';
import { roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import { atHome, type Home, WITH_INSTALLERS } from './home.ts';
import { SAMPLES, VALUES } from './samples.ts';

const ids = CLIENTS.map(({ id }) => id);

interface Data {
  readonly servers: readonly {
    readonly name: string;
    readonly left?: string;
    readonly dropped: readonly string[];
    readonly unread?: readonly string[];
  }[];
  readonly files: readonly string[];
  readonly secrets: readonly string[];
  readonly wanted: readonly string[];
  readonly written: boolean;
}

const config = (home: Home) => loadConfig(home.project.file, { env: home.env, home: home.project.home });
const vault = (home: Home, name: string) => openPlaces({ state: config(home).state, env: {} }).vault.get(name);

function expectNoValue(text: string): void {
  for (const value of VALUES) expect(text).not.toContain(value);
}

describe('tollgate import', () => {
  it('lists the servers of all clients without options, and changes nothing', async () => {
    await atHome(ids, async (home) => {
      const before = home.snapshot();
      const { code, out, err } = await home.run(['import']);
      expect(code).toBe(EXIT.ok);
      for (const id of ids) for (const name of SAMPLES[id].servers) expect(out).toContain(name);
      expect(out).toContain('BRAVE_API_KEY');
      expect(err).toContain('Nothing was changed');
      expectNoValue(out + err);
      const data = dataOf<readonly { client: string; servers: readonly { name: string }[] }[]>(
        (await home.run(['import', '--json'])).out,
      );
      expect(new Set(data.map(({ client }) => client))).toEqual(new Set(ids));
      expect(home.snapshot()).toEqual(before);
      expect(home.state()).toBe('');
    });
  });

  it('says that no client file was found, and refuses an unknown client', async () => {
    await atHome([], async (home) => {
      expect((await home.run(['import'])).err).toContain('No file of a known client was found');
      expect(await home.run(['import', '--from', 'curser'])).toMatchObject({
        code: EXIT.usage,
        err: expect.stringContaining('"cursor"') as string,
      });
      expect(await home.run(['import', 'none.json'])).toMatchObject({
        code: EXIT.usage,
        err: expect.stringContaining('there is no such file') as string,
      });
      expect(await home.run(['import', '--undo'])).toMatchObject({
        code: EXIT.usage,
        err: expect.stringContaining('nothing to undo for import') as string,
      });
    });
  });

  it('includes files: their servers stay in them, and a profile reaches each server', async () => {
    await atHome(['cursor', 'codex', 'zed'], async (home) => {
      const before = home.snapshot();
      const { code, err } = await home.run(['import', '--all', '--yes']);
      expect(code).toBe(EXIT.ok);
      expect(err).toContain('  tollgate approve linear\n');
      expect(err).toContain(
        '  tollgate export --client cursor --user --replace\n' +
          '  tollgate export --client zed --replace\n  tollgate export --client codex --replace\n',
      );
      expect(home.read('project/tollgate.yaml')).toMatch(
        /^# mine\nversion: 1\n\nlimits: \{servers: 40\} # enough\n\ninclude:\n {2}- ~\/\.cursor\/mcp\.json\n/,
      );
      const { servers, profiles } = config(home);
      expect([...servers.keys()]).toEqual(['linear', 'postgres-zed', 'older', 'extension', 'context7', 'figma']);
      expect(profiles.get('default')?.servers).toEqual(['linear', 'postgres-zed', 'older', 'context7', 'figma']);
      expect(servers.get('figma')).toMatchObject({
        transport: 'http',
        headers: { Authorization: 'Bearer figd-in-environment' },
      });
      expect({ ...home.snapshot(), 'project/tollgate.yaml': '' }).toEqual({ ...before, 'project/tollgate.yaml': '' });
      expectNoValue(err);
      expect((await home.run(['import', '--all', '--yes'])).err).toContain('There is nothing to write');
      expect(await home.run(['import', '--undo'])).toMatchObject({
        code: EXIT.ok,
        err: expect.stringMatching(/^Restored: tollgate\.yaml\.\n/) as string,
      });
      expect(home.snapshot()).toEqual(before);
    });
  });

  inFull('copies each server to its own file, moves keys to the vault, drops trust and corrects names', async () => {
    await atHome(
      ids,
      async (home) => {
        const before = home.snapshot();
        const { code, out, err } = await home.run([
          'import',
          '--all',
          '--copy',
          '--secrets',
          'vault',
          '--yes',
          '--json',
        ]);
        const data = dataOf<Data>(out);
        expect([code, data.written]).toEqual([EXIT.ok, true]);
        expect(readdirSync(home.file('project/servers')).sort()).toEqual(
          [
            'brave-search',
            'context7',
            'db',
            'events',
            'figma',
            'filesystem',
            'github',
            'http',
            'linear',
            'local',
            'oc',
            'older',
            'playwright',
            'postgres',
            'postgres-zed',
            'remote',
            'sentry',
          ]
            .map((name) => `${name}.yaml`)
            .sort(),
        );
        expect(data.servers.find(({ name }) => name === 'http')?.dropped).toEqual(['trust']);
        expect(data.wanted).toEqual(['postgres.pg-url']);
        const written = readdirSync(home.file('project/servers'))
          .map((name) => home.read(`project/servers/${name}`))
          .join('\n');
        expectNoValue(written + out + err + home.state());
        expect(home.read('project/servers/github.yaml')).toContain(
          'Authorization: Bearer ${secret:github.Authorization}',
        );
        expect(await vault(home, 'github.Authorization')).toBe(VALUES[0]);
        expect(await vault(home, 'db.DATABASE_URL')).toBe(`postgres://me:${VALUES[4]}@localhost/app`);
        const at = (file: string): string => home.file(`project/${file}`);
        expect(config(home).servers.get('playwright')?.sandbox).toMatchObject({
          filesystem: {
            allowRead: [],
            allowWrite: [at('shots')],
            denyRead: [at('.env')],
            denyWrite: [at('shots/kept')],
          },
          network: { allowedDomains: ['example.org'], deniedDomains: ['private.example.org'] },
        });
        expect(data.servers.find(({ name }) => name === 'playwright')?.unread).toEqual([
          'sandbox.network.allowLocalBinding',
          'sandbox.level',
        ]);
        expect(config(home).servers.get('events')?.transport).toBe('sse');
        // The files of the clients have not changed.
        for (const id of ids) expect(home.snapshot()[SAMPLES[id].file]).toBe(before[SAMPLES[id].file]);
        expect(statSync(home.file('project/servers/github.yaml')).mode & 0o777).toBe(0o600);
        await home.run(['import', '--undo']);
        expect(home.snapshot()).toEqual(before);
      },
      WITH_INSTALLERS,
    );
  });

  it('reads keys from variables with --secrets env', async () => {
    await atHome(['cursor'], async (home) => {
      const { err } = await home.run(['import', '--from', 'cursor', '--copy', '--secrets', 'env', '--yes']);
      expect(err).toContain('Set these variables where Tollgate runs: Authorization.');
      expect(home.read('project/tollgate.yaml')).toContain(
        'secrets:\n  linear.Authorization:\n    env: Authorization\n',
      );
      expect([...config(home).secretSources]).toEqual([
        ['linear.Authorization', { from: 'env', variable: 'Authorization' }],
      ]);
      expect(home.exists('.local/state/tollgate') && home.state().includes('vault')).toBe(false);
    });
  });

  it('allows a copy the workspace folders among its arguments, and names the folders it does not see', async () => {
    await atHome(
      [],
      async (home) => {
        mkdirSync(home.file('project/docs'));
        home.write(
          'project/.mcp.json',
          JSON.stringify({
            mcpServers: {
              fs: {
                command: 'npx',
                args: ['-y', '@modelcontextprotocol/server-filesystem', '${workspaceFolder}', '/usr'],
              },
              memory: { command: 'npx', args: ['-y', '@modelcontextprotocol/server-memory'] },
              own: {
                command: 'own',
                args: [home.file('project/docs'), '/no/such/folder', 'docs'],
                sandboxEnabled: true,
                sandbox: {
                  filesystem: { allowRead: ['more'], denyWrite: ['kept'] },
                  network: { allowedDomains: ['*.a.example'], deniedDomains: ['b.a.example'] },
                  level: 'high',
                },
              },
            },
          }),
        );
        const { err } = await home.run(['import', '--all', '--copy', '--yes']);
        expect(err).toContain(
          '    reads and writes "${workspaceFolder}", which its arguments or variables name\n' +
            '    does not see "/usr", outside the workspace; to allow it, ' +
            'write in servers/fs.yaml: sandbox: {filesystem: {allowWrite: ["/usr"]}}\n',
        );
        expect(err).toContain(
          '    sets MEMORY_FILE_PATH to "${workspaceFolder}/memory.jsonl", as the catalog says; ' +
            'what the server has saved in another place until now is not moved\n',
        );
        const { servers, workspace } = config(home);
        expect(servers.get('fs')?.sandbox?.filesystem).toMatchObject({ allowRead: [], allowWrite: [workspace] });
        expect(servers.get('own')?.sandbox?.filesystem).toMatchObject({
          allowRead: [home.file('project/more'), home.file('project/docs')],
          allowWrite: [],
        });
        expect(err).toContain(
          'own: own … (3 more) (keeps allowRead, denyWrite, allowedDomains, deniedDomains of its sandbox; ' +
            'without sandbox.level, which Tollgate does not use), from',
        );
        expect((await home.run(['approve', 'own'])).out).toMatch(
          /reads [^]*project\/docs", its own[^]*never writes "[^"]*\/kept"[^]*reaches only \*\.a\.example, never b\.a\.example/,
        );
      },
      WITH_INSTALLERS,
    );
  });

  inFull('imports the servers of --only, and uses the first definition of a name', async () => {
    await atHome(
      ['vscode', 'windsurf'],
      async (home) => {
        home.write('project/.mcp.json', '{"mcpServers": {"db": {"command": "first"}, "My DB!": {"command": "other"}}}');
        const only = dataOf<Data>(
          (
            await home.run([
              'import',
              '--all',
              '--copy',
              '--only',
              'My DB!,postgres',
              '--secrets',
              'vault',
              '--dry-run',
              '--json',
            ])
          ).out,
        );
        expect(only.servers.map(({ name, left }) => [name, left])).toEqual([
          ['my-db', undefined],
          ['postgres', undefined],
        ]);
        for (const [words, message] of [
          [['--copy'], '--copy does not say from which file'],
          [['--only', 'db'], '--only does not say from which file'],
          [
            ['--all', '--only', 'dbb'],
            'None of these files has a server "dbb".\n`tollgate import` lists them; did you mean "db"',
          ],
        ] as const) {
          expect(await home.run(['import', ...words])).toMatchObject({
            code: EXIT.usage,
            err: expect.stringContaining(message) as string,
          });
        }
        const { err } = await home.run(['import', '--all', '--copy', '--secrets', 'vault', '--yes']);
        expect(err).toContain('called "My DB!" in its file');
        expect(err).toMatch(/- db: .*\n {4}left out: another file has a server with this name/);
        expect(config(home).servers.get('db')?.command).toBe('first');
        const again = dataOf<Data>(
          (await home.run(['import', '--all', '--copy', '--secrets', 'vault', '--dry-run', '--json'])).out,
        );
        expect(again.servers.every(({ left }) => left?.includes('there is a server') === true)).toBe(true);
      },
      WITH_INSTALLERS,
    );
  });

  it('turns an included server into a copy', async () => {
    await atHome(['cursor'], async (home) => {
      await home.run(['import', '--all', '--yes']);
      await home.run(['import', '--all', '--copy', '--secrets', 'vault', '--yes']);
      expect(home.exists('project/servers')).toBe(false);
      const { servers, warnings } = config(home);
      expect(servers.get('linear')).toMatchObject({
        source: 'tollgate.yaml',
        headers: { Authorization: 'Bearer ${secret:linear.Authorization}' },
      });
      expect(warnings).toEqual([]);
    });
  });
});

it('names programs that download their package, and services that connect knows', async () => {
  await atHome(
    [],
    async (home) => {
      home.write(
        'project/.mcp.json',
        JSON.stringify({
          mcpServers: {
            s: { command: 'npx', args: ['-y', '@notionhq/notion-mcp-server@1.0.0'] },
            unknown: { command: 'uvx', args: ['no-such-package'] },
            linear: { url: 'https://mcp.linear.app/mcp' },
            own: { command: 'own' },
          },
        }),
      );
      const { err } = await home.run(['import', '.mcp.json', '--copy', '--dry-run']);
      expect(err).toContain('has the labels and tool semantics of notion in the catalog, and reaches api.notion.com\n');
      expect(err).toContain('left out: its package cannot be pinned: Looking up no-such-package: ');
      expect(err).toContain('linear: `tollgate connect linear` knows its hosts');
      expect(err).not.toMatch(/^own: /m);
    },
    WITH_INSTALLERS,
  );
});

describe('tollgate import --copy' + verifies('HA-01'), () => {
  it.each([
    ['a key in an argument', { command: 'x', args: ['--api-key', 'abcdef12345'] }, 'an argument looks like a secret'],
    [
      'a key in an argument of one word',
      { command: 'x', args: ['--token=abcdef12345'] },
      'an argument looks like a secret',
    ],
    [
      'a token that is known by its shape',
      { command: 'x', args: ['ghp_abcdefghijklmnop'] },
      'an argument looks like a secret',
    ],
    [
      'an address with a password in an argument',
      { command: 'x', args: ['postgres://me:pw@h/db'] },
      'an argument looks like a secret',
    ],
    ['a key in an address', { url: 'https://x.example/mcp?api_key=abcdef123' }, 'its address contains'],
    [
      'a key in the path of an address',
      { url: 'https://x.example/s/abcdef1234567890abcdef1234567890' },
      'its address contains',
    ],
    ['a password in an address', { url: 'https://me:pw@x.example/mcp' }, 'user or password'],
    ['a secret of Tollgate', { command: 'x', env: { A: '${secret:github.token}' } }, 'names a secret of Tollgate'],
    ['a value that is half a variable', { command: 'x', env: { API_TOKEN: 'abcdefgh${B}' } }, 'mixes variables'],
    ['a variable that is not set', { command: '${NOT_SET_ANYWHERE}' }, 'NOT_SET_ANYWHERE is not set'],
    ['a variable that loads code', { command: 'x', env: { NODE_OPTIONS: '--require ./evil.js' } }, 'NODE_OPTIONS'],
    ['an input in an argument', { command: 'x', args: ['${input:a}'] }, 'input'],
    ['a complete command line', { command: 'x --y z' }, 'a complete command line'],
    [
      'a domain that is every domain',
      { command: 'x', sandboxEnabled: true, sandbox: { network: { allowedDomains: ['*'] } } },
      'allowedDomains',
    ],
    ['an envFile that is not there', { command: 'x', envFile: 'no.env' }, 'its envFile cannot be used'],
    ['a server that is switched off', { command: 'x', disabled: true }, 'the file disables it'],
  ])('%s', async (_name, server, why) => {
    await atHome([], async (home) => {
      home.write('project/.mcp.json', JSON.stringify({ mcpServers: { bad: server, good: { command: 'x' } } }));
      const { servers } = dataOf<Data>(
        (await home.run(['import', '.mcp.json', '--copy', '--secrets', 'vault', '--yes', '--json'])).out,
      );
      expect(servers.map(({ name, left }) => [name, left === undefined])).toEqual([
        ['bad', false],
        ['good', true],
      ]);
      expect(servers[0]?.left).toContain(why);
      expect(readdirSync(home.file('project/servers'))).toEqual(['good.yaml']);
    });
  });

  it('keeps plain values readable, and treats every value of an envFile as a secret', async () => {
    await atHome([], async (home) => {
      home.write('project/keys.env', 'A_LEVEL=debug-it\nTOKEN="from-the-file"\n');
      home.write(
        'project/.mcp.json',
        JSON.stringify({
          mcpServers: {
            a: {
              command: 'x',
              args: ['$$', '--mode', 'fast'],
              cwd: '${workspaceFolder}',
              envFile: '${workspaceFolder}/keys.env',
              env: { LOG_LEVEL: 'debug', PORT: 8080, HOST: 'https://x.example', SHORT: 'ab', NAME: 'something else' },
            },
          },
        }),
      );
      await home.run(['import', '.mcp.json', '--copy', '--secrets', 'vault', '--yes']);
      expect(config(home).servers.get('a')).toMatchObject({
        args: ['$$', '--mode', 'fast'],
        cwd: home.project.folder,
        env: {
          A_LEVEL: '${secret:a.A_LEVEL}',
          TOKEN: '${secret:a.TOKEN}',
          LOG_LEVEL: 'debug',
          PORT: '8080',
          HOST: 'https://x.example',
          SHORT: 'ab',
          NAME: '${secret:a.NAME}',
        },
      });
      expect(await vault(home, 'a.TOKEN')).toBe('from-the-file');
    });
  });
});

describe('the consent to an import', () => {
  it('is asked for at a terminal, and only y gives it', async () => {
    await atHome(['cursor'], async (home) => {
      const before = home.snapshot();
      const answer = async (words: readonly string[], replies: readonly string[]) => {
        const stdin = Object.assign(new PassThrough(), { isTTY: true });
        const running = start(home.project, words, { env: home.env, stdin });
        for (const reply of replies) {
          await expect
            .poll(() => running.said.err.split('[y/N] ').length, { interval: 5 })
            .toBeGreaterThan(replies.indexOf(reply) + 1);
          stdin.write(`${reply}\n`);
        }
        return running.ended;
      };
      expect((await answer(['import', '--all'], ['n'])).code).toBe(EXIT.ok);
      expect(home.snapshot()).toEqual(before);
      const { err } = await answer(['import', '--all', '--copy'], ['y', 'yes']);
      expect(err).toContain('Move the keys in these files to the vault?');
      expect(err).toContain('Write this?');
      expect(await vault(home, 'linear.Authorization')).toBe(VALUES[3]);
    });
  });

  it('needs --yes without a terminal, and --secrets for values', async () => {
    await atHome(['cursor'], async (home) => {
      const before = home.snapshot();
      expect(await home.run(['import', '--all'])).toMatchObject({
        code: EXIT.usage,
        err: expect.stringContaining('use --yes') as string,
      });
      expect(await home.run(['import', '--all', '--copy', '--yes'])).toMatchObject({
        code: EXIT.usage,
        err: expect.stringContaining('--secrets vault') as string,
      });
      expect(await home.run(['import', '--all', '--yes', '--secrets', 'env'])).toMatchObject({
        code: EXIT.usage,
        err: expect.stringContaining('--secrets needs --copy') as string,
      });
      expect((await home.run(['import', '--all', '--copy', '--dry-run'])).code).toBe(EXIT.ok);
      expect(home.snapshot()).toEqual(before);
    });
  });

  it('never replaces another secret in the vault: nothing is written', async () => {
    await atHome(['cursor'], async (home) => {
      await openPlaces({ state: config(home).state, env: {} }).vault.set('linear.Authorization', 'another-value');
      const before = home.snapshot();
      expect(await home.run(['import', '--all', '--copy', '--secrets', 'vault', '--yes'])).toMatchObject({
        code: EXIT.usage,
        err: expect.stringContaining('another value under linear.Authorization') as string,
      });
      expect([home.snapshot(), await vault(home, 'linear.Authorization')]).toEqual([before, 'another-value']);
    });
  });

  it('is undone, and a later edit of tollgate.yaml stays', async () => {
    await atHome(['cursor'], async (home) => {
      const before = home.read('project/tollgate.yaml');
      await home.run(['import', '--all', '--yes']);
      home.write('project/tollgate.yaml', `${home.read('project/tollgate.yaml')}# more\n`);
      expect(await home.run(['import', '--undo'])).toMatchObject({ code: EXIT.ok });
      // The blank line before a section that is gone may stay.
      expect(home.read('project/tollgate.yaml').replace(/\n+# more/, '\n# more')).toBe(`${before}# more\n`);
    });
  });

  it('does not write a tollgate.yaml that is a link or writable for everyone', async () => {
    await atHome(['cursor'], async (home) => {
      chmodSync(home.project.file, 0o666);
      expect((await home.run(['import', '--all', '--yes'])).err).toContain('is writable for everyone');
      chmodSync(home.project.file, 0o600);
      symlinkSync(home.project.file, home.file('project/other.yaml'));
      expect((await home.run(['import', '--all', '--yes', '--config', 'other.yaml'])).err).toContain('is a link');
    });
  });
});

inFull('lets no value of any file reach the screen, the state or the copies', async () => {
  const secret = fc.stringMatching(/^[A-Za-z0-9+/=_.:-]{12,40}$/).map((text) => `Zq${text}7x`);
  await fc.assert(
    fc.asyncProperty(
      secret,
      secret,
      secret,
      fc.constantFrom('env', 'headers', 'args', 'url'),
      async (one, two, three, place) => {
        await atHome([], async (home) => {
          const servers = {
            env: { command: 'x', env: { A: one, B_TOKEN: two, 'C-D': three } },
            headers: {
              url: 'https://x.example/mcp',
              headers: { Authorization: `Bearer ${one}`, 'X-Key': two, Cookie: three },
            },
            args: { command: 'x', args: [`--password=${one}`, '--secret', two, three] },
            url: { url: `https://x.example/mcp?token=${encodeURIComponent(one)}` },
          };
          home.write('project/.mcp.json', JSON.stringify({ mcpServers: { a: servers[place] } }));
          const answers = [];
          for (const words of [
            ['import'],
            ['import', '--json'],
            ['import', '--all', '--yes'],
            ['import', '--undo'],
            ['import', '--all', '--copy', '--secrets', 'vault', '--yes'],
            ['export', '--client', 'claude-code', '--replace', '--yes', '--secrets', 'vault'],
            ['export', '--undo', '--json'],
            ['import', '--all', '--copy', '--secrets', 'env', '--dry-run', '--json'],
          ])
            answers.push(await home.run(words));
          const files = Object.keys(home.snapshot())
            .filter((name) => name !== 'project/.mcp.json')
            .map((name) => home.read(name));
          const seen = [...answers.flatMap(({ out, err }) => [out, err]), ...files, home.state()].join('\n');
          for (const value of [one, two, three]) expect(seen).not.toContain(value);
        });
      },
    ),
    { numRuns: roundsOf(12, 6) },
  );
});

it('escapes names from outside wherever they are printed', async () => {
  await atHome([], async (home) => {
    home.write(
      'project/.mcp.json',
      JSON.stringify({
        mcpServers: {
          'a\u001b[31m\u202eb': { command: 'x\u001b]0;y\u0007', env: { 'K\u0007': 'v' }, alwaysAllow: [] },
        },
      }),
    );
    for (const words of [
      ['import'],
      ['import', '--all', '--yes'],
      ['import', '--all', '--copy', '--secrets', 'vault', '--dry-run'],
      ['export', '--client', 'claude-code', '--dry-run'],
      ['export', '--client', 'claude-code', '--replace', '--dry-run'],
    ]) {
      const { out, err } = await home.run(words);
      expect(/[\u0000-\u0008\u000b-\u001f\u007f\u202e]/.test(out + err), words.join(' ')).toBe(false);
    }
  });
});
