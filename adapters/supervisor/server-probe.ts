/** Owns the one look at what a server says of itself, for a person who decides on it; refuses to call anything, and leaves nothing running. */
import type { ServerProbeResult } from '../port.ts';
import { connectionTo } from './server-pool.ts';
import { type ServerSettings, startRefusal } from './server-settings.ts';
import type { AdapterOptions } from './supervisor.ts';
import { UpstreamSession } from './upstream-session.ts';

const LIST_MS = 30_000;

/** Starts or reaches the server, lists, and ends it. Throws as ServerAdapter.start and listTools. `signal` ends it early. */
export async function probeServer(
  settings: ServerSettings,
  options: AdapterOptions & { readonly signal: AbortSignal },
): Promise<ServerProbeResult> {
  const refusal = startRefusal(settings) ?? (await options.consent?.(settings));
  if (refusal !== undefined) throw refusal;
  const session: UpstreamSession = new UpstreamSession(settings.name, connectionTo(settings, options), {
    onToolsChanged: () => undefined,
    onBad: () => undefined,
    onRefused: (refused) =>
      options.onEvent?.({ event: 'request.refused', ...refused, server: settings.name, id: session.id }),
    onClosed: () => undefined,
  });
  const kill = (): void => session.kill();
  options.signal.addEventListener('abort', kill);
  process.once('exit', kill);
  try {
    const info = await session.open(settings.connectTimeoutMs);
    const { entries: tools, unfit } = await session.listTools(LIST_MS);
    const prompts = await session.listPrompts(LIST_MS);
    return {
      info,
      tools,
      prompts,
      ...(unfit.length > 0 && { unfit }),
      ...(session.said.instructions !== undefined && { instructions: session.said.instructions }),
    };
  } finally {
    await session.close();
    options.signal.removeEventListener('abort', kill);
    process.off('exit', kill);
  }
}
