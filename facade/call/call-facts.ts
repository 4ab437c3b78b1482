/** What every record of a call states, and the intent record. Never a payload. */
import type { Effect, Reason } from '../../policies/port.ts';
import type { CallEntry, Unsealed, WithUndefined } from '../audit/audit-chain.ts';
import type { AuditObligations, AuditReason, CallFacts } from '../audit/audit-entry.ts';
import type { ExposedTool } from '../exposure/exposed-tool.ts';
import type { AllowedCall, JudgedCall } from './decide.ts';
import type { Caller, CallStart } from './identify.ts';

/** What the first stages found out, as far as the call came. */
export interface KnownCall extends CallStart {
  readonly caller?: Caller | undefined;
  readonly exposed?: ExposedTool | undefined;
  readonly judged?: JudgedCall | undefined;
}

/** Returns, as JSON, the facts that every record of a call states. */
export function callFactsText(call: KnownCall, digest: (text: string) => string): string {
  const { id, principal, session, caller, exposed, judged } = call;
  const { lowered, decision } = judged ?? {};
  const effect = lowered?.effect;
  const shadow = decision?.shadow ?? [];
  const facts: WithUndefined<Unsealed<CallFacts>> = {
    id,
    principal: { id: principal.id, role: principal.role, profiles: principal.profiles, origin: principal.origin },
    session,
    run: caller?.run ?? session,
    correlation: caller?.correlation,
    exposed: exposed?.name ?? call.requestedName,
    revision: call.revision,
    server: effect?.server,
    tool: effect?.tool,
    verb: effect?.verb,
    effectDigest: effect === undefined ? undefined : effectDigest(effect, lowered?.argsText ?? '', digest),
    consent: judged?.consent,
    reasons: decision?.reasons.map(reasonPlace),
    shadow:
      shadow.length === 0
        ? undefined
        : shadow.map((reason) => ({ ...reasonPlace(reason), would: reason.would, mode: reason.mode })),
    parent: undefined,
  };
  return JSON.stringify(facts);
}

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
export function obligationsOf({ decision, preconditions }: Partial<AllowedCall> = {}): AuditObligations | undefined {
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
export function intentRecord({ judged, argBytes }: KnownCall): CallEntry {
  return { type: 'intent', outcome: 'allow', obligations: obligationsOf(judged), sizes: { args: argBytes } };
}
