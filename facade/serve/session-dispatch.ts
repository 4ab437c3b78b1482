/** Owns the face of a session's protocol, message in and reply out; refuses to know pipes, sockets and policy. */
import type { WireMessage } from '../../adapters/rpc/message-parser.ts';
import type { Awaitable } from '../state/state-port.ts';
import type { Facade, Session } from './facade-port.ts';
import { LegacyDispatch } from './legacy-dispatch.ts';
import type { Era } from './protocol-revisions.ts';

/** Requests of one session at once. Above it pipes wait and HTTP refuses, so that a client which only asks cannot fill the memory. */
export const MAX_RUNNING = 1024;

/** Sends one message to the client, out of turn. Never throws; may drop the message when the client does not read. */
export type SendMessage = (text: string) => void;

/** What a session's protocol works on. */
export interface DispatchOptions {
  readonly facade: Facade;
  readonly session: Session;
  /** For notifications that belong to the session and to no request. */
  readonly notify: SendMessage;
  /** Told of what should not happen: a throw that is not ours. */
  readonly onFault: (thrown: unknown) => void;
}

/** The protocol of one session, whatever carries it. */
export interface Dispatch {
  /** Requests that have no reply yet. */
  readonly running: number;
  /**
   * The reply's text; `undefined` when there is none to send (notifications, answers, cancelled requests). `send` takes
   * the notifications that belong to this message. Never rejects.
   */
  handle(message: WireMessage, send: SendMessage): Awaitable<string | undefined>;
  /** Tells the client, once per turn of the event loop, that its list of tools may have changed. */
  toolsChanged(): void;
  /** From now on requests are refused with SHUTTING_DOWN, and no call waits for a person. Resolves when nothing runs. */
  drain(): Promise<void>;
  /** Cuts what runs, waits until each request has its answer, and ends the session. `why`: one sentence for the answers. Never rejects. */
  close(why: string): Promise<void>;
}

/** Opens the protocol of an era for one session. */
export function openDispatch(era: Era, options: DispatchOptions): Dispatch {
  switch (era) {
    case 'legacy':
      return new LegacyDispatch(options);
  }
}
