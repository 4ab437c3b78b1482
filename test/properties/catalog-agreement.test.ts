/**
 * Tests that list and call agree on a few small catalogs. `npm run test:corpora` tests real catalogs, with 100,000
 * calls.
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import { type Catalog, compareListAndCall } from './catalog-comparison.ts';

const CASES = roundsOf(3000, 600);
const catalogs = JSON.parse(
  readFileSync(path.join(import.meta.dirname, '../fixtures/catalogs.json'), 'utf8'),
) as readonly Catalog[];

it('never calls a hidden tool and never denies a tool listed as always, over small catalogs' +
  verifies('CY-11', 'CY-16'), async () => {
  const { always, maybe, never } = await compareListAndCall(catalogs, { cases: CASES, rounds: roundsOf(6, 3) });
  expect(always + maybe + never).toBe(CASES);
}, 60_000);
