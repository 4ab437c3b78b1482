/** Counts the faults of a port, whatever stands behind it. */

/** The same port; `onFault` is told of each call that throws or rejects. */
export function countFaults<T extends object>(port: T, onFault: () => void): T {
  const known = new Map<PropertyKey, unknown>();
  const counted = (name: PropertyKey, method: (...args: readonly unknown[]) => unknown) => (...args: readonly unknown[]): unknown => {
    try {
      const answer = method.apply(port, [...args]);
      if (answer instanceof Promise) answer.catch(onFault);
      return answer;
    } catch (thrown) {
      onFault();
      throw thrown;
    }
  };
  return new Proxy(port, {
    get: (_port, name) => {
      const found = known.get(name);
      if (found !== undefined) return found;
      const member: unknown = Reflect.get(port, name, port);
      if (typeof member !== 'function') return member;
      const made = counted(name, member as (...args: readonly unknown[]) => unknown);
      known.set(name, made);
      return made;
    },
  });
}
