import { describe, expect, it } from 'vitest';
import type { BudgetSettings, PolicySettings } from '../../policies/rules/policy-settings.ts';
import { type CallOf, callOf, policyOf, profile, settings } from '../engine/policy-fixture.ts';
import { verifies } from '../verifies.ts';

const ALLOW = { id: 'yes', outcome: 'allow', when: {} };
const policyWith = (over: Partial<PolicySettings>, rules: readonly unknown[] = [ALLOW]) =>
  policyOf(rules, { settings: settings(over) });
const budget = (id: string, when: BudgetSettings['when'] = {}, calls = 1): BudgetSettings => ({
  id,
  scope: 'run',
  calls,
  when,
});

describe('caps' + verifies('DC-02'), () => {
  it(
    'of later profiles override those of earlier profiles and general ones; rules can only lower them' +
      verifies('CY-17', 'HA-21'),
    async () => {
      const profiles = [
        profile({ caps: { bytes: 5000 } }),
        profile({ name: 'wide', caps: { bytes: 9000, lines: 40 } }),
      ];
      const policy = await policyWith({ caps: { bytes: 1000, lines: 10 }, profiles }, [
        ALLOW,
        {
          id: 'tight',
          outcome: 'allow',
          when: { verbs: ['write'] },
          obligations: { caps: { bytes: 3000, lines: 5000 }, timeoutMs: 900 },
        },
        { id: 'tighter', outcome: 'allow', when: { tools: ['git.push'] }, obligations: { timeoutMs: 100 } },
      ]);
      const of = async (call: CallOf) => (await policy.call(callOf(call))).obligations;
      expect(await of({ principal: { profiles: ['work', 'wide'] } })).toMatchObject({
        caps: { bytes: 9000, lines: 40 },
      });
      expect(await of({ principal: { profiles: ['wide', 'work'] } })).toMatchObject({
        caps: { bytes: 5000, lines: 40 },
      });
      expect(await of({ principal: { profiles: ['work', 'unknown'] } })).toMatchObject({
        caps: { bytes: 5000, lines: 10 },
      });
      expect(await of({ verb: 'write' })).toMatchObject({ caps: { bytes: 3000, lines: 10 }, timeoutMs: 900 });
      expect(await of({ verb: 'write', tool: 'push' })).toMatchObject({ timeoutMs: 100 });
      expect(await of({})).not.toHaveProperty('timeoutMs');
    },
  );

  it('are absent if no one set any', async () => {
    expect((await (await policyWith({})).call(callOf())).obligations).toEqual({
      caps: {},
      pins: {},
      budgets: [],
      labels: [],
    });
  });
});

describe('settings of servers', () => {
  it('add labels of the server and of matching rules, and the most specific output validation', async () => {
    const servers = [
      { name: 'git', labels: ['internal'] },
      { name: 'mail', labels: ['untrusted'], validateOutput: 'off' as const },
    ];
    const policy = await policyWith(
      {
        servers,
        caps: { validateOutput: 'warn' },
        profiles: [profile({ caps: { validateOutput: 'strict' } }), profile({ name: 'plain' })],
      },
      [{ ...ALLOW, obligations: { labels: ['internal', 'fired'] } }],
    );
    expect((await policy.call(callOf())).obligations).toMatchObject({
      labels: ['fired', 'internal'],
      validateOutput: 'strict',
    });
    expect((await policy.call(callOf({ server: 'mail' }))).obligations).toMatchObject({
      labels: ['fired', 'internal', 'untrusted'],
      validateOutput: 'off',
    });
    expect((await policy.call(callOf({ principal: { profiles: ['plain'] } }))).obligations).toMatchObject({
      validateOutput: 'warn',
    });
  });

  it('deny tools that the server is configured without' + verifies('HA-03'), async () => {
    const servers = [
      { name: 'git', tools: { allow: ['get_*', 'push'], deny: ['get_secret'] } },
      { name: 'mail', tools: { deny: ['*'] } },
    ];
    const policy = await policyWith({ servers });
    const said = async (server: string, tool: string) => (await policy.call(callOf({ server, tool }))).reasons[0]?.id;
    expect([
      await said('git', 'get_a'),
      await said('git', 'push'),
      await said('git', 'get_secret'),
      await said('git', 'status'),
      await said('mail', 'x'),
    ]).toEqual(['yes', 'yes', 'server-tools', 'server-tools', 'server-tools']);
    expect((await policy.list(callOf().principal, [{ server: 'git', tool: 'status', verb: 'read' }]))[0]).toMatchObject(
      { verdict: 'never', reasons: [{ id: 'server-tools' }] },
    );
  });
});

