/**
 * Checks a history of one register with put, take and swap: is there an order of the operations, each between its
 * beginning and its end, in which one register gives all the results? (Wing and Gong 1993; linearizability.)
 */

/** What an operation asks of the register. */
export type RegisterOp =
  | { readonly op: 'read' }
  | { readonly op: 'take' }
  | { readonly op: 'put'; readonly to: string }
  | { readonly op: 'swap'; readonly from?: string; readonly to: string };

/** One operation of a history. Without `end` and `result`, it may have been done at any time, or never. */
export interface RegisterEvent {
  readonly begin: number;
  readonly end: number;
  readonly work: RegisterOp;
  /** Absent: it is not known. Of read and take: the value, or null; of swap: whether it was done. */
  readonly result?: unknown;
  readonly isUnknown: boolean;
}

/** Returns undefined if the register can explain the history, otherwise the longest part that it can. */
export function findContradiction(history: readonly RegisterEvent[]): readonly RegisterEvent[] | undefined {
  const events = [...history].sort((one, other) => one.begin - other.begin);
  const seen = new Set<string>();
  let longest: readonly RegisterEvent[] = [];
  // Depth first, with a list of its own: a history is deeper than the stack of functions.
  const open: Place[] = [{ first: 0, later: [], value: null, path: [] }];
  for (let place = open.pop(); place !== undefined; place = open.pop()) {
    if (place.path.length > longest.length) longest = place.path;
    const left = events.slice(place.first).filter((_, index) => !place.later.includes(place.first + index));
    if (left.every(({ isUnknown }) => isUnknown)) return undefined;
    const key = `${place.first} ${place.later.join()} ${place.value}`;
    if (seen.has(key)) continue;
    seen.add(key);
    open.push(...nextPlaces(events, place));
  }
  return longest;
}

/** A place in the search. All events before `first` are ordered, and those of `later`, by index. */
interface Place {
  readonly first: number;
  readonly later: readonly number[];
  readonly value: string | null;
  readonly path: readonly RegisterEvent[];
}

/** Returns the places after one more event; the earliest event is last, and is tried first. */
function nextPlaces(events: readonly RegisterEvent[], { first, later, value, path }: Place): readonly Place[] {
  const places: Place[] = [];
  let firstEnd = Number.POSITIVE_INFINITY;
  for (let index = first; index < events.length; index += 1) {
    if (later.includes(index)) continue;
    const event = events[index]!;
    // Everything that has ended before this one began must come first.
    if (event.begin > firstEnd) break;
    firstEnd = Math.min(firstEnd, event.end);
    const next = step(event, value);
    if (next === undefined) continue;
    const done = new Set([...later, index]);
    let from = first;
    while (done.delete(from)) from += 1;
    places.push({ first: from, later: [...done].sort((a, b) => a - b), value: next.value, path: [...path, event] });
  }
  return places.reverse();
}

/** Returns the value after an operation; undefined if the operation cannot have had its result. */
function step(event: RegisterEvent, value: string | null): { readonly value: string | null } | undefined {
  const { work, result, isUnknown } = event;
  if (work.op === 'put') return { value: work.to };
  if (work.op === 'read') return isUnknown || result === value ? { value } : undefined;
  if (work.op === 'take') return isUnknown || result === value ? { value: null } : undefined;
  const isEqual = (work.from ?? null) === value;
  if (isUnknown) return isEqual ? { value: work.to } : undefined;
  if (result === true) return isEqual ? { value: work.to } : undefined;
  return isEqual ? undefined : { value };
}
