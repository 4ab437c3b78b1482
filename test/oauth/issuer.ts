/**
 * A real authorization server and a real MCP server behind it, on loopback: metadata, registration, consent with PKCE,
 * and tokens for one audience.
 */
import { createHash, type KeyObject, randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text as readText } from 'node:stream/consumers';
import { Server as McpServer } from '@modelcontextprotocol/sdk/server/index.js';
import { SSEServerTransport } from '@modelcontextprotocol/sdk/server/sse.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { jwtVerify, SignJWT } from 'jose';

type Words = Record<string, string>;

/** An issued token. */
interface Given {
  readonly resource: string;
  readonly scope: string;
  readonly expires: number;
}

/** A registered client. */
interface Client {
  readonly redirects: readonly string[];
  readonly secret?: string;
  readonly publicKey?: KeyObject;
}

interface Registration {
  readonly redirect_uris: string[];
  readonly application_type?: string;
}

/** A recorded request. */
export interface Heard {
  readonly method: string;
  readonly path: string;
  readonly authorization: string | undefined;
  readonly body: string;
}

/** A listener on loopback that records its requests. */
export abstract class Listener {
  readonly heard: Heard[] = [];
  url = '';
  #server: Server | undefined;

  protected abstract answer(request: IncomingMessage, response: ServerResponse, body: string): Promise<void> | void;

