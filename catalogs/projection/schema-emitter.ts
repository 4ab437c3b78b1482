/**
 * Writes the schema that the model sees from a simplified tree, with the keywords of one profile, and collects what
 * must be undone in arguments.
 */

import {
  isJsonObject,
  isNever,
  type JsonSchema,
  ownValue,
  sameJson,
  schemaEntries,
  schemasOf,
  stringsOf,
  typesOf,
  withoutKeywords,
} from '../schemas/json-schema.ts';
import { pathBelow } from '../schemas/transform-log.ts';
import { cleanDescription } from '../text/hostile-text.ts';
import { type LiftNode, liftNode, mergeLifts } from './argument-lifting.ts';
import { constraintWords, cutWord, shapeWords } from './constraint-words.ts';
import { chooseUnion, type Rendering } from './union-fallbacks.ts';

/** The position in the tree. `depth` counts objects. */
interface Place {
  readonly path: string;
  readonly depth: number;
  readonly inArray: boolean;
}

/** A written node, and how to lift its values. */
export interface Emitted {
  readonly schema: JsonSchema;
  readonly lift?: LiftNode | undefined;
}

/** Writes the root, an object. Its words are returned separately, for the description of the tool. */
export function emitRoot(root: JsonSchema, rendering: Rendering): Emitted & { readonly hints: readonly string[] } {
  const hints = [...stringsOf(root.words), ...constraintWords({ ...root, default: null })];
  const { schema, lift } = emitObject(withoutKeywords(root, ['description', 'words']), rendering, {
    path: '',
    depth: 1,
    inArray: false,
  });
  const kept = Object.entries(schema).filter(([key]) => rendering.profile.rootKeywords.includes(key));
  return { schema: Object.fromEntries(kept), lift, hints };
}

function emit(input: JsonSchema, rendering: Rendering, place: Place): Emitted {
  const node = chooseUnion(input, rendering);
  if (node.text === true || (isAny(node) && rendering.profile.any === 'text')) return emitText(node, rendering, place);
  if (Array.isArray(node.anyOf)) return emitUnion(node, rendering, place);
  if (node.nothingElse === true) return emitNull(node, rendering, place);
  if (isAny(node)) return anyValue(node, rendering, place);
  const [type] = typesOf(node);
  if (type === 'object') return emitObject(node, rendering, { ...place, depth: place.depth + 1 });
  if (type === 'array') return emitArray(node, rendering, place);
  return { schema: described(scalar(node, rendering, place), node, rendering) };
}

function isAny(node: JsonSchema): boolean {
  return typesOf(node).length === 0 && node.anyOf === undefined && node.nothingElse !== true;
}

function scalar(node: JsonSchema, rendering: Rendering, place: Place): JsonSchema {
  const [type] = typesOf(node);
  const values = Array.isArray(node.enum) ? stringsOf(node.enum).filter((value) => value !== '') : [];
  if (type !== 'string' || values.length === 0) return { type };
  if (values.length < (node.enum as unknown[]).length)
    rendering.log.push({ transform: 'empty-value', effect: 'widen', path: place.path });
  return { type, enum: values };
}

/** Writes five types instead of "any": for an untyped node, models send JSON text, and some providers refuse it. */
function anyValue(node: JsonSchema, rendering: Rendering, place: Place): Emitted {
  const scalars: JsonSchema[] = [{ type: 'string' }, { type: 'number' }, { type: 'boolean' }];
  if (rendering.profile.openObjects === 'text') {
    rendering.log.push({ transform: 'json-text', effect: 'encode', path: place.path });
    const words = [...stringsOf(node.words), 'write objects and lists as JSON text'];
    return { schema: described({ anyOf: scalars }, { ...node, words }, rendering), lift: liftNode({ json: true }) };
  }
  rendering.log.push({ transform: 'any', effect: 'lossless', path: place.path });
  const list: JsonSchema[] = place.inArray ? [] : [{ type: 'array', items: { type: 'string' } }];
  const anyOf = [...scalars, { type: 'object', properties: {}, additionalProperties: true }, ...list];
  return { schema: described({ anyOf }, node, rendering) };
}

/** Writes a value that is always null as a string, because no profile has the type null. */
function emitNull(node: JsonSchema, rendering: Rendering, place: Place): Emitted {
  rendering.log.push({ transform: 'null-only', effect: 'widen', path: place.path });
  return { schema: described({ type: 'string' }, { ...node, words: ['always null: leave it out'] }, rendering) };
}

function emitText(node: JsonSchema, rendering: Rendering, place: Place): Emitted {
  rendering.log.push({ transform: 'json-text', effect: 'encode', path: place.path });
  const plain = shapeWords(withoutKeywords(node, ['text', 'nullable']));
  const words = isAny(node)
    ? 'any value; write objects and lists as JSON text'
    : `${typesOf(node)[0] === 'object' ? 'JSON text of' : 'write objects and lists as JSON text:'} ${plain}`;
  const said = { ...withoutKeywords(node, ['enum']), words: [...stringsOf(node.words), words] };
  return { schema: described({ type: 'string' }, said, rendering), lift: liftNode({ json: true }) };
}

