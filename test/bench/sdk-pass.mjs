/** A proxy made with Client and Server of the SDK, for comparison. Arguments: stdio|http, then those of the backend. */
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import {
  CallToolRequestSchema,
  CallToolResultSchema,
  ListToolsRequestSchema,
  ListToolsResultSchema,
} from '@modelcontextprotocol/sdk/types.js';

const [mode, ...backend] = process.argv.slice(2);
const client = new Client({ name: 'pass', version: '1' });
await client.connect(new StdioClientTransport({ command: process.execPath, args: backend }));

function makeServer() {
  const server = new Server({ name: 'pass', version: '1' }, { capabilities: { tools: {} } });
  // `request`, because `listTools` and `callTool` would compile output schemas too.
  server.setRequestHandler(ListToolsRequestSchema, ({ method, params }) =>
    client.request({ method, params }, ListToolsResultSchema),
  );
  server.setRequestHandler(CallToolRequestSchema, ({ method, params }) =>
    client.request({ method, params }, CallToolResultSchema),
  );
  return server;
}

if (mode === 'stdio') {
  const { StdioServerTransport } = await import('@modelcontextprotocol/sdk/server/stdio.js');
  await makeServer().connect(new StdioServerTransport());
  process.stdin.on('end', () => process.exit(0));
} else {
  const { StreamableHTTPServerTransport } = await import('@modelcontextprotocol/sdk/server/streamableHttp.js');
  const sessions = new Map();
  const listener = createServer(async (request, response) => {
    let transport = sessions.get(request.headers['mcp-session-id']);
    if (transport === undefined) {
      transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        onsessioninitialized: (id) => sessions.set(id, transport),
      });
      await makeServer().connect(transport);
    }
    await transport.handleRequest(request, response);
  });
  listener.listen(0, '127.0.0.1', () =>
    process.stderr.write(`listening http://127.0.0.1:${listener.address().port}/mcp\n`),
  );
  process.stdin.on('end', () => process.exit(0)).resume();
}
