/** Tests list and call against each other over a few catalogs of our own; `npm run test:corpora` does it over real ones, with 100,000 calls. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { verifies } from '../verifies.ts';
import { type Catalog, compareListAndCall } from './catalog-comparison.ts';

const CASES = 3000;
const catalogs = JSON.parse(
  readFileSync(path.join(import.meta.dirname, '../fixtures/catalogs.json'), 'utf8'),
) as readonly Catalog[];

it('over small catalogs no hidden tool is callable and no tool listed always is denied' +
  verifies('CY-11', 'CY-16'), async () => {
  const { always, maybe, never } = await compareListAndCall(catalogs, { cases: CASES, rounds: 6 });
  expect(always + maybe + never).toBe(CASES);
}, 60_000);
