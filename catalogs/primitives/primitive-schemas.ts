/** The argument schemas of the four primitives, from schemas.json, and the check of arguments against them. */
import { readFileSync } from 'node:fs';
import { TollgateError } from '../errors/error-table.ts';
import { nearestName } from '../validation/validation-faults.ts';

/** One argument: its JSON type, and its values if there are few. */
interface Property {
  readonly type: 'string' | 'integer' | 'boolean';
  readonly enum?: readonly string[];
}

/** The schema of one primitive: flat, in the part of JSON Schema that every provider accepts. */
export interface ArgumentSchema {
  readonly type: 'object';
  readonly properties: Readonly<Record<string, Property>>;
  readonly required?: readonly string[];
}

/** By name: read, write, edit, bash. */
export const ARGUMENT_SCHEMAS: ReadonlyMap<string, ArgumentSchema> = new Map(
  Object.entries(
    JSON.parse(readFileSync(new URL('./schemas.json', import.meta.url), 'utf8')) as Record<string, ArgumentSchema>,
  ),
);

/**
 * Throws ARGS_INVALID for a missing, unknown or wrongly typed argument. `edits` of edit is known although it is not
 * advertised.
 */
export function checkArguments(primitive: string, args: Readonly<Record<string, unknown>>): void {
  const schema = ARGUMENT_SCHEMAS.get(primitive);
  if (schema === undefined) throw new TollgateError('NOT_SUPPORTED', { detail: 'There is no such primitive.' });
  const properties = new Map(Object.entries(schema.properties));
  for (const name of schema.required ?? []) {
    if (!Object.hasOwn(args, name)) throw misfit(`${name} is missing`, `Give ${name}.`);
  }
  for (const [name, value] of Object.entries(args)) {
    if (primitive === 'edit' && name === 'edits') {
      checkEdits(value);
      continue;
    }
    const property = properties.get(name);
    if (property === undefined) throw unknownArgument(name, primitive, [...properties.keys()]);
    checkValue(name, property, value);
  }
}

function unknownArgument(name: string, primitive: string, known: readonly string[]): TollgateError {
  const near = nearestName(name, known);
  return misfit(
    `${JSON.stringify(name.slice(0, 60))} is not an argument of ${primitive}`,
    `${near === undefined ? '' : `Did you mean ${near}? `}Its arguments are ${known.join(', ')}.`,
  );
}

function checkValue(name: string, property: Property, value: unknown): void {
  const fits = property.type === 'integer' ? Number.isSafeInteger(value) : typeof value === property.type;
  if (!fits)
    throw misfit(
      `${name} must be ${property.type === 'integer' ? 'an' : 'a'} ${property.type}`,
      `Give ${name} as ${property.type}.`,
    );
  if (property.enum !== undefined && !property.enum.includes(String(value)))
    throw misfit(`${name} has no such value`, `Use one of ${property.enum.join(', ')}.`);
}

function checkEdits(value: unknown): void {
  const steps: readonly unknown[] = Array.isArray(value) ? value : [undefined];
  for (const step of steps) {
    if (typeof step !== 'object' || step === null || Array.isArray(step))
      throw misfit('edits must be a list of objects', 'Give old_string and new_string in each.');
    const { old_string: from, new_string: to, ...rest } = step as Record<string, unknown>;
    checkArguments('edit', { ...rest, path: '.', old_string: from, new_string: to });
  }
}

function misfit(detail: string, next: string): TollgateError {
  return new TollgateError('ARGS_INVALID', { detail: `${detail}.`, next });
}
