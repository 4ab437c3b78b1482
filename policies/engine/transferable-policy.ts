/** Makes the parts of a policy, and the compiled policy, plain data that can be passed between threads. */

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

/** The parts of a policy. The other thread reads the YAML files. */
export type TransferableParts = Omit<PolicyParts, 'rules' | 'readYaml'> & {
  readonly rules: readonly (Omit<YamlRuleDocument, 'placeOf'> & { readonly places: string })[];
};

/**
 * A policy that only needs to be started. Rules are texts of several rules each, because these are the cheapest to
 * receive.
 */
export type TransferablePolicy = Omit<ReadyParts, 'rulesByServer' | 'confining' | 'remote'> & {
  readonly rulesByServer: ReadonlyMap<string, readonly string[]>;
  readonly confining: Omit<CompiledConfinement, 'programs' | 'personal' | 'free'> &
    Readonly<Record<'programs' | 'personal' | 'free', readonly string[]>>;
  readonly image?: MemoryImage | undefined;
  readonly remote?: RemoteState;
};

type PlainRule = Pick<LocatedRule, 'rule' | 'mode'> & { readonly file: string; readonly places: string };

/** Rules in one text. Parsing them takes less than a millisecond. */
const RULES_PER_TEXT = 100;

/** Returns parts without their functions. */
export function flattenParts({ readYaml: _, rules, ...parts }: PolicyParts): TransferableParts {
  return {
    ...parts,
    rules: rules.map(({ placeOf, ...document }) => ({ ...document, places: writePlaces(document.value, placeOf) })),
  };
}

/** Returns parts with their functions. */
export function reviveParts({ rules, ...parts }: TransferableParts, readYaml: PolicyParts['readYaml']): PolicyParts {
  return {
    ...parts,
    readYaml,
    rules: rules.map(({ places, ...document }) => ({ ...document, placeOf: readPlaces(document.value, places) })),
  };
}

/** Returns a compiled policy without its functions. */
export function flattenPolicy(ready: ReadyParts, image?: MemoryImage): TransferablePolicy {
  const {
    remote,
    rulesByServer,
    confining: { programs, personal, free, ...confining },
    ...plain
  } = ready;
  const rules = [...rulesByServer].map(([server, located]) => {
    const plainRules = [...located].map(
      ({ rule, mode, at }): PlainRule => ({ rule, mode, file: at([]).file, places: writePlaces(rule, at) }),
    );
    return [server, writeTexts(plainRules)] as const;
  });
  return {
    ...plain,
    image,
    rulesByServer: new Map(rules),
    confining: {
      ...confining,
      // One program may close many paths, so each gets a text of its own.
      programs: [...programs].map((one) => JSON.stringify([one])),
      personal: writeTexts(personal),
      free: writeTexts(free),
    },
    ...(remote === undefined ? {} : { remote: remote.state }),
  };
}

/**
 * Returns a compiled policy that can be started with its image. Works in time slices; parses rules about a server on
 * demand.
 */
export async function revivePolicy({
  rulesByServer,
  confining,
  remote,
  image: _,
  ...ready
}: TransferablePolicy): Promise<ReadyParts> {
  const { programs, personal, free, ...rest } = confining;
  return {
    ...ready,
    rulesByServer: new Map(
      [...rulesByServer].map(([server, texts]) => [server, { [Symbol.iterator]: () => reviveRules(texts) }]),
    ),
    confining: {
      ...rest,
      programs: new Map(await readTexts(programs)),
      personal: await readTexts(personal),
      free: await readTexts(free),
    },
    ...(remote === undefined ? {} : { remote: new RemoteBundle({ ...remote.options, check: checkBundle }, remote) }),
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

function writeTexts(list: readonly unknown[]): readonly string[] {
  return Array.from({ length: Math.ceil(list.length / RULES_PER_TEXT) }, (_, number) =>
    JSON.stringify(list.slice(number * RULES_PER_TEXT, (number + 1) * RULES_PER_TEXT)),
  );
}

async function readTexts<T>(texts: readonly string[]): Promise<readonly T[]> {
  const list: T[] = [];
  for await (const text of inTimeSlices(texts)) list.push(...(JSON.parse(text) as readonly T[]));
  return list;
}

/** Writes line and column of key and value, for each part of a value, in the order of `pathsOf`. */
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

/**
 * Parses the places when first needed, which is rare. The place of an unknown part is the key of its nearest known
 * parent.
 */
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
