/**
 * Compares two policies: which rules, entry points, modes and settings differ. It never shows the value of a setting.
 */

import { readFile } from 'node:fs/promises';
import { isDeepStrictEqual } from 'node:util';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { isJsonObject } from '../../catalogs/schemas/json-schema.ts';
import { definedFields } from '../../catalogs/text/collections.ts';
import type { PolicyParts } from '../engine/compiled-parts.ts';
import { WasmPolicy } from '../engine/wasm/wasm-policy.ts';
import { readBundle } from '../rego/bundles/bundle-format.ts';
import { findOpa } from '../rego/opa-program.ts';
import { type CompiledRego, compileRego } from '../rego/rego-build.ts';
import type { RegoRule } from '../rego/rego-facts.ts';
import { inTemporaryFolder } from '../rego/temporary-folder.ts';
import { refuseProblems } from '../rules/policy-problems.ts';

/** The two policies. Each is a tollgate.yaml with its sources, a file of rules, Rego, or a bundle. */
export interface DiffRequest {
  readonly before: DiffSide;
  readonly after: DiffSide;
  readonly readYaml: PolicyParts['readYaml'];
  /** Value of --opa on the command line. */
  readonly opa?: string;
}

/** One policy. */
export interface DiffSide {
  readonly sources: readonly DiffSource[];
  /** The configuration as plain values, without rules and policies. Absent if only files are compared. */
  readonly settings?: unknown;
}

/** A source. `shown` is its name in messages. `mode` is set if a configuration gives one. */
export interface DiffSource {
  readonly path: string;
  readonly kind: 'yaml' | 'rego' | 'bundle';
  readonly shown: string;
  readonly mode?: unknown;
}

/** One difference. `kind`: of a rule, an entry point, the mode of a rule or source, or a setting. */
export interface Difference {
  readonly kind: 'rule' | 'entrypoint' | 'mode' | 'setting';
  readonly change: 'added' | 'removed' | 'changed';
  readonly name: string;
  readonly file?: string;
  readonly line?: number;
  /** What changed, in words. */
  readonly detail?: string;
}

interface Item {
  readonly kind: Difference['kind'];
  /** Equal on both sides for the same thing. */
  readonly key: string;
  readonly name: string;
  readonly value: unknown;
  readonly file?: string;
  readonly line?: number;
}

/**
 * Compares two policies. Throws POLICY_INVALID for one that cannot be read, and OPA_MISSING if there is Rego and no
 * opa.
 */
export async function diffPolicies(request: DiffRequest): Promise<readonly Difference[]> {
  const [before, after] = [await readSide(request.before, request), await readSide(request.after, request)];
  const old = new Map(before.map((item) => [`${item.kind}\0${item.key}`, item]));
  const now = new Map(after.map((item) => [`${item.kind}\0${item.key}`, item]));
  const removed = [...old].filter(([key]) => !now.has(key)).map(([, item]) => differenceOf(item, 'removed'));
  const others = [...now].flatMap(([key, item]): readonly Difference[] => {
    const previous = old.get(key);
    if (previous === undefined) return [differenceOf(item, 'added')];
    return isDeepStrictEqual(previous.value, item.value)
      ? []
      : [{ ...differenceOf(item, 'changed'), ...explain(previous, item) }];
  });
  return [...removed, ...others];
}

function differenceOf({ kind, name, file, line }: Item, change: Difference['change']): Difference {
  return { kind, change, name, ...definedFields({ file, line }) };
}

/** Shows modes, and the names of a rule's fields. The value of a setting may be a secret, so it is not shown. */
function explain(before: Item, after: Item): { readonly detail?: string } {
  if (after.kind === 'mode') return { detail: `${show(before.value)} → ${show(after.value)}` };
  if (after.kind !== 'rule') return {};
  const [old, now] = [before.value, after.value];
  if (!isJsonObject(old) || !isJsonObject(now)) return {};
  const fields = [...new Set([...Object.keys(old), ...Object.keys(now)])].filter(
    (key) => !isDeepStrictEqual(old[key], now[key]),
  );
  return { detail: fields.map((key) => (key === 'digest' ? 'the rule itself' : key)).join(', ') };
}

