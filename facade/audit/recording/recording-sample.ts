/**
 * Chooses the recordings that represent all of them: every way in which calls were decided first, then more of each.
 */
import type { Recording } from './decision-recording.ts';

/**
 * Returns at most `size` recordings. Rare outcomes and rules come before more of the common ones, and different tools
 * before more calls of one.
 */
export function sampleRecordings<R extends Recording>(recordings: Iterable<R>, size: number): readonly R[] {
  const kinds = new Map<string, Map<string, R[]>>();
  for (const recording of recordings) {
    const { server, tool, verb } = recording.input.effect;
    const tools = entry(kinds, kindOf(recording), () => new Map<string, R[]>());
    const alike = entry(tools, `${verb} ${server}.${tool} ${recording.input.principal.id}`, () => []);
    if (alike.length < size && !alike.some((one) => isSame(one, recording))) alike.push(recording);
  }
  const queues = [...kinds.values()].map((tools) => takeInTurn([...tools.values()]));
  return takeInTurn(queues.sort((a, b) => a.length - b.length)).slice(0, size);
}

/** Returns how a call was decided. */
function kindOf({ decision }: Recording): string {
  return JSON.stringify([decision?.outcome, decision?.reasons.map(({ id }) => id)]);
}

function isSame(one: Recording, other: Recording): boolean {
  return (
    one.input.argsText === other.input.argsText &&
    JSON.stringify([one.input.effect, one.input.labels]) === JSON.stringify([other.input.effect, other.input.labels])
  );
}

/** Yields the first item of each list, then the second of each. */
function takeInTurn<T>(lists: readonly (readonly T[])[]): readonly T[] {
  const longest = Math.max(0, ...lists.map(({ length }) => length));
  return Array.from({ length: longest }, (_, at) => lists.flatMap((list) => list.slice(at, at + 1))).flat();
}

function entry<V>(map: Map<string, V>, key: string, make: () => V): V {
  const value = map.get(key) ?? make();
  map.set(key, value);
  return value;
}
