/** What consent to tools is bound to: one hash over all that a server says, and how a present list differs from it. */
import { createHash } from 'node:crypto';
import type { RawPrompt } from '../../../adapters/port.ts';
import { canonicalJson, pinsOf } from '../../../catalogs/tools/definition-pin.ts';
import type { RawTool } from '../../../catalogs/tools/tool-definition.ts';

/** All that a server says that could reach a model, and whether its annotations count. */
export interface ToolSet {
  readonly tools: readonly RawTool[];
  readonly instructions?: string;
  readonly prompts: readonly RawPrompt[];
  /** What it says about its tools was shown as what they do (`trustHints`). */
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
 * SHA-256, hex, independent of the order of tools, prompts and keys. Bound to the server, so that it cannot be used for
 * another.
 */
export function toolSetHash(server: string, { tools, instructions, prompts, hints }: ToolSet): string {
  const sorted = <T extends { readonly name: string }>(list: readonly T[]): readonly string[] =>
    list.map((one) => canonicalJson(one)).sort();
  return createHash('sha256')
    .update(
      `tollgate-set\0${1}\0${canonicalJson([server, sorted(tools), instructions ?? null, sorted(prompts), hints])}`,
    )
    .digest('hex');
}

const pins = new WeakMap<readonly RawTool[], ReadonlyMap<string, string>>();

/** As pinsOf in catalogs/tools/definition-pin.ts, once per list, because each call asks. */
export function cachedPins(tools: readonly RawTool[]): ReadonlyMap<string, string> {
  const known = pins.get(tools);
  if (known !== undefined) return known;
  const made = pinsOf(tools);
  pins.set(tools, made);
  return made;
}

/** Returns every tool of `now` whose definition is not the approved one, and those that are gone. */
export function toolDriftOf(approved: readonly RawTool[], now: readonly RawTool[]): ToolDrift {
  const [old, young] = [cachedPins(approved), cachedPins(now)];
  const pending = [...young]
    .filter(([name, pin]) => old.get(name) !== pin)
    .map(([name]) => [name, old.has(name) ? 'changed' : 'new'] as const);
  return { pending: new Map(pending), removed: [...old.keys()].filter((name) => !young.has(name)) };
}
