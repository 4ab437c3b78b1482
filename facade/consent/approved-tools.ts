/** Owns the approved definitions of tools, kept in the shared state, and what has drifted from them; refuses a definition that is not the approved one to the byte. */
import type { TollgateError } from '../../catalogs/errors.ts';
import type { RawTool } from '../../catalogs/tool.ts';
import type { State } from '../state/state.ts';
import { pendingRefusal } from './refusals.ts';
import { driftOf, pinsOnce, setHash, type ToolSet } from './tool-set.ts';

const SETS = 'consent/tools';
const PENDING = 'consent/pending';
/** A server that lists something else each time is noted once in this time. */
const NOTE_MS = 60_000;

/** What a running facade saw that nobody has approved: one item a server, however much it changed. */
export interface PendingItem {
  readonly since: string;
  readonly changed: readonly string[];
  readonly added: readonly string[];
  readonly removed: readonly string[];
}

/** The sets of one state folder. Throws STATE_FAILED. */
export class ApprovedTools {
  readonly #state: State;
  readonly #sets = new Map<string, { readonly hash: string; readonly set: ToolSet }>();
  readonly #noted = new Map<string, number>();

  constructor(state: State) {
    this.#state = state;
  }

  /** Keeps a set, and gives its hash. */
  async put(server: string, set: ToolSet): Promise<string> {
    await this.#state.put(SETS, server, JSON.stringify(set));
    await this.#state.remove(PENDING, server);
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
    await this.#state.remove(PENDING, server);
  }

  /** Keeps what has drifted for whoever looks at servers. What is new of it, or undefined: then nobody needs to be told. */
  async note(server: string, { approved, now, at }: { approved: readonly RawTool[]; now: readonly RawTool[]; at: number }): Promise<PendingItem | undefined> {
    const { pending, removed } = driftOf(approved, now);
    const named = (what: string): readonly string[] => [...pending].filter(([, why]) => why === what).map(([name]) => name);
    const item = { since: new Date(at).toISOString(), changed: named('changed'), added: named('new'), removed };
    const before = this.pending(server);
    if (pending.size === 0 && removed.length === 0) {
      if (before !== undefined) await this.#state.remove(PENDING, server);
      return undefined;
    }
    const isSame = before !== undefined && JSON.stringify({ ...before, since: '' }) === JSON.stringify({ ...item, since: '' });
    if (isSame || at - (this.#noted.get(server) ?? Number.NEGATIVE_INFINITY) < NOTE_MS) return undefined;
    this.#noted.set(server, at);
    await this.#state.put(PENDING, server, JSON.stringify(item));
    return item;
  }

  /** What waits for the owner. */
  pending(server: string): PendingItem | undefined {
    const text = this.#state.get(PENDING, server);
    return text === undefined ? undefined : (JSON.parse(text) as PendingItem);
  }
}

/** Why this tool may not be called: only one that is listed now, and defined as it was approved, is. A tool that a server hides is none. */
export function refuseDrifted(tool: string, { server, approved, now }: { server: string; approved: readonly RawTool[]; now: readonly RawTool[] }): TollgateError | undefined {
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
