/** Owns the comparison of a transcript with what a command really prints; refuses a line that is not there, or not in its place. */
import { expect } from 'vitest';

/** A line `…` of the page stands for any lines; every other line follows the one before it. */
export function expectLike(shown: readonly string[], page: readonly string[]): void {
  let at = 0;
  let isOpen = false;
  for (const line of page) {
    const found = line === '…' ? at : isOpen ? shown.indexOf(line, at) : shown[at] === line ? at : -1;
    expect(found, `"${line}" does not follow in:\n${shown.slice(at).join('\n')}`).toBeGreaterThanOrEqual(0);
    at = line === '…' ? at : found + 1;
    isOpen = line === '…';
  }
  if (!isOpen) expect(shown.slice(at)).toEqual([]);
}
