/**
 * Reads which tools an entry of a client's file excludes, in the spellings of all clients, and joins such lists: the
 * result contains no tool that one of them excludes.
 */
import type { Node } from 'jsonc-parser';
import { nearest, quote } from '../config/config-problems.ts';

/** The tools that are allowed and excluded. An absent list sets no limit. Names may contain `*`. */
export interface ToolLimits {
  readonly allow?: readonly string[];
  readonly deny?: readonly string[];
}

/** Tollgate and VS Code; Windsurf; Gemini CLI; Codex. */
const DENY_KEYS: ReadonlySet<string> = new Set([
  'denyTools',
  'deniedTools',
  'disabledTools',
  'excludeTools',
  'disabled_tools',
]);
/** The same clients, and `tools` of the Copilot command line. */
const ALLOW_KEYS: ReadonlySet<string> = new Set([
  'allowTools',
  'allowedTools',
  'enabledTools',
  'includeTools',
  'enabled_tools',
  'tools',
]);
/** As tollgate.schema.json has it. */
const NAME = /^[A-Za-z0-9_./*-]{1,128}$/;

/** Returns true if the key excludes tools. A map under `tools` sets something else (Codex: what is approved). */
export function isRestriction(key: string, { type }: Pick<Node, 'type'>): boolean {
  return DENY_KEYS.has(key) || (ALLOW_KEYS.has(key) && (key !== 'tools' || type === 'array'));
}

/**
 * Returns the restriction that an unknown key probably means; `tools` is too short to be guessed.
 */
export function meantRestriction(key: string): string | undefined {
  return nearest(
    key,
    [...DENY_KEYS, ...ALLOW_KEYS].filter((one) => one !== 'tools'),
  );
}

/** Reads the limits of an entry. Errors go to `faults`: without its restriction the server must not be used. */
export function readRestrictions(fields: ReadonlyMap<string, Node>, faults: string[]): ToolLimits | undefined {
  const read = ([key, node]: readonly [string, Node]): readonly string[] => {
    const items = (node.children ?? []).map(({ value }): unknown => value);
    const names = items.filter((item): item is string => typeof item === 'string' && NAME.test(item));
    if (node.type !== 'array' || names.length < items.length)
      faults.push(`${quote(key)} is not a list of tool names, so what it excludes is not known`);
    return names;
  };
  const limits = [...fields]
    .filter((field) => isRestriction(...field))
    .flatMap((field): readonly ToolLimits[] => [
      DENY_KEYS.has(field[0]) ? { deny: read(field) } : { allow: read(field) },
    ]);
  const joined = limits.reduce(joinLimits, {});
  return Object.keys(joined).length === 0 ? undefined : joined;
}

/**
 * Returns limits that allow a tool only if both do. Of patterns that overlap partly, such as `get_*` and `*_all`,
 * nothing is allowed.
 */
export function joinLimits(one: ToolLimits, other: ToolLimits): ToolLimits {
  const [a, b] = [one.allow, other.allow].map((list) => (list?.includes('*') === true ? undefined : list));
  const allow =
    a === undefined || b === undefined
      ? (a ?? b)
      : [...new Set([...a.filter((name) => isCovered(name, b)), ...b.filter((name) => isCovered(name, a))])];
  const deny = [...new Set([...(one.deny ?? []), ...(other.deny ?? [])])];
  return { ...(allow !== undefined && { allow }), ...(deny.length > 0 && { deny }) };
}

/** True if every name that the pattern matches is matched by one of the list: `*` in it is matched by `*` only. */
function isCovered(pattern: string, list: readonly string[]): boolean {
  return list.some((wide) => covers(wide.split('*'), pattern));
}

/** Matches a text with `*` wildcards part by part, without backtracking. */
function covers([first = '', ...rest]: readonly string[], text: string): boolean {
  const last = rest.at(-1);
  if (last === undefined) return first === text;
  if (!text.startsWith(first) || !text.endsWith(last) || text.length < first.length + last.length) return false;
  let at = first.length;
  const end = text.length - last.length;
  for (const part of rest.slice(0, -1)) {
    const found = text.indexOf(part, at);
    if (found === -1 || found + part.length > end) return false;
    at = found + part.length;
  }
  return true;
}
