/** Tests that edits change only their places, and that refusals say what to do. */
import { chmodSync, statSync } from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { applyEdit, type EditArgs } from '../../adapters/primitives/workspace/text-edit.ts';
import { verifies } from '../verifies.ts';
import { makeBench } from './workspace-harness.ts';

async function edited(text: string, args: EditArgs): Promise<string> {
  const outcome = await applyEdit(text, args);
  if ('refusal' in outcome) throw new Error(outcome.refusal.what);
  return outcome.text;
}

async function refused(text: string, args: EditArgs): Promise<string> {
  const outcome = await applyEdit(text, args);
  if (!('refusal' in outcome)) throw new Error(`changed to ${outcome.text}`);
  return `${outcome.refusal.what}\n${outcome.refusal.next}`;
}

describe('applyEdit', () => {
  it('replaces one place, and inserts replacement patterns such as $& literally', async () => {
    expect(await edited('a foo b', { old_string: 'foo', new_string: '$& $1 $`' })).toBe('a $& $1 $` b');
    expect(await edited('a foo b', { old_string: ' foo', new_string: '' })).toBe('a b');
  });

  it('refuses two places and names their lines, unless replace_all or line is given', async () => {
    const text = 'foo\nx\nfoo\ny\nfoo\n';
    expect(await refused(text, { old_string: 'foo', new_string: 'bar' })).toContain(
      '3 times, starting on lines 1, 3, 5',
    );
    expect(await edited(text, { old_string: 'foo', new_string: 'bar', replace_all: true })).toBe(
      'bar\nx\nbar\ny\nbar\n',
    );
    expect(await edited(text, { old_string: 'foo', new_string: 'bar', line: 4_000 })).toBe('foo\nx\nfoo\ny\nbar\n');
    expect(await refused(text, { old_string: 'foo', new_string: 'bar', line: 2 })).toContain('equally near to line 2');
    expect(await refused(text, { old_string: 'foo', new_string: 'bar', line: 2, replace_all: true })).toContain(
      'cannot be used together',
    );
  });

  it('names at most twenty of many lines', async () => {
    expect(await refused('foo\n'.repeat(30), { old_string: 'foo', new_string: 'bar' })).toContain(
      '30 times, starting on lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, …',
    );
  });

  it('counts overlapping places, and replaces them without overlap', async () => {
    expect(await refused('aaa', { old_string: 'aa', new_string: 'b' })).toContain('2 times');
    expect(await edited('aaaa', { old_string: 'aa', new_string: 'b', replace_all: true })).toBe('bb');
  });

  it('refuses an empty old_string, equal texts, and edits that change nothing', async () => {
    expect(await refused('a', { old_string: '', new_string: 'b' })).toContain('use write');
    expect(await refused('a', { old_string: 'a', new_string: 'a' })).toContain('the same');
    expect(await refused('a\r\nb\r\n', { old_string: 'a\nb', new_string: 'a\r\nb' })).toContain('change nothing');
  });

  it('keeps the line ends of the place: CRLF, mixed, LF', async () => {
    expect(await edited('a\r\nb\r\nc\r\n', { old_string: 'a\nb', new_string: 'x\ny\nz' })).toBe('x\r\ny\r\nz\r\nc\r\n');
    expect(await edited('a\r\nb\r\nc\r\n', { old_string: 'b', new_string: 'x\ny' })).toBe('a\r\nx\r\ny\r\nc\r\n');
    expect(await edited('a\nb\nc\r\n', { old_string: 'a\nb', new_string: 'x\ny' })).toBe('x\ny\nc\r\n');
    expect(await edited('a\nb\n', { old_string: 'a\r\nb', new_string: 'x\r\ny' })).toBe('x\ny\n');
    expect(await edited('(a)\r\nb.*\r\n', { old_string: '(a)\nb.*', new_string: 'x' })).toBe('x\r\n');
  });

  it('keeps the byte order mark and a missing final newline', async () => {
    expect(await edited('\ufeffone\ntwo', { old_string: 'one', new_string: 'uno' })).toBe('\ufeffuno\ntwo');
    expect(await edited('one\ntwo', { old_string: 'two', new_string: 'dos' })).toBe('one\ndos');
  });

  it.each([
    ['1: a\n2: b', '1: x\n2: y'],
    ['  9\ta\n 10\tb\n', '  9\tx\n 10\ty\n'],
    ['4 | a\n5 | b', 'x\ny'],
    ['7→a\n8→b', 'x\ny'],
  ])('takes pasted line numbers off (%j)', async (old_string, new_string) => {
    const outcome = await applyEdit('a\nb\n', { old_string, new_string });
    expect(outcome).toMatchObject({ text: 'x\ny\n', notes: [expect.stringContaining('line numbers')] });
  });

  it('removes line numbers only if all lines have consecutive ones and the file does not contain them', async () => {
    expect(await refused('a\nb\n', { old_string: '1: a\nb', new_string: 'x' })).toContain('does not occur');
    expect(await refused('a\nb\n', { old_string: '1: a\n5: b', new_string: 'x' })).toContain('does not occur');
    expect(await edited('1: a\na\n', { old_string: '1: a', new_string: '1: b' })).toBe('1: b\na\n');
    expect(await refused('a\n\n\n', { old_string: '1: \n2: ', new_string: 'x' })).toContain('does not occur');
  });

  it('does not match text with other white space, but shows the place', async () => {
    const text = `${'x\n'.repeat(10)}def f():\n    a = 1\n    b = 2\n    return a\n`;
    const refusal = await refused(text, { old_string: 'a = 1\nb = 2', new_string: 'a = 9' });
    expect(refusal).toContain('Nothing was changed');
    expect(refusal).toContain('lines 10-14:\nx\ndef f():\n    a = 1\n    b = 2\n    return a');
  });

  it('shows at most three places and 2 KB, and says when no text is similar', async () => {
    const text = Array.from({ length: 200 }, (_, at) => `const value${at} = compute(${'long '.repeat(60)}${at});`).join(
      '\n',
    );
    const refusal = await refused(text, { old_string: 'const value = compute(long long);', new_string: 'x' });
    expect(refusal.match(/^lines /gm)?.length ?? 0).toBeLessThanOrEqual(3);
    expect(refusal.length).toBeLessThan(2200);
    expect(await refused('alpha\n', { old_string: 'zzzz', new_string: 'x' })).toContain('no text is similar to it');
    expect(await refused('alpha\n', { old_string: '\n\n', new_string: 'x' })).toContain('no text is similar to it');
  });

  it('applies edits in order, each to the result of the previous one, all or none', async () => {
    const args = {
      old_string: 'a',
      new_string: 'bb\nbb',
      edits: [
        { old_string: 'c', new_string: 'd' },
        { old_string: 'bb\nbb', new_string: 'e' },
      ],
    };
    const outcome = await applyEdit('a\nc\n', args);
    expect(outcome).toMatchObject({ text: 'e\nd\n' });
    expect(await refused('a\nc\n', { ...args, edits: [{ old_string: 'zz', new_string: 'd' }] })).toContain(
      'Edit 2 of 2, nothing was changed',
    );
    expect(
      await refused('a b', { old_string: 'a', new_string: 'b', edits: [{ old_string: 'b b', new_string: 'a b' }] }),
    ).toContain('change nothing');
  });

  it('reports places at their final position, also after later edits before them', async () => {
    const outcome = await applyEdit('1\n2\n3\n', {
      old_string: '3',
      new_string: 'three',
      edits: [{ old_string: '1', new_string: 'one\nuno' }],
    });
    if ('refusal' in outcome) throw new Error(outcome.refusal.what);
    expect(outcome.places.map((place) => outcome.text.slice(place.start, place.end))).toEqual(['one\nuno', 'three']);
  });

  it('keeps everything outside the place, byte for byte' + verifies('DC-03'), async () => {
    const piece = fc.string({ unit: fc.constantFrom('a', 'b', '\n', '\r\n', ' ', '\ufeff', '😀', '1: ') });
    await fc.assert(
      fc.asyncProperty(piece, piece, piece, async (before, after, replacement) => {
        const text = `${before}<<OLD>>${after}`;
        if (replacement.includes('\n')) return;
        expect(await edited(text, { old_string: '<<OLD>>', new_string: replacement })).toBe(
          before + replacement + after,
        );
      }),
    );
    await fc.assert(
      fc.asyncProperty(piece, piece, async (text, old_string) => {
        const outcome = await applyEdit(text, { old_string, new_string: '<<NEW>>' });
        if ('refusal' in outcome) return;
        const [place] = outcome.places;
        expect(outcome.text.slice(0, place?.start)).toBe(text.slice(0, place?.start));
        expect(text.endsWith(outcome.text.slice(place?.end))).toBe(true);
      }),
    );
  });
});

