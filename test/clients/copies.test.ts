/**
 * Tests that `import --copy` turns a server that its client downloads at each start into an installed package, and
 * loses none of its arguments, folders and variables.
 */

import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { PassThrough } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { loadKnown } from '../../catalogs/servers/known-server.ts';
import { EXIT } from '../../facade/cli/command-io.ts';
import { loadConfig } from '../../facade/config/load-config.ts';
import { dataOf, start } from '../cli/terminal.ts';
import { inFull } from '../harness/full-tests.ts';
import { verifies } from '../verifies.ts';
import { atHome, type Home, WITH_INSTALLERS } from './home.ts';

const withInstallers = (work: (home: Home) => Promise<void>): Promise<void> => atHome([], work, WITH_INSTALLERS);

const KEY = 'key-1234567890abcdef';

const writeServers = (home: Home, servers: Readonly<Record<string, unknown>>): string =>
  home.write('project/.mcp.json', JSON.stringify({ mcpServers: servers }));
const copy = (home: Home, ...more: readonly string[]) =>
  home.run(['import', '.mcp.json', '--copy', '--secrets', 'vault', ...(more.length > 0 ? more : ['--yes'])]);
const serverOf = (home: Home, name: string) =>
  loadConfig(home.project.file, { env: home.env, home: home.project.home }).servers.get(name);
const stateOf = (home: Home): string => loadConfig(home.project.file, { env: home.env, home: home.project.home }).state;

