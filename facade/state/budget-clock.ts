/** The clocks by which budgets are counted. A window must not depend on a clock that someone can set. */
import { readFileSync } from 'node:fs';

/** One moment by two clocks, ms. `monotonic` can only be compared within one boot of the machine. */
export interface Instant {
  /** Since 1970. A user can set this clock. */
  readonly wall: number;
  /** Since a fixed moment of this boot. */
  readonly monotonic: number;
  /** Identifies the boot; '' if the system does not tell. */
  readonly boot: string;
}

const BOOT = readBoot();
/** The monotonic time at which `performance.now()` was 0. */
const ORIGIN = Number(process.hrtime.bigint() / 1_000n) / 1_000 - performance.now();

/** Returns the present moment. All processes of a machine share both clocks. */
export function instant(): Instant {
  return { wall: Date.now(), monotonic: Math.round(ORIGIN + performance.now()), boot: BOOT };
}

/** Returns the ms between two moments. Over a reboot it uses the wall clock, and returns 0 if that was set back. */
export function elapsed(from: Instant, to: Instant): number {
  return Math.max(0, isSameBoot(from, to) ? to.monotonic - from.monotonic : to.wall - from.wall);
}

/**
 * Returns whether the monotonic clocks of two moments can be compared. If the system does not identify boots, a smaller
 * value shows a reboot.
 */
export function isSameBoot(from: Instant, to: Instant): boolean {
  return from.boot === to.boot && (from.boot !== '' || to.monotonic >= from.monotonic);
}

function readBoot(): string {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim();
  } catch {
    return '';
  }
}
