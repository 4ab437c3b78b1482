/**
 * Audits a tool's definition before it is listed: hostile bytes and structure put that tool alone into quarantine.
 * Prose never does.
 */

import { canonicalize } from '../schemas/canonical-schema.ts';
import { isJsonObject, SCHEMA_LIMITS } from '../schemas/json-schema.ts';
import { copyJson } from '../schemas/schema-copy.ts';
import { findHostile, withoutEscapes } from '../text/hostile-text.ts';
import { toolFault } from '../tools/definition-schema.ts';
import type { RawTool } from '../tools/tool-definition.ts';
import { excerpt, lintTool, lintValue } from './definition-lint.ts';
import { claimsToOnlyRead, type KnownNames, type LintNote } from './lint-names.ts';

/**
 * The result of an audit. `quarantine`: why the tool is neither listed nor callable; `notes` are only for people (see
 * docs/description-audit.md).
 */
export interface AuditFinding {
  readonly quarantine?: string;
  readonly notes: readonly LintNote[];
}

/**
 * Characters that no definition needs, though ordinary results may contain them: soft hyphen, fillers, marks of
 * direction, line separators, lone CR.
 */
const HIDDEN_IN_DEFINITIONS =
  /[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u200e\u200f\u2028\u2029\u3164\uffa0\u{1d173}-\u{1d17a}]|\r(?!\n)/u;
const BIDI = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/u;
const TERMINAL = /[\u0000-\u001f\u007f-\u009f]/u;
/** Limit of notes on removed escapes of one definition. */
const MAX_NOTES = 10;
/**
 * More spaces or empty lines than in any real description. They push text off the screen of the person who approves it.
 */
const PADDING = /[ \t\u00a0\u2000-\u200a\u3000]{200}|(?:\n[ \t]*){30}/u;
const NAME = /^[\u0021-\u007e]{1,128}$/;
const RESERVED_NAMES = ['__proto__', 'constructor', 'prototype', 'toString', 'hasOwnProperty'];

/**
 * Audits one definition as a server listed it, with the notes that a person sees when approving. `names` are the tools
 * of this server and of the others, for notes about several tools. Deterministic; never throws; runs no regex of the
 * server.
 */
export function auditTool(tool: RawTool, names?: KnownNames): AuditFinding {
  const { quarantine, isReadable, shown, notes } = judge(tool);
  return {
    ...(quarantine !== undefined && { quarantine }),
    notes: isReadable ? [...notes, ...lintTool(shown, names)] : [],
  };
}

/**
 * Audits other texts of a server for a model: instructions, prompts, resources. Text in quarantine is not passed on.
 */
export function auditValue(value: unknown, where: string, names?: KnownNames): AuditFinding {
  const copy = copyJson(value);
  if ('quarantined' in copy)
    return { quarantine: copy.quarantined.replace('SCHEMA_LIMIT', 'TOOL_OVERSIZE'), notes: [] };
  const quarantine = bytesFault(copy.value, where);
  return { ...(quarantine !== undefined && { quarantine }), notes: lintValue(copy.value, where, names) };
}

/**
 * Returns the blocking part of the audit (why this tool is neither listed nor callable), and the definition to show:
 * without terminal escapes in its descriptions.
 */
export function judgeTool(tool: RawTool): { readonly quarantine?: string; readonly shown: RawTool } {
  const { quarantine, shown } = judge(tool);
  return { ...(quarantine !== undefined && { quarantine }), shown };
}

interface Judged {
  readonly quarantine?: string;
  /** False for a value that is too deep or too large to be walked again. */
  readonly isReadable: boolean;
  readonly shown: RawTool;
  /** What was removed from the shown definition. */
  readonly notes: readonly LintNote[];
}

function judge(tool: RawTool): Judged {
  const name = nameFault(tool.name);
  const copy = copyJson(tool);
  const isReadable = 'value' in copy;
  const notes = isReadable ? removeEscapes(copy.value) : [];
  // The server's own object is kept if nothing was removed, because lists are compared by object first.
  const shown = isReadable && notes.length > 0 ? (copy.value as RawTool) : tool;
  const rest = { isReadable, shown, notes };
  if (name !== undefined) return { quarantine: `TOOL_NAME_INVALID: ${name}`, ...rest };
  if (!isReadable) return { quarantine: copy.quarantined.replace('SCHEMA_LIMIT', 'TOOL_OVERSIZE'), ...rest };
  const shape = bytesFault(copy.value, '') ?? toolFault(shown);
  // A value that is no tool of the protocol has no members with the declared types.
  if (shape !== undefined) return { ...rest, quarantine: shape, isReadable: toolFault(shown) === undefined };
  const quarantine =
    schemaFault(shown) ??
    (claimsToOnlyRead(shown)
      ? 'TOOL_ANNOTATION_LIE: an annotation says that it only reads, but its name and description say that it destroys'
      : undefined);
  return { ...(quarantine !== undefined && { quarantine }), ...rest };
}

