/**
 * Tests facade/call/validate.ts: the arguments that leave are those of the client, or the reply says what was changed.
 */
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

describe('the arguments of a call', () => {
  it("are sent as the client's own bytes if no stage changed them", () => {
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

  it('reach the server as they came, for every argument object' + verifies('CY-15'), () => {
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

  it('are refused if a number would be rounded', () => {
    const lift: ArgsShape['lift'] = (args) => ({ args: { ...args }, changed: true });
    expect(() => bind('{"path":"a","deep":{"id":12345678901234567890}}', { lift })).toThrow(
      /more digits than Tollgate can keep/,
    );
  });

  it.each(['[1]', '7', '"plain text"', 'true'])('are refused if they are %s', (text) => {
    expect(() => bind(text)).toThrow(expect.objectContaining({ code: 'ARGS_INVALID' }));
  });

  it('may be null, which means none, or a text that contains an object', () => {
    const none = { ...shapeOf(), schema: { type: 'object' }, validator: createValidator({ type: 'object' }) };
    expect(bindArguments(parseJsonDoc('null'), none).doc.value).toEqual({});
    expect(bind(JSON.stringify('{"path":"x"}')).doc.value).toEqual({ path: 'x' });
  });

  it('are repaired only where they failed, and a note says so', () => {
    const { doc, notes } = bind('{"path":"007","count":"5"}');
    expect(doc.value).toEqual({ path: '007', count: 5 });
    expect(notes.join(' ')).toContain('count');
    expect(bind('{"path":"{\\"a\\":1}"}')).toMatchObject({ notes: [], doc: { value: { path: '{"a":1}' } } });
  });

  it('are refused if they have more bytes than the cap' + verifies('CY-17'), () => {
    expect(() => bind(JSON.stringify({ path: 'x'.repeat(200) }), { maxBytes: 100 })).toThrow(/longer than 100 bytes/);
  });

  it('that are invalid get an error that names the paths and stays within 1 kB', () => {
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

  it('get pinned values, which win against every spelling', () => {
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

  it('do not pollute prototypes', () => {
    bind('{"path":"a","__proto__":{"polluted":true},"constructor":{"prototype":{"polluted":true}}}');
    expect(({} as { polluted?: boolean }).polluted).toBeUndefined();
  });
});
