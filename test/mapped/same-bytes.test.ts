/** Compares the workspace with a real server: the same edits and reads must give the same bytes. */

import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { inFull } from '../harness/full-tests.ts';
import { roundsOf } from '../harness/slices.ts';
import { type Opened, openBackend } from './third-party-servers.ts';

const piece = fc.constantFrom('a', 'b', 'ab', 'ä', '😀', ' ', '\t', '\n', '\r\n', '\n\n', '$&', '1: ', '\ufeff');
const text = fc.array(piece, { maxLength: 14 }).map((pieces) => pieces.join(''));

interface Outcome {
  readonly items: readonly (string | undefined)[];
  readonly isError: boolean;
  readonly code?: string;
  readonly bytes: string;
}

async function act(
  opened: Opened,
  given: {
    readonly tool: string;
    readonly args: Readonly<Record<string, unknown>>;
    readonly before: string;
    readonly scope: string;
  },
): Promise<Outcome> {
  const file = path.join(opened.root, 'a.txt');
  writeFileSync(file, given.before);
  const bytes = (): string => readFileSync(file).toString('hex');
  const args = { path: 'a.txt', ...given.args };
  try {
    const { value } = await opened.backend.call({
      tool: given.tool,
      args: { text: JSON.stringify(args), value: args, exact: true },
      scope: given.scope,
      signal: new AbortController().signal,
      timeoutMs: 20_000,
      hardTimeoutMs: 20_000,
    });
    return { items: (value.content ?? []).map((item) => item.text), isError: value.isError === true, bytes: bytes() };
  } catch (error) {
    if (!(error instanceof TollgateError)) throw error;
    return { items: [error.message, error.next], isError: true, code: error.code, bytes: bytes() };
  }
}

describe('workspace and server-filesystem', () => {
  let backends: readonly Opened[];
  let scope = 0;
  beforeAll(async () => {
    backends = [await openBackend('workspace'), await openBackend('server-filesystem')];
  });
  afterAll(() => Promise.all(backends.map((opened) => opened.close())));

  const both = async (
    tool: string,
    args: Readonly<Record<string, unknown>>,
    before: string,
  ): Promise<readonly (Outcome | undefined)[]> => {
    scope += 1;
    return Promise.all(backends.map((opened) => act(opened, { tool, args, before, scope: `s${scope}` })));
  };

  inFull(
    'store the same bytes and return the same text for the same edit',
    async () => {
      await fc.assert(
        fc.asyncProperty(text, text, text, fc.boolean(), async (before, old_string, new_string, replace_all) => {
          const [here, there] = await both('edit', { old_string, new_string, replace_all }, before);
          expect(there).toEqual(here);
        }),
        { numRuns: roundsOf(120, 40) },
      );
    },
    60_000,
  );

  it('replace exactly the given text', async () => {
    await fc.assert(
      fc.asyncProperty(text, text, text, async (head, tail, fresh) => {
        const [here, there] = await both('edit', { old_string: '<old>', new_string: fresh }, `${head}<old>${tail}`);
        expect(there).toEqual(here);
        expect(there?.isError).toBe(false);
        expect(there?.bytes.startsWith(Buffer.from(head).toString('hex'))).toBe(true);
        expect(there?.bytes.endsWith(Buffer.from(tail).toString('hex'))).toBe(true);
      }),
      { numRuns: roundsOf(60, 20) },
    );
  }, 60_000);

  it('return the same lines and notes for the same read', async () => {
    await fc.assert(
      fc.asyncProperty(
        text,
        fc.integer({ min: -4, max: 6 }),
        fc.integer({ min: 0, max: 4 }),
        async (before, offset, limit) => {
          const [here, there] = await both('read', { offset, limit }, before);
          expect(there).toEqual(here);
        },
      ),
      { numRuns: roundsOf(120, 40) },
    );
  }, 60_000);
});
