/** Connects to an internal server on a Unix socket. It refuses a socket that another user could replace. */
import { lstatSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Connection, ConnectionEvents } from '../rpc/connection.ts';
import { oneLine } from '../rpc/framing.ts';
import { MessageReader } from '../rpc/message-reader.ts';
import type { ServerSettings } from '../supervisor/server-settings.ts';

/** Permission bits: others may write; others may do anything. */
const OTHERS_WRITE = 0o022;
const OTHERS_ANY = 0o077;
const STICKY = 0o1000;

/** A connection to a Unix socket: JSON-RPC in lines, as over stdio. The server is not our child and is not ended. */
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
        detail: `Cannot use the socket of server "${name}": ${fault}.`,
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
    // The handshake carries the version, as over stdio.
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
    // The close event follows and reports the end.
    socket.on('error', () => undefined);
    socket.on('close', () => {
      reader.flush();
      if (!this.closed) events.onClosed('closed its socket');
      this.closed = true;
    });
  }
}

/**
 * Returns why a socket must not be used, or undefined. Node.js cannot ask for the user at the other end (SO_PEERCRED),
 * so the place must prove it: socket and folder belong to this user, no other user has access to the folder, and no
 * other user can rename a folder above it.
 */
export function socketFault(file: string, uid: number): string | undefined {
  const folder = path.dirname(file);
  try {
    const [socket, place] = [lstatSync(file), lstatSync(folder)];
    if (!socket.isSocket()) return 'it is not a socket';
    if (socket.uid !== uid) return 'it belongs to another user';
    if (!place.isDirectory()) return 'its folder is a link';
    if (place.uid !== uid || (place.mode & OTHERS_ANY) !== 0) return 'its folder is open to other users';
    for (let above = folder; above !== path.dirname(above); )
      if (canOthersRename((above = path.dirname(above)), uid)) return 'a folder above it can be changed by other users';
    return undefined;
  } catch (thrown) {
    const { code } = thrown as NodeJS.ErrnoException;
    return code === 'ENOENT' ? 'there is none' : `it cannot be read (${code ?? 'unknown'})`;
  }
}

/** Returns true if another user can rename entries of a folder. The sticky bit forbids it. */
function canOthersRename(folder: string, uid: number): boolean {
  const { mode, uid: owner } = lstatSync(folder);
  return (owner !== uid && owner !== 0) || ((mode & OTHERS_WRITE) !== 0 && (mode & STICKY) === 0);
}
