/**
 * Validates values against the schemas of servers. A schema is interpreted at first. It is compiled if its tool is
 * called often, or if a value is large. Values are never changed.
 */
import { Validator as Interpreter } from '@cfworker/json-schema';
import { type JsonSchema, mapChildren } from '../schemas/json-schema.ts';
import { type CompiledSchema, compileSchema } from './compiled-schema.ts';
import { resetPatternClock } from './pattern-guard.ts';
import { type PreparedSchema, prepareSchema } from './prepared-schema.ts';
import { type Fault, faultAt } from './validation-faults.ts';
import { readReport } from './validation-report.ts';

/** Validates values against one schema. */
export interface Validator {
  /** Returns the faults of a value; an empty list if it is valid. */
  check(value: unknown): readonly Fault[];
  /** Says which parts of the schema are not checked, and why. The tool stays callable. */
  readonly unchecked?: string;
}

/** Calls of one tool after which its schema is compiled. Compiling costs as much as about 85 interpreted calls. */
const CALLS_TO_COMPILE = 50;
/** Schemas with more nodes stay interpreted, because compiling the largest real one takes 0.3 s. */
const MAX_COMPILED_NODES = 1_500;
/**
 * Weight of a value from which the compiled schema is used, because the interpreter takes microseconds for each part
 * and keeps every fault.
 */
const HEAVY = 10_000;
/** The same for a schema with `uniqueItems`, because the interpreter compares each item with each. */
const HEAVY_UNIQUE = 300;
/**
 * Limit of subschemas that the interpreter visits for one value. A schema whose branches refer to itself could take
 * exponential time.
 */
const MAX_VISITS = 1_000_000;
const TOO_EXPENSIVE = 'cannot be checked: it is nested too deeply or too long';
const NONE: readonly Fault[] = [];
const validators = { input: new WeakMap<object, Validator>(), output: new WeakMap<object, Validator>() };

/**
 * Returns a validator for an input schema, or for an output schema, whose root may be any type. The dialect is the one
 * in `$schema`, otherwise 2020-12. The same schema object gives the same validator. Never throws: a schema that cannot
 * be used gives a validator that accepts everything and says why in `unchecked`.
 */
export function createValidator(schema: unknown, as: 'input' | 'output' = 'input'): Validator {
  const cached = typeof schema === 'object' && schema !== null ? validators[as].get(schema) : undefined;
  if (cached !== undefined) return cached;
  const prepared = prepareSchema(schema, as);
  const validator: Validator =
    'quarantined' in prepared ? { check: () => NONE, unchecked: prepared.quarantined } : makeValidator(prepared);
  if (typeof schema === 'object' && schema !== null) validators[as].set(schema, validator);
  return validator;
}

/**
 * Returns why a schema does not accept this value of one argument, independent of the other arguments; undefined if it
 * may accept it. The message contains nothing of the value, because a value that an owner pins may be a secret.
 */
export function argumentValueFault(schema: unknown, name: string, value: unknown): string | undefined {
  const found = createValidator(schema)
    .check({ [name]: value })
    .find(({ at }) => at[0] === name);
  return found?.message.replace(/, got .*$/s, '');
}

function makeValidator(prepared: PreparedSchema): Validator {
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
    if (calls === CALLS_TO_COMPILE && prepared.compilable && prepared.nodes <= MAX_COMPILED_NODES)
      setImmediate(compile).unref();
    // Compiled code only accepts values. Faults always come from the interpreter, so that messages do not depend on the
    // number of calls.
    if (prepared.compilable && compiled?.isValid(value) === true) return NONE;
    visits.count = 0;
    return interpret(interpreter, prepared, value);
  };
  return prepared.dropped.length === 0 ? { check } : { check, unchecked: [...new Set(prepared.dropped)].join('; ') };
}

function checkHeavy(compiled: CompiledSchema | undefined, value: unknown): readonly Fault[] {
  if (compiled === undefined) return [faultAt([], TOO_EXPENSIVE)];
  return compiled.isValid(value) ? NONE : [compiled.lastFault(value)];
}

/** Returns true if a value weighs more than `max`: one for each part, and one for each hundred characters. */
function isHeavy(value: unknown, max: number): boolean {
  let weight = 0;
  const open = [value];
  for (let next = open.pop(); open.length > 0 || next !== undefined; next = open.pop()) {
    weight += typeof next === 'string' ? 1 + next.length / 100 : 1;
    if (weight > max) return true;
    if (typeof next !== 'object' || next === null) continue;
    if (Array.isArray(next) && next.length > max) return true;
    for (const key in next) {
      weight += key.length / 100;
      open.push((next as Readonly<Record<string, unknown>>)[key]);
      if (weight + open.length > max) return true;
    }
  }
  return false;
}

/**
 * Returns a copy of the schema that counts the visits of its nodes, and throws after too many. The interpreter reads
 * `$recursiveRef` at each node, so a getter counts them.
 */
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
    // A value that cannot be checked is refused.
    return [faultAt([], TOO_EXPENSIVE)];
  }
}
