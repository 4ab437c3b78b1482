/** Writes an example of a call of a function, with what its schema requires. */
import { canonicalize } from '../../../catalogs/schemas/canonical-schema.ts';
import {
  isJsonObject,
  isNever,
  type JsonSchema,
  ownValue,
  schemaEntries,
  schemasOf,
  stringsOf,
  typesOf,
  valuesOf,
} from '../../../catalogs/schemas/json-schema.ts';
import { type DefinitionTable, definitionsOf, flatNode } from './flat-schema.ts';
import type { DeclaredFunction } from './module-declaration.ts';
import { valueLiteral } from './source-text.ts';

/** Characters of the arguments of an example, and of one value that the schema gives. */
const MAX_EXAMPLE = 1_000;
const MAX_VALUE = 200;
const MAX_DEPTH = 16;
const MAX_VALUES = 100;
const PLACEHOLDER = '…';
const BY_FORMAT: ReadonlyMap<unknown, string> = new Map([
  ['date', '2026-01-31'],
  ['date-time', '2026-01-31T12:00:00Z'],
  ['time', '12:00:00Z'],
  ['duration', 'P1D'],
  ['uri', 'https://example.com'],
  ['url', 'https://example.com'],
  ['uri-reference', 'https://example.com'],
  ['email', 'name@example.com'],
  ['hostname', 'example.com'],
  ['ipv4', '192.0.2.1'],
  ['ipv6', '2001:db8::1'],
  ['uuid', '00000000-0000-4000-8000-000000000000'],
]);

interface Place {
  readonly definitions: DefinitionTable;
  /** The same node as the server sent it, for its `examples`; undefined if it stands elsewhere. */
  readonly raw: unknown;
  readonly depth: number;
  /** Values that may still be made. References can lead from one node to any number of others. */
  readonly budget: { left: number };
}

/**
 * Returns a call with the required members: `create_issue({owner: "…", title: "…"})`. A value is the one that the
 * schema fixes, its first example, its default, its first allowed value, or a placeholder of the right type. A call
 * that needs no argument has none. Placeholders do not fit every pattern, so an example is a start and no promise.
 */
export function exampleOf(tool: DeclaredFunction): string {
  const canonical = canonicalize(tool.inputSchema);
  const none = `${tool.functionName}()`;
  if ('quarantined' in canonical) return none;
  const definitions = definitionsOf(canonical.schema);
  const value = sample(canonical.schema, {
    definitions,
    raw: tool.inputSchema,
    depth: 0,
    budget: { left: MAX_VALUES },
  });
  if (isJsonObject(value) && Object.keys(value).length === 0) return none;
  const text = valueLiteral(value);
  return text.length <= MAX_EXAMPLE
    ? `${tool.functionName}(${text})`
    : `${tool.functionName}({ /* too long to show */ })`;
}

function sample(input: JsonSchema, place: Place): unknown {
  place.budget.left -= 1;
  if (place.depth > MAX_DEPTH || place.budget.left < 0) return PLACEHOLDER;
  const node = flatNode(input, place.definitions);
  const given = givenValue(node, place.raw);
  if (given !== undefined) return given.value;
  const types = typesOf(node).filter((type) => type !== 'null');
  const type = types[0] ?? (typesOf(node).length > 0 ? 'null' : impliedType(node));
  if (type === 'object') return sampleObject(node, place);
  if (type === 'array') return sampleArray(node, place);
  if (type === 'number' || type === 'integer') return sampleNumber(node);
  if (type === 'boolean') return true;
  return type === 'null' ? null : sampleText(node);
}

/** Returns the value that a schema itself gives. Long ones are no help in an example. */
function givenValue(node: JsonSchema, raw: unknown): { readonly value: unknown } | undefined {
  const examples = ownValue(raw, 'examples');
  const given = [
    ...(Object.hasOwn(node, 'const') ? [node.const] : []),
    ...(Array.isArray(examples) ? examples.slice(0, 1) : []),
    ...(Object.hasOwn(node, 'default') && node.default !== null ? [node.default] : []),
    ...(valuesOf(node) ?? []).slice(0, 1),
  ];
  const value = given.find((one) => (JSON.stringify(one) ?? '').length <= MAX_VALUE);
  return value === undefined ? undefined : { value };
}

function impliedType(node: JsonSchema): string {
  if (schemaEntries(node.properties).length > 0 || stringsOf(node.required).length > 0) return 'object';
  return node.items !== undefined || node.prefixItems !== undefined ? 'array' : 'string';
}

function sampleObject(node: JsonSchema, place: Place): unknown {
  const declared = new Map(schemaEntries(node.properties));
  const raw = ownValue(place.raw, 'properties');
  const names = stringsOf(node.required).slice(0, MAX_VALUES);
  const rest =
    isJsonObject(node.additionalProperties) && !isNever(node.additionalProperties) ? node.additionalProperties : {};
  return Object.fromEntries(
    names.map((name) => {
      const inner = { ...place, raw: ownValue(raw, name), depth: place.depth + 1 };
      return [name, sample(declared.get(name) ?? rest, inner)];
    }),
  );
}

function sampleArray(node: JsonSchema, place: Place): unknown {
  const inner = { ...place, raw: undefined, depth: place.depth + 1 };
  const count = Math.min(typeof node.minItems === 'number' ? node.minItems : 0, 10);
  const places = schemasOf(node.prefixItems);
  const rest = isJsonObject(node.items) ? node.items : {};
  return Array.from({ length: count }, (_, at) => sample(places[at] ?? rest, inner));
}

function sampleNumber(node: JsonSchema): number {
  const { minimum, exclusiveMinimum, maximum, exclusiveMaximum, multipleOf } = node;
  const bound = (value: unknown, exclusive: unknown, step: number): number | undefined =>
    typeof value === 'number' ? value : typeof exclusive === 'number' ? exclusive + step : undefined;
  const low = bound(minimum, exclusiveMinimum, 1) ?? Number.NEGATIVE_INFINITY;
  const high = bound(maximum, exclusiveMaximum, -1) ?? Number.POSITIVE_INFINITY;
  const value = Math.max(low, Math.min(1, high));
  return typeof multipleOf === 'number' ? Math.ceil(value / multipleOf) * multipleOf : value;
}

function sampleText(node: JsonSchema): string {
  const min = typeof node.minLength === 'number' ? Math.min(node.minLength, MAX_VALUE) : 1;
  return BY_FORMAT.get(node.format) ?? PLACEHOLDER.repeat(Math.max(1, min));
}
