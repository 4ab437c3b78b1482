/**
 * Tests the obstacles that prevent a start even after an approval: they are shown before the approval, with the remedy.
 */
import { chownSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { EXIT } from '../../facade/cli/command-io.ts';
import { obstaclesTo } from '../../facade/cli/server-consent/start-obstacles.ts';
import { loadConfig } from '../../facade/config/load-config.ts';
import { Place } from '../connect/place.ts';
import { verifies } from '../verifies.ts';

let place: Place;

beforeEach(() => {
  place = new Place();
});
afterEach(() => place.project.remove());

function obstacles(entry: object): readonly string[] {
  place.project.write('servers/one.yaml', JSON.stringify(entry));
  const config = loadConfig(place.file, { env: {}, home: place.project.home });
  const server = config.servers.get('one');
  return server === undefined ? ['none'] : obstaclesTo(server, config);
}

describe('the obstacles to a start' + verifies('HA-29'), () => {
  it('are none for an existing program', () => {
    expect(obstacles({ command: 'node', args: ['server.js', '--verbose'] })).toEqual([]);
  });

  it('are a package that is fetched without a network, with the command that installs it', () => {
    expect(obstacles({ command: 'npx', args: ['-y', '@modelcontextprotocol/server-filesystem', '/srv/none'] })).toEqual(
      [
        'it cannot start like this: npx downloads its package at each start, and its sandbox has no network; ' +
          'this installs it beforehand: tollgate connect filesystem --name one --set folder=/srv/none',
      ],
    );
    expect(obstacles({ command: 'uvx', args: ['no-such-package'] })).toEqual([
      expect.stringContaining('install the package, and name its own program'),
    ]);
    expect(
      obstacles({
        command: 'npx',
        args: ['some-package'],
        sandbox: { network: { allowedDomains: ['registry.example.org'] } },
      }),
    ).toEqual([]);
    expect(obstacles({ command: 'npx', args: ['some-package'], isolation: 'direct' })).toEqual([]);
    expect(obstacles({ url: 'https://mcp.example.org/mcp' })).toEqual([]);
  });

  it('are a folder in the arguments that the sandbox does not show', () => {
    const folder = path.join(place.project.folder, 'work');
    expect(obstacles({ command: 'node', args: ['server.js', '${workspaceFolder}'] })).toEqual([
      `it cannot read ${JSON.stringify(folder)}, which is one of its arguments; ` +
        `write in its entry: sandbox: {filesystem: {allowRead: [${JSON.stringify(folder)}]}}, or allowWrite`,
    ]);
    expect(
      obstacles({
        command: 'node',
        args: ['server.js', folder],
        sandbox: { filesystem: { allowWrite: ['${workspaceFolder}'] } },
      }),
    ).toEqual([]);
  });

  it('are a workspace that belongs to root if root starts the server, which the first screen says', async () => {
    chownSync(path.join(place.project.folder, 'work'), 0, 0);
    expect(obstacles({ command: 'node', args: ['server.js'] })).toEqual([
      expect.stringMatching(/Tollgate runs as root, and the workspace belongs to root; .* chown -R \S+ \S+\/work$/),
    ]);
    place.project.write('server.js', '');
    const { code, out } = await place.run(['approve', 'one']);
    expect(code).toBe(EXIT.approval);
    expect(out).toContain('  ! it cannot start in a sandbox: Tollgate runs as root');
  });
});
