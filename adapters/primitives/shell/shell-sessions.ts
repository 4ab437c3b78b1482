/** Owns the sessions of every scope: their ids, their number, their end; refuses a seventeenth and one of another scope. */

import { toolFailure } from '../workspace/file-text.ts';
import type { ShellCommand, StartCommand } from './shell-process.ts';
import { ShellSession } from './shell-session.ts';

const MAX_SESSIONS = 16;

interface Shelf {
  next: number;
  readonly named: Map<string, ShellSession>;
  /** Commands of action run that have no id (yet). */
  readonly unnamed: Set<ShellSession>;
  readonly idle: Map<string, NodeJS.Timeout>;
}

/** All sessions of one workspace. Scopes never see each other's. */
export class ShellSessions {
  readonly #shelves = new Map<string, Shelf>();
  readonly #idleMs: number;
  readonly #start: StartCommand;
  #isStopped = false;
  readonly #atExit = (): void => this.killNow();

  /** `idleMs`: a session that nobody asked for so long is ended. `start`: how its commands are isolated. */
  constructor(idleMs: number, start: StartCommand) {
    this.#idleMs = idleMs;
    this.#start = start;
    process.once('exit', this.#atExit);
  }

  /** Starts a command without an id. Release it, or give it one. Throws TOOL_FAILED when its scope has ended meanwhile, and leaves nothing running. */
  async launch(scope: string, command: ShellCommand): Promise<ShellSession> {
    const shelf = this.#shelf(scope);
    const session = await ShellSession.start(command, this.#start);
    if (this.#isStopped || this.#shelves.get(scope) !== shelf) {
      await session.kill();
      throw toolFailure(
        'The session of the caller ended while the command started, so the command was ended.',
        'Open a new session.',
      );
    }
    shelf.unnamed.add(session);
    return session;
  }

  release(scope: string, session: ShellSession): void {
    this.#shelves.get(scope)?.unnamed.delete(session);
  }

  /** True when a further session would have a place; ended ones make room, the oldest first. */
  hasRoom(scope: string): boolean {
    const { named } = this.#shelf(scope);
    return named.size < MAX_SESSIONS || [...named.values()].some((session) => session.end !== undefined);
  }

  /** Gives a command its id, s1 and on. Throws TOOL_FAILED when there is no room. */
  name(scope: string, session: ShellSession): string {
    const shelf = this.#shelf(scope);
    if (!this.hasRoom(scope))
      throw toolFailure(
        `There are ${MAX_SESSIONS} sessions already.`,
        'End one: bash action="list", then action="kill".',
      );
    if (shelf.named.size >= MAX_SESSIONS) {
      const oldest = [...shelf.named].find(([, known]) => known.end !== undefined);
      if (oldest !== undefined) this.#forget(shelf, oldest[0]);
    }
    const id = `s${(shelf.next += 1)}`;
    shelf.unnamed.delete(session);
    shelf.named.set(id, session);
    this.#touch(shelf, id);
    return id;
  }

  /** The session of that id; asking for it keeps it alive. Throws TOOL_FAILED when this scope has none. */
  get(scope: string, id: string): ShellSession {
    const shelf = this.#shelf(scope);
    const session = shelf.named.get(id);
    if (session === undefined) throw toolFailure('There is no such session.', 'See bash action="list".');
    this.#touch(shelf, id);
    return session;
  }

  list(scope: string): ReadonlyMap<string, ShellSession> {
    return this.#shelf(scope).named;
  }

  /** Ends everything of a scope and forgets it. */
  async endScope(scope: string): Promise<void> {
    const shelf = this.#shelves.get(scope);
    if (shelf === undefined) return;
    this.#shelves.delete(scope);
    for (const timer of shelf.idle.values()) clearTimeout(timer);
    await Promise.all([...shelf.named.values(), ...shelf.unnamed].map((session) => session.kill()));
  }

  /** Ends everything at once, synchronously. */
  killNow(): void {
    this.#every((session) => session.killNow());
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    await Promise.all([...this.#shelves.keys()].map((scope) => this.endScope(scope)));
    process.off('exit', this.#atExit);
  }

  #shelf(scope: string): Shelf {
    const known = this.#shelves.get(scope);
    if (known !== undefined) return known;
    const shelf: Shelf = { next: 0, named: new Map(), unnamed: new Set(), idle: new Map() };
    this.#shelves.set(scope, shelf);
    return shelf;
  }

  #touch(shelf: Shelf, id: string): void {
    clearTimeout(shelf.idle.get(id));
    shelf.idle.set(id, setTimeout(() => void this.#expire(shelf, id), this.#idleMs).unref());
  }

  async #expire(shelf: Shelf, id: string): Promise<void> {
    const session = shelf.named.get(id);
    this.#forget(shelf, id);
    await session?.kill();
  }

  #forget(shelf: Shelf, id: string): void {
    clearTimeout(shelf.idle.get(id));
    shelf.idle.delete(id);
    shelf.named.delete(id);
  }

  #every(act: (session: ShellSession) => void): void {
    for (const shelf of this.#shelves.values())
      for (const session of [...shelf.named.values(), ...shelf.unnamed]) act(session);
  }
}
