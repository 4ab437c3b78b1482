/** Tests the proposal of tools to show: its properties over generated servers, and one example. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { exposedName } from '../../catalogs/tools/exposed-names.ts';
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';
import {
  claimedReads,
  EXPOSURE_BUDGET,
  type ExposureBudget,
  proposeExposures,
  type ServerOffer,
} from '../../facade/exposure/exposure-proposal.ts';
import { verifies } from '../verifies.ts';

type Offered = ServerOffer['tools'][number];

const verb = fc.constantFrom('read', 'write', 'destructive', 'execute');
const tool = (name: string, verbOf: Offered['semantics']['verb'], letters = 10): Offered => ({
  tool: { name, description: 'x'.repeat(letters), inputSchema: { type: 'object' } },
  semantics: { verb: verbOf },
});
const tools = fc.uniqueArray(
  fc
    .record({ name: fc.stringMatching(/^[a-z][a-z_*.é ]{0,8}$/), verb, letters: fc.integer({ min: 0, max: 4000 }) })
    .map((one) => tool(one.name, one.verb as Offered['semantics']['verb'], one.letters)),
  { maxLength: 30, selector: (one) => one.tool.name },
);
const servers = fc.uniqueArray(fc.record({ name: fc.stringMatching(/^[a-z]{1,4}$/), tools }), {
  maxLength: 8,
  selector: ({ name }) => name,
});
const budget = fc.record({
  bytes: fc.integer({ min: 12, max: 20_000 }),
  tools: fc.integer({ min: 0, max: 25 }),
  perServer: fc.integer({ min: 1, max: 10 }),
});

/** The tools that may be named, with their bytes in a list that has nothing else. */
function nameable(offers: readonly ServerOffer[]) {
  return offers.flatMap(({ name, tools: offered }) =>
    offered
      .filter((one) => /^[\w./-]+$/.test(one.tool.name))
      .map((one) => ({
        server: name,
        id: `${name}.${one.tool.name}`,
        verb: one.semantics.verb,
        text: JSON.stringify({ ...one.tool, name: exposedName(name, one.tool.name) }),
      })),
  );
}
const listBytes = (texts: readonly string[]): number => Buffer.byteLength(`{"tools":[${texts.join(',')}]}`);

describe('a proposal of tools to show', () => {
  const holds = (property: (offers: readonly ServerOffer[], limits: ExposureBudget) => void): void =>
    fc.assert(fc.property(servers, budget, property), { numRuns: 300 });

  it('never exceeds the budget, and counts the bytes of the list exactly' + verifies('FH-38'), () =>
    holds((offers, limits) => {
      const { expose, before, after } = proposeExposures(offers, limits);
      const all = nameable(offers);
      const chosen = all.filter(({ id }) => expose.includes(id));
      expect(chosen.map(({ id }) => id).sort()).toEqual(expose);
      expect(after).toEqual({ tools: expose.length, bytes: listBytes(chosen.map(({ text }) => text)) });
      expect(before).toEqual({ tools: all.length, bytes: listBytes(all.map(({ text }) => text)) });
      expect(after.bytes).toBeLessThanOrEqual(limits.bytes);
      expect(after.tools).toBeLessThanOrEqual(limits.tools);
      for (const { name } of offers)
        expect(chosen.filter(({ server }) => server === name).length).toBeLessThanOrEqual(limits.perServer);
    }),
  );

  it('does not depend on the order of servers and tools' + verifies('FH-38'), () =>
    holds((offers, limits) => {
      const turned = [...offers].reverse().map((one) => ({ ...one, tools: [...one.tools].reverse() }));
      expect(proposeExposures(turned, limits)).toEqual(proposeExposures(offers, limits));
    }),
  );

  it('prefers reads to writes, and shows other tools only of servers with neither' + verifies('FH-38'), () =>
    holds((offers, limits) => {
      const { expose, after } = proposeExposures(offers, limits);
      const all = nameable(offers);
      const chosen = all.filter(({ id }) => expose.includes(id));
      const isHarmless = (name: string): boolean =>
        all.some((one) => one.server === name && (one.verb === 'read' || one.verb === 'write'));
      for (const one of chosen)
        if (one.verb === 'destructive' || one.verb === 'execute') expect(isHarmless(one.server)).toBe(false);
      // No write took the place of a read of the same server.
      for (const { server } of chosen.filter((one) => one.verb === 'write'))
        for (const left of all.filter((one) => one.server === server && one.verb === 'read'))
          if (!expose.includes(left.id)) {
            // A server without a read gets one tool before the others get their second.
            const reads = chosen
              .filter((one) => one.verb === 'read' || !all.some((o) => o.server === one.server && o.verb === 'read'))
              .map(({ text }) => text);
            expect(
              listBytes([...reads, left.text]) > limits.bytes || after.tools >= limits.tools,
              `${left.id} was left out`,
            ).toBe(true);
          }
    }),
  );

  it('gives each server with a read tool at least one while the budget allows' + verifies('FH-38'), () =>
    holds((offers, limits) => {
      const { expose } = proposeExposures(offers, limits);
      const smallest = offers.flatMap(({ name }) => {
        const reads = nameable(offers).filter((one) => one.server === name && one.verb === 'read');
        return reads.sort((one, other) => one.text.length - other.text.length).slice(0, 1);
      });
      const fits = listBytes(smallest.map(({ text }) => text)) <= limits.bytes && smallest.length <= limits.tools;
      if (!fits) return;
      for (const { server } of smallest) expect(expose.some((id) => id.startsWith(`${server}.`))).toBe(true);
    }),
  );

  it('is short for servers with many tools' + verifies('FH-38'), () => {
    const many = Array.from({ length: 60 }, (_, at) => tool(`t${at}`, at % 3 === 0 ? 'read' : 'destructive', 900));
    const { expose, before, after } = proposeExposures([
      { name: 'big', tools: many },
      { name: 'small', tools: [tool('look', 'read'), tool('send', 'write'), tool('drop', 'destructive')] },
      { name: 'unknown', tools: [tool('run', 'destructive')] },
    ]);
    expect(expose).toContain('small.look');
    expect(expose).toContain('small.send');
    expect(expose).toContain('unknown.run');
    expect(expose).not.toContain('small.drop');
    expect(expose.filter((id) => id.startsWith('big.'))).toHaveLength(EXPOSURE_BUDGET.perServer);
    expect([before.tools, after.tools]).toEqual([64, 11]);
  });
});

it('believes a read-only hint only together with the name' + verifies('FH-04'), () => {
  const tool = (name: string, readOnlyHint?: boolean): RawTool =>
    ({
      name,
      inputSchema: { type: 'object' },
      ...(readOnlyHint !== undefined && { annotations: { readOnlyHint } }),
    }) as RawTool;
  const tools = [
    tool('get_issue', true),
    tool('searchCode', true),
    tool('list', true),
    tool('getaway', true),
    tool('delete_all', true),
    tool('get_token'),
    tool('read_file', false),
  ];
  expect(claimedReads(tools)).toEqual(['get_issue', 'searchCode', 'list']);
});
