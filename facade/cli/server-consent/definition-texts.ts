/**
 * Lists the texts of a tool's definition other than its name and description, each with its path. It omits none, and
 * marks each text that it cuts.
 */
import type { RawTool } from '../../../catalogs/tools/tool-definition.ts';
import { marked } from '../terminal-rows.ts';

/** The length to which the screen cuts one text (HA-22). */
export const MAX_TEXT = 2000;

/** The types of JSON Schema, which are not texts for a model. */
const TYPES = new Set(['string', 'number', 'integer', 'boolean', 'object', 'array', 'null']);
const PLAIN_KEY = /^[A-Za-z_$][\w$-]*$/;
/** Keywords whose keys are names that the server chose. */
const NAME_MAPS = new Set([
  'properties',
  'patternProperties',
  '$defs',
  'definitions',
  'dependentSchemas',
  'dependentRequired',
]);

interface Text {
  readonly path: string;
  /** Absent: the path itself is the text. */
  readonly text?: string;
}

/** Returns one row for each line of each text, because the model reads all of them. */
export function definitionLines(tool: RawTool): readonly string[] {
  const { name: _name, description: _description, ...rest } = tool;
  return textsIn(rest, '').flatMap(({ path, text }) =>
    text === undefined ? [`    ${marked(path)}`] : linesOf(marked(path), text),
  );
}

function linesOf(path: string, text: string): readonly string[] {
  const [first = '', ...more] = text.slice(0, MAX_TEXT).split('\n').map(marked);
  const cut = text.length > MAX_TEXT ? [`      | … (${text.length} characters in total)`] : [];
  return [`    ${path} | ${first}`, ...more.map((line) => `      | ${line}`), ...cut];
}

function textsIn(value: unknown, path: string): readonly Text[] {
  if (typeof value === 'string') return [{ path, text: value }];
  if (Array.isArray(value)) {
    if (value.length > 0 && value.every((one) => typeof one === 'string'))
      return [{ path, text: JSON.stringify(value) }];
    return value.flatMap((one, index) => textsIn(one, `${path}[${index}]`));
  }
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value)
    .filter(([key, one]) => !isBare(key, one, value))
    .flatMap(([key, one]) => textsOfKey(key, one, path));
}

/** A type is not shown, nor a `required` that names only existing properties, which are shown. */
function isBare(key: string, value: unknown, schema: object): boolean {
  if (key === 'type') return [value].flat().every((one) => typeof one === 'string' && TYPES.has(one));
  if (key !== 'required' || !Array.isArray(value)) return false;
  const { properties } = schema as { readonly properties?: unknown };
  return (
    typeof properties === 'object' &&
    properties !== null &&
    value.every((name) => typeof name === 'string' && Object.hasOwn(properties, name))
  );
}

/** A key that does not have the form of a name may be a text. A model reads names of arguments like texts. */
function textsOfKey(key: string, value: unknown, path: string): readonly Text[] {
  const at = PLAIN_KEY.test(key) ? (path === '' ? key : `${path}.${key}`) : `${path}[${keyText(key)}]`;
  const below = textsIn(value, at);
  const isName =
    [...NAME_MAPS].some((names) => path === names || path.endsWith(`.${names}`)) ||
    !PLAIN_KEY.test(key) ||
    path.startsWith('_meta') ||
    key.length > 40;
  return isName && below.length === 0 ? [{ path: at }] : below;
}

function keyText(key: string): string {
  return key.length > MAX_TEXT
    ? `${JSON.stringify(key.slice(0, MAX_TEXT))}… (${key.length} characters)`
    : JSON.stringify(key);
}
