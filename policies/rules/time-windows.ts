/** Time windows of rules: compiles them to minutes of the week, and reads the clock of a time zone. */

import type { Refuse, RuleCondition } from './argument-tests.ts';
import { suggest } from './policy-problems.ts';

/** `time` of a rule. Without `days`: every day. Without `from` and `to`: the whole day. */
export interface TimeWindow {
  /** `mon` … `sun`, and ranges such as `mon-fri`. */
  readonly days?: readonly string[];
  /** `HH:MM`, inclusive. */
  readonly from?: string;
  /** `HH:MM`, exclusive; `24:00` is the end of the day. If it is before `from`, the window ends on the next day. */
  readonly to?: string;
  /** IANA name: `Europe/Berlin`. */
  readonly zone: string;
}

const DAYS = ['mon', 'tue', 'wed', 'thu', 'fri', 'sat', 'sun'] as const;
const DAY = 24 * 60;
const WEEK = 7 * DAY;

/**
 * Compiles a window to the condition of lib/facts.rego: spans of minutes since Monday 00:00 as the zone's clock shows
 * them. When clocks change, 02:30 is in a window whenever the clock shows 02:30, so no hour is skipped or counted
 * twice.
 */
export function compileTime(window: TimeWindow, refuse: Refuse): RuleCondition {
  const { zone } = window;
  if (!isZone(zone))
    refuse(
      ['zone'],
      'there is no time zone ' +
        `"${zone.slice(0, 40)}".${suggest(zone, Intl.supportedValuesOf('timeZone'))} Write a name such ` +
        'as Europe/Berlin, or UTC.',
    );
  const days = [...new Set((window.days ?? ['mon-sun']).flatMap(expandDays))];
  const hours = readHours(window, refuse);
  const spans = merge(days.flatMap((day) => spansOf(day, hours)));
  if (spans[0]?.[0] === 0 && spans[0][1] === WEEK)
    refuse([], 'the window is always open; name days, or hours with `from` and `to`');
  return { zone, spans };
}

/** Returns the clock of each zone at `time` (RFC 3339) in minutes since Monday 00:00. Empty if `time` is not a time. */
export function readClocks(zones: readonly string[], time: string): Readonly<Record<string, number>> {
  const at = Date.parse(time);
  return Number.isNaN(at) ? {} : Object.fromEntries(zones.map((zone) => [zone, minuteOfWeek(zone, at)]));
}

/** Refuses offsets such as +01:00. They are wrong for half of the year where clocks change. */
function isZone(zone: string): boolean {
  if (!/^[A-Za-z]/.test(zone)) return false;
  try {
    formatOf(zone);
    return true;
  } catch (thrown) {
    if (thrown instanceof RangeError) return false;
    throw thrown;
  }
}

/** `fri-mon` continues into the next week. */
function expandDays(entry: string): readonly number[] {
  const [first = '', last = first] = entry.split('-');
  const from = DAYS.indexOf(first as (typeof DAYS)[number]);
  const length = (DAYS.indexOf(last as (typeof DAYS)[number]) - from + 7) % 7;
  return Array.from({ length: length + 1 }, (_, index) => (from + index) % 7);
}

function readHours({ from, to }: TimeWindow, refuse: Refuse): readonly [from: number, to: number] {
  if (from === undefined || to === undefined) {
    if (from !== to) refuse([], '`from` and `to` must be given together; 00:00 is the start of the day, 24:00 its end');
    return [0, DAY];
  }
  const [start, end] = [minutesOf(from), minutesOf(to)];
  if (start === end) refuse(['to'], `a window from ${from} to ${to} is empty; remove both to mean the whole day`);
  return [start, end];
}

function minutesOf(text: string): number {
  const [hours, minutes] = text.split(':').map(Number);
  return (hours ?? 0) * 60 + (minutes ?? 0);
}

function spansOf(day: number, [from, to]: readonly [number, number]): readonly (readonly [number, number])[] {
  const [start, end] = [day * DAY + from, day * DAY + to + (to <= from ? DAY : 0)];
  return end <= WEEK
    ? [[start, end]]
    : [
        [start, WEEK],
        [0, end - WEEK],
      ];
}

function merge(spans: readonly (readonly [number, number])[]): readonly (readonly [number, number])[] {
  const merged: [number, number][] = [];
  for (const [start, end] of [...spans].sort((a, b) => a[0] - b[0])) {
    const last = merged.at(-1);
    if (last !== undefined && start <= last[1]) last[1] = Math.max(last[1], end);
    else merged.push([start, end]);
  }
  return merged;
}

/** Formats by zone: making one is expensive. Only rules name zones, so there are few. */
const formats = new Map<string, Intl.DateTimeFormat>();

function formatOf(zone: string): Intl.DateTimeFormat {
  const known =
    formats.get(zone) ??
    new Intl.DateTimeFormat('en-GB', {
      timeZone: zone,
      weekday: 'short',
      hour: '2-digit',
      minute: '2-digit',
      hourCycle: 'h23',
    });
  formats.set(zone, known);
  return known;
}

function minuteOfWeek(zone: string, at: number): number {
  const parts = new Map(
    formatOf(zone)
      .formatToParts(at)
      .map(({ type, value }) => [type, value]),
  );
  const day = (DAYS as readonly string[]).indexOf(parts.get('weekday')?.toLowerCase() ?? '');
  return day * DAY + Number(parts.get('hour')) * 60 + Number(parts.get('minute'));
}
