/** Owns the line that tells a person of a call that waits; refuses to scroll the terminal away for a client that asks without end. */
import { escapeHostile } from '../../catalogs/text.ts';
import type { Approval } from './item.ts';

/** Lines in one minute. */
const MAX_LINES = 12;
const WINDOW_MS = 60_000;

/** A listener for new requests that writes one line each: who wants what, which rule asks, and the command that shows it. */
export function createNotice(write: (line: string) => void, now: () => number): (item: Approval) => void {
  let since = -Infinity;
  let lines = 0;
  return ({ id, binding, reasons }) => {
    if (now() - since >= WINDOW_MS) [since, lines] = [now(), 0];
    lines += 1;
    if (lines > MAX_LINES) return;
    const { principal, effect } = binding;
    const rule = reasons[0];
    const more = lines === MAX_LINES ? ' (No more lines for a minute; all of them: tollgate approvals list)' : '';
    write(
      inOneLine(
        `${principal.id} waits for approval of ${effect.server}.${effect.tool}${rule === undefined ? '' : ` (rule ${rule.id}: ${rule.message})`}. Decide: tollgate approvals show ${id}${more}`,
      ),
    );
  };
}

/** Names and messages come from servers and rules, and go to a terminal. */
function inOneLine(text: string): string {
  return escapeHostile(text).text.replace(/\s+/g, ' ');
}
