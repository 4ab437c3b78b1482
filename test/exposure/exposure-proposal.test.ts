/** Tests the proposal of tools to show: its properties over generated servers, and examples. */
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
import { roundsOf } from '../harness/slices.ts';
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
    fc.assert(fc.property(servers, budget, property), { numRuns: roundsOf(300, 60) });

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

  it('does not depend on the order of the servers' + verifies('FH-38'), () =>
    holds((offers, limits) => {
      expect(proposeExposures([...offers].reverse(), limits)).toEqual(proposeExposures(offers, limits));
    }),
  );

  it('keeps the order of each server, of what reads and of what writes' + verifies('FH-38'), () =>
    holds((offers, limits) => {
      const { expose, after } = proposeExposures(offers, limits);
      for (const { name } of offers)
        for (const verbs of [['read'], ['write'], ['destructive', 'execute']]) {
          const own = nameable(offers).filter(({ server, verb }) => server === name && verbs.includes(verb));
          const last = own.findLastIndex(({ id }) => expose.includes(id));
          // Only a tool that did not fit is left out before another one.
          for (const { id, text } of own.slice(0, Math.max(0, last)))
            if (!expose.includes(id)) expect(after.bytes + text.length + 1).toBeGreaterThan(limits.bytes);
        }
    }),
  );

  it('shows reads and others of a server in turn, those that destroy or execute last' + verifies('FH-38'), () => {
    const verbs = ['destructive', 'write', 'execute', 'read', 'write', 'read', 'read'] as const;
    const tools = verbs.map((verb, at) => tool(`${verb}${at}`, verb));
    const shownOf = (count: number): readonly string[] =>
      proposeExposures([{ name: 's', tools }], { ...EXPOSURE_BUDGET, tools: count }).expose;
    const added = [1, 2, 3, 4, 5, 6, 7].map((count) => shownOf(count).find((id) => !shownOf(count - 1).includes(id)));
    expect(added).toEqual(
      ['write1', 'read3', 'write4', 'read5', 'destructive0', 'read6', 'execute2'].map((name) => `s.${name}`),
    );
  });

  it('gives each server its share before another one gets more' + verifies('FH-38'), () =>
    holds((offers, limits) => {
      const { expose } = proposeExposures(offers, { ...limits, bytes: Number.MAX_SAFE_INTEGER });
      const counts = offers.map(({ name }) => ({
        shown: expose.filter((id) => id.startsWith(`${name}.`)).length,
        all: nameable(offers).filter(({ server }) => server === name).length,
      }));
      const most = Math.max(0, ...counts.map(({ shown }) => shown));
      for (const { shown, all } of counts) expect(shown).toBeGreaterThanOrEqual(Math.min(all, most - 1));
    }),
  );

  it('shows the main tools of four usual servers, those that write too' + verifies('FH-38'), () => {
    const { expose } = proposeExposures([
      {
        name: 'memory',
        tools: [
          tool('create_entities', 'write', 900),
          tool('create_relations', 'write', 900),
          tool('add_observations', 'write', 900),
          tool('delete_entities', 'destructive', 300),
          tool('read_graph', 'read', 300),
          tool('search_nodes', 'read', 300),
        ],
      },
      {
        name: 'tavily',
        tools: [
          tool('tavily_search', 'read', 4000),
          ...['extract', 'crawl', 'map'].map((name) => tool(`tavily_${name}`, 'read', 1200)),
        ],
      },
      { name: 'files', tools: Array.from({ length: 14 }, (_, at) => tool(`file${at}`, 'read', 500)) },
      { name: 'thinking', tools: [tool('think', 'destructive', 3000)] },
    ]);
    for (const name of ['create_entities', 'create_relations', 'read_graph', 'search_nodes'])
      expect(expose).toContain(`memory.${name}`);
    expect(expose).toContain('tavily.tavily_search');
    expect(expose).toContain('thinking.think');
  });

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
    expect(expose.filter((id) => id.startsWith('big.'))).toHaveLength(EXPOSURE_BUDGET.perServer);
    expect([before.tools, after.tools]).toEqual([64, 12]);
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
