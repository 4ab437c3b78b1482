/** The clients of open sessions, as servers see them: what they support, and what they are told without a request. */
import type { ProcessUsers, ServerNotice } from '../../adapters/port.ts';
import { isObject, type JsonObject } from '../../adapters/rpc/wire-message.ts';
import type { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Principal } from '../../policies/port.ts';
import type { OpenSession } from '../call/identify.ts';
import type { Redactor } from '../output/redactor.ts';
import { ServerMessages } from '../output/server-messages.ts';
import type { ClientNotice, Session } from '../serve/facade-port.ts';

/** The parts of a running facade that it reads. */
export interface RunningFacade {
  readonly sessions: ReadonlySet<OpenSession>;
  readonly serversOf: (principal: Principal) => readonly string[];
  /** What the configuration lets a server ask of clients. */
  readonly asksOf: (server: string) => readonly string[];
  /**
   * Decides a notification about a resource that a session follows. Returns the URI for the client; undefined if it is
   * refused.
   */
  readonly judgeUpdate: (session: OpenSession, server: string, uri: string) => Promise<string | undefined>;
  readonly tell: (notice: ClientNotice, session: Session) => void;
}

/** Milliseconds within which several changes of one resource become one notification. */
const UPDATE_MS = 200;

/** Connects servers with the clients of a facade that is made after them. */
export class SessionClients {
  readonly #redactor: Redactor;
  #facade: RunningFacade | undefined;
  readonly #messages = new WeakMap<OpenSession, Map<string, ServerMessages>>();
  /** Session and URI of notifications that wait. */
  readonly #updating = new Set<string>();

  constructor(redactor: Redactor) {
    this.#redactor = redactor;
  }

  /** Sets the facade. Before, there is no session. */
  attach(facade: RunningFacade): void {
    this.#facade = facade;
  }

  /**
   * Returns the capabilities that a handshake with a server declares: what the configuration opens to it and a client
   * of it supports. `users`: the sessions that the process serves. Without any session, all that the configuration
   * opens.
   */
  capabilities(server: string, users?: ProcessUsers): JsonObject {
    const asks = this.#facade?.asksOf(server) ?? [];
    if (asks.length === 0) return {};
    const clients = this.#sessionsOf(server, users);
    const declared = asks.flatMap((kind) => {
      const values = clients.map(({ client }) => client[kind]).filter(isObject);
      if (clients.length > 0 && values.length === 0) return [];
      return [[kind, Object.assign({}, ...values) as JsonObject] as const];
    });
    return Object.fromEntries(declared);
  }

  /**
   * Returns true if all clients of a server speak a revision without sessions, so that the server is asked for it
   * first. Otherwise a session passes on more of what the others do.
   */
  areStateless(server: string, users?: ProcessUsers): boolean {
    const clients = this.#sessionsOf(server, users);
    return clients.length > 0 && clients.every(({ isStateless }) => isStateless === true);
  }

  /** Ends the running calls of sessions whose principal is refused. `refusalOf` gets the id of a principal. */
  endCalls(refusalOf: (principal: string) => TollgateError | undefined): void {
    for (const { calls, principal } of this.#facade?.sessions ?? []) {
      const refusal = calls.size === 0 ? undefined : refusalOf(principal.id);
      if (refusal !== undefined) calls.endAll(refusal);
    }
  }

  /** Returns the ids of the open sessions of a principal, or of all. */
  sessionIds(principal?: string): ReadonlySet<string> {
    const open = [...(this.#facade?.sessions ?? [])];
    return new Set(open.filter((one) => principal === undefined || one.principal.id === principal).map(({ id }) => id));
  }

  /** Passes on what a server says, to those of the process's sessions that it concerns. */
  note(server: string, notice: ServerNotice, users?: ProcessUsers): void {
    const only = users?.session;
    if (notice.notice === 'log')
      return this.#log(server, only === undefined ? notice : { ...notice, sessions: [only] });
    for (const session of this.#sessionsOf(server, users)) {
      if (notice.notice === 'changed')
        this.#facade?.tell({ method: `notifications/${notice.list}/list_changed` }, session);
      else if (session.subscribed.has(subscriptionKey(server, notice.uri))) this.#update(server, notice.uri, session);
    }
  }

  #sessionsOf(server: string, users?: ProcessUsers): readonly OpenSession[] {
    const facade = this.#facade;
    if (facade === undefined) return [];
    return [...facade.sessions].filter(
      ({ id, principal }) =>
        facade.serversOf(principal).includes(server) &&
        (users?.session === undefined || users.session === id) &&
        users?.serves(principal.profiles) !== false,
    );
  }

  /** Messages while calls of several sessions run belong to no one of them, and could tell one about another. */
  #log(server: string, { params, sessions }: Extract<ServerNotice, { notice: 'log' }>): void {
    const session = [...(this.#facade?.sessions ?? [])].find(({ id }) => id === sessions[0]);
    if (session === undefined || sessions.length > 1) return;
    const known = this.#messages.get(session) ?? new Map<string, ServerMessages>();
    this.#messages.set(session, known);
    const messages =
      known.get(server) ??
      new ServerMessages({
        server,
        redactor: this.#redactor,
        level: () => session.logLevel ?? 'info',
        send: (notice) => this.#facade?.tell(notice, session),
      });
    known.set(server, messages);
    messages.take(params);
  }

  /** Each notification is decided again: the policy may have changed since the subscription. */
  #update(server: string, uri: string, session: OpenSession): void {
    const key = `${session.id} ${subscriptionKey(server, uri)}`;
    if (this.#updating.has(key)) return;
    this.#updating.add(key);
    setTimeout(() => {
      this.#updating.delete(key);
      void this.#tellUpdate(server, uri, session);
    }, UPDATE_MS).unref();
  }

  async #tellUpdate(server: string, uri: string, session: OpenSession): Promise<void> {
    const shown = await this.#facade?.judgeUpdate(session, server, uri);
    if (shown !== undefined)
      this.#facade?.tell({ method: 'notifications/resources/updated', params: { uri: shown } }, session);
  }
}

/** Returns what names a subscription in a session. A name of a server contains no space. */
function subscriptionKey(server: string, uri: string): string {
  return `${server} ${uri}`;
}