function show(mode: unknown): string {
  return typeof mode === 'string' ? mode : JSON.stringify(mode);
}

async function readSide(
  { sources, settings }: DiffSide,
  { readYaml, opa }: Pick<DiffRequest, 'readYaml' | 'opa'>,
): Promise<readonly Item[]> {
  const items: Item[] = settings === undefined ? [] : [...leaves(settings, '')];
  for (const { path: file, kind, shown, mode } of sources) {
    if (mode !== undefined) items.push({ kind: 'mode', key: shown, name: `source ${shown}`, value: mode });
    if (kind === 'yaml') items.push(...readRules(shown, await readFile(file, 'utf8'), readYaml));
    if (kind === 'bundle') items.push(...(await readBuilt(file, shown)));
  }
  const rego = sources.filter(({ kind }) => kind === 'rego');
  return rego.length === 0 ? items : [...items, ...(await readRego(rego, opa))];
}

/** Returns YAML rules by id, and their modes as separate items. */
function readRules(shown: string, text: string, readYaml: PolicyParts['readYaml']): readonly Item[] {
  const document = readYaml(shown, text);
  refuseProblems(document.problems);
  const { rules } = (document.value ?? {}) as { readonly rules?: readonly Readonly<Record<string, unknown>>[] };
  return (rules ?? []).flatMap(({ id, mode, ...rule }, number): readonly Item[] => {
    const place = { file: shown, line: document.placeOf(['rules', number], 'value').line };
    const name = typeof id === 'string' ? id : `rule ${number + 1}`;
    return [
      { kind: 'rule', key: name, name, value: rule, ...place },
      { kind: 'mode', key: `rule ${name}`, name: `rule ${name}`, value: mode ?? 'enforce', ...place },
    ];
  });
}

async function readBuilt(file: string, shown: string): Promise<readonly Item[]> {
  const { facts, ...bundle } = await readBundle(file, shown);
  if (facts === undefined)
    throw new TollgateError('POLICY_INVALID', {
      detail: `The bundle ${shown} does not list its rules.`,
      next: 'Build it with `tollgate policy build`.',
    });
  return builtItems({ ...bundle, facts });
}

async function readRego(sources: readonly DiffSource[], option: string | undefined): Promise<readonly Item[]> {
  const opa = await findOpa(option);
  return inTemporaryFolder('diff', async (cache) => builtItems(await compileRego(sources, { opa, cache })));
}

function builtItems({ wasm, data, facts }: CompiledRego): readonly Item[] {
  const { entrypoints } = new WasmPolicy(wasm, '{}', { entrypoints: [] });
  const others = Object.entries(facts.others).map(
    ([name, digest]): Item => ({ kind: 'rule', key: name, name, value: { digest } }),
  );
  const settings = Object.entries(data).flatMap(([key, value]) => [...leaves(value, `data.${key}`)]);
  return [
    ...regoItems(facts.rules),
    ...others,
    ...entrypoints.map((name): Item => ({ kind: 'entrypoint', key: name, name, value: true })),
    ...settings,
  ];
}

/** Rules without an id, or with the same id in one set, are matched by their text. */
function regoItems(rules: readonly RegoRule[]): readonly Item[] {
  const numbers = new Map<string, number>();
  const sorted = [...rules].sort((a, b) => (a.digest < b.digest ? -1 : 1));
  return sorted.map(({ package: name, set, id, file, line, ...value }): Item => {
    const base = `policy.${name}.${set}${id === undefined ? ` ${value.digest}` : ` ${id}`}`;
    const number = numbers.get(base) ?? 0;
    numbers.set(base, number + 1);
    return { kind: 'rule', key: `${base} ${number}`, name: id ?? `policy.${name}.${set}`, value, file, line };
  });
}

/** Yields every value of a configuration with its dotted path. */
function* leaves(value: unknown, at: string): Generator<Item> {
  if (isJsonObject(value) && Object.keys(value).length > 0) {
    for (const [key, child] of Object.entries(value)) yield* leaves(child, at === '' ? key : `${at}.${key}`);
    return;
  }
  if (at !== '') yield { kind: 'setting', key: at, name: at, value };
}
