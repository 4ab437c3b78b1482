/** Tests that the reader, which parses no values, agrees with JSON.parse on what is JSON and what a message holds. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type MessageSender, parseJsonDoc, readMessage } from '../../adapters/rpc/message-parser.ts';
import type { JsonDoc } from '../../adapters/rpc/wire-message.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import { bytesOf, message, value } from './json-texts.ts';
import { type ReadMessage, readReference } from './reference-reader.ts';

describe('the reader of messages', () => {
  it(
    'accepts, refuses and returns exactly what a reader does that parses everything' +
      verifies('FP-05') +
      verifies('FP-16'),
    () => {
      const kinds = new Map<string, number>();
      fc.assert(
        fc.property(bytesOf(message), fc.constantFrom<MessageSender>('client', 'server'), (bytes, side) => {
          const expected = readReference(bytes, side);
          expect(readPlainly(bytes, side)).toEqual(expected);
          kinds.set(expected.kind, (kinds.get(expected.kind) ?? 0) + 1);
        }),
        { numRuns: roundsOf(10_000, 1_000) },
      );
      // The messages are of every kind, or the comparison would show nothing.
      for (const kind of ['request', 'notification', 'result', 'error', 'invalid'])
        expect(kinds.get(kind) ?? 0, kind).toBeGreaterThan(roundsOf(30, 0));
    },
  );

  it('accepts exactly the texts that JSON.parse accepts, and returns the same values', () => {
    fc.assert(
      fc.property(bytesOf(value), (bytes) => {
        const text = bytes.toString('utf8');
        const [doc, parsed] = [attempt(() => parseJsonDoc(text).value), attempt(() => JSON.parse(text) as unknown)];
        if (doc.code !== 'WIRE_DUPLICATE_KEY' && doc.code !== 'WIRE_LONE_SURROGATE') {
          expect(doc.code).toBe(parsed.code);
          expect(doc.value).toEqual(parsed.value);
        } else expect(parsed.code).toBe('');
      }),
      { numRuns: roundsOf(10_000, 1_000) },
    );
  });

  it('agrees also on long texts, which it reads in words', () => {
    const filler = fc.constantFrom('x', 'é', '漢', '\\n', '\\"', '\u007f', '\t', '\\u0041');
    const long = fc
      .tuple(fc.nat(2_100), filler, fc.nat(9), filler, value)
      .map(
        ([count, one, few, other, item]) =>
          `{"jsonrpc":"2.0","id":1,"result":{"a":"${'y'.repeat(few)}${one.repeat(count)}${other}","b":${item}}}`,
      );
    fc.assert(
      fc.property(long, (text) => {
        const bytes = Buffer.from(text);
        expect(readPlainly(bytes, 'server')).toEqual(readReference(bytes, 'server'));
      }),
      { numRuns: roundsOf(2_000, 200) },
    );
  });

  it('finds an equal key among any number of keys', () => {
    fc.assert(
      fc.property(fc.integer({ min: 2, max: 60 }), fc.nat(), fc.nat(), fc.boolean(), (count, first, second, escape) => {
        const keys = Array.from({ length: count }, (_, at) => `k${at}`);
        const [one, other] = [first % count, second % count];
        keys[other] = escape ? `\\u006b${one}` : `k${one}`;
        const text = `{${keys.map((key) => `"${key}":1`).join(',')}}`;
        expect(attempt(() => parseJsonDoc(text)).code).toBe(one === other ? '' : 'WIRE_DUPLICATE_KEY');
      }),
    );
  });
});

function readPlainly(bytes: Buffer, side: MessageSender): ReadMessage {
  const read = readMessage(bytes, side);
  if (read.kind === 'invalid') return { kind: 'invalid', id: read.id, code: read.error.code };
  // The reference leaves the server's error as it is; how it is read has tests of its own.
  if (read.kind === 'error')
    return { kind: 'error', id: read.id, error: (JSON.parse(bytes.toString('utf8')) as ReadMessage).error };
  if (read.kind === 'result') return { ...read, result: plain(read.result) };
  return { ...read, params: plain(read.params), ...(read.kind === 'request' && { args: plain(read.args) }) };
}

function plain(doc: JsonDoc | undefined): unknown {
  return doc && { text: doc.text, value: doc.value, exact: doc.exact };
}

function attempt(work: () => unknown): { readonly value?: unknown; readonly code: string } {
  try {
    return { value: work(), code: '' };
  } catch (thrown) {
    return { code: thrown instanceof TollgateError ? thrown.code : 'WIRE_PARSE' };
  }
}
