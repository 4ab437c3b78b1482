/**
 * Writes the type of a JSON Schema in TypeScript. Every value that the schema accepts has the type, apart from members
 * that no part of the schema names. A keyword that a type cannot express makes the type wider, never narrower.
 */
import { constraintWords } from '../../../catalogs/projection/constraint-words.ts';
import {
  isJsonObject,
  isNever,
  type JsonSchema,
  schemaEntries,
  schemasOf,
  stringsOf,
  typesOf,
  valuesOf,
  withoutKeywords,
} from '../../../catalogs/schemas/json-schema.ts';
import { commentText, docComment, memberName, stringLiteral, valueLiteral } from './source-text.ts';

/** The text of a type, and how it binds: a union or an intersection needs parentheses inside other types. */
export interface TypeText {
  readonly text: string;
  readonly joined?: '|' | '&';
}

/** How types are written. */
export interface TypeStyle {
  /** The type of any value: `any` lets code go on without casts, `unknown` is for values that code gives. */
  readonly anything: 'any' | 'unknown';
  /** The type of what is deeper than `maxDepth` levels of objects and lists; a list of it for a list. */
  readonly beyond: string;
  readonly maxDepth: number;
  /** True: objects on one line, as `{a: string, b?: number}`. */
  readonly isBrief: boolean;
  readonly hasComments: boolean;
  /** Bytes that may be written; `typeText` throws TypeTooLong after them. */
  readonly maxBytes: number;
  /** Returns the type of a `$ref` of a canonical schema, which stands `depth` levels deep. */
  readonly reference: (ref: string, place: TypePlace, writer: TypeWriter) => TypeText;
}

/**
 * Where a type stands: levels of objects and lists above it, spaces before its lines, types that hold for it anyway.
 */
export interface TypePlace {
  readonly depth: number;
  readonly indent: string;
  readonly types: readonly string[];
}

/** A style, with the number of bytes that are left. */
export interface TypeWriter extends TypeStyle {
  left: number;
}

/** Thrown when a type has more bytes than its style allows. */
export class TypeTooLong extends Error {}

/** Objects without comments that fit into this many characters are written on one line. */
const ONE_LINE = 80;
/** Characters of the constraints of one member, such as its format and its bounds. */
const MAX_NOTES = 300;
const IDLE_BOUNDS: ReadonlySet<unknown> = new Set([Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER]);
const OBJECT_KEYWORDS = ['properties', 'required', 'patternProperties'];

/** Returns the type of a node of a canonical schema (see `canonicalize`). Throws TypeTooLong. */
export function typeText(node: JsonSchema, place: TypePlace, writer: TypeWriter): TypeText {
  const anything: TypeText = { text: writer.anything };
  // Each node costs something, so that the bytes bound the work too.
  spend(writer, ' ');
  if (isNever(node)) return { text: 'never' };
  const values = valuesOf(node);
  if (values !== undefined) return literals(values, place, writer);
  const own = typesOf(node);
  const types = own.length > 0 ? own : place.types.length > 0 ? place.types : impliedTypes(node);
  const inner = { ...place, types };
  const parts: TypeText[] = [];
  if (typeof node.$ref === 'string') parts.push(writer.reference(node.$ref, place, writer));
  for (const part of schemasOf(node.allOf)) parts.push(typeText(part, inner, writer));
  for (const keyword of ['anyOf', 'oneOf']) {
    const branches = schemasOf(node[keyword]).map((branch) => typeText(branch, inner, writer));
    if (branches.length > 0) parts.push(openUnion(branches, types, anything));
  }
  const known = parts.filter(({ text }) => text !== anything.text);
  // A branch has the types of its node, so only members of the node itself say more.
  if (known.length > 0 && !hasStructure(node)) return intersection(known, anything);
  if (own.length === 0 && place.types.length > 0 && !hasStructure(node)) return anything;
  const base = union(
    types.map((type) => typeOfKind(type, node, { place, writer })),
    anything,
  );
  return intersection(types.length === 0 ? known : [base, ...known], anything);
}

/**
 * Returns the members of an object type, without braces, in the order that a caller reads them: required ones first.
 */
export function memberLines(node: JsonSchema, place: TypePlace, writer: TypeWriter): readonly string[] {
  const required = new Set(stringsOf(node.required));
  const declared = new Map(schemaEntries(node.properties));
  const names = [...required, ...[...declared.keys()].filter((name) => !required.has(name))];
  return names.map((name) => {
    const child = declared.get(name) ?? undeclared(node);
    const comment = !writer.hasComments ? '' : docComment(memberTexts(child), place.indent);
    const key = `${memberName(name)}${required.has(name) ? '' : '?'}: `;
    spend(writer, `${comment}${place.indent}${key}`);
    return `${comment}${writer.isBrief ? '' : place.indent}${key}${typeText(child, below(place), writer).text}`;
  });
}

