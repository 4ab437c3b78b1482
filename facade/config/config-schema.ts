/** Validates a written configuration against the published schema, with messages for people. */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { ErrorObject, ValidateFunction } from 'ajv';
import { quantityExample, RATE_KEYS, rateLimits, readQuantities } from '../../catalogs/readers/quantities.ts';
import { surelyFits } from '../../catalogs/validation/schema-code.ts';
import { listNames, nearest, type Path, type ProblemReport, quote, showPath } from './config-problems.ts';

/** The published schema, in a file next to this one; `tollgate init` copies it into new projects. */
export const SCHEMA_FILE = new URL('./tollgate.schema.json', import.meta.url);

/** Keys of other products → the key of Tollgate with the same meaning. */
const SYNONYMS: ReadonlyMap<string, string> = new Map([
  ['type', 'transport'],
  ['endpoint', 'url'],
  ['serverUrl', 'url'],
  ['httpUrl', 'url'],
  ['mcpServers', 'servers'],
  ['includes', 'include'],
  ['timeout', 'timeoutMs'],
]);

/** Sections whose entries are checked one by one. A fault elsewhere removes the whole top-level key. */
const ENTRY_SECTIONS: ReadonlySet<string> = new Set([
  'servers',
  'principals',
  'profiles',
  'policies',
  'rules',
  'budgets',
  'include',
]);

interface SchemaNode {
  readonly description?: string;
  readonly examples?: readonly unknown[];
  readonly properties?: Readonly<Record<string, SchemaNode>>;
}

const require = createRequire(import.meta.url);
let compiled: ValidateFunction | undefined;
let schema: object | undefined;

function readSchema(): object {
  return (schema ??= JSON.parse(readFileSync(SCHEMA_FILE, 'utf8')) as object);
}

/** Compiles the schema. This is expensive, so it happens only if something is wrong. */
function compileSchema(): ValidateFunction {
  const { Ajv } = require('ajv') as typeof import('ajv');
  return new Ajv({ allErrors: true, strict: true, verbose: true, allowUnionTypes: true }).compile(readSchema());
}

/**
 * Reports every fault of the structure, and returns the value without the faulty entries, so that the later checks can
 * continue and all problems are shown at once. `raw` is the value before variables were filled in; only it is shown.
 */
export function checkShape(given: unknown, raw: unknown, report: ProblemReport): unknown {
  const value = readQuantities(given, readSchema, (path, message) => report.refuse(path, message));
  if (surelyFits(SCHEMA_FILE, value)) return value;
  const validate = (compiled ??= compileSchema());
  if (validate(value)) return value;
  const copy = structuredClone(value);
  for (const error of validate.errors ?? []) {
    if (error.propertyName !== undefined) continue;
    const path = pathOf(error, value);
    reportFault(error, { path, raw, report });
    remove(copy, error.keyword === 'additionalProperties' ? path : entryOf(path));
  }
  return typeof copy === 'object' && copy !== null && !Array.isArray(copy) ? copy : {};
}

/** Returns the path of a fault; for an unknown key, the path of the key. */
function pathOf(error: ErrorObject, root: unknown): Path {
  const path: (string | number)[] = [];
  let current: unknown = root;
  for (const part of error.instancePath.split('/').slice(1)) {
    const key = part.replaceAll('~1', '/').replaceAll('~0', '~');
    path.push(Array.isArray(current) ? Number(key) : key);
    current = (current as Record<string, unknown>)[key];
  }
  const params = error.params as { additionalProperty?: string; propertyName?: string; i?: number; j?: number };
  const extra =
    params.additionalProperty ??
    params.propertyName ??
    (params.i === undefined ? undefined : Math.max(params.i, params.j ?? 0));
  return extra === undefined ? path : [...path, extra];
}

function entryOf(path: Path): Path {
  return path.slice(0, ENTRY_SECTIONS.has(String(path[0])) ? 2 : 1);
}

/**
 * Deletes in place. In a list this leaves a hole, so that later entries keep their index; `forEach` and `map` skip it.
 */
function remove(root: unknown, path: Path): void {
  const parent = path
    .slice(0, -1)
    .reduce<unknown>((node, key) => (node as Record<string, unknown> | undefined)?.[key], root);
  const last = path.at(-1);
  if (last !== undefined && typeof parent === 'object' && parent !== null) Reflect.deleteProperty(parent, last);
}

interface Fault {
  readonly path: Path;
  readonly raw: unknown;
  readonly report: ProblemReport;
}

