/**
 * One session with a remote server over Streamable HTTP or SSE. It sends only the configured headers and the token of
 * the sign-in.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { JSONRPCMessage } from '@modelcontextprotocol/sdk/types.js';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { AuthorizedFetch, BearerToken } from '../oauth/bearer-token.ts';
import type { Connection, ConnectionEvents } from '../rpc/connection.ts';
import type { LaunchHost } from '../stdio/launch.ts';
import { fillSecrets } from '../stdio/server-secrets.ts';
import type { ServerSettings } from '../supervisor/server-settings.ts';
import { judgeRemoteFailure, type RemoteFailure } from './remote-failure.ts';
import { RemoteFetch } from './remote-fetch.ts';

/** Gives the values of `${secret:NAME}` in headers, and the stored sign-ins. */
type RemoteHost = Pick<LaunchHost, 'secrets' | 'credentials'>;

/** The part of the SDK's client transports that is used. They move messages; nothing else of the SDK runs. */
interface Transport {
  start(): Promise<void>;
  send(message: JSONRPCMessage): Promise<void>;
  close(): Promise<void>;
  setProtocolVersion(version: string): void;
  /** Streamable HTTP only. */
  terminateSession?(): Promise<void>;
  onerror?: (error: Error) => void;
  onclose?: () => void;
}

/** Milliseconds that the server may take to end its side of the session. */
const TERMINATE_MS = 2000;
const LISTEN_RETRIES = { maxRetries: 5, maxReconnectionDelay: 30_000, reconnectionDelayGrowFactor: 2 };

/**
 * A remote server (MCP 2025-11-25, Streamable HTTP; 2024-11-05, HTTP with SSE). The SDK moves the messages, and
 * RemoteFetch keeps their texts unchanged in both directions.
 */
export class RemoteConnection implements Connection {
  private readonly settings: ServerSettings;
  private readonly host: RemoteHost;
  private transport: Transport | undefined;
  private requests: RemoteFetch | undefined;
  private authorized: AuthorizedFetch | undefined;
  private events: ConnectionEvents | undefined;
  /** Bytes of requests without an answer. */
  private unanswered = 0;
  private closed = false;

  constructor(settings: ServerSettings, host: RemoteHost) {
    this.settings = settings;
    this.host = host;
  }

  async start(events: ConnectionEvents): Promise<void> {
    this.events = events;
    const { url = '' } = this.settings;
    if (!URL.canParse(url))
      throw new TollgateError('INIT_FAILED', { detail: `Server "${this.settings.name}" has no valid url.` });
    this.authorized = authorize(this.settings, this.host);
    this.requests = new RemoteFetch({
      onMessage: (message) => {
        if (!this.closed) events.onMessage(message);
      },
      onFailed: (id, error) => events.onFailed(id, error),
      ...(this.authorized !== undefined && { send: this.authorized.send }),
    });
    const transport = await this.makeTransport(this.requests, new URL(url));
    this.transport = transport;
    transport.onerror = (error) => this.handleError(error);
    transport.onclose = () => this.lose('closed the connection');
    try {
      await transport.start();
    } catch (thrown) {
      throw this.judge(thrown).error;
    }
    // It was closed while it connected, and the SDK's close came too early to stop that.
    if (this.closed) await transport.close();
  }

  send(text: string, id?: number): Promise<void> {
    return id === undefined ? this.sendMessage(JSON.parse(text) as JSONRPCMessage) : this.sendRequest(text, id);
  }

  backlog(): number {
    return this.unanswered;
  }

  useProtocolVersion(version: string): void {
    this.transport?.setProtocolVersion(version);
  }

  async close(): Promise<void> {
    if (this.closed) return;
    this.closed = true;
    // The server may be gone already. The session ends here in any case.
    const terminated = this.transport?.terminateSession?.().catch(() => undefined);
    await Promise.race([terminated, sleep(TERMINATE_MS, undefined, { ref: false })]);
    this.killNow();
  }

  killNow(): void {
    this.closed = true;
    this.requests?.stopListening();
    void this.transport?.close();
  }

  /** Imports the SDK late: that costs more than a hundred calls, and many setups have no remote server. */
  private async makeTransport(requests: RemoteFetch, url: URL): Promise<Transport> {
    const { headers, transport, reconnectBackoffMs } = this.settings;
    const options = {
      requestInit: { headers: await fillSecrets(headers, this.host.secrets, 'headers') },
      fetch: requests.fetch,
    };
    if (transport === 'sse') {
      const { SSEClientTransport } = await import('@modelcontextprotocol/sdk/client/sse.js');
      return new SSEClientTransport(url, options) as Transport;
    }
    const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
    const reconnectionOptions = { ...LISTEN_RETRIES, initialReconnectionDelay: reconnectBackoffMs };
    return new StreamableHTTPClientTransport(url, { ...options, reconnectionOptions }) as Transport;
  }

  private async sendMessage(message: JSONRPCMessage): Promise<void> {
    try {
      await this.transport?.send(message);
    } catch (thrown) {
      // No caller waits for a notification, but the end of a server must be noticed.
      const { lost } = this.judge(thrown);
      if (lost !== undefined) this.lose(lost);
    }
  }

  private async sendRequest(text: string, id: number): Promise<void> {
    const message: JSONRPCMessage = { jsonrpc: '2.0', id, method: 'tools/call' };
    const placeholder = JSON.stringify(message);
    this.unanswered += text.length;
    this.requests?.substitute(placeholder, text, id);
    try {
      await this.transport?.send(message);
    } catch (thrown) {
      const { error, lost } = this.judge(thrown);
      this.events?.onFailed(id, error);
      if (lost !== undefined) this.lose(lost);
    } finally {
      this.unanswered -= text.length;
      this.requests?.forget(placeholder);
    }
  }

  /** Handles errors of the SDK that belong to no request: frames that it refuses, and broken streams. */
  private handleError(error: Error): void {
    if (this.closed) return;
    // RemoteFetch has read and judged all messages before the SDK sees them.
    if (error.name === 'ZodError' || error.name === 'SyntaxError') return;
    // An event source reconnects by itself, but the new session has had no handshake.
    if (this.settings.transport === 'sse' && 'event' in error) this.lose('closed its event stream');
  }

  private judge(thrown: unknown): RemoteFailure {
    return judgeRemoteFailure(this.settings.name, thrown, this.authorized?.refusal);
  }

  private lose(why: string): void {
    if (this.closed) return;
    this.killNow();
    this.events?.onClosed(why);
  }
}

/**
 * Returns what adds the token of the sign-in. Undefined if the owner wrote an Authorization header in tollgate.yaml.
 */
function authorize(settings: ServerSettings, { credentials: store, secrets }: RemoteHost): AuthorizedFetch | undefined {
  const hasHeader = Object.keys(settings.headers).some((name) => name.toLowerCase() === 'authorization');
  return store === undefined || hasHeader
    ? undefined
    : new AuthorizedFetch(new BearerToken({ settings, store, secrets }));
}
