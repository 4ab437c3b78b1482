/** Owns the projection of one tool's schema for one profile: repaired, simplified, written, verified; it never throws and never mutates. */
import { canonicalize } from './canonical.ts';
import { type Emitted, emitRoot, type Rendering } from './emit.ts';
import { emitFaithful, faithfulRoot } from './faithful.ts';
import { inline } from './inline.ts';
import { liftValue } from './lift.ts';
import type { Log, LogEntry } from './log.ts';
import type { SchemaProfile } from './profile.ts';
import { renameProperties } from './rename.ts';
import type { Schema } from './schema.ts';
import { rootObject, simplify } from './unions.ts';
import { violations } from './verify.ts';

export { readArguments } from './lift.ts';
export type { LogEntry, TransformEffect } from './log.ts';
export { withoutPinned } from './pins.ts';
export { loadSchemaProfile, type SchemaProfile } from './profile.ts';

/** What the model sees of a tool's arguments, and the way back. */
export interface Projection {
  readonly schema: Record<string, unknown>;
  /** What was done, for `describe` and logs. */
  readonly log: readonly LogEntry[];
  /** Rules of the root in words, for the description of the tool: generated, so they go first. */
  readonly hints: readonly string[];
  /** Undoes renames and encodings. The same object comes back when nothing changed. */
  lift(args: Record<string, unknown>): { readonly args: Record<string, unknown>; readonly changed: boolean };
}

/** Less and less detail, until the projection fits its budget. Names and required of the first two levels are never dropped. */
const DETAILS: readonly {
  readonly maxDescription: number;
  readonly mergeVariants: boolean;
  readonly maxDepth: number;
}[] = [
  { maxDescription: 1024, mergeVariants: false, maxDepth: 64 },
  { maxDescription: 300, mergeVariants: false, maxDepth: 64 },
  { maxDescription: 120, mergeVariants: false, maxDepth: 64 },
  { maxDescription: 120, mergeVariants: true, maxDepth: 64 },
  { maxDescription: 120, mergeVariants: true, maxDepth: 4 },
  { maxDescription: 80, mergeVariants: true, maxDepth: 3 },
  { maxDescription: 40, mergeVariants: true, maxDepth: 3 },
];

const CLOSED_EYES = 'the schema of this tool cannot be shown; errors name the legal arguments';

/**
 * Projects an input schema as it came from a server. Schemas that are hostile or over the limits give `quarantined`
 * with a reason: that tool alone is not listed (CY-14). A projection that breaks a rule of its profile falls back to
 * an open object. Deterministic; a few hundred microseconds for a usual schema.
 */
export function project(
  inputSchema: Record<string, unknown>,
  profile: SchemaProfile,
): Projection | { readonly quarantined: string } {
  try {
    const canonical = canonicalize(inputSchema);
    if ('quarantined' in canonical) return canonical;
    const log: Log = [...canonical.log];
    const inlined = inline(canonical.schema, log);
    const tree = profile.constraints === 'keep' ? faithfulRoot(inlined, log) : rootObject(simplify(inlined, '', log));
    const written = fit(tree, profile, log);
    return violations(written.schema, profile).length === 0 ? projection(written, log) : fallback(profile, log);
  } catch (error) {
    if (error instanceof RangeError) return { quarantined: 'SCHEMA_LIMIT: the schema is too big to be read' };
    throw error;
  }
}

type Written = Emitted & { readonly hints: readonly string[] };

function fit(tree: Schema, profile: SchemaProfile, log: Log): Written {
  const renames = renameProperties(tree, new RegExp(profile.propertyName));
  let written: Written | undefined;
  let entries: Log = [];
  let size = 0;
  for (const detail of DETAILS) {
    // Shorter texts alone never save nine tenths: go on to the depth.
    if (size > profile.maxBytes * 10 && detail.maxDepth === 64 && profile.constraints === 'words') continue;
    entries = written === undefined ? [] : [{ transform: 'budget', effect: 'annotation', path: '' }];
    const rendering: Rendering = {
      profile,
      renames,
      log: entries,
      ...detail,
      maxDescription: Math.min(detail.maxDescription, profile.maxDescription),
      maxDepth: Math.min(detail.maxDepth, profile.maxDepth),
    };
    written = profile.constraints === 'keep' ? emitFaithful(tree, rendering) : emitRoot(tree, rendering);
    size = Buffer.byteLength(JSON.stringify(written.schema));
    if (size <= profile.maxBytes || (profile.constraints === 'keep' && detail.maxDescription < 300)) break;
  }
  log.push(...entries);
  return written as Written;
}

function projection(written: Written, log: Log): Projection {
  return {
    schema: written.schema,
    log,
    hints: written.hints,
    lift(args) {
      const lifted = liftValue(args, written.lift) as Record<string, unknown>;
      return { args: lifted, changed: lifted !== args };
    },
  };
}

function fallback(profile: SchemaProfile, log: Log): Projection {
  log.push({ transform: 'fallback', effect: 'widen', path: '' });
  const schema = {
    type: 'object',
    properties: {},
    ...(profile.rootKeywords.includes('additionalProperties') ? { additionalProperties: !profile.strict } : {}),
  };
  return projection({ schema, lift: undefined, hints: [CLOSED_EYES] }, log);
}
