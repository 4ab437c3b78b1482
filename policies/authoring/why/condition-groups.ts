/** Connects the conditions of the library with the fields of `when`: which field holds, and which facts it read. */

import { definedFields } from '../../../catalogs/text/collections.ts';
import { valueAt } from '../../../catalogs/validation/value-position.ts';
import type { CallInput } from '../../port.ts';
import type { RuleCondition } from '../../rules/argument-tests.ts';
import type { LocatedRule } from '../../rules/configured-names.ts';
import type { RuleData } from '../../rules/rule-compiler.ts';
import { compileWhen, type When } from '../../rules/rule-conditions.ts';
import type { CallFact } from './explanation-format.ts';

/** A part of `when` that holds or fails as a whole. */
export interface ConditionGroup {
  readonly field: string;
  /** Only this part. */
  readonly when: When;
  readonly written: unknown;
  readonly line: number;
  readonly holds: boolean;
}

/** Indexes of the conditions that do not hold, as lib/why.rego returns them. */
export type FailedConditions = Readonly<Record<'principal' | 'target' | 'call', readonly number[]>>;

const PARTS = ['principal', 'target', 'call'] as const;

/**
 * Returns the parts of a rule. Each part is compiled alone and found among the conditions of the rule, so new fields
 * work.
 */
export function conditionGroups(
  { rule, at }: Pick<LocatedRule, 'rule' | 'at'>,
  data: RuleData,
  {
    failed,
    workspace,
    isOfKind,
  }: { readonly failed: FailedConditions; readonly workspace: string; readonly isOfKind: boolean },
): readonly ConditionGroup[] {
  const failedSet = new Set(PARTS.flatMap((part) => failed[part].map((number) => JSON.stringify(data[part][number]))));
  // A rule that allows and names no kind is about tools.
  const ofTools: ConditionGroup = {
    field: 'kind',
    when: { kind: 'tool' },
    written: 'tool',
    line: at([]).line,
    holds: false,
  };
  const groups = split(rule.when).map(({ field, path, when, written }) => {
    const compiled = compileWhen(when, { outcome: rule.outcome, workspace, refuse: () => undefined });
    const conditions: readonly RuleCondition[] = PARTS.flatMap((part) => compiled[part]);
    return {
      field,
      when,
      written,
      line: at(['when', ...path]).line,
      holds: !conditions.some((one) => failedSet.has(JSON.stringify(one))),
    };
  });
  return isOfKind ? groups : [ofTools, ...groups];
}

interface Part {
  readonly field: string;
  readonly path: readonly string[];
  readonly when: When;
  readonly written: unknown;
}

/** `paths`, `insideWorkspace` and `except` are one part: the same path must match them. */
function split(when: When): readonly Part[] {
  return Object.entries(when).flatMap(([field, written]): readonly Part[] => {
    if (field === 'args')
      return Object.entries(when.args ?? {}).map(([name, tests]) => ({
        field: `args.${name}`,
        path: ['args', name],
        when: { args: { [name]: tests } },
        written: tests,
      }));
    if (field === 'except' || (field === 'insideWorkspace' && when.paths !== undefined)) return [];
    const { insideWorkspace, except } = when;
    const others = field === 'paths' || field === 'insideWorkspace' ? definedFields({ insideWorkspace, except }) : {};
    const shown = 'except' in others ? { [field]: written as unknown, except } : written;
    return [{ field, path: [field], when: { ...others, [field]: written as unknown }, written: shown }];
  });
}

