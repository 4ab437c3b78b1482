/**
 * A facade that only answers what a test tells it. Tests of transports use it, because nothing behind the transport
 * matters.
 */
import { randomBytes } from 'node:crypto';
import type { LogLevel } from '../../adapters/port.ts';
import { type JsonObject, readMessage, type WireMessage } from '../../adapters/rpc/message-parser.ts';
import type { MirroredArgument } from '../../catalogs/schemas/mirrored-arguments.ts';
import type {
  CallRequest,
  ClientNotice,
  Facade,
  HostSessionOptions,
  ListMethod,
  LostRequest,
  Reply,
  SavedSession,
  Session,
} from '../../facade/serve/facade-port.ts';
import { createSeals, type Seals } from '../../facade/state/state-seals.ts';
import type { Principal } from '../../policies/port.ts';

export const ALICE: Principal = { id: 'alice', role: 'user', groups: [], profiles: [], origin: 'claude' };
export const BOB: Principal = { id: 'bob', role: 'user', groups: [], profiles: [], origin: 'cursor' };

export const LIST_TEXT = '{"tools":[{"name":"read","description":"Reads.","inputSchema":{"type":"object"}}]}';

/** Returns a result that contains the text of the arguments, so that every answer tells which call it belongs to. */
export function echo(request: CallRequest): Reply {
  return { kind: 'result', text: JSON.stringify({ content: [{ type: 'text', text: request.args.text }] }) };
}

/** Values of a state, in memory. */
export class FakeValues {
  readonly #values = new Map<string, string>();
  refresh(): undefined {}
  get(space: string, key: string): string | undefined {
    return this.#values.get(`${space} ${key}`);
  }
  swap(space: string, key: string, { from, to }: { readonly from?: string; readonly to: string }): boolean {
    if (this.get(space, key) !== from) return false;
    this.#values.set(`${space} ${key}`, to);
    return true;
  }
  list(space: string): ReadonlyMap<string, string> {
    const own = [...this.#values].filter(([key]) => key.startsWith(`${space} `));
    return new Map(own.map(([key, value]) => [key.slice(space.length + 1), value]));
  }
  remove(space: string, key: string): void {
    this.#values.delete(`${space} ${key}`);
  }
}

export class FakeFacade implements Facade {
  constructor(seals: Seals = createSeals(new FakeValues(), Date.now)) {
    this.seals = seals;
  }

  readonly calls: { readonly session: Session; readonly request: CallRequest }[] = [];
  readonly opened: Session[] = [];
  readonly closed: Session[] = [];
  readonly #ends = new Map<Session, AbortController>();
  #listener: (() => void) | undefined;
  words = 'Use read.';
  onList: (session: Session, signal: AbortSignal) => Promise<Reply> = async () => ({ kind: 'result', text: LIST_TEXT });
  onCall: (request: CallRequest, session: Session) => Promise<Reply> = async (request) => echo(request);

  runningTasks(): number {
    return 0;
  }

  openSession(principal: Principal, transport: 'stdio' | 'http', host?: HostSessionOptions): Session {
    const end = new AbortController();
    const session: Session = {
      id: host?.id ?? randomBytes(16).toString('hex'),
      principal,
      transport,
      client: {},
      closed: end.signal,
      ...(host?.tab !== undefined && { tab: host.tab }),
    };
    this.#ends.set(session, end);
    this.opened.push(session);
    return session;
  }

  async closeSession(session: Session, how?: 'released'): Promise<void> {
    (how === 'released' ? this.released : this.closed).push(session);
    this.#ends.get(session)?.abort();
  }

  replica: string | undefined;
  readonly released: Session[] = [];

  save({ client, logLevel }: Session): SavedSession {
    return { client, ...(logLevel !== undefined && { logLevel }), lists: {} };
  }

  async restore(session: Session, { client, logLevel }: SavedSession): Promise<void> {
    session.client = client;
    if (logLevel !== undefined) session.logLevel = logLevel;
  }

  readonly lost: LostRequest[] = [];
  answerLost(lost: LostRequest): Reply {
    this.lost.push(lost);
    return { kind: 'result', text: '{"isError":true,"_meta":{"tollgate/code":"REPLICA_LOST"}}' };
  }

  instructions(): string {
    return this.words;
  }

  capabilities(): JsonObject {
    return { tools: { listChanged: true } };
  }

  list(session: Session, _method: ListMethod, signal: AbortSignal): Promise<Reply> {
    return this.onList(session, signal);
  }

  policyRevision = 'policy-1';
  revision(): string {
    return this.policyRevision;
  }

  readonly seals: Seals;
  headers: readonly MirroredArgument[] = [];
  async headerArguments(): Promise<readonly MirroredArgument[]> {
    return this.headers;
  }

  tell: (notice: ClientNotice, session?: Session) => void = () => undefined;
  onNotice(listener: (notice: ClientNotice, session?: Session) => void): void {
    this.tell = listener;
  }

  setLogLevel(session: Session, level: LogLevel): void {
    session.logLevel = level;
  }

  perform(session: Session, request: CallRequest): Promise<Reply> {
    if (request.isContinued === true) return Promise.resolve({ kind: 'result', text: '{}' });
    this.calls.push({ session, request });
    return this.onCall(request, session);
  }

  onToolsChanged(listener: () => void): void {
    this.#listener = listener;
  }

  changeTools(): void {
    this.#listener?.();
  }

  metrics(): string {
    return '# TYPE tollgate_calls_total counter\ntollgate_calls_total 1\n';
  }

  readonly failing: string[] = [];

  async readiness(): Promise<readonly string[]> {
    return this.failing;
  }

  health(): Readonly<Record<string, string>> {
    return { files: 'healthy' };
  }
}

/** Waits until the call is aborted, and answers that it was. */
export function untilAborted(request: Pick<CallRequest, 'signal'>): Promise<Reply> {
  return new Promise((resolve) => {
    request.signal.addEventListener(
      'abort',
      () => resolve({ kind: 'error', error: { code: -32800, message: 'cancelled' } }),
      { once: true },
    );
  });
}

export function message(value: unknown): WireMessage {
  return readMessage(Buffer.from(JSON.stringify(value)), 'client');
}

export function request(id: string | number, method: string, params?: unknown): Record<string, unknown> {
  return { jsonrpc: '2.0', id, method, ...(params === undefined ? {} : { params }) };
}

export function initialize(id: string | number = 0, protocolVersion: unknown = '2025-11-25'): Record<string, unknown> {
  return request(id, 'initialize', { protocolVersion, capabilities: {}, clientInfo: { name: 'test', version: '1' } });
}

/** Fails the test: nothing unexpected may be thrown. */
export function noFault(thrown: unknown): void {
  throw thrown;
}

export async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 2));
}
