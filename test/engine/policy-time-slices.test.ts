/** Tests that long work runs in time slices, and that the tools of servers are checked one server after the other. */
import { performance } from 'node:perf_hooks';
import { describe, expect, it } from 'vitest';
import { inTimeSlices } from '../../catalogs/text/time-slices.ts';
import type { ToolEntry } from '../../facade/exposure/tool-entry.ts';
import { createNameNotices } from '../../facade/exposure/tool-name-check.ts';
import type { OfferedTool, Policy } from '../../policies/port.ts';
import { PRINCIPAL, policyOf } from './policy-fixture.ts';

describe('work in time slices', () => {
  it('processes all items in order, and lets other work run in between', async () => {
    const turns: number[] = [];
    const seen: number[] = [];
    for await (const item of inTimeSlices([0, 1, 2, 3])) {
      setImmediate(() => turns.push(item));
      seen.push(item);
      for (const began = performance.now(); performance.now() - began < 5; );
    }
    expect([seen, turns]).toEqual([
      [0, 1, 2, 3],
      [0, 1, 2, 3],
    ]);
  });

  it('does not pause for little or no work', async () => {
    let turned = false;
    setImmediate(() => (turned = true));
    for await (const _ of inTimeSlices([])) expect.unreachable();
    expect(turned).toBe(false);
  });
});

describe('names in rules that servers do not have', () => {
  const entry = { tool: { name: 'x', inputSchema: {} }, semantics: { verb: 'read' } } as unknown as ToolEntry;

  it('are reported once per server, also after a server that could not be checked', async () => {
    const events: string[] = [];
    const findUnoffered = async (server: string, tools: readonly OfferedTool[]): Promise<readonly string[]> => {
      events.push(`${server} ${tools.map(({ name }) => name).join()}`);
      await new Promise((resolve) => setImmediate(resolve));
      events.push(`${server} done`);
      if (server === 'b') throw new Error('b');
      return ['line'];
    };
    const { judge } = createNameNotices({ findUnoffered } as unknown as Policy, (line) => events.push(line));
    const judged = await Promise.allSettled([
      judge('a', [entry]),
      judge('none', []),
      judge('b', [entry]),
      judge('c', [entry]),
    ]);
    expect(judged.map(({ status }) => status)).toEqual(['fulfilled', 'fulfilled', 'rejected', 'fulfilled']);
    expect(events).toEqual(['a x', 'a done', 'line', 'b x', 'b done', 'c x', 'c done']);
  });
});

it('a program of a server that the policy does not name is not left unconfined', async () => {
  const policy = await policyOf([]);
  expect(() => policy.confinement('unheard-of')).toThrowError(expect.objectContaining({ code: 'INTERNAL' }) as Error);
  expect(() => policy.confinement('unheard-of', PRINCIPAL)).toThrowError(
    expect.objectContaining({ code: 'INTERNAL' }) as Error,
  );
});
