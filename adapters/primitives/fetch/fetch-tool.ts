/** The tool of the fetch server: its definition, the check of its arguments, and the text of its result. */
import type { RawTool, ToolResult } from '../../../catalogs/tools/tool-definition.ts';
import { exchange, type FetchResponse, type FetchScope } from './fetch-client.ts';
import { FETCH_METHODS, type FetchArgs, FetchError, type FetchMethod, requestOf } from './fetch-scope.ts';
import { textOfHtml } from './html-text.ts';

/** Headers of a response that the result shows. */
const SHOWN = ['content-type', 'location', 'etag', 'last-modified', 'retry-after', 'link'] as const;
const MAX_SHOWN = 500;

/** The definition of the tool. It is the same for every service, so it has one pin and one set of semantics. */
export const FETCH_TOOL: RawTool = {
  name: 'fetch',
  description:
    'Send one HTTP request to the service of this server, and get the response as text. Give path, or a url of the ' +
    'same host. HTML pages are reduced to their text. Other hosts, and redirects to them, are refused. The ' +
    'credential of the service is added automatically.',
  inputSchema: {
    type: 'object',
    additionalProperties: false,
    properties: {
      path: { type: 'string', description: 'Path and query. It starts with /.', maxLength: 8192 },
      url: { type: 'string', description: 'Absolute URL, instead of path.', maxLength: 8192 },
      method: { type: 'string', enum: [...FETCH_METHODS], description: 'Default GET.' },
      headers: {
        type: 'object',
        additionalProperties: { type: 'string' },
        description: 'Accept, Content-Type and conditional headers.',
      },
      body: { type: 'string', description: 'Body of POST, PUT, PATCH or DELETE.', maxLength: 1_048_576 },
    },
  },
  annotations: {
    title: 'Fetch from the service',
    readOnlyHint: false,
    destructiveHint: true,
    idempotentHint: false,
    openWorldHint: true,
  },
};

/** Answers one call. Errors of the caller or the service become results with `isError`. */
export async function callFetch(args: unknown, scope: FetchScope): Promise<ToolResult> {
  try {
    return textResult(describeResponse(await exchange(requestOf(readArgs(args), scope.origin), scope)));
  } catch (thrown) {
    if (!(thrown instanceof FetchError)) throw thrown;
    return { ...textResult(`${thrown.code}: ${thrown.message}`), isError: true };
  }
}

/** Checks the arguments. The facade has validated them, but another host may not. */
function readArgs(args: unknown): FetchArgs {
  const given = (typeof args === 'object' && args !== null ? args : {}) as Readonly<Record<string, unknown>>;
  for (const key of ['path', 'url', 'body'] as const)
    if (given[key] !== undefined && typeof given[key] !== 'string')
      throw new FetchError('BAD_ADDRESS', `${key} must be a string.`);
  if (given.method !== undefined && !FETCH_METHODS.includes(given.method as FetchMethod))
    throw new FetchError('BAD_ADDRESS', `method must be one of ${FETCH_METHODS.join(', ')}.`);
  const { headers = {} } = given;
  if (
    typeof headers !== 'object' ||
    headers === null ||
    Array.isArray(headers) ||
    !Object.values(headers).every((value) => typeof value === 'string')
  )
    throw new FetchError('BAD_HEADER', 'headers must be an object with string values.');
  return given as FetchArgs;
}

function textResult(text: string): ToolResult {
  return { content: [{ type: 'text', text }] };
}

function describeResponse({ url, status, reason, headers, body, cut }: FetchResponse): string {
  const head = [
    `${status} ${reason} ${url.pathname}${url.search}`.trim(),
    ...SHOWN.flatMap((name) =>
      headers[name] === undefined ? [] : [`${name}: ${String(headers[name]).slice(0, MAX_SHOWN)}`],
    ),
  ];
  const end = cut ? '\n\n(The response is longer. Only its first 2 MiB were read. Request a smaller part.)' : '';
  return `${head.join('\n')}\n\n${textOf(headers['content-type'] ?? '', body)}${end}`;
}

function textOf(type: string, body: Buffer): string {
  if (body.length === 0) return '(no body)';
  const [, charset = 'utf-8'] = /charset="?([\w-]+)/i.exec(type) ?? [];
  if (
    /^(image|audio|video|font)\/(?!svg)|application\/(octet-stream|zip|pdf|gzip)/i.test(type) ||
    body.subarray(0, 4096).includes(0)
  )
    throw new FetchError(
      'NOT_TEXT',
      `The response is ${body.length} bytes of ${type.split(';')[0] || 'data'}, not text.`,
    );
  const text = decoderOf(charset).decode(body);
  return /^text\/html|application\/xhtml/i.test(type) ? textOfHtml(text) : text;
}

function decoderOf(charset: string): TextDecoder {
  try {
    return new TextDecoder(charset);
  } catch {
    return new TextDecoder();
  }
}
