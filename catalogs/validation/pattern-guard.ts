/** Runs regular expressions of servers. Those that may take exponential time run with a time limit. */
import { createHash } from 'node:crypto';
import { createContext, Script } from 'node:vm';
import { isScriptTimeout, runWithinMs, threadMs } from '../text/thread-clock.ts';

/** Milliseconds of processor time that all guarded expressions together may take for one value. */
const LIMIT_MS = 200;
/** Up to this length, even a bad expression ends soon. */
const SHORT_CHARS = 12;

/** A guarded pattern. Validators get it as a format with this name. */
export interface GuardedPattern {
  readonly format: string;
  test(text: string): boolean;
}

let spentMs = 0;
let context: { pattern?: RegExp; text?: string } | undefined;
let script: Script | undefined;

/**
 * Returns a guarded test for a pattern; undefined if it does not compile, also without the flag `u`. A match that
 * exceeds the time limit counts as no match, so the value is refused.
 */
export function guardPattern(source: string): GuardedPattern | undefined {
  const pattern = compile(source);
  if (pattern === undefined) return undefined;
  const format = `pattern-${createHash('sha256').update(source).digest('hex').slice(0, 24)}`;
  return {
    format,
    test: (text) => (text.length <= SHORT_CHARS ? pattern.test(text) : matchWithinLimit(pattern, text)),
  };
}

/** Returns true if a pattern needs no guard: it compiles with the flag `u` and runs in linear time. */
export function isPlain(source: string): boolean {
  try {
    new RegExp(source, 'u');
  } catch {
    return false;
  }
  // A bound of three digits costs as much as no bound.
  const unbounded = source.match(/(?:[*+]|\{\d*,(?:\d{3,})?\}|\{\d{3,}\})/g)?.length ?? 0;
  // One unbounded repetition after an anchor is linear. Repeated groups, back references and lookaround may not be.
  return (
    !/\)(?:[*+]|\{\d+(?:,\d*)?\})|\\[1-9k]|\(\?[=!<]/.test(source) &&
    (unbounded === 0 || (unbounded === 1 && source.startsWith('^')))
  );
}

function compile(source: string): RegExp | undefined {
  for (const flags of ['u', '']) {
    try {
      return new RegExp(source, flags);
    } catch {
      // Many servers escape characters that must not be escaped with the flag `u`.
    }
  }
  return undefined;
}

/** Resets the time limit. Call it once for every value that is checked. */
export function resetPatternClock(): void {
  spentMs = 0;
}

function matchWithinLimit(pattern: RegExp, text: string): boolean {
  // The limit is for the whole value: otherwise a list of a thousand texts could take a thousand times as long.
  if (spentMs >= LIMIT_MS) return false;
  context ??= createContext({}) as { pattern?: RegExp; text?: string };
  script ??= new Script('pattern.test(text)');
  const [guarded, compiled] = [context, script];
  Object.assign(guarded, { pattern, text });
  const began = threadMs();
  try {
    return runWithinMs(LIMIT_MS - spentMs, (timeout) => compiled.runInContext(guarded, { timeout }) === true);
  } catch (thrown) {
    // The clock may be late, and nothing more may be tried for this value.
    if (isScriptTimeout(thrown)) spentMs = LIMIT_MS;
    return false;
  } finally {
    spentMs += threadMs() - began;
    guarded.text = '';
  }
}
