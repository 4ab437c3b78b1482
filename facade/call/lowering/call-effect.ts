/** The canonical effect of a call: the same facts for the same action, no matter how the tool was exposed. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { commandFact } from '../../../catalogs/programs/command-facts.ts';
import { locate, type PathLocation } from '../../../catalogs/readers/path-location.ts';
import { readUrl } from '../../../catalogs/readers/urls.ts';
import type { Semantics, Verb } from '../../../catalogs/tools/tool-definition.ts';
import type { CommandFact, Effect, ListTool, PathFact, UrlFact } from '../../../policies/port.ts';

/** The fact of a command that is not a text. */
const UNREADABLE_COMMAND: CommandFact = { text: '', opaque: true, words: [] };

/** Paths or URLs that one argument may contain. Each path is resolved and kept open, which takes about 0.1 ms. */
const MAX_TEXTS = 1_000;

/** A tool and its arguments. */
export interface EffectSource {
  readonly server: string;
  readonly tool: string;
  readonly semantics: Semantics;
  readonly args: Readonly<Record<string, unknown>>;
}

/** Resolves a path argument. */
type Find = (raw: string) => PathLocation;

/**
 * Returns the effect of a call. Reads the file system only to resolve symbolic links; `find` may keep what it resolves
 * open. Throws ARGS_INVALID for too many paths or URLs.
 */
export function effectOf(
  source: EffectSource,
  workspace: string,
  find: Find = (raw) => locate([workspace], raw),
): Effect {
  const { server, tool, semantics, args } = source;
  const command = semantics.command === undefined ? undefined : args[semantics.command];
  return {
    verb: verbOf(semantics, args),
    server,
    tool,
    paths:
      semantics.paths === undefined
        ? []
        : semantics.paths.flatMap((argument) =>
            textsOf(argument, args[argument]).map((raw) => pathFact(argument, raw, find)),
          ),
    urls:
      semantics.urls === undefined
        ? []
        : semantics.urls.flatMap((argument) => textsOf(argument, args[argument]).map((url) => urlFact(argument, url))),
    // How a server joins a command that is a list of words is not known, so its words are not known either.
    ...(command === undefined || command === null
      ? {}
      : { command: typeof command === 'string' ? commandFact(command) : UNREADABLE_COMMAND }),
  };
}

/**
 * Returns what the list decision needs to know about a tool: every verb that a call may have, because a list must not
 * promise a call that would be denied, and the kinds of facts that a call can have, because a rule about other facts
 * never applies.
 */
export function listToolFacts(semantics: Semantics): Pick<ListTool, 'verb' | 'verbs' | 'facts'> {
  const { verb, byArgument } = semantics;
  const facts = (['paths', 'urls', 'command'] as const).filter((fact) => semantics[fact] !== undefined);
  return byArgument === undefined
    ? { verb, facts }
    : { verb, verbs: [...new Set([verb, ...Object.values(byArgument.verbs)])], facts };
}

/**
 * If the catalog does not know the value of the deciding argument, the tool's own verb counts, which is the more
 * serious one.
 */
function verbOf(semantics: Semantics, args: Readonly<Record<string, unknown>>): Verb {
  const by = semantics.byArgument;
  if (by === undefined) return semantics.verb;
  const value = args[by.argument];
  const key = typeof value === 'boolean' ? String(value) : value;
  return typeof key === 'string' && Object.hasOwn(by.verbs, key) ? (by.verbs[key] ?? semantics.verb) : semantics.verb;
}

/**
 * Returns the texts of an argument, also from lists. Undefined stands for a value that is not a text: if it were left
 * out, a rule that denies would not see it.
 */
function textsOf(argument: string, value: unknown): readonly (string | undefined)[] {
  const texts = flatten(value);
  if (texts.length <= MAX_TEXTS) return texts;
  throw new TollgateError('ARGS_INVALID', {
    detail: `${argument}: contains ${texts.length} paths or URLs; one call may have at most ${MAX_TEXTS}`,
    next: 'Make several calls.',
  });
}

function flatten(value: unknown): readonly (string | undefined)[] {
  if (value === undefined || value === null) return [];
  return Array.isArray(value) ? value.flatMap(flatten) : [typeof value === 'string' ? value : undefined];
}

function pathFact(argument: string, raw: string | undefined, find: Find): PathFact {
  if (raw === undefined) return { argument, path: 'unresolved:', inside: false };
  const found = find(raw);
  // A path that cannot be resolved keeps its text, in a form that no path pattern matches.
  if (found.problem !== undefined) return { argument, path: `unresolved:${raw}`, inside: false };
  return { argument, ...rulePathOf(found) };
}

/** Returns a path as rules write it: relative to the workspace if it is inside. */
export function rulePathOf({
  absolute,
  relative,
  inside,
}: Pick<PathLocation, 'absolute' | 'relative' | 'inside'>): Pick<PathFact, 'path' | 'inside'> {
  return { path: inside ? relative : absolute, inside };
}

function urlFact(argument: string, url = ''): UrlFact {
  return { argument, url, ...readUrl(url) };
}
