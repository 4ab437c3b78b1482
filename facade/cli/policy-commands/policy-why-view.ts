/** Owns how an explanation looks to a person: the outcome, what decided, what was near, what would change it; prints only what was cleaned. */
import type {
  CallFact,
  ConditionWhy,
  Explanation,
  FactChange,
  Flip,
  RuleWhy,
} from '../../../policies/authoring/authoring-port.ts';
import type { IndexedRecord } from '../../audit/audit-reader.ts';
import { type CliIo, paint, plural, printable } from '../print.ts';

const COLOURS = { allow: 'green', ask: 'yellow', deny: 'red' } as const;
const MOST_LETTERS = 100;
const MOST_ITEMS = 3;

/** Which call it is. */
export interface ShownCall {
  readonly call: string;
  readonly id?: string;
  readonly principal?: string;
  readonly time?: string;
}

/** The whole answer, some twenty lines. */
export function explanationText(io: Pick<CliIo, 'isTTY'>, call: ShownCall, why: Explanation): string {
  const { decision, rules, others, expressions, flips, unexplained } = why;
  const place = ({ file, line }: { readonly file?: string; readonly line?: number }): string =>
    file === undefined ? '' : `  ${file}:${line ?? 1}`;
  const ids = new Set(decision.reasons.map(({ id }) => id));
  const shadows = decision.shadow.map(
    (reason) => `  ${reason.id}: ${reason.message}${place(reason)}  (would ${reason.would}, does not count)`,
  );
  const near = rules.filter(({ fired }) => !fired);
  const overruled = rules.filter(({ fired, mode, id }) => fired && mode === 'enforce' && !ids.has(id));
  const known = [call.id, call.principal, call.time].filter((part) => part !== undefined);
  // What came from outside is made printable before it is coloured, so that no name can bring a colour of its own.
  const head = `${paint(io, COLOURS[decision.outcome], decision.outcome.toUpperCase())}  ${printable(call.call)}${known.length === 0 ? '' : `  (${printable(known.join(', '))})`}`;
  const lines = [
    ...decision.reasons.map((reason) => `  ${reason.id}: ${reason.message}${place(reason)}`),
    ...shadows,
    ...section(
      'Facts that were used',
      rules
        .filter(({ fired, id }) => fired && ids.has(id))
        .flatMap((rule) => rule.conditions.map((condition) => usedLine(rule, condition))),
    ),
    ...section(
      'Fired too, and overruled',
      overruled.map(({ id, outcome, file, line }) => `${id} (${outcome})  ${file}:${line}`),
    ),
    ...section('Near, and why they did not fire', near.map(nearLine)),
    ...section(
      'Rego: the first expression that failed',
      expressions.map(({ rule, file, line, text }) => `${rule}  ${file}:${line}  ${short(text)}`),
    ),
    ...(unexplained === 'opa' ? ['', 'Rego is not explained: there is no opa. See docs/rego.md, Finding opa.'] : []),
    ...(unexplained === 'bundle'
      ? ['', 'Rego of a built bundle is not explained: name its sources under `policies` to see expressions.']
      : []),
    ...section('What would change it', flips.map(flipLine)),
    ...(flips.length === 0 ? ['', 'No change of up to three facts was found that flips the decision.'] : []),
    ...(others > 0 ? ['', `${plural(others, 'other rule')} in YAML said nothing.`] : []),
  ];
  return `${[head, ...lines.map(printable)].join('\n')}\n`;
}

/** Codes that say no more than the outcome. */
const SAID: ReadonlySet<string> = new Set(['DENIED', 'APPROVAL_REQUIRED']);

/** A decision of which only the audit knows. */
export function auditText(
  record: IndexedRecord['record'],
  rules: readonly {
    readonly id: string;
    readonly file?: string;
    readonly line?: number;
    readonly reads: readonly string[];
  }[],
): string {
  const call = record as {
    readonly outcome?: string;
    readonly code?: string;
    readonly exposed?: string;
    readonly ts: string;
    readonly principal?: { readonly id: string };
  };
  const lines = [
    `${(call.outcome ?? '').toUpperCase()}${call.code === undefined || SAID.has(call.code) ? '' : ` ${call.code}`}  ${call.exposed ?? ''}  (${[call.principal?.id, call.ts].filter(Boolean).join(', ')})`,
    ...rules.map(
      ({ id, file, line, reads }) =>
        `  ${id}${file === undefined ? '' : `  ${file}:${line ?? 1}`}${reads.length === 0 ? '' : `  reads ${reads.join(', ')}`}`,
    ),
    ...(rules.length === 0 ? ['  No rule decided this: the call ended before or after the policy.'] : []),
  ];
  return `${lines.map(printable).join('\n')}\n`;
}

function section(title: string, lines: readonly string[]): readonly string[] {
  return lines.length === 0 ? [] : ['', title, ...lines.map((line) => `  ${line}`)];
}

function usedLine({ id, file }: RuleWhy, { field, written, line, facts }: ConditionWhy): string {
  return `${factList(facts)}  fits ${field}: ${value(written)}  (${id}, ${file}:${line})`;
}

function nearLine({ id, outcome, mode, file, conditions }: RuleWhy): string {
  const failed = conditions.filter(({ holds }) => !holds);
  const first = failed[0];
  const more = failed.length > 1 ? `, and ${failed.length - 1} more` : '';
  const about = `${id} (${outcome}${mode === 'enforce' ? '' : `, ${mode}`})`;
  return first === undefined
    ? about
    : `${about}  ${file}:${first.line}  ${first.field}: ${value(first.written)} does not fit ${factList(first.facts)}${more}`;
}

function factList(facts: readonly CallFact[]): string {
  return facts.length === 0
    ? 'a call that has none'
    : facts.map(({ name, value: one }) => `${name} = ${value(one)}`).join(', ');
}

function flipLine({ outcome, changes }: Flip): string {
  const verb = { allow: 'allowed', ask: 'asked', deny: 'denied' }[outcome];
  return `${verb} if ${changes.map(({ text }) => text).join(' and ')}  (${changes.map(proof).join('; ')})`;
}

/** The very change that was decided. */
function proof({ fact, to }: FactChange): string {
  return `tried ${fact} = ${value(to)}`;
}

function value(one: unknown): string {
  // The first few tell what a list is about; an open bracket tells nothing.
  if (Array.isArray(one) && JSON.stringify(one).length > MOST_LETTERS)
    return `[${one
      .slice(0, MOST_ITEMS)
      .map((item) => short(JSON.stringify(item)))
      .join(', ')}, and ${one.length - MOST_ITEMS} more]`;
  return short(typeof one === 'string' ? one : JSON.stringify(one));
}

function short(text: string): string {
  return text.length > MOST_LETTERS ? `${text.slice(0, MOST_LETTERS)}…` : text;
}
