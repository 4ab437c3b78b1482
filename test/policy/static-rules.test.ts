/** Tests that a list knows what Rego decides without a call: rules of plain comparisons leave no verdict open, and list and call agree whatever rules there are. */
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { loadPolicy } from '../../policies/engine.ts';
import type { ListTool, Policy, Principal } from '../../policies/port.ts';
import { verifies } from '../verifies.ts';
import { callOf, documentOf, parts, PRINCIPAL, profile, regoSource, scratch, settings, toolOf } from './given.ts';

const SETTINGS = settings({ profiles: [profile({ servers: ['git', 'mail', 'workspace'] }), profile({ name: 'play', servers: ['mail'], primitives: {} })] });
const cache = scratch();
const opened: Policy[] = [];
afterAll(() => opened.forEach((policy) => policy.close()));

async function policyOf(rego: string, rules: readonly unknown[] = []): Promise<Policy> {
  const folder = scratch({ 'a.rego': `package policy.a\n\n${rego}\n` });
  const policy = await loadPolicy(parts({ folder, cache, settings: SETTINGS, rules: [documentOf(rules)], sources: [regoSource(folder)] }));
  opened.push(policy);
  return policy;
}

const verdictsOf = async (policy: Policy, tools: readonly ListTool[], over: Partial<Principal> = {}): Promise<readonly (string | undefined)[]> => (await policy.list({ ...PRINCIPAL, ...over }, tools)).map(({ verdict }) => verdict);

describe('rules of Rego that read only who calls which tool', () => {
  it('decide a list: never where they deny, always where they allow and nothing is left open' + verifies('CY-11'), async () => {
    const policy = await policyOf([
      'deny contains {"id": "no-bash", "message": "No."} if {\n\tinput.effect.server == "workspace"\n\tinput.effect.tool == "bash"\n}',
      'deny contains {"id": "no-push", "message": "No."} if input.effect.tool in {"push", "pull"}',
      'deny contains {"id": "guests", "message": "No."} if {\n\t"guest" == input.principal.role\n\tinput.effect.verb != "read"\n}',
      'ask contains {"id": "web", "message": "Ask.", "approval": "group"} if {\n\t"web" in input.principal.groups\n\tnot input.principal.owner\n\tinput.effect.server == "mail"\n}',
      'allow contains {"id": "reads", "message": "Read."} if input.effect.verb == "read"',
      'allow contains "All of git." if {\n\tinput.principal.id == "mia"\n\tinput.effect.server in ["git"]\n}',
    ].join('\n\n'));
    const tools = [toolOf({ server: 'workspace', tool: 'bash' }), toolOf({ tool: 'push' }), toolOf(), toolOf({ verb: 'write' }), toolOf({ server: 'mail' }), toolOf({ server: 'mail', verb: 'write' }), toolOf({ verb: 'write', verbs: ['read', 'write'] })];
    expect(await verdictsOf(policy, tools)).toEqual(['never', 'never', 'always', 'always', 'maybe', 'maybe', 'always']);
    expect(await verdictsOf(policy, tools, { owner: true })).toEqual(['never', 'never', 'always', 'always', 'always', 'never', 'always']);
    expect(await verdictsOf(policy, tools, { id: 'tom', role: 'guest', groups: [] })).toEqual(['never', 'never', 'always', 'never', 'always', 'never', 'maybe']);
    const [bash] = await policy.list(PRINCIPAL, tools);
    expect(bash?.reasons).toEqual([{ id: 'no-bash', message: 'No.', file: 'a.rego', line: 3 }]);
  });

  it('leave a verdict open where they do more', async () => {
    const rules = [
      ['reads an argument', 'deny contains "x" if {\n\tinput.effect.tool == "push"\n\tinput.effect.arguments.force\n}'],
      ['may be a fault', 'allow contains {"id": "x", "message": input.effect.arguments.m} if input.effect.tool == "push"'],
      ['compares another way', 'deny contains "x" if input.effect.server != "mail"'],
    ] as const;
    const verdicts = await Promise.all(rules.map(async ([what, rego]) => [what, ...(await verdictsOf(await policyOf(rego, [{ id: 'all', outcome: 'allow', when: {} }]), [toolOf()]))]));
    expect(verdicts).toEqual(rules.map(([what]) => [what, 'maybe']));
  });
});

describe('list and call agree with Rego', () => {
  const part = fc.constantFrom(
    'input.effect.server == "git"', 'input.effect.server in {"git", "mail"}', '"mail" == input.effect.server', 'input.effect.tool == "get"', 'input.effect.tool in ["put", "x.y"]', 'input.effect.verb == "read"', 'input.effect.verb != "read"',
    'not input.effect.verb in {"read", "write"}', 'input.principal.role == "developer"', '"staff" in input.principal.groups', '"play" in input.principal.profiles', 'input.principal.owner', 'not input.principal.owner', 'input.principal.owner == false',
    'input.effect.arguments.n > 1', 'input.effect.server != "git"', 'not input.effect.tool == "get"', 'input.effect.arguments.s == "a"', 'true',
  );
  const rule = fc.record({ set: fc.constantFrom('deny', 'deny', 'ask', 'allow', 'allow', 'allow'), body: fc.uniqueArray(part, { minLength: 1, maxLength: 3 }) });
  const yaml = fc.constantFrom([], [{ id: 'all', outcome: 'allow', when: {} }], [{ id: 'some', outcome: 'deny', when: { tools: ['git.put'], verbs: ['write'] } }]);
  const tools = ['git', 'mail'].flatMap((server) => ['get', 'put', 'x.y'].flatMap((tool): readonly ListTool[] => [
    ...(['read', 'write', 'execute'] as const).map((verb) => ({ server, tool, verb })), { server, tool, verb: 'write', verbs: ['read', 'write'] },
  ]));
  const principals: readonly Partial<Principal>[] = [{}, { role: 'guest', groups: [], owner: true }, { profiles: ['work', 'play'], owner: false }];

  it('no hidden tool is callable, and no tool listed always is refused' + verifies('CY-16'), async () => {
    const samples = fc.sample(fc.tuple(fc.array(rule, { minLength: 1, maxLength: 4 }), yaml), 4);
    const policies = await Promise.all(samples.map(([rules, more]) => policyOf(rules.map(({ set, body }, number) => `${set} contains {"id": "r${number}", "message": "m"} if {\n\t${body.join('\n\t')}\n}`).join('\n\n'), more)));
    for (const policy of policies) for (const over of principals) {
      const verdicts = await verdictsOf(policy, tools, over);
      const calls = tools.flatMap((tool, number) => (tool.verbs ?? [tool.verb]).flatMap((verb) => [{}, { n: 2, s: 'a' }].map((args) => ({ verdict: verdicts[number], call: { ...callOf({ server: tool.server, tool: tool.tool, verb, args }), principal: { ...PRINCIPAL, ...over } } }))));
      for (const { verdict, call } of calls) {
        const { outcome } = await policy.call(call);
        if (verdict === 'never') expect(outcome).toBe('deny');
        if (verdict === 'always') expect(outcome).toBe('allow');
      }
    }
  });
});
