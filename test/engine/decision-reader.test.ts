import { readFileSync } from 'node:fs';
import { Ajv } from 'ajv';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { readCallDecision, readListDecisions } from '../../policies/engine/decision-reader.ts';

const REASON = { id: 'a', message: 'b' };
const CALL = {
  version: 1,
  outcome: 'allow',
  reasons: [REASON],
  obligations: { caps: {}, pins: {}, budgets: [], labels: [] },
  shadow: [],
  extended: [],
};
const LIST = {
  version: 1,
  schemaProfile: 'portable',
  exposed: [],
  unshown: [],
  verdicts: [],
  tools: [{ verdict: 'maybe', reasons: [], expose: [{ pins: {} }] }],
};

const changed = (base: object, path: readonly string[], value: unknown): Record<string, unknown> => {
  const copy = structuredClone(base) as Record<string, unknown>;
  const parent = path
    .slice(0, -1)
    .reduce<Record<string, unknown>>((at, key) => at[key] as Record<string, unknown>, copy);
  parent[path.at(-1) ?? ''] = value;
  return copy;
};

describe('answers of the WebAssembly', () => {
  it('are read as decisions', () => {
    const obligations = {
      caps: { bytes: 1, lines: 2 },
      timeoutMs: 3,
      pins: { a: 1 },
      budgets: [{ id: 'b', scope: 'run', calls: 4, window: 5 }],
      labels: ['x'],
      validateOutput: 'strict',
    };
    const whole = {
      ...CALL,
      reasons: [{ ...REASON, file: 'f', line: 1 }],
      obligations,
      shadow: [{ ...REASON, would: 'deny', mode: 'warn' }],
    };
    const { version: _version, extended: _extended, ...expected } = whole;
    expect(readCallDecision(whole)).toEqual(expected);
    expect(readListDecisions(LIST, 1)).toEqual([
      { verdict: 'maybe', reasons: [], expose: [{ pins: {} }], schemaProfile: 'portable' },
    ]);
    const kinds = {
      ...LIST,
      verdicts: [
        { verdict: 'never', reasons: [REASON] },
        { verdict: 'always', reasons: [] },
      ],
      tools: [
        { same: 1, expose: [] },
        { same: 0, expose: [] },
      ],
    };
    expect(readListDecisions(kinds, 2).map(({ verdict, reasons }) => [verdict, reasons.length])).toEqual([
      ['always', 0],
      ['never', 1],
    ]);
  });

  it.each([
    [['version'], 2],
    [['version'], undefined],
    [['outcome'], 'ALLOW'],
    [['outcome'], 'allow '],
    [['outcome'], true],
    [['outcome'], ['allow']],
    [['outcome'], { allow: true }],
    [['outcome'], undefined],
    [['outcome'], null],
    [['outcome'], 1],
    [['reasons'], []],
    [['reasons'], {}],
    [['reasons'], ['a']],
    [['reasons', '0', 'id'], 1],
    [['reasons', '0', 'message'], undefined],
    [['extended'], undefined],
    [['extended'], [{ package: 'p', set: 'allow', member: { id: 'a', message: 'b', obligation: {} } }]],
    [['shadow'], undefined],
    [['shadow'], [REASON]],
    [['shadow'], [null]],
    [['shadow'], [{ ...REASON, would: 'deny' }]],
    [['shadow'], [{ ...REASON, would: 'deny', mode: 'enforce' }]],
    [['obligations'], undefined],
    [['obligations'], []],
    [['obligations', 'caps'], undefined],
    [['obligations', 'caps'], { bytes: '1' }],
    [['obligations', 'caps'], { lines: -1 }],
    [['obligations', 'timeoutMs'], 'soon'],
    [['obligations', 'timeoutMs'], Number.NaN],
    [['obligations', 'pins'], []],
    [['obligations', 'pins'], undefined],
    [['obligations', 'labels'], [1]],
    [['obligations', 'budgets'], undefined],
    [['obligations', 'budgets'], [{ id: 'b', scope: 'galaxy' }]],
    [['obligations', 'budgets'], [{ id: 1, scope: 'run' }]],
    [['obligations', 'budgets'], [{ id: 'b', scope: 'run', calls: null }]],
    [['obligations', 'validateOutput'], 'loud'],
  ] as const)('refuses a call decision whose %j is %j', (path, value) => {
    expect(() => readCallDecision(changed(CALL, path, value))).toThrow(
      expect.objectContaining({ code: 'POLICY_FAILED' }),
    );
  });

  it.each([
    [['version'], 0],
    [['exposed'], undefined],
    [['unshown'], {}],
    [['exposed'], [{ package: 'p', member: 'git.push' }]],
    [['exposed'], [{ package: 'p', member: { tool: 'git.push', pin: {} } }]],
    [['schemaProfile'], undefined],
    [['tools'], []],
    [['tools'], [null]],
    [['tools', '0', 'same'], 0],
    [['tools', '0', 'same'], -1],
    [['verdicts'], undefined],
    [['verdicts'], [{ verdict: 'always' }]],
    [['tools', '0', 'verdict'], 'yes'],
    [['tools', '0', 'verdict'], undefined],
    [['tools', '0', 'reasons'], undefined],
    [['tools', '0', 'expose'], undefined],
    [['tools', '0', 'expose'], [{}]],
    [['tools', '0', 'expose'], ['read']],
  ] as const)('refuses a list decision whose %j is %j', (path, value) => {
    expect(() => readListDecisions(changed(LIST, path, value), 1)).toThrow(
      expect.objectContaining({ code: 'POLICY_FAILED' }),
    );
  });

  it('allow a call only with the literal outcome allow', () => {
    fc.assert(
      fc.property(fc.anything(), fc.jsonValue(), (outcome, noise) => {
        fc.pre(outcome !== 'allow');
        for (const answer of [changed(CALL, ['outcome'], outcome), { noise, outcome }, Object(noise) as object]) {
          try {
            expect(readCallDecision(answer as Record<string, unknown>).outcome).not.toBe('allow');
          } catch (thrown) {
            expect(thrown).toMatchObject({ code: 'POLICY_FAILED' });
          }
        }
      }),
    );
  });

  it('fit the published schema in this test', () => {
    const schema = new Ajv({ strict: false }).compile(
      JSON.parse(readFileSync(new URL('../../policies/schemas/decision.json', import.meta.url), 'utf8')) as object,
    );
    expect([schema(CALL), schema(LIST), schema({ ...CALL, outcome: 'yes' })]).toEqual([true, true, false]);
  });
});
