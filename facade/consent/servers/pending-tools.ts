/**
 * The tools of a server that wait for its owner, stored in one item of limited size. The list of one server never makes
 * calls of other servers slow.
 */
import { createHash } from 'node:crypto';
import { memoize } from '../../../catalogs/text/collections.ts';
import type { RawTool } from '../../../catalogs/tools/tool-definition.ts';
import { type AuditLog, appendQuietly } from '../../audit/audit-log.ts';
import { NO_PRECONDITIONS, OPEN_VIEW, type Precondition, type PreconditionView } from '../preconditions.ts';
import { pendingRefusal, type WhyPending } from './server-refusals.ts';
import type { PendingReason, ToolDrift } from './tool-set.ts';

/** Limits the stored names of one server, because each process reads them again after every write. */
const MAX_NAMES = 500;
const MAX_CHARACTERS = 50_000;

/** The differences of one server that no owner has approved. They count in all processes. */
export interface PendingItem {
  readonly since: string;
  readonly changed: readonly string[];
  readonly added: readonly string[];
  readonly removed: readonly string[];
  /** The number of names that are not stored. If there are any, all tools of the server wait. */
  readonly more?: number;
}

/** The pending tools of all servers at one moment. `mark` changes with them; an empty mark means none. */
export interface PendingTools {
  readonly mark: string;
  readonly why: (server: string, tool: string) => WhyPending | undefined;
}

/** Returns all differences, sorted, because the order of a list does not count as a change. */
export function pendingItemOf({ pending, removed }: ToolDrift, since: string): PendingItem {
  const named = (what: PendingReason): readonly string[] =>
    [...pending]
      .filter(([, why]) => why === what)
      .map(([name]) => name)
      .sort();
  return { since, changed: named('changed'), added: named('new'), removed: [...removed].sort() };
}

/** Returns the part that is stored. */
export function limitPendingItem({ since, changed, added, removed }: PendingItem): PendingItem {
  let [names, characters] = [MAX_NAMES, MAX_CHARACTERS];
  const kept = [changed, added, removed].map((list) =>
    list.filter((name) => (names -= 1) >= 0 && (characters -= name.length) >= 0),
  );
  const more = changed.length + added.length + removed.length - kept.flat().length;
  return { since, changed: kept[0] ?? [], added: kept[1] ?? [], removed: kept[2] ?? [], ...(more > 0 && { more }) };
}

/** Returns whether both withhold the same tools. The names do not matter if the whole server waits. */
export function withholdsSameTools(one: PendingItem, other: PendingItem): boolean {
  if (one.more !== undefined && other.more !== undefined) return true;
  return JSON.stringify({ ...one, since: '' }) === JSON.stringify({ ...other, since: '' });
}

/** Parses a stored item. */
export function readPendingItem(text: string): PendingItem {
  return JSON.parse(text) as PendingItem;
}

/**
 * Returns the pending tools in the rows of all servers. The state returns the same rows until a write, so each row is
 * parsed once. Its mark is computed when a list first needs it.
 */
export const pendingToolsIn = memoize((rows: ReadonlyMap<string, string>): PendingTools => {
  const read = new Map<string, ReturnType<typeof reasonsIn>>();
  let mark: string | undefined;
  return {
    get mark() {
      return (mark ??=
        rows.size === 0
          ? ''
          : createHash('sha256')
              .update(JSON.stringify([...rows]))
              .digest('hex'));
    },
    why: (server, tool) => {
      const text = rows.get(server);
      if (text === undefined) return undefined;
      const reasons = read.get(server) ?? reasonsIn(readPendingItem(text));
      read.set(server, reasons);
      return reasons.of.get(tool) ?? reasons.rest;
    },
  };
});

function reasonsIn({ changed, added, removed, more }: PendingItem): {
  readonly of: ReadonlyMap<string, WhyPending>;
  readonly rest: WhyPending | undefined;
} {
  const each = (names: readonly string[], why: WhyPending) => names.map((name) => [name, why] as const);
  return {
    of: new Map([...each(removed, 'gone'), ...each(added, 'new'), ...each(changed, 'changed')]),
    rest: more === undefined ? undefined : 'many',
  };
}

/** The parts that the record of a changed tool list needs. */
export interface ToolDriftParts {
  /** Stores what a server lists now, and returns what is new in it. `at`, `startedAt`: milliseconds since 1970. */
  readonly tools: {
    note(
      server: string,
      listed: { approved: readonly RawTool[]; now: readonly RawTool[]; at: number; startedAt: number },
    ): Promise<PendingItem | undefined>;
  };
  readonly startedAt: (server: string) => number;
  readonly audit: AuditLog;
  readonly log: { warn(facts: object, line: string): void; error(facts: object, line: string): void };
}

/** Stores the differences for every process, and records them if they are new. Never throws. */
export function recordToolDrift(
  { tools, startedAt, audit, log }: ToolDriftParts,
  server: string,
  drift: { readonly approved: readonly RawTool[]; readonly now: readonly RawTool[] },
): Promise<void> {
  return tools
    .note(server, { ...drift, at: Date.now(), startedAt: startedAt(server) })
    .then((item) => {
      if (item === undefined) return;
      log.warn(
        { server },
        `server ${server} lists other tools than were approved; review them with: tollgate approve ${server}`,
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

/**
 * Returns the precondition for pending tools (HA-15). A list starts no server, so without it one agent would see a tool
 * that another agent was refused.
 */
export function pendingToolsPrecondition(tools: { allPending(): PendingTools }): Precondition {
  return {
    view: () => viewOf(tools.allPending()),
    judge: ({ effect: { server, tool } }) => {
      const why = tools.allPending().why(server, tool);
      if (why !== undefined) throw pendingRefusal(server, why);
      return NO_PRECONDITIONS;
    },
  };
}

const viewOf = memoize(
  ({ mark, why }: PendingTools): PreconditionView =>
    mark === ''
      ? OPEN_VIEW
      : { revision: mark, hides: () => false, withholds: ({ server, tool }) => why(server, tool) !== undefined },
);
