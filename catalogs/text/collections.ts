/** Operations on lists and objects that Node 20 does not have. */

/** `T` with an optional field for each field that may be undefined. */
type DefinedFields<T> = { [K in keyof T as undefined extends T[K] ? K : never]?: Exclude<T[K], undefined> } & {
  [K in keyof T as undefined extends T[K] ? never : K]: T[K];
};

/** Returns an object without the fields that are undefined. */
export function definedFields<T extends object>(object: T): DefinedFields<T> {
  return Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined)) as DefinedFields<T>;
}

/** Returns the items by their key, in order. */
export function groupBy<K, T>(items: Iterable<T>, keyOf: (item: T) => K): Map<K, T[]> {
  const groups = new Map<K, T[]>();
  for (const item of items) {
    const key = keyOf(item);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [item]);
    else group.push(item);
  }
  return groups;
}

/** Returns a function that makes a value once for each object, and keeps it as long as the object. */
export function memoize<K extends object, V>(make: (key: K) => V): (key: K) => V {
  const known = new WeakMap<K, { readonly value: V }>();
  return (key) => {
    let found = known.get(key);
    if (found === undefined) {
      found = { value: make(key) };
      known.set(key, found);
    }
    return found.value;
  };
}
