/** Tests the values that cross the border of the sandbox for code: arguments, results, and what is returned. */

import { afterAll, describe, expect, it } from 'vitest';
import { cutContent } from '../../facade/output/content-cut.ts';
import { TOOL_FORM } from '../../facade/output/result-forms.ts';
import { inFull } from '../harness/full-tests.ts';
import { verifies } from '../verifies.ts';
import { closeShared, contentResult, failureOfCode, type RunOptions, runCode, valueOfCode } from './sandbox-runs.ts';

afterAll(closeShared);

const CALL = "const { query } = require('host:data'); const { read } = require('host:tollgate');";

describe('arguments', () => {
  it.each([
    [
      '{ a: [1, "x", null, true], when: new Date(), skip: undefined }',
      '{"a":[1,"x",null,true],"when":"2027-01-15T08:00:00.000Z"}',
    ],
    ['', '{}'],
    ['undefined', '{}'],
    ['[undefined, -0, "\\ud800", new Error("e")]', '[null,0,"\\ud800",{"name":"Error","message":"e"}]'],
    ['{ ["__proto__"]: 1, constructor: 2 }', '{"__proto__":1,"constructor":2}'],
    ['{ toJSON: () => ({ own: 1 }) }', '{"own":1}'],
  ])('%s' + verifies('CM-19'), async (given, sent) => {
    expect((await runCode(`${CALL} read(${given})`)).calls.map(({ args }) => args)).toEqual([sent]);
  });

  it.each([
    ['{ labels: [1, () => 1] }', 'labels[1] in the argument of read is a function'],
    ['() => 1', 'the argument of read is a function'],
    ['{ a: { b: 5n } }', 'a.b in the argument of read is a BigInt: use Number(value) or String(value)'],
    [
      '(() => { const a = [{}]; a[0].up = a; return { a }; })()',
      'a[0].up in the argument of read is a reference to an object around it',
    ],
    ['{ n: 0 / 0 }', 'n in the argument of read is NaN, which JSON cannot hold'],
    ['{ s: Symbol() }', 's in the argument of read is a symbol'],
    ['{ p: read.async() }', 'p in the argument of read is a promise: put `await` before it'],
    ['{ m: new Map() }', 'm in the argument of read is a Map: use Object.fromEntries(map)'],
    [
      '(() => { let a = []; for (let i = 0; i < 600; i += 1) a = [a]; return { a }; })()',
      'nested more than 500 levels',
    ],
    [
      '{ long: "é".repeat(500_000) }',
      'The argument of read has more than 1,000,000 bytes as JSON. Send less in one call.',
    ],
  ])('that JSON would lose are refused with their path: %s' + verifies('CM-19'), async (given, told) => {
    const outcome = await runCode(
      `${CALL} try { read(${given}) } catch (e) { return e instanceof TypeError && e.message }`,
    );
    expect(outcome.kind === 'returned' && outcome.value).toContain(JSON.stringify(told).slice(1, -1));
    expect(outcome.calls.filter(({ isAsync }) => !isAsync)).toEqual([]);
  });
});

describe('what is returned', () => {
  it.each([
    ['const a = {}; a.b = [a]; return a', 'b[0] in the returned value is a reference to an object around it (a cycle)'],
    ['return [1, { n: 5n }]', '[1].n in the returned value is a BigInt'],
    ['return print', 'the returned value is a function'],
    ['return { get x() { throw new Error("mine") } }', 'Error: mine (line 1)'],
  ])('must be JSON: %s' + verifies('CM-19'), async (code, told) => {
    expect(await failureOfCode(code)).toContain(`CODE_FAILED ${told.startsWith('Error') ? '' : 'TypeError: '}${told}`);
  });

  it('must be JSON in variables too' + verifies('CM-19'), async () => {
    expect(await failureOfCode('vars.a = { f() {} }', { variables: '{}' })).toContain('a.f in vars is a function');
  });
});

/** Returns what code gets for an answer. */
const valueFor = (answer: RunOptions['answer'], name = 'read'): Promise<unknown> =>
  valueOfCode(`${CALL} return { got: ${name}() }`, { answer });

