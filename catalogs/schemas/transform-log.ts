/** The log of what the projection did to a schema, and the words for it. */

/** What a transform does to the set of accepted values. */
export type TransformEffect = 'lossless' | 'widen' | 'rename' | 'encode' | 'repair' | 'annotation';

/** One transform at one place; `path` is a JSON pointer into the schema, `''` for its root. */
export interface TransformLogEntry {
  readonly transform: string;
  readonly effect: TransformEffect;
  readonly path: string;
}

/** Collects entries; a stage that renders twice starts a new log. */
export type TransformLog = TransformLogEntry[];

/** JSON pointer of a place below `path`. */
export function pathBelow(path: string, ...steps: readonly (string | number)[]): string {
  let place = path;
  for (const step of steps)
    place += `/${typeof step === 'string' && /[~/]/.test(step) ? step.replaceAll('~', '~0').replaceAll('/', '~1') : step}`;
  return place;
}
