/**
 * Sorts calls that owners approved one by one into groups that one rule could allow: the same tool and verb, and the
 * same paths or the same command. A call with neither belongs to its tool.
 */
import path from 'node:path';
import { globProblem, matchesGlobs } from '../../../catalogs/readers/path-globs.ts';
import { printable } from '../../../catalogs/text/readable-text.ts';
import type { CallInput } from '../../port.ts';
import type { RecordedCall } from '../call-replay.ts';

/**
 * How an owner decided on a call that a rule asked about. `repeated`: it was approved, and made by a later call with
 * the same bytes, which counts instead of it.
 */
export type OwnerVerdict =
  | { readonly outcome: 'approved'; readonly by: string }
  | { readonly outcome: 'refused' | 'repeated' };

/** A recorded call with the decision of an owner. Absent: no one decided, or no rule asked. */
export interface JudgedRecording extends RecordedCall {
  readonly verdict?: OwnerVerdict;
}

/** What calls have in common. `globs`: paths of the workspace, or one `folder/*`. `tool`: `server.tool`. */
export type CallShape =
  | { readonly kind: 'tool'; readonly tool: string }
  | { readonly kind: 'paths'; readonly globs: readonly string[] }
  | {
      readonly kind: 'command';
      readonly text: string;
      readonly words: readonly string[];
      /** Name of the argument with the command. */
      readonly argument: string;
      /** The other arguments that have an effect, such as `cwd`. */
      readonly others: Readonly<Record<string, unknown>>;
    };

/** How often and by whom calls were approved. Days are dates in UTC. */
export interface ApprovalEvidence {
  readonly approved: number;
  readonly by: Readonly<Record<string, number>>;
  readonly first: string;
  readonly last: string;
  /** Decision ids of the newest calls, at most three. */
  readonly calls: readonly string[];
}

/** Approved calls of one server that have a shape and a verb in common. */
export interface ApprovedGroup {
  readonly shape: CallShape;
  /** One call of each tool, at least one. */
  readonly samples: readonly [CallInput, ...CallInput[]];
  /** Ids of the rules that asked. */
  readonly asks: ReadonlySet<string>;
  readonly principals: ReadonlySet<string>;
  /** Decision ids of all calls. */
  readonly ids: ReadonlySet<string>;
  readonly evidence: ApprovalEvidence;
}

/** Calls that no rule is suggested for, and why. */
export interface Unsuggested {
  /** The tool, with its path or command. */
  readonly what: string;
  readonly approved: number;
  readonly why: string;
}

