/**
 * A whole facade with real servers behind a real listener. Its requests are checked against the published description.
 */

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import type { ValidateFunction } from 'ajv';
import { createAccess } from '../../facade/cli/serving/client-access.ts';
import { loadConfig } from '../../facade/config/load-config.ts';
import { OPENAPI_FILE } from '../../facade/serve/host/host-api-description.ts';
import { openHostEndpoint } from '../../facade/serve/host/host-endpoint.ts';
import { serveHttp } from '../../facade/serve/http/http-listener.ts';
import { type StartOptions, startFacade, type TestFacade } from '../stories/facade.ts';

const { Ajv2020 } = createRequire(import.meta.url)('ajv/dist/2020.js') as typeof import('ajv/dist/2020.js');

/** Tokens of the principals of `hostConfig`. */
export const TOKENS = { host: 'host-token-0123456789abcdef', alice: 'alice-token-0123456789abcdef' } as const;
export const PAGE = 'https://app.example';

const everything = path.join(
  import.meta.dirname,
  '..',
  'servers',
  'node_modules',
  '@modelcontextprotocol',
  'server-everything',
  'dist',
  'index.js',
);
const chaos = path.join(import.meta.dirname, '..', 'fixtures', 'chaos.mjs');

/** The principal `host` is an owner, `alice` is not. Both have the profile that ships, and one with the servers. */
export function hostConfig({
  servers = ['chaos'],
  ...more
}: {
  servers?: readonly string[];
  everything?: string;
  chaos?: string;
  rest?: string;
  rules?: string;
} = {}): string {
  return `version: 1
workspace: ./workspace
state: ./state
servers:
  everything: { command: ${process.execPath}, args: [${everything}, stdio], isolation: direct,
    connectTimeoutMs: 20000, semantics: { "get-*": read, echo: read }${more.everything ?? ''} }
  chaos: { command: ${process.execPath}, args: [${chaos}], isolation: direct,
    connectTimeoutMs: 20000, env: { CHAOS_STARTS: "\${env:CHAOS_STARTS}" }${more.chaos ?? ''} }
principals:
  - { id: host, profiles: [reach, harbor], token: "\${env:HOST_TOKEN}", owner: true }
  - { id: alice, profiles: [reach, harbor, own], token: "\${env:ALICE_TOKEN}", client: cursor }
profiles:
  reach:
    servers: [${servers.join(', ')}]
    expose: { primitives: {}, tools: [${servers.map((name) => `${name}.*`).join(', ')}] }
  own: { }
expose: { primitives: {} }
approvals: { waitMs: 0 }
rules: ${more.rules ?? '[{ id: all, outcome: allow, when: {} }]'}
listen: { port: 0, origins: ["https://page.example"] }
${more.rest ?? ''}
`;
}

/** An answer. */
export interface Answered {
  readonly status: number;
  // The tests read many different members; the description has validated the shape.
  // biome-ignore lint/suspicious/noExplicitAny: each test reads another shape of answer
  readonly value: any;
}

/** Options of a request besides its operation and body. */
export interface Asking {
  readonly token?: string | null;
  readonly headers?: Readonly<Record<string, string>>;
  /** Sent unchanged instead of the body as JSON. */
  readonly text?: string;
}

export interface HostBench {
  readonly facade: TestFacade;
  /** Address without a path. */
  readonly url: string;
  /** Gets one line for each start of the `chaos` process. */
  readonly startsFile: string;
  /** Sends `METHOD /path-under-/host/v1` as the owner. Throws if the answer does not fit its schema. */
  ask(what: string, body?: object, asking?: Asking): Promise<Answered>;
  /** Stops only the listener. */
  stop(): Promise<void>;
  /** Stops everything, as a restart would. A given `folder` is kept. */
  close(): Promise<void>;
}

