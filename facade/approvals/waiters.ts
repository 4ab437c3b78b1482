/** Owns the knowledge which requests somebody still waits for, in all processes; refuses to count a process that is dead. */
import type { State } from '../state/state.ts';

const SPACE = 'waiting';

/** Does `work` while it is known that this call waits for the request. */
export async function whileWaiting<T>(
  state: State,
  { id, call }: { readonly id: string; readonly call: string },
  work: () => Promise<T>,
): Promise<T> {
  const key = `${id}/${call}`;
  await state.put(SPACE, key, state.mark());
  try {
    return await work();
  } finally {
    await state.remove(SPACE, key);
  }
}

/** The ids of the requests that a call is waiting for. What a dead process has left is removed. */
export async function awaited(state: State): Promise<ReadonlySet<string>> {
  const ids = new Set<string>();
  for (const [key, text] of state.list(SPACE)) {
    if (state.isAlive(text)) ids.add(key.slice(0, key.indexOf('/')));
    else await state.remove(SPACE, key);
  }
  return ids;
}