/** The facts that each field of `when` reads, by the names of policies/schemas/input.json. */
const READS: ReadonlyMap<string, (input: CallInput) => readonly CallFact[]> = new Map([
  ['kind', ({ effect }) => [{ name: 'kind', value: effect.kind ?? 'tool' }]],
  ['tools', ({ effect }) => [{ name: 'tool', value: `${effect.server}.${effect.tool}` }]],
  ['exceptTools', ({ effect }) => [{ name: 'tool', value: `${effect.server}.${effect.tool}` }]],
  ['servers', ({ effect }) => [{ name: 'server', value: effect.server }]],
  ['trust', ({ effect }) => [{ name: 'server', value: effect.server }]],
  ['verbs', ({ effect }) => [{ name: 'verb', value: effect.verb }]],
  ['roles', ({ principal }) => [{ name: 'principal.role', value: principal.role }]],
  ['groups', ({ principal }) => [{ name: 'principal.groups', value: principal.groups }]],
  ['principals', ({ principal }) => [{ name: 'principal.id', value: principal.id }]],
  ['origins', ({ principal }) => [{ name: 'principal.origin', value: principal.origin }]],
  ['profiles', ({ principal }) => [{ name: 'principal.profiles', value: principal.profiles }]],
  ['owner', ({ principal }) => [{ name: 'principal.owner', value: principal.owner ?? false }]],
  ['paths', pathsOf],
  ['insideWorkspace', pathsOf],
  ['schemes', ({ effect }) => effect.urls.map(({ scheme }) => ({ name: 'scheme', value: scheme }))],
  ['hosts', ({ effect }) => effect.urls.map(({ host }) => ({ name: 'host', value: host }))],
  ['urls', ({ effect }) => effect.urls.map(({ url }) => ({ name: 'url', value: url }))],
  ['uri', ({ effect }) => (effect.uri === undefined ? [] : [{ name: 'uri', value: effect.uri }])],
  ['asks', ({ effect }) => Object.entries(effect.asks ?? {}).map(([name, value]) => ({ name: `asks.${name}`, value }))],
  ['commands', commandsOf],
  ['exceptCommands', commandsOf],
  [
    'opaque',
    ({ effect }) => (effect.command === undefined ? [] : [{ name: 'command.opaque', value: effect.command.opaque }]),
  ],
  [
    'readable',
    ({ effect }) =>
      effect.command === undefined ? [] : [{ name: 'command.readable', value: effect.command.words.length > 0 }],
  ],
  ['labels', ({ labels }) => [{ name: 'labels', value: labels }]],
  ['time', ({ time }) => [{ name: 'time', value: time }]],
]);

function pathsOf({ effect }: CallInput): readonly CallFact[] {
  return effect.paths.map(({ path, inside }) => ({
    name: inside ? 'path' : 'path outside the workspace',
    value: path,
  }));
}

function commandsOf({ effect: { command } }: CallInput): readonly CallFact[] {
  if (command?.opaque === true && command.words.length === 0) return [{ name: 'command', value: 'not readable' }];
  return (command?.words ?? []).map((words) => ({ name: 'command', value: words.join(' ') }));
}

/** Returns the facts that a field read in this call. Empty if the call has no such fact. */
export function factsOfField(field: string, input: CallInput): readonly CallFact[] {
  if (!field.startsWith('args.')) return READS.get(field)?.(input) ?? [];
  const name = field.slice('args.'.length);
  return [{ name: `arguments.${name}`, value: argumentAt(input, name.split('.')) ?? '(absent)' }];
}

/** Returns only the names of the facts that conditions read. */
export function factNames(when: When): readonly string[] {
  const blank: CallInput = {
    principal: { id: '', role: '', groups: [], profiles: [], origin: '' },
    run: '',
    labels: [],
    time: '',
    argsText: '{}',
    effect: {
      verb: 'read',
      server: '',
      tool: '',
      paths: [{ argument: '', path: '', inside: true }],
      urls: [{ argument: '', url: '', host: '' }],
      command: { text: '', opaque: false, words: [[]] },
      uri: '',
      asks: { mode: 'form', fields: [], maxTokens: 0 },
    },
  };
  return [...new Set(split(when).flatMap(({ field }) => factsOfField(field, blank).map(({ name }) => name)))];
}

/** Returns the arguments of a call. They are one JSON object; otherwise there is no decision. */
export function parseCallArguments(input: Pick<CallInput, 'argsText'>): Readonly<Record<string, unknown>> {
  return JSON.parse(input.argsText) as Readonly<Record<string, unknown>>;
}

/** Returns the value of an argument at its path; undefined if there is none. */
export function argumentAt(input: Pick<CallInput, 'argsText'>, path: readonly string[]): unknown {
  return valueAt(parseCallArguments(input), path);
}
