/** Owns a server that ships with Tollgate and runs in its process: a list of tools that never changes, and a function that answers; refuses a call that was given up. */

import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { RawTool, ToolResult } from '../../../catalogs/tools/tool-definition.ts';
import {
  type Health,
  type InProcessAnswer,
  refusedState,
  type ServerAdapter,
  type ServerInfo,
  type UpstreamCall,
} from '../../port.ts';

/** What such a server is made of. */
export interface InProcessServerParts {
  readonly name: string;
  readonly tools: readonly RawTool[];
  /** Answers one call of one of the tools; its arguments fit their schema. Throws TollgateError. */
  readonly answer: (call: UpstreamCall) => Promise<InProcessAnswer> | InProcessAnswer;
  /** Gives back what it holds; it may be called again afterwards. */
  readonly close?: () => void;
}

/** The server. It has no process of its own, so it is always there. */
export function createInProcessServer({ name, tools, answer, close }: InProcessServerParts): ServerAdapter {
  const info: ServerInfo = { name: `tollgate-${name}`, version: '1', protocolVersion: '2025-11-25' };
  const health: Health = { state: 'healthy', restarts: 0, badLines: 0 };
  return {
    name,
    start: () => Promise.resolve(info),
    listTools: () => Promise.resolve(tools),
    call: async (call) => {
      if (call.signal.aborted) throw new TollgateError('CANCELLED');
      const { text, ...told } = await answer(call);
      const value: ToolResult = { content: [{ type: 'text', text }] };
      return { text: JSON.stringify(value), value, exact: true, ...told };
    },
    health: () => health,
    info: () => info,
    onToolsChanged: () => undefined,
    stop: async () => close?.(),
  };
}

/** A server that can be halted like one with a process. */
export interface HaltableServer extends ServerAdapter {
  /** With a refusal: ends what runs, and refuses calls until it is called without one. */
  halt(refusal: TollgateError | undefined): void;
}

/** `halted` is asked before each call, as by a server (see AdapterOptions). What a backend has beyond a server is not here. */
export function withKillSwitch(
  inner: ServerAdapter,
  halted: (name: string) => TollgateError | undefined,
): HaltableServer {
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
