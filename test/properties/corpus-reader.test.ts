/** Tests the reader of the corpora: it reads any folder of the same layout, and fails for files without cases. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { readCases, readCatalogs, requireKnown } from '../corpora/corpus.ts';
import { verifies } from '../verifies.ts';

describe('a folder of cases' + verifies('TR-67'), () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-corpus-'));
  const write = (file: string, value: unknown): void =>
    writeFileSync(path.join(folder, file), typeof value === 'string' ? value : JSON.stringify(value));
  beforeEach(() => {
    vi.stubEnv('TOLLGATE_CORPORA', folder);
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(path.join(folder, 'catalogs'), { recursive: true });
  });
  afterAll(() => {
    vi.unstubAllEnvs();
    rmSync(folder, { recursive: true, force: true });
  });

  it('is read with any ids, order and number, and its marks are removed', () => {
    write('a.json', '{"cases":[{"id":"zz","expected":"de{{+}}ny"},{"id":"b","expected":"allow","more":1}]}');
    expect(readCases<{ id: string; expected: string }>('a.json', ['expected']).map(({ expected }) => expected)).toEqual(
      ['deny', 'allow'],
    );
    write('b.json', [{ id: 'only', expected: 'allow' }]);
    expect(readCases<{ id: string; expected: string }>('b.json', ['expected'])).toHaveLength(1);
  });

  it.each([
    ['no cases', { cases: [] }, 'a.json: no cases'],
    ['no list', {}, 'a.json: no cases'],
    ['an empty list', [], 'a.json: no cases'],
    ['no JSON', '{', 'a.json: not readable as JSON'],
    ['null', 'null', 'a.json: no cases'],
    ['a case that is no object', [1], 'a.json: case 0 is no object'],
    ['a case without an id', [{ expected: 'deny' }], 'a.json: case 0 has no id'],
    ['a case without its verdict', [{ id: 'x' }], 'a.json: case x has no expected'],
    [
      'an id twice',
      [
        { id: 'x', expected: 'deny' },
        { id: 'x', expected: 'deny' },
      ],
      'a.json: two cases have the id x',
    ],
  ])('fails with %s, and says so', (_what, value, says) => {
    write('a.json', value);
    expect(() => readCases<{ id: string; expected: string }>('a.json', ['expected'])).toThrow(says);
  });

  it('fails with a kind that no test judges, and says so', () => {
    expect(() => requireKnown('a.json', [{ id: 'x', kind: 'odd' }], { field: 'kind', known: ['path'] })).toThrow(
      'a.json: case x has the kind "odd", which no test judges; known are path',
    );
  });

  it('fails without catalogs, or with one that lists nothing, and says so', () => {
    expect(() => readCatalogs()).toThrow('catalogs: no cases');
    write('catalogs/x.json', { tools: [] });
    expect(() => readCatalogs()).toThrow('catalogs/x.json: no cases');
    write('catalogs/x.json', { tools: [{ name: 'a' }] });
    expect(() => readCatalogs()).toThrow('catalogs/x.json: tool 0 has no name or no inputSchema');
    write('catalogs/x.json', { tools: [{ name: 'a', inputSchema: { type: 'object' } }] });
    expect([...readCatalogs()]).toEqual([['s-x', [{ name: 'a', inputSchema: { type: 'object' } }]]]);
  });
});
