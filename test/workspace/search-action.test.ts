/** Tests that both search engines find the same lines, and that no search runs without end. */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { SearchHits } from '../../adapters/primitives/search/search-hits.ts';
import { findHelper, type HelperSettings, useHelpers } from '../../catalogs/programs/helper-programs.ts';
import { verifies } from '../verifies.ts';
import { type Bench, makeOwnedBench } from './workspace-harness.ts';

const FROM_SERVERS = path.resolve(
  'test/servers/node_modules/@vscode',
  `ripgrep-${process.platform}-${process.arch}`,
  'bin',
  'rg',
);

/** The ripgrep of the system, else that of a test server. */
function ripgrepHere(): HelperSettings['programs'] {
  if (findHelper('rg') !== undefined) return {};
  if (!existsSync(FROM_SERVERS)) throw new Error('these tests need ripgrep: apt-get install ripgrep');
  return { rg: FROM_SERVERS };
}

const ENGINES: readonly (readonly [string, () => HelperSettings['programs']])[] = [
  ['ripgrep', ripgrepHere],
  ['our own scan', () => ({ rg: '/nonexistent/rg' })],
];

afterEach(() => useHelpers({ programs: {}, writable: [] }));

const FILES = {
  'a.txt': 'Needle one\nhay\nneedle two\r\n',
  'src/b.ts': 'x\nconst needle = 1;\ny\n',
  'src/deep/c.ts': 'a.b*c needle\n',
  '.hidden': 'needle hidden\n',
  'build/out.js': 'needle built\n',
  '.gitignore': 'build/\n',
  'src/.gitignore': 'gen.ts\n',
  'src/gen.ts': 'needle generated\n',
  'bin.dat': Buffer.from('needle\0needle\n'),
};

async function found(bench: Bench, args: Readonly<Record<string, unknown>>): Promise<readonly string[]> {
  return (await bench.text('read', { action: 'search', path: '.', ...args })).split('\n');
}

