/** The backend of the benchmark: a fast hand-written server. Arguments: the number of tools, and `http` if not stdio. */
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';

const [count = '10', transport] = process.argv.slice(2);
const filler = 'A tool of the benchmark that answers with text of the asked size. '.repeat(6);
const text = { type: 'string', description: 'Any text.' };
const integer = { type: 'integer', description: 'A number.' };
const makeTool = (name, properties, more = {}) => ({
  name,
  description: `${filler}It is called ${name}.`,
  inputSchema: {
    type: 'object',
    properties,
    required: Object.keys(properties).slice(0, 1),
    additionalProperties: false,
  },
  ...more,
});
const tools = [
  ...['echo', 'number', 'prefix', 'regex'].map((name) => makeTool(name, { text, size: integer })),
  makeTool('read', { path: text }),
  makeTool(
    'page',
    { url: { ...text, format: 'uri' }, limit: integer },
    {
      outputSchema: {
        type: 'object',
        properties: { title: text, links: { type: 'array', items: text }, length: integer },
        required: ['title', 'links', 'length'],
        additionalProperties: false,
      },
    },
  ),
];
while (tools.length < Number(count)) tools.push(makeTool(`tool-${tools.length}`, { text, size: integer }));
const list = JSON.stringify({ tools });

const bodies = new Map();
const line = 'The quick brown fox said "café", and 0123456789 more.\n';

function textResult(value) {
  return JSON.stringify({ content: [{ type: 'text', text: value }] });
}

/** Returns a result of about `size` bytes of JSON. */
function sized(size) {
  const lineBytes = Buffer.byteLength(JSON.stringify(line)) - 2;
  if (!bodies.has(size))
    bodies.set(size, textResult(line.repeat(Math.floor(size / lineBytes)) + 'x'.repeat(size % lineBytes)));
  return bodies.get(size);
}

function page(url) {
  const structuredContent = { title: `Page at ${url}`, links: ['/one', '/two', '/three'], length: url.length };
  return JSON.stringify({ content: [{ type: 'text', text: JSON.stringify(structuredContent) }], structuredContent });
}

function call({ name, arguments: args }) {
  if (name === 'read') return textResult(readFileSync(args.path, 'utf8'));
  if (name === 'page') return page(args.url);
  return args.size ? sized(args.size) : textResult(args.text);
}

function answer({ method, params }) {
  if (method === 'initialize')
    return JSON.stringify({
      protocolVersion: params.protocolVersion,
      capabilities: { tools: {} },
      serverInfo: { name: 'bench', version: '1' },
    });
  if (method === 'tools/list') return list;
  return method === 'tools/call' ? call(params) : '{}';
}

/** Returns the reply to a message; an empty text for a notification. */
function replyTo(message) {
  const { id, ...request } = JSON.parse(message);
  return id === undefined ? '' : `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":${answer(request)}}`;
}

if (transport === 'http') {
  const server = createServer((request, response) => {
    const parts = [];
    request.on('data', (part) => parts.push(part));
    request.on('end', () => {
      const reply = replyTo(Buffer.concat(parts).toString());
      response.writeHead(reply === '' ? 202 : 200, {
        'content-type': 'application/json',
        'content-length': Buffer.byteLength(reply),
      });
      response.end(reply);
    });
  });
  server.listen(0, '127.0.0.1', () =>
    process.stderr.write(`listening http://127.0.0.1:${server.address().port}/mcp\n`),
  );
  process.stdin.resume();
} else {
  let rest = '';
  process.stdin.setEncoding('utf8');
  process.stdin.on('data', (chunk) => {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop();
    const replies = lines.filter((one) => one !== '').map(replyTo);
    const out = replies.filter((reply) => reply !== '').map((reply) => `${reply}\n`);
    if (out.length > 0) process.stdout.write(out.join(''));
  });
}
process.stdin.on('end', () => process.exit(0));
