/** The resources that sessions follow at one server. The server has one subscription for all sessions. */

import type { UpstreamCall } from '../port.ts';
import { isObject, type JsonDoc, type JsonObject } from '../rpc/wire-message.ts';
import type { UpstreamSession } from './upstream-session.ts';

type Subscribing = Pick<UpstreamCall, 'method' | 'args' | 'scope'>;

const DONE: JsonDoc<JsonObject> = { text: '{}', value: {}, exact: true };
const SUBSCRIBE = 'resources/subscribe';
const UNSUBSCRIBE = 'resources/unsubscribe';
const REQUEST_MS = 10_000;

/** Counts subscriptions by session, and makes them again at a new process. */
export class Subscriptions {
  /** URI → sessions. */
  private readonly sessions = new Map<string, Set<string>>();

  /** Returns the answer if the server need not be asked, because other sessions follow the same resource. */
  known({ method, args, scope }: Subscribing): JsonDoc<JsonObject> | undefined {
    const following = this.sessions.get(uriOf(args));
    if (method === SUBSCRIBE && following !== undefined) {
      following.add(scope);
      return DONE;
    }
    if (method !== UNSUBSCRIBE || following === undefined) return undefined;
    following.delete(scope);
    return following.size > 0 ? DONE : undefined;
  }

  /** Notes that the server has done what a session asked for. */
  note({ method, args, scope }: Subscribing): void {
    const uri = uriOf(args);
    if (method === SUBSCRIBE) this.sessions.set(uri, (this.sessions.get(uri) ?? new Set()).add(scope));
    if (method === UNSUBSCRIBE) this.sessions.delete(uri);
  }

  /** Ends the subscriptions of a session. */
  end(scope: string, session: UpstreamSession | undefined): void {
    for (const [uri, following] of this.sessions) {
      if (!following.delete(scope) || following.size > 0) continue;
      this.sessions.delete(uri);
      send(session, UNSUBSCRIBE, uri);
    }
  }

  /** Subscribes again at a new process or connection of the server. */
  renew(session: UpstreamSession | undefined): void {
    for (const uri of this.sessions.keys()) send(session, SUBSCRIBE, uri);
  }
}

/** A server that refuses it sends no notifications. No one waits for the answer. */
function send(session: UpstreamSession | undefined, method: string, uri: string): void {
  session?.request(method, JSON.stringify({ uri }), REQUEST_MS).catch(() => undefined);
}

function uriOf({ value }: UpstreamCall['args']): string {
  return isObject(value) ? String(value.uri) : '';
}
