/** Prints the explanation of a decision: the outcome, the facts that decided, and what would change it. */
import type {
  CallFact,
  ConditionWhy,
  Explanation,
  FactChange,
  Flip,
  RuleWhy,
} from '../../../policies/authoring/authoring-port.ts';
import type { IndexedRecord } from '../../audit/index/audit-index.ts';
import { type CliIo, MAX_COLUMNS, paint, plural, printable, wrapWords } from '../print.ts';
import { shortDecisionId } from './recorded-traffic.ts';

const COLOURS = { allow: 'green', ask: 'yellow', deny: 'red' } as const;
/** The length to which a value is cut, in UTF-16 units. */
const MAX_VALUE = 100;
/** How many items of a longer list are shown. */
const MAX_ITEMS = 3;

/** The call that is explained. */
export interface ShownCall {
  readonly call: string;
  readonly id?: string;
  readonly principal?: string;
  readonly time?: string;
}

/** Returns the complete explanation. Its facts must contain no secret. */
export function explanationText(io: Pick<CliIo, 'isTTY'>, call: ShownCall, why: Explanation): string {
  const { decision, rules, others, expressions, flips, unexplained } = why;
  const ids = new Set(decision.reasons.map(({ id }) => id));
  const deciding = rules.filter(({ fired, id }) => fired && ids.has(id));
  const overruled = rules.filter(({ fired, mode, id }) => fired && mode === 'enforce' && !ids.has(id));
  const near = rules.filter(({ fired }) => !fired);
  const id = call.id === undefined ? undefined : shortDecisionId(call.id);
  const known = [id, call.principal, call.time].filter((part) => part !== undefined);
  // Text from outside is made printable before it is coloured, so that it cannot bring its own colour.
  const outcome = paint(io, COLOURS[decision.outcome], decision.outcome.toUpperCase());
  const about = known.length === 0 ? '' : `  (${printable(known.join(', '))})`;
  const lines = [
    ...decision.reasons.map((reason) => `  ${reason.id}: ${reason.message}${placeOf(reason)}`),
    ...decision.shadow.map(
      (reason) => `  ${reason.id}: ${reason.message}${placeOf(reason)}  (would ${reason.would}, is not enforced)`,
    ),
    ...section(
      'Facts that were used',
      deciding.flatMap((rule) => rule.conditions.map((condition) => usedLine(rule, condition))),
    ),
    ...section(
      'Rules that fired and were overruled',
      overruled.map((rule) => `${rule.id} (${rule.outcome})${placeOf(rule)}`),
    ),
    ...section('Rules that almost fired', near.map(nearLine)),
    ...section(
      'Rego: the first expression that failed',
      expressions.map((expression) => `${expression.rule}${placeOf(expression)}  ${short(expression.text)}`),
    ),
    ...(unexplained === 'opa' ? ['', 'Rego is not explained: there is no opa. See docs/rego.md, Finding opa.'] : []),
    ...(unexplained === 'bundle'
      ? ['', 'Rego of a built bundle is not explained. Name its sources under `policies` to see expressions.']
      : []),
    ...section('What would change it', flips.map(flipLine)),
    ...(flips.length === 0 && decision.outcome !== 'allow'
      ? ['', 'No plausible change of this call or of a rule changes the decision.']
      : []),
    ...(others > 0 ? ['', `${plural(others, 'other YAML rule')} did not fire.`] : []),
  ];
  return `${[`${outcome}  ${printable(call.call)}${about}`, ...lines.map(wrapped)].join('\n')}\n`;
}

/** Codes that repeat the outcome. */
const PLAIN_CODES: ReadonlySet<string> = new Set(['DENIED', 'APPROVAL_REQUIRED']);

/** Returns the text for a decision that is only in the audit log. */
export function auditText(
  record: IndexedRecord['record'],
  rules: readonly {
    readonly id: string;
    readonly file?: string;
    readonly line?: number;
    readonly reads: readonly string[];
  }[],
): string {
  const { outcome, code, exposed, ts, principal } = record as {
    readonly outcome?: string;
    readonly code?: string;
    readonly exposed?: string;
    readonly ts: string;
    readonly principal?: { readonly id: string };
  };
  const more = code === undefined || PLAIN_CODES.has(code) ? '' : ` ${code}`;
  const known = [principal?.id, ts].filter(Boolean).join(', ');
  const lines = [
    `${(outcome ?? '').toUpperCase()}${more}  ${exposed ?? ''}  (${known})`,
    ...rules.map(
      (rule) => `  ${rule.id}${placeOf(rule)}${rule.reads.length === 0 ? '' : `  reads ${rule.reads.join(', ')}`}`,
    ),
    ...(rules.length === 0 ? ['  No rule decided this: the call ended before or after the policy.'] : []),
  ];
  return `${lines.map(wrapped).join('\n')}\n`;
}

function wrapped(line: string): string {
  return wrapWords(printable(line), MAX_COLUMNS, '      ');
}

function placeOf({ file, line }: { readonly file?: string; readonly line?: number }): string {
  return file === undefined ? '' : `  ${file}:${line ?? 1}`;
}

function section(title: string, lines: readonly string[]): readonly string[] {
  return lines.length === 0 ? [] : ['', title, ...lines.map((line) => `  ${line}`)];
}

function usedLine({ id, file }: RuleWhy, { field, written, line, facts }: ConditionWhy): string {
  return `${factList(facts)}  matches ${field}: ${valueText(written)}  (${id}, ${file}:${line})`;
}

function nearLine({ id, outcome, mode, file, conditions }: RuleWhy): string {
  const about = `${id} (${outcome}${mode === 'enforce' ? '' : `, ${mode}`})`;
  const [first, ...more] = conditions.filter(({ holds }) => !holds);
  if (first === undefined) return about;
  const { line, field, written, facts } = first;
  const others = more.length === 0 ? '' : `, and ${more.length} more`;
  return `${about}  ${file}:${line}  ${field}: ${valueText(written)} does not match ${factList(facts)}${others}`;
}

function factList(facts: readonly CallFact[]): string {
  return facts.length === 0
    ? 'a call without this fact'
    : facts.map(({ name, value }) => `${name} = ${valueText(value)}`).join(', ');
}

function flipLine({ outcome, changes }: Flip): string {
  const verb = { allow: 'allowed', ask: 'asked', deny: 'denied' }[outcome];
  const tried = changes.filter(({ fact }) => fact !== 'approval' && fact !== 'rule').map(changeText);
  const values = tried.length === 0 ? '' : `  (${tried.join('; ')})`;
  return `${verb} if ${changes.map(({ text }) => text).join(' and ')}${values}`;
}

/** Shows the exact change that was decided. */
function changeText({ fact, to }: FactChange): string {
  return `tried ${fact} = ${valueText(to)}`;
}

function valueText(value: unknown): string {
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  if (!Array.isArray(value) || text.length <= MAX_VALUE) return short(text);
  const items = value.slice(0, MAX_ITEMS).map((item) => short(JSON.stringify(item)));
  const more = value.length - items.length;
  return `[${items.join(', ')}${more > 0 ? `, and ${more} more` : ''}]`;
}

function short(text: string): string {
  return text.length > MAX_VALUE ? `${text.slice(0, MAX_VALUE)}…` : text;
}
