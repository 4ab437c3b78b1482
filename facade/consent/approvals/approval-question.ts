/**
 * Puts a request for approval to the person at the caller's client, as a form (MCP 2025-11-25, client/elicitation). The
 * answer decides exactly this request, once, as a command of an owner would. An owner can decide it meanwhile.
 */
import { isObject, type JsonObject } from '../../../adapters/rpc/wire-message.ts';
import { asTollgateError, TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { AuditEntry } from '../../audit/audit-entry.ts';
import { isSupported } from '../../operations/client-operations.ts';
import type { Redactor } from '../../output/redactor.ts';
import type { AskClient } from '../../serve/facade-port.ts';
import type { CallToApprove } from './approval-port.ts';
import { approvalText } from './approval-text.ts';
import { approveRequest, denyRequest } from './approval-verdict.ts';
import {
  type ApprovalForm,
  type ApprovalStore,
  approvalEntry,
  type StoredApproval,
  shortHash,
} from './call-approval.ts';

/** What a question needs. */
export interface QuestionParts {
  readonly store: ApprovalStore;
  readonly settings: { readonly expireMs: number };
  readonly redactor: Redactor;
  readonly append: (entry: AuditEntry) => void;
  readonly now: () => number;
}

/** A longer question is not asked, because no one would read it to its end in a form. */
const MAX_CHARACTERS = 16_384;
const DENY = 'deny';
const ACTIONS = ['accept', 'decline', 'cancel'] as const;
/** A client may answer forms by itself, so it never decides about effects that are worse than a write. */
const VERBS: readonly string[] = ['read', 'write'];
/** A server's request to the client is never decided by the same client. */
const KINDS: readonly string[] = ['tool', 'resource', 'prompt', 'completion'];

/** Returns true if the person at the client may decide about this call, and its client can ask them. */
export function mayAskCaller({ caller, effect, ask, client = caller.session.client }: CallToApprove): boolean {
  const { verb, kind = 'tool', command } = effect;
  return (
    ask !== undefined &&
    caller.parent === undefined &&
    VERBS.includes(verb) &&
    KINDS.includes(kind) &&
    command?.opaque !== true &&
    isSupported(client, 'elicitation', 'form')
  );
}

/** A question that is open. Its answer is in the store. */
export class ApprovalQuestion {
  readonly #parts: QuestionParts;
  readonly #stored: StoredApproval;
  readonly #ended = new AbortController();
  readonly #over = new AbortController();
  /** Why the answer could not be recorded. The call must not run then. */
  failure: unknown;

  private constructor(parts: QuestionParts, stored: StoredApproval) {
    this.#parts = parts;
    this.#stored = stored;
  }

  /** Asks the person at the client. Returns undefined if the question is too long for a form. Throws AUDIT_FAILED. */
  static ask(
    parts: QuestionParts,
    stored: StoredApproval,
    { ask, call, waitMs }: { readonly ask: AskClient; readonly call: string; readonly waitMs: number },
  ): ApprovalQuestion | undefined {
    const { redactor, now, append } = parts;
    const text = approvalText(stored.item, { redactor, now: now(), isWhole: true });
    if (text.length > MAX_CHARACTERS) return undefined;
    append(approvalEntry(stored.item, 'questioned', { call }));
    const question = new ApprovalQuestion(parts, stored);
    const params = JSON.stringify(question.#form(text));
    // The wait for the request ends first.
    const limits = { signal: question.#ended.signal, timeoutMs: waitMs + 1_000, server: '' };
    void question
      .#take(ask('elicitation/create', params, limits))
      .catch((thrown: unknown) => {
        question.failure = thrown;
      })
      .finally(() => question.#over.abort());
    return question;
  }

  /** Aborted when there is nothing more to wait for: the request was decided, or the client cannot ask. */
  get over(): AbortSignal {
    return this.#over.signal;
  }

  /** Withdraws the question. A later answer has no effect. */
  end(): void {
    this.#ended.abort();
  }

  /** Denies the request, because no answer came in time. */
  async expire(): Promise<void> {
    this.end();
    await this.#decide(false, { form: 'none', reason: 'there was no answer to the question in time' });
  }

  /** The answer repeats the hash of the request, so that an answer to another question cannot be taken for this one. */
  get #approve(): string {
    return `approve ${shortHash(this.#stored.item)}`;
  }

  #form(text: string): JsonObject {
    return {
      message: `Tollgate asks, because a rule does: may this call be made, once?\n\n${text}`,
      requestedSchema: {
        type: 'object',
        properties: {
          decision: {
            type: 'string',
            title: 'Decision',
            description: 'Approving lets exactly this call run, once.',
            enum: [DENY, this.#approve],
          },
        },
        required: ['decision'],
      },
    };
  }

  async #take(asking: ReturnType<AskClient>): Promise<void> {
    const { item } = this.#stored;
    const answer = await asking.catch((thrown: unknown) => asTollgateError(thrown));
    if (this.#ended.signal.aborted) return;
    // A client that cannot ask gives no answer: the request waits for an owner, as without a form.
    if (answer instanceof TollgateError)
      return this.#parts.append(approvalEntry(item, 'unanswered', { call: item.call, code: answer.code }));
    const { action, content } = answer.value;
    const decision = isObject(content) ? content.decision : undefined;
    await this.#decide(action === 'accept' && decision === this.#approve, {
      form: ACTIONS.find((one) => one === action) ?? 'none',
      reason:
        action === 'accept' && decision !== DENY ? 'the answer belongs to no open question' : 'refused in the form',
    });
  }

  /** The first decision counts: an owner, or another process, may have decided or used the request meanwhile. */
  async #decide(
    isApproved: boolean,
    { form, reason }: { readonly form: ApprovalForm; readonly reason: string },
  ): Promise<void> {
    const { store, settings, append, now } = this.#parts;
    const { item, key, text } = this.#stored;
    if ((await store.find(key))?.text !== text) return;
    const decider = {
      by: item.binding.principal.id,
      form,
      now: now(),
      expireMs: settings.expireMs,
      record: append,
    };
    try {
      if (isApproved) await approveRequest(store, this.#stored, { ...decider, scope: 'call' });
      else await denyRequest(store, this.#stored, { ...decider, reason });
    } catch (thrown) {
      if (asTollgateError(thrown).code !== 'USAGE') throw thrown;
    }
  }
}
