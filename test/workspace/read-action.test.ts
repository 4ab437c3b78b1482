/** Tests that pages, lists and facts of files are correct and complete. */
import { execFileSync } from 'node:child_process';
import { appendFileSync, mkdirSync, readdirSync, symlinkSync, truncateSync, utimesSync } from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isIgnored, parseIgnore } from '../../adapters/primitives/search/folder-walk.ts';
import { compileGlob } from '../../adapters/primitives/search/glob-matcher.ts';
import { localDeviceOf, readSmallFile } from '../../adapters/primitives/workspace/file-snapshot.ts';
import { decodeText, headOf, mimeOf } from '../../adapters/primitives/workspace/file-text.ts';
import { openPathHandle } from '../../catalogs/readers/path-handles.ts';
import { firstOf, pageText } from '../../catalogs/text/text-pages.ts';
import { TimeSlices } from '../../catalogs/text/time-slices.ts';
import { verifies } from '../verifies.ts';
import { makeBench, textsOf } from './workspace-harness.ts';

const PNG = Buffer.from('89504e470d0a1a0a0000000d49484452', 'hex');

describe('read file', () => {
  it('returns the exact text without line numbers, and no note if it is complete' + verifies('DC-03'), async () => {
    const text = '\ufeffone\r\ntwo\n\nlast without end';
    const bench = makeBench({ f: text });
    expect(textsOf(await bench.call('read', { path: 'f' }))).toEqual([text]);
    expect(textsOf(await bench.call('read', { path: path.join(bench.root, 'f'), action: 'file' }))).toEqual([text]);
  });

  it('cuts at a line end and names the next call', async () => {
    const bench = makeBench({ 'src/render.py': Array.from({ length: 9172 }, (_, at) => `line ${at + 1}\n`).join('') });
    const [page, note] = textsOf(await bench.call('read', { path: 'src/render.py' }));
    expect(page?.endsWith('line 2000\n')).toBe(true);
    expect(note).toBe(
      `[tollgate: lines 1-2000 of 9172 (${page?.length} B). Next: read path="src/render.py" offset=2001]`,
    );
    expect(textsOf(await bench.call('read', { path: 'src/render.py', offset: -2 }))).toEqual([
      'line 9171\nline 9172\n',
      '[tollgate: lines 9171-9172 of 9172 (20 B).]',
    ]);
    expect(textsOf(await bench.call('read', { path: 'src/render.py', offset: 9000, limit: 1 }))[0]).toBe('line 9000\n');
    expect(textsOf(await bench.call('read', { path: 'src/render.py', offset: -99_999, limit: 1 }))[0]).toBe('line 1\n');
  });

  it('refuses line 0, a limit of 0, and lines past the end, and names the total', async () => {
    const bench = makeBench({ f: 'a\nb\n' });
    await expect(bench.call('read', { path: 'f', offset: 0 })).rejects.toMatchObject({ code: 'ARGS_INVALID' });
    await expect(bench.call('read', { path: 'f', limit: 0 })).rejects.toMatchObject({ code: 'ARGS_INVALID' });
    expect(await bench.failure('read', { path: 'f', offset: 3 })).toContain('there are 2 lines');
    expect(await makeBench({ f: 'a\n' }).failure('read', { path: 'f', offset: 3 })).toContain('there is only one');
  });

  it('reports an empty file', async () => {
    expect(await makeBench({ f: '' }).text('read', { path: 'f' })).toBe('[tollgate: empty, 0 lines]');
  });

  it('returns part of a line that is longer than a page, with the command for the rest', async () => {
    const bench = makeBench({ "it's": `${'é'.repeat(40_000)}\nnext\n` });
    const [page, note] = textsOf(await bench.call('read', { path: "it's" }));
    expect(Buffer.byteLength(page ?? '')).toBe(30_000);
    expect(note).toContain('line 1 of 2, bytes 1-30000 of 80001');
    expect(note).toContain('Lines after it: offset=2');
    const command = JSON.parse(/command=("(?:[^"\\]|\\.)*")/.exec(note ?? '')?.[1] ?? '""') as string;
    expect(await bench.text('bash', { command })).toBe('é'.repeat(15_000));
    expect(pageText('x'.repeat(40_000), {}, 'spill://k').note).toContain('read action="search" path="spill://k"');
    expect(pageText(`${'é'.repeat(14_999)}x${'é'.repeat(20_000)}`, {}, 'f').text.endsWith('éx')).toBe(true);
  });

  it('refuses binary files and names their type, and returns small images as images', async () => {
    const bench = makeBench({
      'a.txt': Buffer.from('ab\0cd'),
      'doc.pdf': '%PDF-1.7',
      'i.png': PNG,
      'big.png': Buffer.concat([PNG, Buffer.alloc(1024 * 1024)]),
      'u16.txt': Buffer.from('\ufeffhi', 'utf16le'),
    });
    expect(await bench.failure('read', { path: 'a.txt' })).toContain(
      'a.txt: 5 bytes, application/octet-stream: binary',
    );
    expect(await bench.failure('read', { path: 'doc.pdf' })).toContain('application/pdf');
    expect(await bench.failure('read', { path: 'u16.txt' })).toContain('utf-16le');
    expect(await bench.failure('read', { path: 'big.png' })).toContain('images above');
    const image = await bench.call('read', { path: 'i.png' });
    expect(image.content?.[0]).toEqual({ type: 'image', data: PNG.toString('base64'), mimeType: 'image/png' });
    expect(mimeOf(Buffer.from('RIFFxxxxWEBPVP8 '))).toBe('image/webp');
  });

  it('reports bytes that are not UTF-8, and shows them as U+FFFD', async () => {
    const bench = makeBench({ latin: Buffer.from([0x61, 0xe9, 0x0a]) });
    expect(textsOf(await bench.call('read', { path: 'latin' }))).toEqual([
      'a\ufffd\n',
      expect.stringContaining('not valid UTF-8'),
    ]);
    expect(decodeText(Buffer.from('ok'))).toEqual({ text: 'ok' });
    expect(headOf('a😀', 2)).toBe('a');
  });

  it('reads at once only small files on the device of the workspace', () => {
    const { root } = makeBench({ f: 'text', growing: 'a', most: 'x'.repeat(65_536), large: 'x'.repeat(65_537) });
    execFileSync('mkfifo', [path.join(root, 'pipe')]);
    mkdirSync(path.join(root, 'folder'));
    const readAs = (name: string, offset = 0n, meanwhile = (): void => undefined): string | undefined => {
      const handle = openPathHandle([root], name);
      meanwhile();
      const found = readSmallFile(handle, (handle.stat?.dev ?? 0n) + offset);
      handle.close();
      return found?.toString();
    };
    const open = readdirSync('/proc/self/fd').length;
    expect(readAs('f')).toBe('text');
    expect(readAs('most')?.length).toBe(65_536);
    expect(readAs('f', 1n)).toBeUndefined();
    for (const name of ['large', 'pipe', 'folder', 'missing', '../w2/none']) expect(readAs(name)).toBeUndefined();
    expect(readAs('growing', 0n, () => appendFileSync(path.join(root, 'growing'), 'b'))).toBeUndefined();
    expect(readAs('growing', 0n, () => truncateSync(path.join(root, 'growing')))).toBe('');
    expect(readdirSync('/proc/self/fd').length).toBe(open);
    expect(localDeviceOf('/proc')).toBeUndefined();
    expect(localDeviceOf(path.join(root, 'missing'))).toBeUndefined();
  });

  it('refuses a folder, a missing file, and a file over 16 MiB', async () => {
    const bench = makeBench({ 'd/x': '', huge: '' });
    truncateSync(path.join(bench.root, 'huge'), 65 * 1024 * 1024);
    expect(await bench.failure('read', { path: 'd' })).toContain('List it: read action="list" path="d"');
    expect(await bench.failure('read', { path: 'd/none' })).toContain('Look for it: read action="list" path="d"');
    expect(await bench.failure('read', { path: 'd/x/y' })).toContain('not a directory');
    expect(await bench.failure('read', { path: 'huge' })).toContain('at most 16777216');
    expect(await bench.text('read', { action: 'stat', path: 'huge' })).toContain('version: t');
  });

  it('returns the whole file over its pages', () => {
    const text = fc
      .array(fc.string({ unit: fc.constantFrom('a', 'é', '\n', '\r\n', '\r'), maxLength: 30 }))
      .map((parts) => parts.join(''));
    fc.assert(
      fc.property(text, fc.integer({ min: 1, max: 7 }), (whole, limit) => {
        let joined = '';
        let offset = 1;
        for (let total = 1; offset <= total; ) {
          const page = pageText(whole, { offset, limit }, 'f');
          joined += page.text;
          total = page.total;
          offset = page.to + 1;
        }
        expect(joined).toBe(whole);
      }),
    );
    const long = Array.from({ length: 500 }, (_, at) => 'x'.repeat(at)).join('\n');
    const first = pageText(long, {}, 'f');
    expect(first.text + pageText(long, { offset: first.to + 1, limit: 2000 }, 'f').text).toBe(
      long.slice(0, first.text.length + pageText(long, { offset: first.to + 1 }, 'f').text.length),
    );
    expect(firstOf({}, 0)).toBe(1);
  });
});