/** Returns the texts of a comment on a node: its description, and what its type cannot express. */
function memberTexts(node: JsonSchema): readonly string[] {
  const description = typeof node.description === 'string' ? node.description.replace(/\s+/g, ' ') : '';
  const hidden = ['enum', 'const', ...(node.format === undefined ? [] : ['pattern'])];
  // Generators write the range of exact integers as bounds.
  const idle = Object.keys(node).filter((key) => IDLE_BOUNDS.has(node[key]));
  const words = constraintWords(withoutKeywords(node, [...hidden, ...idle])).join('; ');
  const notes = commentText(words, MAX_NOTES).replace(/\s+/g, ' ');
  return [`${description}${description !== '' && notes !== '' ? ' ' : ''}${notes === '' ? '' : `(${notes})`}`];
}

function typeOfKind(
  type: string,
  node: JsonSchema,
  { place, writer }: { readonly place: TypePlace; readonly writer: TypeWriter },
): TypeText {
  if (type === 'object') return objectType(node, place, writer);
  if (type === 'array') return arrayType(node, place, writer);
  const text = type === 'integer' ? 'number' : type;
  spend(writer, text);
  return { text };
}

function objectType(node: JsonSchema, place: TypePlace, writer: TypeWriter): TypeText {
  if (place.depth >= writer.maxDepth) return { text: writer.isBrief ? `{${writer.beyond}}` : writer.beyond };
  const inner = { ...below(place), indent: place.indent, types: [] };
  const names = stringsOf(isJsonObject(node.propertyNames) ? node.propertyNames.enum : undefined);
  if (!OBJECT_KEYWORDS.some((keyword) => node[keyword] !== undefined) && names.length > 0) {
    const value = typeText(undeclared(node), inner, writer).text;
    return { text: `{ [name in ${literals(names, place, writer).text}]?: ${value} }` };
  }
  const lines = memberLines(node, { ...place, indent: writer.isBrief ? '' : `${place.indent}  ` }, writer);
  const isOpen = acceptsOtherNames(node);
  if (lines.length === 0)
    return { text: isOpen ? `{ [name: string]: ${otherType(node, inner, writer).text} }` : 'Record<string, never>' };
  // A narrower index type would have to accept the values of all members.
  const open = isOpen ? [`[name: string]: ${writer.anything}`] : [];
  if (writer.isBrief) return { text: `{${[...lines, ...open].join(', ')}}` };
  const more = open.map((line) => `${place.indent}  ${line}`);
  const all = [...lines, ...more];
  const short = all.map((line) => line.trim()).join('; ');
  if (short.length <= ONE_LINE && !short.includes('\n')) return { text: `{ ${short} }` };
  return { text: `{\n${all.map((line) => `${line};\n`).join('')}${place.indent}}` };
}

/** Returns true if a schema says that it accepts names that it does not declare, or if it declares none. */
function acceptsOtherNames(node: JsonSchema): boolean {
  if (schemaEntries(node.patternProperties).length > 0) return true;
  const rest = node.additionalProperties ?? node.unevaluatedProperties;
  if (isJsonObject(rest)) return !isNever(rest);
  return schemaEntries(node.properties).length === 0 && stringsOf(node.required).length === 0;
}

/** Returns the type of the values of names that are not declared. */
function otherType(node: JsonSchema, place: TypePlace, writer: TypeWriter): TypeText {
  const patterns = schemaEntries(node.patternProperties).map(([, child]) => child);
  const rest = node.additionalProperties ?? node.unevaluatedProperties;
  const others = isJsonObject(rest) ? (isNever(rest) ? [] : [rest]) : [{}];
  const types = [...patterns, ...others].map((kind) => typeText(kind, place, writer));
  return union(types, { text: writer.anything });
}

