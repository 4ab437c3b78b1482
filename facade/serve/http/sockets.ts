/** Owns the connections of one listener: how many there may be, and which gives way; refuses to let those that have shown no token keep out others. */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** What the table works by. */
export interface SocketOptions {
  readonly maxConnections: number;
  /** How long a connection may do nothing between requests, and a client may not read, ms. */
  readonly idleMs: number;
}

/** The connections of one listener. */
export class Sockets {
  readonly #options: SocketOptions;
  /** Those that have carried no request of a principal, by age; the number is that of their running requests. */
  readonly #strangers = new Map<Socket, number>();
  /** The others, by their last request. */
  readonly #known = new Map<Socket, number>();
  /** Connections that were ended to make room, and that were closed because there was none. */
  readonly turnedAway = { evicted: 0, refused: 0 };

  constructor(server: Server, options: SocketOptions) {
    this.#options = options;
    server.on('connection', (socket: Socket) => this.#admit(socket));
    server.setTimeout(options.idleMs, (socket) => this.#onQuiet(socket));
  }

  get size(): number {
    return this.#strangers.size + this.#known.size;
  }

  /** Counts a request until its response is closed. */
  begin({ socket }: IncomingMessage, response: ServerResponse): void {
    this.#count(socket, 1);
    response.once('close', () => this.#count(socket, -1));
  }

  /** Told when a request has shown whose it is. */
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

  /** Ends the oldest that has shown no token, else the one whose last request is longest ago; never one with a request. */
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

  /** A call that takes long is quiet too; it ends by deadlines of its own. */
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
