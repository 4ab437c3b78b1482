/**
 * The one list of what needs a person's attention: computed from sources, ranked, with ids that stay the same. What
 * agents and servers cause is limited by kind, so that a flood of one kind hides nothing else.
 */
import { createHash } from 'node:crypto';
import { asTollgateError } from '../../catalogs/errors/error-table.ts';
import type { Awaitable } from '../../catalogs/text/awaitable.ts';
import { printable } from '../../catalogs/text/readable-text.ts';
import type { Redactor } from '../output/redactor.ts';

/**
 * How serious each kind is. It depends on nothing that an agent or a server says. 1: Tollgate cannot keep a promise.
 * 2: someone waits, or calls fail. 3: something is off, or soon will be. 4: look at it some time.
 */
const RANKS = {
  unknown: 1,
  'audit-fault': 1,
  'audit-failed': 1,
  'disk-full': 1,
  'switched-off': 2,
  'policy-failed': 2,
  'reload-refused': 2,
  approval: 2,
  plan: 2,
  'server-failed': 3,
  'server-killed': 3,
  'server-changed': 3,
  'tools-changed': 3,
  'server-unapproved': 3,
  suspended: 3,
  'budget-spent': 3,
  'budget-low': 3,
  'audit-unproven': 3,
  'notices-failed': 3,
  'heads-failed': 3,
  'server-requested': 3,
  'service-proposed': 3,
  'finding-missing': 3,
  'server-disabled': 4,
  'finding-weak': 4,
  'rules-unused': 4,
  'key-exposed': 4,
} as const satisfies Readonly<Record<string, 1 | 2 | 3 | 4>>;

/** A kind of item. Its name never changes, because scripts and notices use it. */
export type AttentionKind = keyof typeof RANKS;

/** All kinds, the most serious first. */
export const ATTENTION_KINDS = (Object.keys(RANKS) as AttentionKind[]).sort((one, other) => RANKS[one] - RANKS[other]);

/** Something that needs attention. Its texts are cut, and hold no secret, no payload and nothing a terminal obeys. */
export interface AttentionItem {
  /** The same for the same kind and subject, in every process. */
  readonly id: string;
  readonly kind: AttentionKind;
  readonly rank: 1 | 2 | 3 | 4;
  /** One line: what it is. */
  readonly title: string;
  /** More about it; empty if the title says all. */
  readonly detail: string;
  /** The command that shows it. It decides nothing by itself. */
  readonly next: string;
  /** ISO 8601, if it is known. */
  readonly since?: string;
  /** What it is about: the id of a request or a principal, the name of a server or a budget. */
  readonly subject: string;
}

/**
 * An item as a source finds it. `since`: ms since 1970. `from`: who caused it; items of one cannot hide those of
 * others.
 */
export interface FoundItem {
  readonly kind: AttentionKind;
  readonly subject: string;
  readonly from?: string;
  readonly title: string;
  readonly detail?: string;
  readonly next: string;
  readonly since?: number | undefined;
}

/** Finds items. What it throws becomes an item: it is then not known whether something needs attention. */
export interface AttentionSource {
  readonly name: string;
  readonly find: () => Awaitable<readonly FoundItem[]>;
}

/** The most items of one kind, without the one that counts the others. */
export const MOST_OF_KIND = 20;
const [TITLE_CHARS, DETAIL_CHARS, SUBJECT_CHARS] = [160, 500, 100];
/** Characters of a text that are read. */
const MAX_CHARS = 65_536;

/** Asks all sources. Returns the items, the most serious first, then the oldest. Never throws. */
export async function listAttention(
  sources: readonly AttentionSource[],
  redactor: Pick<Redactor, 'redact'>,
): Promise<readonly AttentionItem[]> {
  const found = (await Promise.all(sources.map(ask))).flat();
  const byKind = new Map<AttentionKind, FoundItem[]>();
  for (const item of found) {
    const kind = byKind.get(item.kind);
    if (kind === undefined) byKind.set(item.kind, [item]);
    else kind.push(item);
  }
  return [...byKind.values()]
    .flatMap((all) => withinLimit(all).map((item) => itemOf(item, redactor)))
    .sort(
      (one, other) =>
        one.rank - other.rank ||
        compare(one.since ?? '', other.since ?? '') ||
        ATTENTION_KINDS.indexOf(one.kind) - ATTENTION_KINDS.indexOf(other.kind) ||
        compare(one.id, other.id),
    );
}

async function ask({ name, find }: AttentionSource): Promise<readonly FoundItem[]> {
  try {
    return await find();
  } catch (thrown) {
    const { message, next } = asTollgateError(thrown);
    return [{ kind: 'unknown', subject: name, title: `Not known: ${name}`, detail: message, next }];
  }
}

/** Takes the oldest of each cause in turn, so that a flood of one leaves room for the others, and counts the rest. */
function withinLimit(all: readonly FoundItem[]): readonly FoundItem[] {
  if (all.length <= MOST_OF_KIND) return all;
  const causes = new Map<string, FoundItem[]>();
  for (const item of [...all].sort((one, other) => (one.since ?? 0) - (other.since ?? 0))) {
    const same = causes.get(item.from ?? '');
    if (same === undefined) causes.set(item.from ?? '', [item]);
    else same.push(item);
  }
  const kept: FoundItem[] = [];
  for (let turn = 0; kept.length < MOST_OF_KIND; turn += 1)
    for (const items of causes.values()) {
      const item = items[turn];
      if (item !== undefined && kept.length < MOST_OF_KIND) kept.push(item);
    }
  const { kind, next, since } = all[0] as FoundItem;
  const more = (all.length - kept.length).toLocaleString('en');
  // No `from` and a subject that no item has: the count changes, and the id stays.
  return [...kept, { kind, subject: '', title: `And ${more} more (${kind})`, next: listOf(next), since }];
}

/** The command that shows all items of the kind of one. */
function listOf(next: string): string {
  const [program = '', command = ''] = next.split(' ');
  if (command === 'approve') return `${program} servers`;
  return `${program} ${command}${command === 'approvals' || command === 'plan' ? ' list' : ''}`;
}

function itemOf(item: FoundItem, redactor: Pick<Redactor, 'redact'>): AttentionItem {
  const clean = (text: string, most: number): string => {
    const safe = printable(redactor.redact(text.slice(0, MAX_CHARS)).value);
    return safe.length > most ? `${safe.slice(0, most - 1)}…` : safe;
  };
  const { kind, subject, title, detail = '', next, since } = item;
  return {
    id: idOf(item),
    kind,
    rank: RANKS[kind],
    title: clean(title, TITLE_CHARS),
    detail: clean(detail, DETAIL_CHARS),
    next: clean(next, TITLE_CHARS),
    ...(since !== undefined && Number.isFinite(since) && { since: new Date(since).toISOString() }),
    subject: clean(subject, SUBJECT_CHARS),
  };
}

function idOf({ kind, subject }: Pick<FoundItem, 'kind' | 'subject'>): string {
  return createHash('sha256').update(`${kind}\0${subject}`).digest('hex').slice(0, 16);
}

function compare(one: string, other: string): number {
  return one < other ? -1 : Number(one > other);
}
