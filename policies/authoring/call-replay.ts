/**
 * Decides recorded calls again with another policy. It contacts no server, and does not guess facts that were not
 * recorded.
 */

import { isDeepStrictEqual } from 'node:util';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { definedFields } from '../../catalogs/text/collections.ts';
import type { PolicyParts } from '../engine/compiled-parts.ts';
import { loadPolicy } from '../engine/policy-loader.ts';
import { TIMED_OUT } from '../engine/workers/worker-handle.ts';
import { type CallDecision, type CallInput, INPUT_VERSION, type Policy, type Reason } from '../port.ts';
import { inTemporaryFolder } from '../rego/temporary-folder.ts';

/** A recorded call. `argsText` is absent if it was too large; `decision` is absent if the policy gave none. */
export interface RecordedCall {
  readonly id: string;
  /** Version of the input document. */
  readonly version: number;
  readonly input: Omit<CallInput, 'argsText'> & { readonly argsText?: string };
  readonly decision?: CallDecision;
}

type Outcome = CallDecision['outcome'];

/** How a decision changed. `reasons`: the same outcome and obligations by other rules. */
export type ReplayClass =
  | 'unchanged'
  | 'reasons'
  | 'obligations'
  | 'not-replayable'
  | { [A in Outcome]: `${A}-to-${Exclude<Outcome, A>}` }[Outcome];

/** A decision without its obligations. A policy that gave no decision denies. */
export interface Decided {
  readonly outcome: Outcome;
  readonly reasons: readonly Reason[];
}

/** The result for one call. `why` says why a call is not replayable. */
export interface Replayed {
  readonly id: string;
  readonly class: ReplayClass;
  readonly before?: Decided;
  readonly after?: Decided;
  /** For the class `obligations`: the ones that differ, with both values; null if absent. */
  readonly obligations?: Readonly<Record<string, readonly [before: unknown, after: unknown]>>;
  readonly why?: string;
}

/** Milliseconds for one decision: generous, so that a busy machine does not change decisions. */
export const REPLAY_DEADLINE_MS = 2000;

/** Decides all calls again. Throws the same as `loadPolicy`, before the first call. */
export async function* replayCalls(parts: PolicyParts, calls: Iterable<RecordedCall>): AsyncGenerator<Replayed> {
  // A temporary cache, so that the state folder of the recorded facade is not changed.
  const policy = await inTemporaryFolder('replay', (cache) =>
    loadPolicy({ ...parts, cache, deadlineMs: REPLAY_DEADLINE_MS }),
  );
  try {
    for (const call of calls) yield await replayCall(policy, call);
  } finally {
    policy.close();
  }
}

/** Decides one call again. A call that cannot be decided is `not-replayable`, with the reason. */
export async function replayCall(policy: Policy, call: RecordedCall): Promise<Replayed> {
  const { id, version, input, decision: before } = call;
  const none = (why: string): Replayed =>
    definedFields({ id, class: 'not-replayable' as const, before: before && short(before), why });
  // An input of version 1 is one of version 2 about a tool, which an absent kind means.
  if (version !== 1 && version !== INPUT_VERSION)
    return none(`it was recorded with version ${version} of the input; the current version is ${INPUT_VERSION}`);
  const { argsText } = input;
  if (argsText === undefined) return none('the arguments were too large to be recorded');
  const after = await decide(policy, { ...input, argsText });
  if (after === TIMED_OUT) return none('the draft did not decide in time; the machine may be too busy');
  if (before === undefined)
    return typeof after === 'string' ? { id, class: 'unchanged' } : none('no decision was made when it was recorded');
  if (typeof after === 'string') return classify(id, before, refused(after));
  return classify(id, before, after);
}

/** Returns the decision, or why there is none. */
async function decide(policy: Policy, input: CallInput): Promise<CallDecision | string> {
  try {
    return await policy.call(input);
  } catch (thrown) {
    if (thrown instanceof TollgateError && thrown.code === 'POLICY_FAILED') return thrown.message;
    throw thrown;
  }
}

function refused(message: string): CallDecision {
  return {
    outcome: 'deny',
    reasons: [{ id: 'POLICY_FAILED', message }],
    obligations: { caps: {}, pins: {}, budgets: [], labels: [] },
    shadow: [],
  };
}

function classify(id: string, before: CallDecision, after: CallDecision): Replayed {
  const found = classOf(before, after);
  return {
    id,
    class: found,
    before: short(before),
    after: short(after),
    ...(found === 'obligations'
      ? { obligations: differences({ ...before.obligations }, { ...after.obligations }) }
      : {}),
  };
}

function differences(
  before: Readonly<Record<string, unknown>>,
  after: Readonly<Record<string, unknown>>,
): NonNullable<Replayed['obligations']> {
  const names = new Set([...Object.keys(before), ...Object.keys(after)]);
  const differ = [...names].filter((name) => !isDeepStrictEqual(before[name], after[name]));
  return Object.fromEntries(differ.map((name) => [name, [before[name] ?? null, after[name] ?? null] as const]));
}

/** Obligations of a denied call are not compared, because they have no effect. */
function classOf(before: CallDecision, after: CallDecision): ReplayClass {
  if (before.outcome !== after.outcome) return `${before.outcome}-to-${after.outcome}` as ReplayClass;
  if (before.outcome !== 'deny' && !isDeepStrictEqual(before.obligations, after.obligations)) return 'obligations';
  return isDeepStrictEqual(idsOf(before), idsOf(after)) ? 'unchanged' : 'reasons';
}

function idsOf({ reasons }: Decided): readonly string[] {
  return reasons.map(({ id }) => id);
}

function short({ outcome, reasons }: CallDecision): Decided {
  return { outcome, reasons };
}
