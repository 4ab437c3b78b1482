/** Owns the judgement of a value by the schema that its server gave: interpreted first, compiled when hot or large; it changes nothing. */
import { Validator as Interpreter } from '@cfworker/json-schema';
import { type JsonSchema, mapChildren } from '../schemas/json-schema.ts';
import { type CompiledSchema, compileSchema } from './compiled-schema.ts';
import { resetPatternClock } from './pattern-guard.ts';
import { type PreparedSchema, prepareSchema } from './prepared-schema.ts';
import { type Fault, faultAt } from './validation-faults.ts';
import { readReport } from './validation-report.ts';

/** Judges values by one schema. An empty list means valid. */
export interface Validator {
  check(value: unknown): readonly Fault[];
  /** Set when rules of the schema are not checked: why. The tool stays callable. */
  readonly unchecked?: string;
}

/** Calls of one tool after which its schema is compiled (perf §4: the two ways cost the same at about 85). */
const HOT = 50;
/** Schemas with more nodes stay interpreted: to compile the largest real one takes a third of a second. */
const MAX_COMPILED_NODES = 1_500;
/** Values that weigh more are judged by the compiled schema: the interpreter takes microseconds for each part, and keeps every fault. */
const HEAVY = 10_000;
/** The same where items must differ: the interpreter compares each with each. */
const HEAVY_UNIQUE = 300;
/** Subschemas that the interpreter may visit for one value. A schema whose branches refer to itself could take exponential time. */
const MAX_VISITS = 1_000_000;
const TOO_MUCH = 'cannot be checked: it is nested too deeply or too long';
const NONE: readonly Fault[] = [];
const known = { input: new WeakMap<object, Validator>(), output: new WeakMap<object, Validator>() };

/**
 * A validator for an input schema, or for an output schema, whose root need not be an object. The dialect is the one
 * that `$schema` names, else 2020-12. The same schema object gives the same validator. Never throws: a schema that
 * cannot be judged gives a validator that says so in `unchecked`.
 */
export function createValidator(schema: unknown, as: 'input' | 'output' = 'input'): Validator {
  const cached = typeof schema === 'object' && schema !== null ? known[as].get(schema) : undefined;
  if (cached !== undefined) return cached;
  const prepared = prepareSchema(schema, as);
  const validator: Validator =
    'quarantined' in prepared ? { check: () => NONE, unchecked: prepared.quarantined } : judge(prepared);
  if (typeof schema === 'object' && schema !== null) known[as].set(schema, validator);
  return validator;
}

/**
 * Why a schema takes no such value for one argument, whatever else a call carries; undefined if it may take it. The words hold nothing of the
 * value: what an owner pins may be a secret.
 */
export function argumentValueFault(schema: unknown, name: string, value: unknown): string | undefined {
  const found = createValidator(schema)
    .check({ [name]: value })
    .find(({ at }) => at[0] === name);
  return found?.message.replace(/, got .*$/s, '');
}

function judge(prepared: PreparedSchema): Validator {
  const visits = { count: 0 };
  const interpreter = new Interpreter(countVisits(prepared.schema, visits), '2020-12', false);
  let compiled: CompiledSchema | undefined;
  let isCompiled = false;
  let calls = 0;
  const compile = (): CompiledSchema | undefined => {
    if (!isCompiled) compiled = compileSchema(prepared);
    isCompiled = true;
    return compiled;
  };
  const check = (value: unknown): readonly Fault[] => {
    resetPatternClock();
    calls += 1;
    if (isHeavy(value, prepared.unique ? HEAVY_UNIQUE : HEAVY)) return checkHeavy(compile(), value);
    if (calls === HOT && prepared.compilable && prepared.nodes <= MAX_COMPILED_NODES) setImmediate(compile).unref();
    // Compiled code only says yes; what is wrong is always told by the interpreter, so texts never depend on heat.
    if (prepared.compilable && compiled?.valid(value) === true) return NONE;
    visits.count = 0;
    return interpret(interpreter, prepared, value);
  };
  return prepared.dropped.length === 0 ? { check } : { check, unchecked: [...new Set(prepared.dropped)].join('; ') };
}

function checkHeavy(compiled: CompiledSchema | undefined, value: unknown): readonly Fault[] {
  if (compiled === undefined) return [faultAt([], TOO_MUCH)];
  return compiled.valid(value) ? NONE : [compiled.lastFault(value)];
}

/** True when the parts of a value, and its characters by the hundred, are more than `most`. Stops there. */
function isHeavy(value: unknown, most: number): boolean {
  let weight = 0;
  const open = [value];
  for (let next = open.pop(); open.length > 0 || next !== undefined; next = open.pop()) {
    weight += typeof next === 'string' ? 1 + next.length / 100 : 1;
    if (weight > most) return true;
    if (typeof next !== 'object' || next === null) continue;
    if (Array.isArray(next) && next.length > most) return true;
    for (const key in next) {
      weight += key.length / 100;
      open.push((next as Readonly<Record<string, unknown>>)[key]);
      if (weight + open.length > most) return true;
    }
  }
  return false;
}

/** A copy of the schema that counts the visits of its nodes and throws when there are too many: the interpreter reads this keyword at each. */
function countVisits(schema: JsonSchema, visits: { count: number }): JsonSchema {
  const copy = mapChildren(schema, (child) => countVisits(child, visits));
  return Object.defineProperty(copy, '$recursiveRef', {
    enumerable: false,
    get: () => {
      visits.count += 1;
      if (visits.count > MAX_VISITS) throw new Error('too many visits');
      return undefined;
    },
  });
}

function interpret(interpreter: Interpreter, prepared: PreparedSchema, value: unknown): readonly Fault[] {
  try {
    const { valid, errors } = interpreter.validate(value);
    if (valid) return NONE;
    const faults = readReport(errors, { root: prepared.schema, value, patterns: prepared.patterns });
    return faults.length > 0 ? faults : [faultAt([], 'does not fit the schema')];
  } catch {
    // A value too deep or too wide to be judged is not let through.
    return [faultAt([], TOO_MUCH)];
  }
}
