/** Counts the calls of all processes of a state folder, also ended ones, for hosts. Counting never delays a call. */
import type { State } from '../../state/state-port.ts';

/** Counts of calls (HB-11, HB-13). `averageMs`: of the time that servers took. */
export interface Statistics {
  readonly calls: number;
  readonly succeeded: number;
  readonly failed: number;
  readonly averageMs: number;
  readonly byTool: Readonly<Record<string, number>>;
  readonly byOrigin: Readonly<Record<string, number>>;
  readonly byOutcome: Readonly<Record<string, number>>;
}

/** How a call ended. */
export interface CallEnd {
  readonly tool: string;
  readonly origin: string;
  /** A code, `TOOL_FAILED`, or `ok`. */
  readonly outcome: string;
}

/** Returns the name under which such calls are counted. */
export function countKey({ tool, origin, outcome }: CallEnd): string {
  return JSON.stringify([tool, origin, outcome]);
}

/** What is stored. `ends`: the number of calls by what `countKey` returns. */
interface Counts {
  readonly ends: Map<string, number>;
  ms: number;
  timed: number;
}

const [SPACE, KEY] = ['statistics', 'calls'];
/** How long a count is only in this process, ms. A killed process loses it. */
const WRITE_MS = 5000;
/**
 * The most kinds of ends that are counted separately, because a host can speak for any number of pages. The rest are
 * counted together.
 */
const MAX_ENDS = 1000;
const OTHERS = 'others';
/** Tries when other processes write at the same moment. What was not written is written the next time. */
const TRIES = 20;

/** The counts. Two processes add to one value, each only what it has counted since its last write. */
export class CallTally {
  readonly #state: Pick<State, 'get' | 'swap'>;
  #own = noCounts();
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> = Promise.resolve();

  constructor(state: Pick<State, 'get' | 'swap'>) {
    this.#state = state;
  }

  /** Counts a call. `ms`: the time that its server took; undefined if no server was called. Never throws. */
  count(kind: string, ms?: number): void {
    addEnds(this.#own, kind, 1);
    this.#own.ms += ms ?? 0;
    this.#own.timed += ms === undefined ? 0 : 1;
    this.#timer ??= setTimeout(() => void this.flush(), WRITE_MS).unref();
  }

  /** Returns the counts. Throws STATE_FAILED. */
  read(): Statistics {
    const all = parse(this.#state.get(SPACE, KEY));
    add(all, this.#own);
    return statisticsOf(all);
  }

  /**
   * Adds the counts to the state. What cannot be written is kept for the next time, because counts only inform. Never
   * rejects.
   */
  flush(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    return (this.#writing = this.#writing.then(() => this.#write()));
  }

  async #write(): Promise<void> {
    const counted = this.#own;
    if (counted.ends.size === 0) return;
    this.#own = noCounts();
    try {
      for (let tries = 0; tries < TRIES; tries += 1) {
        const from = this.#state.get(SPACE, KEY);
        const sum = parse(from);
        add(sum, counted);
        const to = JSON.stringify({ ...sum, ends: [...sum.ends] });
        if (await this.#state.swap(SPACE, KEY, { ...(from !== undefined && { from }), to })) return;
      }
    } catch {
      // Every call that needs the state reports its failure.
    }
    add(counted, this.#own);
    this.#own = counted;
  }
}

function noCounts(): Counts {
  return { ends: new Map(), ms: 0, timed: 0 };
}

function add(sum: Counts, more: Counts): void {
  for (const [key, count] of more.ends) addEnds(sum, key, count);
  sum.ms += more.ms;
  sum.timed += more.timed;
}

function addEnds({ ends }: Counts, key: string, count: number): void {
  const known = ends.has(key) || ends.size < MAX_ENDS ? key : othersOf(key);
  ends.set(known, (ends.get(known) ?? 0) + count);
}

/** Returns the key of the calls that are counted together. It keeps the outcome, because there are few outcomes. */
function othersOf(key: string): string {
  const [, , outcome] = JSON.parse(key) as [string, string, string];
  return JSON.stringify([OTHERS, OTHERS, outcome]);
}

/** Returns the stored counts. A text that cannot be read counts nothing. */
function parse(text: string | undefined): Counts {
  if (text === undefined) return noCounts();
  try {
    const { ends, ms, timed } = JSON.parse(text) as {
      readonly ends: [string, number][];
      readonly ms: number;
      readonly timed: number;
    };
    return { ends: new Map(ends), ms, timed };
  } catch {
    return noCounts();
  }
}

function statisticsOf({ ends, ms, timed }: Counts): Statistics {
  const [byTool, byOrigin, byOutcome] = [
    new Map<string, number>(),
    new Map<string, number>(),
    new Map<string, number>(),
  ];
  let calls = 0;
  for (const [key, count] of ends) {
    const [tool, origin, outcome] = JSON.parse(key) as [string, string, string];
    calls += count;
    for (const [group, name] of [
      [byTool, tool],
      [byOrigin, origin],
      [byOutcome, outcome],
    ] as const)
      group.set(name, (group.get(name) ?? 0) + count);
  }
  const succeeded = byOutcome.get('ok') ?? 0;
  const sorted = (group: ReadonlyMap<string, number>): Readonly<Record<string, number>> =>
    Object.fromEntries([...group].sort(([one], [other]) => (one < other ? -1 : 1)));
  return {
    calls,
    succeeded,
    failed: calls - succeeded,
    averageMs: timed === 0 ? 0 : Math.round(ms / timed),
    byTool: sorted(byTool),
    byOrigin: sorted(byOrigin),
    byOutcome: sorted(byOutcome),
  };
}
