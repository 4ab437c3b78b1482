/** Owns the way to an internal server on a unix socket; refuses sockets in whose place somebody else could put his own. */
import { lstatSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Connection, ConnectionEvents } from '../rpc/connection.ts';
import { oneLine } from '../rpc/framing.ts';
import { MessageReader } from '../rpc/message-reader.ts';
import type { ServerSettings } from '../supervisor/server-settings.ts';

const WORLD = 0o022;
const OTHERS = 0o077;
const STICKY = 0o1000;

/** One connection to a socket of this machine: JSON-RPC in lines, as over stdio. The server is nobody's child and is not ended. */
export class SocketConnection implements Connection {
  private readonly settings: ServerSettings;
  private socket: Socket | undefined;
  private closed = false;

  constructor(settings: ServerSettings) {
    this.settings = settings;
  }

  async start(events: ConnectionEvents): Promise<void> {
    const { name, socket: file = '' } = this.settings;
    const fault = socketFault(file, process.getuid?.() ?? 0);
    if (fault !== undefined)
      throw new TollgateError('SERVER_UNAVAILABLE', {
        detail: `The socket of server "${name}" is not used: ${fault}.`,
        next: 'Start the server, with its socket in a folder of mode 0700 that belongs to the same user.',
        retryable: false,
      });
    const socket = connect(file);
    this.socket = socket;
    await new Promise<void>((resolve, reject) => {
      socket.once('connect', resolve);
      socket.once('error', (cause: NodeJS.ErrnoException) =>
        reject(
          new TollgateError('SERVER_UNAVAILABLE', {
            detail: `Server "${name}" does not answer on its socket (${cause.code ?? 'unknown'}).`,
            cause,
          }),
        ),
      );
    });
    this.listen(socket, events);
    if (this.closed) socket.destroy();
  }

  send(text: string): void {
    if (this.socket?.writable === true) this.socket.write(`${oneLine(text)}\n`);
  }

  backlog(): number {
    return this.socket?.writableLength ?? 0;
  }

  useProtocolVersion(): void {
    // Said in the handshake only, as over stdio.
  }

  async close(): Promise<void> {
    this.killNow();
  }

  killNow(): void {
    this.closed = true;
    this.socket?.destroy();
  }

  private listen(socket: Socket, events: ConnectionEvents): void {
    const reader = new MessageReader(socket, events);
    // What went wrong is told by the close that follows.
    socket.on('error', () => undefined);
    socket.on('close', () => {
      reader.flush();
      if (!this.closed) events.onClosed('closed its socket');
      this.closed = true;
    });
  }
}

/**
 * Why a socket must not be used, or undefined. Node cannot ask who is at the other end (SO_PEERCRED), so the place must answer for
 * it: the socket and its folder belong to us, the folder is ours alone, and nobody else can rename a folder above it.
 */
export function socketFault(file: string, uid: number): string | undefined {
  const folder = path.dirname(file);
  try {
    const [socket, place] = [lstatSync(file), lstatSync(folder)];
    if (!socket.isSocket()) return 'it is no socket';
    if (socket.uid !== uid) return 'it belongs to another user';
    if (!place.isDirectory()) return 'its folder is a link';
    if (place.uid !== uid || (place.mode & OTHERS) !== 0) return 'its folder is open to other users';
    for (let above = path.dirname(folder); ; above = path.dirname(above)) {
      const { mode, uid: owner } = lstatSync(above);
      if ((owner !== uid && owner !== 0) || ((mode & WORLD) !== 0 && (mode & STICKY) === 0))
        return 'a folder above it can be changed by other users';
      if (above === path.dirname(above)) return undefined;
    }
  } catch (thrown) {
    const { code } = thrown as NodeJS.ErrnoException;
    return code === 'ENOENT' ? 'there is none' : `it cannot be looked at (${code ?? 'unknown'})`;
  }
}
