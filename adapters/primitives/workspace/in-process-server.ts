/** Internal servers that run in this process, and the kill switch for them. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { RawPrompt } from '../../../catalogs/tools/definition-schema.ts';
import type { RawTool, ToolResult } from '../../../catalogs/tools/tool-definition.ts';
import {
  type Health,
  type InProcessAnswer,
  refusedState,
  type ServerAdapter,
  type ServerInfo,
  type UpstreamCall,
} from '../../port.ts';

/** The parts of an in-process server. */
export interface InProcessServerParts {
  readonly name: string;
  readonly tools: readonly RawTool[];
  /** Answers one call. The arguments match the schema of the tool. Throws TollgateError. */
  readonly answer: (call: UpstreamCall) => Promise<InProcessAnswer> | InProcessAnswer;
  /** The prompts of the server, and the messages of one of them. Absent: none. */
  readonly prompts?: {
    readonly list: () => readonly RawPrompt[];
    readonly get: (params: Readonly<Record<string, unknown>>) => ToolResult;
  };
  /** Releases resources. The server can be called again afterwards. */
  readonly close?: () => void;
}

/** Creates a server whose list of tools never changes. It is always healthy, because it has no process of its own. */
export function createInProcessServer({ name, tools, answer, prompts, close }: InProcessServerParts): ServerAdapter {
  const info: ServerInfo = { name: `tollgate-${name}`, version: '1', protocolVersion: '2025-11-25' };
  const health: Health = { state: 'healthy', restarts: 0, badLines: 0 };
  return {
    name,
    start: () => Promise.resolve(info),
    listTools: () => Promise.resolve(tools),
    ...(prompts !== undefined && {
      list: (async (kind) => (kind === 'prompts' ? prompts.list() : [])) as NonNullable<ServerAdapter['list']>,
    }),
    call: async (call) => {
      if (call.signal.aborted) throw new TollgateError('CANCELLED');
      if (prompts !== undefined && call.method === 'prompts/get') {
        const value = prompts.get(call.args.value);
        return { text: JSON.stringify(value), value, exact: true };
      }
      const { text, media = [], ...facts } = await answer(call);
      const value: ToolResult = { content: [{ type: 'text', text }, ...media] };
      return { text: JSON.stringify(value), value, exact: true, ...facts };
    },
    health: () => health,
    info: () => info,
    onToolsChanged: () => undefined,
    stop: async () => close?.(),
  };
}

/** A server that the kill switch can stop like one with a process. */
export interface HaltableServer extends ServerAdapter {
  /** With a refusal: ends what is running, and refuses calls until it is called with undefined. */
  halt(refusal: TollgateError | undefined): void;
}

/**
 * Wraps an in-process server so that `halted` is checked before each call. The methods of a primitive backend are
 * dropped.
 */
export function withKillSwitch(
  inner: ServerAdapter,
  halted: (name: string) => TollgateError | undefined,
): HaltableServer {
  let refusal: TollgateError | undefined;
  const halt = (newRefusal: TollgateError | undefined): void => {
    if (newRefusal !== undefined && refusal === undefined) {
      // A command that ignores SIGTERM would run for seconds after the switch.
      inner.killNow?.();
      // The next call reports any failure.
      inner.stop().catch(() => undefined);
    }
    refusal = newRefusal;
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
    call: (call) => {
      halt(halted(inner.name));
      return refusal === undefined ? inner.call(call) : Promise.reject(refusal);
    },
    ...(inner.list !== undefined && { list: (kind, signal) => inner.list!(kind, signal) }),
    health,
    info: () => inner.info(),
    onToolsChanged: (listener) => inner.onToolsChanged(listener),
    stop: () => inner.stop(),
    endScope: async (scope) => inner.endScope?.(scope),
    halt,
  };
}
