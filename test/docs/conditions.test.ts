/** Checks that each example in the table of rule conditions is valid and uses the condition of its row. */

import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { readLibrary } from '../../policies/engine/policy-library.ts';
import { compileRules } from '../../policies/rules/rule-compiler.ts';
import { findRuleFaults } from '../../policies/rules/rule-faults.ts';
import { documentOf, settings, WORKSPACE } from '../engine/policy-fixture.ts';
import { codeIn, rowsOf, sectionOf } from './markdown.ts';

const SETTINGS = settings({
  servers: [{ name: 'git' }, { name: 'github' }],
  profiles: [{ name: 'default', servers: ['git', 'github'], primitives: {}, expose: [], budgets: [], caps: {} }],
  principals: [{ id: 'alice', role: 'developer', groups: ['staff'], profiles: ['default'], client: 'editor' }],
  origins: ['https://app.example'],
});
const ROWS = rowsOf(sectionOf('docs/rules.md', '## Fields')).filter(
  (row) => row.length === 3 && row[0]?.startsWith('`') === true,
);

describe('the table of conditions', () => {
  it.each(ROWS.map(([name = '', , example = '']) => [codeIn(name)[0] ?? '', codeIn(example)[0] ?? '']))(
    '%s: %s',
    (field, example) => {
      const when = parse(example) as Record<string, unknown>;
      expect(Object.keys(when)).toEqual(field === 'except' ? ['paths', field] : [field]);
      // A rule that allows URIs or what servers ask must name its kind.
      const isStrict = ['exceptTools', 'exceptCommands', 'uri', 'asks'].includes(field);
      for (const outcome of isStrict ? ['deny', 'ask'] : ['deny', 'ask', 'allow'])
        expect(
          findRuleFaults(
            compileRules([documentOf([{ id: 'it', outcome, when }])], WORKSPACE),
            { settings: SETTINGS },
            readLibrary().wasm,
          ),
        ).toEqual([]);
    },
  );

  it('has an example for every condition', () => {
    expect(ROWS.length).toBe(27);
  });
});
