import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { BUILTINS } from '../../policies/engine/wasm/builtins.ts';
import { findOpa, runOpa } from '../../policies/rego/opa-program.ts';
import { scratch } from './policy-fixture.ts';

const MOMENT = { time: '2026-02-03T04:05:06.789Z' };
const call = (name: string, ...args: readonly unknown[]): unknown => {
  const text = BUILTINS.get(name)?.(args, MOMENT);
  return text === undefined ? undefined : JSON.parse(text);
};

/** Whole seconds, whose nanoseconds a double represents exactly. */
const NS = 1_770_091_506_000_000_000;

/** Calls whose result must equal that of opa. */
const CALLS: readonly (readonly [name: string, ...args: unknown[]])[] = [
  ['sprintf', '%s is %d of %v, 100%%', ['a', 3, 'b']],
  ['sprintf', '%v %v %v %v', [{ b: 1, a: ['x', 2.5] }, ['x', 1], true, null]],
  ['sprintf', 'plain', []],
  ['strings.any_prefix_match', 'abc', ['x', 'ab']],
  ['strings.any_prefix_match', ['abc', 'd'], 'd'],
  ['strings.any_prefix_match', [], 'd'],
  ['strings.any_suffix_match', 'abc', 'bc'],
  ['strings.any_suffix_match', ['abc'], ['x']],
  ['crypto.sha256', 'é'],
  ['time.parse_rfc3339_ns', '2026-02-03T04:05:06Z'],
  ['time.parse_rfc3339_ns', '2026-02-03T04:05:06+02:00'],
  ['time.parse_rfc3339_ns', '1960-01-01T00:00:00Z'],
  ['time.clock', NS],
  ['time.clock', [NS, 'Europe/Berlin']],
  ['time.clock', [NS, '']],
  ['time.clock', [NS, 'America/New_York']],
  ['time.date', NS],
  ['time.date', [NS, 'Pacific/Auckland']],
  ['time.weekday', NS],
  ['time.weekday', [NS, 'America/Los_Angeles']],
];

describe('built-in functions', () => {
  it('give the same results as those of opa', async () => {
    const folder = scratch();
    const rules = CALLS.map(
      ([name, ...args], index) => `answers[${index}] := ${name}(${args.map((arg) => JSON.stringify(arg)).join(', ')})`,
    );
    writeFileSync(path.join(folder, 'a.rego'), ['package a', ...rules].join('\n\n'));
    const opa = await findOpa();
    const run = await runOpa(
      opa,
      [
        'eval',
        ...opa.flags,
        '-d',
        'a.rego',
        '--format',
        'raw',
        '[answer | some i in numbers.range(0, count(data.a.answers) - 1); answer := data.a.answers[i]]',
      ],
      folder,
    );
    const answers = JSON.parse(run.stdout) as readonly unknown[];
    expect(answers).toHaveLength(CALLS.length);
    for (const [index, [name, ...args]] of CALLS.entries())
      expect([name, args, call(name, ...args)]).toEqual([name, args, answers[index]]);
  });

  it('use the time of the call as the clock; without it there is no time', () => {
    expect(BUILTINS.get('time.now_ns')?.([], MOMENT)).toBe('1770091506789000000');
    expect(BUILTINS.get('time.now_ns')?.([], { time: '' })).toBeUndefined();
  });

  it.each([
    ['sprintf', 1, []],
    ['sprintf', 'a', 'b'],
    ['crypto.sha256', 5],
    ['time.parse_rfc3339_ns', 'yesterday'],
    ['time.parse_rfc3339_ns', '2026-02-30'],
    ['time.parse_rfc3339_ns', 7],
    ['time.clock', 'noon'],
    ['time.clock', [NS, 'Mars/Olympus']],
    ['time.date', [NS, 5]],
    ['time.weekday', [NS, 'Local']],
  ] as const)('have no result, as in opa, for %s(%j, %j)', (name, ...args) => {
    expect(call(name, ...args)).toBeUndefined();
  });

  it.each([
    ['sprintf', '%q', ['a']],
    ['sprintf', '%5d', [1]],
    ['sprintf', '%d', ['x']],
    ['sprintf', '%d', [1.5]],
    ['sprintf', '%s', [5]],
    ['sprintf', '%s %s', ['one']],
    ['sprintf', '%s', ['a', 'b']],
    ['sprintf', '%', []],
    ['strings.any_prefix_match', 5, 'a'],
    ['strings.any_suffix_match', ['a', 1], 'a'],
  ] as const)('throw rather than answer differently from opa: %s(%j, %j)', (name, ...args) => {
    expect(() => call(name, ...args)).toThrow(TypeError);
  });
});
