/** Tests that the real client of the SDK works over both transports. */
import { PassThrough } from 'node:stream';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ReadBuffer, serializeMessage } from '@modelcontextprotocol/sdk/shared/stdio.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { type JSONRPCMessage, ToolListChangedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import { describe, expect, it } from 'vitest';
import { serveStdio } from '../../facade/serve/stdio-transport.ts';
import { VERSION } from '../../facade/serve/version.ts';
import { verifies } from '../verifies.ts';
import { ALICE, echo, FakeFacade, until, untilAborted } from './fake-facade.ts';
import { listen } from './http-bench.ts';

/** A real SDK client and a real transport, with a function that ends both. */
interface Pair {
  readonly client: Client;
  readonly facade: FakeFacade;
  readonly faults: unknown[];
  end(): Promise<void>;
}

/** The SDK's framing over two pipes in this process. */
class PipeTransport implements Transport {
  readonly input: PassThrough;
  readonly output: PassThrough;
  onmessage?: (message: JSONRPCMessage) => void;
  onclose?: () => void;
  onerror?: (error: Error) => void;

  constructor(input: PassThrough, output: PassThrough) {
    this.input = input;
    this.output = output;
  }

  async start(): Promise<void> {
    const buffer = new ReadBuffer();
    this.output.on('data', (chunk: Buffer) => {
      buffer.append(chunk);
      for (let next = buffer.readMessage(); next !== null; next = buffer.readMessage()) this.onmessage?.(next);
    });
  }

  async send(sent: JSONRPCMessage): Promise<void> {
    this.input.write(serializeMessage(sent));
  }

  async close(): Promise<void> {
    this.input.end();
    this.onclose?.();
  }
}

async function overPipes(): Promise<Pair> {
  const facade = new FakeFacade();
  const faults: unknown[] = [];
  const [input, output] = [new PassThrough(), new PassThrough()];
  const done = serveStdio({
    facade,
    principal: ALICE,
    input,
    output,
    maxBytes: 64 << 20,
    drainMs: 100,
    onFault: (thrown) => faults.push(thrown),
  });
  const client = new Client({ name: 'test', version: '1' });
  client.onerror = (error) => faults.push(error);
  await client.connect(new PipeTransport(input, output));
  return {
    client,
    facade,
    faults,
    end: async () => {
      await client.close();
      await done;
    },
  };
}

async function overHttp(): Promise<Pair> {
  const { facade, faults, server } = await listen({ listen: { maxBodyBytes: 64 << 20 } });
  const client = new Client({ name: 'test', version: '1' });
  client.onerror = (error) => faults.push(error);
  const transport = new StreamableHTTPClientTransport(new URL(server.url), {
    requestInit: { headers: { authorization: 'Bearer alice-token' } },
  });
  await client.connect(transport);
  return {
    client,
    facade,
    faults,
    end: async () => {
      await transport.terminateSession();
      expect(facade.closed).toHaveLength(1);
      await client.close();
      await server.close();
    },
  };
}

const text = (result: unknown): unknown =>
  JSON.parse((result as { content: { text: string }[] }).content[0]?.text ?? 'null');

describe.each([
  ['pipes', overPipes],
  ['HTTP', overHttp],
])("the SDK's client over %s", (_name, connect) => {
  it('connects, pings, lists and calls', async () => {
    const { client, faults, end } = await connect();
    expect(client.getServerVersion()).toEqual({ name: 'tollgate', version: VERSION });
    expect(client.getServerCapabilities()).toEqual({ tools: { listChanged: true } });
    expect(client.getInstructions()).toBe('Use read.');
    await client.ping();
    expect((await client.listTools()).tools.map(({ name }) => name)).toEqual(['read']);
    expect(text(await client.callTool({ name: 'read', arguments: { path: 'ä.txt' } }))).toEqual({ path: 'ä.txt' });
    expect(faults).toEqual([]);
    await end();
  });

  it('gets each answer to the right one of many concurrent calls', async () => {
    const { client, facade, end } = await connect();
    facade.onCall = (running) =>
      new Promise((resolve) =>
        setTimeout(() => resolve(echo(running)), ((running.args.value as { n: number }).n * 7) % 20),
      );
    const results = await Promise.all(
      Array.from({ length: 60 }, (_, n) => client.callTool({ name: 'read', arguments: { n } })),
    );
    expect(results.map(text)).toEqual(Array.from({ length: 60 }, (_, n) => ({ n })));
    await end();
  });

  it('gets progress before the result, with its own token', async () => {
    const { client, facade, end } = await connect();
    facade.onCall = async (running) => {
      running.onProgress?.({ progress: 1, total: 3, message: 'one' });
      await new Promise((resolve) => setTimeout(resolve, 20));
      running.onProgress?.({ progress: 2, total: 3 });
      await new Promise((resolve) => setTimeout(resolve, 20));
      return echo(running);
    };
    const seen: unknown[] = [];
    await client.callTool({ name: 'read', arguments: {} }, undefined, {
      onprogress: (progress) => seen.push(progress),
    });
    expect(seen).toEqual([
      { progress: 1, total: 3, message: 'one' },
      { progress: 2, total: 3 },
    ]);
    await end();
  });

  it('cancels a call, and continues', async () => {
    const { client, facade, faults, end } = await connect();
    facade.onCall = untilAborted;
    const stop = new AbortController();
    const call = client.callTool({ name: 'read', arguments: {} }, undefined, { signal: stop.signal });
    await until(() => facade.calls.length === 1);
    stop.abort('changed my mind');
    await expect(call).rejects.toThrow('changed my mind');
    await until(() => facade.calls[0]?.request.signal.aborted === true);
    facade.onCall = async (running) => echo(running);
    expect(text(await client.callTool({ name: 'read', arguments: { a: 1 } }))).toEqual({ a: 1 });
    expect(faults).toEqual([]);
    await end();
  });

  it('is notified that the tools have changed' + verifies('HA-10'), async () => {
    const { client, facade, end } = await connect();
    let heard = 0;
    client.setNotificationHandler(ToolListChangedNotificationSchema, () => void heard++);
    facade.changeTools();
    await until(() => heard === 1);
    await end();
  });

  it('gets refusals with number and code', async () => {
    const { client, facade, end } = await connect();
    facade.onCall = async () => ({
      kind: 'error',
      error: { code: -32602, message: 'There is no tool of this name.', data: { code: 'UNKNOWN_TOOL' } },
    });
    await expect(client.callTool({ name: 'nope', arguments: {} })).rejects.toMatchObject({
      code: -32602,
      data: { code: 'UNKNOWN_TOOL' },
    });
    await end();
  });

  it('gets megabytes', async () => {
    const { client, end } = await connect();
    const big = 'x€'.repeat(1_000_000);
    expect(text(await client.callTool({ name: 'read', arguments: { big } }))).toEqual({ big });
    await end();
  });
});