function reportFault(error: ErrorObject, { path, raw, report }: Fault): void {
  const node = (error.parentSchema ?? {}) as SchemaNode;
  const where = showPath(path);
  if (error.keyword === 'additionalProperties') return report.refuseKey(path, unknownKey(path, node, error.data));
  if (error.keyword === 'propertyNames')
    return report.refuseKey(path, `${where} is a name that no tool can have; write a name, or a pattern with *`);
  if (error.keyword === 'required') {
    const missing = String((error.params as { missingProperty: string }).missingProperty);
    return report.refuse(
      path,
      `${where} has no ${missing}, which is required; add ${missing}${example(node.properties?.[missing], missing)}`,
    );
  }
  report.refuse(
    path,
    `${where} is ${describeValue(path, raw)}: ${requirementOf(error, path)}${purposeOf(node)}${adviceFor(error, node)}`,
  );
}

function unknownKey(path: Path, node: SchemaNode, data: unknown): string {
  const key = String(path.at(-1));
  if (path.includes('budgets') && RATE_KEYS.test(key))
    return (
      `unknown key ${quote(key)} in ${showPath(path.slice(0, -1))}: a rate is two keys; write ` +
      rateLimits((data as Record<string, unknown>)[key])
    );
  if (key === 'approved' && path[0] === 'servers')
    return (
      `${showPath(path)} is no longer used: an approval in a file is bound to nothing, and comes with a cloned ` +
      `project; remove it, and approve the server with \`tollgate approve ${String(path[1])}\``
    );
  if (key === 'recording' && path.length === 1) return RECORDING_MOVED;
  const known = Object.keys(node.properties ?? {});
  const synonym = SYNONYMS.get(key);
  const meant = synonym !== undefined && known.includes(synonym) ? synonym : nearest(key, known);
  const adviceText = meant === undefined ? `the keys here are ${listNames(known)}` : `did you mean ${quote(meant)}?`;
  return `unknown key ${quote(key)} in ${showPath(path.slice(0, -1))}: it would have no effect; ${adviceText}`;
}

const RECORDING_MOVED =
  'recording is no longer used: recorded arguments belong to the audit log; write `audit: {facts: full}` for mode on ' +
  'or last, `audit: {recordings: {keep: 7d}}` for how long, and nothing for mode off';

const KINDS: Readonly<Record<string, string>> = {
  string: 'text',
  object: 'a map',
  array: 'a list',
  integer: 'a whole number',
  boolean: 'true or false',
  number: 'a number',
};

function requirementOf(error: ErrorObject, path: Path): string {
  const example = quantityExample(
    String(path.at(-1)),
    (error.parentSchema as { pattern?: string } | undefined)?.pattern,
  );
  if ((error.keyword === 'type' || error.keyword === 'pattern') && example !== undefined)
    return `it must be ${example}`;
  const params = error.params as {
    type?: string | string[];
    allowedValues?: string[];
    allowedValue?: unknown;
    limit?: number;
    comparison?: string;
  };
  switch (error.keyword) {
    case 'type':
      return `${[params.type ?? []]
        .flat()
        .map((kind) => KINDS[kind] ?? kind)
        .join(' or ')} is needed`;
    case 'enum':
      return `it must be one of ${listNames(params.allowedValues ?? [])}`;
    case 'const':
      return `it must be ${String(params.allowedValue)}`;
    case 'minimum':
    case 'maximum':
      return `it must be ${params.comparison ?? ''} ${params.limit ?? ''}`;
    case 'minLength':
    case 'minItems':
      return 'it must not be empty';
    case 'uniqueItems':
      return 'it is in this list already';
    default:
      return 'it has the wrong form';
  }
}

/** Returns the description of the key in the schema: the same text that the editor shows. */
function purposeOf(node: SchemaNode): string {
  return node.description === undefined ? '' : ` (${node.description.replace(/\.$/, '')})`;
}

function adviceFor(error: ErrorObject, node: SchemaNode): string {
  if (error.keyword === 'uniqueItems') return '; remove it';
  const [first] = node.examples ?? [];
  return first === undefined ? '; correct it' : `; write for example ${JSON.stringify(first)}`;
}

function example(node: SchemaNode | undefined, key: string): string {
  const [first] = node?.examples ?? [];
  return first === undefined
    ? ''
    : `, for example ${key}: ${typeof first === 'string' ? first : JSON.stringify(first)}`;
}

/** Places that may contain a literal secret; their values are never shown. */
const CONFIDENTIAL: ReadonlySet<string | number> = new Set(['env', 'headers', 'token', 'url', 'args', 'pins']);

/** Describes the value as it is in the file, before variables were filled in. Never shows the value of a variable. */
function describeValue(path: Path, raw: unknown): string {
  const value = path.reduce<unknown>((node, key) => (node as Record<string, unknown> | undefined | null)?.[key], raw);
  if (value === null || value === undefined) return 'empty';
  if (Array.isArray(value)) return 'a list';
  if (typeof value === 'object') return 'a map';
  if (path.some((part) => CONFIDENTIAL.has(part))) return typeof value === 'string' ? 'a text' : `a ${typeof value}`;
  return typeof value === 'string' ? quote(value) : String(value);
}
