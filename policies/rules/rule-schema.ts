/** Checks YAML rules against policies/schemas/rules.json, and explains each fault with a suggestion. */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { ErrorObject, ValidateFunction } from 'ajv';
import { quantityExample, RATE_KEYS, rateLimits, readQuantities } from '../../catalogs/readers/quantities.ts';
import { surelyFits } from '../../catalogs/validation/schema-code.ts';
import type { ApprovalScope, BudgetObligation, MODE_NAMES } from '../port.ts';
import { suggest } from './policy-problems.ts';
import type { RuleOutcome, When } from './rule-conditions.ts';

const require = createRequire(import.meta.url);

/** One rule as it is written in YAML. */
export interface YamlRule {
  readonly id: string;
  readonly outcome: RuleOutcome;
  readonly message?: string;
  readonly mode?: keyof typeof MODE_NAMES;
  readonly approval?: ApprovalScope;
  readonly when: When;
  readonly obligations?: {
    readonly caps?: { readonly bytes?: number; readonly lines?: number };
    readonly timeoutMs?: number;
    readonly labels?: readonly string[];
    readonly pins?: Readonly<Record<string, unknown>>;
    readonly budgets?: readonly BudgetObligation[];
  };
}

/** A fault and its path in the value. `part` tells whether the key or the value is wrong. */
export interface SchemaFault {
  readonly path: readonly (string | number)[];
  readonly part: 'key' | 'value';
  readonly message: string;
}

const SCHEMA = new URL('../schemas/rules.json', import.meta.url);

/** Returns the faults of a rules document. If there are none, the value is `{rules: YamlRule[]}`. */
export const findSchemaFaults = schemaCheck(SCHEMA);

/**
 * Returns a function that finds the faults of a value by the schema in a file. Compiling the schema is expensive, so
 * this happens only when the fast check fails for the first time.
 */
export function schemaCheck(file: URL): (value: unknown) => readonly SchemaFault[] {
  let compiled: ValidateFunction | undefined;
  return (value) => {
    if (compiled === undefined && surelyFits(file, value)) return [];
    const { Ajv } = require('ajv') as typeof import('ajv');
    const options = { allErrors: true, verbose: true, allowUnionTypes: true };
    compiled ??= new Ajv(options).compile(JSON.parse(readFileSync(file, 'utf8')) as object);
    if (compiled(value)) return [];
    // An `if` only repeats that its `then` or `else` failed.
    return (compiled.errors ?? []).filter(({ keyword }) => keyword !== 'if').map(toFault);
  };
}

/** Returns the faults of obligations that Rego gives. They have the same schema as obligations in YAML. */
export function findObligationFaults(obligations: unknown): readonly SchemaFault[] {
  const rule = { id: 'member', outcome: 'ask', when: {}, obligations };
  const texts: readonly SchemaFault[] =
    readQuantities(rule, () => ({ ...rulesSchema(), ...rulesSchema().definitions.rule })) === rule
      ? []
      : [{ path: [], part: 'value', message: 'sizes, durations and rates are numbers in Rego, not texts' }];
  const faults = findSchemaFaults({ rules: [rule] }).map((fault) => ({ ...fault, path: fault.path.slice(3) }));
  return [...texts, ...faults];
}

function schemaOf({ parentSchema }: ErrorObject): { readonly pattern?: string } {
  return (parentSchema ?? {}) as { readonly pattern?: string };
}

/** Returns the schema of rules. */
export function rulesSchema(): {
  readonly definitions: { readonly rule: object; readonly when: { readonly properties: object } };
} {
  return JSON.parse(readFileSync(SCHEMA, 'utf8')) as ReturnType<typeof rulesSchema>;
}

