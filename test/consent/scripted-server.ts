/** The text of MCP servers with fixed answers, for tests in which the file of a server matters. */

/** Code of a server. `before` runs once and may change `answers`. `onRequest` runs before the answer to each request. */
export interface ServerCode {
  readonly before?: string;
  readonly onRequest?: string;
}

/** Returns the text of a module that serves MCP on its pipes. `answers`: method → result; `{}` for other methods. */
export function scriptedServer(
  answers: Readonly<Record<string, unknown>>,
  { before = '', onRequest = '' }: ServerCode = {},
): string {
  const initialize = {
    protocolVersion: '2025-06-18',
    capabilities: { tools: {}, ...('prompts/list' in answers && { prompts: {} }) },
    serverInfo: { name: 's', version: '1' },
  };
  return `import { appendFileSync, readFileSync, writeFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
const answers = ${JSON.stringify({ initialize, 'tools/list': { tools: [] }, ...answers })};
const reply = (id, answer) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', id, ...answer }) + '\\n');
${before}
createInterface({ input: process.stdin })
  .on('line', (line) => {
    const { id, method, params } = JSON.parse(line);
    if (id === undefined) return;
    ${onRequest}
    reply(id, { result: answers[method] ?? {} });
  })
  .on('close', () => process.exit(0));
`;
}
