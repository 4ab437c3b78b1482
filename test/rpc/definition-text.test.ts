/** Tests that a listed definition is written with the bytes of its server, except where its value was changed. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { definitionJson, jsonItems, keepDefinitionTexts } from '../../adapters/rpc/definition-text.ts';
import { jsonMembers } from '../../adapters/rpc/message-parser.ts';
import { objectText, stringText, valueText } from '../properties/json-text.ts';
import { verifies } from '../verifies.ts';

type Fields = Readonly<Record<string, unknown>>;

const membersOf = (text: string): readonly (readonly [string, string])[] =>
  jsonMembers(text).map(({ key, start, end }) => [key, text.slice(start, end)]);

/** A list as a server may write it, and its definitions as they were parsed. */
function listOf(items: readonly string[]): readonly Fields[] {
  const text = `[${items.join(' ,\n')}]`;
  const list = JSON.parse(text) as readonly Fields[];
  keepDefinitionTexts(list, text);
  return list;
}

/** Names that JSON.parse keeps in order. */
const entry = objectText(valueText({ depth: 2 })).filter((text) => !/"(\d+|__proto__)"\s*:/.test(text));

describe('the text of a definition' + verifies('PR-C02', 'PR-T01'), () => {
  it('is split from its list', () => {
    fc.assert(
      fc.property(fc.array(valueText({ depth: 3 }), { minLength: 1, maxLength: 5 }), (items) => {
        expect(jsonItems(`[${items.join(' , ')}]`).map((item) => item.trim())).toEqual(
          items.map((item) => item.trim()),
        );
      }),
    );
  });

  it('stays as it was written in each member that stays the same', () => {
    fc.assert(
      fc.property(fc.array(entry, { minLength: 1, maxLength: 4 }), (items) => {
        for (const [at, definition] of listOf(items).entries())
          expect(membersOf(definitionJson({ ...definition }, definition))).toEqual(membersOf(items[at] ?? ''));
      }),
    );
  });

  it('is new in each member that was changed, added or removed', () => {
    fc.assert(
      fc.property(stringText(), stringText(), valueText({ depth: 2 }), (name, title, rest) => {
        const [definition = {}] = listOf([`{"name":${name},"title":${title},"rest":${rest},"gone":1.0}`]);
        const { gone: _, ...kept } = definition;
        const text = definitionJson({ ...kept, title: 'new', more: undefined, last: [1] }, definition);
        expect(membersOf(text)).toEqual([
          ['name', name],
          ['title', '"new"'],
          ['rest', rest.trim()],
          ['last', '[1]'],
        ]);
      }),
    );
  });

  it('is the JSON of the value if no text is known, as for a list from storage', () => {
    expect(definitionJson({ a: 1 }, { a: 1 })).toBe('{"a":1}');
  });
});
