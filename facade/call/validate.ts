/**
 * Stage 3, validate: arguments are lifted back to the original schema, pinned and validated. Every repair is told to
 * the caller.
 */
import { isDeepStrictEqual } from 'node:util';
import { parseJsonDoc } from '../../adapters/rpc/message-parser.ts';
import { type JsonDoc, sizeOfDoc } from '../../adapters/rpc/wire-message.ts';
import { asTollgateError, TollgateError } from '../../catalogs/errors/error-table.ts';
import { repairArguments } from '../../catalogs/validation/argument-repair.ts';
import { type Fault, formatFaults } from '../../catalogs/validation/validation-faults.ts';
import type { Validator } from '../../catalogs/validation/validator.ts';

/** How the arguments of one exposed tool are read. */
export interface ArgsShape {
  readonly schema: Readonly<Record<string, unknown>>;
  readonly validator: Validator;
  /** Reverses the renames and encodings of the exposed schema; for primitives, resolves accepted aliases. */
  readonly lift: (args: Readonly<Record<string, unknown>>) => LiftedArguments;
  readonly pins: Readonly<Record<string, unknown>>;
  readonly maxBytes: number;
}

/** How an operation reads its arguments. Throws ARGS_INVALID. */
export type BindStep = (given: JsonDoc, shape: ArgsShape) => BoundArguments;

/** Arguments as the original schema names them. */
export interface LiftedArguments {
  readonly args: Readonly<Record<string, unknown>>;
  readonly changed: boolean;
  readonly notes?: readonly string[];
}

/** Arguments as they will be sent, and notes for the reply on what was repaired. */
export interface BoundArguments {
  readonly doc: JsonDoc<Readonly<Record<string, unknown>>>;
  readonly notes: readonly string[];
}

/** Binds arguments to a tool. Throws ARGS_INVALID with paths, expectations and legal names, at most 1 kB. */
export function bindArguments(given: JsonDoc, shape: ArgsShape): BoundArguments {
  if (sizeOfDoc(given) > shape.maxBytes) throw invalid(`the arguments are longer than ${shape.maxBytes} bytes`);
  const doc = asObject(given);
  const lifted = shape.lift(doc.value);
  const pinned = applyPins(lifted.args, shape.pins);
  const checked = checkOrRepair(pinned.args, shape);
  const changed = lifted.changed || pinned.changed || checked.notes.length > 0;
  const notes = [...(lifted.notes ?? []), ...pinNotes(lifted.args, shape.pins), ...checked.notes];
  if (!changed) return { doc, notes };
  if (!doc.exact)
    throw invalid(
      'a number in the arguments has more digits than Tollgate can keep when it rewrites them for this tool; ' +
        'send it as text',
    );
  return { doc: { text: JSON.stringify(checked.args), value: checked.args, exact: true }, notes };
}

/**
 * Some clients send nothing, null, or the whole object as a JSON text. Such a text is parsed as strictly as a message.
 */
function asObject(given: JsonDoc): BoundArguments['doc'] {
  if (given.value === null || given.value === undefined) return { text: '{}', value: {}, exact: true };
  const doc = typeof given.value === 'string' ? parseText(given.value) : given;
  if (typeof doc.value !== 'object' || doc.value === null || Array.isArray(doc.value))
    throw invalid('arguments: expected an object');
  return doc as BoundArguments['doc'];
}

function parseText(text: string): JsonDoc {
  try {
    return parseJsonDoc(text);
  } catch (thrown) {
    throw invalid(`arguments: expected an object; as text: ${asTollgateError(thrown).message}`);
  }
}

/** Sets the pinned arguments. Other spellings of a pinned argument (case, compatibility forms) are removed. */
export function applyPins(
  args: Readonly<Record<string, unknown>>,
  pins: Readonly<Record<string, unknown>>,
): { args: Readonly<Record<string, unknown>>; changed: boolean } {
  const names = Object.keys(pins);
  if (names.length === 0) return { args, changed: false };
  const taken = new Set(names.map(fold));
  const kept = Object.entries(args).filter(([key]) => !taken.has(fold(key)));
  return { args: Object.fromEntries([...kept, ...Object.entries(pins)]), changed: true };
}

/**
 * Returns a note for each value that a pin replaced, so that the caller does not misread the result. Never shows the
 * value of a pin.
 */
export function pinNotes(
  given: Readonly<Record<string, unknown>>,
  pins: Readonly<Record<string, unknown>>,
): readonly string[] {
  const names = Object.entries(pins);
  if (names.length === 0) return [];
  const pinned = new Map(names.map(([name, value]) => [fold(name), { name, value }]));
  return Object.entries(given).flatMap(([key, value]) => {
    const pin = pinned.get(fold(key));
    if (pin === undefined || (key === pin.name && isDeepStrictEqual(value, pin.value))) return [];
    return [`note: the owner has set argument ${pin.name} for this tool; the value in the call was not used`];
  });
}

function fold(name: string): string {
  return name.normalize('NFKC').toLowerCase();
}

function checkOrRepair(
  args: Readonly<Record<string, unknown>>,
  shape: ArgsShape,
): { args: Readonly<Record<string, unknown>>; notes: readonly string[] } {
  const faults = shape.validator.check(args);
  if (faults.length === 0) return { args, notes: [] };
  const repaired = repairArguments(shape.schema as Record<string, unknown>, args, faults);
  if (repaired === undefined) throw invalid(formatFaults(faults), faults);
  const still = shape.validator.check(repaired.value);
  if (still.length > 0) throw invalid(formatFaults(still), still);
  const pinned = applyPins(repaired.value as Record<string, unknown>, shape.pins);
  return { args: pinned.args, notes: repaired.notes };
}

function invalid(detail: string, faults: readonly Fault[] = []): TollgateError {
  return new TollgateError('ARGS_INVALID', { detail, data: { paths: faults.slice(0, 8).map((fault) => fault.path) } });
}
