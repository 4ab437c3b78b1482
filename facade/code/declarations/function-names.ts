/**
 * The names under which code calls the tools of a server: one module for each server, one function for each tool. Each
 * name is an identifier that code can import.
 */
import { createHash } from 'node:crypto';
import { groupBy } from '../../../catalogs/text/collections.ts';
import { wordSet } from '../../../catalogs/text/word-set.ts';

/** Longer names are cut, and get a hash. */
const MAX_NAME = 64;
const HASH_DIGITS = 8;
const IDENTIFIER = /^[A-Za-z_$][A-Za-z0-9_$]*$/;

/** Words of the language that no variable can have, in strict code. */
const KEYWORDS = `
  arguments await break case catch class const continue debugger default delete do else enum eval export extends false
  finally for function if implements import in instanceof interface let new null package private protected public
  return static super switch this throw true try typeof undefined var void while with yield Infinity NaN globalThis
`;
/** What a module or a program has already. With a member `then`, `await` of a module would call the tool. */
const TAKEN = '__esModule args async console exports module print require then vars';
const RESERVED: ReadonlySet<string> = new Set([
  ...wordSet(KEYWORDS),
  ...wordSet(TAKEN),
  ...Object.getOwnPropertyNames(Object.prototype),
]);

/** Returns the module of a server: `host:mcp-github`. */
export function moduleNameOf(server: string): string {
  return `host:mcp-${server}`;
}

/** Returns true for a text that code can use as a name without quotes: ASCII letters, digits, `_` and `$`. */
export function isIdentifier(text: string): boolean {
  return IDENTIFIER.test(text);
}

/**
 * Returns the function name of each tool of one server. A tool whose own name code can use keeps it, so that it never
 * depends on other tools. In other names, each run of other characters becomes `_`; a reserved word gets `_` at its
 * end, a digit at the start gets `_` before it. If several tools want one such name, or a tool has it as its own, each
 * of them gets a hash of its own name instead. The order of the list does not matter.
 */
export function functionNamesOf(toolNames: readonly string[]): ReadonlyMap<string, string> {
  const distinct = [...new Set(toolNames)].sort();
  const names = new Map(distinct.filter(isUsable).map((name) => [name, name]));
  const taken = new Set(names.values());
  const others = groupBy(
    distinct.filter((name) => !names.has(name)),
    wantedName,
  );
  const contested: string[] = [];
  for (const [wanted, tools] of others) {
    const [only] = tools;
    if (tools.length === 1 && only !== undefined && !taken.has(wanted) && isUsable(wanted)) names.set(only, wanted);
    else contested.push(...tools);
  }
  for (const name of names.values()) taken.add(name);
  for (const tool of contested.sort()) {
    const name = hashedName(tool, taken);
    taken.add(name);
    names.set(tool, name);
  }
  return names;
}

function isUsable(name: string): boolean {
  return name.length <= MAX_NAME && isIdentifier(name) && !RESERVED.has(name);
}

function wantedName(tool: string): string {
  const words = wordsOf(tool);
  const started = /^[0-9]/.test(words) ? `_${words}` : words;
  return RESERVED.has(started) ? `${started}_` : started;
}

/** Empty if the name has no ASCII letter or digit. */
function wordsOf(tool: string): string {
  if (!/[A-Za-z0-9]/.test(tool)) return '';
  return tool.replace(/[^A-Za-z0-9_$]+/g, '_').replace(/^_(?=[A-Za-z])|(?<=[A-Za-z0-9])_$/g, '');
}

/** A hash that another tool has as part of its own name is replaced by a hash with a mark. */
function hashedName(tool: string, taken: ReadonlySet<string>): string {
  const words = wordsOf(tool.slice(0, MAX_NAME)).slice(0, MAX_NAME - HASH_DIGITS - 2);
  const base = /^[A-Za-z_$]/.test(words) ? words : `tool_${words}`.slice(0, MAX_NAME - HASH_DIGITS - 2);
  for (let mark = ''; ; mark += '+') {
    const hash = createHash('sha256')
      .update(tool + mark)
      .digest('hex');
    const name = `${base.replace(/_+$/, '')}_${hash.slice(0, HASH_DIGITS)}`;
    if (!taken.has(name)) return name;
  }
}