/** Returns an error of ajv (with `allErrors` and `verbose`) as a fault with our message. */
function toFault(error: ErrorObject): SchemaFault {
  const path = error.instancePath.split('/').slice(1).map(unescapePointer);
  const params = error.params as Readonly<Record<string, unknown>>;
  if (error.keyword === 'additionalProperties') {
    const key = String(params.additionalProperty);
    const known = Object.keys((error.parentSchema as { properties?: object } | undefined)?.properties ?? {});
    return {
      path: [...path, key],
      part: 'key',
      message: `unknown key "${key.slice(0, 40)}".${hintOf(error, key, known)} Known keys: ${known.join(', ')}.`,
    };
  }
  return { path, part: 'value', message: describe(error, params) };
}

/** A condition next to `when` is a mistake in indentation, not in spelling. A rate is a budget. */
function hintOf({ data, instancePath }: ErrorObject, key: string, known: readonly string[]): string {
  if (RATE_KEYS.test(key)) {
    const limits = rateLimits((data as Readonly<Record<string, unknown>>)[key]);
    return instancePath.includes('/budgets/')
      ? ` A rate is two keys: write ${limits}.`
      : ` A rate is a budget: write obligations: {budgets: [{id: my-rate, scope: principal, ${limits}}]}.`;
  }
  const isCondition = known.includes('when') && Object.hasOwn(rulesSchema().definitions.when.properties, key);
  return isCondition ? ' It is a condition: indent it, so that it is under `when`.' : suggest(key, known);
}

function describe(error: ErrorObject, params: Readonly<Record<string, unknown>>): string {
  const given = JSON.stringify(error.data)?.slice(0, 60) ?? 'nothing';
  if (error.keyword === 'enum') {
    const known = (params.allowedValues as readonly unknown[]).map(String);
    return (
      `${given} is not one of ` +
      `${known.join(', ')}.${typeof error.data === 'string' ? suggest(error.data, known) : ''}`
    );
  }
  if (error.keyword === 'required') return `"${String(params.missingProperty)}" is missing; add it.`;
  if (error.keyword === 'minItems') return 'an empty list never matches; remove the key, or add an entry.';
  if (error.keyword === 'minProperties') return 'the value is empty; remove the key, or add an entry.';
  if (error.keyword === 'type' && error.data === null)
    return 'the value is missing; write it, or indent the following lines.';
  const example = quantityExample(String(error.instancePath.split('/').at(-1)), schemaOf(error).pattern);
  if ((error.keyword === 'type' || error.keyword === 'pattern') && example !== undefined)
    return `${given} is not ${example}.`;
  if (error.keyword === 'type' && /^\/rules\/\d+\/when\/args\/[^/]+$/.test(error.instancePath))
    return `${given} is not a test of an argument; write {${Array.isArray(error.data) ? 'in' : 'equals'}: ${given}}.`;
  if (error.keyword === 'type')
    return `${given} is not of type ${String(params.type)}${howToWrite(error.data, String(params.type))}.`;
  if (error.keyword === 'pattern') return `${given} does not fit: ${hintFor(error)}.`;
  return `${given} ${error.message ?? 'is refused'}.`;
}

/** The two frequent mistakes in YAML: one value instead of a list, and wrong quotes. */
function howToWrite(data: unknown, type: string): string {
  if (type === 'array' && typeof data !== 'object') return `; write a list: [${String(data).slice(0, 60)}]`;
  if (type === 'boolean' && typeof data !== 'object') return '; write true or false';
  if (typeof data === 'string' && ['number', 'integer'].includes(type)) return '; write it without quotes';
  return type === 'string' && typeof data !== 'object' ? '; write it in quotes' : '';
}

/** The schema describes its regular expressions in words. */
function hintFor({ parentSchema }: ErrorObject): string {
  const { description } = (parentSchema ?? {}) as { readonly description?: string };
  return (
    description?.replace(/\.$/, '') ??
    `it must match ${String((parentSchema as { pattern?: string } | undefined)?.pattern)}`
  );
}

function unescapePointer(part: string): string | number {
  const key = part.replaceAll('~1', '/').replaceAll('~0', '~');
  return /^(0|[1-9]\d*)$/.test(key) ? Number(key) : key;
}
