/** Names the test files of a part of `npm run test:all`: those of which `npm test` runs only a part, or nothing. */
import { readdirSync } from 'node:fs';
import path from 'node:path';
import { closureOf } from './test-imports.ts';

const ROOT = path.join(import.meta.dirname, '..', '..');
const TESTS = path.join(ROOT, 'test');
const SLICES = path.join(import.meta.dirname, 'slices.ts');

/**
 * Returns the files of the part that TOLLGATE_TESTS names, such as `1/3`, from the root; undefined if it names no part.
 * Throws if it names anything but a part or `all`.
 */
export function filesInFull(tests = process.env.TOLLGATE_TESTS): string[] | undefined {
  if (tests === undefined || tests === 'all') return undefined;
  const [, part, parts] = /^([1-9])\/([1-9])$/.exec(tests) ?? [];
  if (part === undefined || Number(part) > Number(parts))
    throw new Error(`TOLLGATE_TESTS is "all", or a part such as "1/3": not ${JSON.stringify(tests)}`);
  return dividedFiles().filter((_, index) => index % Number(parts) === Number(part) - 1);
}

/** Returns the test files that import slices.ts, themselves or through others, and NAME.full.test.ts, sorted. */
export function dividedFiles(): string[] {
  return readdirSync(TESTS, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.test.ts') && !/(^|\/)(node_modules|servers)\//.test(name))
    .map((name) => path.join(TESTS, name))
    .filter((file) => file.endsWith('.full.test.ts') || closureOf([file], TESTS).has(SLICES))
    .map((file) => path.relative(ROOT, file))
    .sort();
}
