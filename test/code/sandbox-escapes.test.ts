/** Tests that no program leaves the sandbox for code or breaks it: escape-attempts.ts. */
import { afterAll, describe, expect, it } from 'vitest';
import { verifies } from '../verifies.ts';
import { ESCAPE_ATTEMPTS } from './escape-attempts.ts';
import { closeShared, MODULES, runCode, valueOfCode } from './sandbox-runs.ts';

afterAll(closeShared);

const names = (...all: string[]) => all.map((name) => ({ name, json: false }));

/** Modules with names that mean something to JavaScript or to people's eyes, and one name twice. */
const STRANGE = [
  ...MODULES,
  {
    name: 'host:\u202e__proto__',
    functions: names('constructor', '\u202e\u00e9', '__proto__', 'then', 'default', '__esModule'),
  },
  { name: 'host:tollgate', functions: names('other') },
];

describe('an attempt to escape', () => {
  it.each(ESCAPE_ATTEMPTS)(
    'fails, and the next program runs: $name' + verifies('CM-18', 'CM-22'),
    async ({ code, expected }) => {
      const outcome = await runCode(code, {
        modules: STRANGE,
        args: '{}',
        limits: { timeMs: 1_000, memoryBytes: 20_000_000 },
      });
      const told =
        outcome.kind === 'failed' ? outcome.message : outcome.kind === 'returned' ? outcome.value : outcome.kind;
      if (expected instanceof RegExp) expect(told).toMatch(expected);
      else expect(JSON.parse(told ?? 'null')).toEqual(expected);
      expect(`${outcome.printed}${told}`).not.toMatch(/root:|node:internal|\/work\/|\.cjs/);
      expect(await valueOfCode('return [1, 2].map((n) => n * 2)')).toEqual([2, 4]);
    },
  );
});
