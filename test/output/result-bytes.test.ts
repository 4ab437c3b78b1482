/** Tests that a result is parsed only when a stage needs a value of it, and that skipping a step changes nothing. */
import fc from 'fast-check';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { scanJson } from '../../adapters/rpc/json-scan.ts';
import { readMessage } from '../../adapters/rpc/message-parser.ts';
import { JsonText, joinText } from '../../adapters/rpc/wire-message.ts';
import type { ToolResult } from '../../catalogs/tools/tool-definition.ts';
import type { ShapeRequest } from '../../facade/output/content-cut.ts';
import { Redactor } from '../../facade/output/redactor.ts';
import { TOOL_FORM } from '../../facade/output/result-forms.ts';
import { type Shaped, shapeResult } from '../../facade/output/result-shape.ts';
import { replyText } from '../../facade/serve/reply-text.ts';
import { LineWriter } from '../../facade/serve/stdio-transport.ts';
import { roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';

const SECRET = 'p@ss/w0rd+é';
const redactor = new Redactor();
redactor.register(SECRET);

const request = (more: Partial<ShapeRequest> = {}): ShapeRequest => ({
  cap: { bytes: 8_000_000, lines: 1_000_000 },
  mediaBytes: 1_048_576,
  form: TOOL_FORM,
  shownUri: (uri) => uri,
  headShare: 1,
  redactor,
  raw: false,
  reader: 'read',
  ownNotes: false,
  notes: [],
  meta: '"tollgate/a":1',
  spill: { put: (text) => ({ handle: 'spill://0', bytes: Buffer.byteLength(text) }) },
  ...more,
});

function resultOf(line: Buffer): JsonText<ToolResult> {
  const message = readMessage(line, 'server');
  if (message.kind !== 'result') throw new Error(message.kind);
  return JsonText.of(message.result) as JsonText<ToolResult>;
}

afterEach(() => vi.restoreAllMocks());

describe('a large result that needs no change' + verifies('FP-05'), () => {
  const text = 'naïve "text", 漢字 and a path C:\\\\dir\\n'.repeat(4_000);
  const bodies: Readonly<Record<string, string>> = {
    text: `{"content":[{"type":"text","text":${JSON.stringify(text)}}],"isError":false}`,
    'its own _meta': `{"_meta":{"theirs":"é"},"content":[{"type":"text","text":${JSON.stringify(text)}}]}`,
    'structured content': `{"structuredContent":{"rows":${JSON.stringify(Array(9_000).fill({ id: 1, name: 'é' }))}}}`,
    'escapes of ASCII writers': `{"content":[{"type":"text","text":"${'\\u00e9\\u6f22'.repeat(9_000)}"}]}`,
  };

  it.each(Object.entries(bodies))(
    'leaves as the bytes that came, neither decoded nor parsed: %s',
    async (_what, body) => {
      const line = Buffer.from(`{"jsonrpc":"2.0","id":7,"result":${body}}`);
      const parse = vi.spyOn(JSON, 'parse');
      const decode = vi.spyOn(Buffer.prototype, 'toString');
      const shaped = await shapeResult(resultOf(line), request());
      expect(parse.mock.calls.filter(([parsed]) => parsed.length > 100)).toEqual([]);
      const largest = Math.max(...decode.mock.results.map(({ value }) => (value as string).length));
      expect(largest).toBeLessThan(100);
      vi.restoreAllMocks();
      const parts = typeof shaped.text === 'string' ? [] : shaped.text;
      const bytes = parts.filter((part) => typeof part !== 'string').filter(({ length }) => length > 1_000);
      expect(bytes.map(({ buffer }) => buffer)).toEqual([line.buffer]);
      const sent = JSON.parse(joinText(shaped.text)) as ToolResult;
      const came = JSON.parse(body) as ToolResult;
      expect(sent).toEqual({ ...came, _meta: { ...came._meta, 'tollgate/a': 1 } });
      expect(shaped.sent).toBe(Buffer.byteLength(joinText(shaped.text)));
    },
  );

  it('is one line for a client on pipes, also if its server wrote many', async () => {
    const line = Buffer.from(
      `{"jsonrpc":"2.0","id":7,"result":{\r\n "content":[{"type":"text","text":"${'é'.repeat(9_000)}"}]\n}}`,
    );
    const { text } = await shapeResult(resultOf(line), request());
    const written: Buffer[] = [];
    const output = {
      write: (chunk: string | Buffer) => written.push(Buffer.from(chunk as string)) > 0,
      cork: () => undefined,
      uncork: () => undefined,
    };
    const writer = new LineWriter(output as never, () => undefined);
    writer.write('{"first":1}');
    writer.write(replyText(7, { kind: 'result', text }));
    writer.write('{"last":1}');
    await new Promise((resolve) => setImmediate(resolve));
    const lines = Buffer.concat(written).toString('utf8').split('\n');
    expect(lines.map((one) => one.slice(0, 40))).toEqual([
      '{"first":1}',
      '{"jsonrpc":"2.0","id":7,"result":{"_meta',
      '{"last":1}',
      '',
    ]);
    expect((JSON.parse(lines[1] ?? '') as { result: ToolResult }).result.content?.[0]?.text).toBe('é'.repeat(9_000));
  });
});

describe('the arguments of a call' + verifies('FP-16'), () => {
  it('are parsed once, when their value is first read', () => {
    const line = Buffer.from(
      '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"a":[1.50,"é"]},"_meta":{}}}',
    );
    const parse = vi.spyOn(JSON, 'parse');
    const message = readMessage(line, 'client');
    if (message.kind !== 'request') throw new Error(message.kind);
    const parsed = () => parse.mock.calls.filter(([text]) => text.includes('1.50')).length;
    expect(parsed()).toBe(0);
    expect(message.args?.text).toBe('{"a":[1.50,"é"]}');
    expect(message.args?.value).toEqual({ a: [1.5, 'é'] });
    expect(message.params?.value.arguments).toBe(message.args?.value);
    expect(parsed()).toBe(1);
  });
});

describe('what the scan says about the strings of a result' + verifies('FP-15'), () => {
  it('skips a step of shaping only if the step would change nothing', async () => {
    const parts = [
      ...[
        'x',
        'é',
        '\\n',
        '\\u000a',
        '\\\\',
        '\\/',
        '\\u0041',
        '\u200b',
        '\\u200b',
        '\u007f',
        '\\b',
        '\\ud800',
        '❤️',
        '👩‍🚀',
        '\\udb40\\udc41',
      ],
      ...[
        SECRET,
        'p@ss\\/w0rd+\\u00e9',
        Buffer.from(SECRET).toString('base64'),
        'file:///etc',
        'resource_link',
        '_meta',
      ],
    ];
    const string = fc.array(fc.constantFrom(...parts), { maxLength: 4 }).map((some) => `"${some.join('')}"`);
    const key = fc.constantFrom(
      ...[
        '"type"',
        '"text"',
        '"uri"',
        '"\\u0075ri"',
        '"icons"',
        '"resource"',
        '"_meta"',
        '"_m\\u0065ta"',
        '"data"',
        '"tollgate/x"',
        '"a"',
      ],
    );
    const value = fc.letrec<{ object: string; value: string }>((tie) => ({
      object: fc
        .uniqueArray(fc.tuple(key, tie('value')), { maxLength: 3, selector: ([name]) => JSON.parse(name) as string })
        .map((members) => `{${members.map(([name, item]) => `${name}:${item}`).join(',')}}`),
      value: fc.oneof(
        { depthSize: 'small' },
        string,
        fc.constantFrom('1', 'true', '"file:///x"', '"resource_link"', '{}'),
        tie('object'),
        fc.array(tie('value'), { maxLength: 2 }).map((items) => `[${items.join(',')}]`),
      ),
    }));
    const result = fc
      .record({
        content: fc.array(value.object, { maxLength: 3 }).map((items) => `"content":[${items.join(',')}]`),
        more: fc.uniqueArray(fc.tuple(fc.constantFrom('"structuredContent"', '"_meta"', '"x"'), value.object), {
          maxLength: 2,
          selector: ([name]) => name,
        }),
        isError: fc.constantFrom('"isError":true', '"isError":false'),
      })
      .map(
        ({ content, more, isError }) =>
          `{${[content, isError, ...more.map(([name, item]) => `${name}:${item}`)].join(',')}}`,
      );
    const runs = roundsOf(3_000, 300);
    let changed = 0;
    await fc.assert(
      fc.asyncProperty(result, fc.boolean(), async (text, raw) => {
        const bytes = Buffer.from(text);
        const scan = scanJson(bytes);
        const all = {
          hasNestedMeta: true,
          hasAddress: true,
          hasMedia: true,
          isSuspect: true,
          hasFreeEscape: true,
          newlines: Infinity,
        };
        const how = request({ raw });
        const skipping = await attempt(() => shapeResult(JsonText.ofScan<ToolResult>(text, bytes, scan), how));
        const whole = await attempt(() =>
          shapeResult(
            JsonText.ofScan<ToolResult>(text, bytes, { ...scan, members: scan.members, exact: true, strings: all }),
            how,
          ),
        );
        expect(skipping).toEqual(whole);
        if (skipping.redactions + skipping.escaped + skipping.links > 0) changed += 1;
      }),
      { numRuns: runs },
    );
    expect(changed).toBeGreaterThan(runs / 6);
  });
});

/** Steps that ran may have written the same value in other bytes. */
async function attempt(work: () => Shaped | Promise<Shaped>) {
  const { text, sent, ...shaped } = await work();
  expect(sent).toBe(Buffer.byteLength(joinText(text)));
  return { ...shaped, value: JSON.parse(joinText(text)) as unknown };
}
