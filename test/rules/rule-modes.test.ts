/**
 * Tests modes: which mode counts for which caller, what is reported, and that only enforced rules decide in any mix of
 * modes.
 */
import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import { weighRules } from '../../policies/engine/decision-cost.ts';
import { readLibrary } from '../../policies/engine/policy-library.ts';
import { loadPolicy, startPolicy } from '../../policies/engine/policy-loader.ts';
import type { CallDecision, Mode, ModeFor, Policy, Principal } from '../../policies/port.ts';
import { compileConfinement } from '../../policies/rules/confinement-rules.ts';
import { compileSettings } from '../../policies/rules/policy-settings.ts';
import { compileRules, type YamlRuleDocument } from '../../policies/rules/rule-compiler.ts';
import {
  callOf,
  documentOf,
  PRINCIPAL,
  parts,
  policyOf,
  profile,
  regoSource,
  scratch,
  settings,
  toolOf,
  WORKSPACE,
} from '../engine/policy-fixture.ts';
import { roundsOf } from '../harness/slices.ts';
import { configure, Reloadable } from '../runtime/edited-project.ts';

const SETTINGS = settings({
  profiles: [profile({ expose: [{ tool: 'git.*', pins: {} }] }), profile({ name: 'ci' }), profile({ name: 'play' })],
});
const ALL = { id: 'all', outcome: 'allow', when: {} };
const READING = { id: 'reading', outcome: 'allow', when: { verbs: ['read', 'write'] } };
const NO = { id: 'no', outcome: 'deny', message: 'No.', when: { verbs: ['read'] } };
const PAGE = 'https://agents.example';

async function decide(
  modes: readonly ModeFor[],
  principal: Partial<Principal>,
  mode: Mode = 'enforce',
  own?: string,
): Promise<CallDecision> {
  const policy = await policyOf([], {
    settings: SETTINGS,
    rules: [
      documentOf([READING], { file: 'a.yaml' }),
      documentOf([{ ...NO, ...(own === undefined ? {} : { mode: own }) }], { mode, modes }),
    ],
  });
  return policy.call(callOf({ principal }));
}

describe('a mode for some callers', () => {
  it.each<[string, readonly ModeFor[], Partial<Principal>, Mode, string]>([
    ['counts for a profile', [{ profile: 'ci', mode: 'shadow' }], { profiles: ['work', 'ci'] }, 'enforce', 'shadow'],
    [
      'does not count for other profiles',
      [{ profile: 'ci', mode: 'shadow' }],
      { profiles: ['work'] },
      'enforce',
      'enforce',
    ],
    ['counts for an origin', [{ origin: PAGE, mode: 'warn' }], { origin: PAGE }, 'enforce', 'warn'],
    [
      'can be stricter than that of all',
      [{ profile: 'ci', mode: 'enforce' }],
      { profiles: ['work', 'ci'] },
      'shadow',
      'enforce',
    ],
    ['can turn a source off', [{ profile: 'ci', mode: 'off' }], { profiles: ['work', 'ci'] }, 'enforce', 'off'],
    [
      'of both needs both',
      [{ profile: 'ci', origin: PAGE, mode: 'off' }],
      { profiles: ['work', 'ci'], origin: 'editor' },
      'warn',
      'warn',
    ],
    [
      'of both holds with both',
      [{ profile: 'ci', origin: PAGE, mode: 'off' }],
      { profiles: ['work', 'ci'], origin: PAGE },
      'warn',
      'off',
    ],
    [
      'is the first that fits',
      [
        { profile: 'ci', mode: 'warn' },
        { profile: 'work', mode: 'off' },
      ],
      { profiles: ['work', 'ci'] },
      'enforce',
      'warn',
    ],
  ])('%s', async (_what, modes, principal, mode, expected) => {
    const { outcome, shadow } = await decide(modes, principal, mode);
    expect([outcome, shadow]).toEqual([
      expected === 'enforce' ? 'deny' : 'allow',
      expected === 'warn' || expected === 'shadow'
        ? [expect.objectContaining({ id: 'no', would: 'deny', mode: expected })]
        : [],
    ]);
  });

  it.each([
    ['enforce', 'warn', 'warn'],
    ['shadow', 'warn', 'shadow'],
    ['warn', 'dryrun', 'shadow'],
    ['enforce', 'deny', 'enforce'],
    ['off', 'deny', 'off'],
  ] as const)('is weakened by the mode of the rule: %s with %s is %s', async (source, own, expected) => {
    const { outcome, shadow } = await decide(
      [{ profile: 'ci', mode: source }],
      { profiles: ['work', 'ci'] },
      'enforce',
      own,
    );
    expect([outcome, shadow.map(({ mode }) => mode)]).toEqual([
      expected === 'enforce' ? 'deny' : 'allow',
      expected === 'enforce' || expected === 'off' ? [] : [expected],
    ]);
  });

  it('keeps constant decisions separately for each caller', async () => {
    const policy = await policyOf([], {
      settings: SETTINGS,
      rules: [
        documentOf([READING], { file: 'a.yaml' }),
        documentOf([NO], { mode: 'enforce', modes: [{ profile: 'ci', mode: 'shadow' }] }),
      ],
    });
    const [people, ci] = [PRINCIPAL, { ...PRINCIPAL, profiles: ['work', 'ci'] }];
    for (let times = 0; times < 3; times += 1) {
      expect((await policy.call({ ...callOf(), principal: people })).outcome).toBe('deny');
      expect((await policy.call({ ...callOf(), principal: ci })).outcome).toBe('allow');
    }
  });

  it('counts for Rego too, in calls and in lists', async () => {
    const folder = scratch({
      'a.rego': `package policy.a

deny contains {"id": "rego-no", "message": "No."} if input.effect.verb == "read"
`,
    });
    const policy = await loadPolicy(
      parts({
        folder,
        settings: SETTINGS,
        rules: [documentOf([ALL])],
        sources: [
          {
            ...regoSource(folder, 'shadow'),
            modes: [
              { profile: 'ci', mode: 'enforce' },
              { origin: PAGE, mode: 'warn' },
            ],
          },
        ],
      }),
    );
    const said = async (principal: Partial<Principal>): Promise<unknown> => {
      const { outcome, shadow } = await policy.call(callOf({ principal }));
      return [outcome, shadow.map(({ id, would, mode }) => [id, would, mode])];
    };
    expect(await said({})).toEqual(['allow', [['rego-no', 'deny', 'shadow']]]);
    expect(await said({ profiles: ['work', 'ci'] })).toEqual(['deny', []]);
    expect(await said({ origin: PAGE })).toEqual(['allow', [['rego-no', 'deny', 'warn']]]);
    expect((await policy.list({ ...PRINCIPAL, profiles: ['work', 'ci'] }, [toolOf()]))[0]?.verdict).toBe('never');
    expect((await policy.list(PRINCIPAL, [toolOf()]))[0]?.verdict).toBe('always');
    policy.close();
  });
});

