/**
 * Tests with real clients: each lists and uses tools, resources and prompts of the conformance fixture through
 * `tollgate serve`. `npm run conformance` installs the clients and runs these tests.
 * Covers: facade/serve.
 */
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Transport as TransportV2 } from '@modelcontextprotocol/client';
import { Client as ClientV2, StreamableHTTPClientTransport as HttpV2 } from '@modelcontextprotocol/client';
import { Client as ClientV1 } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport as HttpV1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport as TransportV1 } from '@modelcontextprotocol/sdk/shared/transport.js';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CONFORMANCE_PACKAGES } from '../../servers/install.ts';
import { verifies } from '../../verifies.ts';
import { type Fixture, prepareFixture, startFixture } from '../fixture-server.ts';
import { type Gateway, startGateway } from '../gateway.ts';
import { NODE_22 } from '../official-suite.ts';
import { FIXTURE, fixtureConfig } from '../policy.ts';

const PACKAGES = path.join(CONFORMANCE_PACKAGES, 'node_modules');
const INSPECTOR = path.join(PACKAGES, '@modelcontextprotocol', 'inspector', 'clients', 'launcher', 'build', 'index.js');
const MCP_REMOTE = path.join(PACKAGES, 'mcp-remote', 'dist', 'proxy.js');

const folder = mkdtempSync(path.join(tmpdir(), 'tgr-'));
let fixture: Fixture;
let gateway: Gateway;

beforeAll(async () => {
  fixture = await startFixture(prepareFixture(path.join(folder, 'fixture'), process.cwd()));
  const config = fixtureConfig({ url: fixture.url }, fixture.offer);
  gateway = await startGateway({ folder: path.join(folder, 'gateway'), server: FIXTURE, config });
});
afterAll(async () => {
  await gateway.stop();
  await fixture.stop();
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
});

/** What a client saw. All clients must see the same. */
interface Seen {
  readonly tools: readonly string[];
  readonly text: unknown;
  readonly resources: readonly string[];
  readonly contents: unknown;
  readonly prompts: readonly string[];
  readonly messages: unknown;
}

const CALL = { name: 'test_simple_text', arguments: {} };
const READ = { uri: 'test://static-text' };
const GET = { name: 'test_prompt_with_arguments', arguments: { arg1: 'one', arg2: 'two' } };

/** The methods that all versions of the SDK have. */
type Using = Pick<ClientV1, 'listTools' | 'callTool' | 'listResources' | 'readResource' | 'listPrompts' | 'getPrompt'>;

async function useAll(client: Using): Promise<Seen> {
  const { tools } = await client.listTools();
  const { resources } = await client.listResources();
  const { prompts } = await client.listPrompts();
  return {
    tools: tools.map(({ name }) => name),
    text: (await client.callTool(CALL)).content,
    resources: resources.map(({ uri }) => uri),
    contents: (await client.readResource(READ)).contents,
    prompts: prompts.map(({ name }) => name),
    messages: (await client.getPrompt(GET)).messages,
  };
}

const headers = (): Record<string, string> => ({ authorization: `Bearer ${gateway.token}` });
const ABOUT = { name: 'real-client', version: '1.0.0' };

const CLIENTS: Readonly<Record<string, () => Promise<Seen>>> = {
  'SDK v1': async () => {
    const client = new ClientV1(ABOUT);
    await client.connect(new HttpV1(new URL(gateway.url), { requestInit: { headers: headers() } }) as TransportV1);
    return useAll(client).finally(() => client.close());
  },
  'SDK v2, legacy era': () => useV2({}),
  'SDK v2, modern era': () => useV2({ versionNegotiation: { mode: { pin: '2026-07-28' } } }),
  'mcp-remote': async () => {
    const client = new ClientV1(ABOUT);
    const transport = new StdioClientTransport({
      command: NODE_22,
      args: [MCP_REMOTE, gateway.url, '--allow-http', '--header', `Authorization: Bearer ${gateway.token}`],
      env: { PATH: process.env.PATH ?? '', HOME: folder },
      stderr: 'ignore',
    });
    await client.connect(transport);
    return useAll(client).finally(() => client.close());
  },
  'Inspector CLI': async () => {
    const { tools } = await inspect<{ tools: { name: string }[] }>('tools/list');
    const { content } = await inspect<{ content: unknown }>('tools/call', '--tool-name', CALL.name);
    const { resources } = await inspect<{ resources: { uri: string }[] }>('resources/list');
    const { contents } = await inspect<{ contents: unknown }>('resources/read', '--uri', READ.uri);
    const { prompts } = await inspect<{ prompts: { name: string }[] }>('prompts/list');
    const args = Object.entries(GET.arguments).map(([key, value]) => `${key}=${value}`);
    const got = ['--prompt-name', GET.name, '--prompt-args', ...args];
    const { messages } = await inspect<{ messages: unknown }>('prompts/get', ...got);
    return {
      tools: tools.map(({ name }) => name),
      text: content,
      resources: resources.map(({ uri }) => uri),
      contents,
      prompts: prompts.map(({ name }) => name),
      messages,
    };
  },
};

async function useV2(options: ConstructorParameters<typeof ClientV2>[1]): Promise<Seen> {
  const client = new ClientV2(ABOUT, options);
  await client.connect(new HttpV2(new URL(gateway.url), { requestInit: { headers: headers() } }) as TransportV2);
  return useAll(client as unknown as Using).finally(() => client.close());
}

/** Runs the Inspector for one method, and returns the JSON that it prints. */
function inspect<T>(method: string, ...more: readonly string[]): Promise<T> {
  const bearer = `Authorization: Bearer ${gateway.token}`;
  const words = ['--cli', gateway.url, '--transport', 'http', '--method', method, ...more, '--header', bearer];
  return new Promise((resolve, reject) => {
    const child = spawn(NODE_22, [INSPECTOR, ...words], {
      env: { PATH: process.env.PATH ?? '', HOME: folder },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let [out, err] = ['', ''];
    child.stdout.on('data', (chunk: Buffer) => void (out += chunk.toString('utf8')));
    child.stderr.on('data', (chunk: Buffer) => void (err += chunk.toString('utf8')));
    child.on('error', reject);
    child.on('close', (code) =>
      code === 0 ? resolve(JSON.parse(out) as T) : reject(new Error(`${method} ended with ${code}: ${err}${out}`)),
    );
  });
}

describe('through tollgate serve', () => {
  it.each(Object.entries(CLIENTS))('%s uses tools, resources and prompts' + verifies('PR-C03'), async (_name, use) => {
    const before = gateway.records().length;
    const { tools, resources, prompts, ...rest } = await use();
    expect([...tools].sort()).toEqual([...fixture.offer.tools].sort());
    expect([...prompts].sort()).toEqual([...fixture.offer.prompts].sort());
    expect(resources).toContain(READ.uri);
    expect(rest).toEqual({
      text: [{ type: 'text', text: 'This is a simple text response for testing.' }],
      contents: [{ uri: READ.uri, mimeType: 'text/plain', text: 'This is the content of the static text resource.' }],
      messages: [{ role: 'user', content: { type: 'text', text: "Prompt with arguments: arg1='one', arg2='two'" } }],
    });
    const intents = gateway
      .records()
      .slice(before)
      .filter(({ type }) => type === 'intent');
    expect(intents.map(({ kind = 'tool' }) => kind).sort()).toEqual(['prompt', 'resource', 'tool']);
  });
});
