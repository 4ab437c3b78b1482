/** The command sessions of each scope: their ids, their limit and their end. A scope cannot see sessions of another. */
import { toolFailure } from '../workspace/file-text.ts';
import type { ShellCommand, StartCommand } from './shell-process.ts';
import { ShellSession } from './shell-session.ts';

const MAX_SESSIONS = 16;

interface ScopeSessions {
  next: number;
  readonly named: Map<string, ShellSession>;
  /** Commands of action="run" without an id. */
  readonly unnamed: Set<ShellSession>;
  readonly idle: Map<string, NodeJS.Timeout>;
}

/** All sessions of one workspace, by scope. */
export class ShellSessions {
  readonly #scopes = new Map<string, ScopeSessions>();
  readonly #idleMs: number;
  readonly #start: StartCommand;
  #isStopped = false;
  readonly #atExit = (): void => this.killNow();

  /** Sessions that are not used for `idleMs` milliseconds are ended. `start` starts their commands. */
  constructor(idleMs: number, start: StartCommand) {
    this.#idleMs = idleMs;
    this.#start = start;
    process.once('exit', this.#atExit);
  }

  /**
   * Starts a command without an id. The caller must release or name it. Throws TOOL_FAILED if the scope ended
   * meanwhile, and ends the command in this case.
   */
  async launch(scope: string, command: ShellCommand): Promise<ShellSession> {
    const scoped = this.#sessionsOf(scope);
    const session = await ShellSession.start(command, this.#start);
    if (this.#isStopped || this.#scopes.get(scope) !== scoped) {
      await session.kill();
      throw toolFailure(
        'The session of the caller ended while the command started, so the command was ended.',
        'Open a new session.',
      );
    }
    scoped.unnamed.add(session);
    return session;
  }

  /** Forgets a command that has no id. */
  release(scope: string, session: ShellSession): void {
    this.#scopes.get(scope)?.unnamed.delete(session);
  }

  /** Kills a command that has no id and forgets it. Returns true if certainly no process is left. */
  async end(scope: string, session: ShellSession): Promise<boolean> {
    const isGone = await session.kill();
    this.release(scope, session);
    return isGone;
  }

  /** Returns true if the scope can have another session, perhaps instead of one that has ended. */
  hasRoom(scope: string): boolean {
    const { named } = this.#sessionsOf(scope);
    return named.size < MAX_SESSIONS || [...named.values()].some((session) => session.end !== undefined);
  }

  /** Gives a command its id: s1, s2 and so on. Throws TOOL_FAILED if there are too many sessions. */
  name(scope: string, session: ShellSession): string {
    const scoped = this.#sessionsOf(scope);
    if (!this.hasRoom(scope))
      throw toolFailure(
        `There are already ${MAX_SESSIONS} sessions.`,
        'End one: bash action="list", then action="kill".',
      );
    if (scoped.named.size >= MAX_SESSIONS) {
      const oldest = [...scoped.named].find(([, session]) => session.end !== undefined);
      if (oldest !== undefined) this.#forget(scoped, oldest[0]);
    }
    const id = `s${(scoped.next += 1)}`;
    scoped.unnamed.delete(session);
    scoped.named.set(id, session);
    this.#touch(scoped, id);
    return id;
  }

  /** Returns a session and restarts its idle time. Throws TOOL_FAILED if the scope has no session with this id. */
  get(scope: string, id: string): ShellSession {
    const scoped = this.#sessionsOf(scope);
    const session = scoped.named.get(id);
    if (session === undefined) throw toolFailure('There is no session with this id.', 'See bash action="list".');
    this.#touch(scoped, id);
    return session;
  }

  /** Returns the sessions of a scope by id. */
  list(scope: string): ReadonlyMap<string, ShellSession> {
    return this.#sessionsOf(scope).named;
  }

  /** Ends all commands of a scope and forgets them. */
  async endScope(scope: string): Promise<void> {
    const scoped = this.#scopes.get(scope);
    if (scoped === undefined) return;
    this.#scopes.delete(scope);
    for (const timer of scoped.idle.values()) clearTimeout(timer);
    await Promise.all([...scoped.named.values(), ...scoped.unnamed].map((session) => session.kill()));
  }

  /** Kills all commands synchronously. */
  killNow(): void {
    for (const scoped of this.#scopes.values())
      for (const session of [...scoped.named.values(), ...scoped.unnamed]) session.killNow();
  }

  /** Ends all commands, and all that are still being started. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    await Promise.all([...this.#scopes.keys()].map((scope) => this.endScope(scope)));
    process.off('exit', this.#atExit);
  }

  #sessionsOf(scope: string): ScopeSessions {
    const existing = this.#scopes.get(scope);
    if (existing !== undefined) return existing;
    const scoped: ScopeSessions = { next: 0, named: new Map(), unnamed: new Set(), idle: new Map() };
    this.#scopes.set(scope, scoped);
    return scoped;
  }

  #touch(scoped: ScopeSessions, id: string): void {
    clearTimeout(scoped.idle.get(id));
    scoped.idle.set(id, setTimeout(() => void this.#expire(scoped, id), this.#idleMs).unref());
  }

  async #expire(scoped: ScopeSessions, id: string): Promise<void> {
    const session = scoped.named.get(id);
    this.#forget(scoped, id);
    await session?.kill();
  }

  #forget(scoped: ScopeSessions, id: string): void {
    clearTimeout(scoped.idle.get(id));
    scoped.idle.delete(id);
    scoped.named.delete(id);
  }
}
