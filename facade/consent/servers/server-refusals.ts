/** Owns the words in which a server is refused that nobody has agreed to as it is; refuses to name a value, a path or a word of the server in them. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { ConsentAct } from './consent-store.ts';
import type { PendingReason } from './tool-set.ts';

/** Nobody has looked at it. */
export function unapprovedRefusal(server: string): TollgateError {
  return refusal(
    `Server "${server}" is not started, because nobody has approved it as it would run.`,
    `The owner looks at it and approves it with \`tollgate approve ${server}\`.`,
  );
}

/** Its start was agreed to, for a look at its tools alone. */
export function toolsUnapprovedRefusal(server: string): TollgateError {
  return refusal(
    `Server "${server}" is not used: nobody has approved its tools.`,
    `The owner looks at them and approves them with \`tollgate approve ${server}\`.`,
  );
}

/** Names of fields only: values may be secrets, and the text of a field may be anything. */
export function changedRefusal(server: string, fields: readonly string[]): TollgateError {
  const what =
    fields.length === 0
      ? 'it has been approved anew as something else'
      : `${fields.slice(0, 5).join(', ')}${fields.length > 5 ? ` and ${fields.length - 5} more` : ''} ${fields.length === 1 ? 'differs' : 'differ'} from what was approved`;
  return refusal(
    `Server "${server}" is not started: ${what}.`,
    `The owner looks at the change and approves it with \`tollgate approve ${server}\`.`,
  );
}

/** An agent could change what it runs. */
export function exposedRefusal(server: string, why: string): TollgateError {
  return refusal(
    `Server "${server}" is not started, because an agent could change what it runs: ${why}.`,
    `The owner moves the server to a folder of its own, best outside of the workspace and of every allowWrite (for a package runner: sets cwd there), and approves it with \`tollgate approve ${server}\`.`,
  );
}

/** An owner has taken it out of use. */
export function disabledRefusal(server: string, { by, at }: ConsentAct): TollgateError {
  return refusal(
    `Server "${server}" was disabled by ${by} (${at}).`,
    `Go on without it. The owner enables it with \`tollgate servers enable ${server}\`.`,
    'disabled',
  );
}

function refusal(what: string, next: string, consent: 'lacking' | 'disabled' = 'lacking'): TollgateError {
  return new TollgateError('SERVER_UNAVAILABLE', { detail: what, next, data: { consent }, retryable: false });
}

/** What stands against a server whose entry must not be used. */
export function damagedRefusal(server: string): TollgateError {
  return refusal(
    `The approval of server "${server}" is damaged, or something other than Tollgate has written it; it does not count.`,
    `The owner finds out what happened to the state folder, then takes it back with \`tollgate revoke ${server}\` and approves anew.`,
  );
}

const PENDING_WORDS = {
  changed: 'is defined otherwise than it was approved',
  new: 'is new, and nobody has approved it',
  gone: 'is not listed by it any more',
  many: 'waits with all others of it, because its list differs in too much from what was approved',
} as const;

/** What a call of a pending tool is answered with; never a word of the server. */
export function pendingRefusal(server: string, why: WhyPending): TollgateError {
  return new TollgateError('PIN_MISMATCH', {
    detail: `This tool of server "${server}" ${PENDING_WORDS[why]}; it is not called.`,
    next: `Go on without it. The owner looks at the change with \`tollgate approve ${server}\`.`,
  });
}
/** Why a tool waits; `many`: with all others of its server. */
export type WhyPending = PendingReason | 'gone' | 'many';
