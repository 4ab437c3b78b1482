/** Values that are present at once or later, so that a call waits only when it must. */

/** A value at once, or its promise. */
export type Awaitable<T> = T | Promise<T>;

/** Continues with a value: in the same turn if it is present, otherwise when its promise resolves. */
export function andThen<T, R>(value: Awaitable<T>, next: (present: T) => Awaitable<R>): Awaitable<R> {
  return value instanceof Promise ? value.then(next) : next(value);
}
