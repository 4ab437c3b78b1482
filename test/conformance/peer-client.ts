/** The client of the client scenarios: the official SDK, which signs in where it must, without a person. */
import {
  Client,
  ClientCredentialsProvider,
  type OAuthClientProvider,
  PrivateKeyJwtProvider,
  type StoredOAuthClientInformation,
  type StoredOAuthTokens,
  StreamableHTTPClientTransport,
  type Transport,
  UnauthorizedError,
} from '@modelcontextprotocol/client';
import { MOST_SIGN_INS } from './gateway.ts';
import type { Revision } from './official-suite.ts';

/** What the suite tells the client: credentials, and calls to make. */
export interface Context {
  readonly client_id?: string;
  readonly client_secret?: string;
  readonly issuer?: string;
  readonly private_key_pem?: string;
  readonly signing_algorithm?: string;
  readonly toolCalls?: readonly { readonly name: string; readonly arguments: Record<string, unknown> }[];
}

/** The document that names a client by its address (CIMD). The suite knows this one. */
export const CLIENT_DOCUMENT = 'https://conformance-test.local/client-metadata.json';
const CALLBACK = 'http://127.0.0.1:7319/callback';

/** How to reach a server. */
export interface PeerSettings {
  readonly url: string;
  readonly revision: Revision;
  readonly context?: Context;
  /** A token instead of a sign-in. */
  readonly token?: string;
}

/** A connected client. `retried` signs in and repeats what a server refused for the token. */
export interface Peer {
  readonly client: Client;
  retried<T>(work: () => Promise<T>): Promise<T>;
}

/** Connects a client of the SDK. It answers questions with empty forms, so that defaults apply. */
export async function connectPeer({ url, revision, context = {}, token }: PeerSettings): Promise<Peer> {
  const sign = token === undefined ? providerFor(context) : undefined;
  const open = (): StreamableHTTPClientTransport =>
    new StreamableHTTPClientTransport(new URL(url), {
      ...(sign === undefined ? {} : { authProvider: sign }),
      ...(token === undefined ? {} : { requestInit: { headers: { authorization: `Bearer ${token}` } } }),
    });
  let transport = open();
  let client = newClient(revision);
  const retried = async <T>(work: () => Promise<T>): Promise<T> => {
    for (let tries = 1; ; tries += 1)
      try {
        return await work();
      } catch (thrown) {
        if (!UnauthorizedError.isInstance(thrown) || !(sign instanceof HeadlessSignIn) || tries > MOST_SIGN_INS)
          throw thrown;
        await transport.finishAuth(await sign.callback());
      }
  };
  await retried(async () => {
    await transport.close();
    transport = open();
    client = newClient(revision);
    // The class of the SDK does not meet its own interface under exactOptionalPropertyTypes.
    await client.connect(transport as Transport);
  });
  return { client, retried };
}

function newClient(revision: Revision): Client {
  const client = new Client(
    { name: 'tollgate-conformance', version: '1.0.0' },
    {
      capabilities: { elicitation: { form: { applyDefaults: true } }, sampling: {}, roots: {} },
      ...(revision === '2026-07-28' ? { versionNegotiation: { mode: 'auto' as const } } : {}),
    },
  );
  client.setRequestHandler('elicitation/create', () => ({ action: 'accept', content: {} }));
  client.setRequestHandler('sampling/createMessage', () => ({
    role: 'assistant',
    model: 'none',
    content: { type: 'text', text: 'An answer.' },
  }));
  client.setRequestHandler('roots/list', () => ({ roots: [] }));
  return client;
}

function providerFor({ client_id, client_secret, private_key_pem, signing_algorithm }: Context): OAuthClientProvider {
  if (client_id !== undefined && private_key_pem !== undefined)
    return new PrivateKeyJwtProvider({
      clientId: client_id,
      privateKey: private_key_pem,
      algorithm: signing_algorithm ?? 'ES256',
    });
  if (
    client_id !== undefined &&
    client_secret !== undefined &&
    process.env.MCP_CONFORMANCE_SCENARIO !== 'auth/pre-registration'
  )
    return new ClientCredentialsProvider({ clientId: client_id, clientSecret: client_secret });
  return new HeadlessSignIn(
    client_id === undefined ? undefined : { client_id, ...(client_secret === undefined ? {} : { client_secret }) },
  );
}

/** Signs in by the authorization code flow, as a browser that consents at once. */
class HeadlessSignIn implements OAuthClientProvider {
  readonly redirectUrl = CALLBACK;
  readonly clientMetadataUrl = CLIENT_DOCUMENT;
  readonly clientMetadata = { redirect_uris: [CALLBACK], client_name: 'tollgate-conformance' };
  #registered: StoredOAuthClientInformation | undefined;
  #tokens: StoredOAuthTokens | undefined;
  #verifier = '';
  #consent: URL | undefined;

  constructor(registered: StoredOAuthClientInformation | undefined) {
    this.#registered = registered;
  }

  clientInformation(): StoredOAuthClientInformation | undefined {
    return this.#registered;
  }

  saveClientInformation(registered: StoredOAuthClientInformation): void {
    this.#registered = registered;
  }

  tokens(): StoredOAuthTokens | undefined {
    return this.#tokens;
  }

  saveTokens(tokens: StoredOAuthTokens): void {
    this.#tokens = tokens;
  }

  redirectToAuthorization(consent: URL): void {
    this.#consent = consent;
  }

  saveCodeVerifier(verifier: string): void {
    this.#verifier = verifier;
  }

  codeVerifier(): string {
    return this.#verifier;
  }

  /** Consents, and returns what the issuer sends to the callback. */
  async callback(): Promise<URLSearchParams> {
    if (this.#consent === undefined) throw new Error('the server asked for no consent');
    const answer = await fetch(this.#consent, { redirect: 'manual' });
    return new URL(answer.headers.get('location') ?? '', CALLBACK).searchParams;
  }
}
