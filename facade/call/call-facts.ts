/** What every record of a call states, and the intent record. Never a payload. */
import { memoize } from '../../catalogs/text/collections.ts';
import type { CallDecision, Effect, Principal, Reason } from '../../policies/port.ts';
import { type CallEntryText, callEntryText, type Unsealed, type WithUndefined } from '../audit/audit-chain.ts';
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
}

/** Returns, as JSON, the facts that every record of a call states. */
export function callFactsText(call: KnownCall, digest: (text: string) => string): string {
  const { start, caller, exposed, judged } = call;
  const { lowered, decision } = judged ?? {};
  const effect = lowered?.effect;
  const facts: WithUndefined<Unsealed<Omit<CallFacts, 'principal' | 'reasons' | 'shadow'>>> = {
    id: start.id,
    session: start.session,
    run: caller?.run ?? start.session,
    correlation: caller?.correlation,
    exposed: exposed?.name ?? start.requestedName,
    revision: start.revision,
    server: effect?.server,
    tool: effect?.tool,
    verb: effect?.verb,
    effectDigest: effect === undefined ? undefined : effectDigest(effect, lowered?.argsText ?? '', digest),
    consent: judged?.consent,
    parent: undefined,
  };
  const reasons = decision === undefined ? '' : reasonsText(decision);
  return `${JSON.stringify(facts).slice(0, -1)},"principal":${principalText(start.principal)}${reasons}}`;
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
export function reasonPlace({ id, file, line }: Reason): AuditReason {
  if (file === undefined) return { id };
  return line === undefined ? { id, file } : { id, file, line };
}

/**
 * Returns a keyed digest of effect and arguments. Equal calls have equal digests, but short arguments cannot be guessed
 * from the log.
 */
export function effectDigest(effect: Effect, argsText: string, digest: (text: string) => string): string {
  return digest(JSON.stringify([effect, argsText]));
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
  const sizes = { args: argBytes };
  return preconditions.budgets.length === 0
    ? `${usualIntent(decision).slice(0, -1)},"sizes":${JSON.stringify(sizes)}}`
    : callEntryText({ type: 'intent', outcome: 'allow', obligations: obligationsOf(allowed), sizes });
}

/** The record without its sizes, for calls of a kept decision that have no budgets of their own. */
const usualIntent = memoize((decision: CallDecision) =>
  callEntryText({ type: 'intent', outcome: 'allow', obligations: obligationsOf({ decision }) }),
);
