/** Owns the face of a session's protocol, message in and reply out; refuses to know pipes, sockets and policy. */
import { type Dispatch, type DispatchOptions, LegacyDispatch } from './legacy-dispatch.ts';
import type { Era } from './protocol-revisions.ts';

/** Requests of one session at once. Above it pipes wait and HTTP refuses, so that a client which only asks cannot fill the memory. */
export const MAX_RUNNING = 1024;

/** Opens the protocol of an era for one session. */
export function openDispatch(era: Era, options: DispatchOptions): Dispatch {
  switch (era) {
    case 'legacy':
      return new LegacyDispatch(options);
  }
}
