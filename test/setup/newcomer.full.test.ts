/**
 * A newcomer with seven servers in three clients, at a terminal: from the start of `setup` to a call under policy in
 * each client's form, and back.
 * Covers: facade/cli/setup.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import path from 'node:path';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import * as jsonc from 'jsonc-parser';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { loadConfig } from '../../facade/config/load-config.ts';
import { openPlaces } from '../../facade/secrets/secrets.ts';
import { NODE_22 } from '../conformance/official-suite.ts';
import { partOf } from '../harness/slices.ts';
import { CONFORMANCE_PACKAGES, installConformance } from '../servers/install.ts';
import { verifies } from '../verifies.ts';
import { FILES, KEYS, Newcomer } from './newcomer.ts';
import type { AnsweredQuestion, TerminalEnd } from './terminal-process.ts';

const EVERYTHING = 'test/servers/node_modules/@modelcontextprotocol/server-everything/dist/index.js';
const INSPECTOR = path.join(
  CONFORMANCE_PACKAGES,
  'node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js',
);
const CLIENTS = Object.keys(FILES) as (keyof typeof FILES)[];
/** How a client starts Tollgate. */
interface Entry {
  readonly command: string;
  readonly args: readonly string[];
}
const SERVER_QUESTION = 'within the policy?';
const ANSWERS: readonly AnsweredQuestion[] = [
  ['Do this?', 'y'],
  [SERVER_QUESTION, 'd'],
  ...Array.from({ length: 6 }, (): AnsweredQuestion => [SERVER_QUESTION, 'y']),
  ['Write these files?', 'y'],
  ['Make one harmless read call', 'y'],
];

let remote: ChildProcess;
let newcomer: Newcomer;
let first: TerminalEnd;

beforeAll(async () => {
  await installConformance((line) => process.stderr.write(`${line}\n`));
  const port = await freePort();
  remote = spawn(process.execPath, [EVERYTHING, 'streamableHttp'], {
    env: { PATH: process.env.PATH ?? '', PORT: String(port) },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  await new Promise((resolve) => remote.stderr?.once('data', resolve));
  newcomer = new Newcomer(`http://127.0.0.1:${port}/mcp`);
  const since = performance.now();
  first = await newcomer.run(['setup'], ANSWERS);
  // For the figures in docs/connecting.md.
  const seconds = Math.round((performance.now() - since) / 1000);
  const sums = first.text.match(/An agent .*?kB/g) ?? [];
  process.stderr.write(`1 command, ${ANSWERS.length} keys, ${seconds} s. ${sums.join('. ')}\n`);
}, 300_000);

afterAll(() => {
  remote.kill();
  newcomer.remove();
});

function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const address = server.address();
      server.close(() => resolve(typeof address === 'object' && address !== null ? address.port : 0));
    });
  });
}

const configFolder = (): string => {
  const folder = path.join(newcomer.home, '.config', 'tollgate');
  return path.join(folder, readdirSync(folder)[0] ?? '');
};
const config = () => loadConfig(path.join(configFolder(), 'tollgate.yaml'), { env: newcomer.env, home: newcomer.home });

describe('setup at a terminal' + verifies('FH-01'), () => {
  it('ends with all servers approved, in rows of at most 100 columns, and shows no key', () => {
    expect(first.code, first.text).toBe(0);
    expect(first.text).toContain('6 servers approved.');
    expect(first.text.split('\n').filter((row) => [...row].length > 100 && !/^ {2}\S+node /.test(row))).toEqual([]);
    for (const key of Object.values(KEYS)) expect(first.text).not.toContain(key);
    // One key for the plan, one for each server, one for the files, one for the calls.
    expect(ANSWERS.map(([, keys]) => keys).join('').length).toBeLessThanOrEqual(12);
  });

  it('says what the plan covers: the servers of each client, and no more than one start', () => {
    expect(first.text).toContain('Each client gets all of these servers, with these keys.');
    expect(first.text).not.toContain('not changed since');
    expect(first.text).toContain(`MEMORY_FILE_PATH = "${path.join(newcomer.notes, 'memory.json')}"`);
  });

  it('shows each server on a screen of at most 40 rows', () => {
    const screens = first.text.split(/\n(?=\d of 6: )/).slice(1);
    expect(screens).toHaveLength(6);
    for (const screen of screens)
      expect(screen.slice(0, screen.indexOf(SERVER_QUESTION)).split('\n').length).toBeLessThanOrEqual(40);
  });

  it('tells what an agent sees before and after: a few tools, not all' + verifies('FH-02'), () => {
    const before = [...first.text.matchAll(/An agent in [^:\n]*? saw (\d+) tools?, ([\d.]+) kB/g)];
    const [, tools, bytes] = /An agent sees now: (\d+) tools, ([\d.]+) kB/.exec(first.text) ?? [];
    expect(before).toHaveLength(3);
    expect([Number(tools) <= 24, Number(bytes) < 30]).toEqual([true, true]);
  });
});