export async function startHost(
  config = hostConfig(),
  options: StartOptions & { readonly startsFile?: string } = {},
): Promise<HostBench> {
  const startsFile = options.startsFile ?? '/dev/null';
  const env = {
    ...process.env,
    HOST_TOKEN: TOKENS.host,
    ALICE_TOKEN: TOKENS.alice,
    CHAOS_STARTS: startsFile,
    ...options.env,
  };
  const facade = await startFacade(config, { ...options, env });
  const { assembled } = facade;
  const { listen } = assembled.config;
  const faults: unknown[] = [];
  const onFault = (thrown: unknown): void => void faults.push(thrown);
  const reload = async (): Promise<void> =>
    void (await assembled.reload(() => loadConfig(assembled.config.file, { env, home: '/home/nobody-at-all' }), true));
  const host = openHostEndpoint(assembled, { listen, now: () => performance.now(), onFault, reload });
  const server = await serveHttp({
    facade: assembled.gateway,
    listen,
    ...createAccess(() => assembled.config, listen),
    host,
    onFault,
    drainMs: 100,
  });
  const url = new URL(server.url).origin;
  const check = createCheck();
  return {
    facade,
    url,
    startsFile,
    ask: async (what, body, { token = TOKENS.host, headers = {}, text } = {}) => {
      const [method = '', target = ''] = what.split(' ');
      const sent = text ?? (body === undefined ? undefined : JSON.stringify(body));
      const response = await fetch(`${url}/host/v1${target}`, {
        method,
        headers: {
          ...(sent !== undefined && { 'content-type': 'application/json' }),
          ...(token !== null && { authorization: `Bearer ${token}` }),
          ...headers,
        },
        ...(sent !== undefined && { body: sent }),
      });
      const value: unknown = JSON.parse(await response.text());
      check({
        method,
        path: `/host/v1${target.split('?')[0]}`,
        body: response.status < 400 ? body : undefined,
        status: response.status,
        value,
      });
      return { status: response.status, value };
    },
    stop: () => server.close(),
    close: async () => {
      await server.close();
      await facade.close();
      if (faults.length > 0) throw new Error(`the listener met faults: ${String(faults[0])}`);
    },
  };
}

interface Exchange {
  readonly method: string;
  readonly path: string;
  readonly body: object | undefined;
  readonly status: number;
  readonly value: unknown;
}

interface Described {
  readonly requestBody?: { readonly content: { readonly 'application/json': { readonly schema: object } } };
  readonly responses: Readonly<
    Record<string, { readonly content: { readonly 'application/json': { readonly schema: object } } }>
  >;
}

const ajv = new Ajv2020({ strict: false, allErrors: true });
/** Compiled schemas of the description, shared by all hosts of a test. */
const compiled = new Map<string, ValidateFunction>();

/** Creates the check of an exchange, with another validator than the host API's own. It throws what does not fit. */
function createCheck(): (exchange: Exchange) => void {
  const document = JSON.parse(readFileSync(OPENAPI_FILE, 'utf8')) as {
    paths: Record<string, Record<string, Described>>;
    components: { schemas: object };
  };
  const fits = (schema: object, value: unknown, what: string): void => {
    const key = JSON.stringify(schema);
    const validate = compiled.get(key) ?? ajv.compile({ ...schema, components: document.components });
    compiled.set(key, validate);
    if (!validate(value))
      throw new Error(
        `${what} does not fit the description: ${ajv.errorsText(validate.errors)} ` +
          `in ${JSON.stringify(value).slice(0, 500)}`,
      );
  };
  return ({ method, path: at, body, status, value }) => {
    const template = Object.keys(document.paths)
      .sort((a, b) => Number(a.includes('{')) - Number(b.includes('{')))
      .find((one) => new RegExp(`^${one.replaceAll('.', '\\.').replace(/\{\w+\}/g, '[^/]+')}$`).test(at));
    const operation = template === undefined ? undefined : document.paths[template]?.[method.toLowerCase()];
    const failure = document.paths['/host/v1/grants']?.get?.responses.default;
    const described = operation?.responses[String(status)] ?? operation?.responses.default ?? failure;
    // Refusals of the listener itself, before the host API: JSON-RPC, as on every route.
    if (described === undefined) throw new Error(`${method} ${at} ${status} is not described`);
    if (body !== undefined && operation?.requestBody !== undefined)
      fits(operation.requestBody.content['application/json'].schema, body, `the request ${method} ${at}`);
    if (status < 400 || !isRpc(value))
      fits(described.content['application/json'].schema, value, `the answer of ${method} ${at}`);
  };
}

function isRpc(value: unknown): boolean {
  return typeof value === 'object' && value !== null && 'jsonrpc' in value;
}

/** Waits at most 20 s until the condition holds. */
export async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  for (const end = Date.now() + 20_000; Date.now() < end; await new Promise((resolve) => setTimeout(resolve, 20)))
    if (await holds()) return;
  throw new Error('it never came to be');
}
