/** Sends requests to a client, and finds the answer to each. */
import type { WireMessage } from '../../adapters/rpc/message-parser.ts';
import { Peer } from '../../adapters/rpc/peer.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { AskClient, SendMessage } from './facade-port.ts';

/** The requests to one client. Each goes out in the channel of the request during which it is made. */
export class ClientRequests {
  /** The channel of the request that is being sent. */
  #send: SendMessage;
  readonly #peer: Peer;

  /** `notify` carries what belongs to no request. */
  constructor(notify: SendMessage) {
    this.#send = notify;
    const link = {
      send: (text: string, id?: number) => {
        if (id === undefined) notify(text);
        else if (this.#send(text, 'request') === false) this.#unsent(id);
      },
      backlog: () => 0,
    };
    this.#peer = new Peer(link, { onToolsChanged: () => undefined, onDropped: () => undefined });
  }

  /** Returns what asks the client in a channel. */
  in(send: SendMessage): AskClient {
    return (method, params, { signal, timeoutMs }) => {
      this.#send = send;
      return this.#peer.request({ method, params: () => params, timeoutMs, hardTimeoutMs: timeoutMs, signal });
    };
  }

  /** Takes an answer of the client. */
  settle(message: WireMessage): void {
    this.#peer.receive(message);
  }

  /** Ends all requests. */
  end(error: TollgateError): void {
    this.#peer.end(error);
  }

  #unsent(id: number): void {
    const error = new TollgateError('SERVER_UNAVAILABLE', { detail: 'The client has no open stream for requests.' });
    // The request is not registered as sent before this call returns.
    queueMicrotask(() => this.#peer.fail(id, error));
  }
}