describe('read list, find and stat', () => {
  const files = {
    'b.ts': '',
    'a.ts': '',
    '.env': '',
    'src/x.ts': '',
    'src/deep/y.ts': '',
    'build/out.js': '',
    '.gitignore': 'build/\n*.log\n!keep.log\n',
    'x.log': '',
    'keep.log': '',
  };

  it('list one level in order, folders with a slash, symlinks with @' + verifies('CY-05'), async () => {
    const bench = makeBench(files);
    symlinkSync('a.ts', path.join(bench.root, 'z'));
    expect(await bench.text('read', { action: 'list', path: '.' })).toBe('a.ts\nb.ts\nkeep.log\nsrc/\nz@');
    expect(await bench.text('read', { action: 'list', path: '.', depth: 2 })).toBe(
      'a.ts\nb.ts\nkeep.log\nsrc/\nsrc/deep/\nsrc/x.ts\nz@',
    );
    expect(await bench.text('read', { action: 'list', path: 'src', depth: 9 })).toBe('deep/\ndeep/y.ts\nx.ts');
    expect((await bench.text('read', { action: 'list', path: '.', hidden: true })).split('\n')).toEqual([
      '.env',
      '.gitignore',
      'a.ts',
      'b.ts',
      'build/',
      'keep.log',
      'src/',
      'x.log',
      'z@',
    ]);
  });

  it('return pages of entries and the total', async () => {
    const bench = makeBench(
      Object.fromEntries(Array.from({ length: 12 }, (_, at) => [`f${String(at).padStart(2, '0')}`, ''])),
    );
    expect(await bench.text('read', { action: 'list', path: '.', limit: 2, offset: 3 })).toBe(
      'f02\nf03\n[tollgate: entries 3-4 of 12. Next: read action="list" path="." offset=5]',
    );
    expect(await bench.text('read', { action: 'list', path: '.', offset: -1 })).toBe(
      'f11\n[tollgate: entries 12-12 of 12.]',
    );
    expect(await bench.text('read', { action: 'find', path: '.', pattern: 'f1*', limit: 1 })).toContain(
      'Next: read action="find" path="." pattern="f1*" offset=2',
    );
    expect(await bench.failure('read', { action: 'list', path: '.', offset: 99 })).toContain('there are 12 entries');
  });

  it('find by glob, with paths relative to the workspace' + verifies('CY-05'), async () => {
    const bench = makeBench(files);
    expect(await bench.text('read', { action: 'find', path: '.', pattern: '*.ts' })).toBe(
      'a.ts\nb.ts\nsrc/deep/y.ts\nsrc/x.ts',
    );
    expect(await bench.text('read', { action: 'find', path: '.', pattern: 'src/**/*.ts' })).toBe(
      'src/deep/y.ts\nsrc/x.ts',
    );
    expect(await bench.text('read', { action: 'find', path: 'src', pattern: 'deep/*' })).toBe('src/deep/y.ts');
    expect(await bench.text('read', { action: 'find', path: '.', pattern: '*.none' })).toBe(
      '[tollgate: no file matches]',
    );
    await expect(bench.call('read', { action: 'find', path: '.' })).rejects.toMatchObject({ code: 'ARGS_INVALID' });
  });

  it('report an empty folder, and refuse a file and a depth of 0', async () => {
    const bench = makeBench(files);
    mkdirSync(path.join(bench.root, 'empty'));
    expect(await bench.text('read', { action: 'list', path: 'empty' })).toBe('[tollgate: no entries]');
    expect(await bench.failure('read', { action: 'list', path: 'a.ts' })).toContain('not a directory');
    await expect(bench.call('read', { action: 'list', path: '.', depth: 0 })).rejects.toMatchObject({
      code: 'ARGS_INVALID',
    });
  });

  it('return kind, size, mode, time, version and lines for stat' + verifies('CY-05'), async () => {
    const bench = makeBench({ f: 'a\nb', bin: Buffer.from([0]) });
    utimesSync(path.join(bench.root, 'f'), new Date(0), new Date(1_000_000_000_000));
    expect(await bench.text('read', { action: 'stat', path: 'f' })).toMatch(
      /^path: f\nkind: file\nsize: 3\nmode: 0\d{3}\nmodified: 2001-09-09T01:46:40\.000Z\nversion: [0-9a-f]{12}\nlines: 2$/,
    );
    expect(await bench.text('read', { action: 'stat', path: 'bin' })).toContain('type: application/octet-stream');
    expect(await bench.text('read', { action: 'stat', path: '.' })).toContain('kind: directory');
    await bench.text('bash', { command: 'mkfifo p' });
    expect(await bench.text('read', { action: 'stat', path: 'p' })).toContain('kind: other');
  });
});

