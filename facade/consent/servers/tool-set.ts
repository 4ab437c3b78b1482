/** The hash that binds consent to tools, over all that a server says, and the differences of a present list from it. */
import { createHash } from 'node:crypto';
import { canonicalJson, pinsOf } from '../../../catalogs/tools/definition-pin.ts';
import type { RawPrompt, RawResourceTemplate } from '../../../catalogs/tools/definition-schema.ts';
import type { RawTool } from '../../../catalogs/tools/tool-definition.ts';

/** All texts of a server that could reach a model, and whether its annotations count. */
export interface ToolSet {
  readonly tools: readonly RawTool[];
  readonly instructions?: string;
  readonly prompts: readonly RawPrompt[];
  /** Templates of resources. Absent: none. */
  readonly templates?: readonly RawResourceTemplate[];
  /** The annotations of its tools were shown as true (`trustHints`). */
  readonly hints: boolean;
}

/** Why a tool is not shown. */
export type PendingReason = 'changed' | 'new';

/** A present list compared with the approved one. */
export interface ToolDrift {
  readonly pending: ReadonlyMap<string, PendingReason>;
  readonly removed: readonly string[];
}

/**
 * Returns the SHA-256 as hex, independent of the order of tools, prompts, templates and keys. It includes the name of
 * the server, so that it is not valid for another.
 */
export function toolSetHash(server: string, { tools, instructions, prompts, templates, hints }: ToolSet): string {
  const sorted = <T extends { readonly name: string }>(list: readonly T[]): readonly string[] =>
    list.map((one) => canonicalJson(one)).sort();
  const parts = [server, sorted(tools), instructions ?? null, sorted(prompts), hints];
  // A set without templates keeps its hash of earlier versions.
  if (templates !== undefined) parts.push(sorted(templates));
  return createHash('sha256')
    .update(`tollgate-set\0${1}\0${canonicalJson(parts)}`)
    .digest('hex');
}

const pins = new WeakMap<readonly RawTool[], ReadonlyMap<string, string>>();

/** Like pinsOf in catalogs/tools/definition-pin.ts, but computed once per list, because each call needs it. */
export function cachedPins(tools: readonly RawTool[]): ReadonlyMap<string, string> {
  const known = pins.get(tools);
  if (known !== undefined) return known;
  const made = pinsOf(tools);
  pins.set(tools, made);
  return made;
}

/** Returns every tool of `now` whose definition is not approved, and the approved tools that are gone. */
export function toolDriftOf(approved: readonly RawTool[], now: readonly RawTool[]): ToolDrift {
  const [old, young] = [cachedPins(approved), cachedPins(now)];
  const pending = [...young]
    .filter(([name, pin]) => old.get(name) !== pin)
    .map(([name]) => [name, old.has(name) ? 'changed' : 'new'] as const);
  return { pending: new Map(pending), removed: [...old.keys()].filter((name) => !young.has(name)) };
}
