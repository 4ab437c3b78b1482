/** Owns the running of regular expressions that came from outside: those that could run away run under a clock (security 22). */
import { createHash } from 'node:crypto';
import { createContext, Script } from 'node:vm';

/** Milliseconds that suspicious expressions may take for one value, all matches together. */
const CLOCK_MS = 200;
/** Times that a match is tried on a machine that gives it no time. */
const MAX_TRIES = 8;
/** Up to this length even a bad expression ends soon. */
const SHORT = 12;

/** Names of guarded patterns, given to the validators as formats. */
export interface GuardedPattern {
  readonly format: string;
  test(text: string): boolean;
}

let spent = 0;
let context: { pattern?: RegExp; text?: string } | undefined;
let script: Script | undefined;

/**
 * A guarded test for a pattern, or undefined when it does not compile even without the `u` flag (it is dropped then).
 * A match that exceeds its time counts as refused: what cannot be judged is not let through.
 */
export function guardPattern(source: string): GuardedPattern | undefined {
  const pattern = compile(source);
  if (pattern === undefined) return undefined;
  const format = `pattern-${createHash('sha256').update(source).digest('hex').slice(0, 24)}`;
  return { format, test: (text) => (text.length <= SHORT ? pattern.test(text) : timedTest(pattern, text)) };
}

/** True when a pattern needs no guard: it compiles with `u` and cannot backtrack more than linearly. */
export function isPlain(source: string): boolean {
  try {
    new RegExp(source, 'u');
  } catch {
    return false;
  }
  // A bound of three digits costs as much as none.
  const open = source.match(/(?:[*+]|\{\d*,(?:\d{3,})?\}|\{\d{3,}\})/g)?.length ?? 0;
  // One open repetition after an anchor is linear; groups that repeat, back references and lookaround may not be.
  return (
    !/\)(?:[*+]|\{\d+(?:,\d*)?\})|\\[1-9k]|\(\?[=!<]/.test(source) &&
    (open === 0 || (open === 1 && source.startsWith('^')))
  );
}

function compile(source: string): RegExp | undefined {
  for (const flags of ['u', '']) {
    try {
      return new RegExp(source, flags);
    } catch {
      // Tried again without `u`: many servers escape characters that `u` does not allow to be escaped.
    }
  }
  return undefined;
}

/** Starts the clock anew: called once for every value that is checked. */
export function resetPatternClock(): void {
  spent = 0;
}

function timedTest(pattern: RegExp, text: string): boolean {
  // A list of a thousand texts that each run into the clock must not cost a thousand clocks.
  while (spent < CLOCK_MS) {
    const started = processorMs();
    const matches = matchOnce(pattern, text);
    spent += processorMs() - started;
    if (matches !== undefined) return matches;
    // Only the processor's time counts: a machine that stood still is not a pattern that ran away, and is tried again.
    spent += CLOCK_MS / MAX_TRIES;
  }
  return false;
}

/** Undefined when the time was over before the match. */
function matchOnce(pattern: RegExp, text: string): boolean | undefined {
  context ??= createContext({}) as { pattern?: RegExp; text?: string };
  script ??= new Script('pattern.test(text)');
  context.pattern = pattern;
  context.text = text;
  try {
    return script.runInContext(context, { timeout: CLOCK_MS }) === true;
  } catch {
    return undefined;
  } finally {
    context.text = '';
  }
}

/** Milliseconds of processor time that this process has had. */
export function processorMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}
