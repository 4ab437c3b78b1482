/**
 * Tests `run` and `serve` in this process with a real client, over streams and HTTP, until input or signal ends them.
 */
import { existsSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ReadBuffer, serializeMessage } from '@modelcontextprotocol/sdk/shared/stdio.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import type { JSONRPCMessage } from '@modelcontextprotocol/sdk/types.js';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { EXIT } from '../../facade/cli/command-io.ts';
import type { Wiring } from '../../facade/cli/wiring.ts';
import { APP_MODULE } from '../../facade/main.ts';
import { Project } from '../config/project.ts';
import { verifies } from '../verifies.ts';
import { cli, dataOf, type Running, server, start } from './terminal.ts';

const CONFIG = `version: 1
workspace: ./workspace
servers: {story: ${server(['story-server.mjs'], 'semantics: {echo: read}')}}
profiles: {default: {servers: [story], expose: {primitives: workspace, tools: ["story.*"]}}}
rules: [{id: all, outcome: allow, when: {servers: [story, workspace]}}]
listen: {port: 0}
`;
const HELLO =
  '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}\n';

/** The SDK's client side of stdio, over the streams of a command in this process. */
class Pipe implements Transport {
  readonly #running: Running;
  onmessage?: (message: JSONRPCMessage) => void;
  onclose?: () => void;

  constructor(running: Running) {
    this.#running = running;
  }

  async start(): Promise<void> {
    const buffer = new ReadBuffer();
    this.#running.wire.on('data', (chunk: Buffer) => {
      buffer.append(chunk);
      for (let message = buffer.readMessage(); message !== null; message = buffer.readMessage())
        this.onmessage?.(message);
    });
  }

  async send(message: JSONRPCMessage): Promise<void> {
    this.#running.stdin.write(serializeMessage(message));
  }

  async close(): Promise<void> {
    this.#running.stdin.end();
    this.onclose?.();
  }
}

let project: Project;
let running: Running | undefined;

beforeEach(() => {
  project = new Project();
  project.write('workspace/README.md', '# Hello\n');
  project.write('tollgate.yaml', CONFIG);
});
afterEach(async () => {
  running?.stop();
  await running?.ended;
  running = undefined;
  project.remove();
});

/** The protocol messages so far, parsed. */
function linesOf(text: string): readonly { id?: unknown; result?: unknown; error?: unknown; method?: string }[] {
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as { id?: unknown });
}

describe('tollgate run', () => {
  beforeEach(() => project.approve());

  it(
    'serves the client of the SDK, ends with its input, and prints nothing but the protocol on stdout' +
      verifies('CY-22'),
    async () => {
      running = start(project, ['run']);
      const client = new Client({ name: 'test', version: '1' });
      await client.connect(new Pipe(running) as Transport);
      const { tools } = await client.listTools();
      expect(tools.map(({ name }) => name)).toEqual(expect.arrayContaining(['read', 'story_echo']));
      expect(await client.callTool({ name: 'read', arguments: { path: 'README.md' } })).toMatchObject({
        content: [{ text: expect.stringContaining('# Hello') }],
      });
      expect(await client.callTool({ name: 'story_echo', arguments: { text: 'to and fro' } })).toMatchObject({
        content: [{ text: 'to and fro' }],
      });
      await client.close();
      const { code, out, err } = await running.ended;
      expect([code, out]).toEqual([EXIT.ok, '']);
      expect(err).toBe('Servers without isolation, which run with all of your rights: story.\n');
      const { out: listed } = await cli(project, ['audit', 'list', '--json']);
      expect(dataOf<{ exposed: string }[]>(listed).map(({ exposed }) => exposed)).toEqual(['read', 'story_echo']);
    },
  );

  it('answers raw lines, and ends with the input', async () => {
    running = start(project, ['run']);
    running.stdin.write(HELLO);
    running.stdin.end('{"jsonrpc":"2.0","id":2,"method":"ping"}\nnot json\n');
    expect((await running.ended).code).toBe(EXIT.ok);
    const lines = linesOf(String(running.wire.read()));
    expect(lines.map(({ id }) => id).sort()).toEqual([1, 2, null]);
    expect(lines.find(({ id }) => id === null)?.error).toMatchObject({ code: -32700 });
  });

  it('closes the session, the servers and the log, in this order, on a signal', async () => {
    running = start(project, ['run']);
    running.stdin.write(HELLO);
    await expect.poll(() => running?.wire.readableLength).toBeGreaterThan(0);
    running.stop();
    expect((await running.ended).code).toBe(EXIT.ok);
    const { out } = await cli(project, ['audit', 'verify', '--json']);
    expect(dataOf(out)).toMatchObject({ ok: true, chains: [{ state: 'closed' }] });
  });

  it('ends on a signal that came during the start', async () => {
    running = start(project, ['run']);
    running.stop();
    expect(await running.ended).toMatchObject({ code: EXIT.ok, out: '' });
  });

  it('closes everything when the client goes away during a call', async () => {
    running = start(project, ['run']);
    running.stdin.write(HELLO);
    running.stdin.write(
      '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"story_slow","arguments":{"ms":60000}}}\n',
    );
    await expect
      .poll(async () => (await cli(project, ['audit', 'list', '--type', 'intent', '--json'])).out, { timeout: 20_000 })
      .toContain('story_slow');
    running.wire.destroy();
    expect((await running.ended).code).toBe(EXIT.ok);
    const [record] = dataOf<{ type: string; code: string; executed: string }[]>(
      (await cli(project, ['audit', 'list', '--json'])).out,
    );
    expect(record).toMatchObject({ type: 'outcome', code: 'INTERRUPTED' });
  });
});

