/** Tests that lists and calls agree over the real catalogs, with forty calls for each tool made from its schema. */
import { expect, it } from 'vitest';
import { type Catalog, compareListAndCall } from '../properties/catalog-comparison.ts';
import { verifies } from '../verifies.ts';
import { listAll, readCatalogs } from './corpus.ts';

const read = readCatalogs();
const CASES = Math.min(100_000, Math.max(2000, 40 * listAll(read).length));
const catalogs = [...read].map(([server, tools]): Catalog => ({ server, tools }));

it(`hides no tool that can be called and denies no tool listed as always, in ${CASES} calls over the real catalogs` +
  verifies('CY-11', 'CY-16'), async () => {
  const { always, maybe, never } = await compareListAndCall(catalogs, { cases: CASES, rounds: 10 });
  expect(always + maybe + never).toBe(CASES);
  expect(Math.min(always, maybe, never), JSON.stringify({ always, maybe, never })).toBeGreaterThan(CASES / 200);
}, 300_000);
