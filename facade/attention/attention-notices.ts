/**
 * Tells the owner of new items, on the desktop and by a webhook. A notice has ids, kinds and counts: no text of an
 * agent or a server, no secret, no payload. A notice that cannot be sent is tried again a few times, and no call waits
 * for one.
 */
import type { Config } from '../config/config.ts';
import type { AttentionItem, AttentionKind } from './attention-list.ts';
import { desktopNotice } from './desktop-notice.ts';

/** What notices are made with. `settings` is called each time, so that a new configuration applies. */
export interface NoticeParts {
  readonly settings: () => Config['notices'];
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly home: string;
  /** Called when the webhook did not take a notice after all tries, and when it takes one. Must not throw. */
  readonly onDelivery: (failure: NoticeFailure | undefined) => void;
  /** Default: QUIET_MS. Tests wait less. */
  readonly quietMs?: number;
}

/** Why the webhook did not take a notice. It has no address, which may be secret. */
export type NoticeFailure = `status ${number}` | 'no answer';

/** The body of a webhook. A test compares it with docs/attention.md. */
export interface NoticeBody {
  readonly version: 1;
  readonly added: readonly Pick<AttentionItem, 'id' | 'kind' | 'rank'>[];
  /** The number of present items, by kind. */
  readonly counts: Readonly<Partial<Record<AttentionKind, number>>>;
}

/** How long a webhook may take, ms, and the least time between two requests. */
const [TIMEOUT_MS, QUIET_MS] = [5_000, 5_000];
/** Tries of one notice. The time before the next try doubles: all of them take less than three minutes. */
const TRIES = 6;
/** The most items of one notice; `counts` has them all. */
const MOST_ADDED = 100;

/** Returns the function that sends notices. It never throws, and waits for nothing. */
export function createNotices({ settings, env, home, onDelivery, quietMs = QUIET_MS }: NoticeParts) {
  let waiting: readonly AttentionItem[] = [];
  let isSending = false;
  let counts: NoticeBody['counts'] = {};
  // What is added between two tries is sent with the next one.
  const send = async (): Promise<void> => {
    isSending = true;
    for (let failed = 0; waiting.length > 0; ) {
      const { webhook } = settings();
      if (webhook === undefined) break;
      const batch = waiting.slice(0, MOST_ADDED);
      const added = batch.map(({ id, kind, rank }) => ({ id, kind, rank }));
      const failure = await post(webhook, { version: 1, added, counts });
      failed = failure === undefined ? 0 : failed + 1;
      const isOver = failure === undefined || failed === TRIES;
      if (isOver) {
        waiting = waiting.filter((item) => !batch.includes(item));
        onDelivery(failure);
      }
      const ms = failed === 0 || isOver ? quietMs : quietMs * 2 ** (failed - 1);
      if (isOver) failed = 0;
      await new Promise<void>((resolve) => setTimeout(resolve, ms).unref());
    }
    isSending = false;
  };
  return (added: readonly AttentionItem[], all: readonly AttentionItem[]): void => {
    const { desktop, webhook } = settings();
    if (desktop) desktopNotice({ env, home })?.(desktopText(added));
    counts = countsOf(all);
    if (webhook === undefined) return;
    waiting = [...waiting, ...added].slice(0, MOST_ADDED);
    if (!isSending) void send();
  };
}

/** Returns why it was not taken. A redirect is not followed: the owner named this address, and no other. */
async function post(address: string, body: NoticeBody): Promise<NoticeFailure | undefined> {
  try {
    const response = await fetch(address, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
      redirect: 'manual',
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    await response.body?.cancel();
    return response.ok ? undefined : `status ${response.status}`;
  } catch {
    return 'no answer';
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
