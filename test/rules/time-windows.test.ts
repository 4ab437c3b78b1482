/** Compares time windows with Intl, minute by minute: a compiled window must agree with the clock of its zone. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { compileTime, readClocks, type TimeWindow } from '../../policies/rules/time-windows.ts';
import { roundsOf } from '../harness/slices.ts';

const DAYS = ['mon', 'tue', 'wed', 'thu', 'fri', 'sat', 'sun'] as const;
const ZONES = [
  'UTC',
  'Europe/Berlin',
  'America/New_York',
  'Asia/Kolkata',
  'Asia/Kathmandu',
  'Australia/Lord_Howe',
  'Pacific/Apia',
  'America/St_Johns',
  'Africa/Casablanca',
  'Pacific/Kiritimati',
] as const;

const twoDigits = (number: number): string => String(number).padStart(2, '0');
const clockTimes = fc
  .tuple(fc.integer({ min: 0, max: 23 }), fc.integer({ min: 0, max: 59 }))
  .map(([hour, minute]) => `${twoDigits(hour)}:${twoDigits(minute)}`);
const dayLists = fc.uniqueArray(fc.constantFrom(...DAYS), { minLength: 1, maxLength: 5 });
const windows = fc
  .record({ days: dayLists, from: clockTimes, to: clockTimes, zone: fc.constantFrom(...ZONES) })
  .filter(({ from, to }) => from !== to);
/** Times, many of them near the nights when clocks change, in both hemispheres. */
const moments = fc.oneof(
  fc
    .date({ min: new Date('2020-01-01'), max: new Date('2035-12-31'), noInvalidDate: true })
    .map((date) => date.getTime()),
  fc
    .tuple(
      fc.constantFrom(
        '2026-03-29T01:00:00Z',
        '2026-10-25T01:00:00Z',
        '2026-03-08T07:00:00Z',
        '2026-11-01T06:00:00Z',
        '2026-04-04T15:00:00Z',
        '2026-10-03T15:30:00Z',
      ),
      fc.integer({ min: -180, max: 180 }),
    )
    .map(([at, minutes]) => Date.parse(at) + minutes * 60_000),
);

/** Returns the local time, computed in another way than the code does. */
function wall(zone: string, at: number): { readonly day: string; readonly time: string } {
  const day = new Intl.DateTimeFormat('en-US', { timeZone: zone, weekday: 'long' })
    .format(at)
    .slice(0, 3)
    .toLowerCase();
  const time = new Date(at).toLocaleTimeString('sv-SE', { timeZone: zone, hour: '2-digit', minute: '2-digit' });
  return { day, time };
}

/** The meaning of a window: a simple implementation. */
function isOpen({ days = DAYS, from = '00:00', to = '24:00', zone }: TimeWindow, at: number): boolean {
  const { day, time } = wall(zone, at);
  const before = DAYS[(DAYS.indexOf(day as (typeof DAYS)[number]) + 6) % 7] ?? '';
  if (from < to) return days.includes(day) && time >= from && time < to;
  return (days.includes(day) && time >= from) || (days.includes(before) && time < to);
}

function isOpenCompiled(window: TimeWindow, at: number): boolean {
  const { zone, spans } = compileTime(window, (_path, message) => {
    throw new Error(message);
  }) as unknown as { zone: string; spans: readonly (readonly [number, number])[] };
  const minute = readClocks([zone], new Date(at).toISOString())[zone] ?? -1;
  return spans.some(([start, end]) => start <= minute && minute < end);
}

describe('time windows', () => {
  it('are open by the clock of their zone, also over midnight and when clocks change', () => {
    fc.assert(
      fc.property(windows, moments, (window, at) => {
        expect([window, new Date(at).toISOString(), isOpenCompiled(window, at)]).toEqual([
          window,
          new Date(at).toISOString(),
          isOpen(window, at),
        ]);
      }),
      { numRuns: roundsOf(3000, 300) },
    );
  });

  it('may cover whole days, and end at the end of the day', () => {
    fc.assert(
      fc.property(dayLists, fc.constantFrom(...ZONES), clockTimes, moments, (days, zone, from, at) => {
        expect(isOpenCompiled({ days, zone }, at)).toBe(isOpen({ days, zone }, at));
        expect(isOpenCompiled({ days, from, to: '24:00', zone }, at)).toBe(
          isOpen({ days, from, to: '24:00', zone }, at),
        );
      }),
      { numRuns: roundsOf(500, 100) },
    );
  });

  it('have ranges of days, also over the end of the week', () => {
    for (const first of DAYS)
      for (const last of DAYS) {
        const [from, to] = [DAYS.indexOf(first), DAYS.indexOf(last)];
        const days = [...DAYS, ...DAYS].slice(from, (to < from ? to + 7 : to) + 1);
        if (days.length === 7) continue;
        const zone = 'UTC';
        expect([first, last, compileTime({ days: [`${first}-${last}`], zone }, () => undefined)]).toEqual([
          first,
          last,
          compileTime({ days, zone }, () => undefined),
        ]);
      }
  });

  it('have no clock for an invalid time', () => {
    expect([readClocks(['UTC'], ''), readClocks(['UTC'], 'now'), readClocks([], '2026-01-01T00:00:00Z')]).toEqual([
      {},
      {},
      {},
    ]);
  });
});
