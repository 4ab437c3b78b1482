/**
 * Follows README.md from a client's file to a call under its rule, as a reader would, and looks for a way around
 * Tollgate.
 */

import { chmodSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { giveAway } from '../servers/system.ts';
import { runAtTerminal, type TerminalEnd } from '../setup/terminal-process.ts';
import { verifies } from '../verifies.ts';
import { linkProgram, runLine, type Shown } from './console.ts';
import { type Block, blocksOf, proseOf } from './markdown.ts';

const BLOCKS = blocksOf('README.md');
const commandsIn = ({ text }: Block): readonly string[] => text.split('\n').filter((line) => /^tollgate /.test(line));
/** What the reader does after the installation, in order: a command, or an edit of the rules. */
type Step = { readonly command: string } | { readonly rule: string };
const STEPS = BLOCKS.flatMap((block): readonly Step[] => {
  if (block.language === 'yaml') return [{ rule: block.text }];
  return ['sh', 'text'].includes(block.language) ? commandsIn(block).map((command) => ({ command })) : [];
});
/** Ends that the page states. */
const ENDS: Readonly<Record<string, number>> = { 'tollgate try read \'{"path": ".env"}\'': 3 };
const SECRET = 'kPq02LmVt77Zx81';

let project: Project;
let env: Record<string, string>;
let clientFile: string;
let before: string;
let setup: TerminalEnd;
const shown = new Map<string, Shown>();

const run = (line: string): Promise<Shown> => runLine(line, { home: project.home, folder: project.folder, env });
const atTerminal = (line: string, keys: readonly (readonly [string, string])[]): Promise<TerminalEnd> =>
  runAtTerminal(line.split(' '), keys, { cwd: project.folder, env, columns: 100 });
const configFolder = (): string => {
  const folder = path.join(project.home, '.config', 'tollgate');
  return path.join(folder, readdirSync(folder)[0] ?? '');
};

beforeAll(async () => {
  project = new Project();
  chmodSync(project.root, 0o755);
  env = {
    PATH: linkProgram(project.root),
    HOME: project.home,
    npm_config_cache: process.env.npm_config_cache ?? path.join(process.env.HOME ?? '', '.npm'),
  };
  for (const [name, value] of Object.entries(process.env))
    if (/^npm_config_registry$/i.test(name) && value !== undefined) env[name] = value;
  mkdirSync(path.join(project.folder, 'customers'));
  project.write('customers/list.csv', SECRET);
  project.write('.env', SECRET);
  giveAway(project.folder);
  const memory = { command: 'npx', args: ['-y', '@modelcontextprotocol/server-memory'] };
  before = `${JSON.stringify({ mcpServers: { memory } }, null, 2)}\n`;
  clientFile = project.write('~/.cursor/mcp.json', before);
  for (const step of STEPS)
    if ('rule' in step) addRule(step.rule);
    else if (step.command === 'tollgate setup')
      setup = await atTerminal(step.command, [
        ['Do this?', 'y'],
        ['within the policy?', 'y'],
        ['Write these files?', 'y'],
        ['Make one harmless read call', 'y'],
      ]);
    else shown.set(step.command, await run(step.command));
}, 240_000);

afterAll(() => project.remove());

/** Adds the rule of the page where it says: to the rules next to the configuration. */
function addRule(text: string): void {
  const file = path.join(configFolder(), 'policies', 'rules.yaml');
  writeFileSync(file, readFileSync(file, 'utf8').replace(/^rules:\n/m, text));
}

describe('the sequence of README.md' + verifies('FH-67'), () => {
  it('begins with setup, and what it shows at the end is true', () => {
    expect(STEPS[0]).toEqual({ command: 'tollgate setup' });
    const end = BLOCKS.find(({ text }) => text.includes('server approved'))?.text.trim() ?? 'none';
    expect([setup.code, setup.text]).toEqual([0, expect.stringContaining(end) as string]);
  });

  it('each command ends as the page says', () => {
    expect(shown.size).toBeGreaterThan(6);
    for (const [command, { code, shown: text }] of shown)
      expect([command, code, text]).toEqual([command, ENDS[command] ?? 0, text]);
    expect(shown.get('tollgate check')?.shown).toContain(path.relative(project.home, configFolder()));
    expect(shown.get('tollgate audit verify --seal')?.shown).toContain('each record follows the one before it');
  });

  inFull(
    'leaves no way around Tollgate: not in the client, and not for an agent that tries',
    async () => {
      const { mcpServers } = JSON.parse(readFileSync(clientFile, 'utf8')) as {
        readonly mcpServers: Record<string, { readonly command: string; readonly args: string[] }>;
      };
      expect(Object.keys(mcpServers)).toEqual(['tollgate']);
      const client = new Client({ name: 'cursor', version: '1' });
      const entry = mcpServers.tollgate ?? { command: '', args: [] };
      await client.connect(new StdioClientTransport({ ...entry, env, cwd: project.folder, stderr: 'ignore' }));
      const call = async (name: string, args: Record<string, unknown>): Promise<string> => {
        const { content } = await client.callTool({ name, arguments: args });
        return JSON.stringify(content);
      };
      try {
        const refused = BLOCKS.find(({ text }) => text.startsWith('Refused by rule'))?.text.trim() ?? 'none';
        expect(await call('read', { path: 'customers/list.csv' })).toContain(refused);
        const config = path.join(configFolder(), 'tollgate.yaml');
        const attempts: readonly (readonly [string, Record<string, unknown>])[] = [
          ['read', { path: './customers/../customers/list.csv' }],
          ['read', { path: '.env' }],
          ['bash', { command: 'cat customers/list.csv' }],
          ['bash', { command: 'cat .env' }],
          ['bash', { command: 'grep -r . .' }],
          ['bash', { command: `ls ${configFolder()}` }],
          ['read', { path: config }],
          ['write', { path: config, content: 'version: 1' }],
          ['write', { path: clientFile, content: before }],
        ];
        for (const [name, args] of attempts) expect(await call(name, args), JSON.stringify(args)).not.toContain(SECRET);
        expect(readFileSync(config, 'utf8')).toContain('profiles:');
        expect(readFileSync(clientFile, 'utf8')).not.toContain('npx');
        // The server of the client answers, behind the policy.
        expect(await call('memory_read_graph', {})).toContain('entities');
        expect((await run(`tollgate try memory_create_entities '{"entities": []}'`)).code).toBe(7);
      } finally {
        await client.close();
      }
      expect((await run('tollgate audit list --outcome deny')).out).toContain('no-customer-data');
      expect((await run('tollgate doctor --json')).out).not.toMatch(/"id": ?"bypass"[^}]*"state": ?"(weak|missing)"/);
    },
    60_000,
  );

  inFull('is undone by the command of the page, byte for byte', async () => {
    const undo = /`(tollgate setup --undo)`/.exec(proseOf('README.md'))?.[1] ?? 'none';
    const { code, text } = await atTerminal(undo, []);
    expect([code, readFileSync(clientFile, 'utf8')], text).toEqual([0, before]);
  });
});
