/** Owns the one vocabulary in which consent to a server is told, to its owner and to models; refuses to call approved what has changed since. */
import type { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { SHIPPED } from '../../../catalogs/servers/shipped-servers.ts';
import { WORKSPACE } from '../../config/servers/server-names.ts';
import type { ConsentStatus, Consents } from './server-consents.ts';
import { changedRefusal } from './server-refusals.ts';
import { type StartSettings, startDifferences } from './start-facts.ts';

/** Where a server stands with its owner. `changed`: what it starts, or a tool of it, is not what was approved. */
export type ConsentWord = ConsentStatus['state'] | 'changed' | 'not needed';

/** The word, and what goes with it. */
export interface ConsentSummary {
  readonly word: ConsentWord;
  /** An owner has taken it out of use; the consent stays. */
  readonly disabled: boolean;
  /** Tools that changed, came or went since they were approved: they wait for the owner. */
  readonly pending: number;
  /** Why it does not start as its files and settings are now; absent where they were not looked at. */
  readonly refusal?: TollgateError;
}

/** What runs in this process is Tollgate itself, and nobody is asked about it. With `settings` its files are looked at. Throws STATE_FAILED. */
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
  const fields =
    settings === undefined || consent === undefined
      ? []
      : startDifferences(consent.facts, await consents.factsOf(settings));
  const hasChanged = consent !== undefined && (pending > 0 || fields.length > 0);
  return {
    word: hasChanged ? 'changed' : state,
    disabled: disabled !== undefined,
    pending,
    ...(fields.length > 0 && { refusal: changedRefusal(server, fields) }),
  };
}