function emitUnion(node: JsonSchema, rendering: Rendering, place: Place): Emitted {
  const branches = schemasOf(node.anyOf).map((branch, index) =>
    emit(branch, rendering, { ...place, path: pathBelow(place.path, 'anyOf', index) }),
  );
  const written = joinWritten(branches.map((branch) => branch.schema));
  const [only = {}] = written;
  const lift = mergeLifts(branches.map((branch) => branch.lift));
  if (written.length > 1) return { schema: described({ anyOf: written }, node, rendering), lift };
  const words = [...stringsOf(node.words), ...(typeof only.description === 'string' ? [only.description] : [])];
  const said = { ...withoutKeywords(node, ['anyOf']), words };
  return { schema: described(withoutKeywords(only, ['description']), said, rendering), lift };
}

/** Joins branches that were written alike, and all branches that are text. */
function joinWritten(written: readonly JsonSchema[]): readonly JsonSchema[] {
  const branches = written.filter((branch, index) => written.findIndex((other) => sameJson(branch, other)) === index);
  const texts = branches.filter((branch) => branch.type === 'string');
  if (texts.length < 2) return branches;
  const description = [
    ...new Set(texts.map((text) => text.description).filter((text) => typeof text === 'string')),
  ].join('; ');
  return [
    ...branches.filter((branch) => branch.type !== 'string'),
    { type: 'string', ...(description === '' ? {} : { description }) },
  ];
}

function emitArray(node: JsonSchema, rendering: Rendering, place: Place): Emitted {
  const items = isJsonObject(node.items) && !isNever(node.items) ? node.items : {};
  const inner = emit(items, rendering, { path: pathBelow(place.path, 'items'), depth: place.depth, inArray: true });
  const words = items.nullable === true ? [...stringsOf(node.words), 'items may be null'] : stringsOf(node.words);
  const schema = described({ type: 'array', items: inner.schema }, { ...node, words }, rendering);
  return { schema, lift: liftNode({ items: inner.lift }) };
}

function emitObject(node: JsonSchema, rendering: Rendering, place: Place): Emitted {
  const declared = schemaEntries(node.properties).filter(([, child]) => !isNever(child));
  const free = isFree(node, declared.length > 0, place);
  if (declared.length > 0 && place.depth > 1 && place.depth >= rendering.maxDepth)
    return cutObject(node, rendering, place);
  const isUnsaid =
    declared.length === 0 && rendering.profile.openObjects === 'text' && stringsOf(node.required).length === 0;
  if (place.depth > 1 && (isUnsaid || (free && rendering.profile.strict))) return emitText(node, rendering, place);
  const required = stringsOf(node.required);
  const ghosts = required.filter((name) => ownValue(node.properties, name) === undefined);
  if (ghosts.length > 0) rendering.log.push({ transform: 'ghost-required', effect: 'repair', path: place.path });
  const all = [...declared, ...ghosts.map((name): readonly [string, JsonSchema] => [name, {}])];
  const fields = all.map(([name, child]) => emitProperty(name, child, { node, rendering, place }));
  const schema: JsonSchema = {
    type: 'object',
    properties: Object.fromEntries(fields.map((field) => [field.shown, field.schema])),
  };
  const shown = fields.filter((field) => field.required).map((field) => field.shown);
  if (shown.length > 0) schema.required = shown;
  if (rendering.profile.strict) schema.additionalProperties = false;
  const values = free && !rendering.profile.strict ? emitValues(node, rendering, place) : undefined;
  if (values !== undefined && rendering.profile.keywords.includes('additionalProperties'))
    schema.additionalProperties = values.schema;
  const lift = liftNode({
    names: new Map(fields.filter((field) => field.shown !== field.name).map((field) => [field.shown, field.name])),
    below: fields.map((field) => [field.name, field.lift]),
    nulls: fields.filter((field) => field.null === 'absent').map((field) => field.name),
    drops: fields.filter((field) => field.null === 'dropped').map((field) => field.name),
    values: values?.lift,
  });
  const said = values?.words === undefined ? node : { ...node, words: [...stringsOf(node.words), values.words] };
  return { schema: described(schema, said, rendering), lift };
}

/** Returns true for an object that accepts undeclared names: it says so, or (below the root) it declares no names. */
function isFree(node: JsonSchema, declares: boolean, place: Place): boolean {
  const rest = node.additionalProperties;
  if (isJsonObject(rest)) return !isNever(rest) || node.patternProperties !== undefined;
  return node.patternProperties !== undefined || (!declares && place.depth > 1);
}

interface Field {
  readonly name: string;
  readonly shown: string;
  readonly schema: JsonSchema;
  readonly lift: LiftNode | undefined;
  readonly required: boolean;
  /** `absent`: an absent value means null for the server. `dropped`: null means absent for the server. */
  readonly null?: 'absent' | 'dropped';
}

