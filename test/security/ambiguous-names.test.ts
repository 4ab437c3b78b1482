/**
 * Tests attacks with names: lists, rules, grants and shown names must read a name of a server or tool in the same way.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { judgeTool } from '../../catalogs/lint/definition-audit.ts';
import { exposedNames, findExposed } from '../../catalogs/tools/exposed-names.ts';
import { nameFault, SERVER_NAME, toSlug } from '../../facade/config/servers/server-names.ts';
import { completeGrant, evaluateGrants, type Grant } from '../../facade/consent/grants/grant.ts';
import { toolMatcher } from '../../facade/exposure/served-server.ts';
import { callOf, policyOf } from '../engine/policy-fixture.ts';
import { verifies } from '../verifies.ts';

/** Names that look like `read`, or that a reader who folds, trims or splits takes for it. */
const HOSTILE: Readonly<Record<string, string>> = {
  'a Cyrillic letter': 'r\u0435ad',
  'wide letters': '\uff52ead',
  'a ligature': 'read\ufb01le',
  'a letter with a mark, composed': 'r\u00e9ad',
  'a letter with a mark, apart': 're\u0301ad',
  'a dotless i': 'l\u0131st',
  'a Kelvin sign': '\u212aill',
  'a space of no width': 're\u200bad',
  'a joiner': 're\u200dad',
  'a byte order mark': '\ufeffread',
  'a soft hyphen': 're\u00adad',
  'a right-to-left override': '\u202edaer',
  'a tag letter': 'read\u{e0041}',
  'a blank after': 'read ',
  'a blank before': ' read',
  'a hard blank': 'read\u00a0',
  'a tab': 'read\t',
  'a line break': 'read\n',
  'a NUL': 'read\0',
  'a star': '*',
  'a star within': 'read_*',
  'a comma': 'read,write',
  'two underscores as between server and tool': 'git__push',
  'no letters': '',
};

const grantOf = (tool: string, kind: Grant['kind'] = 'always'): Grant => ({
  ...completeGrant({ origin: 'app', profile: 'p', scope: 'mcp:tools.call', kind, tools: [`git.${tool}`] }, 0),
  id: 'g',
  by: 'me',
  at: 0,
});
const reaches = (tool: string, asked: string): boolean =>
  evaluateGrants([grantOf(tool)], { profile: 'p', scope: 'mcp:tools.call', tool: { server: 'git', tool: asked } })
    .kind === 'allow';

/** Names that servers list, and names that another reader could take them for. */
const letters = fc.constantFrom(
  'a',
  'B',
  'i',
  'K',
  '1',
  '_',
  '-',
  '.',
  '/',
  ':',
  '$',
  '%',
  '+',
  '(',
  '?',
  '[',
  '\\',
  '^',
  '@',
  '~',
);
const names = fc
  .array(letters, { minLength: 1, maxLength: 6 })
  .map((list) => list.join(''))
  .filter((name) => judgeTool({ name, inputSchema: { type: 'object' } }).quarantine === undefined);
const variants = fc.constantFrom<(name: string) => string>(
  (name) => name.toUpperCase(),
  (name) => name.toLowerCase(),
  (name) => name.replaceAll('-', '_'),
  (name) => name.replaceAll('_', '-'),
  (name) => `${name}.`,
  (name) => name.replace(/\W/g, '_'),
  (name) => `${name}_`,
  (name) => name.slice(1) || 'z',
);

describe('a name that another reader takes for a different one', () => {
  it.each(Object.entries(HOSTILE))('is not listed: %s' + verifies('TR-59'), (_case, name) => {
    expect(judgeTool({ name, inputSchema: { type: 'object' } }).quarantine).toContain('TOOL_NAME_INVALID');
  });

  it.each(Object.entries(HOSTILE).filter(([label]) => !/underscores|^a star$/.test(label)))(
    'is not accepted as the tool of a grant: %s' + verifies('TR-59'),
    (_case, name) => {
      for (const kind of ['always', 'deny'] as const) expect(() => grantOf(name, kind)).toThrow(/is not a tool/);
    },
  );

  it.each(['Git', 'GIT', 'g\u0456t', '\uff47it', 'git ', ' git', 'git.', 'git\u200b', 'gi_t', 'gi.t', 'g\u0131t', ''])(
    'is not accepted as the name of a server: %j' + verifies('TR-59'),
    (name) => {
      expect(nameFault(name)).toContain('a server name is lower-case letters');
      expect(toSlug(name) === '' || SERVER_NAME.test(toSlug(name))).toBe(true);
    },
  );

  it('is never accepted by lists, grants or shown names, which agree on any two names' + verifies('TR-59'), () => {
    fc.assert(
      fc.property(names, names, variants, (name, second, vary) => {
        for (const other of [second, vary(name)]) {
          const isSame = other === name;
          expect([name, other, toolMatcher(name)(other)]).toEqual([name, other, isSame]);
          if (judgeTool({ name: other, inputSchema: { type: 'object' } }).quarantine !== undefined) continue;
          expect([name, other, reaches(name, other)]).toEqual([name, other, isSame]);
          if (isSame) continue;
          const shown = exposedNames([
            { server: 'git', tool: name },
            { server: 'git', tool: other },
          ]);
          for (const [alias, { tool }] of shown.names) expect(findExposed(shown.names, alias)?.value.tool).toBe(tool);
          // Both are listed under two names, or neither: never one under a name that could mean the other.
          expect(shown.names.size === 2 || (shown.names.size === 0 && shown.collisions.length === 1)).toBe(true);
        }
      }),
      { numRuns: 2_000 },
    );
  });

  it('is never accepted by rules, which agree with them' + verifies('TR-59'), async () => {
    const written = fc.sample(
      names.filter((name) => /^[A-Za-z0-9_./-]+$/.test(name)),
      { numRuns: 12, seed: 59 },
    );
    for (const name of new Set(written)) {
      const policy = await policyOf([{ id: 'a', outcome: 'allow', when: { tools: [`git.${name}`] } }]);
      for (const other of [
        name,
        name.toUpperCase(),
        name.toLowerCase(),
        `${name}.`,
        `${name}_`,
        name.replaceAll('-', '_'),
      ]) {
        expect([name, other, (await policy.call(callOf({ server: 'git', tool: other }))).outcome]).toEqual([
          name,
          other,
          other === name ? 'allow' : 'deny',
        ]);
      }
    }
  });
});
