/** Owns a server that ships with Tollgate and runs in its process: a list of tools that never changes, and a function that answers; refuses a call that was given up. */
import { TollgateError } from '../../catalogs/errors.ts';
import type { RawTool, ToolResult } from '../../catalogs/tool.ts';
import type { Health, ServerAdapter, ServerInfo, Spoken, UpstreamCall } from '../port.ts';

/** What such a server is made of. */
export interface InProcess {
  readonly name: string;
  readonly tools: readonly RawTool[];
  /** Answers one call of one of the tools; its arguments fit their schema. Throws TollgateError. */
  readonly answer: (call: UpstreamCall) => Promise<Spoken> | Spoken;
  /** Gives back what it holds; it may be called again afterwards. */
  readonly close?: () => void;
}

/** The server. It has no process of its own, so it is always there. */
export function createInProcess({ name, tools, answer, close }: InProcess): ServerAdapter {
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
