/** Reads durations and times as they are written on the command line. */
import { TollgateError } from '../../catalogs/errors/error-table.ts';

const UNITS: Readonly<Record<string, number>> = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

function durationOf(text: string): number | undefined {
  const [, count, unit = ''] = /^(\d{1,6})([smhd])$/.exec(text) ?? [];
  return count === undefined ? undefined : Number(count) * (UNITS[unit] ?? 0);
}

/** Returns the milliseconds of `90s`, `10m`, `12h` or `7d`. `option`: its name, for the message. Throws USAGE. */
export function readTime(text: string, option = '--for'): number {
  const duration = durationOf(text);
  if (duration === undefined)
    throw new TollgateError('USAGE', {
      detail: `${option} is not a number followed by s, m, h or d.`,
      next: `Write for example ${option} 10m.`,
    });
  return duration;
}

/** Returns the time, in ms since 1970, of an ISO time or of an age such as `2h` before `now`. Throws USAGE. */
export function readPastTime(text: string, now: number): number {
  const duration = durationOf(text);
  const time = duration === undefined ? Date.parse(text) : now - duration;
  if (Number.isNaN(time))
    throw new TollgateError('USAGE', {
      detail: `${JSON.stringify(text)} is not a time.`,
      next: 'Write 2026-01-31T12:00:00Z, or 30m, 2h, 7d.',
    });
  return time;
}
