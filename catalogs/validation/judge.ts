/** Owns the judgement of a value by the schema that its server gave: interpreted first, compiled when hot; it changes nothing. */
import { createRequire } from 'node:module';
import { Validator as Interpreter } from '@cfworker/json-schema';
import { fault, type Fault } from './faults.ts';
import { prepareSchema, type Prepared } from './prepare.ts';
import { readReport } from './report.ts';
import { resetClock } from './guard.ts';

/** Judges values by one schema. An empty list means valid. */
export interface Validator {
  check(value: unknown): readonly Fault[];
  /** Set when rules of the schema are not checked: why. The tool stays callable. */
  readonly unchecked?: string;
}

const require = createRequire(import.meta.url);

/** Calls of one tool after which its schema is compiled (perf §4: the two ways cost the same at about 85). */
const HOT = 50;
/** Schemas with more nodes stay interpreted: to compile the largest real one takes a third of a second. */
const MAX_COMPILED_NODES = 1_500;
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
  const validator: Validator = 'quarantined' in prepared ? { check: () => NONE, unchecked: prepared.quarantined } : judge(prepared);
  if (typeof schema === 'object' && schema !== null) known[as].set(schema, validator);
  return validator;
}

function judge(prepared: Prepared): Validator {
  const interpreter = new Interpreter(prepared.schema, '2020-12', false);
  let compiled: ((value: unknown) => boolean) | undefined;
  let calls = 0;
  const check = (value: unknown): readonly Fault[] => {
    resetClock();
    calls += 1;
    if (calls === HOT && prepared.compilable && prepared.nodes <= MAX_COMPILED_NODES) setImmediate(() => (compiled = compileSchema(prepared))).unref();
    // Compiled code only says yes; what is wrong is always told by the interpreter, so texts never depend on heat.
    return compiled?.(value) === true ? NONE : interpret(interpreter, prepared, value);
  };
  return prepared.dropped.length === 0 ? { check } : { check, unchecked: [...new Set(prepared.dropped)].join('; ') };
}

function interpret(interpreter: Interpreter, prepared: Prepared, value: unknown): readonly Fault[] {
  try {
    const { valid, errors } = interpreter.validate(value);
    if (valid) return NONE;
    const faults = readReport(errors, { root: prepared.schema, value, patterns: prepared.patterns });
    return faults.length > 0 ? faults : [fault([], 'does not fit the schema')];
  } catch {
    // A value too deep or too wide to be judged is not let through.
    return [fault([], 'cannot be checked: it is nested too deeply or too long')];
  }
}

/** The compiled form; undefined when the compiler refuses the schema, which then stays interpreted. */
export function compileSchema(prepared: Prepared): ((value: unknown) => boolean) | undefined {
  const { Ajv2020 } = require('ajv/dist/2020.js') as typeof import('ajv/dist/2020.js');
  // A compiler of its own for each schema: a shared one keeps every schema that it ever saw.
  const ajv = new Ajv2020({ strict: false, validateSchema: false, meta: false, ownProperties: true, allErrors: false, logger: false, code: { optimize: false } });
  for (const [name, test] of prepared.formats) ajv.addFormat(name, test);
  try {
    const validate = ajv.compile(prepared.schema);
    return (value) => {
      try {
        return validate(value) === true;
      } catch {
        return false;
      }
    };
  } catch {
    return undefined;
  }
}
