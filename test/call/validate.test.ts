/** Tests facade/call/validate.ts: what leaves is what was sent, or what the reply says was changed. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseJsonDoc } from '../../adapters/rpc/message-parser.ts';
import { createValidator } from '../../catalogs/validation/validator.ts';
import { type ArgsShape, bindArguments } from '../../facade/call/validate.ts';
import { verifies } from '../verifies.ts';

const schema = {
  type: 'object',
  properties: {
    path: { type: 'string' },
    count: { type: 'integer' },
    deep: { type: 'object', properties: { id: { type: 'number' } } },
  },
  required: ['path'],
};

function shapeOf(more: Partial<ArgsShape> = {}): ArgsShape {
  return {
    schema,
    validator: createValidator(schema),
    lift: (args) => ({ args, changed: false }),
    pins: {},
    maxBytes: 10_000,
    ...more,
  };
}

const bind = (text: string, more: Partial<ArgsShape> = {}) => bindArguments(parseJsonDoc(text), shapeOf(more));

describe('bindArgs', () => {
  it('sends the very bytes when no stage changed them', () => {
    for (const text of [
      '{"path":"a"}',
      '{ "path" : "\\u0061", "count": 1 }',
      '{"path":"a","deep":{"id":12345678901234567890}}',
      '{"path":"a","deep":{"id":-0}}',
      '{"path":"a","deep":{"id":1e400}}',
    ]) {
      expect(bind(text).doc.text).toBe(text);
    }
  });

  it('carries every argument object as it came' + verifies('CY-15'), () => {
    fc.assert(
      fc.property(fc.record({ path: fc.string({ unit: 'grapheme' }), more: fc.jsonValue() }), (value) => {
        const text = JSON.stringify(value);
        fc.pre(
          text.length < 9000 && !/[\ud800-\udfff]/.test(JSON.stringify(value).replace(/\\ud[89a-f]../gi, '\ud800')),
        );
        expect(bind(text).doc.text).toBe(text);
      }),
    );
  });

  it('refuses a number that it would have to round', () => {
    const lift: ArgsShape['lift'] = (args) => ({ args: { ...args }, changed: true });
    expect(() => bind('{"path":"a","deep":{"id":12345678901234567890}}', { lift })).toThrow(
      /more digits than Tollgate can keep/,
    );
  });

  it.each(['[1]', '7', '"plain text"', 'true'])('refuses %s as arguments', (text) => {
    expect(() => bind(text)).toThrow(expect.objectContaining({ code: 'ARGS_INVALID' }));
  });

  it('takes null as no arguments, and text that holds an object as that object', () => {
    const none = { ...shapeOf(), schema: { type: 'object' }, validator: createValidator({ type: 'object' }) };
    expect(bindArguments(parseJsonDoc('null'), none).doc.value).toEqual({});
    expect(bind(JSON.stringify('{"path":"x"}')).doc.value).toEqual({ path: 'x' });
  });

  it('repairs only what failed, and says so', () => {
    const { doc, notes } = bind('{"path":"007","count":"5"}');
    expect(doc.value).toEqual({ path: '007', count: 5 });
    expect(notes.join(' ')).toContain('count');
    expect(bind('{"path":"{\\"a\\":1}"}')).toMatchObject({ notes: [], doc: { value: { path: '{"a":1}' } } });
  });

  it('refuses more bytes than the cap' + verifies('CY-17'), () => {
    expect(() => bind(JSON.stringify({ path: 'x'.repeat(200) }), { maxBytes: 100 })).toThrow(/longer than 100 bytes/);
  });

  it('names paths, and the message stays within 1 kB', () => {
    const many = Object.fromEntries(Array.from({ length: 200 }, (_, index) => [`p${index}`, { type: 'integer' }]));
    const wide = { type: 'object', properties: many };
    try {
      bindArguments(
        parseJsonDoc(JSON.stringify(Object.fromEntries(Object.keys(many).map((key) => [key, { not: 'a number' }])))),
        { ...shapeOf(), schema: wide, validator: createValidator(wide) },
      );
      expect.unreachable();
    } catch (error) {
      expect((error as Error).message.length).toBeLessThanOrEqual(1100);
      expect((error as { data: { paths: string[] } }).data.paths).toHaveLength(8);
    }
  });

  it('lets a pinned value win against every spelling', () => {
    const pins = { path: 'fixed' };
    for (const text of [
      '{}',
      '{"path":"other"}',
      '{"PATH":"other"}',
      '{"\\uff50ath":"other"}',
      '{"__proto__":{"path":"other"}}',
      '{"path":{"path":"other"}}',
    ]) {
      const { doc } = bind(text, { pins });
      expect((doc.value as { path: unknown }).path).toBe('fixed');
      expect(Object.keys(doc.value).filter((key) => key.normalize('NFKC').toLowerCase() === 'path')).toEqual(['path']);
    }
  });

  it('does not pollute prototypes', () => {
    bind('{"path":"a","__proto__":{"polluted":true},"constructor":{"prototype":{"polluted":true}}}');
    expect(({} as { polluted?: boolean }).polluted).toBeUndefined();
  });
});
