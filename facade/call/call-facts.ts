/** What every record of a call states, and the intent record. Never a payload. */
import { memoize } from '../../catalogs/text/collections.ts';
import { jsonMember } from '../../catalogs/text/json-string.ts';
import type { CallDecision, Effect, Principal, Reason } from '../../policies/port.ts';
import { type CallEntryText, callEntryText } from '../audit/audit-chain.ts';
import type { AuditObligations, AuditReason, CallFacts } from '../audit/audit-entry.ts';
import type { ExposedTool } from '../exposure/exposed-tool.ts';
import type { AllowedCall, JudgedCall } from './decide.ts';
import type { Caller, CallStart } from './identify.ts';

/** What the first stages found out, as far as the call came. */
export interface KnownCall {
  readonly start: CallStart;
  readonly caller?: Caller | undefined;
  readonly exposed?: ExposedTool | undefined;
  readonly judged?: JudgedCall | undefined;
  /** Of a call that was not lowered: the server that its name belongs to, as far as it is known. */
  readonly server?: string | undefined;
}

/** Returns the facts that every record of a call states: the JSON of `CallFacts` without braces. */
export function callFactsText(call: KnownCall, digest: (text: string) => string): string {
  const { start, caller, exposed, judged } = call;
  const lowered = judged?.lowered;
  const effect = lowered?.effect;
  const decision = judged?.decision;
  return (
    `"id":"${start.id}","session":"${start.session}"` +
    jsonMember('run', caller?.run ?? start.session) +
    jsonMember('correlation', caller?.correlation) +
    jsonMember('parent', caller?.parent) +
    jsonMember('by', start.operator?.by) +
    jsonMember('user', start.operator?.user) +
    jsonMember('via', start.via) +
    jsonMember('exposed', exposed?.name ?? start.requestedName) +
    jsonMember('revision', start.revision) +
    (start.kind === 'tool' ? '' : jsonMember('kind', start.kind)) +
    jsonMember('server', effect?.server ?? call.server) +
    jsonMember('tool', effect?.tool) +
    jsonMember('verb', effect?.verb) +
    (effect === undefined ? '' : `,"effectDigest":"${effectDigest(effect, lowered?.argsText ?? '', digest)}"`) +
    jsonMember('consent', judged?.consent) +
    `,"principal":${principalText(start.principal)}${decision === undefined ? '' : reasonsText(decision)}`
  );
}

/** Calls share principals and kept decisions, so their texts are made once. */
const principalText = memoize(({ id, role, profiles, origin }: Principal) =>
  JSON.stringify({ id, role, profiles, origin } satisfies CallFacts['principal']),
);

const reasonsText = memoize(({ reasons, shadow }: CallDecision): string => {
  const members: Pick<CallFacts, 'reasons' | 'shadow'> = {
    reasons: reasons.map(reasonPlace),
    ...(shadow.length > 0 && {
      shadow: shadow.map((reason) => ({ ...reasonPlace(reason), would: reason.would, mode: reason.mode })),
    }),
  };
  return `,${JSON.stringify(members).slice(1, -1)}`;
});

/** Returns the place of a rule. Its message stays with the policy. */
export function reasonPlace({ id, file, line, unread }: Reason): AuditReason {
  const why = unread === undefined ? {} : { unread };
  if (file === undefined) return { id, ...why };
  return line === undefined ? { id, file, ...why } : { id, file, line, ...why };
}

let lastEffect: { readonly effect: Effect; readonly text: string } | undefined;

/**
 * Returns a keyed digest of effect and arguments. Equal calls have equal digests, but short arguments cannot be guessed
 * from the log. Calls whose arguments are no part of the effect share its object.
 */
export function effectDigest(effect: Effect, argsText: string, digest: (text: string) => string): string {
  if (lastEffect?.effect !== effect) lastEffect = { effect, text: JSON.stringify(effect) };
  // The JSON of an effect has no line break, so the text of another call differs.
  return digest(`${lastEffect.text}\n${argsText}`);
}

/** Returns the obligations of a judged call, as names and numbers. */
export function obligationsOf({ decision, preconditions }: JudgedCall = {}): AuditObligations | undefined {
  if (decision === undefined) return undefined;
  const { caps, timeoutMs, pins, budgets, labels } = decision.obligations;
  return {
    bytes: caps.bytes,
    lines: caps.lines,
    timeoutMs,
    pins: Object.keys(pins),
    budgets: [...budgets, ...(preconditions?.budgets ?? [])].map(({ id }) => id),
    labels,
  };
}

/** Returns the record that is written before the server is reached. */
export function intentRecord(allowed: AllowedCall, argBytes: number): CallEntryText {
  const { decision, preconditions } = allowed;
  return preconditions.budgets.length === 0
    ? `${usualIntent(decision)},"sizes":{"args":${argBytes}}`
    : callEntryText({
        type: 'intent',
        outcome: 'allow',
        obligations: obligationsOf(allowed),
        sizes: { args: argBytes },
      });
}

/** The record without its sizes, for calls of a kept decision that have no budgets of their own. */
const usualIntent = memoize((decision: CallDecision) =>
  callEntryText({ type: 'intent', outcome: 'allow', obligations: obligationsOf({ decision }) }),
);
