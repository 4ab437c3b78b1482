/** The clocks by which budgets are counted. A window must not follow a clock that somebody sets. */
import { readFileSync } from 'node:fs';

/** One moment by two clocks, ms. `monotonic` is only comparable within one boot of the machine. */
export interface Instant {
  /** Since 1970; somebody can set this clock. */
  readonly wall: number;
  /** Since some moment of this boot. */
  readonly monotonic: number;
  /** Names the boot; '' where the system does not tell. */
  readonly boot: string;
}

const BOOT = readBoot();

/** Now. All processes of a machine share both clocks. */
export function instant(): Instant {
  return { wall: Date.now(), monotonic: Math.round(Number(process.hrtime.bigint() / 1_000n) / 1_000), boot: BOOT };
}

/**
 * Milliseconds from one moment to another. Over a reboot only the clock that can be set is left; if it was set back meanwhile,
 * nothing has passed.
 */
export function elapsed(from: Instant, to: Instant): number {
  return Math.max(0, isSameBoot(from, to) ? to.monotonic - from.monotonic : to.wall - from.wall);
}

/** Whether the monotonic clock of two moments can be compared. Where the system names no boot, a clock that began again tells. */
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
