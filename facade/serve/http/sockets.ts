/**
 * Limits the connections of one listener, and closes an old one for a new one. Connections without a valid token cannot
 * keep out others.
 */
import type { Server } from 'node:http';
import type { Socket } from 'node:net';

/** The limits of the table. */
export interface SocketOptions {
  readonly maxConnections: number;
  /** How long a connection may be idle between requests, and how long a client may not read, ms. */
  readonly idleMs: number;
}

/** The connections of one listener. */
export class Sockets {
  readonly #options: SocketOptions;
  /** Connections that have carried no request of a principal, by age; the number is that of their running requests. */
  readonly #strangers = new Map<Socket, number>();
  /** The others, by their last request. */
  readonly #known = new Map<Socket, number>();
  /** Connections that were closed to make room, and that were refused because there was none. */
  readonly turnedAway = { evicted: 0, refused: 0 };

  constructor(server: Server, options: SocketOptions) {
    this.#options = options;
    server.on('connection', (socket: Socket) => this.#admit(socket));
    server.setTimeout(options.idleMs, (socket) => this.#onQuiet(socket));
  }

  get size(): number {
    return this.#strangers.size + this.#known.size;
  }

  /** Called when a request begins; `end` follows. */
  begin(socket: Socket): void {
    this.#count(socket, 1);
  }

  /** Called when the response of a request is closed. */
  end(socket: Socket): void {
    this.#count(socket, -1);
  }

  /** Called when a request has shown its principal. */
  vouch(socket: Socket): void {
    const running = this.#strangers.get(socket) ?? this.#known.get(socket);
    if (running === undefined) return;
    this.#forget(socket);
    this.#known.set(socket, running);
  }

  #admit(socket: Socket): void {
    if (this.size >= this.#options.maxConnections && !this.#makeRoom()) {
      this.turnedAway.refused += 1;
      socket.destroy();
      return;
    }
    this.#strangers.set(socket, 0);
    socket.once('close', () => this.#forget(socket));
  }

  /**
   * Closes the oldest connection without a token, else the one whose last request is longest ago; never one with a
   * running request.
   */
  #makeRoom(): boolean {
    for (const sockets of [this.#strangers, this.#known]) {
      for (const [socket, running] of sockets) {
        if (running > 0) continue;
        this.turnedAway.evicted += 1;
        this.#forget(socket);
        socket.destroy();
        return true;
      }
    }
    return false;
  }

  /** A long call is quiet too; it has its own deadlines. */
  #onQuiet(socket: Socket): void {
    const running = this.#known.get(socket) ?? this.#strangers.get(socket) ?? 0;
    if (running === 0 || socket.writableLength > 0) socket.destroy();
  }

  #count(socket: Socket, change: 1 | -1): void {
    for (const sockets of [this.#strangers, this.#known]) {
      const running = sockets.get(socket);
      if (running !== undefined) sockets.set(socket, running + change);
    }
  }

  #forget(socket: Socket): void {
    this.#strangers.delete(socket);
    this.#known.delete(socket);
  }
}
