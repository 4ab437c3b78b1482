/** Owns what is done when a server lists something else than was approved: one item for the owner and all processes, and one record; refuses to let it fail a list. */
import type { RawTool } from '../../catalogs/tool.ts';
import { appendQuietly, type Shared } from '../shared.ts';

/** Keeps it for whoever looks at servers and for every process that shows them, and records it when it is new. Never throws. */
export function noteDrift(
  { consents, audit, log }: Pick<Shared, 'consents' | 'audit' | 'log'>,
  server: string,
  drift: { readonly approved: readonly RawTool[]; readonly now: readonly RawTool[] },
): Promise<void> {
  return consents.tools
    .note(server, { ...drift, at: Date.now(), startedAt: consents.startedAt(server) })
    .then((item) => {
      if (item === undefined) return;
      log.warn(
        { server },
        `server ${server} lists other tools than were approved; look at them with: tollgate approve ${server}`,
      );
      appendQuietly(audit, {
        type: 'consent',
        event: 'pending',
        server,
        outcome: 'deny',
        changed: item.changed.length,
        added: item.added.length,
        removed: item.removed.length,
      });
    })
    .catch((thrown: unknown) => log.error({ err: thrown }, 'consent'));
}
