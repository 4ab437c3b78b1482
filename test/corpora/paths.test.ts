/** Tests the resolution of paths with the recorded path attacks. Each case has the expected answer. */
import { mkdirSync, mkdtempSync, realpathSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { locate } from '../../catalogs/readers/path-location.ts';
import { verifies } from '../verifies.ts';
import { readCases, requireKnown } from './corpus.ts';

/** `policy`: the path is inside, and only a rule may refuse it. */
type Verdict = 'allow' | 'deny' | 'policy';

interface PathCase {
  readonly id: string;
  readonly allowed: readonly string[];
  readonly path: string;
  readonly expected: Verdict;
  readonly note: string;
}

interface ArgumentCase {
  readonly id: string;
  readonly kind: string;
  readonly root: string;
  readonly arguments: Readonly<Record<string, unknown>>;
  readonly expected: Verdict;
  readonly note: string;
}

/** Creates the symlink of a case: `link-to-NAME` leads to `/NAME`. */
function withLinks(test: PathCase): PathCase {
  const link = /\/(link-to-(\w+))/.exec(test.path);
  const root = test.allowed[0];
  if (link === null || root === undefined) return test;
  const made = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-paths-')));
  mkdirSync(path.join(made, root), { recursive: true });
  symlinkSync(`/${link[2]}`, path.join(made, root, link[1] ?? ''));
  return { ...test, allowed: test.allowed.map((entry) => path.join(made, entry)), path: path.join(made, test.path) };
}

describe('path attacks of the corpus', () => {
  const cases = readCases<PathCase>('attacks/path_cases.json', ['allowed', 'path', 'expected', 'note']);
  requireKnown('attacks/path_cases.json', cases, { field: 'expected', known: ['allow', 'deny', 'policy'] });
  for (const given of cases) {
    it(`${given.id} ${given.note}: ${given.expected}${verifies('CY-18')}`, () => {
      const test = withLinks(given);
      expect(locate(test.allowed, test.path).inside).toBe(test.expected !== 'deny');
    });
  }
});

describe('argument cases about paths', () => {
  const cases = readCases<ArgumentCase>('attacks/argument_cases.json', ['kind', 'expected', 'note']).filter(
    (test) => test.kind === 'path',
  );
  it('are in the corpus', () => expect(cases).not.toEqual([]));
  for (const test of cases) {
    it(`${test.id} ${test.note}: ${test.expected}${verifies('CY-18')}`, () => {
      const paths = Object.values(test.arguments).filter((value) => typeof value === 'string');
      expect(paths.every((raw) => locate([test.root], raw).inside)).toBe(test.expected !== 'deny');
    });
  }
});