/** Generated rules. Some are duplicates or have no effect, which a load refuses. */
function unjudged(documents: readonly YamlRuleDocument[]): Promise<Policy> {
  const rules = compileRules(documents, WORKSPACE);
  const config = {
    version: 1,
    ...compileSettings(SETTINGS),
    rules: { list: rules.list, index: rules.index },
    modes: {},
    mode: 'enforce',
    places: {},
    regoRules: {},
    rego: {},
  };
  return startPolicy({
    wasm: readLibrary().wasm,
    data: JSON.stringify({ config }),
    rules,
    weights: weighRules(rules, config),
    confining: compileConfinement(rules.rules, { workspace: WORKSPACE, trusts: new Map(), foreign: false }),
    foreign: false,
  });
}

describe('any mix of modes', () => {
  const MODES = ['enforce', 'warn', 'shadow', 'off'] as const;
  const STRENGTH = ['off', 'shadow', 'warn', 'enforce'];
  const rule = fc.record({
    outcome: fc.constantFrom('deny', 'ask', 'allow'),
    mode: fc.constantFrom(...MODES, 'deny', 'dryrun'),
    when: fc.record(
      {
        verbs: fc.constantFrom(['read'], ['write']),
        tools: fc.constantFrom(['git.status'], ['git.*']),
        args: fc.constant({ n: { min: 2 } }),
      },
      { requiredKeys: [] },
    ),
    bytes: fc.integer({ min: 1, max: 9 }),
  });
  const scoped = fc.array(
    fc
      .record(
        { profile: fc.constantFrom('ci', 'play'), origin: fc.constant(PAGE), mode: fc.constantFrom(...MODES) },
        { requiredKeys: ['mode'] },
      )
      .filter((entry) => entry.profile !== undefined || entry.origin !== undefined),
    { maxLength: 3 },
  );
  const sources = fc.array(
    fc.record({ mode: fc.constantFrom(...MODES), modes: scoped, rules: fc.array(rule, { maxLength: 4 }) }),
    { minLength: 1, maxLength: 3 },
  );
  const principals = fc.record({
    profiles: fc.constantFrom(['work'], ['work', 'ci'], ['work', 'play'], ['work', 'ci', 'play']),
    origin: fc.constantFrom('editor', PAGE),
  });

  /** The mode of a rule by the words of the documentation, independent of the code. */
  function modeOf(
    source: { readonly mode: Mode; readonly modes: readonly ModeFor[] },
    own: string,
    principal: { readonly profiles: readonly string[]; readonly origin: string },
  ): string {
    const fitting = source.modes.find(
      ({ profile: wanted, origin }) =>
        (wanted === undefined || principal.profiles.includes(wanted)) &&
        (origin === undefined || origin === principal.origin),
    );
    const plain = own === 'deny' ? 'enforce' : own === 'dryrun' ? 'shadow' : own;
    return STRENGTH[Math.min(STRENGTH.indexOf(fitting?.mode ?? source.mode), STRENGTH.indexOf(plain))] ?? '';
  }

  it('decides by the enforced rules only, and reports every other matching rule once', async () => {
    await fc.assert(
      fc.asyncProperty(sources, principals, async (all, over) => {
        const named = all.map((source, at) => ({
          ...source,
          rules: source.rules.map(({ bytes, ...one }, index) => ({
            id: `r${at}-${index}`,
            ...one,
            ...(one.outcome === 'deny' ? {} : { obligations: { caps: { bytes } } }),
          })),
        }));
        const mixed = await unjudged(
          named.map(({ mode, modes, rules }, at) => documentOf(rules, { file: `${at}.yaml`, mode, modes })),
        );
        const kept = (wanted: readonly string[]): readonly object[] =>
          named.flatMap((source) =>
            source.rules
              .filter((one) => wanted.includes(modeOf(source, one.mode, over)))
              .map(({ mode: _mode, ...one }) => one),
          );
        const enforced = await unjudged([documentOf(kept(['enforce']))]);
        const beside = await unjudged([documentOf(kept(['warn', 'shadow']).map((one) => ({ ...one, mode: 'warn' })))]);
        const principal: Principal = { ...PRINCIPAL, ...over };
        for (const verb of ['read', 'write'] as const)
          for (const args of [{}, { n: 3 }]) {
            const call = { ...callOf({ verb, args }), principal };
            const [got, want] = [await mixed.call(call), await enforced.call(call)];
            const ids = (decision: CallDecision): readonly string[] => decision.reasons.map(({ id }) => id).sort();
            expect([got.outcome, ids(got), got.obligations]).toEqual([want.outcome, ids(want), want.obligations]);
            expect(got.shadow.map(({ id, would }) => `${id} ${would}`).sort()).toEqual(
              (await beside.call(call)).shadow.map(({ id, would }) => `${id} ${would}`).sort(),
            );
          }
        const verdicts = async (policy: typeof mixed): Promise<unknown> =>
          (await policy.list(principal, [toolOf(), toolOf({ verb: 'write' }), toolOf({ tool: 'push' })])).map(
            ({ verdict }) => verdict,
          );
        expect(await verdicts(mixed)).toEqual(await verdicts(enforced));
      }),
      { numRuns: roundsOf(120, 30) },
    );
  }, 120_000);
});

