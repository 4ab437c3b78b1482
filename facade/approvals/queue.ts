/** Owns the way of one asked call to its answer: a consent that stands is used up, else a person is asked and waited for; refuses whatever differs from what was shown. */
import { asTollgateError, TollgateError } from '../../catalogs/errors.ts';
import type { Effect } from '../../policies/port.ts';
import type { Approvals, AskedCall } from '../approvals.ts';
import type { AuditEntry } from '../audit/entry.ts';
import type { ApprovalsConfig } from '../config/approvals.ts';
import type { Redactor } from '../output/redact.ts';
import type { OpenSession } from '../session.ts';
import type { State } from '../state/state.ts';
import { type Approval, ApprovalStore, entryOf, type Stored } from './item.ts';
import { deniedBy, findNearest, refuseFull, refuseGone, refusePending } from './refusals.ts';
import { bindRequest, type Request } from './request.ts';
import { Progress, pause } from './wait.ts';
import { whileWaiting } from './waiters.ts';

/** What the queue stands on. */
export interface ApprovalParts {
  readonly settings: ApprovalsConfig;
  readonly state: State;
  /** Throws AUDIT_FAILED. */
  readonly append: (entry: AuditEntry) => void;
  readonly digest: (text: string) => string;
  readonly redactor: Redactor;
  readonly now: () => number;
  /** Pin of what would be called now, and of all definitions of its server; undefined where nothing is listed. */
  readonly pinOf: (effect: Effect) => string | undefined;
  readonly setOf: (server: string) => string;
  /** What stands against a server now; before somebody is asked, also against its start where it does not run. */
  readonly refusalOf: (server: string, before: 'asking' | 'waiting') => Promise<TollgateError | undefined>;
  /** Told of each new request, for a person. */
  readonly onAsked: (item: Approval) => void;
  /** Told how many calls wait more, or fewer. */
  readonly onWaiting: (change: 1 | -1) => void;
}

/** How often other processes are listened to, ms. */
const POLL_MS = 250;
/** Calls of one session that wait at once, and requests of one principal that are open: a person who is asked without end approves without reading (consent fatigue). */
const MAX_WAITING = 16;
const MAX_OPEN = 20;

/** The approvals of calls under one configuration. */
export class ApprovalQueue implements Approvals {
  readonly #parts: ApprovalParts;
  readonly #store: ApprovalStore;
  readonly #waiting = new WeakMap<OpenSession, number>();
  readonly #over = new AbortController();

  constructor(parts: ApprovalParts) {
    this.#parts = parts;
    this.#store = new ApprovalStore(parts.state);
  }