describe('a copy of a server that its client downloads' + verifies('FH-15'), () => {
  inFull('runs the installed package with every argument and variable, and undo removes it', async () => {
    await withInstallers(async (home) => {
      writeServers(home, {
        notes: {
          command: 'npx',
          args: ['-y', 'notes-mcp@1.2.3', '--mode', 'fast', '--', 'a$b'],
          env: { LEVEL: 'debug', NOTES_KEY: KEY },
        },
        words: { command: 'uvx', args: ['words-mcp==2.0.0', '--all'] },
      });
      const before = home.snapshot();
      const { code, err } = await copy(home);
      expect(code).toBe(EXIT.ok);
      expect(err).toContain('    installs notes-mcp 1.2.3, without running its scripts\n');
      const packages = path.join(stateOf(home), 'packages');
      expect(serverOf(home, 'notes')).toMatchObject({
        command: 'node',
        args: [path.join(packages, 'notes/1.2.3/node_modules/notes-mcp/run.js'), '--mode', 'fast', '--', 'a$b'],
        env: { LEVEL: 'debug', NOTES_KEY: '${secret:notes.NOTES_KEY}' },
        labels: ['untrusted'],
        sandbox: { network: { allowedDomains: [] }, limits: { memoryMb: 512 } },
      });
      expect(serverOf(home, 'words')).toMatchObject({
        command: path.join(packages, 'words/2.0.0/bin/words-mcp'),
        args: ['--all'],
      });
      expect(readFileSync(home.file('project/servers/notes.yaml'), 'utf8')).toMatch(/^# notes-mcp 1\.2\.3, sha512-/m);
      expect(existsSync(path.join(packages, 'notes/1.2.3/node_modules/notes-mcp/run.js'))).toBe(true);
      expect(await home.run(['import', '--undo'])).toMatchObject({ code: EXIT.ok });
      expect([home.snapshot(), existsSync(packages)]).toEqual([before, false]);
    });
  });

  inFull('keeps variables that a container takes from its environment as secrets, and its folders', async () => {
    await withInstallers(async (home) => {
      mkdirSync(home.file('project/data'));
      const words = ['run', '-i', '--rm', '-e', 'TOKEN', '-e', `API_KEY=${KEY}`, '-v'];
      writeServers(home, {
        box: { command: 'docker', args: [...words, '${workspaceFolder}/data:/data', 'no-such-image'] },
      });
      const { err } = await copy(home);
      expect(err).toMatch(/- box: [^]*left out: its package cannot be pinned: /);
      expect(existsSync(home.file('project/servers'))).toBe(false);
    });
  });

  it('becomes a remote server if it is a bridge to one, and its header moves to the vault', async () => {
    await withInstallers(async (home) => {
      writeServers(home, {
        far: {
          command: 'npx',
          args: [
            ...['-y', 'mcp-remote@latest', 'https://mcp.example.org/sse', '3334', '--transport', 'sse-only'],
            ...['--header', 'Authorization:${AUTH}', '--header', 'X-Team: red', '--debug'],
          ],
          env: { AUTH: `Bearer ${KEY}` },
        },
      });
      const { err } = await copy(home);
      expect(err).toContain('    not kept: 3334: Tollgate chooses the port of a sign-in\n');
      const far = serverOf(home, 'far');
      expect(far).toMatchObject({
        url: 'https://mcp.example.org/sse',
        transport: 'sse',
        headers: { Authorization: 'Bearer ${secret:far.Authorization}' },
      });
      expect([far?.command, far?.env]).toEqual([undefined, {}]);
      expect(home.state()).not.toContain(KEY);
    });
  });

  it('is left out if its package cannot be pinned, and the others are copied', async () => {
    await withInstallers(async (home) => {
      writeServers(home, {
        gone: { command: 'npx', args: ['-y', 'no-such-package'] },
        odd: { command: 'npx', args: ['--call', 'notes'] },
        notes: { command: 'npx', args: ['notes-mcp'] },
      });
      const { err, code } = await copy(home);
      expect(code).toBe(EXIT.ok);
      expect(err).toMatch(/- gone: [^]*left out: its package cannot be pinned: Looking up no-such-package@latest: /);
      expect(err).toMatch(/- odd: [^]*left out: its option --call is not known here/);
      expect(serverOf(home, 'notes')?.command).toBe('node');
    });
  });

  it('changes nothing if an installation fails, and the next run continues' + verifies('FH-17'), async () => {
    await withInstallers(async (home) => {
      writeServers(home, {
        breaks: { command: 'npx', args: ['breaks-once@1.0.0'] },
        notes: { command: 'npx', args: ['notes-mcp@1.0.0'] },
      });
      const before = home.snapshot();
      const failed = await copy(home);
      expect(failed).toMatchObject({
        code: EXIT.unexpected,
        err: expect.stringContaining('INSTALL_FAILED: Installing breaks-once 1.0.0: ') as string,
      });
      expect(home.snapshot()).toEqual(before);
      expect((await copy(home)).code).toBe(EXIT.ok);
      expect(serverOf(home, 'breaks')?.command).toBe('node');
    });
  });
});

describe('a copy of a server that the catalog knows' + verifies('FH-16'), () => {
  const memory = loadKnown('memory');

  it('gets its labels, semantics and hosts, and keeps the variables and folders of the user', async () => {
    await withInstallers(async (home) => {
      mkdirSync(home.file('notes'));
      writeServers(home, {
        graph: {
          command: 'npx',
          args: ['-y', `${memory.package?.name}@${memory.package?.version}`, '~/notes'],
          env: { MEMORY_FILE_PATH: home.file('notes/graph.jsonl') },
        },
        dashboards: {
          command: 'npx',
          args: ['-y', loadKnown('grafana').package?.name],
          env: { GRAFANA_URL: 'https://team.example.org' },
        },
        notion: { command: 'npx', args: ['-y', loadKnown('notion').package?.name], env: { NOTION_TOKEN: KEY } },
      });
      const { out } = await copy(home, '--yes', '--json');
      const { servers } = dataOf<{ readonly servers: readonly { readonly name: string; readonly outside: unknown }[] }>(
        out,
      );
      expect(servers[0]).toMatchObject({
        name: 'graph',
        outside: [
          { folder: home.file('notes'), access: 'write' },
          { folder: '~/notes', access: 'write' },
        ],
      });
      expect(serverOf(home, 'graph')).toMatchObject({
        args: [expect.stringMatching(/server-memory\/run\.js$/) as string, '~/notes'],
        env: { MEMORY_FILE_PATH: home.file('notes/graph.jsonl') },
        labels: memory.labels,
      });
      expect(serverOf(home, 'graph')?.semantics.map(({ pattern }) => pattern)).toEqual(
        Object.keys(memory.semantics ?? {}),
      );
      expect(serverOf(home, 'dashboards')?.sandbox?.network.allowedDomains.join()).toContain('team.example.org');
      expect(serverOf(home, 'notion')?.sandbox?.network.allowedDomains.join()).toContain('api.notion.com');
      expect(serverOf(home, 'notion')?.env).toMatchObject({ NOTION_TOKEN: '${secret:notion.NOTION_TOKEN}' });
    });
  });

  it('gets a folder outside the workspace if a person at the terminal agrees', async () => {
    await withInstallers(async (home) => {
      mkdirSync(home.file('notes'));
      writeServers(home, {
        files: { command: 'npx', args: ['-y', '@modelcontextprotocol/server-filesystem', home.file('notes')] },
      });
      const stdin = Object.assign(new PassThrough(), { isTTY: true });
      const running = start(home.project, ['import', '.mcp.json', '--copy'], { env: home.env, stdin, isTTY: true });
      await expect.poll(() => running.said.err, { timeout: 60_000 }).toContain('May files read and write ');
      stdin.write('y\n');
      await expect.poll(() => running.said.err, { timeout: 60_000 }).toContain('Write this?');
      stdin.write('y\n');
      expect((await running.ended).code).toBe(EXIT.ok);
      expect(serverOf(home, 'files')?.sandbox?.filesystem.allowWrite).toEqual([home.file('notes')]);
    });
  });
});