describe('a start without a principal or without a configuration', () => {
  it.each([
    ['nobody', ['run', '--as', 'nobody'], EXIT.auth, /^IDENTITY: .*\nUse --as with one of: local\.\n$/],
    [
      'a missing file',
      ['run', '-c', 'nowhere.yaml'],
      EXIT.usage,
      /^CONFIG_INVALID: The configuration is refused\.\nnowhere\.yaml:1:1: .*tollgate init\n/,
    ],
  ] as const)('refuses %s before it opens anything', async (_, argv, exit, expected) => {
    const { code, out, err } = await cli(project, argv);
    expect([code, out]).toEqual([exit, '']);
    expect(err).toMatch(expected);
    expect(existsSync(path.join(project.home, '.local'))).toBe(false);
  });
});

describe('tollgate serve', () => {
  beforeEach(() => project.approve());

  /** Starts `serve`, and waits for its address. */
  const serve = async (...argv: readonly string[]): Promise<string> => {
    running = start(project, ['serve', '--json', ...argv], { self: ['/opt/node', '/a b/main.js'] });
    const failed = running.ended.then(({ err }) => Promise.reject(new Error(err)));
    await Promise.race([expect.poll(() => running?.said.err, { timeout: 20_000 }).toContain('/mcp'), failed]);
    failed.catch(() => undefined);
    return dataOf<{ url: string }>(running.said.out).url;
  };

  it('asks for --as if several principals may use stdio', async () => {
    project.write('many.yaml', `${CONFIG}principals: [{id: one, stdio: true}, {id: two, stdio: true}]\n`);
    await serve('--config', 'many.yaml');
    expect(running?.said.err).toContain('many.yaml --as one\n');
  });

  it('prints address and token file on stdout, the token and how to connect on stderr, and ends on a signal', async () => {
    const url = await serve();
    const { tokenFile } = dataOf<{ tokenFile: string }>(running?.said.out ?? '');
    const token = readFileSync(tokenFile, 'utf8').trim();
    expect(statSync(tokenFile).mode & 0o777).toBe(0o600);
    expect(running?.said.err).toContain(`token ${token}\n(stored in ${tokenFile})`);
    expect(running?.said.err).toContain(
      `claude mcp add --transport http tollgate ${url} --header "Authorization: Bearer ${token}"`,
    );
    expect(running?.said.err).toContain(
      `claude mcp add tollgate -- /opt/node '/a b/main.js' run --config ${project.file}\n`,
    );
    expect(running?.said.err).toContain(
      JSON.stringify({
        mcpServers: { tollgate: { command: '/opt/node', args: ['/a b/main.js', 'run', '--config', project.file] } },
      }),
    );
    expect(running?.said.out).not.toContain(token);
    const client = new Client({ name: 'test', version: '1' });
    await client.connect(
      new StreamableHTTPClientTransport(new URL(url), {
        requestInit: { headers: { authorization: `Bearer ${token}` } },
      }) as Transport,
    );
    expect(await client.callTool({ name: 'story_echo', arguments: { text: 'over http' } })).toMatchObject({
      content: [{ text: 'over http' }],
    });
    await client.close();
    running?.stop();
    expect((await running?.ended)?.code).toBe(EXIT.ok);
    await expect(fetch(url)).rejects.toThrow('fetch failed');
  });

  it('warns that everyone may connect if there is no token', async () => {
    project.write('tollgate.yaml', CONFIG.replace('port: 0', 'port: 0, auth: none'));
    const url = await serve();
    expect(running?.said.err).toContain('Every user of this machine may connect: listen.auth is none.');
    expect(dataOf(running?.said.out ?? '')).toEqual({ url });
  });

  it('prefers the port of the command line to that of the file', async () => {
    const url = new URL(await serve('--port', '0'));
    const taken = await cli(project, ['serve', '--port', url.port]);
    expect(taken).toMatchObject({ code: EXIT.usage, out: '' });
    expect(taken.err).toMatch(
      /^CONFIG_INVALID: listen: 127\.0\.0\.1:\d+ is not available \(EADDRINUSE\)\.\nChoose another/m,
    );
  });
});

describe('default limits' + verifies('ST-26'), () => {
  it('are those of one user for run and of a gateway for serve; configured limits apply to both', async () => {
    const limits = async (argv: readonly string[], more = ''): Promise<unknown> => {
      project.write('tollgate.yaml', `${CONFIG}${more}`);
      let seen: unknown;
      const assemble: Wiring['assemble'] = async (config) => {
        seen = config.limits;
        throw new TollgateError('STATE_FAILED');
      };
      await start(project, argv, {}, { ...APP_MODULE, assemble }).ended;
      return seen;
    };
    const common = { servers: 20, calls: 256, waitingBytes: 67_108_864 };
    expect(await limits(['run'])).toEqual({ ...common, connections: 5, drainMs: 10_000 });
    expect(await limits(['serve'])).toEqual({ ...common, connections: 20, drainMs: 20_000 });
    for (const command of ['run', 'serve'])
      expect(await limits([command], 'limits: {connections: 7, drainMs: 0}\n')).toEqual({
        ...common,
        connections: 7,
        drainMs: 0,
      });
  });
});
