/**
 * Gets the answer for a call that needs approval. It uses an existing approval, or asks a person and waits. A call that
 * differs from the shown one is refused.
 */
import { asTollgateError, TollgateError } from '../../../catalogs/errors/error-table.ts';
import { escapeHostile } from '../../../catalogs/text/hostile-text.ts';
import type { Effect, Principal } from '../../../policies/port.ts';
import type { AuditEntry } from '../../audit/audit-entry.ts';
import type { OpenSession } from '../../call/identify.ts';
import type { ApprovalsConfig } from '../../config/config.ts';
import type { Redactor } from '../../output/redactor.ts';
import type { State } from '../../state/state-port.ts';
import type { Approvals, CallToApprove } from './approval-port.ts';
import { ApprovalQuestion, mayAskCaller } from './approval-question.ts';
import { deniedBy, findNearestApproval, refuseFullQueue, refusePending, refuseWithdrawn } from './approval-refusals.ts';
import { type ApprovalRequest, bindApprovalRequest } from './approval-request.ts';
import { WaitProgress, waitUntilAborted, whileRequestWaits } from './approval-wait.ts';
import { type Approval, ApprovalStore, approvalEntry, type StoredApproval } from './call-approval.ts';
import { requireCovered } from './loop-approval.ts';

/** The parts that a queue uses. */
export interface ApprovalQueueParts {
  readonly settings: ApprovalsConfig;
  readonly state: State;
  /** Throws AUDIT_FAILED. */
  readonly append: (entry: AuditEntry) => void;
  readonly digest: (text: string) => string;
  readonly redactor: Redactor;
  readonly now: () => number;
  /**
   * Returns the pin of what would be called now, and of all definitions of its server; undefined if nothing is listed.
   */
  readonly pinOf: (effect: Effect) => string | undefined;
  readonly setOf: (server: string) => string;
  /**
   * Returns the refusal of a server now. Before a person is asked, it also checks the start of a server that does not
   * run.
   */
  readonly refusalOf: (server: string, before: 'asking' | 'waiting') => Promise<TollgateError | undefined>;
  /** Returns true if the person at the client of this principal may decide, see `profiles.*.approvals`. */
  readonly asksCaller: (principal: Principal) => boolean;
  /** Called with each new request, for a person. */
  readonly onAsked: (item: Approval) => void;
  /** Called with the change in the number of waiting calls. */
  readonly onWaiting: (change: 1 | -1) => void;
}

/** Milliseconds between reads of decisions made by other processes. */
const POLL_MS = 250;
/**
 * Limits the waiting calls of one session, and the open requests of one principal. A person who is asked too often
 * approves without reading (consent fatigue).
 */
const MAX_WAITING = 16;
const MAX_OPEN = 20;

/** The approvals of calls under one configuration. */
export class ApprovalQueue implements Approvals {
  readonly #parts: ApprovalQueueParts;
  readonly #store: ApprovalStore;
  readonly #waiting = new WeakMap<OpenSession, number>();
  readonly #over = new AbortController();
  /** The open questions to persons at clients, by the hash of the request. */
  readonly #questions = new Map<string, ApprovalQuestion>();

  constructor(parts: ApprovalQueueParts) {
    this.#parts = parts;
    this.#store = new ApprovalStore(parts.state);
  }

