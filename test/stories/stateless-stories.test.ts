/** Runs every story of test/stories/stateless/, with a client over stdio and over HTTP. */

import { readFileSync } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { PassThrough } from 'node:stream';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { principalForStdio } from '../../facade/config/stdio-identity.ts';
import { serveHttp } from '../../facade/serve/http/http-listener.ts';
import { serveStdio } from '../../facade/serve/stdio-transport.ts';
import { partOf } from '../harness/slices.ts';
import { ALL, headersOf, metaOf, stateless } from '../modern/stateless-bench.ts';
import { tool } from '../properties/raw-facade.ts';
import { type ProtocolFacade, type Step, startProtocol } from '../protocol/protocol-facade.ts';
import { LISTEN } from '../serve/http-bench.ts';
import { verifies } from '../verifies.ts';
import type { Recorded } from './facade.ts';

type Json = Readonly<Record<string, unknown>>;

interface StatelessStory {
  readonly name: string;
  readonly verifies: readonly string[];
  readonly server?: Readonly<Record<string, Step>>;
  readonly http?: true;
  readonly steps: readonly {
    readonly request: {
      readonly method: string;
      readonly params?: Json;
      readonly meta?: Json;
      readonly client?: Json;
      readonly headers?: Readonly<Record<string, string>>;
    };
    readonly want: {
      readonly status?: number;
      readonly result?: object;
      readonly error?: object;
      readonly questions?: readonly object[];
      readonly received?: readonly object[];
      readonly contains?: string;
      readonly text?: string;
      readonly not?: readonly string[];
    };
    readonly audit?: readonly Recorded[];
  }[];
}

/** What a client got for one request. */
interface Got {
  readonly text: string;
  readonly message: Json;
  readonly received: readonly Json[];
  readonly status?: number;
}

type Send = (body: Record<string, unknown>, headers: Readonly<Record<string, string>>) => Promise<Got>;

const file = path.join(import.meta.dirname, 'stateless', 'requests.yaml');
const stories = parse(readFileSync(file, 'utf8'), { merge: true }) as StatelessStory[];
const CAPABILITIES = { tools: {}, resources: { subscribe: true }, prompts: {}, logging: {} };
const LISTS = {
  'tools/list': { raw: JSON.stringify({ tools: [tool('act'), tool('wipe'), tool('twice')] }) },
  'prompts/list': { raw: '{"prompts":[{"name":"sum"}]}' },
  'logging/setLevel': { raw: '{}' },
};
const CONFIG = {
  profiles: {
    p: {
      servers: ['docs', 'mail'],
      expose: { primitives: {}, tools: ['docs.*'], resources: ['docs'], prompts: ['docs.*'] },
    },
  },
  prompts: { 'docs.sum': { template: 'Sum up.' } },
  rules: [
    { id: 'tools', outcome: 'allow', when: { servers: ['docs'] } },
    { id: 'reads', outcome: 'allow', when: { kind: ['resource', 'prompt'] } },
    { id: 'asks', outcome: 'allow', when: { kind: ['sampling', 'elicitation', 'roots'] } },
    {
      id: 'no-wipe',
      outcome: 'deny',
      message: 'No.',
      when: { tools: ['docs.wipe'], args: { really: { equals: true } } },
    },
  ],
  budgets: [{ id: 'two', scope: 'session', calls: 2, when: { tool: 'docs.twice' } }],
};

/** Reads the messages of an answer, which is JSON or a stream. The last one answers the request. */
async function readAnswer(response: Response): Promise<Got> {
  const body = await response.text();
  const lines = response.headers.get('content-type') === 'text/event-stream' ? body.match(/(?<=^data: ).*$/gm) : [body];
  const text = lines?.at(-1) ?? '';
  const received = (lines ?? []).slice(0, -1).map((line) => JSON.parse(line) as Json);
  return { text, message: JSON.parse(text) as Json, received, status: response.status };
}