describe.each(ENGINES)('search with %s', (_engine, programs) => {
  const bench = (files: Readonly<Record<string, string | Buffer>> = FILES): Bench => {
    useHelpers({ programs: programs(), writable: [] });
    return makeOwnedBench(files);
  };

  it('returns path:line:text, without hidden, ignored and binary files' + verifies('CY-05'), async () => {
    expect(await found(bench(), { pattern: 'needle' })).toEqual([
      'a.txt:3:needle two',
      'src/b.ts:2:const needle = 1;',
      'src/deep/c.ts:1:a.b*c needle',
    ]);
  });

  it('supports case, plain text, globs, hidden files, a folder and a file', async () => {
    const w = bench();
    expect(await found(w, { pattern: 'NEEDLE', ignore_case: true, glob: '*.txt' })).toEqual([
      'a.txt:1:Needle one',
      'a.txt:3:needle two',
    ]);
    expect(await found(w, { pattern: '(?i)^NEEDLE one$' })).toEqual(['a.txt:1:Needle one']);
    expect(await found(w, { pattern: 'a.b*c', literal: true })).toEqual(['src/deep/c.ts:1:a.b*c needle']);
    expect(await found(w, { pattern: 'needle', glob: 'src/**/*.ts' })).toEqual([
      'src/b.ts:2:const needle = 1;',
      'src/deep/c.ts:1:a.b*c needle',
    ]);
    expect(await found(w, { pattern: 'needle \\w+d', hidden: true })).toEqual([
      '.hidden:1:needle hidden',
      'src/gen.ts:1:needle generated',
    ]);
    expect(await found(w, { pattern: 'needle', path: 'src/deep' })).toEqual(['src/deep/c.ts:1:a.b*c needle']);
    expect(await found(w, { pattern: 'needle', path: 'src' })).toEqual([
      'src/b.ts:2:const needle = 1;',
      'src/deep/c.ts:1:a.b*c needle',
    ]);
    expect(await found(w, { pattern: 'needle', path: 'src/gen.ts' })).toEqual(['src/gen.ts:1:needle generated']);
    expect(await found(w, { pattern: 'two$', path: 'a.txt', glob: '*.ts' })).toEqual(['a.txt:3:needle two']);
    expect(await found(w, { pattern: 'nothing' })).toEqual(['[tollgate: no match]']);
    expect(await w.failure('read', { action: 'search', path: 'none', pattern: 'x' })).toContain('does not exist');
  });

  it('shows context lines, and separates groups', async () => {
    const w = bench({ f: '1\n2\nhit\n4\n5\n6\n7\nhit\nhit\n', g: 'hit\n' });
    expect(await found(w, { pattern: 'hit', context: 1 })).toEqual([
      'f-2-2',
      'f:3:hit',
      'f-4-4',
      '--',
      'f-7-7',
      'f:8:hit',
      'f:9:hit',
      '--',
      'g:1:hit',
    ]);
    expect(await found(w, { pattern: 'hit', context: 1, limit: 1, offset: 4 })).toEqual([
      'g:1:hit',
      '[tollgate: matches 4-4 of 4.]',
    ]);
  });

  it('returns 100 matches with the total, and continues at an offset' + verifies('CY-05'), async () => {
    const w = bench({ f: 'hit\n'.repeat(250) });
    const first = await found(w, { pattern: 'hit' });
    expect(first).toHaveLength(101);
    expect(first.at(-1)).toBe(
      '[tollgate: matches 1-100 of 250. Narrow with glob or path, or continue with offset=101]',
    );
    expect((await found(w, { pattern: 'hit', offset: 201 })).slice(-2)).toEqual([
      'f:250:hit',
      '[tollgate: matches 201-250 of 250.]',
    ]);
    expect(await w.failure('read', { action: 'search', path: '.', pattern: 'hit', offset: 251 })).toContain(
      'there are 250 matches',
    );
  });

  it('cuts lines at 500 characters and the list at 5000 matches', async () => {
    const w = bench({ long: `${'y'.repeat(700)}\n`, many: 'hit\n'.repeat(9000) });
    expect(await found(w, { pattern: 'yy' })).toEqual([`long:1:${'y'.repeat(500)}…[+200 chars]`]);
    expect((await found(w, { pattern: 'hit', limit: 1 })).at(-1)).toMatch(
      /^\[tollgate: matches 1-1 of more than 5000; ended after the first matches\./,
    );
  });

  it('searches files that are not UTF-8', async () => {
    const w = bench({ latin: Buffer.from('needle \xe9\n', 'latin1') });
    expect(await found(w, { pattern: 'needle' })).toEqual(['latin:1:needle \ufffd']);
    expect(await found(w, { pattern: 'needle', path: 'latin' })).toEqual(['latin:1:needle \ufffd']);
  });

  it.each([
    { pattern: '(' },
    { pattern: '' },
    {},
    { pattern: 'a\nb' },
    { pattern: 'a', context: -1 },
    { pattern: 'a', context: 51 },
    { pattern: 'a', offset: 0 },
  ])('refuses %j', async (args) => {
    await expect(
      bench().call('read', {
        action: 'search',
        path: '.',
        ...args,
        ...('offset' in args ? { pattern: 'needle' } : {}),
      }),
    ).rejects.toMatchObject({ code: 'ARGS_INVALID' });
  });

  it('redos: stops a pattern that takes exponential time', async () => {
    const w = bench({ f: `${'a'.repeat(40)}!\n` });
    const outcome = await found(w, { pattern: '(a+)+$' }).catch((error: { code: string }) => [error.code]);
    expect([['ARGS_INVALID'], ['[tollgate: no match]']]).toContainEqual(outcome);
  });

  it('ends when the call is cancelled, and when its time limit is reached', async () => {
    const w = bench(Object.fromEntries(Array.from({ length: 300 }, (__, at) => [`d${at}/f`, 'hay\n'.repeat(50)])));
    await expect(
      w.call('read', { action: 'search', path: '.', pattern: 'hay' }, { signal: AbortSignal.abort() }),
    ).rejects.toMatchObject({ code: 'CANCELLED' });
    const soon = new AbortController();
    const cancelled = w.call('read', { action: 'search', path: '.', pattern: 'hay' }, { signal: soon.signal });
    setTimeout(() => soon.abort(), 3);
    await expect(cancelled).rejects.toMatchObject({ code: 'CANCELLED' });
    await expect(
      w.call('read', { action: 'search', path: '.', pattern: 'hay' }, { timeoutMs: 1 }),
    ).rejects.toMatchObject({ code: 'TOOL_TIMEOUT' });
  });
});

it('a search without a match reports that it ended early', () => {
  const hits = new SearchHits();
  hits.ended = 'ended after 20 s';
  expect(hits.page({}, 0).content?.[0]?.text).toBe('[tollgate: no match; ended after 20 s]');
  hits.add({ path: 'f', line: 1, text: 'x', matches: true });
  expect(hits.page({}, 0).content?.[1]?.text).toBe('[tollgate: matches 1-1 of more than 1; ended after 20 s.]');
});