function arrayType(node: JsonSchema, place: TypePlace, writer: TypeWriter): TypeText {
  if (place.depth >= writer.maxDepth) return { text: `${writer.beyond}[]` };
  const inner = { ...below(place), indent: place.indent };
  const rest = isJsonObject(node.items) ? node.items : {};
  const tuple = schemasOf(node.prefixItems);
  spend(writer, '[]');
  if (tuple.length === 0) {
    if (isNever(rest)) return { text: '[]' };
    return { text: `${grouped(typeText(rest, inner, writer))}[]` };
  }
  const min = typeof node.minItems === 'number' ? node.minItems : 0;
  const items = tuple.map((item, at) => {
    const type = typeText(item, inner, writer);
    return at < min ? type.text : `${grouped(type)}?`;
  });
  const isFull = isNever(rest) || (typeof node.maxItems === 'number' && node.maxItems <= tuple.length);
  const more = isFull ? [] : [`...${grouped(typeText(rest, inner, writer))}[]`];
  return { text: `[${[...items, ...more].join(', ')}]` };
}

function literals(values: readonly unknown[], place: TypePlace, writer: TypeWriter): TypeText {
  const types = values.map((value): TypeText => {
    if (typeof value !== 'object' || value === null) return literal(value, writer);
    return typeText(schemaOfValue(value), place, writer);
  });
  return union(types, { text: writer.anything });
}

function literal(value: unknown, writer: TypeWriter): TypeText {
  const text = typeof value === 'string' ? stringLiteral(value) : valueLiteral(value);
  spend(writer, `${text} | `);
  return { text };
}

/** The schema that accepts one object or list only. */
function schemaOfValue(value: object): JsonSchema {
  if (Array.isArray(value)) {
    const items = value.map((item) => ({ const: item as unknown }));
    return { type: 'array', prefixItems: items, items: { not: {} }, minItems: items.length };
  }
  const properties = Object.fromEntries(
    Object.entries(value).map(([name, inner]) => [name, { const: inner as unknown }]),
  );
  return { type: 'object', properties, required: Object.keys(value), additionalProperties: { not: {} } };
}

/** The schema of a name that is required and not declared. */
function undeclared(node: JsonSchema): JsonSchema {
  const rest = node.additionalProperties;
  return isJsonObject(rest) && !isNever(rest) ? rest : {};
}

/** The types of a node that names none. Members show that objects are meant, items that lists are. */
function impliedTypes(node: JsonSchema): readonly string[] {
  if (hasMembers(node)) return ['object'];
  return node.items !== undefined || node.prefixItems !== undefined ? ['array'] : [];
}

function hasMembers(node: JsonSchema): boolean {
  const rest = node.additionalProperties;
  return (
    OBJECT_KEYWORDS.some((keyword) => Object.keys((node[keyword] ?? {}) as object).length > 0) ||
    (isJsonObject(rest) && Object.keys(rest).length > 0 && !isNever(rest))
  );
}

function hasStructure(node: JsonSchema): boolean {
  return hasMembers(node) || node.items !== undefined || node.prefixItems !== undefined;
}

/** A branch that says nothing about an object must not hide the members of the other branches. */
function openUnion(branches: readonly TypeText[], types: readonly string[], anything: TypeText): TypeText {
  const known = branches.filter(({ text }) => text !== anything.text);
  const isObject = types.length === 1 && types[0] === 'object';
  if (!isObject || known.length === branches.length || known.length === 0) return union(branches, anything);
  return union([...known, { text: '{}' }], anything);
}

function union(types: readonly TypeText[], anything: TypeText): TypeText {
  const distinct = [...new Map(types.map((type) => [type.text, type])).values()];
  if (distinct.some(({ text }) => text === anything.text) || distinct.length === 0) return anything;
  // Null is what a reader looks for at the end.
  const sorted = [...distinct.filter(({ text }) => text !== 'null'), ...distinct.filter(({ text }) => text === 'null')];
  return join(sorted, '|');
}

function intersection(types: readonly TypeText[], anything: TypeText): TypeText {
  const distinct = new Map(types.map((type) => [type.text, type]));
  distinct.delete(anything.text);
  return distinct.size === 0 ? anything : join([...distinct.values()], '&');
}

function join(types: readonly TypeText[], joined: '|' | '&'): TypeText {
  const [first] = types;
  if (types.length === 1 && first !== undefined) return first;
  const isSame = (type: TypeText): boolean => type.joined === undefined || type.joined === joined;
  return { text: types.map((type) => (isSame(type) ? type.text : grouped(type))).join(` ${joined} `), joined };
}

function grouped({ text, joined }: TypeText): string {
  return joined === undefined ? text : `(${text})`;
}

function below(place: TypePlace): TypePlace {
  return { depth: place.depth + 1, indent: place.indent, types: [] };
}

/** Takes the bytes of a text from what may be written. Throws TypeTooLong if there are not as many. */
export function spend(writer: TypeWriter, text: string): void {
  writer.left -= Buffer.byteLength(text);
  if (writer.left < 0) throw new TypeTooLong();
}
