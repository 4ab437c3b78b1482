/** Tests which call `connect` offers: one that only reads, that the policy may allow, and without made-up values. */
import { describe, expect, it } from 'vitest';
import { chooseTrial } from '../../facade/cli/connect/trial-call.ts';
import { verifies } from '../verifies.ts';

type Listed = Parameters<typeof chooseTrial>[0][number];
const tool = (name: string, inputSchema: object, { verb = 'read', verdict = 'always', server = 's' } = {}): Listed =>
  ({
    name,
    text: JSON.stringify({ name, inputSchema }),
    server: { name: server },
    entry: { semantics: { verb } },
    decision: { verdict },
  }) as unknown as Listed;
const needs = (properties: object, more: object = {}): object => ({
  type: 'object',
  properties,
  required: Object.keys(properties),
  ...more,
});

describe('the test call of connect' + verifies('PF-18', 'FH-56'), () => {
  it('has only values that the schema names, and prefers a tool without required arguments', () => {
    const some = tool('some', needs({ a: { default: 1 }, b: { enum: ['x', 'y'] }, c: { const: null } }));
    expect(chooseTrial([some], 's')).toEqual({ name: 'some', args: { a: 1, b: 'x', c: null } });
    const optional = tool('optional', { type: 'object', properties: { a: { default: 1 } } });
    expect(chooseTrial([some, optional], 's')).toEqual({ name: 'optional', args: {} });
    expect(chooseTrial([tool('bare', {})], 's')).toEqual({ name: 'bare', args: {} });
    // Rules about labels make it depend on the run; it is decided before it is made.
    expect(chooseTrial([tool('bare', {}, { verdict: 'maybe' })], 's')).toEqual({ name: 'bare', args: {} });
  });

  it.each([
    ['writes', tool('t', {}, { verb: 'write' })],
    ['is not classified', tool('t', {}, { verb: 'destructive' })],
    ['asks a person', tool('t', {}, { verdict: 'ask' })],
    ['belongs to another server', tool('t', {}, { server: 'other' })],
    ['needs a value that only a person has', tool('t', needs({ id: { type: 'string', examples: ['1'] } }))],
    ['may need more than it says', tool('t', { type: 'object', anyOf: [{ required: ['a'] }, { required: ['b'] }] })],
    ['needs a property that it does not define', tool('t', { type: 'object', required: ['toString'] })],
  ])('is no tool that %s', (_why, one) => {
    expect(chooseTrial([one], 's')).toBeUndefined();
  });
});