describe('the tools of the agent', () => {
  it('are the main ones of each server, those that write too; the others are named' + verifies('FH-38'), () => {
    const { expose } = parse(readFileSync(path.join(configFolder(), 'tollgate.yaml'), 'utf8')) as {
      readonly expose: { readonly tools: readonly string[] };
    };
    for (const tool of ['search.tavily_search', 'memory.create_entities', 'memory.read_graph'])
      expect(expose.tools).toContain(tool);
    const said = first.text.replace(/\s+(?:\| )?/g, ' ');
    expect(said).toMatch(/ hidden [a-z_]+, [^(]*\(to show one, add files\.TOOL to expose\.tools in tollgate\.yaml\)/);
    expect(said).toMatch(
      /Hidden from agents: [^.]*\d+ tools? of files[^.]*\. To show one, add it to expose\.tools in ~\//,
    );
  });

  it('follow the rules of the starter, which are not repeated for each server', () => {
    const rules = readFileSync(path.join(configFolder(), 'policies', 'setup-rules.yaml'), 'utf8');
    expect(parse(rules)).toEqual({ rules: [expect.objectContaining({ id: 'folders-files' })] });
  });
});

describe('a test call of each server' + verifies('FH-08'), () => {
  it('is asked about once, shows a row for each, and is recorded as a call by hand', async () => {
    const said = first.text.slice(first.text.indexOf('Make one harmless read call'));
    expect(said).toMatch(/^Make one harmless read call of each of \d servers\?/);
    expect(said).toMatch(/memory +memory_read_graph +allow +\d+ ms +ok/);
    expect(said).toMatch(/search +none that only reads/);
    const { text } = await newcomer.run(['audit', 'export', '--config', path.join(configFolder(), 'tollgate.yaml')]);
    expect(text).toMatch(/"tool":"memory_read_graph".*"by":"[^"]+"|"by":"[^"]+".*memory/);
  });
});

describe('afterwards' + verifies('FH-02'), () => {
  it('every client starts only Tollgate, and every former entry is accounted for', async () => {
    expect(first.text).toContain('Nothing bypasses Tollgate: every former entry is accounted for.');
    for (const client of CLIENTS) {
      const text = newcomer.read(client);
      expect(text).not.toMatch(/npx|"url"/);
      expect(text).toContain(JSON.stringify(path.join(configFolder(), 'tollgate.yaml')));
      for (const key of Object.values(KEYS)) expect(text).not.toContain(key);
    }
    expect(newcomer.read('claude-desktop')).toContain('"broken"');
  });

  it('arguments and variables of each server are equal; secrets are in the vault', async () => {
    const { servers, state } = config();
    const argsOf = (name: string): readonly string[] => servers.get(name)?.args.slice(1) ?? ['none'];
    expect(argsOf('files')).toEqual([newcomer.notes, path.join(newcomer.home, '.cursor')]);
    for (const name of ['memory', 'search', 'everything', 'thinking']) expect(argsOf(name)).toEqual([]);
    const written = (name: string) =>
      parse(readFileSync(path.join(configFolder(), 'servers', `${name}.yaml`), 'utf8')) as {
        readonly env?: Record<string, string>;
        readonly headers?: Record<string, string>;
      };
    expect(written('memory').env).toEqual({ MEMORY_FILE_PATH: path.join(newcomer.notes, 'memory.json') });
    expect(written('search').env).toEqual({
      TAVILY_API_KEY: '${secret:search.TAVILY_API_KEY}',
      DEFAULT_PARAMETERS: '{}',
    });
    expect(written('remote').headers).toEqual({ Authorization: 'Bearer ${secret:remote.Authorization}' });
    const { vault } = openPlaces({ state, env: {} });
    expect([await vault.get('search.TAVILY_API_KEY'), await vault.get('remote.Authorization')]).toEqual([
      KEYS.tavily,
      KEYS.bearer,
    ]);
  });

  /** Returns the entry of Tollgate in the file of a client. */
  const entryIn = (client: keyof typeof FILES): Entry => {
    const { mcpServers, servers } = jsonc.parse(newcomer.read(client), [], { allowTrailingComma: true }) as Record<
      string,
      { readonly tollgate: Entry } | undefined
    >;
    return (mcpServers ?? servers)?.tollgate ?? expect.fail();
  };

  it.each(partOf(CLIENTS, 1))('a call of %s reaches its server under the policy', async (client) => {
    const file = path.join(newcomer.home, `${client}.json`);
    writeFileSync(file, JSON.stringify({ mcpServers: { tollgate: entryIn(client) } }));
    const result = await inspect(file, 'memory_read_graph');
    expect(JSON.stringify(result)).toContain('entities');
  });

  it('its server of files reads the folder that it keeps, and no other' + verifies('FH-07'), async () => {
    expect(first.text.replace(/\s+(?:\| )?/g, ' ')).toContain(
      `opens "${newcomer.notes}": an agent may read and write there, through this server only`,
    );
    expect(first.text.replace(/\s+(?:\| )?/g, ' ')).toMatch(
      /! no call may use "[^"]*\.cursor": it contains files that decide/,
    );
    const client = new Client({ name: 'vscode', version: '1' });
    const { command, args } = entryIn('vscode');
    const { env, project: cwd } = newcomer;
    await client.connect(
      new StdioClientTransport({ command, args: [...args], env: { ...env }, cwd, stderr: 'ignore' }),
    );
    const read = async (name: string, of: string): Promise<string> =>
      JSON.stringify(await client.callTool({ name, arguments: { path: of } }));
    try {
      expect(await read('files_read_file', path.join(newcomer.notes, 'todo.txt'))).toContain('buy milk');
      for (const closed of [path.join(newcomer.neighbour, 'diary.txt'), newcomer.file('cursor'), '/etc/hostname'])
        expect(await read('files_read_file', closed)).toContain('folders-files');
      expect(await read('read', path.join(newcomer.notes, 'todo.txt'))).toContain('stay-inside');
    } finally {
      await client.close();
    }
  });

  it('a second run finds nothing to do', async () => {
    const again = await newcomer.run(['setup']);
    expect([again.code, again.text]).toEqual([0, expect.stringContaining('Nothing bypasses Tollgate') as string]);
  });
});

