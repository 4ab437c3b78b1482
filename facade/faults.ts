/** Counts the faults of a port, whatever stands behind it. */

/** The same port; `onFault` is told of each call that throws or rejects. */
export function countFaults<T extends object>(port: T, onFault: () => void): T {
  const known = new Map<unknown, unknown>();
  const counted =
    (method: (...args: readonly unknown[]) => unknown) =>
    (...args: readonly unknown[]): unknown => {
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
      const member: unknown = Reflect.get(port, name, port);
      if (typeof member !== 'function') return member;
      const made = known.get(member) ?? counted(member as (...args: readonly unknown[]) => unknown);
      known.set(member, made);
      return made;
    },
  });
}
