/**
 * Returns changes of facts that the user's Rego suggests: it tries the constants next to a fact as values of that fact.
 */
import type { Verb } from '../../../catalogs/tools/tool-definition.ts';
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
import {
  type CallEdit,
  withArgument,
  withCommand,
  withEffect,
  withPath,
  withPrincipal,
  withUrl,
} from './call-edits.ts';
import type { CandidateChange } from './candidate-changes.ts';
import { argumentAt } from './condition-groups.ts';

const OTHER = 'example';
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

/** Returns each constant with its neighbours, and a value that no rule names. */
function guesses(constants: readonly Constant[], fact: string, input: CallInput): readonly Constant[] {
  const before = fact.startsWith('effect.arguments.') ? argumentOf(fact, input) : undefined;
  const near = constants.flatMap((one): readonly Constant[] => {
    if (typeof one === 'boolean') return [one, !one];
    if (typeof one === 'string') return [one, `${one}${OTHER}`, `${OTHER}${one}`];
    return typeof before === 'string'
      ? [one - 1, one + 1]
          .filter((length) => length >= 0 && length < MOST_LETTERS)
          .map((length) => before.padEnd(length, 'x').slice(0, length))
      : [one, one - 1, one + 1];
  });
  return [...near, OTHER];
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
      return make(fact, principal.groups, withPrincipal({ groups: toggle(principal.groups, text) }));
    case 'effect.verb':
      return ['read', 'write', 'destructive', 'execute'].includes(text)
        ? make('verb', effect.verb, withEffect({ verb: text as Verb }))
        : undefined;
    case 'effect.server':
      return make('server', effect.server, withEffect({ server: text }));
    case 'effect.tool':
      return make('tool', effect.tool, withEffect({ tool: text }));
    case 'labels':
      return {
        ...make('labels', labels, (call) => ({ ...call, labels: toggle(call.labels, text) })),
        to: toggle(labels, text),
        text: labels.includes(text) ? `labels had no ${text}` : `labels had ${text}`,
      };
    case 'path':
      return effect.paths.length === 0
        ? undefined
        : make('path', effect.paths[0]?.path, withPath(text, !text.startsWith('/')));
    case 'host':
      return effect.urls.length === 0 ? undefined : make('host', effect.urls[0]?.host, withUrl(`https://${text}/`));
    case 'effect.command.text':
      return effect.command === undefined
        ? undefined
        : make('command', effect.command.text, withCommand(text.split(/\s+/)));
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

function toggle(values: readonly string[], value: string): readonly string[] {
  return values.includes(value) ? values.filter((one) => one !== value) : [...values, value];
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