  async obtain(call: CallToApprove): Promise<string | undefined> {
    const request = bindApprovalRequest(call, this.#parts);
    await this.#mayRun(request, 'asking');
    const known = await this.#findAnswer(request);
    if (typeof known === 'string') return known;
    const { session } = call.caller;
    const waiting = this.#waiting.get(session) ?? 0;
    if (waiting >= MAX_WAITING)
      throw known === undefined
        ? refuseFullQueue(request, `${waiting} calls of this session wait for approval already`)
        : await this.#refuse(request, known);
    this.#waiting.set(session, waiting + 1);
    this.#parts.onWaiting(1);
    try {
      const open = known ?? (await this.#ask(request));
      await whileRequestWaits(this.#parts.state, { id: open.item.id, call: call.caller.decision }, () =>
        this.#waitAsking(request, open),
      );
      return undefined;
    } finally {
      this.#waiting.set(session, (this.#waiting.get(session) ?? 1) - 1);
      this.#parts.onWaiting(-1);
    }
  }

  async use(call: CallToApprove): Promise<string | undefined> {
    const request = bindApprovalRequest(call, this.#parts);
    await this.#mayRun(request, 'asking');
    const known = await this.#findAnswer(request);
    return typeof known === 'string' ? known : undefined;
  }

  /** Ends the queue because a new configuration is in force. The waiting callers must call again. */
  end(): void {
    this.#over.abort();
    // An answer to the old policy has no effect from now on.
    for (const question of this.#questions.values()) question.end();
  }

  /** Waits as `#wait` does, and asks the person at the client meanwhile, if the configuration lets them decide. */
  async #waitAsking(request: ApprovalRequest, known: StoredApproval): Promise<void> {
    const { call, hash } = request;
    const { ask, caller } = call;
    const waitMs = this.#endOf(call) - this.#parts.now();
    const isAsked =
      waitMs > 0 && this.#parts.asksCaller(caller.principal) && mayAskCaller(call) && !this.#questions.has(hash);
    if (!isAsked || ask === undefined) return this.#wait(request, known);
    const parts = { ...this.#parts, store: this.#store };
    const question = ApprovalQuestion.ask(parts, known, { ask, call: caller.decision, waitMs });
    if (question === undefined) return this.#wait(request, known);
    this.#questions.set(hash, question);
    try {
      await this.#wait(request, known, question);
    } finally {
      question.end();
      this.#questions.delete(hash);
    }
  }

  #endOf({ caller }: CallToApprove): number {
    return caller.startedAt + this.#parts.settings.waitMs;
  }

  /** Waits until a person has decided. Throws if the wait ends. */
  async #wait(request: ApprovalRequest, known: StoredApproval, question?: ApprovalQuestion): Promise<void> {
    const { call } = request;
    const { settings, now } = this.#parts;
    const until = this.#endOf(call);
    const progress = new WaitProgress(call.onProgress, settings.waitMs);
    const patience = [
      call.signal,
      call.caller.session.closed,
      this.#over.signal,
      ...(call.drained === undefined ? [] : [call.drained]),
    ];
    do {
      const left = until - now();
      refuseWithdrawn(call);
      if (question?.failure !== undefined) throw question.failure;
      const isOpen = question?.over.aborted === false;
      if (left <= 0 && isOpen) return question.expire();
      if (left <= 0 || patience.some(({ aborted }) => aborted)) throw await this.#refuse(request, known);
      progress.report(left, known.item.id);
      await waitUntilAborted(Math.min(left, POLL_MS), isOpen ? [...patience, question.over] : patience);
      await this.#mayRun(request, 'waiting');
    } while (!(await this.#isDecided(request, known)));
  }

  /** Throws the refusal of a call that cannot run, and withdraws its request, so that no person is asked about it. */
  async #mayRun(request: ApprovalRequest, before: 'asking' | 'waiting'): Promise<void> {
    const { call, binding } = request;
    const { refusalOf, pinOf } = this.#parts;
    try {
      await this.#parts.state.refresh();
      await call.recheck();
      const refusal = await refusalOf(call.effect.server, before);
      if (refusal !== undefined) throw refusal;
      // The server may have replaced the definition of the tool while the call waited (rug pull).
      if ((pinOf(call.effect) ?? call.pin) !== binding.pin)
        throw new TollgateError('PIN_MISMATCH', { detail: 'The tool has changed while its call waited for approval.' });
    } catch (thrown) {
      await this.#withdraw(request, asTollgateError(thrown));
      throw thrown;
    }
  }

  async #withdraw({ hash }: ApprovalRequest, { code, message }: TollgateError): Promise<void> {
    const open = await this.#store.find(hash);
    if (open?.item.state !== 'pending') return;
    const withdrawn: Approval = {
      ...open.item,
      state: 'withdrawn',
      decided: { by: 'tollgate', at: this.#parts.now(), reason: message },
    };
    if (await this.#store.replace(open, withdrawn)) this.#parts.append(approvalEntry(withdrawn, 'withdrawn', { code }));
  }

  async #isDecided({ hash, reachKeys, loopKey }: ApprovalRequest, known: StoredApproval): Promise<boolean> {
    if ((await this.#store.find(hash))?.text !== known.text) return true;
    if (loopKey !== undefined && (await this.#store.find(loopKey)) !== undefined) return true;
    for (const key of reachKeys) if ((await this.#store.find(key)) !== undefined) return true;
    return known.item.expires <= this.#parts.now();
  }

  /** Returns the id of the approval that this call has used, or the open request. Throws DENIED, AUDIT_FAILED. */
  async #findAnswer(request: ApprovalRequest): Promise<string | StoredApproval | undefined> {
    for (const key of request.reachKeys) {
      const used = await this.#useWider(key, request);
      if (used !== undefined) return used;
    }
    const { loopKey } = request;
    const inLoop = loopKey === undefined ? undefined : await this.#useWider(loopKey, request);
    if (inLoop !== undefined) return inLoop;
    for (;;) {
      const found = await this.#store.find(request.hash);
      if (found === undefined) return undefined;
      if (found.item.state === 'withdrawn') await this.#store.take(found);
      else if (found.item.expires <= this.#parts.now()) await this.#expire(found);
      else if (found.item.state === 'pending') return found;
      else if (found.item.state === 'denied') throw deniedBy(found.item);
      // Taken first, so that the approval counts as used even if the process ends now.
      else if (await this.#store.take(found)) return this.#recordUse(found.item, request);
    }
  }

  async #useWider(key: string, request: ApprovalRequest): Promise<string | undefined> {
    for (;;) {
      const found = await this.#store.find(key);
      if (found === undefined) return undefined;
      const { item } = found;
      const { loop, covered = [] } = item;
      const now = this.#parts.now();
      const seq = request.call.asking?.seq ?? 0;
      const isCounted = loop !== undefined && covered.includes(seq);
      const uses = isCounted ? item.uses - 1 : item.uses;
      if (loop !== undefined) requireCovered(loop, { uses, now, args: JSON.parse(request.call.argsText) });
      const calls = loop === undefined ? {} : { covered: isCounted ? covered : [...covered, seq] };
      if (item.expires <= now) await this.#expire(found);
      else if (await this.#store.replace(found, { ...item, ...calls, uses: uses + 1 }))
        return this.#recordUse({ ...item, uses }, request);
    }
  }

  /** Throws if the use cannot be recorded, so that the call does not run. */
  #recordUse(item: Approval, { call }: ApprovalRequest): string {
    this.#parts.append(
      approvalEntry(item, 'used', {
        call: call.caller.decision,
        uses: item.uses + 1,
        ...(item.decided === undefined ? {} : { by: item.decided.by }),
      }),
    );
    return item.id;
  }

  async #expire(found: StoredApproval): Promise<void> {
    if (await this.#store.take(found)) this.#parts.append(approvalEntry(found.item, 'expired'));
  }

  /** Opens a request, or joins the request of an equal call. Throws APPROVAL_REQUIRED if too many are open. */
  async #ask(request: ApprovalRequest): Promise<StoredApproval> {
    const { now, append, settings, onAsked } = this.#parts;
    const valid = await this.#store.sweep(now(), (item) => append(approvalEntry(item, 'expired')));
    const open = valid.filter(
      ({ item }) =>
        item.state === 'pending' &&
        item.binding.principal.id === request.binding.principal.id &&
        item.hash !== request.hash,
    );
    if (open.length >= MAX_OPEN)
      throw refuseFullQueue(
        request,
        `${open.length} calls of ${request.binding.principal.id} wait for approval already`,
      );
    const asked = await this.#store.add(request.hash, request.open(now(), settings.expireMs));
    if (asked === undefined) return (await this.#store.find(request.hash)) ?? this.#ask(request);
    try {
      append(approvalEntry(asked.item, 'asked', { call: asked.item.call }));
    } catch (thrown) {
      await this.#store.take(asked);
      throw thrown;
    }
    onAsked(asked.item);
    return asked;
  }

  /**
   * Returns the refusal of a call that still waits. It names and records how the call differs from an approved call of
   * the same tool.
   */
  async #refuse(request: ApprovalRequest, known: StoredApproval): Promise<TollgateError> {
    const isOver = this.#over.signal.aborted;
    // A request of a replaced policy can no longer be approved.
    if (isOver) await this.#expire(known);
    const nearest = findNearestApproval(request, await this.#store.list());
    if (nearest !== undefined)
      this.#parts.append(
        approvalEntry(nearest.item, 'refused', {
          call: request.call.caller.decision,
          differs: nearest.differs.map(withoutNames),
        }),
      );
    return refusePending(request, { known: known.item, isOver, ...(nearest !== undefined && { nearest }) });
  }
}

/** Removes names of arguments. The caller chose them, so the audit does not contain them. */
function withoutNames(words: string): string {
  return words.split(' at /', 1)[0] ?? words;
}

/** The most lines in a minute. */
const MAX_LINES = 12;
const WINDOW_MS = 60_000;

/**
 * Returns a listener for new requests that writes one line each: who wants what, which rule asks, and the command that
 * shows the request.
 */
export function createApprovalNotice(write: (line: string) => void, now: () => number): (item: Approval) => void {
  let since = -Infinity;
  let lines = 0;
  return ({ id, binding, reasons }) => {
    if (now() - since >= WINDOW_MS) [since, lines] = [now(), 0];
    lines += 1;
    if (lines > MAX_LINES) return;
    const { principal, effect } = binding;
    const because = reasons[0] === undefined ? '' : ` (rule ${reasons[0].id}: ${reasons[0].message})`;
    const more = lines === MAX_LINES ? ' (No more lines for a minute; all of them: tollgate approvals list)' : '';
    write(
      inOneLine(
        `${principal.id} waits for approval of ${effect.server}.${effect.tool}${because}. ` +
          `Decide: tollgate approvals show ${id}${more}`,
      ),
    );
  };
}

/** Names and messages come from servers and rules, and a terminal shows them. */
function inOneLine(text: string): string {
  return escapeHostile(text).text.replace(/\s+/g, ' ');
}
