/** Owns the kill switch of a server that runs in this process; refuses its calls and ends what it has running. */
import type { TollgateError } from '../catalogs/errors.ts';
import { type Health, refusedState, type ServerAdapter } from './port.ts';

/** A server that can be halted like one with a process. */
export interface Haltable extends ServerAdapter {
  /** With a refusal: ends what runs, and refuses calls until it is called without one. */
  halt(refusal: TollgateError | undefined): void;
}

/** `halted` is asked before each call, as by a server (see AdapterOptions). What a backend has beyond a server is not here. */
export function haltable(inner: ServerAdapter, halted: (name: string) => TollgateError | undefined): Haltable {
  let refusal: TollgateError | undefined;
  const halt = (now: TollgateError | undefined): void => {
    if (now !== undefined && refusal === undefined) {
      // A command that ignores SIGTERM would go on for seconds after the switch.
      inner.killNow?.();
      // Ending a session that has ended already throws nothing; the rest is told by the next call.
      inner.stop().catch(() => undefined);
    }
    refusal = now;
  };
  const health = (): Health => {
    const { restarts, badLines, ...rest } = inner.health();
    return refusal === undefined
      ? { restarts, badLines, ...rest }
      : { state: refusedState(refusal), reason: `${refusal.message} ${refusal.next}`, restarts, badLines };
  };
  return {
    name: inner.name,
    start: (signal) => inner.start(signal),
    listTools: (signal) => inner.listTools(signal),
    call: async (call) => {
      halt(halted(inner.name));
      if (refusal !== undefined) throw refusal;
      return inner.call(call);
    },
    health,
    info: () => inner.info(),
    onToolsChanged: (listener) => inner.onToolsChanged(listener),
    stop: () => inner.stop(),
    endScope: async (scope) => inner.endScope?.(scope),
    halt,
  };
}