describe('budgets', () => {
  const idsFor = async (budgets: readonly BudgetSettings[], call: CallOf) =>
    (await (await policyWith({ budgets })).call(callOf(call))).obligations.budgets.map(({ id }) => id);

  it('apply by server, tool, verb, role and profile' + verifies('HB-05'), async () => {
    const budgets = [
      budget('all'),
      budget('server', { server: 'git' }),
      budget('tool', { tool: 'git.push' }),
      budget('pattern', { tool: 'git.p*' }),
      budget('name', { tool: 'push' }),
      budget('verb', { verb: 'write' }),
      budget('role', { role: 'developer' }),
      budget('profile', { profile: 'work' }),
      budget('both', { server: 'git', verb: 'read' }),
      budget('any-tool', { tool: '*' }),
    ];
    expect(await idsFor(budgets, { tool: 'push', verb: 'write' })).toEqual([
      'all',
      'any-tool',
      'name',
      'pattern',
      'profile',
      'role',
      'server',
      'tool',
      'verb',
    ]);
    expect(await idsFor(budgets, { server: 'mail', tool: 'send', principal: { role: 'guest' } })).toEqual([
      'all',
      'any-tool',
      'profile',
    ]);
    expect(await idsFor(budgets, { tool: 'x' })).toContain('both');
  });

  it('of a profile replace those with the same id, with all limits', async () => {
    const limits = {
      id: 'b',
      scope: 'origin',
      window: 60,
      calls: 9,
      argBytes: 8,
      outputBytes: 7,
      wallMs: 6,
      concurrent: 5,
    } as const;
    const policy = await policyWith({
      budgets: [budget('b'), budget('c')],
      profiles: [
        profile({ budgets: [{ ...limits, when: {} }] }),
        profile({ name: 'other', budgets: [budget('b', {}, 77)] }),
      ],
    });
    expect((await policy.call(callOf())).obligations.budgets).toEqual([limits, { id: 'c', scope: 'run', calls: 1 }]);
    expect(
      (await policy.call(callOf({ principal: { profiles: ['work', 'other'] } }))).obligations.budgets,
    ).toMatchObject([{ id: 'b', calls: 77 }, { id: 'c' }]);
  });

  it('refuse patterns that cannot match as written', async () => {
    await expect(policyWith({ budgets: [budget('b', { tool: 'git.[ab]' })] })).rejects.toMatchObject({
      code: 'POLICY_INVALID',
    });
    await expect(policyWith({ budgets: [budget('b', { tool: 'git.push', server: 'mail' })] })).rejects.toMatchObject({
      code: 'POLICY_INVALID',
    });
  });
});

describe('profiles', () => {
  it(
    'decide which servers a principal reaches; several profiles together give all of their servers' + verifies('HA-21'),
    async () => {
      const policy = await policyWith({
        profiles: [
          profile({ servers: ['git'], primitives: {} }),
          profile({ name: 'mail', servers: ['mail'], primitives: { read: [{ server: 'files' }] } }),
        ],
      });
      const said = async (server: string, profiles: readonly string[]) =>
        (await policy.call(callOf({ server, principal: { profiles } }))).reasons[0]?.id;
      expect(
        await Promise.all([
          said('git', ['work']),
          said('mail', ['work']),
          said('mail', ['work', 'mail']),
          said('files', ['mail']),
          said('files', ['work']),
          said('git', []),
        ]),
      ).toEqual(['yes', 'profile', 'yes', 'yes', 'profile', 'profile']);
    },
  );
});

describe('pins', () => {
  const expose = [
    { tool: 'git.push', name: 'push_main', pins: { branch: 'main', force: false } },
    { tool: 'git.push', name: 'push_test', pins: { branch: 'test' } },
    { tool: 'git.*', pins: {} },
  ];

  it('must be in the arguments of a call of the exposed tool' + verifies('CY-12'), async () => {
    const policy = await policyWith({ profiles: [profile({ expose })] });
    const said = async (args: object, over: CallOf = {}) => {
      const { outcome, reasons, obligations } = await policy.call(callOf({ tool: 'push', args, ...over }));
      return [outcome, reasons[0]?.id, obligations.pins];
    };
    expect(await said({ branch: 'main', force: false })).toEqual(['allow', 'yes', { branch: 'main', force: false }]);
    expect(await said({ branch: 'test', force: true })).toEqual(['allow', 'yes', { branch: 'test' }]);
    expect(await said({ branch: 'main', force: true })).toEqual(['deny', 'pin', {}]);
    expect(await said({ Branch: 'main', __proto__: { branch: 'main' } })).toEqual(['deny', 'pin', {}]);
    expect(await said({ branch: ['main'], force: false })).toEqual(['deny', 'pin', {}]);
    expect(await said({}, { tool: 'status' })).toEqual(['allow', 'yes', {}]);
    expect(await said({ path: 'spill://x' }, { spill: true })).toEqual(['allow', 'spill', {}]);
  });

  it('cannot be avoided by a pattern that shows the tool again', async () => {
    const policy = await policyWith({ profiles: [profile({ expose })] });
    const [decision] = await policy.list(callOf().principal, [{ server: 'git', tool: 'push', verb: 'write' }]);
    expect(decision?.expose.map(({ name }) => name).sort()).toEqual(['push_main', 'push_test']);
  });

  it('refuse exposures without a server', async () => {
    await expect(policyWith({ profiles: [profile({ expose: [{ tool: '*.push', pins: {} }] })] })).rejects.toMatchObject(
      { code: 'POLICY_INVALID' },
    );
  });
});

describe('reading more of a spill', () => {
  it('is allowed by default within the profile, and can be denied or asked about by rules', async () => {
    const policy = await policyOf([
      { id: 'no', outcome: 'deny', when: { servers: ['mail'] } },
      { id: 'ask', outcome: 'ask', when: { labels: ['secret'] } },
    ]);
    const said = async (call: CallOf) => (await policy.call(callOf({ spill: true, ...call }))).outcome;
    expect([
      await said({}),
      await said({ server: 'mail' }),
      await said({ labels: ['secret'] }),
      await said({ server: 'else' }),
    ]).toEqual(['allow', 'deny', 'ask', 'deny']);
    expect((await policy.call(callOf())).outcome).toBe('deny');
  });
});