  async open(): Promise<this> {
    this.#server = createServer((request, response) => {
      void (async () => {
        const body = await readText(request);
        this.heard.push({
          method: request.method ?? '',
          path: request.url ?? '',
          authorization: request.headers.authorization,
          body,
        });
        await this.answer(request, response, body);
      })();
    });
    await new Promise<void>((resolve) => this.#server?.listen(0, '127.0.0.1', resolve));
    this.url = `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
    return this;
  }

  close(): void {
    this.#server?.closeAllConnections();
    this.#server?.close();
  }
}

export function json(response: ServerResponse, status: number, value: unknown, headers: Words = {}): void {
  response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(value));
}

/** The authorization server. Tests set its fields to change its behaviour. */
export class Issuer extends Listener {
  readonly tokens = new Map<string, Given>();
  readonly refreshes = new Map<
    string,
    { readonly resource: string; readonly scope: string; readonly client: string }
  >();
  readonly clients = new Map<string, Client>();
  /** The lifetime of a token in seconds. */
  lives = 3600;
  givesRefresh = true;
  /** Overrides fields of the metadata. `undefined` removes a field. */
  says: Record<string, unknown> = {};
  /** Changes the redirect of the browser. */
  bends: (redirect: URL) => void = () => undefined;
  /** If set, the answer of /token. */
  tokenFault: { readonly status: number; readonly body: unknown } | undefined;
  /** The identity provider whose assertions are accepted, and the key that it signs with. */
  trusts: { readonly issuer: string; readonly key: KeyObject } | undefined;
  /** Milliseconds before a refresh is answered. */
  slowness = 0;
  readonly #codes = new Map<string, Words>();

  protected async answer(request: IncomingMessage, response: ServerResponse, body: string): Promise<void> {
    const { pathname, searchParams } = new URL(request.url ?? '', this.url);
    if (pathname === '/.well-known/oauth-authorization-server')
      return json(response, 200, { ...this.#metadata(), ...this.says });
    if (pathname === '/register') return this.#register(response, JSON.parse(body) as Registration);
    if (pathname === '/authorize') return this.#authorize(response, Object.fromEntries(searchParams));
    if (pathname === '/token') return this.#token(request, response, Object.fromEntries(new URLSearchParams(body)));
    if (pathname === '/revoke') {
      const token = new URLSearchParams(body).get('token') ?? '';
      this.refreshes.delete(token);
      this.tokens.clear();
      return json(response, 200, {});
    }
    response.writeHead(404).end();
  }

  #metadata(): Record<string, unknown> {
    const at = (path: string): string => this.url + path;
    return {
      issuer: this.url,
      authorization_endpoint: at('/authorize'),
      token_endpoint: at('/token'),
      registration_endpoint: at('/register'),
      revocation_endpoint: at('/revoke'),
      response_types_supported: ['code'],
      grant_types_supported: ['authorization_code', 'refresh_token', 'client_credentials'],
      code_challenge_methods_supported: ['S256'],
      authorization_response_iss_parameter_supported: true,
    };
  }

  #register(response: ServerResponse, { redirect_uris: redirects, application_type: kind }: Registration): void {
    // The default of OpenID Connect is `web`, which may not have a redirect address on loopback (SEP-837).
    if (kind !== 'native') return json(response, 400, { error: 'invalid_redirect_uri' });
    const id = `client-${randomUUID()}`;
    this.clients.set(id, { redirects });
    json(response, 201, { client_id: id, redirect_uris: redirects, token_endpoint_auth_method: 'none' });
  }

  #authorize(response: ServerResponse, words: Words): void {
    const known = this.clients.get(words.client_id ?? '');
    if (
      known?.redirects.includes(words.redirect_uri ?? '') !== true ||
      words.code_challenge_method !== 'S256' ||
      words.response_type !== 'code'
    )
      return void response.writeHead(400).end('wrong request');
    const code = `code-${randomUUID()}`;
    this.#codes.set(code, words);
    const redirect = new URL(words.redirect_uri ?? '');
    for (const [name, value] of [
      ['code', code],
      ['state', words.state ?? ''],
      ['iss', this.url],
    ] as const)
      redirect.searchParams.set(name, value);
    this.bends(redirect);
    response.writeHead(302, { location: redirect.href }).end();
  }

  async #token(request: IncomingMessage, response: ServerResponse, words: Words): Promise<void> {
    if (this.tokenFault !== undefined) return json(response, this.tokenFault.status, this.tokenFault.body);
    if (words.grant_type === 'client_credentials') return this.#giveMachine(request, response, words);
    if (words.grant_type === 'urn:ietf:params:oauth:grant-type:jwt-bearer')
      return this.#giveVouched(request, response, words);
    if (words.grant_type === 'refresh_token') {
      await new Promise((resolve) => setTimeout(resolve, this.slowness));
      const old = this.refreshes.get(words.refresh_token ?? '');
      // A refresh token is valid once. A second use could be that of a thief.
      this.refreshes.delete(words.refresh_token ?? '');
      if (old === undefined || old.resource !== words.resource)
        return json(response, 400, { error: 'invalid_grant', error_description: `<b>${words.refresh_token}</b>` });
      return this.#give(response, old);
    }
    const asked = this.#codes.get(words.code ?? '');
    this.#codes.delete(words.code ?? '');
    const proof = createHash('sha256')
      .update(words.code_verifier ?? '')
      .digest('base64url');
    const fits =
      asked !== undefined &&
      proof === asked.code_challenge &&
      ['redirect_uri', 'client_id', 'resource'].every((name) => asked[name] === words[name]);
    if (!fits) return json(response, 400, { error: 'invalid_grant' });
    this.#give(response, {
      resource: asked.resource ?? '',
      scope: asked.scope ?? '',
      client: asked.client_id ?? '',
    });
  }

  async #giveMachine(request: IncomingMessage, response: ServerResponse, words: Words): Promise<void> {
    const id = await this.#authenticated(request, words);
    if (id === undefined) return json(response, 401, { error: 'invalid_client' });
    const access = this.#new({ resource: words.resource ?? '', scope: words.scope ?? '' });
    json(response, 200, { access_token: access, token_type: 'Bearer', expires_in: this.lives });
  }

  /** Accepts an assertion of the identity provider that names this issuer, this client and the resource. */
  async #giveVouched(request: IncomingMessage, response: ServerResponse, words: Words): Promise<void> {
    const id = await this.#authenticated(request, words);
    if (id === undefined || this.trusts === undefined) return json(response, 401, { error: 'invalid_client' });
    const { payload } = await jwtVerify(words.assertion ?? '', this.trusts.key, {
      issuer: this.trusts.issuer,
      audience: this.url,
      typ: 'oauth-id-jag+jwt',
    }).catch(() => ({ payload: undefined }));
    if (payload?.client_id !== id || payload.resource !== words.resource)
      return json(response, 400, { error: 'invalid_grant' });
    const access = this.#new({ resource: words.resource ?? '', scope: words.scope ?? '' });
    json(response, 200, { access_token: access, token_type: 'Bearer', expires_in: this.lives });
  }

  /** Returns the client that the request proves, in the one way that the metadata allow. */
  async #authenticated({ headers }: IncomingMessage, words: Words): Promise<string | undefined> {
    const [method = 'client_secret_basic'] =
      (this.says.token_endpoint_auth_methods_supported as readonly string[] | undefined) ?? [];
    const basic = Buffer.from((headers.authorization ?? '').replace('Basic ', ''), 'base64')
      .toString()
      .split(':');
    const [id = '', secret] =
      method === 'client_secret_basic'
        ? basic
        : [words.client_id, method === 'client_secret_post' ? words.client_secret : ''];
    const client = this.clients.get(id);
    if (method === 'private_key_jwt') return this.#signed(id, client, words.client_assertion ?? '');
    return client?.secret !== undefined && client.secret === secret ? id : undefined;
  }

  async #signed(id: string, client: Client | undefined, assertion: string): Promise<string | undefined> {
    if (client?.publicKey === undefined) return undefined;
    const options = { issuer: id, subject: id, audience: this.url, requiredClaims: ['jti', 'exp'] };
    return jwtVerify(assertion, client.publicKey, options).then(
      () => id,
      () => undefined,
    );
  }

  #new({ resource, scope }: Omit<Given, 'expires'>): string {
    const access = `access.${randomUUID()}`;
    this.tokens.set(access, { resource, scope, expires: Date.now() + this.lives * 1000 });
    return access;
  }

  #give(
    response: ServerResponse,
    given: { readonly resource: string; readonly scope: string; readonly client: string },
  ): void {
    const refresh = `refresh.${randomUUID()}`;
    if (this.givesRefresh) this.refreshes.set(refresh, given);
    json(response, 200, {
      access_token: this.#new(given),
      token_type: 'Bearer',
      expires_in: this.lives,
      scope: given.scope,
      ...(this.givesRefresh && { refresh_token: refresh }),
    });
  }
}

/** The identity provider of an enterprise. It exchanges ID tokens that it knows for assertions. */
export class IdentityProvider extends Listener {
  readonly #key: KeyObject;
  /** The users by their ID token. */
  readonly users = new Map<string, string>();
  /** Overrides fields of an answer. */
  says: Record<string, unknown> = {};

  constructor(key: KeyObject) {
    super();
    this.#key = key;
  }

  protected async answer(request: IncomingMessage, response: ServerResponse, body: string): Promise<void> {
    const { pathname } = new URL(request.url ?? '', this.url);
    if (pathname === '/.well-known/openid-configuration')
      return json(response, 200, {
        issuer: this.url,
        authorization_endpoint: `${this.url}/authorize`,
        token_endpoint: `${this.url}/token`,
        jwks_uri: `${this.url}/keys`,
        response_types_supported: ['code'],
        subject_types_supported: ['public'],
        id_token_signing_alg_values_supported: ['ES256'],
        token_endpoint_auth_methods_supported: ['client_secret_post'],
      });
    if (pathname !== '/token') return void response.writeHead(404).end();
    const words = Object.fromEntries(new URLSearchParams(body));
    const user = this.users.get(words.subject_token ?? '');
    const fits =
      words.grant_type === 'urn:ietf:params:oauth:grant-type:token-exchange' &&
      words.requested_token_type === 'urn:ietf:params:oauth:token-type:id-jag' &&
      words.subject_token_type === 'urn:ietf:params:oauth:token-type:id_token' &&
      words.client_id === 'corp' &&
      words.client_secret === 'sesame-of-corp';
    if (user === undefined || !fits) return json(response, 400, { error: 'invalid_grant' });
    const assertion = await new SignJWT({ client_id: 'team', resource: words.resource })
      .setProtectedHeader({ alg: 'ES256', typ: 'oauth-id-jag+jwt' })
      .setIssuer(this.url)
      .setSubject(user)
      .setAudience(words.audience ?? '')
      .setIssuedAt()
      .setExpirationTime('5m')
      .setJti(randomUUID())
      .sign(this.#key);
    json(response, 200, {
      access_token: assertion,
      issued_token_type: 'urn:ietf:params:oauth:token-type:id-jag',
      token_type: 'N_A',
      expires_in: 300,
      ...this.says,
    });
  }
}

/**
 * An MCP server of the SDK that accepts only tokens of its issuer for itself. Its tool `write` requires another scope.
 */
export class Guarded extends Listener {
  /** Overrides fields of the resource's metadata. */
  says: Record<string, unknown> = {};
  /** The tools that were called. */
  readonly ran: string[] = [];
  /** The scopes that the tool `write` requires, whatever a token has. Undefined: `write`, which a token may have. */
  demands: string | undefined;
  /** Where the metadata of the resource are, and whether only other methods than `initialize` are protected. */
  place = '/.well-known/oauth-protected-resource/mcp';
  isLate = false;
  readonly #issuer: Issuer;
  readonly #kind: 'http' | 'sse';
  readonly #sessions = new Map<string, StreamableHTTPServerTransport>();
  readonly #streams = new Map<string, SSEServerTransport>();

  constructor(issuer: Issuer, kind: 'http' | 'sse' = 'http') {
    super();
    [this.#issuer, this.#kind] = [issuer, kind];
  }

  get mcp(): string {
    return `${this.url}/mcp`;
  }

  protected async answer(request: IncomingMessage, response: ServerResponse, body: string): Promise<void> {
    const { pathname, searchParams } = new URL(request.url ?? '', this.url);
    if (pathname === this.place)
      return json(response, 200, {
        resource: this.mcp,
        authorization_servers: [this.#issuer.url],
        scopes_supported: ['read', 'write'],
        ...this.says,
      });
    if (pathname !== '/mcp' && pathname !== '/post') return void response.writeHead(404).end();
    const token = this.#issuer.tokens.get((request.headers.authorization ?? '').replace('Bearer ', ''));
    const where = `resource_metadata="${this.url}${this.place}"`;
    if (this.isLate && /"(initialize|notifications\/initialized)"/.test(body))
      return this.#http(request, response, body);
    if (token === undefined || token.resource !== this.mcp || token.expires <= Date.now())
      return json(response, 401, { error: 'who are you' }, { 'www-authenticate': `Bearer ${where}, scope="read"` });
    if (body.includes('"name":"write"') && (this.demands !== undefined || !token.scope.includes('write')))
      return json(
        response,
        403,
        {},
        { 'www-authenticate': `Bearer error="insufficient_scope", scope="${this.demands ?? 'write'}", ${where}` },
      );
    if (this.#kind === 'http') return this.#http(request, response, body);
    if (request.method === 'GET') {
      const stream = new SSEServerTransport('/post', response);
      this.#streams.set(stream.sessionId, stream);
      return this.#makeMcp().connect(stream);
    }
    await this.#streams
      .get(searchParams.get('sessionId') ?? '')
      ?.handlePostMessage(request, response, JSON.parse(body));
  }

  async #http(request: IncomingMessage, response: ServerResponse, body: string): Promise<void> {
    const id = request.headers['mcp-session-id'];
    let transport = typeof id === 'string' ? this.#sessions.get(id) : undefined;
    if (transport === undefined) {
      const made: StreamableHTTPServerTransport = new StreamableHTTPServerTransport({
        sessionIdGenerator: () => randomUUID(),
        enableJsonResponse: true,
        onsessioninitialized: (session) => void this.#sessions.set(session, made),
      });
      transport = made;
      await this.#makeMcp().connect(made as Transport);
    }
    await transport.handleRequest(request, response, body === '' ? undefined : JSON.parse(body));
  }

  #makeMcp(): McpServer {
    const mcp = new McpServer({ name: 'guarded', version: '1' }, { capabilities: { tools: {} } });
    mcp.fallbackRequestHandler = async (request) => {
      if (request.method === 'tools/list')
        return {
          tools: [
            { name: 'echo', inputSchema: { type: 'object' } },
            { name: 'write', inputSchema: { type: 'object' } },
          ],
        };
      const { name } = request.params as { name: string };
      this.ran.push(name);
      return { content: [{ type: 'text', text: `ran ${name}` }] };
    };
    return mcp;
  }
}
