/** Owns the lowering of a call to its canonical effect: the same facts for the same doing, whichever exposure it came through. */
import { locate } from '../catalogs/paths.ts';
import type { Semantics, Verb } from '../catalogs/tool.ts';
import { readUrl } from '../catalogs/urls.ts';
import type { Effect, ListTool, PathFact, UrlFact } from '../policies/port.ts';
import { commandFact } from './shell.ts';

/** What will be called, and with what. */
export interface Doing {
  readonly server: string;
  readonly tool: string;
  readonly semantics: Semantics;
  readonly args: Readonly<Record<string, unknown>>;
}

/** The effect of a call (design §3). Reads the file system to resolve symlinks, and nothing else. */
export function effectOf(doing: Doing, workspace: string): Effect {
  const { server, tool, semantics, args } = doing;
  const command = semantics.command === undefined ? undefined : args[semantics.command];
  return {
    verb: verbOf(semantics, args),
    server,
    tool,
    paths: semantics.paths === undefined ? [] : semantics.paths.flatMap((argument) => strings(args[argument]).map((raw) => pathFact(workspace, argument, raw))),
    urls: semantics.urls === undefined ? [] : semantics.urls.flatMap((argument) => strings(args[argument]).map((url) => urlFact(argument, url))),
    ...(typeof command === 'string' ? { command: commandFact(command) } : {}),
  };
}

/**
 * What a list is told of a tool: all verbs that a call may have, because it must not promise what one of them would be denied,
 * and the facts that a call can carry, because a rule about others never fires.
 */
export function prospectOf(semantics: Semantics): Pick<ListTool, 'verb' | 'verbs' | 'facts'> {
  const { verb, byArgument } = semantics;
  const facts = (['paths', 'urls', 'command'] as const).filter((fact) => semantics[fact] !== undefined);
  return byArgument === undefined ? { verb, facts } : { verb, verbs: [...new Set([verb, ...Object.values(byArgument.verbs)])], facts };
}

/** A value of the deciding argument that the catalog does not know keeps the tool's own, graver verb. */
function verbOf(semantics: Semantics, args: Readonly<Record<string, unknown>>): Verb {
  const by = semantics.byArgument;
  if (by === undefined) return semantics.verb;
  const value = args[by.argument];
  const key = typeof value === 'boolean' ? String(value) : value;
  return typeof key === 'string' && Object.hasOwn(by.verbs, key) ? (by.verbs[key] ?? semantics.verb) : semantics.verb;
}

function strings(value: unknown): readonly string[] {
  if (typeof value === 'string') return [value];
  return Array.isArray(value) ? value.filter((item): item is string => typeof item === 'string') : [];
}

function pathFact(workspace: string, argument: string, raw: string): PathFact {
  const found = locate([workspace], raw);
  // What cannot be located stands as it was written, in a form that no absolute or relative pattern takes for a place.
  if (found.problem !== undefined) return { argument, path: `unresolved:${raw}`, inside: false };
  return { argument, path: found.inside ? found.relative : found.absolute, inside: found.inside };
}

function urlFact(argument: string, url: string): UrlFact {
  return { argument, url, ...readUrl(url) };
}
