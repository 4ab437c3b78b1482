/**
 * The wait for an approval: a pause that certain events end, and progress messages for the client. It does not keep the
 * process alive.
 */

import { setMaxListeners } from 'node:events';
import type { State } from '../../state/state-port.ts';

/** Milliseconds between progress messages. */
const TELL_MS = 5_000;

/** Resolves after `ms`, or as soon as one of the signals is aborted. */
export function waitUntilAborted(ms: number, signals: readonly AbortSignal[]): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      for (const signal of signals) signal.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    // Many calls of one session listen to its end. The warning about a leak would be wrong.
    setMaxListeners(0, ...signals);
    for (const signal of signals) signal.addEventListener('abort', done, { once: true });
    if (signals.some(({ aborted }) => aborted)) done();
  });
}

type Send = (params: Readonly<Record<string, unknown>>) => void;

/**
 * Sends notifications/progress for a waiting call (MCP 2025-11-25, basic/utilities/progress), if the client gave a
 * token.
 */
export class WaitProgress {
  readonly #send: Send | undefined;
  readonly #waitMs: number;
  #next: number;

  constructor(send: Send | undefined, waitMs: number) {
    this.#send = send;
    this.#waitMs = waitMs;
    this.#next = waitMs;
  }

  /** Sends the seconds waited, at most once in five seconds. */
  report(leftMs: number, id: string): void {
    if (leftMs > this.#next) return;
    this.#next = leftMs - TELL_MS;
    this.#send?.({
      progress: Math.round((this.#waitMs - leftMs) / 1000),
      total: Math.round(this.#waitMs / 1000),
      message: `Waiting for a person to approve this call (${id}).`,
    });
  }
}

/** Merges the progress of the wait for a person with that of the server, because progress must increase. */
export function mergeProgress(send: Send): { readonly onWait: Send; readonly onProgress: Send } {
  let waited: number | undefined;
  return {
    onWait: (params) => {
      const progress = Number(params.progress);
      // A second wait continues from the first.
      if (waited !== undefined && progress <= waited) return;
      waited = progress;
      send(params);
    },
    onProgress: (params) => send(waited === undefined ? params : { ...params, ...after(waited + 1, params) }),
  };
}

function after(
  offset: number,
  { progress, total }: Readonly<Record<string, unknown>>,
): Readonly<Record<string, unknown>> {
  return {
    ...(typeof progress === 'number' && { progress: progress + offset }),
    ...(typeof total === 'number' && { total: total + offset }),
  };
}

const SPACE = 'waiting';

/** Runs `work`, and lists this call as waiting for the request meanwhile. */
export async function whileRequestWaits<T>(
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

/** Returns the ids of the requests that calls wait for. Removes the entries of dead processes. */
export async function awaitedRequests(state: State): Promise<ReadonlySet<string>> {
  const all = [...state.list(SPACE)];
  const dead = new Set(all.filter(([, mark]) => !state.isAlive(mark)));
  for (const [key] of dead) await state.remove(SPACE, key);
  return new Set(all.filter((one) => !dead.has(one)).map(([key]) => key.slice(0, key.indexOf('/'))));
}
