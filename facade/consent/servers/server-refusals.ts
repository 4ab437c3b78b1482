/**
 * The refusals of servers whose present form is not approved. They contain no value, no path and no text of the server.
 */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { ConsentAct } from './consent-store.ts';
import { differenceWords, missingFile, type StartFacts, startDifferences, startHash } from './start-facts.ts';
import type { PendingReason } from './tool-set.ts';

/** The refusal of a server without approval. */
export function unapprovedRefusal(server: string): TollgateError {
  return refusal(
    `Server "${server}" is not started, because no one has approved what it would run.`,
    `The owner reviews it and approves it with \`tollgate approve ${server}\`.`,
    'unapproved',
  );
}

/** The refusal of a server whose start is approved, but not its tools. */
export function toolsUnapprovedRefusal(server: string): TollgateError {
  return refusal(
    `Server "${server}" is not used: no one has approved its tools.`,
    `The owner reviews them and approves them with \`tollgate approve ${server}\`.`,
    'unapproved',
  );
}

/**
 * Returns why a start is not the approved one, or undefined. If a file is missing, that is the reason, whatever else
 * differs.
 */
export function changedStartRefusal(
  server: string,
  approved: { readonly hash: string; readonly facts: StartFacts },
  now: StartFacts,
): TollgateError | undefined {
  if (now.exposed !== undefined) return exposedRefusal(server, now.exposed);
  if (startHash(now) === approved.hash) return undefined;
  return missingRefusal(server, now) ?? changedRefusal(server, startDifferences(approved.facts, now));
}

/** Returns the refusal of a server whose program or script does not exist. It contains no path. */
export function missingRefusal(server: string, facts: StartFacts): TollgateError | undefined {
  const missing = missingFile(facts);
  return missing === undefined
    ? undefined
    : refusal(
        `Server "${server}" cannot start: ${missing} that its command names does not exist.`,
        `The owner installs it, or corrects the entry of the server; \`tollgate servers info ${server}\` shows it.`,
        'missing',
      );
}

/** The refusal of a changed server. It names fields only: values may be secrets, and a field may contain any text. */
export function changedRefusal(server: string, differences: readonly string[]): TollgateError {
  const fields = [...new Set(differences.map(differenceWords))];
  const more = fields.length > 5 ? ` and ${fields.length - 5} more` : '';
  const verb = fields.length === 1 ? 'differs' : 'differ';
  return refusal(
    fields.length === 0
      ? `Server "${server}" is not started: it was approved again with other settings.`
      : `Server "${server}" waits for its owner, because it changed: ` +
          `${fields.slice(0, 5).join(', ')}${more} ${verb} from what was approved.`,
    `The owner reviews the change and approves it with \`tollgate approve ${server}\`.`,
    'changed',
  );
}

/** The refusal of a server whose files an agent could change. */
export function exposedRefusal(server: string, why: string): TollgateError {
  return refusal(
    `Server "${server}" is not started, because an agent could change what it runs: ${why}.`,
    'The owner moves the server to its own folder, best outside the workspace and every allowWrite ' +
      `(for a package runner: sets cwd there), and approves it with \`tollgate approve ${server}\`.`,
    'exposed',
  );
}

/** The refusal of a server that an owner has disabled. */
export function disabledRefusal(server: string, { by, at }: ConsentAct): TollgateError {
  return refusal(
    `Server "${server}" was disabled by ${by} (${at}).`,
    `Continue without it. The owner enables it with \`tollgate servers enable ${server}\`.`,
    'disabled',
  );
}

/** Why a server is refused. Audit records have this word. */
type Refusal = 'unapproved' | 'changed' | 'missing' | 'exposed' | 'damaged' | 'disabled';

function refusal(what: string, next: string, why: Refusal): TollgateError {
  const consent = why === 'disabled' ? 'disabled' : 'lacking';
  const data = { consent, refusal: why };
  return new TollgateError('SERVER_UNAVAILABLE', { detail: what, next, data, retryable: false });
}

/** The refusal of a server whose stored consent is damaged. */
export function damagedRefusal(server: string): TollgateError {
  return refusal(
    `The approval of server "${server}" is damaged, or something other than Tollgate has written it, ` +
      'so it does not count.',
    'The owner finds out what happened to the state folder, then withdraws the approval with ' +
      `\`tollgate revoke ${server}\` and approves again.`,
    'damaged',
  );
}

const PENDING_WORDS = {
  changed: 'is not defined as it was approved',
  new: 'is new, and no one has approved it',
  gone: 'is no longer listed by it',
  many: 'waits with all its other tools, because its list differs in too many tools from what was approved',
} as const;

/** The refusal of a call to a pending tool. It contains no text of the server. */
export function pendingRefusal(server: string, why: WhyPending): TollgateError {
  return new TollgateError('PIN_MISMATCH', {
    detail: `This tool of server "${server}" ${PENDING_WORDS[why]}; it is not called.`,
    next: `Continue without it. The owner reviews the change with \`tollgate approve ${server}\`.`,
    data: { refusal: `tool ${why}` },
  });
}
/** Why a tool waits. `many`: it waits with all other tools of its server. */
export type WhyPending = PendingReason | 'gone' | 'many';