function emitProperty(
  name: string,
  child: JsonSchema,
  around: { readonly node: JsonSchema; readonly rendering: Rendering; readonly place: Place },
): Field {
  const { node, rendering, place } = around;
  const path = pathBelow(place.path, 'properties', name);
  const shown = rendering.renames.get(name) ?? name;
  if (shown !== name) rendering.log.push({ transform: 'rename', effect: 'rename', path });
  const needs = (Array.isArray(node.needs) ? node.needs : [])
    .filter((need): need is [string, string] => Array.isArray(need) && need[0] === name)
    .map(([, words]) => words);
  const words = [
    ...(shown === name ? [] : [`upstream name: ${name === '' ? '""' : name}`]),
    ...stringsOf(child.words),
    ...new Set(needs),
  ];
  const inner = emit(words.length > 0 ? { ...child, words } : child, rendering, {
    path,
    depth: place.depth,
    inArray: false,
  });
  const wanted = stringsOf(node.required).includes(name);
  const style = rendering.profile.nulls;
  const nullable = child.nullable === true || child.nothingElse === true;
  const asKeyword = style === 'keyword' && inner.schema.anyOf === undefined;
  const { strict } = rendering.profile;
  const field = { name, shown, lift: inner.lift };
  if (style === 'list' && (nullable || (strict && !wanted))) {
    const dropped = nullable ? {} : { null: 'dropped' as const };
    return { ...field, schema: withNull(inner.schema), required: strict || wanted, ...dropped };
  }
  if (nullable && asKeyword) return { ...field, schema: { ...inner.schema, nullable: true }, required: wanted };
  if (nullable) rendering.log.push({ transform: 'null', effect: wanted ? 'encode' : 'lossless', path });
  const absent = wanted && nullable ? { null: 'absent' as const } : {};
  return { ...field, schema: inner.schema, required: wanted && !nullable, ...absent };
}

function withNull(schema: JsonSchema): JsonSchema {
  if (Array.isArray(schema.anyOf)) return { ...schema, anyOf: [...schema.anyOf, { type: 'null' }] };
  return {
    ...schema,
    type: [schema.type, 'null'],
    ...(Array.isArray(schema.enum) ? { enum: [...schema.enum, null] } : {}),
  };
}

/** Returns the schema for undeclared names: `true` and words if the profile cannot express it. */
function emitValues(
  node: JsonSchema,
  rendering: Rendering,
  place: Place,
): { readonly schema: unknown; readonly lift?: LiftNode | undefined; readonly words?: string } {
  const rest = node.additionalProperties;
  if (!isJsonObject(rest) || isNever(rest) || isAny(rest) || node.patternProperties !== undefined)
    return { schema: true };
  if (rest.nullable === true || rest.nothingElse === true) {
    rendering.log.push({ transform: 'map-values', effect: 'widen', path: place.path });
    return { schema: true, words: `map: name -> ${shapeWords(rest)}` };
  }
  return emit(rest, rendering, {
    path: pathBelow(place.path, 'additionalProperties'),
    depth: place.depth,
    inArray: false,
  });
}

/** Writes an object below the depth limit: open, with its structure in words and its original names. */
function cutObject(node: JsonSchema, rendering: Rendering, place: Place): Emitted {
  rendering.log.push({ transform: 'depth', effect: 'widen', path: place.path });
  const words = [...stringsOf(node.words), `object ${shapeWords(node)}`];
  if (rendering.profile.openObjects === 'text') return emitText({ ...node, words }, rendering, place);
  const open = {
    type: 'object',
    properties: {},
    ...(rendering.profile.keywords.includes('additionalProperties') ? { additionalProperties: true } : {}),
  };
  const said = { ...withoutKeywords(node, ['patternProperties', 'propertyNames']), words };
  return { schema: described(open, said, rendering) };
}

/** Joins description and words in one text. If it is too long the words stay and the prose is cut. */
export function described(schema: JsonSchema, node: JsonSchema, rendering: Rendering): JsonSchema {
  // Words stay whole in full detail; if bytes are short they are cut like the prose.
  const words = cleanDescription([...stringsOf(node.words), ...constraintWords(node)].join(', '), {
    max: Math.max(60, rendering.maxDescription),
  });
  const room = Math.max(0, rendering.maxDescription - words.length - 2);
  const prose = typeof node.description === 'string' && room > 1 ? cutWord(node.description, room) : '';
  const text = sentence(prose, words);
  if (text === '') return schema;
  if (!Array.isArray(schema.anyOf)) return { ...withoutKeywords(schema, ['description']), description: text };
  // Vertex refuses any keyword next to anyOf, so the text is in the first branch.
  const [first = {}, ...rest] = schemasOf(schema.anyOf);
  const inner =
    typeof first.description === 'string' && !text.includes(first.description)
      ? sentence(text, first.description)
      : text;
  return { ...schema, anyOf: [{ ...first, description: cutWord(inner, rendering.profile.maxDescription) }, ...rest] };
}

function sentence(first: string, second: string): string {
  if (first === '' || second === '') return first + second;
  return `${first}${/[.!?:…]$/.test(first) ? ' ' : '. '}${second}`;
}
