/** Tests the documented layout: the program of a server is in `servers/` next to tollgate.yaml. */
import { chmodSync } from 'node:fs';
import { afterEach, describe, expect, it } from 'vitest';
import { cli, dataOf } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { giveAway } from '../servers/system.ts';
import { acceptFor } from '../stories/accept-configuration.ts';
import { verifies } from '../verifies.ts';

const PROGRAM = `const { readFileSync } = require('node:fs');
require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method } = JSON.parse(line);
  if (id === undefined) return;
  const isReadable = (name) => {
    try { return readFileSync(__dirname + '/' + name, 'utf8') !== ''; } catch { return false; }
  };
  const files = ['tickets.js', 'lib.js', 'other.yaml'].filter(isReadable);
  const description = 'Sees ' + files.join() + (files.includes('lib.js') ? ' ' + require('./lib.js') : '');
  const serverInfo = { name: 'tickets', version: '1.0.0' };
  const result = method === 'initialize' ? { protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo }
    : { tools: [{ name: 'list_tickets', description, inputSchema: { type: 'object' } }] };
  process.stdout.write(JSON.stringify({ jsonrpc: '2.0', id, result }) + '\\n');
});
`;

describe('a server in servers/NAME.js' + verifies('ST-96'), () => {
  let project: Project;
  afterEach(() => project.remove());

  it.each(['without a package.json', 'with a package.json'])(
    'runs in a sandbox %s, and cannot read the definition of another server',
    async (variant) => {
      project = new Project();
      chmodSync(project.root, 0o755);
      project.write('servers/tickets.js', PROGRAM);
      project.write('servers/lib.js', 'module.exports = "and its module";');
      project.write(
        'servers/other.yaml',
        `command: node
args: [servers/none.js]
isolation: direct
env: {A: plain-value}
`,
      );
      if (variant.startsWith('with ')) project.write('package.json', '{"name": "project"}');
      project.write(
        'tollgate.yaml',
        `version: 1
servers: {tickets: {command: node, args: [servers/tickets.js], semantics: {list_*: read}}}
profiles: {default: {servers: [tickets]}}
expose: {tools: [tickets.*]}
rules: [{id: all, outcome: allow, when: {servers: [tickets]}}]
`,
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
        variant.startsWith('with ') ? 'Sees tickets.js,lib.js and its module' : 'Sees tickets.js',
      );
    },
  );
});
