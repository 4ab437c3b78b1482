/** Opens the protocol of a session: message in, reply out, independent of the transport. */
import { type Dispatch, type DispatchOptions, LegacyDispatch } from './legacy-dispatch.ts';
import type { Era } from './protocol-revisions.ts';

/**
 * The most requests of one session at once. Above it pipes wait and HTTP refuses, so that a client cannot fill the
 * memory.
 */
export const MAX_RUNNING = 1024;

/** Opens the protocol of an era for one session. */
export function openDispatch(era: Era, options: DispatchOptions): Dispatch {
  switch (era) {
    case 'legacy':
      return new LegacyDispatch(options);
  }
}
