/**
 * Tests the way from the configuration file of another client to a result in code, with three real servers: approval by
 * the owner, a profile, modules, values, refusals and records.
 * Covers: facade/code.
 */

import { mkdirSync, readFileSync, realpathSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Session } from '../../facade/serve/facade-port.ts';
import { cli } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';
import { runCode } from './code-facade.ts';

const PACKAGES = path.join(import.meta.dirname, '..', 'servers', 'node_modules');
const SERVERS = ['everything', 'files', 'desktop'] as const;

/** Returns the file of the other client: servers as users paste them, with restricted tools. */
const clientFile = (workspace: string): string =>
  JSON.stringify({
    mcpServers: {
      everything: {
        command: process.execPath,
        args: [path.join(PACKAGES, '@modelcontextprotocol/server-everything/dist/index.js'), 'stdio'],
        denyTools: ['get-env', 'toggle-simulated-logging'],
      },
      files: {
        command: process.execPath,
        args: [path.join(PACKAGES, '@modelcontextprotocol/server-filesystem/dist/index.js'), workspace],
        allowTools: ['read_text_file', 'list_directory', 'write_file', 'edit_file'],
        denyTools: ['edit_file'],
      },
    },
  });

/** Returns tollgate.yaml. The third server needs a HOME of its own, which an included file may not set. */
const settings = (home: string): string => `version: 1
workspace: ./workspace
state: ./state
include: [.mcp.json]
servers:
  everything: {isolation: direct, connectTimeoutMs: 60000}
  files: {isolation: direct, connectTimeoutMs: 60000, semantics: {"read_*": read, "list_*": read, write_file: write}}
  desktop:
    command: ${process.execPath}
    args: [${path.join(PACKAGES, '@wonderwhy-er/desktop-commander/dist/index.js')}]
    env: {HOME: ${JSON.stringify(home)}}
    isolation: direct
    connectTimeoutMs: 60000
    tools: {allow: [list_directory, get_file_info]}
principals:
  - {id: agent, stdio: true, profiles: [coding]}
  - {id: guest, stdio: true, profiles: [small]}
  - {id: boss, stdio: true, owner: true}
profiles:
  coding:
    servers: [everything, files, desktop]
    expose: {primitives: {}, tools: ["everything.*", "files.*", "desktop.*"], code: true}
  small:
    servers: [everything]
    expose: {primitives: {}, tools: [everything.echo], code: true}
approvals: {waitMs: 0}
rules:
  - {id: all, outcome: allow, when: {servers: [everything, files, desktop]}}
  - {id: empty, outcome: deny, message: No file is emptied., when: {tools: [files.write_file], args: {content: {equals: ""}}}}
`;

let project: Project;
let facade: TestFacade;
let session: Session;
let workspace: string;

/** Approves a server as a person does: first what would start, then the tools that it has. */
async function approveServer(server: string): Promise<void> {
  const command = ['approve', server, '--own-isolation', '--as', 'boss'];
  const look = async () => {
    const { out } = await cli(project, [...command, '--json']);
    return JSON.parse(out) as { readonly start: { readonly hash: string }; readonly tools?: { readonly hash: string } };
  };
  const { start } = await look();
  await cli(project, [...command, '--yes', start.hash]);
  const { tools } = await look();
  const { code, err } = await cli(project, [...command, '--yes', start.hash, tools?.hash ?? '']);
  expect(code, err).toBe(0);
}

/** Returns the servers that run. */
const running = (): readonly string[] =>
  SERVERS.filter((name) => facade.assembled.catalog.servers.get(name)?.adapter.health().state === 'healthy');

/** Runs code, and returns the value that it returned. Fails if it ended otherwise. */
async function valueOf(code: string): Promise<unknown> {
  const { text, code: failed } = await runCode(facade, code, session);
  expect(failed, text).toBe('');
  return JSON.parse(text) as unknown;
}

beforeAll(async () => {
  project = new Project();
  const home = path.join(project.root, 'desktop-home');
  mkdirSync(path.join(project.folder, 'workspace'));
  workspace = realpathSync(path.join(project.folder, 'workspace'));
  mkdirSync(path.join(home, '.claude-server-commander'), { recursive: true });
  writeFileSync(
    path.join(home, '.claude-server-commander', 'config.json'),
    JSON.stringify({ telemetryEnabled: false, allowedDirectories: [workspace], blockedCommands: [] }),
  );
  writeFileSync(path.join(workspace, 'cities.json'), '["New York", "Chicago", "Los Angeles"]');
  project.write('.mcp.json', clientFile(workspace));
  project.write('tollgate.yaml', settings(home));
  await Promise.all(SERVERS.map(approveServer));
  facade = await startFacade(settings(home), { folder: project.folder, approved: [] });
  session = facade.open('agent');
});
afterAll(async () => {
  await facade?.close();
  project.remove();
});

