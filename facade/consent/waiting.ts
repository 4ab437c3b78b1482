/** Owns what of a server's tools waits for its owner: one item of bounded size, and why a tool may not be used meanwhile; refuses to let the list of one server make calls of the others dear. */
import { createHash } from 'node:crypto';
import type { Drift, Pending } from './tool-set.ts';

/** What is kept of one server: each process reads it again whenever something was written. */
const MAX_NAMES = 500;
const MAX_CHARACTERS = 50_000;

/** What a running facade saw that nobody has approved: one item a server, however much it changed. It counts in all processes (see ./standing.ts). */
export interface PendingItem {
  readonly since: string;
  readonly changed: readonly string[];
  readonly added: readonly string[];
  readonly removed: readonly string[];
  /** How many names there are beside those that are kept: then all tools of the server wait. */
  readonly more?: number;
}

/** Why a tool waits; `many`: with all others of its server. */
export type WhyWaiting = Pending | 'gone' | 'many';

/** What waits of all servers at one moment. `mark` changes whenever something of it does; '': nothing waits. */
export interface Waiting {
  readonly mark: string;
  readonly why: (server: string, tool: string) => WhyWaiting | undefined;
}

/** All that has drifted. Sorted, for the order in which a server lists is no change. */
export function itemOf({ pending, removed }: Drift, since: string): PendingItem {
  const named = (what: Pending): readonly string[] =>
    [...pending]
      .filter(([, why]) => why === what)
      .map(([name]) => name)
      .sort();
  return { since, changed: named('changed'), added: named('new'), removed: [...removed].sort() };
}

/** As much of it as is kept. */
export function boundItem({ since, changed, added, removed }: PendingItem): PendingItem {
  let [names, characters] = [MAX_NAMES, MAX_CHARACTERS];
  const kept = [changed, added, removed].map((list) =>
    list.filter((name) => (names -= 1) >= 0 && (characters -= name.length) >= 0),
  );
  const more = changed.length + added.length + removed.length - kept.flat().length;
  return { since, changed: kept[0] ?? [], added: kept[1] ?? [], removed: kept[2] ?? [], ...(more > 0 && { more }) };
}

/** Whether both withhold the same: of a server that waits as a whole the names mean nothing. */
export function withholdsSame(one: PendingItem, other: PendingItem): boolean {
  if (one.more !== undefined && other.more !== undefined) return true;
  return JSON.stringify({ ...one, since: '' }) === JSON.stringify({ ...other, since: '' });
}

/** An item as it was kept. */
export function readItem(text: string): PendingItem {
  return JSON.parse(text) as PendingItem;
}

const known = new WeakMap<ReadonlyMap<string, string>, Waiting>();

/** What the rows of all servers mean. The state gives the same rows while nothing was written: each is read once, and marked once where a list asks. */
export function waitingIn(rows: ReadonlyMap<string, string>): Waiting {
  const made = known.get(rows) ?? makeWaiting(rows);
  known.set(rows, made);
  return made;
}

function makeWaiting(rows: ReadonlyMap<string, string>): Waiting {
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
      const reasons = read.get(server) ?? reasonsIn(readItem(text));
      read.set(server, reasons);
      return reasons.of.get(tool) ?? reasons.rest;
    },
  };
}

function reasonsIn({ changed, added, removed, more }: PendingItem): {
  readonly of: ReadonlyMap<string, WhyWaiting>;
  readonly rest: WhyWaiting | undefined;
} {
  const each = (names: readonly string[], why: WhyWaiting) => names.map((name) => [name, why] as const);
  return {
    of: new Map([...each(removed, 'gone'), ...each(added, 'new'), ...each(changed, 'changed')]),
    rest: more === undefined ? undefined : 'many',
  };
}
