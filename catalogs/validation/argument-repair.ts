/** Owns the repair of arguments that failed: only at failing places, only what then passes, and always announced; valid calls are never touched. */

import { parseText } from '../projection/argument-lifting.ts';
import { canonicalize } from '../schemas/canonical-schema.ts';
import { isJsonObject, type JsonSchema } from '../schemas/json-schema.ts';
import { processorMs } from './pattern-guard.ts';
import type { Fault } from './validation-faults.ts';
import { createValidator } from './validator.ts';
import { declaredNames, namesNull, replaceAt, type ValuePosition, valueAt } from './value-position.ts';

/** Repaired arguments, valid by the original schema, and one short note for each change. */
export interface ArgumentRepair {
  readonly value: unknown;
  readonly notes: readonly string[];
}

/** Checks that one repair may cost; a call that needs more is sent back to the model. */
const MAX_CHECKS = 200;
/** Milliseconds of processor time after which no more is tried. */
const MAX_MS = 250;

interface Candidate {
  readonly at: ValuePosition;
  /** The new value; undefined leaves the name out. */
  readonly value: unknown;
  readonly note: string;
}

interface Attempt {
  readonly schema: JsonSchema;
  readonly judge: (value: unknown) => readonly Fault[];
  checks: number;
  readonly began: number;
}

/**
 * Tries to repair `value` where `faults` say that it fails (schema-primitives A7, call time, step 5): JSON text where no
 * text is taken, numbers and booleans written as text, null or "" for an optional name, an absent name that may be null.
 * Undefined when it stays invalid. Text is never made from numbers, and the text "null" is never made null.
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
    judge: createValidator(schema).check,
    checks: 0,
    began: processorMs(),
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

/** The first candidate after which fewer places fail, or the same number with this one mended. */
function improve(state: State, attempt: Attempt): (State & { readonly note: string }) | undefined {
  for (const fault of state.faults) {
    for (const candidate of candidates(fault, state, attempt)) {
      attempt.checks += 1;
      if (attempt.checks > MAX_CHECKS || processorMs() - attempt.began > MAX_MS) return undefined;
      const value = replaceAt(state.value, candidate.at, () => candidate.value);
      const faults = attempt.judge(value);
      if (isBetter(faults, state.faults, candidate.at)) return { value, faults, note: candidate.note };
    }
  }
  return undefined;
}

function isBetter(after: readonly Fault[], before: readonly Fault[], at: ValuePosition): boolean {
  if (after.length === 0) return true;
  const covers = (fault: Fault): boolean => at.every((key, index) => fault.at[index] === key);
  const inside = after.filter(covers).length;
  // A parsed object may show new faults below it; they are repaired in later steps, if nothing else got worse.
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
  // Digits that a double cannot hold stay text: they must not be rounded in silence.
  return plain && text.length <= 15
    ? [{ at, value: Number(text), note: `note: ${place} was text, read as number` }]
    : [];
}

/** Null or "" under a declared name that is not required means that the model meant to say nothing. */
function leaveOut(at: ValuePosition, state: State, attempt: Attempt): readonly Candidate[] {
  const name = at.at(-1);
  if (typeof name !== 'string' || !declaredNames(attempt.schema, at.slice(0, -1)).has(name)) return [];
  const shown = valueAt(state.value, at) === null ? 'null' : '""';
  return [{ at, value: undefined, note: `note: ${at.join('.')}=${shown} dropped` }];
}

/** Nulls for names of another variant: all of them at once, since each alone changes nothing. */
function withoutNulls(object: Record<string, unknown>, fault: Fault, attempt: Attempt): readonly Candidate[] {
  const declared = declaredNames(attempt.schema, fault.at);
  const nulls = Object.keys(object).filter((name) => object[name] === null && declared.has(name));
  if (nulls.length === 0) return [];
  const rest = Object.fromEntries(Object.entries(object).filter(([name]) => !nulls.includes(name)));
  return [{ at: fault.at, value: rest, note: `note: ${nulls.join(', ')}=null dropped` }];
}
