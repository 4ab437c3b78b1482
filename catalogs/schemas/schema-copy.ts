/**
 * Copies a schema that came from outside, without recursion. A schema that is too deep, too large or not JSON is
 * refused.
 */
import { SCHEMA_LIMITS } from './json-schema.ts';

/** The copy, or why the input cannot be copied. */
export type CopyResult = { readonly value: unknown } | { readonly quarantined: string };

interface Task {
  readonly from: object;
  readonly to: Record<string, unknown> | unknown[];
  readonly depth: number;
}

/**
 * Copies JSON with an explicit stack: a definition nested 3,000 deep, or one that contains itself, must exhaust neither
 * the call stack nor the memory of the process. The levels counted are those of JSON, four for each level of schema, so
 * that a schema at its own limit still passes.
 */
export function copyJson(input: unknown): CopyResult {
  const holder: unknown[] = [];
  const tasks: Task[] = [{ from: [input], to: holder, depth: 0 }];
  let nodes = 0;
  let bytes = 0;
  for (let task = tasks.pop(); task !== undefined; task = tasks.pop()) {
    if (task.depth > SCHEMA_LIMITS.depth * 4)
      return { quarantined: `SCHEMA_LIMIT: nested deeper than ${SCHEMA_LIMITS.depth} levels` };
    for (const [key, value] of Object.entries(task.from)) {
      nodes += 1;
      bytes += key.length + (typeof value === 'string' ? value.length : 4);
      if (nodes > SCHEMA_LIMITS.nodes * 4)
        return { quarantined: `SCHEMA_LIMIT: more than ${SCHEMA_LIMITS.nodes} nodes` };
      if (bytes > SCHEMA_LIMITS.bytes * 2)
        return { quarantined: `SCHEMA_LIMIT: larger than ${SCHEMA_LIMITS.bytes / 1024} KiB` };
      place(task, [key, value], tasks);
    }
  }
  return { value: holder[0] };
}

function place(task: Task, [key, value]: readonly [string, unknown], tasks: Task[]): void {
  let copied: unknown = isScalar(value) ? value : null;
  if (typeof value === 'object' && value !== null) {
    const to: Record<string, unknown> | unknown[] = Array.isArray(value) ? [] : {};
    tasks.push({ from: value, to, depth: task.depth + 1 });
    copied = to;
  }
  // Assignment would let a key called __proto__ replace the prototype.
  if (key === '__proto__')
    Object.defineProperty(task.to, key, { value: copied, writable: true, enumerable: true, configurable: true });
  else (task.to as Record<string, unknown>)[key] = copied;
}

function isScalar(value: unknown): boolean {
  return (
    typeof value === 'string' || typeof value === 'boolean' || (typeof value === 'number' && Number.isFinite(value))
  );
}