describe('results', () => {
  const TEXT = { type: 'text', text: '{"a":[1.50,12345678901234567890]}' };
  it.each([
    ['one text', [TEXT], 'read', TEXT.text],
    ['one text that is JSON', [TEXT], 'query', { a: [1.5, '12345678901234567890'] }],
    ['a text that should be JSON and is not', [{ type: 'text', text: '{a' }], 'query', '{a'],
    ['several texts', [TEXT, { type: 'text', text: 'b' }], 'read', [TEXT.text, 'b']],
    ['no content', [], 'read', null],
    [
      'a resource',
      [{ type: 'resource', resource: { uri: 'x:y', text: '[1]', mimeType: 'text/plain' } }],
      'read',
      '[1]',
    ],
    [
      'a resource of JSON',
      [{ type: 'resource', resource: { uri: 'x:y', text: '[1]', mimeType: 'application/vnd.x+json; charset=utf-8' } }],
      'read',
      [1],
    ],
    [
      'a link',
      [{ type: 'resource_link', uri: 'x:y', name: 'n', mimeType: 'a/b', size: 5 }],
      'read',
      { uri: 'x:y', name: 'n', mimeType: 'a/b' },
    ],
    ['a block of an unknown type', [{ type: 'new', x: 1 }], 'read', { type: 'new', x: 1 }],
  ])('%s' + verifies('CM-20'), async (_what, content, name, value) => {
    expect(await valueFor(() => contentResult(...content), name)).toEqual({ got: value });
  });

  it.each([
    ['structured content', { content: [], structuredContent: { n: [1.5], m: 0.1 } }, { n: [1.5], m: 0.1 }],
    [
      'an error',
      {
        isError: true,
        content: [
          { type: 'text', text: 'a' },
          { type: 'text', text: 'b' },
        ],
        _meta: { 'tollgate/code': 'DENIED' },
      },
      { error: 'a\nb', code: 'DENIED' },
    ],
    ['an error without a code', { isError: true, content: [{ type: 'text', text: 'a' }] }, { error: 'a' }],
  ])('%s' + verifies('CM-20'), async (_what, result, value) => {
    expect(await valueFor(() => ({ kind: 'result', text: JSON.stringify(result) }))).toEqual({ got: value });
  });

  it('numbers that a double cannot hold are strings of their digits' + verifies('CM-20'), async () => {
    const text =
      '{"content":[],"structuredContent":{"id":9007199254740993,"big":1e400,"fine":[9007199254740992,1.10]}}';
    expect(await valueFor(() => ({ kind: 'result', text }))).toEqual({
      got: { id: '9007199254740993', big: '1e400', fine: [9007199254740992, 1.1] },
    });
  });

  inFull('refusals, and results that are no results' + verifies('CM-20'), async () => {
    expect(await valueFor(() => ({ kind: 'failure', error: 'no', code: 'DENIED' }))).toEqual({
      got: { error: 'no', code: 'DENIED' },
    });
    for (const text of ['', '{', '5', 'null', '[]', '{"content":5}', '{"content":[5]}'])
      expect(JSON.stringify(await valueFor(() => ({ kind: 'result', text })))).toMatch(/null|not valid JSON/);
    const deep = `{"content":[],"structuredContent":${'['.repeat(50_000)}${']'.repeat(50_000)}}`;
    expect(JSON.stringify(await valueFor(() => ({ kind: 'result', text: deep })))).toContain('nested too deeply');
  });

  it('a result that was cut says so, and where the rest is' + verifies('CM-20'), async () => {
    // As the pipeline cuts: see facade/output/content-cut.ts.
    const cutBy = (items: readonly object[]) => {
      let count = 0;
      const spill = { put: (text: string) => ({ handle: `spill://${(count += 1)}`, bytes: Buffer.byteLength(text) }) };
      const request = {
        cap: { bytes: 600, lines: 100 },
        mediaBytes: 100,
        headShare: 1,
        spill,
        reader: 'read',
        ownNotes: false,
      };
      const cut = cutContent(items as never, request as never);
      const facts = cut.notices.map(({ line: _line, ...fact }) => fact);
      const content = [...cut.items, ...cut.notices.map(({ line }) => TOOL_FORM.note(line))];
      return {
        kind: 'result',
        text: JSON.stringify({ content, _meta: { 'tollgate/cut': { parts: facts } } }),
      } as const;
    };
    const lines = 'line of text\n'.repeat(100);
    const one = (await valueFor(() => cutBy([{ type: 'text', text: lines }]), 'query')) as { got: { head: string } };
    expect(one.got).toEqual({ spill: 'spill://1', bytes: lines.length, head: expect.any(String) });
    expect(lines.startsWith(one.got.head)).toBe(true);
    expect(one.got.head.length).toBeGreaterThan(100);
    const two = await valueFor(() =>
      cutBy([
        { type: 'text', text: lines },
        { type: 'text', text: 'more' },
      ]),
    );
    expect(two).toMatchObject({
      got: { spill: 'spill://1', more: [{ spill: 'spill://2', bytes: expect.any(Number) }] },
    });
    const structured = {
      content: [{ type: 'text', text: '[tollgate: structured content was shortened. Next: …]' }],
      structuredContent: { a: [1] },
      _meta: { 'tollgate/cut': { parts: [{ spill: 'spill://x', bytes: 5_000, offset: 1 }] } },
    };
    expect(await valueFor(() => ({ kind: 'result', text: JSON.stringify(structured) }))).toEqual({
      got: { spill: 'spill://x', bytes: 5_000, head: '{"a":[1]}' },
    });
  });
});

