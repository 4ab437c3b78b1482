/** Declares tests that `npm test` leaves out. They belong to the divided files, because this file imports slices.ts. */
import { describe, it } from 'vitest';
import { RUNS_ALL } from './slices.ts';

const none = () => undefined;
const unregistered = Object.assign(none, { each: () => none, for: () => none, skipIf: () => unregistered });

/**
 * Declares a test, or a table of tests, that runs in `npm run test:all` only: it takes seconds, and cheaper tests of
 * `npm test` prove nearly the same.
 */
export const inFull = (RUNS_ALL ? it : unregistered) as typeof it;

/** Declares a group of tests, as `inFull`. */
export const groupInFull = (RUNS_ALL ? describe : unregistered) as typeof describe;