describe('globs and ignore rules', () => {
  it.each([
    ['*.ts', 'src/a.ts', true],
    ['*.ts', 'a.tsx', false],
    ['src/*.ts', 'src/deep/a.ts', false],
    ['src/**/*.ts', 'src/a.ts', true],
    ['**/a', 'a', true],
    ['**/a', 'x/y/a', true],
    ['**/a', 'xa', false],
    ['src/**', 'src/a/b', true],
    ['src/**', 'src', false],
    ['?', 'a', true],
    ['?', '/', false],
    ['[a-c]x', 'bx', true],
    ['[!a-c]x', 'bx', false],
    ['[!a-c]x', 'dx', true],
    ['[]]', ']', true],
    ['[ab', '[ab', true],
    ['{a,b/{c,d}}.md', 'b/d.md', true],
    ['{a,b}.md', 'c.md', false],
    ['{a}', '{a}', true],
    ['\\*', '*', true],
    ['\\*', 'a', false],
    ['./a', 'a', true],
    ['a**b', 'axxb', true],
    ['a**/b', 'ax/b', true],
    ['a**/b', 'axb', false],
    ['a**/b', 'ax/y/b', false],
    ['😀?', '😀a', true],
    ['**', 'a/b', true],
  ])('%s on %s: %s', (glob, name, matches) => {
    expect(compileGlob(glob)(name)).toBe(matches);
  });

  it('match in linear time, and too many braces are refused', () => {
    expect(compileGlob(`${'*a'.repeat(200)}b`)('a'.repeat(250))).toBe(false);
    expect(compileGlob(`x/${'**/'.repeat(100)}b`)('x/' + 'a/'.repeat(100))).toBe(false);
    expect(() => compileGlob('{a,b}'.repeat(7))).toThrow('alternatives');
    expect(() => compileGlob('a'.repeat(1001))).toThrow('too long');
    expect(() => compileGlob(`${'a*'.repeat(100)}${'{b,c}'.repeat(6)}`)).toThrow('too long');
  });

  it('apply .gitignore as git does, below its own folder', async () => {
    const rules = parseIgnore(
      '# note\n\n/top\nlib/\n*.o  \n!keep.o\ndoc/*.txt\n{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}\n',
      'sub',
    );
    const ignored = (name: string, folder = false): Promise<boolean> =>
      isIgnored(rules, { path: name, isFolder: folder }, new TimeSlices());
    expect(
      await Promise.all([
        ignored('sub/top'),
        ignored('sub/x/top'),
        ignored('sub/x/lib', true),
        ignored('sub/lib'),
        ignored('sub/a.o'),
        ignored('sub/keep.o'),
        ignored('sub/doc/a.txt'),
        ignored('sub/x/doc/a.txt'),
        ignored('top'),
        ignored('a.o'),
      ]),
    ).toEqual([true, false, true, false, true, false, true, false, false, false]);
  });
});
