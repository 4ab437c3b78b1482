/** Checks that a projection follows the rules of its profile. A schema that fails is not listed. */
import type { SchemaProfile } from '../profiles/schema-profile.ts';
import {
  childrenOf,
  isJsonObject,
  type JsonSchema,
  ownValue,
  schemaEntries,
  schemasOf,
  stringsOf,
} from '../schemas/json-schema.ts';

const TYPES = ['string', 'number', 'integer', 'boolean', 'object', 'array'];

/** Returns every rule that the schema breaks, as short lines; empty if it may be shown. */
export function profileViolations(schema: JsonSchema, profile: SchemaProfile): readonly string[] {
  const found: string[] = [];
  if (schema.type !== 'object') found.push('the root is not an object');
  for (const key of Object.keys(schema)) if (!profile.rootKeywords.includes(key)) found.push(`the root carries ${key}`);
  if (!isJsonObject(schema.properties)) found.push('the root has no properties');
  const legal = new RegExp(profile.propertyName);
  const stack: { readonly node: JsonSchema; readonly depth: number }[] = [{ node: schema, depth: 1 }];
  for (let next = stack.pop(); next !== undefined; next = stack.pop()) {
    const { node, depth } = next;
    found.push(...nodeFaults(node, profile), ...nameFaults(node, legal));
    if (isJsonObject(node.properties) && Object.keys(node.properties).length > 0 && depth > profile.maxDepth)
      found.push('too deep');
    for (const child of childrenOf(node)) stack.push({ node: child, depth: depth + (child.type === 'object' ? 1 : 0) });
  }
  return found;
}

function nameFaults(node: JsonSchema, legal: RegExp): readonly string[] {
  return schemaEntries(node.properties)
    .filter(([name]) => !legal.test(name))
    .map(([name]) => `the name ${name.slice(0, 70)} is not legal`);
}

function nodeFaults(node: JsonSchema, profile: SchemaProfile): readonly string[] {
  const found = Object.keys(node)
    .filter((key) => !profile.keywords.includes(key))
    .map((key) => `${key} is not allowed`);
  if (typeof node.description === 'string' && node.description.length > profile.maxDescription)
    found.push('a description is too long');
  if (profile.constraints !== 'words') return found;
  if (node.anyOf !== undefined) {
    if (profile.unions === 'merge') found.push('a union is not allowed');
    if (Object.keys(node).length > 1) found.push('a union does not stand alone');
    if (schemasOf(node.anyOf).length < 2) found.push('a union has fewer than two branches');
    return found;
  }
  return [...found, ...typeFaults(node, profile)];
}

function typeFaults(node: JsonSchema, profile: SchemaProfile): readonly string[] {
  const types =
    Array.isArray(node.type) && profile.nulls === 'list'
      ? stringsOf(node.type).filter((type) => type !== 'null')
      : [node.type];
  const [type] = types;
  if (type === 'null' && profile.nulls === 'list') return [];
  const found: string[] = [];
  if (types.length !== 1 || typeof type !== 'string' || !TYPES.includes(type))
    found.push('a node does not name one type');
  if (type === 'array' && !isJsonObject(node.items)) found.push('a list has no items');
  if (type === 'object' && !isJsonObject(node.properties)) found.push('an object has no properties');
  if (stringsOf(node.required).some((name) => ownValue(node.properties, name) === undefined))
    found.push('a required name is not declared');
  if (type === 'object' && profile.strict) found.push(...strictFaults(node));
  const values = node.enum;
  const plain =
    Array.isArray(values) &&
    values.length > 0 &&
    values.every(
      (value) => (typeof value === 'string' && value !== '') || (value === null && profile.nulls === 'list'),
    );
  if (values !== undefined && !plain) found.push('a value list contains values that are not texts');
  return found;
}

function strictFaults(node: JsonSchema): readonly string[] {
  const missing = Object.keys(isJsonObject(node.properties) ? node.properties : {}).some(
    (name) => !stringsOf(node.required).includes(name),
  );
  return [
    ...(missing ? ['a property is not required'] : []),
    ...(node.additionalProperties === false ? [] : ['an object is not closed']),
  ];
}
