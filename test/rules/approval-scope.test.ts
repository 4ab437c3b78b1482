import { describe, expect, it } from 'vitest';
import { callOf, documentOf, policyOf, problemsOf, regoSource, scratch } from '../engine/policy-fixture.ts';
import { inFull } from '../harness/full-tests.ts';
import { verifies } from '../verifies.ts';

const ask = (id: string, more: object = {}): object => ({ id, outcome: 'ask', when: {}, ...more });

describe('the scope of an approval', () => {
  it(
    'is in the reason of the rule that asks; without it, an approval covers one call' + verifies('CY-26'),
    async () => {
      const policy = await policyOf([
        ask('wide', { approval: 'server' }),
        ask('mid', { approval: 'group', when: { verbs: ['read', 'write'] } }),
        ask('plain', { approval: 'call', when: { servers: ['git'] } }),
        ask('silent', { when: { roles: ['developer'] } }),
        ask('tested', { approval: 'group', mode: 'shadow', when: { groups: ['web'] } }),
      ]);
      const { outcome, reasons, shadow } = await policy.call(callOf());
      expect(outcome).toBe('ask');
      expect(Object.fromEntries(reasons.map(({ id, approval }) => [id, approval]))).toEqual({
        wide: 'server',
        mid: 'group',
        plain: undefined,
        silent: undefined,
      });
      expect(shadow).toMatchObject([{ id: 'tested', approval: 'group' }]);
    },
  );

  it('changes the revision of the policy, so that earlier approvals no longer count', async () => {
    const [one, other] = [await policyOf([ask('a')]), await policyOf([ask('a', { approval: 'group' })])];
    expect(one.revision).not.toBe(other.revision);
  });

  it('is refused for rules that do not ask, and for unknown words', async () => {
    const faults = async (rule: object): Promise<string> =>
      (await problemsOf(policyOf([], { rules: [documentOf([rule])] }))).join('\n');
    expect(await faults({ id: 'a', outcome: 'deny', approval: 'group', when: {} })).toContain(
      'a rule with outcome deny does not ask; remove `approval`, or write outcome: ask',
    );
    expect(await faults({ id: 'a', outcome: 'ask', approval: 'grop', when: {} })).toContain(
      '"grop" is not one of call, group, server. Did you mean "group"?',
    );
  });

  inFull('can be set in Rego, where an unknown word is a fault that denies', async () => {
    const rego = (approval: string) => {
      const folder = scratch({
        'team.rego': `package policy.team\n\nask contains {"id": "look", "message": "Look."${approval}}\n`,
      });
      return policyOf([], { sources: [regoSource(`${folder}/team.rego`)], folder });
    };
    const policies = await Promise.all(['', ', "approval": "server"', ', "approval": "always"'].map(rego));
    try {
      const decisions = await Promise.all(policies.map(async (policy) => policy.call(callOf())));
      expect(decisions.map(({ outcome, reasons }) => [outcome, reasons[0]?.id, reasons[0]?.approval])).toEqual([
        ['ask', 'look', undefined],
        ['ask', 'look', 'server'],
        ['deny', 'policy-shape', undefined],
      ]);
      expect(decisions[2]?.reasons[0]?.message).toContain('`approval` is call, group or server');
    } finally {
      for (const policy of policies) policy.close();
    }
  });
});
