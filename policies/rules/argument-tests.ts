/**
 * Compiles the tests of a rule on arguments for lib/facts.rego. Refuses tests that no value, or every value, passes.
 */

import { definedFields } from '../../catalogs/text/collections.ts';
import { literalForms } from './literal-patterns.ts';
import { requiredTexts } from './required-texts.ts';

/** Tests on one argument; all of them must pass. An absent argument passes no test but `present: false`. */
export interface ArgumentTests {
  readonly equals?: unknown;
  readonly in?: readonly unknown[];
  readonly prefix?: string;
  readonly pattern?: string;
  readonly min?: number;
  readonly max?: number;
  readonly present?: boolean;
}

interface Context {
  readonly strict: boolean;
  readonly refuse: Refuse;
}

/** Returns the conditions for all arguments that a rule names. */
export function compileArgumentTests(
  args: Readonly<Record<string, ArgumentTests>>,
  context: Context,
): readonly RuleCondition[] {
  return Object.entries(args).flatMap(([dotted, tests]) => compileArgument(dotted, tests, context));
}

function compileArgument(dotted: string, tests: ArgumentTests, { strict, refuse }: Context): readonly RuleCondition[] {
  const path = dotted.split('.');
  if (path.includes('')) {
    refuse([dotted], `"${dotted}" is not a path of argument names joined by dots`);
    return [];
  }
  const { present, ...others } = tests;
  const tested = Object.keys(others).length > 0;
  const conditions: RuleCondition[] = [];
  if (present !== undefined)
    conditions.push({
      path,
      present: strict ? (present ? 'somewhere' : 'not plainly') : present ? 'plainly' : 'nowhere',
    });
  if (present === false && tested)
    refuse([dotted, 'present'], 'an absent argument passes no other test; remove `present: false`, or the other tests');
  findContradictions(others, { strict, refuse: (at, message) => refuse([dotted, ...at], message) });
  if (tested)
    conditions.push({ over: 'argument', need: strict ? 'any' : 'every', path, ...compileTests(others, strict) });
  return conditions;
}

type Tests = Omit<ArgumentTests, 'present'>;

function findContradictions(tests: Tests, { strict, refuse }: Context): void {
  const { pattern, min, max, prefix } = tests;
  const numeric = min !== undefined || max !== undefined;
  const textual = prefix !== undefined || pattern !== undefined;
  if (numeric && textual)
    return refuse([], 'a value cannot be both a number (min, max) and a string (prefix, pattern); remove one of them');
  if (min !== undefined && max !== undefined && min > max)
    return refuse([], `no number is at least ${min} and at most ${max}; swap them`);
  if (pattern !== undefined) findLoosePattern(pattern, { strict, refuse });
  if ('equals' in tests && !passesOthers(tests.equals, tests))
    refuse(
      ['equals'],
      `${quoted(tests.equals)} does not pass the other tests, so the rule can never match; remove one of them`,
    );
  for (const [index, value] of (tests.in ?? []).entries()) {
    if (!passesOthers(value, { ...tests, in: undefined }))
      refuse(['in', index], `${quoted(value)} does not pass the other tests, so it can never match; remove it`);
  }
}

function findLoosePattern(pattern: string, { strict, refuse }: Context): void {
  if (/^\^?\.[*+]\$?$/.test(pattern))
    return refuse(['pattern'], `"${pattern}" matches every string; write present: true`);
  if (!strict && !(pattern.startsWith('^') && pattern.endsWith('$')))
    refuse(['pattern'], 'a pattern that allows must match the whole value; begin it with ^ and end it with $');
}

/** Checks all tests but `pattern`: only RE2 can evaluate it exactly as the policy does. */
function passesOthers(
  value: unknown,
  {
    in: among,
    prefix,
    pattern,
    min,
    max,
  }: { readonly in?: readonly unknown[] | undefined } & Omit<Tests, 'in' | 'equals'>,
): boolean {
  if (among !== undefined && !among.some((one) => JSON.stringify(one) === JSON.stringify(value))) return false;
  if ((prefix !== undefined || pattern !== undefined) && typeof value !== 'string') return false;
  if (prefix !== undefined && !(value as string).startsWith(prefix)) return false;
  if (min === undefined && max === undefined) return true;
  return typeof value === 'number' && value >= (min ?? -Infinity) && value <= (max ?? Infinity);
}

function quoted(value: unknown): string {
  return JSON.stringify(value).slice(0, 40);
}

function compileTests(tests: Tests, strict: boolean): RuleCondition {
  const { pattern, min, max } = tests;
  return {
    ...(min !== undefined || max !== undefined ? { reads: 'number' } : {}),
    ...(tests.prefix !== undefined || pattern !== undefined ? { reads: 'string' } : {}),
    tests: [
      ...('equals' in tests ? [{ equals: tests.equals }] : []),
      ...(tests.in === undefined ? [] : [{ among: tests.in }]),
      ...(tests.prefix === undefined ? [] : [{ prefix: tests.prefix }]),
      ...(pattern === undefined ? [] : [compilePattern(pattern, strict)]),
      ...(min === undefined ? [] : [{ min }]),
      ...(max === undefined ? [] : [{ max }]),
    ],
  };
}
/** Reports a fault: its path within `when`, and what to write instead. */
export type Refuse = (path: readonly (string | number)[], message: string) => void;
/** One condition of the library. Its keys decide which check of lib/match.rego or lib/facts.rego evaluates it. */
export type RuleCondition = Readonly<Record<string, unknown>>;

function compilePattern(pattern: string, strict: boolean): RuleCondition {
  const text = literalForms(pattern, !strict);
  if (text !== undefined) return { text };
  // Without the group, `^a|b$` would allow every value that begins with a or ends with b.
  return definedFields({
    pattern: strict ? pattern : `\\A(?:${pattern})\\z`,
    contain: requiredTexts(pattern),
  });
}
