/** Answers tools/list from the serialised table that calls are resolved against. */
import { abortable } from '../../adapters/port.ts';
import type { CancelSignal } from '../../adapters/rpc/cancellation.ts';
import { type OpenSession, requireOpen } from '../call/identify.ts';
import { failureAfterInterruption, refusalReply } from '../call/refusal.ts';
import type { Redactor } from '../output/redactor.ts';
import { mapStrings } from '../output/result-cleaning.ts';
import type { ListMethod, Reply } from '../serve/facade-port.ts';
import { type ExposedTool, toolIdsOf } from './exposed-tool.ts';
import type { NameTable } from './name-table.ts';
import type { NameTables } from './name-tables.ts';
import type { PromptTables } from './prompt-tables.ts';
import type { ResourceTables } from './resource-tables.ts';
import { LIST_WAIT_MS } from './server-definitions.ts';

/** The parts of a list. `basis` is read first. `ids`: each tool also has `server` and `ids`, for hosts. */
export interface ListParts {
  readonly ids?: true;
  readonly redactor: Redactor;
  readonly newId: () => string;
  readonly basis: () => string;
  /** Ends the wait for servers. */
  readonly signal: CancelSignal;
}

/** Lists what the session's principal may see, and stores it in the session. Never throws. */
export async function listTools(exposures: NameTables, session: OpenSession, how: ListParts): Promise<Reply> {
  let basis: string | undefined;
  try {
    requireOpen(session);
    basis = how.basis();
    const table = await abortable(exposures.tableFor(session.principal, session, LIST_WAIT_MS), how.signal);
    session.listed.clear();
    for (const { name, pin } of shownTools(table, session)) {
      session.listed.set(name, pin);
      if (session.found.has(name)) session.found.set(name, pin);
    }
    const text = listText(table, session);
    session.shown = { text, basis };
    return {
      kind: 'result',
      text: withoutSecrets(how.ids === true ? listWithIds(table, session) : text, how.redactor),
    };
  } catch (fault) {
    const thrown = failureAfterInterruption(fault, how.signal, 'no');
    if (basis !== undefined) session.shown = { text: undefined, basis };
    return refusalReply(thrown, { id: how.newId(), redactor: how.redactor, kind: 'list' });
  }
}

/** Lists resources, templates or prompts for the session's principal. Never throws. */
export async function listDefinitions(
  deps: {
    readonly resources: ResourceTables;
    readonly prompts: PromptTables;
    readonly redactor: Redactor;
    readonly newId: () => string;
  },
  session: OpenSession,
  { method, signal }: { readonly method: Exclude<ListMethod, 'tools/list'>; readonly signal: CancelSignal },
): Promise<Reply> {
  try {
    requireOpen(session);
    const from = { ...session, signal };
    const listing =
      method === 'prompts/list'
        ? deps.prompts.list(session.principal, from)
        : deps.resources.list(
            method === 'resources/list' ? 'resources' : 'resources/templates',
            session.principal,
            from,
          );
    return { kind: 'result', text: await abortable(listing, signal) };
  } catch (thrown) {
    const failure = failureAfterInterruption(thrown, signal, 'no');
    return refusalReply(failure, { id: deps.newId(), redactor: deps.redactor, kind: 'list' });
  }
}

/** The tools of one session whose pins are kept. The oldest is forgotten first. */
const MAX_FOUND = 1_000;

/**
 * Notes that a session found these tools, or called them by their names, the latest last. A definition that changes
 * afterwards is refused until it is found again.
 */
export function noteFound(session: OpenSession, table: NameTable, tools: readonly ExposedTool[]): void {
  const { found, listed } = session;
  for (const { name, pin } of tools) {
    found.delete(name);
    found.set(name, pin);
    if (listed.has(name)) listed.set(name, pin);
  }
  for (const name of found.keys()) if (found.size > MAX_FOUND) found.delete(name);
  if (table.promote > 0) session.finds += 1;
}

/** Returns the list for a session: also what it found last, and the tool that reads spills if there is a spill. */
export function listText(table: NameTable, session: OpenSession): string {
  const more = addedTools(table, session);
  if (more.length === 0) return table.text;
  const texts = more.map(({ text }) => text).join(',');
  return table.listed.length === 0 ? `{"tools":[${texts}]}` : `${table.text.slice(0, -2)},${texts}]}`;
}

function shownTools(table: NameTable, session: OpenSession): readonly ExposedTool[] {
  return [...table.listed, ...addedTools(table, session)];
}

/** Returns what the list of one session shows besides `listed`. Promoted tools have the order of the table. */
function addedTools(table: NameTable, session: OpenSession): readonly ExposedTool[] {
  const reader = readerOf(table, session);
  const promoted = promotedTools(table, session);
  return reader === undefined || promoted.includes(reader) ? promoted : [...promoted, reader];
}

function promotedTools({ listed, visible, promote }: NameTable, { found }: OpenSession): readonly ExposedTool[] {
  if (promote === 0 || found.size === 0) return [];
  const fixed = new Set(listed);
  const behind = visible.filter((one) => found.has(one.name) && !fixed.has(one));
  const names = new Set(behind.map(({ name }) => name));
  const last = new Set([...found.keys()].filter((name) => names.has(name)).slice(-promote));
  return behind.filter(({ name }) => last.has(name));
}

function readerOf({ reader, byName, listed }: NameTable, { reads }: OpenSession): ExposedTool | undefined {
  return reads === undefined || reader !== reads || listed.length === 0 ? undefined : byName.get(reads);
}

/**
 * Returns the same list with the origin of each tool, so that a grant can name it. Keys of a server with these names
 * are removed.
 */
function listWithIds(table: NameTable, session: OpenSession): string {
  return JSON.stringify({
    tools: shownTools(table, session).map((exposed) => ({
      ...(JSON.parse(exposed.text) as object),
      server: exposed.server.name,
      ids: toolIdsOf(exposed),
    })),
  });
}

/** A server may copy secrets from its environment into its descriptions. */
function withoutSecrets(text: string, redactor: Redactor): string {
  return redactor.touches(text)
    ? JSON.stringify(mapStrings(JSON.parse(text), (part) => redactor.redact(part).value))
    : text;
}
