/** The backend of the benchmark: a fast hand-written stdio server. Argument: the number of tools. */
const count = Number(process.argv[2] ?? 10);
const filler = 'A tool of the benchmark that answers with text of the asked size. '.repeat(6);
const tools = Array.from({ length: count }, (_, index) => ({
  name: `tool-${index}`,
  description: `${filler}Number ${index}.`,
  inputSchema: {
    type: 'object',
    properties: {
      text: { type: 'string', description: 'Any text.' },
      size: { type: 'integer', description: 'Bytes to answer with.' },
    },
    required: ['text'],
    additionalProperties: false,
  },
}));
const list = JSON.stringify({ tools });
const bodies = new Map();

function body(size) {
  if (!bodies.has(size))
    bodies.set(
      size,
      JSON.stringify({
        content: [
          { type: 'text', text: `${'0123456789 abcdef '.repeat(5)}\n`.repeat(Math.ceil(size / 91)).slice(0, size) },
        ],
      }),
    );
  return bodies.get(size);
}

function answer(message) {
  if (message.method === 'initialize')
    return JSON.stringify({
      protocolVersion: message.params.protocolVersion,
      capabilities: { tools: {} },
      serverInfo: { name: 'bench', version: '1' },
    });
  if (message.method === 'tools/list') return list;
  if (message.method === 'tools/call')
    return message.params.arguments.size
      ? body(message.params.arguments.size)
      : '{"content":[{"type":"text","text":"ok"}]}';
  return '{}';
}

let rest = '';
process.stdin.setEncoding('utf8');
process.stdin.on('data', (chunk) => {
  const lines = (rest + chunk).split('\n');
  rest = lines.pop();
  let out = '';
  for (const line of lines) {
    if (line === '') continue;
    const message = JSON.parse(line);
    if (message.id !== undefined)
      out += `{"jsonrpc":"2.0","id":${JSON.stringify(message.id)},"result":${answer(message)}}\n`;
  }
  if (out !== '') process.stdout.write(out);
});
process.stdin.on('end', () => process.exit(0));
