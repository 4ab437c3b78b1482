/**
 * Tells the owner of new items, on the desktop and by a webhook. A notice has ids, kinds and counts: no text of an
 * agent or a server, no secret, no payload. A notice that cannot be sent is lost, and no call waits for one.
 */
import type { Config } from '../config/config.ts';
import type { AttentionItem, AttentionKind } from './attention-list.ts';
import { desktopNotice } from './desktop-notice.ts';

/** What notices are made with. `settings` is called each time, so that a new configuration applies. */
export interface NoticeParts {
  readonly settings: () => Config['notices'];
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly home: string;
}

/** The body of a webhook. A test compares it with docs/attention.md. */
export interface NoticeBody {
  readonly version: 1;
  readonly added: readonly Pick<AttentionItem, 'id' | 'kind' | 'rank'>[];
  /** The number of present items, by kind. */
  readonly counts: Readonly<Partial<Record<AttentionKind, number>>>;
}

/** How long a webhook may take, ms, and the least time between two. */
const [TIMEOUT_MS, QUIET_MS] = [5_000, 5_000];
/** The most items of one notice; `counts` has them all. */
const MOST_ADDED = 100;

/** Returns the function that sends notices. It never throws, and waits for nothing. */
export function createNotices({ settings, env, home }: NoticeParts) {
  let waiting: AttentionItem[] = [];
  let isSending = false;
  let counts: NoticeBody['counts'] = {};
  const send = async (address: string): Promise<void> => {
    isSending = true;
    while (waiting.length > 0) {
      const added = waiting.slice(0, MOST_ADDED).map(({ id, kind, rank }) => ({ id, kind, rank }));
      waiting = [];
      await post(address, { version: 1, added, counts });
      await new Promise<void>((resolve) => setTimeout(resolve, QUIET_MS).unref());
    }
    isSending = false;
  };
  return (added: readonly AttentionItem[], all: readonly AttentionItem[]): void => {
    const { desktop, webhook } = settings();
    if (desktop) desktopNotice({ env, home })?.(desktopText(added));
    counts = countsOf(all);
    if (webhook === undefined) return;
    waiting = [...waiting, ...added].slice(0, MOST_ADDED);
    if (!isSending) void send(webhook);
  };
}

/** A redirect is not followed: the owner named this address, and no other. */
async function post(address: string, body: NoticeBody): Promise<void> {
  try {
    const response = await fetch(address, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
      redirect: 'manual',
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    await response.body?.cancel();
  } catch {
    // The list itself stays, in every other view.
  }
}

function countsOf(items: readonly AttentionItem[]): NoticeBody['counts'] {
  const counts = new Map<AttentionKind, number>();
  for (const { kind } of items) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  return Object.fromEntries(counts);
}

function desktopText(added: readonly AttentionItem[]): string {
  const kinds = [...new Set(added.map(({ kind }) => kind))].slice(0, 3).join(', ');
  return `${added.length} new: ${kinds}. See: tollgate status`;
}
