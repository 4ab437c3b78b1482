/**
 * Tests by property that what the agent is shown and what it can read from the spill are together the redacted result.
 */

import { writeFileSync } from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { escapeHostile } from '../../catalogs/text/hostile-text.ts';
import type { ToolResult } from '../../catalogs/tools/tool-definition.ts';
import type { Session } from '../../facade/serve/facade-port.ts';
import { inFull } from '../harness/full-tests.ts';
import { roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import { ACT, type RawFacade, startRaw } from './raw-facade.ts';

const SECRET = 'spill-key/12345"67';
/** A small cap, for many pages. test/security/server-channels.test.ts tests the smallest that is accepted. */
const CAP = { bytes: 3000, lines: 60 };
let facade: RawFacade;
let session: Session;

beforeAll(async () => {
  facade = await startRaw(
    { one: { tools: [ACT], settings: { env: { KEY: '${SPILL_KEY}' } } } },
    {
      caps: CAP,
      profiles: { all: { servers: ['one'], expose: { tools: ['one.act'] } } },
      rules: [{ id: 'all', outcome: 'allow', when: { servers: ['one', 'workspace'] } }],
    },
    { SPILL_KEY: SECRET },
  );
  session = facade.open('me');
});
afterAll(() => facade.close());

/** Lines of all lengths, one endless line, characters of every size, and a secret in several spellings. */
const piece = fc.oneof(
  fc.string({ unit: 'grapheme', maxLength: 60 }),
  fc.constantFrom(
    '\n',
    '\n',
    '\r\n',
    '',
    SECRET,
    JSON.stringify(SECRET),
    Buffer.from(`key=${SECRET};`).toString('base64'),
    '\u001b[31m',
    '中文',
    '😀😀',
  ),
  fc
    .tuple(fc.constantFrom('x', 'é', '中', '😀', '{"a":[1,2]},', 'line\n'), fc.integer({ min: 1, max: 2500 }))
    .map(([part, times]) => part.repeat(times)),
);
const whole = (parts: readonly string[]): string => Buffer.from(parts.join(''), 'utf8').toString('utf8');
const texts = fc.array(fc.array(piece, { minLength: 1, maxLength: 14 }).map(whole), { minLength: 1, maxLength: 4 });

/** One part of `_meta["tollgate/cut"]`. */
interface Part {
  readonly bytes: number;
  readonly spill: string;
  readonly offset: number;
}

function itemsOf(result: ToolResult | undefined): readonly string[] {
  return (result?.content ?? []).map((item) => item.text ?? '');
}

/** Makes the exact calls that the footers name, from a line on. Returns the joined pages. */
async function readOn(spill: string, offset: number): Promise<string> {
  let text = '';
  // The loop ends, because a page that does not advance fails.
  for (let next: number | undefined = offset; next !== undefined; ) {
    const answer = await facade.call(session, 'read', { path: spill, offset: next });
    expect(answer.code, answer.text).toBe('');
    expect(answer.result?._meta).not.toHaveProperty(['tollgate/cut']);
    expect(itemsOf(answer.result).reduce((sum, text) => sum + Buffer.byteLength(text), 0)).toBeLessThanOrEqual(
      CAP.bytes,
    );
    const [page = '', footer = ''] = itemsOf(answer.result);
    const more: string | undefined =
      /^\[tollgate: lines \d+-\d+ of \d+\. Next: read path="spill:\/\/[0-9a-f]{32}" offset=(\d+)\]$/.exec(footer)?.[1];
    if (more !== undefined) expect(Number(more)).toBeGreaterThan(next);
    text += page;
    next = more === undefined ? undefined : Number(more);
  }
  return text;
}

/** Returns the text of a result before its notices, and the content of its spills. */
async function joined(
  result: ToolResult | undefined,
): Promise<{ readonly shown: readonly string[]; readonly spilled: readonly string[] }> {
  const parts = (result?._meta?.['tollgate/cut'] as { parts: readonly Part[] } | undefined)?.parts ?? [];
  const items = itemsOf(result);
  const spilled: string[] = [];
  for (const [index, { spill, bytes }] of parts.entries()) {
    const notice = items[items.length - parts.length + index] ?? '';
    expect(notice).toContain(`Next: read path="${spill}" offset=`);
    const text = await readOn(spill, 1);
    expect(Buffer.byteLength(text)).toBe(bytes);
    spilled.push(text);
  }
  return { shown: items.slice(0, items.length - parts.length), spilled };
}

const clean = (text: string): string => escapeHostile(facade.assembled.deps.redactor.redact(text).value).text;

describe('cut plus spill is the redacted original' + verifies('HA-11', 'CY-19'), () => {
  it('for several texts, long lines, characters of every size, and secrets', async () => {
    await fc.assert(
      fc.asyncProperty(texts, async (given) => {
        const raw = JSON.stringify({ content: given.map((text) => ({ type: 'text', text })) });
        const { result, code } = await facade.call(session, 'one_act', { raw });
        expect(code).toBe('');
        const { shown, spilled } = await joined(result);
        const expected = given.map(clean);
        const first = shown.findIndex((text, index) => text !== expected[index]);
        const kept = spilled.length === 0 ? expected.length : first === -1 ? shown.length : first;
        expect(shown.slice(0, kept)).toEqual(expected.slice(0, kept));
        const all = [
          ...expected.slice(0, kept),
          ...restOf(spilled, { shown: shown.slice(kept), expected: expected.slice(kept) }),
        ];
        expect(all).toEqual(expected);
        for (const text of [...shown, ...spilled]) expect(text).not.toContain(SECRET);
        expect(shown.reduce((sum, text) => sum + Buffer.byteLength(text), 0)).toBeLessThanOrEqual(CAP.bytes);
      }),
      { numRuns: roundsOf(60, 8) },
    );
  }, 60_000);

  inFull(
    'for command output with head, gap and tail' + verifies('HA-11'),
    async () => {
      await fc.assert(
        fc.asyncProperty(
          fc
            .array(piece, { minLength: 4, maxLength: 12 })
            .map(whole)
            .map((text) => `${text.replace(/\r|\u001b\[31m/g, '')}\n`.repeat(3)),
          async (text) => {
            writeFileSync(path.join(facade.folder, 'workspace', 'big.txt'), text);
            const { result, code } = await facade.call(session, 'bash', { command: 'cat big.txt' });
            expect(code).toBe('');
            const { shown, spilled } = await joined(result);
            if (spilled.length === 0) return;
            const [all = ''] = spilled;
            const [{ offset } = { offset: 0 }] = (result?._meta?.['tollgate/cut'] as { parts: readonly Part[] }).parts;
            expect(all).toContain(clean(text).slice(0, 500));
            expect(all.startsWith(shown[0] ?? '?')).toBe(true);
            expect(all.endsWith(shown[1] ?? '')).toBe(true);
            expect(all).toBe((shown[0] ?? '') + (await readOn(handleOf(result), offset)));
          },
        ),
        { numRuns: roundsOf(12, 6) },
      );
      const { shown } = await joined((await facade.call(session, 'bash', { command: 'seq 1 5000' })).result);
      expect(shown[0]).toMatch(/^1\n2\n/);
      expect(shown[1]).toMatch(/\n4999\n5000\n?$/);
    },
    60_000,
  );

  it('for structured content: the spill has all of it, and the shown part is shorter', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.string({ unit: 'grapheme', minLength: 30, maxLength: 80 }), { minLength: 160, maxLength: 250 }),
        async (rows) => {
          const structuredContent = { rows: rows.map((row) => whole([row])) };
          const { result } = await facade.call(session, 'one_act', {
            raw: JSON.stringify({ content: [], structuredContent }),
          });
          const { spilled } = await joined(result);
          expect(JSON.parse(spilled[0] ?? '')).toEqual(
            JSON.parse(
              JSON.stringify(structuredContent, (_, value: unknown) =>
                typeof value === 'string' ? clean(value) : value,
              ),
            ),
          );
          expect(Buffer.byteLength(JSON.stringify(result?.structuredContent))).toBeLessThanOrEqual(CAP.bytes);
        },
      ),
      { numRuns: roundsOf(10, 5) },
    );
  }, 60_000);
});

function handleOf(result: ToolResult | undefined): string {
  return (result?._meta?.['tollgate/cut'] as { parts: readonly Part[] }).parts[0]?.spill ?? '';
}

/** Returns the texts after the last complete one. The spill has the cut one as text, the others as lines of JSON. */
function restOf(
  spilled: readonly string[],
  { shown, expected }: { shown: readonly string[]; expected: readonly string[] },
): readonly string[] {
  const [first = '', ...others] = spilled;
  const cut = first === expected[0];
  if (cut) expect(first.startsWith(shown[0] ?? '') && first.endsWith(shown[1] ?? '')).toBe(true);
  const lines = cut ? others : spilled;
  return [
    ...(cut ? [first] : []),
    ...lines.flatMap((text) =>
      text
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => (JSON.parse(line) as { text: string }).text),
    ),
  ];
}
