/** Owns what a policy is made from and what it became, as plain data that can go from one thread to another; decides nothing. */

import { inTimeSlices } from '../../catalogs/text/time-slices.ts';
import { RemoteBundle, type RemoteState } from '../rego/bundles/remote-bundle.ts';
import type { LocatedRule } from '../rules/configured-names.ts';
import type { CompiledConfinement } from '../rules/confinement-rules.ts';
import type { YamlRuleDocument } from '../rules/rule-compiler.ts';
import type { PolicyParts } from './compiled-parts.ts';
import { checkBundle } from './policy-loader.ts';
import type { ReadyParts } from './policy-start.ts';
import type { MemoryImage } from './wasm/wasm-instance.ts';

type Path = readonly (string | number)[];
type PlaceOf = YamlRuleDocument['placeOf'];

/** All that a policy is made from; YAML is read on the other side. */
export type TransferableParts = Omit<PolicyParts, 'rules' | 'readYaml'> & {
  readonly rules: readonly (Omit<YamlRuleDocument, 'placeOf'> & { readonly places: string })[];
};

/** A policy that only needs to be started. Lists of rules are texts of some of them each, which cost the thread that takes them the least. */
export type TransferablePolicy = Omit<ReadyParts, 'about' | 'confining' | 'remote'> & {
  readonly about: ReadonlyMap<string, readonly string[]>;
  readonly confining: Omit<CompiledConfinement, 'programs' | 'personal' | 'free'> &
    Readonly<Record<'programs' | 'personal' | 'free', readonly string[]>>;
  readonly image?: MemoryImage | undefined;
  readonly remote?: RemoteState;
};

type PlainRule = Pick<LocatedRule, 'rule' | 'mode'> & { readonly file: string; readonly places: string };

/** Rules in one text: less than a millisecond of reading. */
const SOME = 100;

/** Parts without their functions. */
export function flattenParts({ readYaml: _, rules, ...parts }: PolicyParts): TransferableParts {
  return {
    ...parts,
    rules: rules.map(({ placeOf, ...document }) => ({ ...document, places: writePlaces(document.value, placeOf) })),
  };
}

/** Parts as they were. */
export function reviveParts({ rules, ...parts }: TransferableParts, readYaml: PolicyParts['readYaml']): PolicyParts {
  return {
    ...parts,
    readYaml,
    rules: rules.map(({ places, ...document }) => ({ ...document, placeOf: readPlaces(document.value, places) })),
  };
}

/** What was compiled, without its functions. */
export function flattenPolicy(ready: ReadyParts, image?: MemoryImage): TransferablePolicy {
  const {
    remote,
    about,
    confining: { programs, personal, free, ...confining },
    ...plain
  } = ready;
  const rules = [...about].map(
    ([server, located]) =>
      [
        server,
        writeSome(
          [...located].map(
            ({ rule, mode, at }): PlainRule => ({ rule, mode, file: at([]).file, places: writePlaces(rule, at) }),
          ),
        ),
      ] as const,
  );
  return {
    ...plain,
    image,
    about: new Map(rules),
    // Each may be long.
    confining: {
      ...confining,
      programs: [...programs].map((one) => JSON.stringify([one])),
      personal: writeSome(personal),
      free: writeSome(free),
    },
    ...(remote === undefined ? {} : { remote: remote.state }),
  };
}

/** What was compiled, ready to be started with its image; others have their turn meanwhile. Rules about one server are read when they are asked for. */
export async function revivePolicy({
  about,
  confining,
  remote,
  image: _,
  ...ready
}: TransferablePolicy): Promise<ReadyParts> {
  const { programs, personal, free, ...rest } = confining;
  return {
    ...ready,
    about: new Map([...about].map(([server, texts]) => [server, { [Symbol.iterator]: () => reviveRules(texts) }])),
    confining: {
      ...rest,
      programs: new Map(await readSome(programs)),
      personal: await readSome(personal),
      free: await readSome(free),
    },
    ...(remote === undefined ? {} : { remote: new RemoteBundle({ ...remote.options, judge: checkBundle }, remote) }),
  };
}

function* reviveRules(texts: readonly string[]): Generator<LocatedRule, void, undefined> {
  for (const text of texts) {
    for (const { rule, mode, file, places } of JSON.parse(text) as readonly PlainRule[]) {
      const placeOf = readPlaces(rule, places);
      yield { rule, mode, at: (path, part = 'value') => ({ file, ...placeOf(path, part) }) };
    }
  }
}

function writeSome(list: readonly unknown[]): readonly string[] {
  return Array.from({ length: Math.ceil(list.length / SOME) }, (_, number) =>
    JSON.stringify(list.slice(number * SOME, (number + 1) * SOME)),
  );
}

async function readSome<T>(texts: readonly string[]): Promise<readonly T[]> {
  const list: T[] = [];
  for await (const text of inTimeSlices(texts)) list.push(...(JSON.parse(text) as readonly T[]));
  return list;
}

/** Line and column of key and of value, for each part of a value in the order of the walk. */
function writePlaces(value: unknown, placeOf: PlaceOf): string {
  return pathsOf(value)
    .map((path) =>
      (['key', 'value'] as const)
        .map((part) => placeOf(path, part))
        .map(({ line, column }) => `${line} ${column}`)
        .join(' '),
    )
    .join(' ');
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
    const first =
      4 * (indices.get(idOf(path.slice(0, length))) ?? 0) + (part === 'key' || length < path.length ? 0 : 2);
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
