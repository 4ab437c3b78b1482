/** Owns where two texts of arguments differ, by JSON pointer; refuses to show a value of either. */

/** Names of keys come from callers, and stand in a refusal. */
const MAX_POINTER = 120;

/** Where the arguments differ: `at /to`, or how. Both are texts of JSON objects. */
export function whereDiffers(approved: string, asked: string): string {
  if (approved === asked) return 'in a secret';
  const pointer = firstDifference(JSON.parse(approved), JSON.parse(asked), '');
  if (pointer !== undefined) return `at ${pointer === '' ? '/' : pointer.slice(0, MAX_POINTER)}`;
  return 'in the order of keys, the spelling of a number, or blanks';
}

function firstDifference(one: unknown, other: unknown, at: string): string | undefined {
  if (!isContainer(one) || !isContainer(other) || Array.isArray(one) !== Array.isArray(other))
    return Object.is(one, other) ? undefined : at;
  const [left, right] = [new Map(Object.entries(one)), new Map(Object.entries(other))];
  for (const key of new Set([...left.keys(), ...right.keys()])) {
    const here = `${at}/${key.replaceAll('~', '~0').replaceAll('/', '~1')}`;
    if (!left.has(key) || !right.has(key)) return here;
    const deeper = firstDifference(left.get(key), right.get(key), here);
    if (deeper !== undefined) return deeper;
  }
  return undefined;
}

function isContainer(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}
