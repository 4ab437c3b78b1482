/** Tests the traceability of requirements (HE-12): each row that is not pending is cited, each citation names a row. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import config from '../vitest.config.ts';
import { verifies } from './verifies.ts';

interface Row {
  readonly id: string;
  readonly by: string;
  readonly text: string;
  readonly pending?: string;
}

const rows = parse(readFileSync(path.join(import.meta.dirname, 'requirements.yaml'), 'utf8')) as Row[];

function citations(): Map<string, string[]> {
  const found = new Map<string, string[]>();
  const files = readdirSync(import.meta.dirname, { recursive: true, encoding: 'utf8' }).filter(
    (name) => /\.(test\.ts|suite\.ts|yaml)$/.test(name) && !name.startsWith('servers') && name !== 'requirements.yaml',
  );
  for (const file of files) {
    const text = readFileSync(path.join(import.meta.dirname, file), 'utf8');
    for (const call of text.matchAll(/verifies(?:\(([^)]*)\)|: \[([^\]]*)\])/g)) {
      for (const [id] of (call[1] ?? call[2] ?? '').matchAll(/[A-Z]{2}-[A-Z]?\d{2,3}/g))
        found.set(id, [...(found.get(id) ?? []), file]);
    }
  }
  return found;
}

describe('the requirements', () => {
  const cited = citations();

  it('are all cited by a test, or pending with a reason' + verifies('HE-12'), () => {
    const open = rows.filter((row) => row.pending === undefined && !cited.has(row.id)).map((row) => row.id);
    expect(open).toEqual([]);
    for (const row of rows) if (row.pending !== undefined) expect(row.pending.length, row.id).toBeGreaterThan(10);
  });

  it('are checked with a coverage of 85 % of lines and branches' + verifies('HE-12'), () => {
    const thresholds = config.test?.coverage?.thresholds as
      | { readonly lines?: number; readonly branches?: number }
      | undefined;
    expect([thresholds?.lines ?? 0, thresholds?.branches ?? 0].filter((share) => share < 85)).toEqual([]);
  });

  it('have ids that every citation can name, each once', () => {
    const ids = new Map(rows.map((row) => [row.id, row]));
    expect([...cited.keys()].filter((id) => !ids.has(id))).toEqual([]);
    expect(new Set(rows.map((row) => row.id)).size).toBe(rows.length);
  });
});
