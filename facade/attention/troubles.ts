/**
 * What went wrong in any process of a state folder, so that all show it: a policy that failed, a refused reload, a
 * record that could not be written. And which rules have decided a call. Noting never delays or fails a call.
 */
import type { Awaitable } from '../../catalogs/text/awaitable.ts';
import type { State } from '../state/state-port.ts';

/** What can go wrong. */
export type TroubleKind = 'policy-failed' | 'reload-refused' | 'audit-failed' | 'notices-failed' | 'heads-failed';

/** A trouble. Times in ms since 1970. */
export interface Trouble {
  readonly kind: TroubleKind;
  readonly since: number;
  readonly last: number;
  /** How often it was noted; noted at most every ten seconds by each process. */
  readonly count: number;
  /** The code of the error, or for notices the answer. */
  readonly code: string;
}

const SPACE = 'trouble';
const [RULES, HITS] = ['rule-set', 'rule-hit'];
/** A process writes the same trouble at most this often, ms. */
const QUIET_MS = 10_000;
/** A trouble that did not happen again for so long is over, ms. A refused reload ends with the next accepted one. */
const OVER_MS = 3_600_000;
/** How long a rule that decided a call is only known in this process, ms. A killed process loses it. */
const WRITE_MS = 5_000;
/** How long rules must have been in force before one without a call is reported, ms. */
const UNUSED_MS = 7 * 86_400_000;

type Writes = Pick<State, 'get' | 'put' | 'remove'>;

/** Notes troubles and rules for one process. */
export class Troubles {
  readonly #state: Writes;
  readonly #now: () => number;
  readonly #notedAt = new Map<TroubleKind, number>();
  /** The rules of which this process knows that a call was decided by them. */
  readonly #hit = new Set<string>();
  #unwritten: string[] = [];
  #timer: NodeJS.Timeout | undefined;

  constructor(state: Writes, now: () => number) {
    this.#state = state;
    this.#now = now;
  }

  /** Notes a trouble. Never throws. */
  note(kind: TroubleKind, code: string): void {
    const now = this.#now();
    if (now - (this.#notedAt.get(kind) ?? -Infinity) < QUIET_MS) return;
    this.#notedAt.set(kind, now);
    void this.#quietly(() => {
      const before = read(kind, this.#state.get(SPACE, kind));
      const goesOn = before !== undefined && now - before.last < OVER_MS;
      const noted = { since: goesOn ? before.since : now, last: now, count: goesOn ? before.count + 1 : 1, code };
      return this.#state.put(SPACE, kind, JSON.stringify(noted));
    });
  }

  /** Notes that a trouble is over. Never throws. */
  clear(kind: TroubleKind): void {
    this.#notedAt.delete(kind);
    void this.#quietly(() =>
      this.#state.get(SPACE, kind) === undefined ? undefined : this.#state.remove(SPACE, kind),
    );
  }

  /** Notes which rules are in force. Those that were in force before keep their time. Never throws. */
  noteRules(ids: readonly string[]): void {
    void this.#quietly(() => {
      const before = readRules(this.#state.get(RULES, ''));
      const now = this.#now();
      const rules = Object.fromEntries(ids.map((id) => [id, before.get(id) ?? now]));
      const text = JSON.stringify(rules);
      return text === this.#state.get(RULES, '') ? undefined : this.#state.put(RULES, '', text);
    });
  }

  /**
   * Notes that a rule was among those that decided a call. It is written later: the calls after a write wait until they
   * have read the state again. Never throws.
   */
  noteHit(rule: string): void {
    if (this.#hit.has(rule)) return;
    this.#hit.add(rule);
    this.#unwritten.push(rule);
    this.#timer ??= setTimeout(() => void this.flush(), WRITE_MS).unref();
  }

  /** Writes which rules have decided a call. Never rejects. */
  async flush(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const rules = this.#unwritten;
    this.#unwritten = [];
    await Promise.all(
      rules.map((rule) =>
        this.#quietly(() =>
          this.#state.get(HITS, rule) === undefined ? this.#state.put(HITS, rule, String(this.#now())) : undefined,
        ),
      ),
    );
  }

  async #quietly(work: () => Awaitable<void> | undefined): Promise<void> {
    try {
      await work();
    } catch {
      // What cannot be written is seen elsewhere: every call that needs the state reports its failure.
    }
  }
}

/** Returns the troubles that are not over. Throws STATE_FAILED. */
export function readTroubles(state: Pick<State, 'list'>, now: number): readonly Trouble[] {
  return [...state.list(SPACE)].flatMap(([kind, text]) => {
    const trouble = read(kind as TroubleKind, text);
    const isOver = trouble === undefined || (trouble.kind !== 'reload-refused' && now - trouble.last >= OVER_MS);
    return isOver ? [] : [trouble];
  });
}

/** Returns the rules that have decided no call since they have been in force for a week. Throws STATE_FAILED. */
export function unusedRules(
  state: Pick<State, 'get' | 'list'>,
  now: number,
): { readonly ids: readonly string[]; readonly since: number } | undefined {
  const hits = state.list(HITS);
  const unused = [...readRules(state.get(RULES, ''))].filter(
    ([id, since]) => now - since >= UNUSED_MS && !hits.has(id),
  );
  if (unused.length === 0) return undefined;
  return { ids: unused.map(([id]) => id), since: Math.min(...unused.map(([, since]) => since)) };
}

function read(kind: TroubleKind, text: string | undefined): Trouble | undefined {
  return text === undefined ? undefined : { kind, ...(JSON.parse(text) as Omit<Trouble, 'kind'>) };
}

function readRules(text: string | undefined): ReadonlyMap<string, number> {
  return new Map(Object.entries(JSON.parse(text ?? '{}') as Record<string, number>));
}