describe('media', () => {
  const image = (text: string) => ({
    type: 'image',
    mimeType: 'image/png',
    data: Buffer.from(text).toString('base64'),
  });
  const images =
    (count: number): RunOptions['answer'] =>
    () =>
      contentResult(...Array.from({ length: count }, (_, at) => image(`picture ${at}`)));

  it('stay outside: code gets frozen handles, and returned ones are given back whole' + verifies('CM-20'), async () => {
    const outcome = await runCode(
      `${CALL} const all = read(); const one = all[1];
       try { one.handle = 'b9' } catch (e) { print(e.name) }
       print(JSON.stringify(all));
       return { chosen: one, again: [one] }`,
      { answer: images(3) },
    );
    expect(outcome.printed).not.toContain(image('picture').data.slice(0, 8));
    expect(outcome.printed).toMatch(/^TypeError\n\[\{"handle":"b1","type":"image","mimeType":"image\/png","bytes":9\}/);
    expect(outcome.kind === 'returned' && outcome.media.map((text) => JSON.parse(text))).toEqual([image('picture 1')]);
  });

  it('of resources and sounds have handles too' + verifies('CM-20'), async () => {
    const blob = { type: 'resource', resource: { uri: 'x:y', blob: 'AAEC', mimeType: 'a/b' } };
    const audio = { type: 'audio', mimeType: 'audio/wav', data: 'AAE=' };
    const outcome = await runCode(`${CALL} return read()`, { answer: () => contentResult(blob, audio) });
    expect(outcome).toMatchObject({
      value: JSON.stringify([
        { handle: 'b1', type: 'resource', mimeType: 'a/b', bytes: 3 },
        { handle: 'b2', type: 'audio', mimeType: 'audio/wav', bytes: 2 },
      ]),
      media: [JSON.stringify(blob), JSON.stringify(audio)],
    });
  });

  it(
    'are limited: eight are returned, and all together need the memory of the program' + verifies('CM-17', 'CM-20'),
    async () => {
      expect((await runCode(`${CALL} return read()`, { answer: images(8) })).kind).toBe('returned');
      expect(await failureOfCode(`${CALL} return read()`, { answer: images(9) })).toMatch(
        /^CODE_LIMIT The returned value contains 9 handles of media; at most 8 can be returned\.\nReturn fewer/,
      );
      expect(
        await failureOfCode(`${CALL} try { for (;;) read() } catch {}`, {
          answer: () => contentResult({ type: 'image', mimeType: 'a/b', data: 'A'.repeat(4_000_000) }),
          limits: { memoryBytes: 20_000_000 },
        }),
      ).toMatch(/^CODE_LIMIT The media of all results need more than 20000000 bytes/);
    },
  );
});

describe('a planned value', () => {
  const planned: RunOptions['answer'] = () => ({ kind: 'planned' });

  it('can be awaited, stored and passed on' + verifies('CM-21'), async () => {
    const code = `${CALL} const value = read(); const later = await read.async();
      const kept = [value, await value, { later }]; const same = ((x) => x)(kept[1]);
      return [kept.length, same === value, typeof later]`;
    expect(await valueOfCode(code, { answer: planned })).toEqual([3, true, 'function']);
  });

  it.each([
    ['a member', 'value.title'],
    ['a call', 'value()'],
    ['a construction', 'new value()'],
    ['a write', 'value.title = 1'],
    ['a test for a member', '"a" in value'],
    ['a deletion', 'delete value.a'],
    ['a loop', 'for (const item of value) print(item)'],
    ['a spread', '({ ...value })'],
    ['a list', '[...value]'],
    ['a text', '`${value}`'],
    ['a sum', 'value + 1'],
    ['a comparison', 'value > 1'],
    ['JSON', 'JSON.stringify({ a: [value] })'],
    ['an argument', 'read({ a: value })'],
    ['an argument alone', 'read(value)'],
    ['printing', 'console.log([value])'],
    ['its keys', 'Object.keys(value)'],
    ['its prototype', 'value instanceof Object'],
    ['a definition', 'Object.defineProperty(value, "a", {})'],
  ])('ends the run at its first use: %s' + verifies('CM-21'), async (_what, use) => {
    const code = `${CALL} read(); const value = query();
      try { ${use} } catch { print('caught') } finally { read({ after: true }); vars.x = 1 }`;
    const outcome = await runCode(code, { answer: planned, variables: '{}' });
    expect(outcome).toMatchObject({ kind: 'used-planned', seq: 2, printed: '' });
    expect(outcome.calls).toHaveLength(2);
  });

  it.each(['return read()', 'return [{ a: await read.async() }]', 'vars.a = read()', 'throw read()'])(
    'ends the run where it would leave the program: %s' + verifies('CM-21'),
    async (code) => {
      const outcome = await runCode(`${CALL} ${code}`, { answer: planned, variables: '{}' });
      expect(outcome).toMatchObject({ kind: 'used-planned', seq: 1 });
    },
  );
});