/**
 * Keys whose values are values of arguments and data of the server. Removing something there would change the meaning
 * of a call.
 */
const VALUES = new Set(['default', 'const', 'enum', 'examples', '_meta']);

/** Removes terminal escape sequences from every `description` of the definition, in place, with a note for each. */
function removeEscapes(definition: unknown): readonly LintNote[] {
  const notes: LintNote[] = [];
  const stack: (readonly [string, unknown])[] = [['', definition]];
  for (let next = stack.pop(); next !== undefined; next = stack.pop()) {
    const [path, value] = next;
    if (typeof value !== 'object' || value === null) continue;
    for (const [key, child] of Object.entries(value)) {
      const where = path === '' ? printable(key) : `${path.slice(0, 200)}.${printable(key)}`;
      const plain = key === 'description' && typeof child === 'string' ? withoutEscapes(child) : child;
      if (plain !== child) {
        (value as Record<string, unknown>)[key] = plain;
        notes.push({ id: 'TERMINAL_ESCAPE', where, text: excerpt(child as string, 0) });
      } else if (!VALUES.has(key)) stack.push([where, child]);
    }
  }
  return notes.slice(0, MAX_NOTES);
}

function bytesFault(value: unknown, where: string): string | undefined {
  const size = Buffer.byteLength(JSON.stringify(value));
  if (size > SCHEMA_LIMITS.bytes) return `TOOL_OVERSIZE: ${size} bytes, more than ${SCHEMA_LIMITS.bytes / 1024} KiB`;
  for (const [path, text] of textsOf(value, where)) {
    const fault = textFault(text);
    if (fault !== undefined) return `${fault} in ${path}`;
  }
  return undefined;
}

function nameFault(name: unknown): string | undefined {
  if (typeof name !== 'string' || name === '') return 'the name is empty';
  if (name.length > 128) return 'the name is longer than 128 characters';
  if (!NAME.test(name)) return 'the name contains spaces, control characters or letters outside ASCII';
  // In a grant, a rule or a list, * stands for other tools, and a comma separates two of them.
  if (/[*,]/.test(name)) return "the name contains * or a comma, which mean several tools in an owner's settings";
  if (RESERVED_NAMES.includes(name)) return 'the name is reserved';
  if (/[a-z\d]__[a-z\d]/i.test(name))
    return 'the name contains __, which joins server and tool in the names of some clients';
  return /\.\.[/\\]|[/\\]\.\./.test(name) ? 'the name is a path' : undefined;
}

/**
 * Yields every string and every key of the definition, because attacks hide in titles, defaults, enums and metadata
 * too.
 */
function* textsOf(root: unknown, where: string): Generator<readonly [string, string]> {
  const stack: (readonly [string, unknown])[] = [[where, root]];
  for (let next = stack.pop(); next !== undefined; next = stack.pop()) {
    const [path, value] = next;
    if (typeof value === 'string') yield [path, value];
    if (typeof value !== 'object' || value === null) continue;
    for (const [key, child] of Object.entries(value)) {
      const inner = path === '' ? printable(key) : `${path.slice(0, 200)}.${printable(key)}`;
      if (!Array.isArray(value)) yield [`a name at ${inner}`, key];
      stack.push([inner, child]);
    }
  }
}

function printable(key: string): string {
  return key.slice(0, 40).replace(/[^ -~]/gu, '?');
}

function textFault(text: string): string | undefined {
  const [hostile] = findHostile(text);
  const char = hostile?.char ?? HIDDEN_IN_DEFINITIONS.exec(text)?.[0];
  if (char === undefined) return PADDING.test(text) ? 'TOOL_PADDING: many spaces hide what follows' : undefined;
  const code = `U+${(char.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}`;
  if (BIDI.test(char)) return `TOOL_BIDI: ${code}`;
  return TERMINAL.test(char) ? `TOOL_CONTROL_CHAR: ${code}` : `TOOL_HIDDEN_TEXT: ${code}`;
}

function schemaFault(tool: RawTool): string | undefined {
  if (isJsonObject(tool.inputSchema) && namesPrototype(tool.inputSchema))
    return 'SCHEMA_LIMIT: an argument is called __proto__';
  const input = canonicalize(tool.inputSchema);
  if ('quarantined' in input) return input.quarantined;
  const output = tool.outputSchema === undefined ? undefined : canonicalize(tool.outputSchema, 'output');
  return output !== undefined && 'quarantined' in output ? `${output.quarantined} (outputSchema)` : undefined;
}

/**
 * Returns true if a map in the schema has an own key `__proto__`. No honest tool has one, and it pollutes naive
 * readers.
 */
function namesPrototype(schema: Readonly<Record<string, unknown>>): boolean {
  const stack: unknown[] = [schema];
  for (let node = stack.pop(); node !== undefined; node = stack.pop()) {
    if (typeof node !== 'object' || node === null) continue;
    if (Object.hasOwn(node, '__proto__')) return true;
    stack.push(...Object.values(node));
  }
  return false;
}
