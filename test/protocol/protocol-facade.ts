/** Opens a facade with servers whose answers to every method are given as text, and a client that speaks the wire. */
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { PassThrough } from 'node:stream';
import { principalForStdio } from '../../facade/config/stdio-identity.ts';
import { serveStdio } from '../../facade/serve/stdio-transport.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';

const program = path.join(import.meta.dirname, '..', 'fixtures', 'protocol-server.mjs');

/** What a server does for a method. See test/fixtures/protocol-server.mjs. */
export interface Step {
  readonly raw?: string;
  readonly error?: string;
  readonly before?: readonly string[];
  readonly ask?: readonly { readonly method: string; readonly params?: unknown }[];
  readonly delayMs?: number;
  readonly mute?: boolean;
  readonly exit?: boolean;
}

/** A server of a test. `settings`: more keys of its entry in tollgate.yaml. */
export interface ProtocolServer {
  readonly capabilities?: Readonly<Record<string, unknown>>;
  readonly instructions?: string;
  /** A list: a step for each request, and the last one for all further ones. */
  readonly answers?: Readonly<Record<string, Step | readonly Step[]>>;
  readonly settings?: Readonly<Record<string, unknown>>;
}

type Json = Readonly<Record<string, unknown>>;

/** A client that speaks JSON-RPC over pipes. */
export interface WireClient {
  /** Sends a request and returns the message that answers it. */
  request(method: string, params?: unknown): Promise<Json>;
  notify(method: string, params?: unknown): void;
  /** Answers a request of the server. */
  answer(id: number, result: unknown): void;
  /** Everything that came in besides answers: notifications, and requests, in order. */
  readonly received: readonly Json[];
  /** The text of the last line that came in. */
  readonly lastLine: () => string;
  close(): Promise<void>;
}

/** What a client answers to a request of the server, by method; `error`: a JSON-RPC error instead. */
export type ClientAnswers = Readonly<Record<string, { readonly result?: unknown; readonly error?: unknown }>>;

/** A running facade with scripted servers. */
export interface ProtocolFacade extends TestFacade {
  /** The messages that a server received, in order. */
  got(server: string): readonly Json[];
  rescript(server: string, definition: ProtocolServer): void;
  /** Connects a client over pipes and performs the handshake. */
  connect(options?: {
    readonly as?: string;
    readonly capabilities?: unknown;
    readonly answers?: ClientAnswers;
  }): Promise<WireClient & { readonly hello: Json }>;
  /** Connects a client of revision 2026-07-28, which has no handshake: these capabilities go with each request. */
  connectStateless(capabilities: unknown): Pick<WireClient, 'request' | 'received'>;
}

/** A resource server: what most tests need. */
export const RESOURCES = { tools: {}, resources: { subscribe: true, listChanged: true } } as const;

/** Starts a server over HTTP. Returns its port, and what ends it. */
function serveHttp(args: readonly string[]): Promise<{ readonly port: string; readonly child: ChildProcess }> {
  const child = spawn(process.execPath, [program, ...args, 'http'], { stdio: ['pipe', 'ignore', 'pipe'] });
  return new Promise((resolve, reject) => {
    child.on('exit', () => reject(new Error('the server ended')));
    child.stderr?.on('data', (chunk: Buffer) => {
      const port = /port (\d+)/.exec(chunk.toString('utf8'))?.[1];
      if (port !== undefined) resolve({ port, child });
    });
  });
}

