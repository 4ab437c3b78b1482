/**
 * Lifts arguments: converts what the model wrote for a projected schema back to the tool's arguments. It undoes renames
 * and encodings.
 */

import { isJsonObject } from '../schemas/json-schema.ts';
import { definedFields } from '../text/collections.ts';

/** What must be undone at one position of the arguments. Positions that need nothing are not in the tree. */
export interface LiftNode {
  /** Shown name → original name. */
  readonly names: ReadonlyMap<string, string>;
  /** Original name → what to undo below it. */
  readonly below: ReadonlyMap<string, LiftNode>;
  readonly items?: LiftNode;
  /** Values of names that are not declared. */
  readonly values?: LiftNode;
  /** The value was shown as a string with JSON text. */
  readonly json: boolean;
  /** Required names that allow null and were shown as optional: absent means null. */
  readonly nulls: readonly string[];
  /** Optional names that do not allow null and were shown as required with null: null means absent. */
  readonly drops: readonly string[];
}

const NOTHING: LiftNode = { names: new Map(), below: new Map(), json: false, nulls: [], drops: [] };

/** The parts of a node. What is undefined, or empty, need not be undone. */
type LiftParts = { readonly [K in Exclude<keyof LiftNode, 'below'>]?: LiftNode[K] | undefined } & {
  readonly below?: Iterable<readonly [string, LiftNode | undefined]>;
};

/** Returns a node with the given parts, or undefined if there is nothing to undo. */
export function liftNode({ below = [], ...parts }: LiftParts): LiftNode | undefined {
  const named = [...below].filter((entry): entry is readonly [string, LiftNode] => entry[1] !== undefined);
  const node: LiftNode = { ...NOTHING, ...definedFields(parts), below: new Map(named) };
  const empty =
    node.names.size === 0 &&
    node.below.size === 0 &&
    !node.json &&
    node.nulls.length === 0 &&
    node.drops.length === 0 &&
    node.items === undefined &&
    node.values === undefined;
  return empty ? undefined : node;
}

/**
 * Returns one node for all branches of a union. Absent names stay absent, and nulls stay, because it is not known which
 * branch a value belongs to.
 */
export function mergeLifts(nodes: readonly (LiftNode | undefined)[]): LiftNode | undefined {
  const present = nodes.filter((node) => node !== undefined);
  if (present.length < 2)
    return present[0] === undefined ? undefined : liftNode({ ...present[0], nulls: [], drops: [] });
  const names = [...new Set(present.flatMap((node) => [...node.below.keys()]))];
  return liftNode({
    names: new Map(present.flatMap((node) => [...node.names])),
    below: names.map((name) => [name, mergeLifts(present.map((node) => node.below.get(name)))]),
    json: present.some((node) => node.json),
    items: mergeLifts(present.map((node) => node.items)),
    values: mergeLifts(present.map((node) => node.values)),
  });
}

/** Undoes the projection. Returns the same object if nothing changes. Never changes the input. */
export function liftValue(value: unknown, node: LiftNode | undefined): unknown {
  if (node === undefined) return value;
  const parsed = node.json && typeof value === 'string' ? parseText(value) : value;
  if (Array.isArray(parsed)) return liftArray(parsed, node.items);
  return isJsonObject(parsed) ? liftObject(parsed, node) : parsed;
}

function liftArray(list: readonly unknown[], items: LiftNode | undefined): unknown {
  const lifted = list.map((item) => liftValue(item, items));
  return lifted.every((item, index) => item === list[index]) ? list : lifted;
}

function liftObject(object: Record<string, unknown>, node: LiftNode): unknown {
  let changed = false;
  const entries = Object.entries(object).map(([key, value]): [string, unknown] => {
    const original = node.names.get(key);
    // The original spelling is accepted too. If both are given, the shown one stays and is refused as an unknown key.
    const name = original === undefined || Object.hasOwn(object, original) ? key : original;
    const lifted = liftValue(value, node.below.get(name) ?? node.values);
    changed ||= name !== key || lifted !== value;
    return [name, lifted];
  });
  const missing = node.nulls.filter((name) => !entries.some(([key]) => key === name));
  const dropped = new Set(node.drops);
  const kept = dropped.size === 0 ? entries : entries.filter(([name, inner]) => inner !== null || !dropped.has(name));
  if (!changed && missing.length === 0 && kept.length === entries.length) return object;
  return Object.fromEntries([...kept, ...missing.map((name): [string, unknown] => [name, null])]);
}

/** Reads JSON text of an object or a list; other text is a value itself. */
export function parseText(text: string): unknown {
  if (!/^\s*[[{]/.test(text) || losesDigits(text)) return text;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** Returns true if a number in the text may not survive as a double, because it must not be rounded silently. */
function losesDigits(text: string): boolean {
  return /\d{16}|\.\d{15}|\d[eE][+-]?\d{3}/.test(text.replace(/"(?:[^"\\]|\\.)*"/g, '""'));
}

/**
 * Returns the arguments object of a call: absent and null mean none, JSON text of an object is read (some hosts send
 * all arguments as text). Undefined for anything else, which is ARGS_INVALID.
 */
export function readArguments(raw: unknown): Record<string, unknown> | undefined {
  if (raw === undefined || raw === null) return {};
  const value = typeof raw === 'string' ? parseText(raw) : raw;
  return isJsonObject(value) ? value : undefined;
}
