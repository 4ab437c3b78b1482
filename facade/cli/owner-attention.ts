/** What needs attention, as an owner at this machine sees it: also files of clients, and files of servers. */
import { attentionSources } from '../attention/attention-sources.ts';
import { createDigest, readAuditKey } from '../audit/key-files.ts';
import { rootsAt } from '../clients/client-places.ts';
import type { Config } from '../config/config.ts';
import { Consents } from '../consent/servers/server-consents.ts';
import type { State } from '../state/state-port.ts';
import type { Io } from './command-io.ts';
import type { Wiring } from './wiring.ts';

/** Returns the sources of the list. Throws STATE_FAILED. */
export function ownerAttention(
  { config, state }: { readonly config: Config; readonly state: State },
  io: Io,
  { inspect }: Pick<Wiring, 'inspect'>,
): ReturnType<typeof attentionSources> {
  const digest = createDigest(readAuditKey(config.state));
  const consents = new Consents(state, { folder: config.folder, inspect, digest });
  const roots = rootsAt(config.folder, io);
  return attentionSources({ config, state, consents, now: Date.now, readsFiles: true, roots });
}