describe('the caller', () => {
  let facade: Reloadable;
  afterEach(() => facade.close());

  it('learns of warn rules but not of shadow rules; the audit contains both with their mode', async () => {
    facade = await new Reloadable({
      'tollgate.yaml': configure(),
      'workspace/a.txt': 'a',
      'rules.yaml': JSON.stringify({
        rules: [
          ALL,
          {
            id: 'soon',
            outcome: 'deny',
            mode: 'warn',
            message: 'Text files will be closed.',
            when: { paths: ['*.txt'] },
          },
          { id: 'later', outcome: 'ask', mode: 'warn', message: 'Somebody will look.', when: { paths: ['*.txt'] } },
          { id: 'wider', outcome: 'allow', mode: 'warn', when: { verbs: ['read'] } },
          { id: 'quiet', outcome: 'deny', mode: 'shadow', message: 'Not yet.', when: { paths: ['*.txt'] } },
        ],
      }),
    }).start();
    const session = facade.open('local');
    const { text, meta } = await facade.call(session, 'read', { path: 'a.txt' });
    expect(text.split('\n')).toEqual([
      '[tollgate: warning: rule soon would refuse this call: Text files will be closed.]',
      '[tollgate: warning: rule later would ask a person first: Somebody will look.]',
      'a',
    ]);
    expect(meta['tollgate/warnings']).toEqual([
      { id: 'soon', message: 'Text files will be closed.', would: 'deny' },
      { id: 'later', message: 'Somebody will look.', would: 'ask' },
    ]);
    const [outcome] = facade.records('outcome');
    expect(
      (outcome?.shadow as { id: string; would: string; mode: string }[])
        .map(({ id, would, mode }) => [id, would, mode].join(' '))
        .sort(),
    ).toEqual(['later ask warn', 'quiet deny shadow', 'soon deny warn', 'wider allow warn']);
    expect(outcome?.reasons).toMatchObject([{ id: 'all' }]);
    facade.write('workspace/b.md', 'b');
    expect((await facade.call(session, 'read', { path: 'b.md' })).meta).not.toHaveProperty(['tollgate/warnings']);
  });
});
