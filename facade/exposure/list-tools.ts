/** Answers tools/list from the same table that a call resolves against, already serialised. */
import { abortable } from '../../adapters/port.ts';
import type { CancelSignal } from '../../adapters/rpc/cancellation.ts';
import { type OpenSession, requireOpen } from '../call/identify.ts';
import { failureAfterInterruption, refusalReply } from '../call/refusal.ts';
import type { Redactor } from '../output/redactor.ts';
import { mapStrings } from '../output/result-cleaning.ts';
import type { Reply } from '../serve/facade-port.ts';
import { type ExposedTool, toolIdsOf } from './exposed-tool.ts';
import type { NameTable } from './name-table.ts';
import type { NameTables } from './name-tables.ts';

/**
 * How long a list waits for a server that is asked for the first time, from the time it was asked. Most servers start
 * in this time, because some clients never ask again; a slow server delays no one longer.
 */
export const LIST_WAIT_MS = 5000;

/**
 * What a list is made with. `basis` is read first. `ids`: each tool has `server` and `ids` besides its definition, for
 * hosts.
 */
export interface ListParts {
  readonly ids?: true;
  readonly redactor: Redactor;
  readonly newId: () => string;
  readonly basis: () => string;
  /** Ends the wait for servers. */
  readonly signal: CancelSignal;
}

/** Lists what the session's principal may see, and remembers it. Never throws. */
export async function listTools(exposures: NameTables, session: OpenSession, how: ListParts): Promise<Reply> {
  let basis: string | undefined;
  try {
    requireOpen(session);
    basis = how.basis();
    const table = await abortable(exposures.tableFor(session.principal, session, LIST_WAIT_MS), how.signal);
    session.listed.clear();
    for (const exposed of table.listed) session.listed.set(exposed.name, exposed.pin);
    const text = listText(table, session);
    session.shown = { text, basis };
    return {
      kind: 'result',
      text: withoutSecrets(how.ids === true ? listWithIds(table, session) : text, how.redactor),
    };
  } catch (fault) {
    const thrown = failureAfterInterruption(fault, how.signal, 'no');
    if (basis !== undefined) session.shown = { text: undefined, basis };
    return refusalReply(thrown, { id: how.newId(), redactor: how.redactor, of: 'list' });
  }
}

/** Returns the tools that a session is shown: the tool that reads spills only once there is a spill. */
export function listText(table: NameTable, session: OpenSession): string {
  const reader = readerOf(table, session);
  return reader === undefined ? table.text : `${table.text.slice(0, -2)},${reader.text}]}`;
}

function readerOf({ reader, byName, listed }: NameTable, { reads }: OpenSession): ExposedTool | undefined {
  return reads === undefined || reader !== reads || listed.length === 0 ? undefined : byName.get(reads);
}

/**
 * Returns the same list with the origin of each tool, so that a grant can name it. A server's own keys with these names
 * are ignored.
 */
function listWithIds(table: NameTable, session: OpenSession): string {
  const reader = readerOf(table, session);
  const shown = reader === undefined ? table.listed : [...table.listed, reader];
  return JSON.stringify({
    tools: shown.map((exposed) => ({
      ...(JSON.parse(exposed.text) as object),
      server: exposed.server.name,
      ids: toolIdsOf(exposed),
    })),
  });
}

/** A server may write secrets that it got at its start into its descriptions. */
function withoutSecrets(text: string, redactor: Redactor): string {
  return redactor.touches(text)
    ? JSON.stringify(mapStrings(JSON.parse(text), (part) => redactor.redact(part).value))
    : text;
}
