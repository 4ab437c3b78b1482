/** Runs `approvals watch`: shows requests for approval as they come, until a signal. It decides nothing. */
import { setTimeout as pause } from 'node:timers/promises';
import { desktopNotice } from '../../attention/desktop-notice.ts';
import type { Approval } from '../../consent/approvals/call-approval.ts';
import type { OwnerOptions } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { plural, printable } from '../print.ts';
import { inRows } from '../terminal-rows.ts';
import { approvalData, beginningOf } from './approval-view.ts';
import { type ApprovalContext, withApprovals } from './approvals-actions.ts';

/** Milliseconds between two looks at the state, which other processes write. */
const LOOK_MS = 500;
const BELL = '\u0007';

/** Options of `watch`. Tests look more often. */
export type WatchOptions = OwnerOptions & { readonly lookMs?: number };

/**
 * Prints each pending request once, first those that wait already, and a line when one is decided or ends. Throws
 * CONFIG_INVALID, IDENTITY, STATE_FAILED.
 */
export async function runApprovalWatch(options: WatchOptions, io: Io): Promise<number> {
  const { stopped } = io;
  const end = new AbortController();
  void stopped.then(() => end.abort());
  return withApprovals(options, io, async (context) => {
    const notice = desktopNotice(io);
    const bell = io.isTTY ? 'the bell' : '';
    const how = [bell, notice === undefined ? '' : 'a notice on the desktop'].filter((one) => one !== '').join(' and ');
    io.stderr(`Watching for requests${how === '' ? '' : `, with ${how}`}. Ctrl-C ends it.\n`);
    const shown = new Map<string, Approval>();
    while (!end.signal.aborted) {
      const items = await currentRequests(context);
      showEvents(shown, items, { options, io });
      const fresh = [...items.values()].filter((item) => isPending(item) && !shown.has(item.id));
      for (const item of fresh) shown.set(item.id, item);
      if (fresh.length > 0) show(fresh, context, { options, io });
      if (fresh.length > 0) notice?.(noticeText(fresh));
      await pause(options.lookMs ?? LOOK_MS, undefined, { signal: end.signal }).catch(() => undefined);
    }
    return EXIT.ok;
  });
}

async function currentRequests({ state, store }: ApprovalContext): Promise<ReadonlyMap<string, Approval>> {
  await state.refresh();
  return new Map((await store.list()).map(({ item }) => [item.id, item]));
}

function isPending({ state, expires }: Approval): boolean {
  return state === 'pending' && expires > Date.now();
}

/** What became of a request since it was read. `isLast`: nothing more can. */
interface RequestEvent {
  readonly event: 'approved' | 'denied' | 'used' | 'expired' | 'withdrawn';
  readonly by?: string;
  readonly isLast: boolean;
}

/**
 * An approval for one call is removed when the call uses it, also before this command sees it. A wider one is removed
 * when an owner takes it back.
 */
function eventOf(before: Approval, now: Approval | undefined): RequestEvent | undefined {
  if ((now ?? before).expires <= Date.now()) return { event: 'expired', isLast: true };
  if (now === undefined) return { event: before.scope === 'call' ? 'used' : 'withdrawn', isLast: true };
  const { state, decided } = now;
  if (state !== before.state && state !== 'pending')
    return { event: state, isLast: state !== 'approved', ...(decided !== undefined && { by: decided.by }) };
  return now.uses > before.uses ? { event: 'used', isLast: false } : undefined;
}

/** Prints what became of the shown requests, and updates them. A request that has ended is forgotten. */
function showEvents(
  shown: Map<string, Approval>,
  items: ReadonlyMap<string, Approval>,
  target: { readonly options: WatchOptions; readonly io: Io },
): void {
  for (const before of [...shown.values()]) {
    const now = items.get(before.id);
    const event = eventOf(before, now);
    if (event !== undefined) showEvent(before, { ...event, ...target });
    if (now === undefined || event?.isLast === true) shown.delete(before.id);
    else shown.set(now.id, now);
  }
}

function showEvent(
  { id, binding: { effect } }: Approval,
  { event, by, options, io }: RequestEvent & { readonly options: WatchOptions; readonly io: Io },
): void {
  const time = new Date().toISOString();
  if (options.json === true) io.stdout(`${JSON.stringify({ id, event, by, at: time })}\n`);
  else {
    const actor = by === undefined ? '' : ` by ${by}`;
    io.stdout(
      `${printable(`${time.slice(11, 19)} ${id} (${effect.server}.${effect.tool}) was ${WORDS[event]}${actor}`)}\n`,
    );
  }
}

const WORDS: Readonly<Record<RequestEvent['event'], string>> = {
  approved: 'approved',
  denied: 'denied',
  used: 'approved and used',
  expired: 'not used in time, and has expired',
  withdrawn: 'withdrawn',
};

function show(
  fresh: readonly Approval[],
  { redactor }: ApprovalContext,
  { options, io }: { readonly options: WatchOptions; readonly io: Io },
): void {
  for (const item of fresh) {
    if (options.json === true) io.stdout(`${JSON.stringify(approvalData(item, redactor))}\n`);
    else io.stdout(`${inRows(io, shortText(item, beginningOf(item, redactor)))}\n`);
  }
  if (io.isTTY && options.json !== true) io.stdout(BELL);
}

/** Returns who asks for what, why, and how to decide: the beginning of `approvals show`. */
function shortText({ id, binding, reasons, asked }: Approval, args: string): string {
  const { principal, effect } = binding;
  const time = new Date(asked).toISOString().slice(11, 19);
  const call = `${effect.server}.${effect.tool} (${effect.verb})`;
  return [
    printable(`${time} ${principal.id} asks for ${call}`),
    ...reasons.map((reason) => `  rule       ${printable(`${reason.id}: ${reason.message}`)}`),
    ...effect.paths.map((one) => `  path       ${printable(one.path)}${one.inside ? '' : ' (outside the workspace)'}`),
    ...effect.urls.map((one) => `  reaches    ${printable(one.host === '' ? 'a host that cannot be read' : one.host)}`),
    `  arguments  ${args}`,
    `  Decide: tollgate approvals approve ${id}, or: tollgate approvals deny ${id}`,
  ].join('\n');
}

/** Many requests at once make one notice. */
function noticeText([first, ...others]: readonly Approval[]): string {
  if (first === undefined) return '';
  const { principal, effect } = first.binding;
  const more = others.length === 0 ? '' : `, and ${plural(others.length, 'more request')}`;
  return `${principal.id} asks for ${effect.server}.${effect.tool}${more}`;
}
