/** Summarises the consent to a server, for its owner and for models. A changed server is never called approved. */
import type { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { SHIPPED } from '../../../catalogs/servers/shipped-servers.ts';
import { WORKSPACE } from '../../config/servers/server-names.ts';
import type { ConsentStatus, Consents } from './server-consents.ts';
import { changedStartRefusal } from './server-refusals.ts';
import type { StartSettings } from './start-facts.ts';

/** The state of consent to a server. `changed`: its start or one of its tools differs from what was approved. */
export type ConsentLabel = ConsentStatus['state'] | 'changed' | 'not needed';

/** The state with its details. */
export interface ConsentSummary {
  readonly word: ConsentLabel;
  /** An owner has disabled it. The consent stays. */
  readonly disabled: boolean;
  /** The number of tools that changed, were added or were removed since the approval. They wait for the owner. */
  readonly pending: number;
  /** Why it does not start with its present files and settings. Absent if they were not checked. */
  readonly refusal?: TollgateError;
}

/**
 * Returns the summary. A server that runs in this process is part of Tollgate and needs no consent. With `settings`,
 * its files are checked too. Throws STATE_FAILED.
 */
export async function consentSummary(
  server: string,
  consents: Pick<Consents, 'statusOf' | 'factsOf' | 'tools'>,
  settings?: StartSettings,
): Promise<ConsentSummary> {
  if (server === WORKSPACE || SHIPPED.has(server)) return { word: 'not needed', disabled: false, pending: 0 };
  const { state, consent, disabled } = consents.statusOf(server);
  const item = consents.tools.pending(server);
  const pending =
    item === undefined ? 0 : item.changed.length + item.added.length + item.removed.length + (item.more ?? 0);
  const refusal =
    settings === undefined || consent === undefined
      ? undefined
      : changedStartRefusal(server, consent, await consents.factsOf(settings));
  const hasChanged = consent !== undefined && (pending > 0 || refusal !== undefined);
  return {
    word: hasChanged ? 'changed' : state,
    disabled: disabled !== undefined,
    pending,
    ...(refusal !== undefined && { refusal }),
  };
}
