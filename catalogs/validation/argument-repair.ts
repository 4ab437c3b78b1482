/**
 * Repairs arguments that failed validation. It changes only failing places, keeps a change only if validation then
 * finds fewer faults, and notes each change. Valid arguments are never changed.
 */

import { parseText } from '../projection/argument-lifting.ts';
import { canonicalize } from '../schemas/canonical-schema.ts';
import { isJsonObject, type JsonSchema } from '../schemas/json-schema.ts';
import { threadMs } from '../text/thread-clock.ts';
import type { Fault } from './validation-faults.ts';
import { createValidator } from './validator.ts';
import { declaredNames, namesNull, replaceAt, type ValuePosition, valueAt } from './value-position.ts';

/** Repaired arguments, valid by the original schema, and one short note for each change. */
export interface ArgumentRepair {
  readonly value: unknown;
  readonly notes: readonly string[];
}

/** Limit of validations in one repair. A call that needs more is sent back to the model. */
const MAX_CHECKS = 200;
/** Milliseconds of processor time after which the repair gives up. */
const MAX_MS = 250;

/** A change that may repair a fault. */
interface Candidate {
  readonly at: ValuePosition;
  /** The new value; undefined removes the name. */
  readonly value: unknown;
  readonly note: string;
}

/** One repair, and what it cost so far. */
interface Attempt {
  readonly schema: JsonSchema;
  readonly check: (value: unknown) => readonly Fault[];
  checks: number;
  readonly startedMs: number;
}

/**
 * Returns `value` with its `faults` repaired; undefined if it stays invalid. Repairs JSON text where the schema
 * accepts no text, numbers and booleans written as text, null or "" for an optional name, and an absent name that may
 * be null. It never changes a number to text, or the text "null" to null.
 */
export function repairArguments(
  schema: Record<string, unknown>,
  value: unknown,
  faults: readonly Fault[],
): ArgumentRepair | undefined {
  const canonical = canonicalize(schema);
  if (faults.length === 0 || 'quarantined' in canonical) return undefined;
  const attempt: Attempt = {
    schema: canonical.schema,
    check: createValidator(schema).check,
    checks: 0,
    startedMs: threadMs(),
  };
  let state = { value, faults };
  const notes: string[] = [];
  while (state.faults.length > 0) {
    const step = improve(state, attempt);
    if (step === undefined) return undefined;
    notes.push(step.note);
    state = step;
  }
  return { value: state.value, notes };
}

interface State {
  readonly value: unknown;
  readonly faults: readonly Fault[];
}

/** Returns the state after the first candidate that is better; undefined if there is none. */
function improve(state: State, attempt: Attempt): (State & { readonly note: string }) | undefined {
  for (const fault of state.faults) {
    for (const candidate of candidates(fault, state, attempt)) {
      attempt.checks += 1;
      if (attempt.checks > MAX_CHECKS || threadMs() - attempt.startedMs > MAX_MS) return undefined;
      const value = replaceAt(state.value, candidate.at, () => candidate.value);
      const faults = attempt.check(value);
      if (isBetter(faults, state.faults, candidate.at)) return { value, faults, note: candidate.note };
    }
  }
  return undefined;
}

/** Returns true if a change at `at` leaves fewer faults, or only new faults below `at`. */
function isBetter(after: readonly Fault[], before: readonly Fault[], at: ValuePosition): boolean {
  if (after.length === 0) return true;
  const covers = (fault: Fault): boolean => at.every((key, index) => fault.at[index] === key);
  const inside = after.filter(covers).length;
  // An object parsed from text may show new faults below it. Later steps repair them, so only other places must not
  // get worse.
  const sameElsewhere = after.length - inside <= before.length - before.filter(covers).length;
  return (
    sameElsewhere &&
    (inside < before.filter(covers).length || after.filter(covers).every((fault) => fault.at.length > at.length))
  );
}

function candidates(fault: Fault, state: State, attempt: Attempt): readonly Candidate[] {
  const value = valueAt(state.value, fault.at);
  const place = fault.path;
  const found: Candidate[] = [];
  if (typeof value === 'string') found.push(...fromText(value, fault.at, place));
  if (value === null || value === '') found.push(...leaveOut(fault.at, state, attempt));
  if (value === undefined && fault.at.length > 0 && namesNull(attempt.schema, fault.at))
    found.push({ at: fault.at, value: null, note: `note: ${place} was absent, null sent` });
  if (isJsonObject(value)) found.push(...withoutNulls(value, fault, attempt));
  return found;
}

function fromText(text: string, at: ValuePosition, place: string): readonly Candidate[] {
  const parsed = parseText(text);
  if (parsed !== text)
    return [
      {
        at,
        value: parsed,
        note: `note: ${place} was JSON text, read as ${Array.isArray(parsed) ? 'a list' : 'an object'}`,
      },
    ];
  if (text === 'true' || text === 'false')
    return [{ at, value: text === 'true', note: `note: ${place} was text, read as boolean` }];
  const plain = /^-?(?:0|[1-9]\d*)(?:\.\d+)?$/.test(text);
  // Digits that a double cannot hold stay text, because they must not be rounded silently.
  return plain && text.length <= 15
    ? [{ at, value: Number(text), note: `note: ${place} was text, read as number` }]
    : [];
}

/** Returns a candidate without a declared name whose value is null or "": the model means that it is absent. */
function leaveOut(at: ValuePosition, state: State, attempt: Attempt): readonly Candidate[] {
  const name = at.at(-1);
  if (typeof name !== 'string' || !declaredNames(attempt.schema, at.slice(0, -1)).has(name)) return [];
  const shown = valueAt(state.value, at) === null ? 'null' : '""';
  return [{ at, value: undefined, note: `note: ${at.join('.')}=${shown} dropped` }];
}

/**
 * Returns a candidate without all nulls of an object. Models give null for names of another variant, and removing one
 * of them alone leaves as many faults.
 */
function withoutNulls(object: Record<string, unknown>, fault: Fault, attempt: Attempt): readonly Candidate[] {
  const declared = declaredNames(attempt.schema, fault.at);
  const nulls = Object.keys(object).filter((name) => object[name] === null && declared.has(name));
  if (nulls.length === 0) return [];
  const rest = Object.fromEntries(Object.entries(object).filter(([name]) => !nulls.includes(name)));
  return [{ at: fault.at, value: rest, note: `note: ${nulls.join(', ')}=null dropped` }];
}
