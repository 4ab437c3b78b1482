/** Tests the documented layout: a server whose program lies in `servers/` beside tollgate.yaml, in a project with a package.json. */
import { chmodSync } from 'node:fs';
import { afterEach, describe, expect, it } from 'vitest';
import { cli, dataOf } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { giveAway } from '../servers/system.ts';
import { acceptFor } from '../stories/accept-configuration.ts';
import { verifies } from '../verifies.ts';

const PROGRAM = `const { existsSync } = require('node:fs');
require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method } = JSON.parse(line);
  if (id === undefined) return;
  const seen = ['tickets.js', 'lib.js', 'other.yaml'].filter((name) => { try { return require('node:fs').readFileSync(__dirname + '/' + name, 'utf8') !== ''; } catch { return false; } });
  const result = method === 'initialize' ? { protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 'tickets', version: '1.0.0' } }
    : { tools: [{ name: 'list_tickets', description: 'Sees ' + seen.join() + (seen.includes('lib.js') ? ' ' + require('./lib.js') : ''), inputSchema: { type: 'object' } }] };
  process.stdout.write(JSON.stringify({ jsonrpc: '2.0', id, result }) + '\\n');
});
`;

describe('servers/NAME.js' + verifies('ST-96'), () => {
  let project: Project;
  afterEach(() => project.remove());

  it.each(['without a package.json', 'with a package.json'])(
    'runs in a sandbox, %s, and reads no definition of another server',
    async (how) => {
      project = new Project();
      chmodSync(project.root, 0o755);
      project.write('servers/tickets.js', PROGRAM);
      project.write('servers/lib.js', 'module.exports = "and its module";');
      project.write(
        'servers/other.yaml',
        'command: node\nargs: [servers/none.js]\nisolation: direct\nenv: {A: plain-value}\n',
      );
      if (how.startsWith('with ')) project.write('package.json', '{"name": "project"}');
      project.write(
        'tollgate.yaml',
        'version: 1\nservers: {tickets: {command: node, args: [servers/tickets.js], semantics: {list_*: read}}}\nprofiles: {default: {servers: [tickets]}}\nexpose: {tools: [tickets.*]}\nrules: [{id: all, outcome: allow, when: {servers: [tickets]}}]\n',
      );
      giveAway(project.folder);
      acceptFor(['approve'], { folder: project.folder, home: project.home, env: {} });
      const hashOf = async (more: readonly string[], kind: string): Promise<string> => {
        const { out, err } = await cli(project, ['approve', 'tickets', ...more]);
        return new RegExp(`${kind} hash +([0-9a-f]{64})`).exec(out)?.[1] ?? `none: ${out}${err}`;
      };
      const start = await hashOf([], 'start');
      const tools = await hashOf(['--yes', start], 'tools');
      await cli(project, ['approve', 'tickets', '--yes', start, tools]);
      const found = dataOf<{ definition: { description: string } }>(
        (await cli(project, ['tools', 'tickets_list_tickets', '--json'])).out,
      );
      expect(found.definition.description).toBe(
        how.startsWith('with ') ? 'Sees tickets.js,lib.js and its module' : 'Sees tickets.js',
      );
    },
  );
});
