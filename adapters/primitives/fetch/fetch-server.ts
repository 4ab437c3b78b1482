/**
 * The program of the fetch server: MCP over stdio for one HTTP service. The command line names the service, the
 * environment holds its credential.
 */
import { LineReader } from '../../rpc/framing.ts';
import type { FetchScope } from './fetch-client.ts';
import { readOrigin } from './fetch-scope.ts';
import { callFetch, FETCH_TOOL } from './fetch-tool.ts';

const REVISIONS = ['2025-11-25', '2025-06-18', '2025-03-26', '2024-11-05'];
const MAX_LINE = 4 * 1024 * 1024;

interface Message {
  readonly id?: unknown;
  readonly method?: unknown;
  readonly params?: Readonly<Record<string, unknown>>;
}

/**
 * Reads the settings: `--origin https://host[:port]`, one `--address IP` for each private address that the owner
 * allowed, and the credential from FETCH_HEADER and FETCH_CREDENTIAL. Throws FetchError for a bad origin.
 */
export function readFetchScope(argv: readonly string[], env: Readonly<Record<string, string | undefined>>): FetchScope {
  const valuesOf = (flag: string): readonly string[] =>
    argv.flatMap((word, at) => (argv[at - 1] === flag ? [word] : []));
  const [name, value] = [env.FETCH_HEADER, env.FETCH_CREDENTIAL];
  return {
    origin: readOrigin(valuesOf('--origin')[0] ?? ''),
    addresses: valuesOf('--address'),
    ...(name !== undefined && value !== undefined && { credential: [name, value] as const }),
  };
}

/** Answers one request. Returns undefined for a notification. */
export async function answerFetchRequest(
  { id, method, params = {} }: Message,
  scope: FetchScope,
): Promise<object | undefined> {
  if (id === undefined) return undefined;
  const result = (value: unknown): object => ({ jsonrpc: '2.0', id, result: value });
  switch (method) {
    case 'initialize': {
      const requested = String(params.protocolVersion);
      return result({
        protocolVersion: REVISIONS.includes(requested) ? requested : REVISIONS[0],
        capabilities: { tools: {} },
        serverInfo: { name: 'tollgate-fetch', version: '1' },
      });
    }
    case 'ping':
      return result({});
    case 'tools/list':
      return result({ tools: [FETCH_TOOL] });
    case 'tools/call':
      if (params.name === FETCH_TOOL.name) return result(await callFetch(params.arguments, scope));
      return rpcError(id, -32602, 'Unknown tool.');
    default:
      return rpcError(id, -32601, 'Unknown method.');
  }
}

/** Answers requests until stdin ends. */
function serve({ stdin, stdout, argv, env }: Pick<NodeJS.Process, 'stdin' | 'stdout' | 'argv' | 'env'>): void {
  const scope = readFetchScope(argv.slice(2), env);
  const reader = new LineReader({
    maxBytes: MAX_LINE,
    onLine: (line) => {
      void answerLine(line.toString('utf8'), scope).then((answer) => {
        if (answer !== undefined) stdout.write(`${JSON.stringify(answer)}\n`);
      });
    },
    onBad: () => undefined,
  });
  stdin.on('data', (chunk: Buffer) => reader.push(chunk)).on('end', () => reader.end());
}

async function answerLine(line: string, scope: FetchScope): Promise<object | undefined> {
  let message: Message;
  try {
    message = JSON.parse(line) as Message;
  } catch {
    return rpcError(null, -32700, 'The message is not JSON.');
  }
  return answerFetchRequest(message, scope).catch(() => rpcError(message.id, -32603, 'The request could not be sent.'));
}

function rpcError(id: unknown, code: number, message: string): object {
  return { jsonrpc: '2.0', id, error: { code, message } };
}

// Tests import this file without starting the server.
if (process.argv[1]?.endsWith('/fetch/fetch-server.js') === true) serve(process);