describe('from the file of another client to code, with real servers', () => {
  it(
    'shows modules of the approved servers of the profile, without those tools that a file or setting denies, and ' +
      `starts nothing${verifies('HA-14', 'HA-27', 'CM-45')}`,
    async () => {
      const { text } = await facade.call(session, 'list_modules', {});
      expect(text.split('\n').map((line) => line.split(' (')[0])).toEqual([
        'host:mcp-desktop: 2 functions',
        'host:mcp-everything: 11 functions',
        'host:mcp-files: 3 functions',
      ]);
      const files = (await facade.call(session, 'module_info', { module: 'host:mcp-files' })).text;
      for (const name of ['read_text_file', 'list_directory', 'write_file']) expect(files).toContain(`${name}(`);
      expect(files).not.toContain('edit_file');
      const everything = (await facade.call(session, 'module_info', { module: 'everything' })).text;
      expect(everything).toContain('get_structured_content');
      expect(everything).not.toMatch(/get_env|toggle_simulated_logging/);
      const guest = facade.open('guest');
      expect((await facade.call(guest, 'list_modules', {})).text).toBe('host:mcp-everything: 1 function (echo)');
      expect(running()).toEqual([]);
    },
  );

  inFull(`starts a server at its first call, and no other${verifies('HA-12', 'CM-45')}`, async () => {
    expect(
      await valueOf(
        `import { list_directory } from 'host:mcp-files';
return list_directory({ path: ${JSON.stringify(workspace)} });`,
      ),
    ).toEqual({ content: '[FILE] cities.json' });
    expect(running()).toEqual(['files']);
  });

  inFull(
    'gives structured content as a value, JSON text, failures as {error}, and passes values on between two servers at ' +
      `once${verifies('HA-12', 'HA-27', 'CM-45')}`,
    async () => {
      const found = (await valueOf(
        `import { read_text_file } from 'host:mcp-files';
const { get_structured_content, echo } = require('host:mcp-everything');
const path = ${JSON.stringify(path.join(workspace, 'cities.json'))};
const cities: string[] = JSON.parse(read_text_file({ path }).content);
const weather = await Promise.all(cities.map((location) => get_structured_content.async({ location })));
const [said, gone] = await Promise.all([
  echo.async({ message: 'warmest' }),
  read_text_file.async({ path: path + '.gone' }),
]);
const warmest = cities.map((city, at) => [weather[at].temperature, city]).sort((one, other) => other[0] - one[0])[0];
return { said, warmest, conditions: weather.map(({ conditions }) => conditions), gone };`,
      )) as { readonly gone: { readonly error: string } };
      expect(found).toMatchObject({
        said: 'Echo: warmest',
        warmest: [73, 'Los Angeles'],
        conditions: ['Cloudy', 'Light rain / drizzle', 'Sunny / Clear'],
      });
      expect(Object.keys(found.gone)).toEqual(['error']);
      expect(found.gone.error).toMatch(/ENOENT/);
      expect(running()).toEqual(['everything', 'files']);
    },
  );

  it(`gives an image as a handle, and the client gets the image if the code returns it${verifies('HA-27', 'CM-45')}`, async () => {
    const direct = await facade.call(session, 'everything_get-tiny-image', {});
    const { result } = await runCode(
      facade,
      `const [before, image] = require('host:mcp-everything').get_tiny_image();
return { before, image };`,
      session,
    );
    const [text, image] = result?.content ?? [];
    expect(JSON.parse(String(text?.text))).toEqual({
      before: "Here's the image you requested:",
      image: { handle: expect.any(String), type: 'image', mimeType: 'image/png', bytes: expect.any(Number) },
    });
    expect(image).toEqual(direct.result?.content?.find(({ type }) => type === 'image'));
  });

  it(`has no denied tool, and refuses what a rule denies${verifies('HA-12', 'CM-45')}`, async () => {
    for (const name of ['edit_file', 'move_file'])
      expect((await runCode(facade, `require('host:mcp-files').${name}({})`, session)).text).toContain(
        `host:mcp-files has no function "${name}"`,
      );
    expect((await runCode(facade, `import { get_env } from 'host:mcp-everything'; get_env()`, session)).text).toContain(
      'get_env',
    );
    const wrong = await runCode(facade, `require('host:mcp-desktop').read_file({})`, session);
    expect(wrong.text).toContain('host:mcp-desktop has no function "read_file"');
    expect(
      await valueOf(`return require('host:mcp-files').write_file({ path: ${JSON.stringify(workspace)}, content: '' })`),
    ).toEqual({ error: expect.stringContaining('No file is emptied.'), code: 'DENIED' });
    expect(running()).toEqual(['everything', 'files']);
  });

  inFull(`records each call with the call of run_code as its parent${verifies('HA-12', 'CM-45')}`, async () => {
    const before = facade.callRecords().length;
    const info = await valueOf(
      `const { get_file_info } = require('host:mcp-desktop');
return [get_file_info({ path: ${JSON.stringify(path.join(workspace, 'cities.json'))} }), require('host:mcp-everything').get_sum({ a: 2, b: 40 })];`,
    );
    expect(info).toEqual([expect.stringContaining('size: 38'), 'The sum of 2 and 40 is 42.']);
    const records = facade.callRecords().slice(before);
    const [outer] = records;
    expect(records.map(({ type, server, tool, parent }) => [type, server, tool, parent])).toEqual([
      ['intent', 'code', 'run_code', undefined],
      ['intent', 'desktop', 'get_file_info', outer?.id],
      ['outcome', 'desktop', 'get_file_info', outer?.id],
      ['intent', 'everything', 'get-sum', outer?.id],
      ['outcome', 'everything', 'get-sum', outer?.id],
      ['outcome', 'code', 'run_code', undefined],
    ]);
    expect(running()).toEqual(['everything', 'files', 'desktop']);
  });

  it('leaves the file of the client as it was', () => {
    expect(readFileSync(path.join(project.folder, '.mcp.json'), 'utf8')).toBe(clientFile(workspace));
  });
});