describe.each(['stdio', 'http'] as const)('the stories of stateless requests, over %s', (transport) => {
  let facade: ProtocolFacade;
  let send: Send;
  let close: () => Promise<void>;
  const docs = (answers: StatelessStory['server'] = {}) => ({
    capabilities: CAPABILITIES,
    answers: { ...LISTS, ...answers },
  });

  const overStdio = async (): Promise<Send> => {
    const { gateway, config } = facade.assembled;
    const [input, output] = [new PassThrough(), new PassThrough()];
    const done = serveStdio({
      facade: gateway,
      principal: principalForStdio(config, { user: 'nobody-else', as: 'me' }),
      input,
      output,
      maxBytes: 64 << 20,
      drainMs: 100,
      onFault: (thrown) => {
        throw thrown;
      },
    });
    close = () => {
      input.end();
      return done;
    };
    const lines = createInterface({ input: output })[Symbol.asyncIterator]();
    return async (body) => {
      input.write(`${JSON.stringify(body)}\n`);
      const received: Json[] = [];
      for (;;) {
        const text = (await lines.next()).value as string;
        const message = JSON.parse(text) as Json;
        if (message.id === body.id) return { message, text, received };
        received.push(message);
      }
    };
  };
  const overHttp = async (): Promise<Send> => {
    const { gateway, config } = facade.assembled;
    const principal = principalForStdio(config, { user: 'nobody-else', as: 'me' });
    const server = await serveHttp({
      facade: gateway,
      authenticate: () => principal,
      listen: LISTEN,
      drainMs: 100,
      onFault: (thrown) => {
        throw thrown;
      },
    });
    close = () => server.close();
    const accept = 'application/json, text/event-stream';
    return async (body, headers) =>
      readAnswer(
        await fetch(server.url, {
          method: 'POST',
          headers: { 'content-type': 'application/json', accept, ...headers },
          body: JSON.stringify(body),
        }),
      );
  };

  beforeAll(async () => {
    const settings = {
      asks: ['sampling', 'elicitation', 'roots'],
      semantics: { act: 'read', wipe: 'destructive', twice: 'read' },
    };
    facade = await startProtocol({ docs: { ...docs(), settings }, mail: {} }, CONFIG);
    send = await (transport === 'stdio' ? overStdio() : overHttp());
    // Started before its script changes, because consent covers the files that it is started with.
    await send(stateless(0, 'tools/list'), headersOf(stateless(0, 'tools/list')));
  }, 60_000);
  afterAll(async () => {
    await close();
    await facade.close();
  });

  const told = stories.filter(({ http }) => http !== true || transport === 'http');
  it.each(
    partOf(
      told.map((story) => [story.name + verifies(...story.verifies), story] as const),
      9,
    ),
  )('%s', async (_, { server, steps }) => {
    facade.rescript('docs', docs(server));
    let [state, key] = ['', ''];
    for (const [at, { request, want, audit }] of steps.entries()) {
      const filled = JSON.parse(
        JSON.stringify(request).replaceAll('$STATE', state).replaceAll('$KEY', key),
      ) as typeof request;
      const _meta = metaOf(filled.client ?? ALL, filled.meta);
      const body = stateless(at + 1, filled.method, { ...filled.params, _meta });
      const before = facade.callRecords().length;
      const got = await send(body, { ...headersOf(body), ...filled.headers });
      judge(got, want);
      const { result } = got.message as { readonly result?: { requestState?: string; inputRequests?: object } };
      if (result?.requestState !== undefined) {
        state = result.requestState;
        [key = ''] = Object.keys(result.inputRequests ?? {});
      }
      if (audit === undefined) continue;
      const calls = facade.callRecords().slice(before);
      expect(calls).toMatchObject(audit);
      expect(calls).toHaveLength(audit.length);
    }
  });
});

function judge({ message, text, received, status }: Got, want: StatelessStory['steps'][number]['want']): void {
  const { result, error } = message as {
    readonly result?: { readonly inputRequests?: object };
    readonly error?: object;
  };
  if (want.error === undefined) expect(error, text).toBeUndefined();
  else expect(error).toMatchObject(want.error);
  if (want.result !== undefined) expect(result).toMatchObject(want.result);
  if (want.questions !== undefined) expect(Object.values(result?.inputRequests ?? {})).toMatchObject(want.questions);
  if (want.received !== undefined) {
    expect(received).toMatchObject(want.received);
    expect(received).toHaveLength(want.received.length);
  }
  if (want.contains !== undefined) expect(text).toContain(want.contains);
  if (want.text !== undefined) expect(text).toContain(want.text);
  for (const word of want.not ?? []) expect(text).not.toContain(word);
  if (want.status !== undefined && status !== undefined) expect(status).toBe(want.status);
}
