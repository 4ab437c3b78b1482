/** Tests high-risk tools (CY-07): only a rule that names the tool can allow it, in calls and in lists. */
import fc from 'fast-check';
import { beforeAll, describe, expect, it } from 'vitest';
import type { Policy } from '../../policies/port.ts';
import {
  type CallOf,
  callOf,
  policyOf,
  profile,
  regoSource,
  scratch,
  settings,
  toolOf,
} from '../engine/policy-fixture.ts';
import { roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';

const DESK = { name: 'desk', gated: { run: ['executes'], config: ['writes', 'executes'] } };
const GROUP = profile({ servers: ['desk', 'git'], expose: [{ tool: 'desk.*', pins: {} }] });
const WRAPPED = profile({ name: 'wrapped', servers: ['desk'], primitives: { bash: [{ server: 'desk' }] } });
const ALL = { id: 'all', outcome: 'allow', when: {} };

const policyWith = (rules: readonly unknown[], over: Parameters<typeof policyOf>[1] = {}): Promise<Policy> =>
  policyOf(rules, { settings: settings({ servers: [{ name: 'git' }, DESK], profiles: [GROUP, WRAPPED] }), ...over });
const run = (over: CallOf = {}): ReturnType<typeof callOf> =>
  callOf({ server: 'desk', tool: 'run', verb: 'execute', ...over });

async function said(policy: Policy, call: CallOf = {}): Promise<readonly [string, string | undefined]> {
  const { outcome, reasons } = await policy.call(run(call));
  return [outcome, reasons[0]?.id];
}

async function verdictOf(policy: Policy, over: CallOf = {}): Promise<string> {
  const {
    principal,
    effect: { server, tool, verb },
  } = run(over);
  return (await policy.list(principal, [toolOf({ server, tool, verb })]))[0]?.verdict ?? '';
}

describe('a high-risk tool of a group' + verifies('CY-07'), () => {
  it.each([
    ['a rule for all', { when: {} }],
    ['a rule for its server', { when: { servers: ['desk'] } }],
    ['a rule for its verb', { when: { verbs: ['execute'] } }],
    ['a pattern', { when: { tools: ['desk.*'] } }],
    ['a pattern with its name', { when: { tools: ['desk.run*'] } }],
    ['a pattern that asks', { outcome: 'ask', when: { tools: ['desk.r*'] } }],
    ['a rule that names another tool', { when: { tools: ['desk.config'] } }],
    ['a rule in mode shadow that names it', { when: { tools: ['desk.run'] }, mode: 'shadow' }],
  ])('is not allowed by %s', async (_what, rule) => {
    const policy = await policyWith([
      { id: 'one', outcome: 'allow', ...rule },
      { ...ALL, id: 'two', when: { roles: ['developer'] } },
    ]);
    expect(await said(policy)).toEqual(['deny', 'second-gate']);
    expect(await verdictOf(policy)).toBe('never');
    // The other tools of the server are allowed.
    expect((await said(policy, { tool: 'look', verb: 'read' }))[0]).toBe('allow');
  });

  it('is allowed by a rule that names it, within the conditions of the rule', async () => {
    const git = { id: 'git', outcome: 'allow', when: { tools: ['desk.run'], commands: ['git'] } };
    const policy = await policyWith([ALL, git]);
    expect(await said(policy, { commands: [['git', 'status']] })).toEqual(['allow', 'git']);
    expect(await said(policy, { commands: [['rm', '-r', 'x']] })).toEqual(['deny', 'second-gate']);
    expect(await verdictOf(policy)).toBe('maybe');
    expect(await verdictOf(policy, { tool: 'config' })).toBe('never');
  });

  it('asks if the rule that names it asks', async () => {
    const policy = await policyWith([ALL, { id: 'ask', outcome: 'ask', when: { tools: ['desk.run'] } }]);
    expect(await said(policy)).toEqual(['ask', 'ask']);
    expect(await verdictOf(policy)).toBe('maybe');
  });

  it('is always allowed, and listed as always, if the rule that names it has no condition', async () => {
    const policy = await policyWith([{ id: 'named', outcome: 'allow', when: { tools: ['git.status', 'desk.run'] } }]);
    expect(await said(policy)).toEqual(['allow', 'named']);
    expect(await verdictOf(policy)).toBe('always');
  });

  it('stays denied by a rule that denies, even if another rule names it', async () => {
    const policy = await policyWith([
      { id: 'named', outcome: 'allow', when: { tools: ['desk.run'] } },
      { id: 'no', outcome: 'deny', when: { verbs: ['execute'] } },
    ]);
    expect(await said(policy)).toEqual(['deny', 'no']);
  });

  it('is listed with its risk, unless the exposure gives another risk', async () => {
    const named = [{ id: 'named', outcome: 'allow', when: { tools: ['desk.run', 'desk.config', 'desk.look'] } }];
    const policy = await policyWith(named);
    const tools = ['run', 'config', 'look'].map((tool) => toolOf({ server: 'desk', tool, verb: 'execute' }));
    expect((await policy.list(run().principal, tools)).map(({ expose }) => expose[0]?.risk)).toEqual([
      ['executes'],
      ['writes', 'executes'],
      undefined,
    ]);
    const own = await policyWith(named, {
      settings: settings({
        servers: [DESK],
        profiles: [profile({ servers: ['desk'], expose: [{ tool: 'desk.run', risk: ['approval'], pins: {} }] })],
      }),
    });
    expect((await own.list(run().principal, tools.slice(0, 1)))[0]?.expose[0]?.risk).toEqual(['approval']);
  });

  it('can be read further after an allowed call of it', async () => {
    const policy = await policyWith([
      { id: 'git', outcome: 'allow', when: { tools: ['desk.run'], verbs: ['execute'] } },
    ]);
    expect((await said(policy, { spill: true, verb: 'read' }))[0]).toBe('allow');
  });

  it('needs no such rule behind a primitive, where the sandbox limits it and the tool is not shown', async () => {
    const policy = await policyWith([ALL]);
    expect(await said(policy, { principal: { profiles: ['wrapped'] } })).toEqual(['allow', 'all']);
    expect(
      (
        await policy.list(run({ principal: { profiles: ['wrapped'] } }).principal, [
          toolOf({ server: 'desk', tool: 'run', verb: 'execute' }),
        ])
      )[0]?.expose,
    ).toEqual([]);
  });

  it('is not allowed by Rego alone, because the tools that its rules name are unknown', async () => {
    const folder = scratch({
      'p.rego': 'package policy.p\n\nimport rego.v1\n\nallow contains "yes" if input.effect.tool == "run"\n',
    });
    const policy = await policyWith([], { folder, sources: [regoSource(`${folder}/p.rego`)] });
    expect(await said(policy)).toEqual(['deny', 'second-gate']);
    expect(await verdictOf(policy)).toBe('never');
    policy.close();
  });
});

describe('lists and calls of high-risk tools agree under any rules' + verifies('CY-07'), () => {
  let tools: fc.Arbitrary<readonly string[]>;
  beforeAll(() => {
    tools = fc.subarray(['desk.run', 'desk.*', 'desk.config', 'git.*'], { minLength: 1 });
  });

  it('a tool listed never is refused, one listed always is allowed, and no pattern allows it', async () => {
    const when = fc.record({ tools, verbs: fc.subarray(['read', 'execute'], { minLength: 1 }) }, { requiredKeys: [] });
    const rule = fc.record({
      outcome: fc.constantFrom('allow', 'ask', 'deny'),
      when,
      mode: fc.constantFrom('enforce', 'enforce', 'shadow'),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(rule, { maxLength: 4 }), async (rules) => {
        const policy = await policyWith(
          rules.map((one, index) => ({ id: `r${index}`, message: String(index), ...one })),
        ).catch(() => undefined);
        if (policy === undefined) return;
        const [verdict, [outcome]] = [await verdictOf(policy), await said(policy)];
        if (verdict === 'never') expect(outcome).toBe('deny');
        if (verdict === 'always') expect(outcome).toBe('allow');
        const named = rules.some(
          (one) => one.mode === 'enforce' && one.outcome !== 'deny' && one.when.tools?.includes('desk.run') === true,
        );
        if (!named) expect(outcome).toBe('deny');
      }),
      { numRuns: roundsOf(60, 30) },
    );
  });
});
