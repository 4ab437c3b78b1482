/** The port by which telemetry follows a request of a client. While telemetry is off, nothing implements it. */
import type { WireText } from '../../adapters/rpc/wire-message.ts';
import { type Awaitable, andThen } from '../../catalogs/text/awaitable.ts';

/** The stages of a call that are followed. */
export type TracedStage = 'decide' | 'reserve' | 'forward' | 'shape' | 'settle';

/** Follows one request. Its methods never throw. */
export interface RequestTrace {
  /** The request is a call, and this is the id of its decision. */
  begin(decision: string): void;
  /** A stage begins, and the stage before it has ended. */
  enter(stage: TracedStage): void;
  /** Follows the wait for a person, and returns it. */
  waiting<T>(consent: Promise<T>): Promise<T>;
  /**
   * The call goes to its server. Returns the trace context for its `_meta`; undefined if requests are measured but not
   * traced.
   */
  sending(): Readonly<Record<string, string>> | undefined;
  /** Notes the id of the request to the server, and of the session with it. */
  sent(id: number, session?: string): void;
  /** The text of the response is ready. Undefined: a cancelled request gets none. */
  answered(text: WireText | undefined): void;
}

/** The other end of the connection of a client over TCP. A socket has these names. */
export interface ClientAddress {
  readonly remoteAddress?: string | undefined;
  readonly remotePort?: number | undefined;
}

/** What is known of a request besides its message: the protocol revision, and where its client is. */
export interface RequestOrigin {
  readonly version?: string | undefined;
  readonly client?: ClientAddress | undefined;
}

/** A request as it came in. */
export interface FollowedRequest {
  readonly id: string | number;
  readonly method: string;
  readonly params?: { readonly value: Readonly<Record<string, unknown>> } | undefined;
}

/** Reports the response of a followed request, and returns it. */
export function reportAnswer(
  trace: RequestTrace | undefined,
  answer: Awaitable<WireText | undefined>,
): Awaitable<WireText | undefined> {
  if (trace === undefined) return answer;
  return andThen(answer, (text) => {
    trace.answered(text);
    return text;
  });
}
