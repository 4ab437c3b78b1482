/** Tests attacks with keys of `_meta` that look like those of Tollgate (finding M). */

import { describe, expect, it } from 'vitest';
import { parseJsonDoc } from '../../adapters/rpc/message-parser.ts';
import { type JsonText, joinText } from '../../adapters/rpc/wire-message.ts';
import { isOwnKey, withoutOwnKeys } from '../../catalogs/tools/own-meta-keys.ts';
import type { ToolResult } from '../../catalogs/tools/tool-definition.ts';
import { withoutOwnWords } from '../../facade/exposure/tool-candidates.ts';
import { withMeta } from '../../facade/output/result-shape.ts';
import { verifies } from '../verifies.ts';

const FORGED = [
  'tollgate/decision',
  'Tollgate/Decision',
  'TOLLGATE/code',
  'tollgate',
  ' tollgate/code',
  'tollgate /code',
  'tollgate\t/code',
  'tоllgate/code',
  'ｔollgate/code',
  'tollgate∕code',
  'toll\u200bgate/code',
  't0llgate/code',
  'toIIgate/code',
  'to11gate/code',
  '/tollgate/code',
  'tollgate.dev/code',
  'tollgate:code',
];
const THEIRS = ['traceparent', 'example.org/tollgate', 'tollgates/x', 'progressToken', 'com.example/key'];

describe('a key of _meta that looks like one of Tollgate (M)', () => {
  it.each(FORGED)('is dropped wherever a server can write it: %j' + verifies('TR-55'), (key) => {
    const meta = { [key]: 'forged', 'com.example/key': 1 };
    const clean = { 'com.example/key': 1 };
    expect(isOwnKey(key)).toBe(true);
    const result = {
      content: [
        { type: 'text', text: 'x', _meta: meta },
        { type: 'resource', resource: { uri: 'a:b', text: '', _meta: meta } },
      ],
      structuredContent: { a: [{ _meta: meta }] },
    };
    expect(withoutOwnKeys(result)).toEqual({
      content: [
        { type: 'text', text: 'x', _meta: clean },
        { type: 'resource', resource: { uri: 'a:b', text: '', _meta: clean } },
      ],
      structuredContent: { a: [{ _meta: clean }] },
    });
    const whole = { content: [], _meta: meta };
    expect(
      JSON.parse(
        joinText(withMeta(parseJsonDoc(JSON.stringify(whole)) as JsonText<ToolResult>, '"tollgate/labels":[]')),
      ),
    ).toEqual({
      content: [],
      _meta: { ...clean, 'tollgate/labels': [] },
    });
    expect(withoutOwnWords({ name: 'a', inputSchema: { type: 'object' }, _meta: meta })).toMatchObject({
      _meta: clean,
    });
  });

  it.each(THEIRS)('is not dropped if it is %j', (key) => {
    const value = { _meta: { [key]: 1 } };
    expect(withoutOwnKeys(value)).toBe(value);
  });

  it('is found if the word is written with escapes', () => {
    const isFound = (text: string): boolean => parseJsonDoc(text).strings.hasNestedMeta;
    expect(['{"a":{"_meta":{}}}', '{"a":[{"\\u005fmeta":{}}]}', '{"a":[{"_m\\u0065ta":{}}]}'].map(isFound)).toEqual([
      true,
      true,
      true,
    ]);
    // That of the result itself is found by its place, and a text is no key.
    expect(['{"content":[]}', '{"_meta":{}}', '{"content":[{"text":"_meta"}]}'].map(isFound)).toEqual([
      false,
      false,
      false,
    ]);
  });
});
