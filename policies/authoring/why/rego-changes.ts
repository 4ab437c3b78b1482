/**
 * Returns changes of facts that the user's Rego suggests: a number or a length within a
 * limit, a named host, another time.
 */
import type { CallInput } from '../../port.ts';
import {
  type Aliases,
  aliasesOf,
  type Expression,
  groundPath,
  type Module,
  type Term,
  termsIn,
} from '../../rego/syntax-tree.ts';
import { type CallEdit, withArgument, withPrincipal, withUrl } from './call-edits.ts';
import type { CandidateChange } from './candidate-changes.ts';
import { argumentAt } from './condition-groups.ts';

const HOUR_MS = 3_600_000;
const MOST_LETTERS = 100_000;

type Constant = string | number | boolean;

/** Returns the changes that the modules suggest. */
export function regoChanges(modules: readonly Module[], input: CallInput): readonly CandidateChange[] {
  const changes = modules.flatMap((module) =>
    (module.rules ?? []).flatMap(({ body }) =>
      body.flatMap((expression) => expressionChanges(expression, module, input)),
    ),
  );
  return [...changes, ...(modules.some(readsClock) ? clockChanges(input) : [])];
}

function readsClock({ rules }: Module): boolean {
  return [...termsIn(rules)].some(
    ({ type, value }) => type === 'ref' && (value as readonly Term[])[0]?.value === 'time',
  );
}

function expressionChanges(expression: Expression, module: Module, input: CallInput): readonly CandidateChange[] {
  const terms = [...termsIn(expression)];
  const constants = terms.flatMap(({ type, value }): readonly Constant[] =>
    type === 'string' || type === 'number' || type === 'boolean' ? [value as Constant] : [],
  );
  const aliases = aliasesOf(module);
  const facts = new Set(terms.flatMap((term) => factOf(term, aliases) ?? []));
  return [...facts].flatMap((fact) =>
    guesses(
      constants.filter((one) => !fact.split('.').includes(String(one))),
      fact,
      input,
    ).flatMap((value) => change(fact, value, input) ?? []),
  );
}

/** Returns `effect.arguments.x`, or the last name of a reference through a variable, such as `p.path`. */
function factOf(term: Term, aliases: Aliases): string | undefined {
  const ground = groundPath(term, aliases);
  if (ground?.names[0] === 'input' && ground.names.length > 1) return ground.names.slice(1).join('.');
  if (term.type !== 'ref') return undefined;
  const last = (term.value as readonly Term[]).at(-1);
  return last?.type === 'string' && (last.value === 'path' || last.value === 'host') ? last.value : undefined;
}

/** Returns smaller numbers, shorter texts and named hosts. Other constants would be copied from the rule. */
function guesses(constants: readonly Constant[], fact: string, input: CallInput): readonly Constant[] {
  if (fact === 'host') return constants.filter((one) => typeof one === 'string' && one.includes('.'));
  if (fact === 'labels') return constants.filter((one) => input.labels.includes(String(one)));
  if (fact.startsWith('principal.'))
    return input.principal.owner === true ? constants.filter((one) => typeof one === 'string') : [];
  const before = fact.startsWith('effect.arguments.') ? argumentOf(fact, input) : undefined;
  return constants.flatMap((one): readonly Constant[] => {
    if (typeof one !== 'number') return [];
    if (typeof before === 'number') return [one, one - 1].filter((number) => number < before);
    return typeof before === 'string'
      ? [one, one - 1]
          .filter((length) => length >= 0 && length < Math.min(before.length, MOST_LETTERS))
          .map((length) => before.slice(0, length))
      : [];
  });
}

function change(fact: string, to: Constant, input: CallInput): CandidateChange | undefined {
  const make = (name: string, from: unknown, apply: CallEdit): CandidateChange => ({
    fact: name,
    from,
    to,
    text: wording(name, from, to),
    apply,
  });
  const argument = /^effect\.arguments\.(.+)$/.exec(fact)?.[1];
  if (argument !== undefined)
    return make(`arguments.${argument}`, argumentOf(fact, input), withArgument(argument.split('.'), to));
  const text = String(to);
  const { principal, effect, labels } = input;
  switch (fact) {
    case 'principal.role':
      return make(fact, principal.role, withPrincipal({ role: text }));
    case 'principal.id':
      return make(fact, principal.id, withPrincipal({ id: text }));
    case 'principal.origin':
      return make(fact, principal.origin, withPrincipal({ origin: text }));
    case 'principal.groups':
      return make(fact, principal.groups, withPrincipal({ groups: [...principal.groups, text] }));
    case 'labels': {
      const kept = labels.filter((label) => label !== text);
      return {
        ...make('labels', labels, (call) => ({ ...call, labels: kept })),
        to: kept,
        text: `labels had no ${text}`,
      };
    }
    case 'host':
      return effect.urls.length === 0 ? undefined : make('host', effect.urls[0]?.host, withUrl(`https://${text}/`));
    default:
      return undefined;
  }
}

/** For a long text, only its number of characters is shown. */
function wording(name: string, from: unknown, to: Constant): string {
  const resized = typeof from === 'string' && typeof to === 'string' && to.length > 64;
  const the = name.includes('.') ? name : `the ${name}`;
  return resized
    ? `${name} had ${to.length} characters`
    : `${the} were ${typeof to === 'string' ? to : JSON.stringify(to)}`;
}

function argumentOf(fact: string, input: CallInput): unknown {
  return argumentAt(input, fact.split('.').slice(2));
}

/** Returns every hour of a day, then the same hour on every other day of a week. */
function clockChanges({ time }: CallInput): readonly CandidateChange[] {
  const hours = [
    ...Array.from({ length: 23 }, (_, at) => at + 1),
    ...Array.from({ length: 6 }, (_, at) => (at + 1) * 24),
  ];
  return hours.map((hour): CandidateChange => {
    const to = new Date(Date.parse(time) + hour * HOUR_MS).toISOString();
    return { fact: 'time', from: time, to, text: `the call came at ${to}`, apply: (input) => ({ ...input, time: to }) };
  });
}