  async obtain(call: AskedCall): Promise<string | undefined> {
    const request = bindRequest(call, this.#parts);
    await this.#mayRun(request, 'asking');
    const known = await this.#look(request);
    if (typeof known === 'string') return known;
    const { session } = call.caller;
    const waiting = this.#waiting.get(session) ?? 0;
    if (waiting >= MAX_WAITING)
      throw known === undefined
        ? refuseFull(request, `${waiting} calls of this session wait for approval already`)
        : await this.#refuse(request, known);
    this.#waiting.set(session, waiting + 1);
    this.#parts.onWaiting(1);
    try {
      const open = known ?? (await this.#ask(request));
      await whileWaiting(this.#parts.state, { id: open.item.id, call: call.caller.decision }, () =>
        this.#wait(request, open),
      );
      return undefined;
    } finally {
      this.#waiting.set(session, (this.#waiting.get(session) ?? 1) - 1);
      this.#parts.onWaiting(-1);
    }
  }

  /** Another configuration has taken the place of this one: whoever waits is told to call again, and to be judged by that. */
  end(): void {
    this.#over.abort();
  }

  /** Until somebody has decided. Throws when nobody may or will wait any longer. */
  async #wait(request: Request, known: Stored): Promise<void> {
    const { call } = request;
    const { settings, now } = this.#parts;
    const until = call.caller.startedAt + settings.waitMs;
    const progress = new Progress(call.onProgress, settings.waitMs);
    const patience = [
      call.signal,
      call.caller.session.closed,
      this.#over.signal,
      ...(call.drained === undefined ? [] : [call.drained]),
    ];
    do {
      const left = until - now();
      refuseGone(call);
      if (left <= 0 || patience.some(({ aborted }) => aborted)) throw await this.#refuse(request, known);
      progress.tell(left, known.item.id);
      await pause(Math.min(left, POLL_MS), patience);
      await this.#mayRun(request, 'waiting');
    } while (!(await this.#isDecided(request, known)));
  }

  /** Nobody is asked about a call that cannot run: throws its refusal, and withdraws the request. */
  async #mayRun(request: Request, before: 'asking' | 'waiting'): Promise<void> {
    const { call, binding } = request;
    const { refusalOf, pinOf } = this.#parts;
    try {
      await this.#parts.state.fresh();
      await call.stands();
      const refusal = await refusalOf(call.effect.server, before);
      if (refusal !== undefined) throw refusal;
      // While the call waited its server may have put another definition behind the name (rug pull).
      if ((pinOf(call.effect) ?? call.pin) !== binding.pin)
        throw new TollgateError('PIN_MISMATCH', { detail: 'The tool has changed while its call waited for approval.' });
    } catch (thrown) {
      await this.#withdraw(request, asTollgateError(thrown));
      throw thrown;
    }
  }

  async #withdraw({ hash }: Request, { code, message }: TollgateError): Promise<void> {
    const open = await this.#store.find(hash);
    if (open?.item.state !== 'pending') return;
    const withdrawn: Approval = {
      ...open.item,
      state: 'withdrawn',
      decided: { by: 'tollgate', at: this.#parts.now(), reason: message },
    };
    if (await this.#store.replace(open, withdrawn)) this.#parts.append(entryOf(withdrawn, 'withdrawn', { code }));
  }

  async #isDecided({ hash, reachKeys }: Request, known: Stored): Promise<boolean> {
    if ((await this.#store.find(hash))?.text !== known.text) return true;
    for (const key of reachKeys) if ((await this.#store.find(key)) !== undefined) return true;
    return known.item.expires <= this.#parts.now();
  }

  /** The id of the consent that this call has used up, or the request that is open. Throws DENIED, AUDIT_FAILED. */
  async #look(request: Request): Promise<string | Stored | undefined> {
    for (const key of request.reachKeys) {
      const used = await this.#useStanding(key, request);
      if (used !== undefined) return used;
    }
    for (;;) {
      const found = await this.#store.find(request.hash);
      if (found === undefined) return undefined;
      if (found.item.state === 'withdrawn') await this.#store.take(found);
      else if (found.item.expires <= this.#parts.now()) await this.#bury(found);
      else if (found.item.state === 'pending') return found;
      else if (found.item.state === 'denied') throw deniedBy(found.item);
      // Taken first: a process that dies from here on has used it.
      else if (await this.#store.take(found)) return this.#recordUse(found, request);
    }
  }

  async #useStanding(key: string, request: Request): Promise<string | undefined> {
    for (;;) {
      const found = await this.#store.find(key);
      if (found === undefined) return undefined;
      if (found.item.expires <= this.#parts.now()) await this.#bury(found);
      else if (await this.#store.replace(found, { ...found.item, uses: found.item.uses + 1 }))
        return this.#recordUse(found, request);
    }
  }

  /** What cannot be recorded does not run. */
  #recordUse({ item }: Stored, { call }: Request): string {
    this.#parts.append(
      entryOf(item, 'used', {
        call: call.caller.decision,
        uses: item.uses + 1,
        ...(item.decided === undefined ? {} : { by: item.decided.by }),
      }),
    );
    return item.id;
  }

  async #bury(found: Stored): Promise<void> {
    if (await this.#store.take(found)) this.#parts.append(entryOf(found.item, 'expired'));
  }

  /** Opens a request, or joins that of an equal call. Throws APPROVAL_REQUIRED when too many are open. */
  async #ask(request: Request): Promise<Stored> {
    const { now, append, settings, onAsked } = this.#parts;
    const standing = await this.#store.sweep(now(), (item) => append(entryOf(item, 'expired')));
    const open = standing.filter(
      ({ item }) =>
        item.state === 'pending' &&
        item.binding.principal.id === request.binding.principal.id &&
        item.hash !== request.hash,
    );
    if (open.length >= MAX_OPEN)
      throw refuseFull(request, `${open.length} calls of ${request.binding.principal.id} wait for approval already`);
    const asked = await this.#store.add(request.hash, request.open(now(), settings.expireMs));
    if (asked === undefined) return (await this.#store.find(request.hash)) ?? this.#ask(request);
    try {
      append(entryOf(asked.item, 'asked', { call: asked.item.call }));
    } catch (thrown) {
      await this.#store.take(asked);
      throw thrown;
    }
    onAsked(asked.item);
    return asked;
  }

  /** The refusal of a call that still waits. What differs from an approved call of the same tool is named, and recorded. */
  async #refuse(request: Request, known: Stored): Promise<TollgateError> {
    const isOver = this.#over.signal.aborted;
    // Its policy is gone, and so is what could have been approved.
    if (isOver) await this.#bury(known);
    const nearest = findNearest(request, await this.#store.list());
    if (nearest !== undefined)
      this.#parts.append(
        entryOf(nearest.item, 'refused', {
          call: request.call.caller.decision,
          differs: nearest.differs.map(withoutNames),
        }),
      );
    return refusePending(request, { known: known.item, isOver, ...(nearest !== undefined && { nearest }) });
  }
}

/** Names of arguments are the caller's words, and no part of a record. */
function withoutNames(words: string): string {
  return words.split(' at /', 1)[0] ?? words;
}
