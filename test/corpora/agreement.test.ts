/** Tests list and call against each other over the real catalogs: 100,000 calls with arguments made from the tools' own schemas. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { compareListAndCall, type Catalog } from '../properties/catalogs.ts';
import { verifies } from '../verifies.ts';

const CASES = 100_000;
const corpora = process.env['TOLLGATE_CORPORA'] ?? path.resolve(import.meta.dirname, '../../../shared/corpora');
const catalogs = readdirSync(path.join(corpora, 'catalogs')).filter((name) => name.endsWith('.json')).map((file): Catalog => {
  const text = readFileSync(path.join(corpora, 'catalogs', file), 'utf8').replaceAll('{{+}}', '');
  return { server: file.replace(/\.json$/, '').toLowerCase().replace(/[^a-z0-9]+/g, '-'), tools: (JSON.parse(text) as Pick<Catalog, 'tools'>).tools };
});

it('over the real catalogs no hidden tool is callable and no tool listed always is denied, in 100,000 calls' + verifies('CY-11', 'CY-16'), async () => {
  const { always, maybe, never } = await compareListAndCall(catalogs, { cases: CASES, rounds: 10 });
  expect(always + maybe + never).toBe(CASES);
  expect(Math.min(always, maybe, never), JSON.stringify({ always, maybe, never })).toBeGreaterThan(1000);
}, 300_000);