/** Arguments that change neither what a command does nor where. */
const IDLE_ARGUMENTS: ReadonlySet<string> = new Set(['timeout_ms', 'wait_ms', 'limit']);
/** What a condition on commands cannot express. */
const NOT_A_WORD = /[\s*|;&<>$`"']|^$/;
const NEWEST = 3;

/** Collects approved and refused calls. Its memory grows with the number of different calls that owners decided on. */
export class ApprovedCalls {
  readonly #control: readonly string[];
  readonly #groups = new Map<string, GroupDraft>();
  readonly #folders = new Map<string, FolderDraft>();
  readonly #unfit = new Map<string, Unsuggested>();
  /** Folders of files that were refused. */
  readonly #refused = new Set<string>();

  /** `control`: globs of the files that decide what is allowed. */
  constructor(control: readonly string[]) {
    this.#control = control;
  }

  /** Adds an approved call and the ids of the rules that ask about it. `input` is complete. */
  add({ id, input }: { readonly id: string; readonly input: CallInput }, asks: readonly string[], by: string): void {
    const shape = callShape(input, this.#control);
    const tool = `${input.effect.server}.${input.effect.tool}`;
    if (typeof shape === 'string') {
      const key = `${tool}\n${shape}`;
      this.#unfit.set(key, { what: tool, why: shape, approved: (this.#unfit.get(key)?.approved ?? 0) + 1 });
      return;
    }
    const about = [tool, input.effect.verb];
    const one = { id, input, asks, by };
    draftAt(this.#groups, JSON.stringify([about, shape]), () => new GroupDraft(shape, input)).add(one);
    const folder = shape.kind === 'paths' && shape.globs.length === 1 ? path.posix.dirname(shape.globs[0] ?? '') : '.';
    if (folder !== '.')
      draftAt(this.#folders, JSON.stringify([about, folder]), () => new FolderDraft(folder, input)).add(one);
  }

  /** Adds a call that a rule denied, or that an owner refused. */
  refuse({ effect }: Pick<CallInput, 'effect'>): void {
    for (const fact of effect.paths) if (fact.inside) this.#refused.add(path.posix.dirname(fact.path));
  }

  /**
   * Returns the groups with enough approvals, the most approvals first. A folder needs `min` different files, none of
   * them refused, and no control file.
   */
  groups(min: number): readonly ApprovedGroup[] {
    const folders = [...this.#folders.values()].filter(
      ({ files, folder }) => files.size >= min && this.#isOpen(folder),
    );
    const merged = new Map<string, ApprovedGroup>();
    for (const draft of [...folders, ...[...this.#groups.values()].filter(({ approved }) => approved >= min)]) {
      const group = draft.group();
      const { server, verb } = group.samples[0].effect;
      const key = JSON.stringify([group.shape, server, verb]);
      const other = merged.get(key);
      merged.set(key, other === undefined ? group : mergeGroups(other, group));
    }
    return [...merged.values()].sort((a, b) => b.evidence.approved - a.evidence.approved);
  }

  /** Returns what was approved often enough, but cannot be suggested. */
  unfit(min: number): readonly Unsuggested[] {
    return [...this.#unfit.values()].filter(({ approved }) => approved >= min);
  }

  #isOpen(folder: string): boolean {
    const hasControl = this.#control.some((file) => path.posix.dirname(file) === folder);
    return !this.#refused.has(folder) && !hasControl && !matchesGlobs(this.#control, `${folder}/x`);
  }
}

interface ApprovedCall {
  readonly id: string;
  readonly input: CallInput;
  readonly asks: readonly string[];
  readonly by: string;
}

class GroupDraft {
  approved = 0;
  readonly #shape: CallShape;
  readonly #sample: CallInput;
  readonly #asks = new Set<string>();
  readonly #principals = new Set<string>();
  readonly #ids = new Set<string>();
  readonly #by = new Map<string, number>();
  #times: string[] = [];
  #newest: { readonly id: string; readonly time: string }[] = [];

  constructor(shape: CallShape, sample: CallInput) {
    this.#shape = shape;
    this.#sample = sample;
  }

  add({ id, input: { time, principal }, asks, by }: ApprovedCall): void {
    this.approved += 1;
    this.#ids.add(id);
    for (const rule of asks) this.#asks.add(rule);
    this.#principals.add(principal.id);
    this.#by.set(by, (this.#by.get(by) ?? 0) + 1);
    const sorted = [...this.#times, time].sort();
    this.#times = [sorted[0] ?? time, sorted.at(-1) ?? time];
    this.#newest = [...this.#newest, { id, time }].sort((a, b) => (a.time < b.time ? 1 : -1)).slice(0, NEWEST);
  }

  group(): ApprovedGroup {
    const [first = '', last = ''] = this.#times.map((time) => time.slice(0, 10));
    return {
      shape: this.#shape,
      samples: [this.#sample],
      asks: this.#asks,
      principals: this.#principals,
      ids: this.#ids,
      evidence: {
        approved: this.approved,
        by: Object.fromEntries(this.#by),
        first,
        last,
        calls: this.#newest.map(({ id }) => id),
      },
    };
  }
}

class FolderDraft extends GroupDraft {
  readonly files = new Set<string>();
  readonly folder: string;

  constructor(folder: string, sample: CallInput) {
    super({ kind: 'paths', globs: [`${folder}/*`] }, sample);
    this.folder = folder;
  }

  override add(call: ApprovedCall): void {
    super.add(call);
    for (const fact of call.input.effect.paths) this.files.add(fact.path);
  }
}

/** Tools that were approved for the same files need one exception: each alone would keep asking about the other. */
function mergeGroups(one: ApprovedGroup, other: ApprovedGroup): ApprovedGroup {
  const [a, b] = [one.evidence, other.evidence];
  const by = new Map(Object.entries(a.by));
  for (const [id, times] of Object.entries(b.by)) by.set(id, (by.get(id) ?? 0) + times);
  return {
    shape: one.shape,
    samples: [...one.samples, ...other.samples],
    asks: new Set([...one.asks, ...other.asks]),
    principals: new Set([...one.principals, ...other.principals]),
    ids: new Set([...one.ids, ...other.ids]),
    evidence: {
      approved: a.approved + b.approved,
      by: Object.fromEntries(by),
      first: a.first < b.first ? a.first : b.first,
      last: a.last > b.last ? a.last : b.last,
      calls: [...a.calls, ...b.calls].slice(0, NEWEST),
    },
  };
}

function draftAt<T>(drafts: Map<string, T>, key: string, make: () => T): T {
  const found = drafts.get(key) ?? make();
  drafts.set(key, found);
  return found;
}

/**
 * Returns what a rule can name of this call, or why it can name nothing. `control`: globs of the files that decide what
 * is allowed.
 */
export function callShape({ effect, argsText }: CallInput, control: readonly string[]): CallShape | string {
  const { kind = 'tool', command, paths, urls } = effect;
  if (kind !== 'tool') return 'it is not a call of a tool';
  if (command !== undefined)
    return commandShape(effect, JSON.parse(argsText) as Readonly<Record<string, unknown>>, control);
  if (urls.length > 0) return 'it names a URL; a grant can answer the question (docs/grants.md)';
  if (paths.length === 0 && effect.server === 'workspace') return 'a rule cannot tell it from other calls of this tool';
  if (paths.length === 0) return { kind: 'tool', tool: `${effect.server}.${effect.tool}` };
  if (paths.some(({ inside }) => !inside)) return 'it uses a path outside the workspace';
  const globs = [...new Set(paths.map((fact) => fact.path))].sort();
  if (globs.some((one) => one.includes('*') || globProblem(one) !== undefined || printable(one) !== one))
    return 'a rule cannot name its path exactly';
  if (globs.some((one) => matchesGlobs(control, one))) return 'it is about a file that decides what is allowed';
  return { kind: 'paths', globs };
}

function commandShape(
  { command }: CallInput['effect'],
  args: Readonly<Record<string, unknown>>,
  control: readonly string[],
): CallShape | string {
  const { text = '', words: commands = [] } = command ?? {};
  const [words, ...more] = commands;
  if (words === undefined) return 'the command cannot be read';
  if (more.length > 0) return 'the line has several commands; an exception is about one';
  if (words.some((word) => NOT_A_WORD.test(word)) || printable(text) !== text)
    return 'a rule cannot name its words exactly';
  if (words.some((word) => isControl(word, control))) return 'it names a file that decides what is allowed';
  const argument = Object.keys(args).find((name) => args[name] === text);
  const others = Object.entries(args).filter(([name]) => name !== argument && !IDLE_ARGUMENTS.has(name));
  if (argument === undefined || others.some(([, value]) => typeof value === 'object'))
    return 'a rule cannot name its arguments exactly';
  return {
    kind: 'command',
    text,
    words,
    argument,
    others: Object.fromEntries(others.sort(([a], [b]) => (a < b ? -1 : 1))),
  };
}

/** Compares the last part of a word too, because a command can change its folder. */
function isControl(word: string, control: readonly string[]): boolean {
  const value = word.slice(word.indexOf('=') + 1);
  const name = path.posix.basename(value);
  return (
    matchesGlobs(control, path.posix.normalize(value)) || control.some((glob) => path.posix.basename(glob) === name)
  );
}
