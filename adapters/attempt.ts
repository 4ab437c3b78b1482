/** Owns what is told of one call, however it ends; refuses to make it twice. */
import { asTollgateError } from '../catalogs/errors.ts';
import type { ToolResult } from '../catalogs/tool.ts';
import type { OnEvent } from './events.ts';
import { UpstreamError } from './port.ts';
import type { JsonDoc, UpstreamCall } from './port.ts';
import type { UpstreamSession } from './session.ts';

/** Where a call goes, and who is told. */
export interface AttemptParts {
  readonly server: string;
  readonly session: UpstreamSession;
  readonly onEvent: OnEvent | undefined;
  readonly onTimeout: () => void;
}

/** Makes the call. Throws as UpstreamSession.call. */
export async function attempt(call: UpstreamCall, { server, session, onEvent, onTimeout }: AttemptParts): Promise<JsonDoc<ToolResult>> {
  const began = performance.now();
  const about = (): { server: string; id: string; tool: string; ms: number } => ({ server, id: call.id ?? session.id, tool: call.tool, ms: Math.round(performance.now() - began) });
  try {
    const result = await session.call(call);
    onEvent?.({ event: 'tool.completed', ...about() });
    return result;
  } catch (thrown) {
    const code = thrown instanceof UpstreamError ? 'TOOL_FAILED' : asTollgateError(thrown).code;
    onEvent?.({ event: 'tool.failed', code, ...about() });
    if (code === 'TOOL_TIMEOUT') onTimeout();
    throw thrown;
  }
}
