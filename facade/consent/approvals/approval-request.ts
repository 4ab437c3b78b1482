/**
 * One call's request for approval: its binding, the keys under which an answer is stored, and what a person sees. It
 * contains no registered secret.
 */
import { randomInt } from 'node:crypto';
import type { ApprovalScope, Effect } from '../../../policies/port.ts';
import type { Redactor } from '../../output/redactor.ts';
import { mapStrings } from '../../output/result-cleaning.ts';
import {
  type ApprovalBinding,
  approvalReachHash,
  bindingHash,
  bindingOf,
  loopHash,
  widestScope,
} from './approval-binding.ts';
import type { CallToApprove } from './approval-port.ts';
import type { Approval } from './call-approval.ts';

/** A call with its binding. */
export interface ApprovalRequest {
  readonly call: CallToApprove;
  readonly binding: ApprovalBinding;
  /** Hash of the binding, the key of an approval of this call. */
  readonly hash: string;
  /** Keys of wider approvals that would cover it. */
  readonly reachKeys: readonly string[];
  /** The key of the approval of a loop that may cover it. */
  readonly loopKey?: string;
  readonly shown: Shown;
  /** A new request in the state `pending`. */
  open(now: number, expireMs: number): Approval;
}

/** The arguments as a person sees them. */
interface Shown {
  readonly argsText: string;
  readonly concealed: number;
}

/** Without letters and digits that look alike; 31 ^ 10 ids. */
const LETTERS = '23456789abcdefghjkmnpqrstuvwxyz';
const ID_LENGTH = 10;

/** Binds a call to the facts of this moment. */
export function bindApprovalRequest(
  call: CallToApprove,
  by: {
    readonly digest: (text: string) => string;
    readonly redactor: Redactor;
    readonly pinOf: (effect: Effect) => string | undefined;
    readonly setOf: (server: string) => string;
  },
): ApprovalRequest {
  const { effect, argsText, sentText, revision, caller, decision, asking } = call;
  const bound = bindingOf(
    {
      principal: caller.principal,
      effect,
      argsText,
      sentText,
      revision,
      pin: by.pinOf(effect) ?? call.pin,
      ...(namesSession(sentText) && { session: caller.session.id }),
      ...(asking?.again !== undefined && { again: `${asking.id}/${asking.again}` }),
    },
    by.digest,
  );
  const hash = bindingHash(bound, by.digest);
  const rules = decision.reasons.map(({ id }) => id);
  const loopKey = asking === undefined ? undefined : loopHash(bound, { run: asking.id, rules }, by.digest);
  // A secret is neither stored nor shown. The hash is made from the bytes to send.
  const binding: ApprovalBinding = { ...bound, effect: maskSecrets(effect, by.redactor).value };
  const widest = widestScope(decision.reasons);
  const reach = reachOf();
  const shown = conceal(sentText, by.redactor);
  return {
    call,
    binding,
    hash,
    // It is not known whether the call ran, so only an approval of exactly this call counts.
    reachKeys: asking?.again === undefined ? Object.values(reach) : [],
    ...(loopKey !== undefined && asking?.again === undefined && { loopKey }),
    shown,
    open,
  };

  function reachOf(): Readonly<Partial<Record<ApprovalScope, string>>> {
    if (widest === 'call') return {};
    const at = { run: caller.run, rules, set: by.setOf(effect.server) };
    const group = approvalReachHash(bound, { ...at, scope: 'group' }, by.digest);
    return widest === 'group'
      ? { group }
      : { group, server: approvalReachHash(bound, { ...at, scope: 'server' }, by.digest) };
  }

  function open(now: number, expireMs: number): Approval {
    return {
      id: newId(),
      state: 'pending',
      scope: 'call',
      widest,
      binding,
      hash,
      reach,
      ...shown,
      ...(asking !== undefined && loopKey !== undefined && { asking: { ...asking, loopKey } }),
      reasons: decision.reasons.map(({ id, message, file, line }) => ({
        id,
        message,
        ...(file === undefined ? {} : { file }),
        ...(line === undefined ? {} : { line }),
      })),
      session: caller.session.id,
      run: caller.run,
      call: caller.decision,
      asked: now,
      expires: now + expireMs,
      uses: 0,
    };
  }
}

/** Returns true if the arguments name a shell session: `bash` counts from s1 in each session of a client. */
function namesSession(sentText: string): boolean {
  return typeof (JSON.parse(sentText) as { readonly session?: unknown }).session === 'string';
}

function newId(): string {
  return Array.from({ length: ID_LENGTH }, () => LETTERS[randomInt(LETTERS.length)]).join('');
}

/**
 * Returns the text unchanged if it contains no secret. A secret that is written with JSON escapes is found in the
 * parsed strings.
 */
function conceal(argsText: string, redactor: Redactor): Shown {
  if (!redactor.touches(argsText)) return { argsText, concealed: 0 };
  const value: unknown = JSON.parse(argsText);
  const masked = maskSecrets(value, redactor);
  return { argsText: masked.count === 0 ? argsText : JSON.stringify(masked.value), concealed: masked.count };
}

/** Returns a copy with `***` in the place of each registered secret. */
function maskSecrets<T>(value: T, redactor: Redactor): { readonly value: T; readonly count: number } {
  let count = 0;
  const mask = (text: string): string => {
    const found = redactor.redact(text);
    count += found.count;
    return found.count === 0 ? text : found.value.replaceAll(MASK, '***');
  };
  const masked = mapStrings(value, mask) as T;
  return { value: count === 0 ? value : masked, count };
}

/** The redactor's replacement for a secret. */
const MASK = '[redacted]';