describe('edit on files', () => {
  it('returns path, lines, context and version, and keeps mode and line ends' + verifies('DC-03'), async () => {
    const bench = makeBench({ 'src/x.py': 'one\r\ntwo\r\nthree\r\nfour\r\nfive\r\nsix\r\nseven\r\n' });
    chmodSync(path.join(bench.root, 'src/x.py'), 0o750);
    const answer = await bench.text('edit', { path: 'src/x.py', old_string: 'five', new_string: 'FIVE' });
    expect(answer).toMatch(
      /^Edited src\/x\.py, line 5 \(1 place\)\. Version [0-9a-f]{12}\.\n@@ from line 2\ntwo\nthree\nfour\nFIVE\nsix\nseven\n/,
    );
    expect(bench.get('src/x.py').toString()).toBe('one\r\ntwo\r\nthree\r\nfour\r\nFIVE\r\nsix\r\nseven\r\n');
    expect(statSync(path.join(bench.root, 'src/x.py')).mode & 0o777).toBe(0o750);
  });

  it('shows distant places separately, close ones together, and at most 2 KB', async () => {
    const bench = makeBench({
      f: Array.from({ length: 400 }, (_, at) => (at % 40 === 0 ? 'here' : `line ${at}`)).join('\n'),
    });
    const answer = await bench.text('edit', { path: 'f', old_string: 'here', new_string: 'there', replace_all: true });
    expect(answer).toContain('lines 1, 41, 81, 121, 161, 201, 241, 281, 321, 361 (10 places)');
    expect(answer).toContain('@@ from line 38\n');
    await bench.text('edit', {
      path: 'f',
      old_string: 'line',
      new_string: `${'long '.repeat(40)}line`,
      replace_all: true,
    });
    expect(
      (await bench.text('edit', { path: 'f', old_string: 'long', new_string: 'lang', replace_all: true })).length,
    ).toBeLessThan(2500);
  });

  it('refuses a file that is missing, binary, not UTF-8, a folder, or changed since it was seen', async () => {
    const bench = makeBench({
      bin: Buffer.from([1, 0, 2]),
      latin: Buffer.from([0x61, 0xe9, 0x62]),
      f: 'one\n',
      'd/x': '',
    });
    const change = { old_string: 'a', new_string: 'b' };
    expect(await bench.failure('edit', { path: 'none', ...change })).toContain('does not exist');
    expect(await bench.failure('edit', { path: 'bin', ...change })).toContain('not UTF-8');
    expect(await bench.failure('edit', { path: 'latin', ...change })).toContain('not UTF-8');
    expect(await bench.failure('edit', { path: 'd', ...change })).toContain('is a directory');
    await bench.text('read', { path: 'f' });
    bench.put('f', 'one and more\n');
    expect(await bench.failure('edit', { path: 'f', old_string: 'one', new_string: 'two' })).toContain(
      'has changed since you saw it',
    );
    await bench.text('read', { path: 'f' });
    await bench.text('edit', { path: 'f', old_string: 'one', new_string: 'two' });
    expect(bench.get('f').toString()).toBe('two and more\n');
  });

  it('is allowed without a read, because the match is the check', async () => {
    const bench = makeBench({ f: 'one\n' });
    await bench.text('edit', { path: 'f', old_string: 'one', new_string: 'two' });
    await bench.text('edit', { path: 'f', old_string: 'two', new_string: 'three' });
    expect(
      await bench.failure('edit', { path: 'f', old_string: 'three', new_string: 'x', version: 'other' }),
    ).toContain('not other');
    expect(await bench.failure('edit', { path: 'f', old_string: 'nothing', new_string: 'x' })).toContain(
      'f: old_string does not occur',
    );
  });

  it('keeps both of two concurrent edits of one file' + verifies('CY-18'), async () => {
    const bench = makeBench({ f: Array.from({ length: 20 }, (_, at) => `<${at}>`).join('\n') });
    await Promise.all(
      Array.from({ length: 20 }, (_, at) =>
        bench.text('edit', { path: 'f', old_string: `<${at}>`, new_string: `[${at}]` }),
      ),
    );
    expect(bench.get('f').toString()).toBe(Array.from({ length: 20 }, (_, at) => `[${at}]`).join('\n'));
  });
});
