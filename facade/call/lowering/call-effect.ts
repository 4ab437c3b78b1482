/**
 * Owns the lowering of a call to its canonical effect: the same facts for the same doing, whichever exposure it came
 * through.
 */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { locate, type PathLocation } from '../../../catalogs/readers/path-location.ts';
import { readUrl } from '../../../catalogs/readers/urls.ts';
import type { Semantics, Verb } from '../../../catalogs/tools/tool-definition.ts';
import type { CommandFact, Effect, ListTool, PathFact, UrlFact } from '../../../policies/port.ts';
import { commandFact } from './command-facts.ts';

/** What a rule sees of a command that is no text. */
const UNREADABLE_COMMAND: CommandFact = { text: '', opaque: true, words: [] };

/**
 * Paths, or URLs, that one argument may hold. Each path is resolved at once and kept open, which takes a tenth of a
 * millisecond.
 */
const MOST_TEXTS = 1_000;

/** What will be called, and with what. */
export interface EffectSource {
  readonly server: string;
  readonly tool: string;
  readonly semantics: Semantics;
  readonly args: Readonly<Record<string, unknown>>;
}

/** Where a path argument leads. */
type Find = (raw: string) => PathLocation;

/**
 * The effect of a call (design §3). Reads the file system to resolve symlinks, and nothing else. `find` may keep what
 * it resolves open. Throws ARGS_INVALID for too many paths or URLs.
 */
export function effectOf(
  doing: EffectSource,
  workspace: string,
  find: Find = (raw) => locate([workspace], raw),
): Effect {
  const { server, tool, semantics, args } = doing;
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
    // A command as a list of words is joined by rules of its own server: which words it has is not known here.
    ...(command === undefined || command === null
      ? {}
      : { command: typeof command === 'string' ? commandFact(command) : UNREADABLE_COMMAND }),
  };
}

/**
 * What a list is told of a tool: all verbs that a call may have, because it must not promise what one of them would be
 * denied, and the facts that a call can carry, because a rule about others never fires.
 */
export function listToolFacts(semantics: Semantics): Pick<ListTool, 'verb' | 'verbs' | 'facts'> {
  const { verb, byArgument } = semantics;
  const facts = (['paths', 'urls', 'command'] as const).filter((fact) => semantics[fact] !== undefined);
  return byArgument === undefined
    ? { verb, facts }
    : { verb, verbs: [...new Set([verb, ...Object.values(byArgument.verbs)])], facts };
}

/** A value of the deciding argument that the catalog does not know keeps the tool's own, graver verb. */
function verbOf(semantics: Semantics, args: Readonly<Record<string, unknown>>): Verb {
  const by = semantics.byArgument;
  if (by === undefined) return semantics.verb;
  const value = args[by.argument];
  const key = typeof value === 'boolean' ? String(value) : value;
  return typeof key === 'string' && Object.hasOwn(by.verbs, key) ? (by.verbs[key] ?? semantics.verb) : semantics.verb;
}

/**
 * The texts of an argument, out of lists too. Undefined stands for a value that no text can be read from: dropped, it
 * would be no fact to a rule that denies.
 */
function textsOf(argument: string, value: unknown): readonly (string | undefined)[] {
  const texts = flatten(value);
  if (texts.length <= MOST_TEXTS) return texts;
  throw new TollgateError('ARGS_INVALID', {
    detail: `${argument}: holds ${texts.length} paths or URLs; at most ${MOST_TEXTS} are judged in one call`,
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
  // What cannot be located stands as it was written, in a form that no absolute or relative pattern takes for a place.
  if (found.problem !== undefined) return { argument, path: `unresolved:${raw}`, inside: false };
  return { argument, ...rulePathOf(found) };
}

/** A place as rules name it: relative to the workspace where it lies inside. */
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
