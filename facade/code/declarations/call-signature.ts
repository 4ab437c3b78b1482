/** Writes a function of a module on one line, for lists of many functions. */

import { cutWord } from '../../../catalogs/projection/constraint-words.ts';
import { canonicalize } from '../../../catalogs/schemas/canonical-schema.ts';
import { type JsonSchema, schemaEntries, stringsOf } from '../../../catalogs/schemas/json-schema.ts';
import { type DefinitionTable, definitionsOf, flatNode } from './flat-schema.ts';
import type { DeclaredFunction } from './module-declaration.ts';
import { TypeTooLong, type TypeWriter, typeText } from './schema-types.ts';
import { memberName } from './source-text.ts';

/** Characters of the type of one member, and of the type that is returned. */
const MAX_MEMBER = 60;
const MAX_RETURNED = 80;
const CUT = '…';

/**
 * Returns `create_issue({owner: string, title: string, body?: string}): {number: number}`, of at most `maxLength`
 * characters (200 by default, at least 20). What does not fit is left out, as `…`: first optional members from the
 * last, then the returned type, then the types of required members, then these members. A tool without an output
 * schema has no returned type.
 */
export function signatureOf(tool: DeclaredFunction, maxLength = 200): string {
  const members = membersOf(tool.inputSchema, maxLength);
  if (members === undefined) return cutWord(`${tool.functionName}({${CUT}})`, maxLength);
  const { required, optional } = members;
  const returned = tool.outputSchema === undefined ? '' : `: ${returnedType(tool.outputSchema)}`;
  const write = (texts: readonly string[], isCut: boolean, result: string): string => {
    const all = isCut ? [...texts, CUT] : texts;
    return `${tool.functionName}(${all.length === 0 ? '' : `{${all.join(', ')}}`})${result}`;
  };
  const types = required.map(({ name, type }) => `${name}: ${type}`);
  for (let count = optional.length; count >= 0; count -= 1) {
    const texts = [...types, ...optional.slice(0, count).map(({ name, type }) => `${name}?: ${type}`)];
    const line = write(texts, count < optional.length, returned);
    if (line.length <= maxLength) return line;
  }
  const isCut = optional.length > 0;
  const names = required.map(({ name }) => name);
  for (const line of [write(types, isCut, ''), write(names, isCut, '')]) if (line.length <= maxLength) return line;
  for (let count = names.length; count > 0; count -= 1) {
    const line = write(names.slice(0, count), true, '');
    if (line.length <= maxLength) return line;
  }
  return cutWord(write([], true, ''), maxLength);
}

interface Member {
  readonly name: string;
  readonly type: string;
}

/**
 * Returns as many members as could fit, and one more, so that a list that is cut shows it. Undefined if the schema
 * cannot be read.
 */
function membersOf(
  schema: object,
  maxLength: number,
): { readonly required: readonly Member[]; readonly optional: readonly Member[] } | undefined {
  const canonical = canonicalize(schema);
  if ('quarantined' in canonical) return undefined;
  const definitions = definitionsOf(canonical.schema);
  const root = flatNode(canonical.schema, definitions, true);
  const declared = new Map(schemaEntries(root.properties));
  const needed = new Set(stringsOf(root.required));
  const few = (names: readonly string[]): readonly Member[] => {
    const members: Member[] = [];
    let length = 0;
    for (const name of names) {
      if (length > maxLength) break;
      const type = briefType(declared.get(name) ?? {}, definitions, MAX_MEMBER);
      members.push({ name: memberName(name), type });
      length += name.length + 1;
    }
    return members;
  };
  return { required: few([...needed]), optional: few([...declared.keys()].filter((name) => !needed.has(name))) };
}

function returnedType(schema: object): string {
  const canonical = canonicalize(schema, 'output');
  if ('quarantined' in canonical) return CUT;
  return briefType(canonical.schema, definitionsOf(canonical.schema), MAX_RETURNED);
}

/** Returns a type with as many levels as fit into `max` characters. */
function briefType(node: JsonSchema, definitions: DefinitionTable, max: number): string {
  for (const maxDepth of [3, 2, 1, 0]) {
    const writer: TypeWriter = {
      anything: 'any',
      beyond: CUT,
      maxDepth,
      isBrief: true,
      hasComments: false,
      maxBytes: max * 3,
      left: max * 3,
      reference: (ref, place, same) => typeText(definitions.get(ref) ?? {}, place, same),
    };
    const text = textOf(node, writer);
    if (text !== undefined && text.length <= max) return text;
  }
  return CUT;
}

function textOf(node: JsonSchema, writer: TypeWriter): string | undefined {
  try {
    return typeText(node, { depth: 0, indent: '', types: [] }, writer).text;
  } catch (error) {
    if (error instanceof TypeTooLong) return undefined;
    throw error;
  }
}
