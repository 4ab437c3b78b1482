/** Matches globs in time linear in pattern and path. The number of brace alternatives is limited. */
import { invalidArguments } from '../workspace/file-text.ts';

/** One step of a pattern. `dirs` is `**` with its slash at the start of a name: any number of folders, or none. */
type Step =
  | { readonly kind: 'char'; readonly char: string }
  | { readonly kind: 'set'; readonly chars: string; readonly negated: boolean }
  | { readonly kind: 'any' | 'star' | 'all' | 'dirs' };

/** A compiled glob. */
export type Glob = (path: string) => boolean;

const MAX_ALTERNATIVES = 64;
const MAX_LENGTH = 1000;
/** Most characters of all alternatives together. Each is compared with each character of a path. */
const MAX_TOTAL = 4000;

/**
 * Compiles a glob with `*`, `?`, `[a-z]`, `[!a]`, `{a,b}` and `**`. Without a slash it matches the last name at any
 * depth, else the whole path. It does not use regular expressions, which can take exponential time. Throws ARGS_INVALID
 * for a glob that is too long or has too many alternatives.
 */
export function compileGlob(glob: string): Glob {
  if (glob.length > MAX_LENGTH) throw tooLarge();
  const alternatives = expandBraces(glob.replace(/^\.?\/+/, ''));
  if (alternatives.reduce((total, { length }) => total + length, 0) > MAX_TOTAL) throw tooLarge();
  const patterns = alternatives.map(parse);
  const wholePath = glob.includes('/');
  return (path) => {
    const subject = wholePath ? path : path.slice(path.lastIndexOf('/') + 1);
    return patterns.some((steps) => matches(steps, subject));
  };
}

function tooLarge(): Error {
  return invalidArguments('The glob is too long or has too many alternatives.', 'Use a shorter glob.');
}

function expandBraces(glob: string): readonly string[] {
  let done: readonly string[] = [glob];
  for (;;) {
    const next = done.flatMap(expandInner);
    if (next.length > MAX_ALTERNATIVES) throw tooLarge();
    if (next.length === done.length) return done;
    done = next;
  }
}

/** Expands the first brace group that contains no other group. */
function expandInner(glob: string): readonly string[] {
  const group = /\{([^{}]*,[^{}]*)\}/.exec(glob);
  if (group === null) return [glob];
  const after = group.index + group[0].length;
  return (group[1] ?? '').split(',').map((choice) => glob.slice(0, group.index) + choice + glob.slice(after));
}

function parse(glob: string): readonly Step[] {
  const steps: Step[] = [];
  for (let at = 0; at < glob.length; ) {
    const rest = glob.slice(at);
    const startsName = at === 0 || glob[at - 1] === '/';
    const token =
      startsName && rest.startsWith('**/') ? '**/' : (/^(?:\*+|\?|\[!?\]?[^\]]*\]|\\.|.)/su.exec(rest)?.[0] ?? rest);
    steps.push(stepOf(token, startsName));
    at += token.length;
  }
  return steps;
}

function stepOf(token: string, startsName: boolean): Step {
  if (token === '**/') return { kind: 'dirs' };
  if (token.startsWith('*')) return { kind: token.length > 1 && startsName ? 'all' : 'star' };
  if (token === '?') return { kind: 'any' };
  if (token.startsWith('[') && token.length > 2) {
    const negated = /^\[[!^]/.test(token);
    return { kind: 'set', chars: token.slice(negated ? 2 : 1, -1), negated };
  }
  return { kind: 'char', char: token.length > 1 && token.startsWith('\\') ? token.slice(1) : token };
}

/**
 * Tracks all possible states at once, character by character. State n is before step n, state -n-1 inside the `dirs`
 * step n.
 */
function matches(steps: readonly Step[], subject: string): boolean {
  let states = closure(steps, [0]);
  for (const char of subject) {
    const next: number[] = [];
    for (const state of states) next.push(...advance(steps, state, char));
    if (next.length === 0) return false;
    states = closure(steps, next);
  }
  return states.has(steps.length);
}

function closure(steps: readonly Step[], from: readonly number[]): ReadonlySet<number> {
  const states = new Set<number>();
  for (let state of from) {
    states.add(state);
    while (state >= 0 && canSkip(steps[state])) states.add((state += 1));
  }
  return states;
}

function canSkip(step: Step | undefined): boolean {
  return step?.kind === 'star' || step?.kind === 'all' || step?.kind === 'dirs';
}

function advance(steps: readonly Step[], state: number, char: string): readonly number[] {
  const index = state < 0 ? -state - 1 : state;
  const step = steps[index];
  if (step?.kind === 'dirs') return char === '/' ? [-index - 1, index + 1] : [-index - 1];
  if (step?.kind === 'all') return [index];
  if (step === undefined || char === '/') return step?.kind === 'char' && step.char === '/' ? [index + 1] : [];
  if (step.kind === 'star') return [index];
  if (step.kind === 'any') return [index + 1];
  if (step.kind === 'char') return step.char === char ? [index + 1] : [];
  if (step.kind !== 'set') return [];
  return inSet(step.chars, char) !== step.negated ? [index + 1] : [];
}

function inSet(chars: string, char: string): boolean {
  for (let at = 0; at < chars.length; at += 1) {
    const last = chars[at + 1] === '-' && at + 2 < chars.length ? chars[at + 2] : undefined;
    if (last === undefined ? chars[at] === char : (chars[at] ?? '') <= char && char <= last) return true;
    if (last !== undefined) at += 2;
  }
  return false;
}
