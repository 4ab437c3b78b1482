/** Owns the approved definitions of tools, kept in the shared state, and what has drifted from them; refuses a definition that is not the approved one to the byte. */
import { isDeepStrictEqual } from 'node:util';
import type { TollgateError } from '../../catalogs/errors.ts';
import type { RawTool } from '../../catalogs/tool.ts';
import type { State } from '../state/state.ts';
import { pendingRefusal } from './refusals.ts';
import { driftOf, pinsOnce, setHash, type ToolSet } from './tool-set.ts';
import { boundItem, itemOf, type PendingItem, readItem, type Waiting, waitingIn, withholdsSame } from './waiting.ts';

const SETS = 'consent/tools';
const PENDING = 'consent/pending';
/** A server that lists something else each time is noted once in this time. */
const NOTE_MS = 60_000;

/** The sets of one state folder. Throws STATE_FAILED. */
export class ApprovedTools {
  readonly #state: State;
  readonly #sets = new Map<string, { readonly hash: string; readonly set: ToolSet }>();
  readonly #noted = new Map<string, number>();
  /** What each program that runs here has listed last, and when it was started. */
  readonly #seen = new Map<string, { readonly now: readonly RawTool[]; readonly startedAt: number }>();
  /** Servers that listed something else here than was approved. */
  readonly #witnessed = new Set<string>();

  constructor(state: State) {
    this.#state = state;
  }

  /** Keeps a set, and gives its hash. */
  async put(server: string, set: ToolSet): Promise<string> {
    await this.#state.put(SETS, server, JSON.stringify(set));
    await this.settle(server);
    return setHash(server, set);
  }

  /** The set with this hash; undefined when what is kept is not that. */
  get(server: string, hash: string): ToolSet | undefined {
    const known = this.#sets.get(server);
    if (known?.hash === hash) return known.set;
    const set = readSet(this.#state.get(SETS, server));
    if (set === undefined || setHash(server, set) !== hash) return undefined;
    this.#sets.set(server, { hash, set });
    return set;
  }

  /** Names of the set that is kept, unchecked: to tell a person of a mistake, and for nothing else. */
  names(server: string): readonly string[] | undefined {
    return readSet(this.#state.get(SETS, server))?.tools.map(({ name }) => name);
  }

  async remove(server: string): Promise<void> {
    await this.#state.remove(SETS, server);
    await this.settle(server);
  }

  /** Nothing of it waits any more. */
  async settle(server: string): Promise<void> {
    await this.#state.remove(PENDING, server);
  }

  /**
   * Keeps what has drifted, for whoever looks at servers and for every process that shows or calls its tools; a list without drift puts
   * them back. A program that is older than what was kept (`startedAt`, ms since 1970) has a say only where it listed otherwise itself.
   * What is new of it, all of it, or undefined: then nobody needs to be told.
   */
  async note(
    server: string,
    {
      approved,
      now,
      at,
      startedAt,
    }: { approved: readonly RawTool[]; now: readonly RawTool[]; at: number; startedAt: number },
  ): Promise<PendingItem | undefined> {
    const last = this.#seen.get(server);
    // Its list is no news because something else was approved meanwhile.
    if (last?.startedAt === startedAt && isDeepStrictEqual(last.now, now)) return undefined;
    this.#seen.set(server, { now, startedAt });
    const drift = driftOf(approved, now);
    const item = itemOf(drift, new Date(at).toISOString());
    const before = this.pending(server);
    const isHeard = before === undefined || this.#witnessed.has(server) || startedAt > Date.parse(before.since);
    if (drift.pending.size === 0 && drift.removed.length === 0) {
      if (before !== undefined && isHeard) await this.settle(server);
      return undefined;
    }
    this.#witnessed.add(server);
    const kept = boundItem(item);
    // Each write makes all processes read anew: a list that only changes its order, or is withheld as a whole already, makes none.
    if (!isHeard || (before !== undefined && withholdsSame(before, kept))) return undefined;
    await this.#state.put(PENDING, server, JSON.stringify(kept));
    if (at - (this.#noted.get(server) ?? Number.NEGATIVE_INFINITY) < NOTE_MS) return undefined;
    this.#noted.set(server, at);
    return item;
  }

  /** What waits for the owner. */
  pending(server: string): PendingItem | undefined {
    const text = this.#state.get(PENDING, server);
    return text === undefined ? undefined : readItem(text);
  }

  /** What waits of all servers: the same object while nothing was written. */
  allPending(): Waiting {
    return waitingIn(this.#state.list(PENDING));
  }
}

/** Why this tool may not be called: only one that is listed now, and defined as it was approved, is. A tool that a server hides is none. */
export function refuseDrifted(
  tool: string,
  { server, approved, now }: { server: string; approved: readonly RawTool[]; now: readonly RawTool[] },
): TollgateError | undefined {
  const [agreed, listed] = [pinsOnce(approved).get(tool), pinsOnce(now).get(tool)];
  if (agreed !== undefined && agreed === listed) return undefined;
  return pendingRefusal(server, agreed === undefined ? 'new' : listed === undefined ? 'gone' : 'changed');
}

function readSet(text: string | undefined): ToolSet | undefined {
  try {
    return text === undefined ? undefined : (JSON.parse(text) as ToolSet);
  } catch {
    return undefined;
  }
}
