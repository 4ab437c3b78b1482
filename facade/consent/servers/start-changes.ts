/**
 * What changed in the start of a server since its approval, by names and hashes only, and the note of it that all
 * processes of a state folder share.
 */
import path from 'node:path';
import { plural } from '../../../catalogs/text/readable-text.ts';
import type { State } from '../../state/state-port.ts';
import { differenceWords, type StartFacts, startDifferences } from './start-facts.ts';

/** One difference from the approved start. It holds no value of a setting, and no path. */
export interface StartChange {
  /** The name of a file, the name of a setting in tollgate.yaml (`args[2]`, `env.TOKEN`), or words. */
  readonly what: string;
  /** The SHA-256 of a file when it was approved and now; absent if it did not exist, or for anything else. */
  readonly was?: string;
  readonly is?: string;
}

/** A change as the owner reviews it. */
export interface ReviewedChange extends StartChange {
  /** Its place in the facts, for all but files. */
  readonly field?: string;
  /** The values of a setting that is shown: absent for a value of `env`, `headers` and `oauth`. */
  readonly before?: unknown;
  readonly after?: unknown;
}

/** A change that a process met when it was to start the server. */
export interface NotedChange {
  /** When it was met first, ISO 8601. */
  readonly since: string;
  /** Hashes of the start that was approved, and of the one that was met. */
  readonly approved: string;
  readonly start: string;
  readonly changes: readonly StartChange[];
}

const SPACE = 'consent/changed';
/** A process records changes of one server at most this often, ms, because an agent may be able to cause them. */
const QUIET_MS = 60_000;
/** The most changes that are stored and recorded, and the most characters of a name. */
const [MOST_CHANGES, NAME_CHARS] = [20, 100];

/**
 * Returns the differences with their values. Files are compared by their paths, so that an added one does not change
 * the others.
 */
export function reviewedChanges(before: StartFacts, after: StartFacts): readonly ReviewedChange[] {
  const [old, young] = [filesOf(before), filesOf(after)];
  const files = [...new Set([...old.keys(), ...young.keys()])].flatMap((key): readonly StartChange[] => {
    const [was, is] = [old.get(key), young.get(key)];
    if (was?.path === is?.path && was?.sha256 === is?.sha256) return [];
    return [
      {
        what: path.basename((is ?? was)?.path ?? ''),
        ...(was !== undefined && { was: was.sha256 }),
        ...(is !== undefined && { is: is.sha256 }),
      },
    ];
  });
  const others = startDifferences(withoutFiles(before), withoutFiles(after)).map((field): ReviewedChange => {
    const change = { what: differenceWords(field), field };
    // These are digests, which say nothing to a person.
    return /^(?:env|headers|oauth)\b|^environments\..*\.env\b/.test(field)
      ? change
      : { ...change, before: valueAt(field, before), after: valueAt(field, after) };
  });
  return [...files, ...others];
}

/** Returns the differences without values, each once. */
export function startChanges(before: StartFacts, after: StartFacts): readonly StartChange[] {
  const all = reviewedChanges(before, after).map(
    ({ what, was, is }): StartChange => ({ what, ...(was !== undefined && { was }), ...(is !== undefined && { is }) }),
  );
  return [...new Map(all.map((one) => [JSON.stringify(one), one])).values()];
}

function valueAt(field: string, facts: StartFacts): unknown {
  return field
    .split(/\.|\[|\]/)
    .filter((part) => part !== '')
    .reduce<unknown>((node, key) => (node as Record<string, unknown> | undefined)?.[key], facts);
}

function filesOf({ program, scripts = [] }: StartFacts): ReadonlyMap<string, { path: string; sha256: string }> {
  const named = scripts.map((file) => [file.path, file] as const);
  return new Map([...(program === undefined ? [] : [['', program] as const]), ...named]);
}

function withoutFiles({ program: _program, scripts: _scripts, ...rest }: StartFacts): object {
  return rest;
}

/** Returns a change in words: `server.js: sha256 ab12ab12ab12 -> cd34cd34cd34`. */
export function changeWords({ what, was, is }: StartChange): string {
  if (was === undefined && is === undefined) return `${what} differs`;
  if (is === undefined) return `${what} is gone`;
  if (was === undefined) return `${what} is new: sha256 ${is.slice(0, HASH_CHARS)}`;
  if (was === is) return `${what} is at another path`;
  return `${what} changed: sha256 ${was.slice(0, HASH_CHARS)} -> ${is.slice(0, HASH_CHARS)}`;
}

const HASH_CHARS = 12;
/** The most names in one line. */
const MOST_NAMES = 3;

/** Returns what changed in one short line. */
export function changedNames(changes: readonly StartChange[]): string {
  const names = changes.slice(0, MOST_NAMES).map(({ what }) => what);
  const more = changes.length - names.length;
  return `${names.join(', ')}${more > 0 ? ` and ${plural(more, 'more thing')}` : ''}`;
}

/** The notes of one state folder. Methods throw STATE_FAILED. */
export class StartChangeNotes {
  readonly #state: State;
  readonly #toldAt = new Map<string, number>();

  constructor(state: State) {
    this.#state = state;
  }

  /** Returns the note of a server. It counts only for the approval that it names. */
  get(server: string): NotedChange | undefined {
    const text = this.#state.get(SPACE, server);
    return text === undefined ? undefined : (JSON.parse(text) as NotedChange);
  }

  /**
   * Notes a change, for all processes. Returns it if it is new, and then it is to be recorded. Within a minute of
   * another one it is not noted; the next start after that notes it. `at`: ms since 1970.
   */
  async note(server: string, change: Omit<NotedChange, 'since'>, at: number): Promise<NotedChange | undefined> {
    const from = this.#state.get(SPACE, server);
    const before = from === undefined ? undefined : (JSON.parse(from) as NotedChange);
    const isSame = before?.approved === change.approved;
    if (isSame && before.start === change.start) return undefined;
    if (at - (this.#toldAt.get(server) ?? Number.NEGATIVE_INFINITY) < QUIET_MS) return undefined;
    const noted: NotedChange = {
      ...change,
      since: isSame ? before.since : new Date(at).toISOString(),
      changes: change.changes.slice(0, MOST_CHANGES).map((one) => ({ ...one, what: one.what.slice(0, NAME_CHARS) })),
    };
    const to = JSON.stringify(noted);
    if (!(await this.#state.swap(SPACE, server, { ...(from !== undefined && { from }), to }))) return undefined;
    this.#toldAt.set(server, at);
    return noted;
  }

  /** Removes the note, because the server is as it was approved, or was decided about. */
  async settle(server: string): Promise<void> {
    if (this.#state.get(SPACE, server) !== undefined) await this.#state.remove(SPACE, server);
  }
}
