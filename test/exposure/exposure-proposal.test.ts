/** Tests which tools are proposed to be shown. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';
import { claimedReads, proposeExposures, type ShowableTool } from '../../facade/exposure/exposure-proposal.ts';
import { verifies } from '../verifies.ts';

const showable = fc.record({
  server: fc.constantFrom('a', 'b', 'c'),
  tool: fc.record({ name: fc.string({ minLength: 1, maxLength: 9 }), description: fc.string({ maxLength: 300 }) }),
  verb: fc.constantFrom('read', 'write', 'destructive', 'execute'),
}) as fc.Arbitrary<ShowableTool>;

describe('the proposed exposures' + verifies('FH-04'), () => {
  it('stay within the budget, are the same for the same tools, and contain other tools only of servers without better ones', () => {
    fc.assert(
      fc.property(fc.array(showable), fc.nat({ max: 12 }), fc.nat({ max: 2000 }), (all, tools, bytes) => {
        const proposed = proposeExposures(all, { tools, bytes });
        expect(proposed.length).toBeLessThanOrEqual(tools);
        expect(proposed.reduce((sum, one) => sum + one.bytes, 0)).toBeLessThanOrEqual(bytes);
        const isOther = ({ verb }: ShowableTool): boolean => verb !== 'read' && verb !== 'write';
        for (const { server } of proposed.filter(isOther)) {
          expect(all.filter((one) => one.server === server).every(isOther)).toBe(true);
          expect(proposed.filter((one) => one.server === server).length).toBeLessThanOrEqual(3);
        }
        expect(proposeExposures(all, { tools, bytes })).toEqual(proposed);
      }),
    );
  });

  it('give each server its first reading tool before a second one, and writing tools last', () => {
    fc.assert(
      fc.property(fc.array(showable), fc.integer({ min: 3, max: 12 }), (all, tools) => {
        const proposed = proposeExposures(all, { tools, bytes: 1e6 });
        const reads = all.filter(({ verb }) => verb === 'read');
        const servers = new Set(reads.map(({ server }) => server));
        for (const server of servers)
          expect(proposed.some((one) => one.server === server && one.verb === 'read')).toBe(true);
        if (proposed.some(({ server, verb }) => verb === 'write' && servers.has(server)))
          expect(proposed.filter(({ verb }) => verb === 'read')).toHaveLength(reads.length);
        expect(new Set(proposed.map(({ server }) => server))).toEqual(new Set(all.map(({ server }) => server)));
      }),
    );
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
