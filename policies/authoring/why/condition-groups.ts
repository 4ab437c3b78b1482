/** Owns the way from conditions of the library back to the words of a rule: which field of `when` holds, and which facts it read. */

import type { CallInput } from '../../port.ts';
import type { RuleCondition } from '../../rules/argument-tests.ts';
import type { LocatedRule } from '../../rules/configured-names.ts';
import type { RuleData } from '../../rules/rule-compiler.ts';
import { compileWhen, type When } from '../../rules/rule-conditions.ts';
import type { CallFact } from './explanation-format.ts';

/** A part of `when` that holds or fails as one. */
export interface ConditionGroup {
  readonly field: string;
  /** This part alone. */
  readonly when: When;
  readonly written: unknown;
  readonly line: number;
  readonly holds: boolean;
}

/** Numbers of the conditions that do not hold, as lib/why.rego tells them. */
export type FailedConditions = Readonly<Record<'principal' | 'target' | 'call', readonly number[]>>;

const PARTS = ['principal', 'target', 'call'] as const;

/** The parts of a rule. Each is compiled alone and found again among the conditions of the whole, so a new field needs nothing here. */
export function conditionGroups(
  { rule, at }: Pick<LocatedRule, 'rule' | 'at'>,
  data: RuleData,
  { failed, workspace }: { readonly failed: FailedConditions; readonly workspace: string },
): readonly ConditionGroup[] {
  const failing = new Set(PARTS.flatMap((part) => failed[part].map((number) => JSON.stringify(data[part][number]))));
  return split(rule.when).map(({ field, path, when, written }) => {
    const compiled = compileWhen(when, { outcome: rule.outcome, workspace, refuse: () => undefined });
    const conditions: readonly RuleCondition[] = PARTS.flatMap((part) => compiled[part]);
    return {
      field,
      when,
      written,
      line: at(['when', ...path]).line,
      holds: !conditions.some((one) => failing.has(JSON.stringify(one))),
    };
  });
}

interface Part {
  readonly field: string;
  readonly path: readonly string[];
  readonly when: When;
  readonly written: unknown;
}

/** Paths and insideWorkspace are one condition: the same path must meet both. */
function split(when: When): readonly Part[] {
  return Object.entries(when).flatMap(([field, written]): readonly Part[] => {
    if (field === 'args')
      return Object.entries(when.args ?? {}).map(([name, tests]) => ({
        field: `args.${name}`,
        path: ['args', name],
        when: { args: { [name]: tests } },
        written: tests,
      }));
    if (field === 'insideWorkspace' && when.paths !== undefined) return [];
    const inside =
      field === 'paths' && when.insideWorkspace !== undefined ? { insideWorkspace: when.insideWorkspace } : {};
    return [{ field, path: [field], when: { [field]: written as unknown, ...inside }, written }];
  });
}

/** What each field of `when` reads, by the names of policies/schemas/input.json. */
const READS: ReadonlyMap<string, (input: CallInput) => readonly CallFact[]> = new Map<
  string,
  (input: CallInput) => readonly CallFact[]
>([
  ['tools', ({ effect }) => [{ name: 'tool', value: `${effect.server}.${effect.tool}` }]],
  ['servers', ({ effect }) => [{ name: 'server', value: effect.server }]],
  ['trust', ({ effect }) => [{ name: 'server', value: effect.server }]],
  ['verbs', ({ effect }) => [{ name: 'verb', value: effect.verb }]],
  ['roles', ({ principal }) => [{ name: 'principal.role', value: principal.role }]],
  ['groups', ({ principal }) => [{ name: 'principal.groups', value: principal.groups }]],
  ['principals', ({ principal }) => [{ name: 'principal.id', value: principal.id }]],
  ['origins', ({ principal }) => [{ name: 'principal.origin', value: principal.origin }]],
  ['profiles', ({ principal }) => [{ name: 'principal.profiles', value: principal.profiles }]],
  ['owner', ({ principal }) => [{ name: 'principal.owner', value: principal.owner ?? false }]],
  [
    'paths',
    ({ effect }) =>
      effect.paths.map(({ path, inside }) => ({ name: inside ? 'path' : 'path outside the workspace', value: path })),
  ],
  [
    'insideWorkspace',
    ({ effect }) =>
      effect.paths.map(({ path, inside }) => ({ name: inside ? 'path' : 'path outside the workspace', value: path })),
  ],
  ['schemes', ({ effect }) => effect.urls.map(({ scheme }) => ({ name: 'scheme', value: scheme }))],
  ['hosts', ({ effect }) => effect.urls.map(({ host }) => ({ name: 'host', value: host }))],
  ['urls', ({ effect }) => effect.urls.map(({ url }) => ({ name: 'url', value: url }))],
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

function commandsOf({ effect: { command } }: CallInput): readonly CallFact[] {
  if (command?.opaque === true && command.words.length === 0) return [{ name: 'command', value: 'not readable' }];
  return (command?.words ?? []).map((words) => ({ name: 'command', value: words.join(' ') }));
}

/** The facts that a field read in this call. None: the call has no such thing. */
export function factsOfField(field: string, input: CallInput): readonly CallFact[] {
  if (!field.startsWith('args.')) return READS.get(field)?.(input) ?? [];
  const value = field
    .slice('args.'.length)
    .split('.')
    .reduce<unknown>(
      (node, key) =>
        typeof node === 'object' && node !== null && Object.hasOwn(node, key)
          ? (node as Record<string, unknown>)[key]
          : undefined,
      parseCallArguments(input),
    );
  return [{ name: `arguments.${field.slice('args.'.length)}`, value: value ?? '(absent)' }];
}

/** The names alone, for a call whose facts are not known. */
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
    },
  };
  return [...new Set(split(when).flatMap(({ field }) => factsOfField(field, blank).map(({ name }) => name)))];
}

/** The arguments of a call. They are one JSON object, or nothing is decided. */
export function parseCallArguments(input: Pick<CallInput, 'argsText'>): Readonly<Record<string, unknown>> {
  return JSON.parse(input.argsText) as Readonly<Record<string, unknown>>;
}
