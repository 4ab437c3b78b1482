/** Owns the deciding anew of recorded calls under another policy: reads the draft and nothing else, calls nobody, and guesses no fact that was not kept. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { PolicyParts } from '../engine/compiled-parts.ts';
import { loadPolicy } from '../engine/policy-loader.ts';
import { TIMED_OUT } from '../engine/workers/worker-handle.ts';
import { type CallDecision, type CallInput, INPUT_VERSION, type Policy, type Reason } from '../port.ts';

/** A call as it was recorded. `argsText` is absent where it was too large to keep, `decision` where the policy gave none. */
export interface RecordedCall {
  readonly id: string;
  /** Of the input document. */
  readonly version: number;
  readonly input: Omit<CallInput, 'argsText'> & { readonly argsText?: string };
  readonly decision?: CallDecision;
}

type Outcome = CallDecision['outcome'];

/** What became of a decision. `reasons`: the same outcome and duties, by other rules. */
export type ReplayClass =
  | 'unchanged'
  | 'reasons'
  | 'obligations'
  | 'not-replayable'
  | { [A in Outcome]: `${A}-to-${Exclude<Outcome, A>}` }[Outcome];

/** What decided, short: a policy that gave no decision refuses. */
export interface Decided {
  readonly outcome: Outcome;
  readonly reasons: readonly Reason[];
}

/** One call, decided anew. `why` says why one is not replayable. */
export interface Replayed {
  readonly id: string;
  readonly class: ReplayClass;
  readonly before?: Decided;
  readonly after?: Decided;
  /** Of the class `obligations`: those that differ, with both values; absent ones are null. */
  readonly obligations?: Readonly<Record<string, readonly [before: unknown, after: unknown]>>;
  readonly why?: string;
}

/** A machine that is busy must not make decisions differ. */
const DEADLINE_MS = 2000;

/** Decides all calls anew. Throws as `loadPolicy`; then nothing was decided. */
export async function* replayCalls(parts: PolicyParts, calls: Iterable<RecordedCall>): AsyncGenerator<Replayed> {
  const policy = await loadApart(parts);
  try {
    for (const call of calls) yield await replayOne(policy, call);
  } finally {
    policy.close();
  }
}

/** Nothing is left in the state folder of the facade whose traffic this is. */
async function loadApart(parts: PolicyParts): Promise<Policy> {
  const cache = await mkdtemp(path.join(tmpdir(), 'tollgate-replay-'));
  try {
    return await loadPolicy({ ...parts, cache, deadlineMs: DEADLINE_MS });
  } finally {
    await rm(cache, { recursive: true, force: true });
  }
}

async function replayOne(policy: Policy, call: RecordedCall): Promise<Replayed> {
  const { id, version, input, decision: before } = call;
  const none = (why: string): Replayed => ({
    id,
    class: 'not-replayable',
    ...(before === undefined ? {} : { before: short(before) }),
    why,
  });
  if (version !== INPUT_VERSION) return none(`recorded with version ${version} of the input, this is ${INPUT_VERSION}`);
  const { argsText } = input;
  if (argsText === undefined) return none('the arguments were too large to be kept');
  const after = await decide(policy, { ...input, argsText });
  if (after === TIMED_OUT) return none('the draft did not decide in time, which may be the machine');
  if (before === undefined)
    return typeof after === 'string' ? { id, class: 'unchanged' } : none('no decision was made when it was recorded');
  if (typeof after === 'string') return classify(id, before, refused(after));
  return classify(id, before, after);
}

/** The decision, or why there is none. */
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

/** A refused call has nothing to obey, so that duties count for the others only. */
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
