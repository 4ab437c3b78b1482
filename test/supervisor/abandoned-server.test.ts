/** Tests that the owner hears of a server that Tollgate gives up: in the log at its default level, and in the audit. */
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { afterEach, describe, expect, it } from 'vitest';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

async function listen(): Promise<Server> {
  const server = createServer((request, response) => {
    void text(request).then((body) => {
      if (request.method !== 'POST') return response.writeHead(405).end();
      const { id, method } = JSON.parse(body) as { id?: number; method: string };
      if (id === undefined) return response.writeHead(202).end();
      const result =
        method === 'initialize'
          ? { protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 'far', version: '1' } }
          : { tools: [{ name: 'look', description: 'Looks.', inputSchema: { type: 'object' } }], content: [] };
      return response
        .writeHead(200, { 'content-type': 'application/json' })
        .end(JSON.stringify({ jsonrpc: '2.0', id, result }));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return server;
}

describe('a server that Tollgate gives up' + verifies('PF-14', 'HE-05'), () => {
  let facade: TestFacade | undefined;
  let server: Server | undefined;
  afterEach(async () => {
    await facade?.close();
    server?.close();
    server?.closeAllConnections();
  });

  it('is reported to the owner with the command to inspect it, and recorded', async () => {
    server = await listen();
    const { port } = server.address() as AddressInfo;
    const said: string[] = [];
    facade = await startFacade(
      `version: 1
workspace: ./workspace
state: ./state
servers: {far: {url: "http://127.0.0.1:${port}/mcp", maxRetries: 1, reconnectBackoffMs: 20}}
principals: [{id: alice, stdio: true}]
profiles: {default: {servers: [far], expose: {primitives: {}, tools: ["far.*"]}}}
rules: [{id: all, outcome: allow, when: {}}]
`,
      { onLog: (line) => said.push(line) },
    );
    const session = facade.open('alice');
    expect((await facade.list(session)).map(({ name }) => name)).toEqual(['far_look']);
    server.close();
    server.closeAllConnections();
    expect((await facade.call(session, 'far_look', {})).code).not.toBe('');
    await expect
      .poll(() => said.join(''), { timeout: 30_000 })
      .toContain('server far is given up; look at it: tollgate servers');
    expect(
      facade
        .records()
        .filter(({ type }) => type === 'server')
        .map(({ event }) => event),
    ).toContain('reconnect.exhausted');
  });
});
