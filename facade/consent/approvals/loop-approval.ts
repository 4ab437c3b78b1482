/**
 * The approval of a loop: at most N calls of one tool by one run of code, whose arguments satisfy a schema, within some
 * time. A call that it does not cover is refused by name.
 */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { formatFaults } from '../../../catalogs/validation/validation-faults.ts';
import { createValidator } from '../../../catalogs/validation/validator.ts';

/** What a person lets a run of code do. */
export interface LoopTerms {
  /** The most calls. */
  readonly max: number;
  /** JSON Schema that the arguments of each call must satisfy. */
  readonly where: Readonly<Record<string, unknown>>;
  /** Milliseconds from the approval on. */
  readonly withinMs: number;
}

/** Terms that a person approved. */
export interface ApprovedLoop extends LoopTerms {
  /** Milliseconds since 1970. */
  readonly until: number;
}

/** One call of code, as a person sees it. Texts contain no registered secret. */
export interface PlanLine {
  /** Counts from 1, in the order in which the code makes its calls. */
  readonly seq: number;
  /** `server.tool`. */
  readonly tool: string;
  /** The arguments as JSON. A long text is cut, and says so. */
  readonly args: string;
  /** What became of it, or what the policy would decide. */
  readonly outcome: 'done' | 'failed' | 'unknown' | 'allow' | 'ask';
}

/** A run of code that waits for a person. */
export interface ShownRun {
  readonly code: string;
  /** The calls that were made. */
  readonly made: readonly PlanLine[];
  /** The calls that would follow, found by a dry run. */
  readonly planned: readonly PlanLine[];
  /** How the dry run ended, as a sentence. */
  readonly end: string;
  /** Terms that cover the planned calls of the tool that asks. */
  readonly proposal: LoopTerms;
}

/** The run of code that makes a call which needs approval. */
export interface AskingRun {
  readonly id: string;
  /**
   * The call may have run before the run was interrupted. Then only an approval of exactly this call counts. The number
   * of the call.
   */
  readonly again?: number;
  /** What a person is shown. Absent: no one is asked. */
  readonly shown?: ShownRun;
}

/** Different values of one argument that a proposal lists. With more, it gives their common beginning. */
const MAX_VALUES = 20;
/** Characters of a common beginning that is worth a condition. */
const MIN_PREFIX = 3;

/**
 * Returns terms that cover exactly these calls, as far as a schema can say it: constants, short lists of values, the
 * common beginning of texts, the range of numbers. Arguments that no call had are excluded. `args`: parsed arguments.
 */
export function proposeTerms(args: readonly Readonly<Record<string, unknown>>[], withinMs: number): LoopTerms {
  const names = [...new Set(args.flatMap((one) => Object.keys(one)))];
  const properties = Object.fromEntries(
    names.map((name) => [name, valuesSchema(args.filter((one) => Object.hasOwn(one, name)).map((one) => one[name]))]),
  );
  const required = names.filter((name) => args.every((one) => Object.hasOwn(one, name)));
  return {
    max: args.length,
    where: { type: 'object', properties, ...(required.length > 0 && { required }), additionalProperties: false },
    withinMs,
  };
}

function valuesSchema(values: readonly unknown[]): Readonly<Record<string, unknown>> {
  const distinct = [...new Map(values.map((value) => [JSON.stringify(value), value])).values()];
  if (distinct.length === 1) return { const: distinct[0] };
  if (distinct.length <= MAX_VALUES) return { enum: distinct };
  if (distinct.every((value) => typeof value === 'number'))
    return { type: 'number', minimum: Math.min(...distinct), maximum: Math.max(...distinct) };
  if (!distinct.every((value) => typeof value === 'string')) return {};
  const prefix = commonPrefix(distinct);
  return prefix.length < MIN_PREFIX ? { type: 'string' } : { type: 'string', pattern: `^${escapePattern(prefix)}` };
}

function commonPrefix([first = '', ...others]: readonly string[]): string {
  let length = first.length;
  for (const other of others) while (!other.startsWith(first.slice(0, length))) length -= 1;
  return first.slice(0, length);
}

function escapePattern(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&');
}

/** Throws USAGE if a schema cannot be checked completely: it would cover calls that it does not mean. */
export function checkTerms({ where }: LoopTerms): void {
  const { unchecked } = createValidator(where);
  if (unchecked !== undefined)
    throw new TollgateError('USAGE', {
      detail: `The schema of --where cannot be used: ${unchecked}.`,
      next: 'Give a JSON Schema of the arguments, such as {"properties": {"repo": {"const": "docs"}}}.',
    });
}

/**
 * Throws LOOP_SPENT, LOOP_LATE or LOOP_MISMATCH if an approved loop does not cover a call. `uses`: calls that it has
 * covered so far. `now`: milliseconds since 1970.
 */
export function requireCovered(
  { max, where, until }: ApprovedLoop,
  { uses, now, args }: { readonly uses: number; readonly now: number; readonly args: unknown },
): void {
  if (now > until)
    throw new TollgateError('LOOP_LATE', {
      detail: `The approval of these calls was valid until ${new Date(until).toISOString()}.`,
    });
  if (uses >= max)
    throw new TollgateError('LOOP_SPENT', {
      detail: `The approval covers ${max} ${max === 1 ? 'call' : 'calls'}, and all of them were made.`,
    });
  const { check, unchecked } = createValidator(where);
  const faults = check(args);
  if (faults.length > 0 || unchecked !== undefined)
    throw new TollgateError('LOOP_MISMATCH', {
      detail: `The approval covers other arguments: ${unchecked ?? formatFaults(faults)}`,
    });
}
