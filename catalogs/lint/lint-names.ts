/**
 * Notes on names: arguments that ask for secrets or are not declared, and tools that refer to tools of other servers or
 * have similar names.
 */

import { longPattern } from '../text/long-pattern.ts';
import { wordSet } from '../text/word-set.ts';
import type { RawTool } from '../tools/tool-definition.ts';
import type { LintId } from './lint-rules.ts';

/**
 * The names that a note about other tools needs: of this server's tools, and of those of the others with their server.
 */
export interface KnownNames {
  readonly own: ReadonlySet<string>;
  /** Tool → server. */
  readonly others: ReadonlyMap<string, string>;
}

const FETCHED = wordSet('read reading content contents dump file from text value data of');
const SECRETS = wordSet(`
  ssh rsa passwd password passwords shadow credential credentials secret secrets privatekey env environ keychain
`);
const WHOLLY = longPattern()`
  ^(?:id_(?:rsa|dsa|ed25519)|etc_(?:passwd|shadow)|sidenote|side_note|chain_of_thought|system_prompt
  |(?:full_|entire_|prior_|previous_)(?:conversation|chat)|(?:conversation|chat)(?:_history|_log)|model_reasoning
  |(?:all_)?environment_variables)$`;

/**
 * Returns true for an argument's name that asks for a secret file or for earlier conversation: `content_of_ssh_id_rsa`,
 * `readPrivateKey`.
 */
export function isTellingName(name: string): boolean {
  const words = name
    .replace(/([a-z\d])([A-Z])/g, '$1_$2')
    .toLowerCase()
    .replace(/[^a-z\d]+/g, '_')
    .replace(/^_|_$/g, '');
  if (WHOLLY.test(words)) return true;
  const parts = words.replace('private_key', 'privatekey').replace('id_rsa', 'rsa').split('_');
  return (
    parts.length > 1 &&
    parts.some((part) => SECRETS.has(part)) &&
    parts.some((part) => FETCHED.has(part)) &&
    !/^(?:password|secret|env)_(?:file|value|data|text)$/.test(words)
  );
}

/** Names that no sentence contains by chance: two words, a capital inside, a digit. */
const TELLING = /[_-]|[a-z][A-Z]|\d/;
const WORD = /[A-Za-z][\w-]{2,80}/g;

/**
 * Returns tools of other servers that a text mentions, each with its offset, at most eight. A name that is an ordinary
 * word counts only if "tool" follows it.
 */
export function crossNotes(
  text: string,
  { own, others }: KnownNames,
): readonly { readonly name: string; readonly at: number }[] {
  if (others.size === 0) return [];
  const found: { readonly name: string; readonly at: number }[] = [];
  for (const match of text.matchAll(WORD)) {
    const [name] = match;
    if (own.has(name) || !others.has(name)) continue;
    const after = text.slice(match.index + name.length, match.index + name.length + 8);
    if (!TELLING.test(name) && !/^[`'"]? tool\b/.test(after)) continue;
    found.push({ name: `${others.get(name) ?? ''}.${name}`, at: match.index });
    if (found.length === 8) break;
  }
  return found;
}

/**
 * Compares the name of the tool with those of others: the same, the same except for case or signs, or a forged
 * `server__tool`.
 */
export function nameNotes(tool: RawTool, { others }: KnownNames): readonly LintNote[] {
  const notes: LintNote[] = [];
  const bare = bareName(tool.name);
  for (const [name, server] of others) {
    if (bareName(name) !== bare && bareName(`${server}${name}`) !== bare) continue;
    notes.push({ id: 'NAME_COLLISION', where: 'name', text: `${server}.${name}` });
  }
  if (saysItReads(tool) && DESTROYS.test(tool.name))
    notes.push({ id: 'ANNOTATION_LIE', where: 'annotations.readOnlyHint', text: tool.name.slice(0, 60) });
  const missing = undeclared(tool);
  if (missing.length > 0) notes.push({ id: 'UNDECLARED', where: 'description', text: missing.slice(0, 5).join(', ') });
  return notes;
}

/**
 * Returns true if name and description both say that the tool destroys, but an annotation says that it only reads. If
 * hints are trusted, it would count as a read.
 */
export function claimsToOnlyRead(tool: RawTool): boolean {
  return (
    saysItReads(tool) &&
    DESTROYS.test(tool.name) &&
    typeof tool.description === 'string' &&
    /^\W*(?:delet|remov|drop|destroy|wip|purg|eras|truncat|uninstall|kill|terminat)/i.test(tool.description)
  );
}

function saysItReads({ annotations }: RawTool): boolean {
  return (annotations as { readonly readOnlyHint?: unknown } | undefined)?.readOnlyHint === true;
}

/** Arguments that a framework adds to a function, and that are still documented. */
const GIVEN = wordSet('ctx context self args kwargs');

/**
 * Arguments that a description documents like a function (`Args:`, one per line, indented) and the schema does not
 * have: what runs is not what is declared.
 */
function undeclared({ description, inputSchema }: RawTool): readonly string[] {
  if (typeof description !== 'string') return [];
  const lines = description.slice(0, MAX_TEXT).split('\n');
  const head = lines.findIndex((line) => /^\s*(?:args|arguments|parameters|params):\s*$/i.test(line));
  if (head < 0) return [];
  const end = lines.findIndex(
    (line, at) => at > head && line.trim() !== '' && indentOf(line) <= indentOf(lines[head] ?? ''),
  );
  const body = lines.slice(head + 1, end < 0 ? undefined : end).filter((line) => line.trim() !== '');
  const depth = indentOf(body[0] ?? '');
  const named = body.flatMap((line) =>
    indentOf(line) === depth ? (/^\s*([A-Za-z_]\w{0,63})(?:\s?\([^()]{0,80}\))?:/.exec(line)?.[1] ?? []) : [],
  );
  const properties = (inputSchema as { readonly properties?: unknown } | undefined)?.properties;
  return named.filter(
    (name) =>
      !GIVEN.has(name) && !Object.hasOwn(typeof properties === 'object' && properties !== null ? properties : {}, name),
  );
}

function indentOf(line: string): number {
  return line.length - line.trimStart().length;
}

const MAX_TEXT = 65_536;
const DESTROYS =
  /^(?:[a-z]+[_-])?(?:delete|remove|drop|destroy|wipe|purge|erase|truncate|uninstall|kill|terminate)(?:$|[_-]|[A-Z])/;

/** Case, signs and digits that look like letters are ignored. */
function bareName(name: string): string {
  return name
    .toLowerCase()
    .replace(/[^a-z\d]/g, '')
    .replace(/[1l]/g, 'i')
    .replaceAll('0', 'o');
}
/**
 * One note for the person who approves. `text` is an excerpt that is safe to print: at most 120 characters, everything
 * except plain letters escaped.
 */
export interface LintNote {
  readonly id: LintId;
  /** Path in the definition, such as `inputSchema.properties.q.description`. */
  readonly where: string;
  readonly text: string;
}
