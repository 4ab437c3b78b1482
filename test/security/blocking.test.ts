/**
 * Tests attacks that keep the process busy: one call must not block the others, whatever a client or a server sends.
 */

import { spawn, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it, type MockInstance, vi } from 'vitest';
import { SearchHits } from '../../adapters/primitives/search/search-hits.ts';
import { applyEdit, type EditArgs } from '../../adapters/primitives/workspace/text-edit.ts';
import { parseJsonDoc, readMessage } from '../../adapters/rpc/message-parser.ts';
import { readFolderEntries } from '../../adapters/sandbox/closed-paths/folder-entries.ts';
import { digestStartFile } from '../../adapters/stdio/file-digests.ts';
import { digestPlaces } from '../../adapters/stdio/start-places.ts';
import { findNamedFiles } from '../../adapters/stdio/start-words.ts';
import { CallPathHandles } from '../../catalogs/readers/path-handles.ts';
import { escapeHostile } from '../../catalogs/text/hostile-text.ts';
import { TimeSlices } from '../../catalogs/text/time-slices.ts';
import { createValidator } from '../../catalogs/validation/validator.ts';
import { effectOf } from '../../facade/call/lowering/call-effect.ts';
import { Redactor } from '../../facade/output/redactor.ts';
import { cleanResult } from '../../facade/output/result-cleaning.ts';
import { TOOL_FORM } from '../../facade/output/result-forms.ts';
import { cutStructuredContent } from '../../facade/output/structured-cut.ts';
import { cpuMs, limitNow, THREE_ATTEMPTS, tooFast } from '../bench/growth.ts';
import { inFull } from '../harness/full-tests.ts';
import { partOf, roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import { makeBench, textsOf } from '../workspace/workspace-harness.ts';

afterEach(() => vi.restoreAllMocks());

/** Ends every time slice at once, because a real clock depends on the machine. Returns a counter of the slices. */
function alwaysDue(): MockInstance<TimeSlices['rest']> {
  vi.spyOn(TimeSlices.prototype, 'isDue', 'get').mockReturnValue(true);
  return vi.spyOn(TimeSlices.prototype, 'rest');
}

describe('an edit with many matches' + verifies('TR-40'), () => {
  const lines = (size: number): string => 'a\n'.repeat(size);
  const attacks: readonly (readonly [string, (size: number) => readonly [string, EditArgs]])[] = [
    ['all of them replaced', (size: number) => [lines(size), { old_string: 'a', new_string: 'bc', replace_all: true }]],
    ['none chosen', (size: number) => [lines(size), { old_string: 'a', new_string: 'b' }]],
    ['one chosen by its line', (size: number) => [lines(size), { old_string: 'a', new_string: 'b', line: 3 }]],
    [
      'other line ends',
      (size: number) => ['a\r\n'.repeat(size), { old_string: 'a\na', new_string: 'b', replace_all: true }],
    ],
    [
      'two replacements, the second before the first',
      (size: number) => [
        'ab\n'.repeat(size),
        {
          old_string: 'b',
          new_string: 'c',
          replace_all: true,
          edits: [{ old_string: 'a', new_string: 'aa', replace_all: true }],
        },
      ],
    ],
    [
      'a long text that nearly occurs everywhere',
      (size: number) => [
        'a'.repeat(size * 8),
        { old_string: `${'a'.repeat(size)}b${'a'.repeat(size)}`, new_string: 'b' },
      ],
    ],
    [
      'places that overlap',
      (size: number) => ['a'.repeat(size * 2), { old_string: 'a'.repeat(size), new_string: 'b' }],
    ],
  ];
  it.each(attacks)('takes linear time: %s', async (_name, make) => {
    expect(await tooFast({ make, run: ([text, args]) => applyEdit(text, args) })).toBeUndefined();
  });

  it('is answered at once for a file of a megabyte, with the number of matches', async () => {
    const bench = makeBench({ 'a.txt': 'a\n'.repeat(500_000) });
    const began = cpuMs();
    const answer = await bench.text('edit', { path: 'a.txt', old_string: 'a', new_string: 'b', replace_all: true });
    const took = cpuMs() - began;
    expect(took).toBeLessThan(limitNow(took, 5_000));
    expect(answer).toContain('(500000 places)');
  });

  it('lets other work run between edits, and ends with its call', async () => {
    const text = Array.from({ length: 2_000 }, (_, at) => `${at};${'x'.repeat(500)}`).join('\n');
    const few = roundsOf(300, 30);
    const edits = Array.from({ length: 1_999 }, (_, at) => ({
      old_string: `\n${at + 1};`,
      new_string: `\n${at + 1}:`,
    }));
    const turns = alwaysDue();
    expect(
      await applyEdit(text, { old_string: '0;', new_string: '0:', edits: edits.slice(0, few), line: 1 }),
    ).toMatchObject({ count: few + 1 });
    expect(turns.mock.calls.length).toBeGreaterThan(few);
    vi.restoreAllMocks();
    await expect(
      applyEdit(text, { old_string: '0;', new_string: '0:', edits, line: 1 }, AbortSignal.timeout(20)),
    ).rejects.toThrow();
  });

  it('is refused if it needs more memory than a file may have', async () => {
    expect(
      await applyEdit('a'.repeat(1_000_000), { old_string: 'a', new_string: 'b'.repeat(1_000), replace_all: true }),
    ).toMatchObject({ refusal: { what: expect.stringContaining('would have 1000000000 characters') } });
    expect(
      await applyEdit('a'.repeat(1_000_001), { old_string: 'a', new_string: 'b', replace_all: true }),
    ).toMatchObject({ refusal: { what: expect.stringContaining('more than 1000000 times') } });
  });
});

describe('uniqueItems in arguments and results' + verifies('TR-40'), () => {
  const list = { type: 'object', properties: { l: { type: 'array', uniqueItems: true } } };
  const items: readonly (readonly [string, (at: number) => unknown])[] = [
    ['numbers', (at) => at],
    ['texts', (at) => `item ${at}`],
    ['objects', (at) => ({ id: at, name: 'n' })],
    ['lists', (at) => [1, 2, [at]]],
  ];
  for (const as of ['input', 'output'] as const) {
    inFull.each(as === 'input' ? items : partOf(items, 1))(
      `is judged in linear time (${as}): %s`,
      async (_name, item) => {
        const { check } = createValidator(structuredClone(list), as);
        const make = (size: number): unknown => ({ l: Array.from({ length: size }, (_, at) => item(at)) });
        expect(check(make(1_000))).toEqual([]);
        expect(await tooFast({ make, run: check })).toBeUndefined();
        expect(check({ l: [...(make(20_000) as { l: unknown[] }).l, item(7)] })).toMatchObject([
          { path: 'l', message: 'must not contain the same item twice' },
        ]);
      },
    );
  }

  it('compares items as JSON does, whatever the order of keys, and next to texts that look like objects', () => {
    const { check } = createValidator(structuredClone(list));
    const many = Array.from({ length: 400 }, (_, at) => `x${at}`);
    expect(check({ l: [...many, { a: 1, b: [2] }, { b: [2], a: 1 }] })).toHaveLength(1);
    expect(check({ l: [...many, { a: 1 }, '{"a":1}', '{}{"a":1}', 1, '1', '"1', null, 'null', true] })).toEqual([]);
    expect(check({ l: [...many, 0, -0] })).toHaveLength(1);
  });

  inFull('is limited in a schema whose branches refer to itself', () => {
    const twice = { $ref: '#/$defs/n' };
    const { check } = createValidator({
      type: 'object',
      properties: { x: twice },
      $defs: { n: { properties: { x: { allOf: [twice, twice] } } } },
    });
    let value: unknown = {};
    for (let depth = 0; depth < 50; depth += 1) value = { x: value };
    const began = cpuMs();
    expect(check(value)).toMatchObject([{ message: expect.stringContaining('cannot be checked') }]);
    const took = cpuMs() - began;
    expect(took).toBeLessThan(limitNow(took, 4_000));
  });
});

describe('structuredContent with many keys' + verifies('TR-40'), () => {
  const keys = (size: number): Record<string, number> =>
    Object.fromEntries(Array.from({ length: size }, (_, at) => [`key${at}`, at]));

  it('is judged in linear time, with a fault or without', async () => {
    const { check } = createValidator(
      {
        type: 'object',
        properties: { a: { type: 'string' } },
        additionalProperties: { type: 'string' },
        required: ['a'],
      },
      'output',
    );
    const valid = createValidator({ type: 'object', additionalProperties: { type: 'integer' } }, 'output').check;
    expect(await tooFast({ make: keys, run: check, from: 1_024 })).toBeUndefined();
    expect(await tooFast({ make: keys, run: valid, from: 1_024 })).toBeUndefined();
    expect(valid(keys(50_000))).toEqual([]);
    expect(check(keys(50_000)).length).toBeGreaterThan(0);
  });

  it('is shortened, or found to be too long, in linear time', async () => {
    // At most 65,536 keys: with more, V8 sorts the keys of an object outside its caches.
    const nested = (size: number): unknown => ({
      rows: Array.from({ length: 10 }, () => keys(size / 10)),
      more: keys(size),
    });
    const rows = (size: number): unknown => ({
      rows: Array.from({ length: size }, (_, id) => ({ id, text: 'x'.repeat(50) })),
    });
    for (const make of [keys, nested, rows])
      expect(await tooFast({ make, run: (value) => cutStructuredContent(value, 10_000), from: 1_024 })).toBeUndefined();
    const began = cpuMs();
    expect(cutStructuredContent(keys(400_000), 10_000)).toBeUndefined();
    expect(cutStructuredContent(rows(100_000), 10_000)).toMatchObject({ rows: expect.any(Array) });
    const took = cpuMs() - began;
    expect(took).toBeLessThan(limitNow(took, 3_000));
  });
});

describe('a folder that an agent has filled' + verifies('TR-40'), THREE_ATTEMPTS, () => {
  /** Returns the longest turn of the event loop while `work` runs, in ms of processor time. */
  async function longestBlock(work: () => Promise<unknown>): Promise<number> {
    let [last, worst] = [cpuMs(), 0];
    const note = (): void => {
      worst = Math.max(worst, cpuMs() - last);
      last = cpuMs();
    };
    const ticking = setInterval(note, 1);
    await work();
    note();
    clearInterval(ticking);
    return worst;
  }

  it.each([
    ['list', {}],
    ['find', { pattern: '*.none' }],
  ] as const)('with a .gitignore of a million rules: %s answers, and lets other work run', async (action, more) => {
    const bench = makeBench({ '.gitignore': 'aa*b?c\n'.repeat(1_000_000) });
    for (let at = 0; at < 500; at += 1) bench.put(`f${at}`, '');
    let answer = '';
    expect(
      await longestBlock(async () => (answer = await bench.text('read', { action, path: '.', ...more }))),
    ).toBeLessThan(1_000);
    expect(answer).toContain(action === 'list' ? 'f499' : 'no file matches');
  });

  it(
    'with many entries: list and find cost no more for each entry, and let other work run' + verifies('TR-45'),
    async () => {
      const make = (count: number): { readonly bench: ReturnType<typeof makeBench>; readonly count: number } => {
        const bench = makeBench();
        for (let at = 0; at < count; at += 1) writeFileSync(path.join(bench.root, `f${at}`), '');
        return { bench, count };
      };
      const run = async ({ bench, count }: ReturnType<typeof make>): Promise<void> => {
        const longest = await longestBlock(async () => {
          expect(await bench.text('read', { action: 'list', path: '.' })).toContain(`of ${count}`);
          expect(await bench.text('read', { action: 'find', path: '.', pattern: `*${count - 1}` })).toContain(
            `f${count - 1}`,
          );
        });
        expect(longest).toBeLessThan(1_000);
      };
      expect(await tooFast({ make, run, from: 2_000 })).toBeUndefined();
    },
  );

  it('with rules up to the limit in every folder', async () => {
    const bench = makeBench();
    const folder = (depth: number): string => Array.from({ length: depth }, () => 'd').join('/');
    const depths = roundsOf(20, 8);
    for (let depth = 1; depth <= depths; depth += 1)
      for (let at = 0; at < 20; at += 1) bench.put(`${folder(depth)}/f${at}`, '');
    for (let depth = 1; depth <= depths; depth += 1)
      bench.put(`${folder(depth)}/.gitignore`, `${'*a'.repeat(10)}\n`.repeat(3_000));
    expect(await longestBlock(() => bench.text('read', { action: 'find', path: '.', pattern: '**/f1' }))).toBeLessThan(
      1_000,
    );
  });

  it('with a file of millions of lines: search judges its matches in time slices', async () => {
    const lines = roundsOf(40_000_000, 10_000_000);
    const bench = makeBench({ 'lines.txt': `${'\n'.repeat(lines)}needle\n` });
    const hits = new SearchHits();
    hits.add({ path: 'lines.txt', line: lines + 1, text: 'needle\n', matches: true });
    const mayRead = (file: string): Promise<CallPathHandles> => {
      const held = new CallPathHandles([bench.root]);
      held.of(file);
      return Promise.resolve(held);
    };
    expect(await longestBlock(() => hits.keepReadable(mayRead, AbortSignal.timeout(60_000)))).toBeLessThan(1_000);
    expect(textsOf(hits.page({}, 0))).toEqual([`lines.txt:${lines + 1}:needle`]);
  });

  it('with many files: the search for paths that a sandbox must close runs in time slices', async () => {
    const bench = makeBench();
    for (let at = 0; at < 10_000; at += 1) writeFileSync(path.join(bench.root, `f${at}`), '');
    const turns = alwaysDue();
    expect((await readFolderEntries(bench.root, new TimeSlices())).files).toHaveLength(10_000);
    expect(turns.mock.calls.length).toBeGreaterThanOrEqual(9);
  });
});

describe('a pipe instead of a file that a start reads' + verifies('TR-40'), () => {
  let folder: string;
  let writer: ReturnType<typeof spawn>;

  beforeEach(() => {
    folder = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-pipe-')));
    mkdirSync(path.join(folder, 'srv'));
    const pipe = path.join(folder, 'srv', 'package.json');
    expect(spawnSync('mkfifo', [pipe]).status).toBe(0);
    // Ends the wait of a reader, so that the test fails and does not hang.
    writer = spawn('/bin/sh', ['-c', 'sleep 20; exec : > "$0"', pipe], { detached: true, stdio: 'ignore' });
  });
  afterEach(() => {
    process.kill(-Number(writer.pid), 'SIGKILL');
    rmSync(folder, { recursive: true });
  });

  const attacks: readonly (readonly [string, (pipe: string) => unknown])[] = [
    ['the digests of a package', (pipe) => digestPlaces({ own: [path.dirname(pipe)], shared: [], running: [] })],
    ['the digest of a script', (pipe) => digestStartFile(pipe)],
    ['the main file of a package', (pipe) => findNamedFiles('node', ['srv'], path.dirname(path.dirname(pipe)))],
  ];
  it.each(attacks)('does not block: %s', async (_name, attack) => {
    const began = Date.now();
    await attack(path.join(folder, 'srv', 'package.json'));
    expect(Date.now() - began).toBeLessThan(15_000);
  });
});

describe('a message of many values' + verifies('TR-44'), () => {
  const values = (count: number): string => `{"jsonrpc":"2.0","id":1,"result":{"content":[${'{},'.repeat(count)}{}]}}`;

  it('is refused before it is parsed, with its id, and one of two hundred thousand is read', () => {
    expect(readMessage(Buffer.from(values(150_000)), 'server')).toMatchObject({
      kind: 'invalid',
      id: 1,
      error: { code: 'UPSTREAM_TOO_LARGE' },
    });
    expect(
      readMessage(
        Buffer.from(`{"jsonrpc":"2.0","id":1,"method":"x","params":{"l":[${'1,'.repeat(250_000)}1]}}`),
        'client',
      ),
    ).toMatchObject({ kind: 'invalid', id: 1, error: { code: 'WIRE_SIZE' } });
    expect(readMessage(Buffer.from(values(100_000)), 'server').kind).toBe('result');
  });

  inFull('costs no more for each value if it fills the wire limit', async () => {
    const make = (count: number): Buffer => Buffer.from(values(count));
    const run = (line: Buffer): void => expect(readMessage(line, 'server').kind).toBe('invalid');
    run(make(5_000_000));
    expect(await tooFast({ make, run, from: 312_500 })).toBeUndefined();
  });
});

describe('a text of hostile characters only' + verifies('TR-44'), () => {
  it.each([
    ['zero width', '\u200b', 2_000_000, '\\u{200B}'],
    ['control', '\u0001', 2_000_000, '\\u{1}'],
  ] as const)('is escaped in seconds: %s', (_name, char, count, written) => {
    const began = cpuMs();
    const escaped = escapeHostile(char.repeat(count));
    const took = cpuMs() - began;
    expect(took).toBeLessThan(limitNow(took, 3_000));
    expect(escaped.count).toBe(count);
    expect(escaped.text).toHaveLength(count * written.length);
    expect(escaped.text.startsWith(written + written)).toBe(true);
  });
});

describe('more hostile characters than a result may have' + verifies('TR-44'), () => {
  it('are refused, in one text or in many', () => {
    const refused = expect.objectContaining({ code: 'UPSTREAM_TOO_LARGE' }) as Error;
    expect(() => escapeHostile('\u007f'.repeat(2_000_001))).toThrow(refused);
    const result = { content: Array.from({ length: 11 }, () => ({ type: 'text', text: '\u007f'.repeat(200_000) })) };
    expect(() =>
      cleanResult(parseJsonDoc(JSON.stringify(result)) as never, undefined, {
        form: TOOL_FORM,
        shownUri: (uri) => uri,
        redactor: new Redactor(),
        raw: false,
      }),
    ).toThrow(refused);
  });
});

describe('an expression or arguments that would block the process' + verifies('TR-44'), () => {
  it.each(['\\s+$', '^(\\s+)+$', '(\\s|\\s\\s)*b', '\\s{1,500}y'])(
    'ends with its time limit: the expression %s of a schema',
    (pattern) => {
      const { check } = createValidator({ type: 'object', properties: { x: { type: 'string', pattern } } });
      const began = cpuMs();
      check({ x: `${' '.repeat(1_000_000)}x` });
      const took = cpuMs() - began;
      expect(took).toBeLessThan(limitNow(took, 2_000));
    },
  );

  it('is refused for more than a thousand paths, and judged for a thousand', () => {
    const doing = (count: number): Parameters<typeof effectOf>[0] => ({
      server: 's',
      tool: 't',
      semantics: { verb: 'read', paths: ['p'] },
      args: { p: [Array.from({ length: count }, (_, at) => `a/${at}`)] },
    });
    expect(effectOf(doing(1_000), '/nonexistent-root').paths).toHaveLength(1_000);
    expect(() => effectOf(doing(1_001), '/nonexistent-root')).toThrow(
      expect.objectContaining({
        code: 'ARGS_INVALID',
        message: expect.stringContaining('at most 1000') as string,
      }) as Error,
    );
  });
});
