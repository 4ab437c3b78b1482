/** Tests results in the envelope of revision 2026-07-28: the server's bytes, with Tollgate's members around them. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseJsonDoc } from '../../adapters/rpc/message-parser.ts';
import { type JsonText, joinText } from '../../adapters/rpc/wire-message.ts';
import type { ToolResult } from '../../catalogs/tools/tool-definition.ts';
import type { ShapeRequest } from '../../facade/output/content-cut.ts';
import { Redactor } from '../../facade/output/redactor.ts';
import { TOOL_FORM } from '../../facade/output/result-forms.ts';
import { shapeResult } from '../../facade/output/result-shape.ts';
import { envelopeOf } from '../../facade/serve/modern/result-envelope.ts';
import { verifies } from '../verifies.ts';

const REQUEST: ShapeRequest = {
  cap: { bytes: 1_000_000, lines: 50_000 },
  mediaBytes: 1_048_576,
  form: TOOL_FORM,
  shownUri: (uri) => uri,
  headShare: 1,
  redactor: new Redactor(),
  raw: false,
  reader: 'read',
  ownNotes: false,
  notes: [],
  meta: `"tollgate/provenance":{},${envelopeOf('resources/read').meta}`,
  envelope: envelopeOf('resources/read'),
  spill: { put: () => ({ handle: 'spill://x', bytes: 0 }) },
};
const shaped = async (text: string, request = REQUEST) =>
  shapeResult(parseJsonDoc(text) as unknown as JsonText<ToolResult>, request);
/** Spellings of the members that say what a result is. */
const members = fc.constantFrom(
  '"resultType"',
  '"result\\u0054ype"',
  '"inputRequests"',
  '"requestState"',
  '"ttlMs"',
  '"cache\\u0053cope"',
  '"other"',
);

describe('a result in an envelope' + verifies('PR-M14', 'PR-M02'), () => {
  it('has the members of Tollgate, whatever a server puts in their place', async () => {
    await fc.assert(
      fc.asyncProperty(fc.uniqueArray(members), fc.jsonValue(), fc.boolean(), async (keys, value, isFirst) => {
        const theirs = keys.map((key) => `${key}:${JSON.stringify(value)}`);
        const content = '"content":[{"type":"text","text":"hi"}]';
        const parts = isFirst ? [content, ...theirs] : [...theirs, content];
        fc.pre(new Set(keys.map((key) => JSON.parse(key) as string)).size === keys.length);
        const { text, enveloped } = await shaped(`{${parts.join(',')}}`);
        const whole = joinText(text);
        // A strict reader refuses a key that is there twice.
        const result = parseJsonDoc(whole).value as Record<string, unknown>;
        expect(result).toMatchObject({ resultType: 'complete', ttlMs: 0, cacheScope: 'private' });
        expect([enveloped, result.inputRequests, result.requestState]).toEqual([true, undefined, undefined]);
        // JSON.stringify writes -0 as 0.
        if (keys.includes('"other"')) expect(result.other).toEqual(JSON.parse(JSON.stringify(value)));
      }),
    );
  });

  it('keeps every other byte of the server, and large ones as bytes', async () => {
    const content = `"content": [ {"type":"text","text":"${'é'.repeat(5000)}"} ]`;
    for (const [theirs, wanted] of [
      [`{${content},"n": 1.50}`, `,${content},"n": 1.50}`],
      [`{"resultType":"complete",${content},"n": 1.50}`, content.replace('"content": ', '"content":')],
    ] as const) {
      const { text } = await shaped(theirs);
      expect(Array.isArray(text)).toBe(true);
      expect(joinText(text)).toContain(wanted);
      expect(JSON.parse(joinText(text))).toMatchObject({ n: 1.5, resultType: 'complete' });
    }
  });

  it('names Tollgate, and no server, as the one who answers', async () => {
    const { text } = await shaped(
      '{"content":[],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bank"},"kept":1}}',
    );
    expect(joinText(text)).not.toContain('bank');
    expect(JSON.parse(joinText(text))).toMatchObject({
      _meta: { kept: 1, 'io.modelcontextprotocol/serverInfo': { name: 'tollgate' } },
    });
  });

  it('is none for a client of another revision', async () => {
    const { envelope: _, ...request } = REQUEST;
    const { text, enveloped } = await shaped('{"resultType":"complete","ttlMs":5,"content":[]}', request);
    expect([Object.keys(JSON.parse(joinText(text)) as object), enveloped]).toEqual([['content', '_meta'], undefined]);
    const plain = await shaped('{"ttlMs":5,"content":[]}', request);
    expect(joinText(plain.text)).toContain('"ttlMs":5,"content":[]');
  });
});