describe('undo' + verifies('FH-05'), () => {
  it('restores one client byte for byte, keeps a later edit of another, and restores the rest', async () => {
    expect((await newcomer.run(['setup', '--undo', 'cursor'])).code).toBe(0);
    expect(newcomer.read('cursor')).toBe(newcomer.before.cursor);
    const edited = newcomer.read('vscode').replace('// mine', '// mine, too');
    writeFileSync(newcomer.file('vscode'), edited);
    const { code, text } = await newcomer.run(['setup', '--undo']);
    expect(code, text).toBe(0);
    expect(newcomer.read('vscode')).toBe(newcomer.before.vscode.replace('// mine', '// mine, too'));
    expect(newcomer.read('claude-desktop')).toBe(newcomer.before['claude-desktop']);
    expect(readFileSync(path.join(configFolder(), 'policies', 'rules.yaml'), 'utf8')).not.toContain('exceptTools');
    expect([...config().servers.keys()].filter((name) => name !== 'workspace' && name !== 'tollgate')).toEqual([]);
  });
});

/** Calls a tool with the CLI of the Inspector, which starts the program of a client's entry as the client does. */
function inspect(file: string, tool: string): Promise<unknown> {
  const args = [
    INSPECTOR,
    '--cli',
    '--config',
    file,
    '--server',
    'tollgate',
    '--method',
    'tools/call',
    '--tool-name',
    tool,
  ];
  const child = spawn(NODE_22, args, { env: newcomer.env, cwd: newcomer.project, stdio: ['ignore', 'pipe', 'pipe'] });
  let [out, err] = ['', ''];
  child.stdout.on('data', (chunk: Buffer) => void (out += chunk.toString('utf8')));
  child.stderr.on('data', (chunk: Buffer) => void (err += chunk.toString('utf8')));
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code) => (code === 0 ? resolve(JSON.parse(out)) : reject(new Error(`${code}: ${err}${out}`))));
  });
}
