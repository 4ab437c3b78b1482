/**
 * Projects one tool's schema for one profile: repaired, simplified, written, verified. It never throws and never
 * changes its input.
 */

import type { SchemaProfile } from '../profiles/schema-profile.ts';
import { canonicalize } from '../schemas/canonical-schema.ts';
import type { JsonSchema } from '../schemas/json-schema.ts';
import type { TransformLog, TransformLogEntry } from '../schemas/transform-log.ts';
import { liftValue } from './argument-lifting.ts';
import { inlineReferences } from './inlined-references.ts';
import { emitPreserved, preservedRoot } from './preserved-keywords.ts';
import { profileViolations } from './profile-violations.ts';
import { renameProperties } from './property-names.ts';
import { type Emitted, emitRoot } from './schema-emitter.ts';
import { rootObject, simplifySchema } from './schema-simplification.ts';
import type { Rendering } from './union-fallbacks.ts';

/** What the model sees of a tool's arguments, and how to lift them. */
export interface Projection {
  readonly schema: Record<string, unknown>;
  /** What was done, for `describe` and logs. */
  readonly log: readonly TransformLogEntry[];
  /** Rules of the root in words, for the description of the tool. They come first. */
  readonly hints: readonly string[];
  /** True: the schema is shown as the server sent it. */
  readonly isExact?: true;
  /** Undoes renames and encodings. Returns the same object if nothing changed. */
  lift(args: Record<string, unknown>): { readonly args: Record<string, unknown>; readonly changed: boolean };
}

/** Tried in this order, until the projection fits its size. Names in the first two levels are never removed. */
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

const HIDDEN_SCHEMA = 'the schema of this tool cannot be shown; errors name the legal arguments';

/**
 * Projects an input schema as a server sent it. A schema that is hostile or over the limits gives `quarantined` with a
 * reason: only that tool is not listed (CY-14). A projection that breaks a rule of its profile falls back to an open
 * object. Deterministic; a few hundred microseconds for a usual schema.
 */
export function projectSchema(
  inputSchema: Record<string, unknown>,
  profile: SchemaProfile,
): Projection | { readonly quarantined: string } {
  try {
    const canonical = canonicalize(inputSchema);
    if ('quarantined' in canonical) return canonical;
    if (profile.constraints === 'none' && inputSchema.type === 'object') return unchanged(inputSchema);
    const log: TransformLog = [...canonical.log];
    const inlined = inlineReferences(canonical.schema, log);
    const tree =
      profile.constraints === 'words' ? rootObject(simplifySchema(inlined, '', log)) : preservedRoot(inlined, log);
    const written = fit(tree, profile, log);
    return profileViolations(written.schema, profile).length === 0 ? projection(written, log) : fallback(profile, log);
  } catch (error) {
    if (error instanceof RangeError) return { quarantined: 'SCHEMA_LIMIT: the schema is too big to be read' };
    throw error;
  }
}

type Written = Emitted & { readonly hints: readonly string[] };

function fit(tree: JsonSchema, profile: SchemaProfile, log: TransformLog): Written {
  const renames = renameProperties(tree, new RegExp(profile.propertyName));
  let written: Written | undefined;
  let entries: TransformLog = [];
  let size = 0;
  for (const detail of DETAILS) {
    // Shorter texts alone never save nine tenths, so the depth is reduced next.
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
    written = profile.constraints === 'words' ? emitRoot(tree, rendering) : emitPreserved(tree, rendering);
    size = Buffer.byteLength(JSON.stringify(written.schema));
    if (size <= profile.maxBytes || (profile.constraints !== 'words' && detail.maxDescription < 300)) break;
  }
  log.push(...entries);
  return written as Written;
}

function unchanged(schema: Record<string, unknown>): Projection {
  return { schema, log: [], hints: [], isExact: true, lift: (args) => ({ args, changed: false }) };
}

function projection(written: Written, log: TransformLog): Projection {
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

function fallback(profile: SchemaProfile, log: TransformLog): Projection {
  log.push({ transform: 'fallback', effect: 'widen', path: '' });
  const schema = {
    type: 'object',
    properties: {},
    ...(profile.rootKeywords.includes('additionalProperties') ? { additionalProperties: !profile.strict } : {}),
  };
  return projection({ schema, hints: [HIDDEN_SCHEMA] }, log);
}
