/** Owns what a policy is made from and what it became, as plain data that can go from one thread to another; decides nothing. */
import type { Confining } from './confinement.ts';
import { judgeBundle, type CompiledParts, type PolicyParts } from './engine.ts';
import { RemoteBundle, type RemoteState } from './remote-bundle.ts';
import type { LocatedRule, RuleDocument } from './rules.ts';
import { readyParts, type ReadyParts } from './start.ts';

type Path = readonly (string | number)[];
type PlaceOf = RuleDocument['placeOf'];

/** All that a policy is made from; YAML is read on the other side. */
export type PlainParts = Omit<PolicyParts, 'rules' | 'readYaml'> & { readonly rules: readonly (Omit<RuleDocument, 'placeOf'> & { readonly places: string })[] };

/** A policy that only needs to be started. `rulesText` holds PlainRules: text costs the thread that takes it the least. */
export type PlainPolicy = Omit<ReadyParts, 'located' | 'remote'> & { readonly rulesText: string; readonly remote?: RemoteState };

interface PlainRules {
  readonly located: readonly (Pick<LocatedRule, 'rule' | 'mode'> & { readonly file: string; readonly places: string })[];
  readonly confining: Confining['rules'];
}

/** Parts without their functions. */
export function flattenParts({ readYaml: _, rules, ...parts }: PolicyParts): PlainParts {
  return { ...parts, rules: rules.map(({ placeOf, ...document }) => ({ ...document, places: writePlaces(document.value, placeOf) })) };
}

/** Parts as they were. */
export function reviveParts({ rules, ...parts }: PlainParts, readYaml: PolicyParts['readYaml']): PolicyParts {
  return { ...parts, readYaml, rules: rules.map(({ places, ...document }) => ({ ...document, placeOf: readPlaces(document.value, places) })) };
}

/** What was compiled, without its functions. */
export function flattenPolicy(compiled: CompiledParts): PlainPolicy {
  const { remote, located, confining, ...ready } = readyParts(compiled);
  const rules: PlainRules = { located: located.map(({ rule, mode, at }) => ({ rule, mode, file: at([]).file, places: writePlaces(rule, at) })), confining: confining.rules };
  return { ...ready, confining: { ...confining, rules: [] }, rulesText: JSON.stringify(rules), ...(remote === undefined ? {} : { remote: remote.state }) };
}

/** What was compiled, ready to be started. */
export function revivePolicy({ rulesText, confining, remote, ...ready }: PlainPolicy): ReadyParts {
  const rules = JSON.parse(rulesText) as PlainRules;
  const located = rules.located.map(({ rule, mode, file, places }): LocatedRule => {
    const placeOf = readPlaces(rule, places);
    return { rule, mode, at: (path, part = 'value') => ({ file, ...placeOf(path, part) }) };
  });
  return { ...ready, located, confining: { ...confining, rules: rules.confining }, ...(remote === undefined ? {} : { remote: new RemoteBundle({ ...remote.options, judge: judgeBundle }, remote) }) };
}

/** Line and column of key and of value, for each part of a value in the order of the walk. */
function writePlaces(value: unknown, placeOf: PlaceOf): string {
  return pathsOf(value).map((path) => (['key', 'value'] as const).map((part) => placeOf(path, part)).map(({ line, column }) => `${line} ${column}`).join(' ')).join(' ');
}

/** Read when first asked for, which few are. What stands nowhere is at the key of its nearest parent, as in every document. */
function readPlaces(value: unknown, text: string): PlaceOf {
  let indices: ReadonlyMap<string, number> | undefined;
  let numbers: readonly number[] = [];
  return (path, part) => {
    indices ??= new Map(pathsOf(value).map((one, index) => [idOf(one), index]));
    if (numbers.length === 0) numbers = text.split(' ').map(Number);
    let length = path.length;
    while (length > 0 && !indices.has(idOf(path.slice(0, length)))) length -= 1;
    const first = 4 * (indices.get(idOf(path.slice(0, length))) ?? 0) + (part === 'key' || length < path.length ? 0 : 2);
    return { line: numbers[first] ?? 1, column: numbers[first + 1] ?? 1 };
  };
}

function pathsOf(value: unknown, path: Path = []): readonly Path[] {
  if (typeof value !== 'object' || value === null) return [path];
  return [path, ...Object.entries(value).flatMap(([name, part]) => pathsOf(part, [...path, name]))];
}

function idOf(path: Path): string {
  return JSON.stringify(path.map(String));
}
