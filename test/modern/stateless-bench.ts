/** Requests of revision 2026-07-28, and a dispatch with a fake facade to send them to. */
import type { IncomingHttpHeaders } from 'node:http';
import { Cancellation } from '../../adapters/rpc/cancellation.ts';
import { joinText } from '../../adapters/rpc/wire-message.ts';
import type { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { CallRequest, Reply } from '../../facade/serve/facade-port.ts';
import type { Dispatch } from '../../facade/serve/legacy-dispatch.ts';
import { openDispatch } from '../../facade/serve/session-dispatch.ts';
import { ALICE, FakeFacade, message } from '../serve/fake-facade.ts';

export const REVISION = '2026-07-28';
export const ALL = { sampling: {}, roots: {}, elicitation: { form: {}, url: {} } };

export function metaOf(client: unknown = ALL, more: Readonly<Record<string, unknown>> = {}): Record<string, unknown> {
  return {
    'io.modelcontextprotocol/protocolVersion': REVISION,
    'io.modelcontextprotocol/clientCapabilities': client,
    'io.modelcontextprotocol/clientInfo': { name: 'test', version: '1' },
    ...more,
  };
}

/** Returns a request. Its `_meta` is complete unless `params` has one. */
export function stateless(
  id: string | number,
  method: string,
  params: Readonly<Record<string, unknown>> = {},
): Record<string, unknown> {
  return { jsonrpc: '2.0', id, method, params: { _meta: metaOf(), ...params } };
}

/** Returns the headers that repeat a request. */
export function headersOf({ method, params }: Record<string, unknown>): Record<string, string> {
  const { name, uri } = params as { readonly name?: string; readonly uri?: string };
  const named =
    method === 'tools/call' || method === 'prompts/get' ? name : method === 'resources/read' ? uri : undefined;
  return {
    'mcp-protocol-version': REVISION,
    'mcp-method': String(method),
    ...(named !== undefined && { 'mcp-name': named }),
  };
}

export interface Answer {
  readonly id: unknown;
  readonly result?: Record<string, unknown> & { readonly requestState?: string };
  readonly error?: { readonly code: number; readonly message: string; readonly data: Record<string, unknown> };
}

export interface ModernBench {
  readonly facade: FakeFacade;
  readonly dispatch: Dispatch;
  readonly sent: Record<string, unknown>[];
  readonly faults: unknown[];
  /** Sends a message, over stdio. */
  ask(value: unknown): Promise<Answer | undefined>;
  /** Sends one over HTTP. */
  post(
    value: Record<string, unknown>,
    headers?: IncomingHttpHeaders,
  ): { readonly answer: Promise<Answer | undefined>; readonly refused: TollgateError[]; close(): void };
}

export function modernBench(facade = new FakeFacade(), principal = ALICE): ModernBench {
  const sent: Record<string, unknown>[] = [];
  const faults: unknown[] = [];
  const session = facade.openSession(principal, 'stdio');
  const dispatch = openDispatch('modern', {
    facade,
    session,
    notify: () => undefined,
    onFault: (thrown) => faults.push(thrown),
  });
  const send = (text: string): unknown => sent.push(JSON.parse(text) as Record<string, unknown>);
  const parse = (reply: Awaited<ReturnType<Dispatch['handle']>>): Answer | undefined =>
    reply === undefined ? undefined : (JSON.parse(joinText(reply)) as Answer);
  return {
    facade,
    dispatch,
    sent,
    faults,
    ask: async (value) => parse(await dispatch.handle(message(value), send)),
    post: (value, headers = headersOf(value)) => {
      const closed = new Cancellation();
      const refused: TollgateError[] = [];
      const stateless = { headers, closed, onRefused: (error: TollgateError) => void refused.push(error) };
      const answer = Promise.resolve(dispatch.handle(message(value), send, { client: {}, stateless })).then(parse);
      return { answer, refused, close: () => closed.abort(new Error('closed')) };
    },
  };
}

export const FORM = {
  message: 'Your name?',
  requestedSchema: { type: 'object', properties: { name: { type: 'string' } } },
};

/** Asks the client as a server does, and answers with what the client said. */
export async function asking(request: CallRequest, keys: readonly string[] = ['name']): Promise<Reply> {
  const limits = { signal: request.signal, timeoutMs: 10_000, server: 'one' };
  try {
    const answers = await Promise.all(
      keys.map((key) => request.ask?.('elicitation/create', JSON.stringify(FORM), { ...limits, key })),
    );
    return {
      kind: 'result',
      text: JSON.stringify({ content: [{ type: 'text', text: JSON.stringify(answers.map((one) => one?.value)) }] }),
    };
  } catch (thrown) {
    return { kind: 'error', error: { code: -32099, message: String((thrown as { code?: unknown }).code) } };
  }
}

/** The answer of a facade to a request that its transport refuses. */
export function refusing(request: CallRequest): Reply | undefined {
  const { refusal } = request;
  if (refusal === undefined) return undefined;
  return {
    kind: 'error',
    error: { code: refusal.row.rpc ?? -32011, message: refusal.message, data: { ...refusal.data, code: refusal.code } },
  };
}
