/** Compares a transcript of a page with what a command prints. A missing or misplaced line fails. */
import { expect } from 'vitest';

/** A line `…` of the page matches any lines. Every other line must directly follow the line before it. */
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
