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

/** Returns the JSON pointer of a place below `path`. */
export function pathBelow(path: string, ...steps: readonly (string | number)[]): string {
  return steps.reduce<string>(
    (pointer, step) => `${pointer}/${String(step).replaceAll('~', '~0').replaceAll('/', '~1')}`,
    path,
  );
}