/** `rest`: the rest of tollgate.yaml. Default principal: `me` with the profile `p`. */
export async function startProtocol(
  servers: Readonly<Record<string, ProtocolServer>>,
  rest: Json = {},
  { env = {}, transport = 'stdio' }: { env?: Record<string, string>; transport?: 'stdio' | 'http' } = {},
): Promise<ProtocolFacade> {
  const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-protocol-'));
  const file = (name: string, kind: string): string => path.join(folder, `${name}.${kind}`);
  // Replaced at once, because a running server may read it at any time.
  const rescript = (name: string, { settings: _, ...script }: ProtocolServer): void => {
    writeFileSync(file(name, 'next'), JSON.stringify(script));
    renameSync(file(name, 'next'), file(name, 'json'));
  };
  for (const [name, server] of Object.entries(servers)) rescript(name, server);
  const children: ChildProcess[] = [];
  const entries = await Promise.all(
    Object.entries(servers).map(async ([name, { settings }]) => {
      const args = [file(name, 'json'), file(name, 'log')];
      if (transport === 'stdio') {
        const start = { command: process.execPath, args: [program, ...args], isolation: 'direct' };
        return [name, { ...start, connectTimeoutMs: 20_000, ...settings }];
      }
      const { port, child } = await serveHttp(args);
      children.push(child);
      return [name, { url: `http://127.0.0.1:${port}/mcp`, connectTimeoutMs: 20_000, ...settings }];
    }),
  );
  const config = {
    version: 1,
    workspace: './workspace',
    state: './state',
    approvals: { waitMs: 0 },
    principals: [{ id: 'me', profiles: ['p'], stdio: true }],
    servers: Object.fromEntries(entries),
    ...rest,
  };
  const facade = await startFacade(JSON.stringify(config), { env, folder });
  const clients: WireClient[] = [];
  return {
    ...facade,
    rescript,
    got: (server) =>
      existsSync(file(server, 'log'))
        ? readFileSync(file(server, 'log'), 'utf8')
            .trimEnd()
            .split('\n')
            .map((line) => JSON.parse(line) as Json)
        : [],
    connect: async ({ as = 'me', capabilities = {}, answers = {} } = {}) => {
      const client = connectPipes(facade, as, answers);
      clients.push(client);
      const hello = await client.request('initialize', {
        protocolVersion: '2025-11-25',
        capabilities,
        clientInfo: { name: 'test', version: '1' },
      });
      client.notify('notifications/initialized');
      return { ...client, hello: hello.result as Json };
    },
    connectStateless: (capabilities) => {
      const client = connectPipes(facade, 'me', {});
      clients.push(client);
      const key = 'io.modelcontextprotocol/';
      const _meta = { [`${key}protocolVersion`]: '2026-07-28', [`${key}clientCapabilities`]: capabilities };
      return {
        received: client.received,
        request: (method, params = {}) => client.request(method, { ...(params as Json), _meta }),
      };
    },
    close: async () => {
      await Promise.all(clients.map((client) => client.close()));
      await facade.close();
      for (const child of children) child.kill();
      rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
    },
  };
}

function connectPipes({ assembled }: TestFacade, as: string, answers: ClientAnswers): WireClient {
  const [input, output] = [new PassThrough(), new PassThrough()];
  const done = serveStdio({
    facade: assembled.gateway,
    principal: principalForStdio(assembled.config, { user: 'nobody-else', as }),
    input,
    output,
    maxBytes: 64 << 20,
    drainMs: 100,
    onFault: (thrown) => {
      throw thrown;
    },
  });
  const waiting = new Map<unknown, (message: Json) => void>();
  const received: Json[] = [];
  let [rest, last, next] = ['', '', 0];
  const send = (message: Json): void => void input.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
  const take = (line: string): void => {
    last = line;
    const message = JSON.parse(line) as Json;
    if (message.method === undefined) {
      waiting.get(message.id)?.(message);
      return;
    }
    received.push(message);
    const answer = answers[String(message.method)];
    if (message.id !== undefined && answer !== undefined) send({ id: message.id, ...answer });
  };
  output.setEncoding('utf8').on('data', (chunk: string) => {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) take(line);
  });
  return {
    received,
    lastLine: () => last,
    notify: (method, params) => send({ method, params }),
    answer: (id, result) => send({ id, result }),
    request: (method, params) => {
      next += 1;
      const id = next;
      send({ id, method, params });
      return new Promise((resolve) => waiting.set(id, resolve));
    },
    close: async () => {
      input.end();
      await done;
    },
  };
}
