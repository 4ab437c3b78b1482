/** Makes a loaded configuration immutable, including maps. A later write throws. */

/** Freezes a plain value and everything in it, in place, and returns it. */
export function freezeDeep<T>(value: T): T {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value)) return value;
  Object.freeze(value);
  const inner: Iterable<unknown> =
    value instanceof Map ? (value as Map<unknown, unknown>).values() : Object.values(value);
  for (const item of inner) freezeDeep(item);
  return value;
}

/** A map that cannot change. Object.freeze alone does not prevent `set`. */
export class FrozenMap<K, V> extends Map<K, V> {
  readonly #sealed: boolean = false;

  constructor(entries: Iterable<readonly [K, V]>) {
    super();
    for (const [key, value] of entries) super.set(key, value);
    this.#sealed = true;
  }

  override set(key: K, value: V): this {
    if (this.#sealed) throw new TypeError('this map is frozen');
    return super.set(key, value);
  }

  override delete(): boolean {
    throw new TypeError('this map is frozen');
  }

  override clear(): void {
    throw new TypeError('this map is frozen');
  }
}
