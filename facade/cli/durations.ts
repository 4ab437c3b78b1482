/** Owns how lengths of time are written on the command line: a number with s, m, h or d behind it; refuses all else. */
import { TollgateError } from '../../catalogs/errors/error-table.ts';

const UNITS: Readonly<Record<string, number>> = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Milliseconds of `90s`, `10m`, `12h`, `7d`. Throws USAGE. */
export function readTime(text: string): number {
  const [, count, unit = ''] = /^(\d{1,6})([smhd])$/.exec(text) ?? [];
  if (count === undefined)
    throw new TollgateError('USAGE', {
      detail: '--for is a number with s, m, h or d behind it.',
      next: 'Write for example --for 10m.',
    });
  return Number(count) * (UNITS[unit] ?? 0);
}
