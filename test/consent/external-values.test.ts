/**
 * Tests values from outside in the settings of a server: what a probe gets of them, and what facts and screens contain.
 */
import { createHmac } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { StartFiles } from '../../adapters/port.ts';
import type { ServerConfig } from '../../facade/config/config.ts';
import { loadConfig } from '../../facade/config/load-config.ts';
import { outsideValuesOf, withPlaceholder } from '../../facade/config/reading/outside-values.ts';
import { probeSettings, withheldFromProbe } from '../../facade/consent/servers/consent-probe.ts';
import { startFacts } from '../../facade/consent/servers/start-facts.ts';
import { cli } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { verifies } from '../verifies.ts';

const VALUE = 'hunter22-hunter22';
const ENV = { PLACE: VALUE, TOLLGATE_INPUT_ID: VALUE, HOME: '/home/me' };
const YAML = `version: 1
workspace: ./workspace
include: [mcp.json]
servers:
  one:
    command: node
    args: [server.mjs, '--at=\${env:PLACE}', '\${HOME}/x', '\${workspaceFolder}']
    env: {LEVEL: '\${PLACE}', FIXED: plain, DEEP: 'a \${env:PLACE:-b}'}
  two: {url: 'https://mcp.example.org/\${env:PLACE}', headers: {X-Place: '\${env:PLACE}', X-Kind: notes}}
  three: {}
`;

let project: Project;
beforeEach(() => {
  project = new Project();
  project.write('workspace/a.txt', 'a');
  project.write('server.mjs', '');
  project.write('file.env', `DATA=${VALUE}\n`);
  project.write(
    'mcp.json',
    JSON.stringify({
      inputs: [{ id: 'id', type: 'promptString' }],
      mcpServers: {
        three: { command: 'node', args: ['server.mjs', '${input:id}'], env: { PLAIN: 'x' }, envFile: 'file.env' },
      },
    }),
  );
  project.write('tollgate.yaml', YAML);
});
afterEach(() => project.remove());

function serverOf(name: string): ServerConfig {
  const { servers } = loadConfig(project.file, { env: ENV, home: project.home });
  return servers.get(name) as ServerConfig;
}

const factsOf = (server: ServerConfig): Promise<unknown> =>
  startFacts(server, {
    folder: project.folder,
    inspect: () => Promise.resolve({ scripts: [], folder: project.folder } as unknown as StartFiles),
    digest: (text) => createHmac('sha256', 'key').update(text).digest('hex'),
  });

describe('values from outside in the settings of a server' + verifies('HA-16', 'HA-24'), () => {
  it('are not given to a probe, whatever their names are', () => {
    const one = probeSettings(serverOf('one'), {});
    expect([one.args, one.env]).toEqual([
      ['server.mjs', '--at=tollgate-discovery', '/home/me/x', expect.stringContaining('workspace')],
      { LEVEL: 'tollgate-discovery', FIXED: 'plain', DEEP: 'tollgate-discovery' },
    ]);
    const two = probeSettings(serverOf('two'), {});
    expect([two.url, two.headers]).toEqual(['https://mcp.example.org/tollgate-discovery', { 'X-Kind': 'notes' }]);
    const three = probeSettings(serverOf('three'), {});
    expect([three.args, three.env]).toEqual([
      ['server.mjs', 'tollgate-discovery'],
      { DATA: 'tollgate-discovery', PLAIN: 'x' },
    ]);
    expect(withheldFromProbe(serverOf('one')).secrets).toEqual(['args.1', 'LEVEL', 'DEEP']);
  });

  it('are given to a probe that was allowed to have them', () => {
    expect(probeSettings(serverOf('one'), { withSecrets: true })).toMatchObject({
      args: ['server.mjs', `--at=${VALUE}`, '/home/me/x', expect.any(String)],
      env: { LEVEL: VALUE },
    });
    expect(probeSettings(serverOf('two'), { withSecrets: true })).toMatchObject({
      url: `https://mcp.example.org/${VALUE}`,
      headers: { 'X-Place': VALUE },
    });
  });

  it('are not in the facts, which have the written text and a keyed digest that changes with the value', async () => {
    for (const name of ['one', 'two', 'three'])
      expect(JSON.stringify(await factsOf(serverOf(name)))).not.toContain(VALUE);
    const one = serverOf('one');
    expect(await factsOf(one)).toMatchObject({
      args: [
        'server.mjs',
        expect.stringMatching(/^--at=\$\{env:PLACE\} \(digest [0-9a-f]{32}\)$/),
        '/home/me/x',
        expect.any(String),
      ],
    });
    const other = { ...one, args: one.args.map((arg) => arg.replace(VALUE, 'another-value')) };
    expect(await factsOf(other)).not.toEqual(await factsOf(one));
  });

  it('are on no screen, and a remark says where process lists show them', async () => {
    for (const name of ['one', 'two', 'three']) {
      for (const argv of [
        ['approve', name],
        ['approve', name, '--json'],
        ['servers', 'info', name],
      ]) {
        const { out, err } = await cli(project, argv, { env: ENV });
        expect(out + err, argv.join(' ')).not.toContain(VALUE);
      }
    }
    const { out } = await cli(project, ['approve', 'one'], { env: ENV });
    expect(out).toMatch(/ {2}args\[1\] {2}"--at=\$\{env:PLACE\} \(digest [0-9a-f]{32}\)"/);
    expect(out).toContain('args[1] contains a variable');
    expect((await cli(project, ['approve', 'two'], { env: ENV })).out).toContain('url contains a variable');
  });
});

it('folders and common variables in settings do not count as values from outside', () => {
  expect(
    outsideValuesOf({
      args: ['${userHome}', '$${X}', '${PATH_X:-y}', 'a'],
      env: { A: '${secret:X}', B: '${LC_ALL}' },
      url: '${input:HOME}',
    }),
  ).toEqual({ 'args.2': '${PATH_X:-y}', url: '${input:HOME}' });
  expect(outsideValuesOf({})).toBeUndefined();
  expect(withPlaceholder('a ${X} $$ ${env:Y:-z}', 'W')).toBe('a W $ W');
});
