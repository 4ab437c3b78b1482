/**
 * Tests what rules close to programs: the paths that calls are refused, for the same callers, and a message for each
 * rule that cannot bind them.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Confinement } from '../../catalogs/readers/confinement.ts';
import { matchesName, PathTree } from '../../catalogs/readers/path-globs.ts';
import { loadPolicy } from '../../policies/engine/policy-loader.ts';
import type { Policy, Principal } from '../../policies/port.ts';
import {
  callOf,
  documentOf,
  PRINCIPAL,
  parts,
  policyOf,
  regoSource,
  scratch,
  settings,
} from '../engine/policy-fixture.ts';
import { roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';

const ALL = { id: 'all', outcome: 'allow', when: {} };

function closureAt(confinement: Confinement, side: 'inside' | 'outside', at: string): string | undefined {
  const names = at.split('/').filter((name) => name !== '');
  let standing = new PathTree(confinement, side).start();
  for (const name of names) standing = standing.descend(name);
  return standing.closure;
}

async function confinementOf(
  rules: readonly unknown[],
  server = 'workspace',
  principal: Principal | undefined = PRINCIPAL,
): Promise<Confinement> {
  const policy = await policyOf(rules);
  return policy.confinement(server, principal);
}

const deny = (when: unknown, over: object = {}): object => ({ id: 'no', outcome: 'deny', when, ...over });

describe('paths that are closed to programs', () => {
  const NAME = fc.constantFrom('a', 'b', 'ab', '.env', 'x.pem', 'a.b');
  const PART = fc.oneof(NAME, fc.constantFrom('**', '*', 'a*', '*.pem', '*b*', '.*'));
  const GLOB = fc.array(PART, { minLength: 1, maxLength: 4 }).map((segments) => segments.join('/'));
  const PATH = fc.array(NAME, { minLength: 1, maxLength: 5 }).map((names) => names.join('/'));

  it('are the paths that calls are refused, inside and outside the workspace', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.uniqueArray(GLOB, { minLength: 1, maxLength: 3 }),
        fc.array(PATH, { minLength: 1, maxLength: 6 }),
        fc.boolean(),
        async (globs, paths, absolute) => {
          const own = globs.map((glob) => (absolute ? `/home/${glob}` : glob));
          const policy = await policyOf([ALL, deny({ paths: own })]);
          const confinement = policy.confinement('workspace', PRINCIPAL);
          const refusesOne = async (of: object): Promise<boolean> =>
            (await policy.call(callOf({ server: 'workspace', tool: 'read', ...of }))).outcome === 'deny';
          for (const at of paths) {
            const names = at.split('/');
            const above = names.map((_, index) => names.slice(0, index + 1).join('/'));
            const inside =
              (await Promise.all([...above].map((one) => refusesOne({ inside: [one] })))).some(Boolean) ||
              ((await refusesOne({ inside: ['.'] })) && closureAt(confinement, 'inside', '') === 'hidden');
            expect(closureAt(confinement, 'inside', at) === 'hidden', `${own.join(' ')} inside ${at}`).toBe(inside);
            const outside =
              (await Promise.all(above.map((one) => refusesOne({ outside: [`/home/${one}`] })))).some(Boolean) ||
              (await refusesOne({ outside: ['/home'] }));
            expect(
              closureAt(confinement, 'outside', `/home/${at}`) === 'hidden',
              `${own.join(' ')} outside ${at}`,
            ).toBe(outside);
          }
        },
      ),
      { numRuns: roundsOf(60, 25) },
    );
  });

  it.each<[string, unknown, string | undefined]>([
    ['a rule without verbs', { paths: ['x'] }, 'hidden'],
    ['a rule about reading', { paths: ['x'], verbs: ['read', 'write'] }, 'hidden'],
    ['a rule about commands', { paths: ['x'], verbs: ['execute'] }, 'hidden'],
    ['a rule about writing', { paths: ['x'], verbs: ['write'] }, 'fixed'],
    ['a rule about destroying', { paths: ['x'], verbs: ['destructive'] }, 'fixed'],
    ['a rule about bash', { paths: ['x'], tools: ['workspace.bash'] }, 'hidden'],
    ['a rule about all tools of the server', { paths: ['x'], tools: ['workspace.*'] }, 'hidden'],
    ['a rule about another tool', { paths: ['x'], tools: ['workspace.read'] }, undefined],
    ['a rule about another server', { paths: ['x'], servers: ['git'] }, undefined],
    ['a rule about external servers', { paths: ['x'], trust: ['external'] }, undefined],
    ['a rule about paths in the workspace', { paths: ['**/x'], insideWorkspace: true }, 'hidden'],
    ['a rule about paths outside', { paths: ['**/x'], insideWorkspace: false }, undefined],
    ['a rule about the folder above', { paths: ['/home/me/**'] }, 'hidden'],
    ['a rule on labels too', { paths: ['x'], labels: ['secret'] }, undefined],
    ['a rule on the time too', { paths: ['x'], time: { from: '01:00', to: '02:00', zone: 'UTC' } }, undefined],
    ['a rule on hosts too', { paths: ['x'], hosts: ['a.example'] }, undefined],
  ])('%s', async (_name, when, closure) => {
    expect(closureAt(await confinementOf([ALL, deny(when)]), 'inside', 'x')).toBe(closure);
  });

  it('an ask closes as a deny does; warn, shadow and off close nothing; hidden overrides fixed', async () => {
    expect(closureAt(await confinementOf([deny({ paths: ['x'] }, { outcome: 'ask' })]), 'inside', 'x')).toBe('hidden');
    for (const mode of ['warn', 'shadow', 'off'])
      expect(closureAt(await confinementOf([deny({ paths: ['x'] }, { mode })]), 'inside', 'x')).toBeUndefined();
    expect(
      closureAt(
        await confinementOf([deny({ paths: ['x'], verbs: ['write'] }), { ...deny({ paths: ['*'] }), id: 'other' }]),
        'inside',
        'x',
      ),
    ).toBe('hidden');
  });

  it('are closed to the callers of the rule, and to shared servers only if it is about all callers', async () => {
    const caller = fc.record({
      id: fc.constantFrom('mia', 'bot'),
      role: fc.constantFrom('developer', 'agent'),
      groups: fc.subarray(['staff', 'web']),
      profiles: fc.subarray(['work', 'ci'], { minLength: 1 }),
      origin: fc.constantFrom('editor', 'page'),
      owner: fc.boolean(),
    });
    const who = fc.record(
      {
        roles: fc.constant(['agent']),
        groups: fc.constant(['web']),
        principals: fc.constant(['bot']),
        origins: fc.constant(['page']),
        profiles: fc.constant(['ci']),
        owner: fc.boolean(),
      },
      { requiredKeys: [] },
    );
    const modes = fc.constantFrom(
      [],
      [{ profile: 'ci', mode: 'shadow' as const }],
      [
        { origin: 'page', mode: 'enforce' as const },
        { profile: 'work', mode: 'warn' as const },
      ],
    );
    const profile = {
      primitives: { read: [{ server: 'workspace' }], bash: [{ server: 'workspace' }] },
      servers: [],
      expose: [],
      budgets: [],
      caps: {},
    };
    const SETTINGS = settings({
      profiles: [
        { ...profile, name: 'work' },
        { ...profile, name: 'ci' },
      ],
    });
    await fc.assert(
      fc.asyncProperty(caller, who, modes, async (principal, when, someModes) => {
        const documents = [
          documentOf([ALL], { file: 'a.yaml' }),
          documentOf([deny({ ...when, paths: ['x'] })], { file: 'b.yaml', modes: someModes }),
        ];
        const policy = await loadPolicy(parts({ settings: SETTINGS, rules: documents }));
        const { outcome } = await policy.call(callOf({ server: 'workspace', tool: 'read', inside: ['x'], principal }));
        expect(closureAt(policy.confinement('workspace', { ...PRINCIPAL, ...principal }), 'inside', 'x')).toBe(
          outcome === 'deny' ? 'hidden' : undefined,
        );
        const isForAll = Object.keys(when).length === 0 && someModes.every(({ mode }) => mode === 'enforce');
        expect(closureAt(policy.confinement('git'), 'inside', 'x')).toBe(isForAll ? 'hidden' : undefined);
      }),
      { numRuns: roundsOf(80, 40) },
    );
  });

  it(`are not the exceptions of the rule, and those of an allow, by caller${verifies('FH-42')}`, async () => {
    const at = async (path: string, ...rules: readonly object[]): Promise<string | undefined> =>
      closureAt(await confinementOf(rules.map((rule, index) => ({ ...rule, id: `r${index}` }))), 'inside', path);
    const denied = deny({ paths: ['s/**'], except: ['s/p/**'] });
    expect(await at('s/a', ALL, denied)).toBe('hidden');
    expect(await at('s/p/a', ALL, denied)).toBeUndefined();
    expect(await at('s/p/a', ALL, denied, deny({ paths: ['s/p/a'], verbs: ['write'] }))).toBe('fixed');
    const allow = (when: object): object => ({ outcome: 'allow', when });
    const most = allow({ insideWorkspace: true, except: ['g/**'] });
    expect(await at('a', most)).toBeUndefined();
    expect(await at('g/a', most)).toBe('hidden');
    expect(await at('g/a', most, ALL)).toBeUndefined();
    expect(await at('g/a', most, allow({ paths: ['g/**'], roles: ['developer'] }))).toBeUndefined();
    expect(await at('g/a', most, allow({ paths: ['g/**'], roles: ['agent'] }))).toBe('hidden');
    expect(await at('g/a', most, allow({ paths: ['g/**'], labels: ['public'] }))).toBe('hidden');
    expect(await at('g/a', most, allow({ paths: ['g/**'], verbs: ['read'] }))).toBe('fixed');
    expect(await at('g/a', most, allow({ verbs: ['execute'] }))).toBe('hidden');
  });

  it('are computed once per caller and server', async () => {
    const policy = await policyOf([deny({ paths: ['x'] })]);
    expect(policy.confinement('workspace', PRINCIPAL)).toBe(policy.confinement('workspace', PRINCIPAL));
    expect(policy.confinement('git')).toBe(policy.confinement('git'));
    expect(policy.confinement('mail')).not.toBe(policy.confinement('git'));
  });

  it('match the same names as the pattern of the rule', () => {
    fc.assert(
      fc.property(fc.stringMatching(/^[ab*]{1,8}$/), fc.stringMatching(/^[ab]{0,12}$/), (pattern, name) => {
        expect(matchesName(pattern.split('*'), name)).toBe(new RegExp(`^${pattern.replaceAll('*', '.*')}$`).test(name));
      }),
    );
  });
});

describe('hosts that are closed to programs', () => {
  it.each<[unknown, readonly string[]]>([
    [{ hosts: ['evil.example', '*.x.example', '*'] }, ['evil.example', '*.x.example', '*']],
    [
      {
        urls: [
          'https://evil.example',
          'http://a.example/**',
          'https://b.example:8443',
          'https://*.c.example:*/**',
          'ws://[::1]:9',
        ],
      },
      ['evil.example:443', 'a.example:80', 'b.example:8443', '*.c.example', '[::1]:9'],
    ],
    [{ urls: ['https://evil.example/admin/**'] }, []],
    [{ hosts: ['evil.example'], verbs: ['write'] }, []],
    [{ hosts: ['evil.example'], args: { x: { equals: 1 } } }, []],
  ])('%j', async (when, hosts) => {
    expect((await confinementOf([deny(when)], 'git', undefined)).closedHosts).toEqual(hosts);
  });
});

describe('a rule that does not bind programs', () => {
  const told = async (rules: readonly unknown[], servers = ['workspace', 'git']): Promise<readonly string[]> => {
    const policy: Policy = await policyOf(rules);
    return policy.unbound(servers);
  };

  it.each<[string, unknown, readonly string[]]>([
    [
      'is told with its place and what to write',
      deny({ paths: ['x'], labels: ['secret'] }),
      [
        'rules.yaml:1:1: "no" does not bind commands of bash, the program of git: it depends on more ' +
          'than paths and hosts; write a rule that reads only paths or only hosts',
      ],
    ],
    [
      'of some callers is told for servers alone',
      deny({ paths: ['x'], roles: ['agent'] }),
      ['rules.yaml:1:1: "no" does not bind the program of git: it is about some callers, and one program serves all'],
    ],
    [
      'that allows some paths',
      { id: 'no', outcome: 'allow', when: { servers: ['workspace'], paths: ['src/**'] } },
      [
        'rules.yaml:1:1: "no" does not bind commands of bash: it allows some paths and closes none; ' +
          'write a rule that denies the others',
      ],
    ],
    [
      'that allows some paths with exceptions',
      { id: 'no', outcome: 'allow', when: { servers: ['workspace'], paths: ['src/**'], except: ['src/gen/**'] } },
      [
        'rules.yaml:1:1: "no" does not bind commands of bash: it closes its exceptions, but not the paths that it ' +
          'does not name; write a rule that denies those',
      ],
    ],
    [
      'that allows with exceptions, but under further conditions',
      {
        id: 'no',
        outcome: 'allow',
        when: { servers: ['git'], insideWorkspace: true, except: ['gen/**'], labels: ['public'] },
      },
      [
        'rules.yaml:1:1: "no" does not bind the program of git: its exceptions depend on more than paths; write a ' +
          'rule that denies them',
      ],
    ],
    [
      'of some callers with exceptions',
      { id: 'no', outcome: 'allow', when: { insideWorkspace: true, except: ['gen/**'], roles: ['agent'] } },
      ['rules.yaml:1:1: "no" does not bind the program of git: it is about some callers, and one program serves all'],
    ],
    [
      'on what is asked of a host',
      deny({ urls: ['https://a.example/admin/**'], servers: ['git'] }),
      [
        'rules.yaml:1:1: "no" does not bind the program of git: a sandbox cannot see which path of a ' +
          'host is requested; deny the whole host',
      ],
    ],
    [
      'on writing to a host',
      deny({ hosts: ['a.example'], verbs: ['write'], servers: ['git'] }),
      [
        'rules.yaml:1:1: "no" does not bind the program of git: a sandbox cannot tell reading from a ' +
          'host and writing to it apart; leave out `verbs`',
      ],
    ],
    [
      'on two facts',
      deny({ hosts: ['a.example'], paths: ['x'], servers: ['git'] }),
      ['rules.yaml:1:1: "no" does not bind the program of git: it needs two facts of the same call; write two rules'],
    ],
  ])('%s', async (_name, rule, lines) => {
    expect(await told([rule])).toEqual(lines);
  });

  it('is not reported if it binds, reads no paths or hosts, is not enforced, is about one tool, or no server', async () => {
    expect(
      await told([
        deny({ paths: ['x'] }),
        { id: 'a', outcome: 'deny', when: { labels: ['secret'] } },
        { id: 'b', outcome: 'deny', mode: 'warn', when: { paths: ['x'], labels: ['secret'] } },
        { id: 'c', outcome: 'deny', when: { tools: ['git.push'], paths: ['y'], roles: ['agent'] } },
        { id: 'd', outcome: 'allow', when: { hosts: ['a.example'] } },
      ]),
    ).toEqual([]);
    expect(await told([deny({ paths: ['x'], labels: ['secret'] })], [])).toEqual([]);
  });

  it('is reported by name for the first three, and by number for the others', async () => {
    const lines = await told(
      Array.from({ length: 9 }, (_, index) =>
        deny({ paths: [`x${index}`], labels: ['secret'] }, { id: `no-${index}` }),
      ),
    );
    expect(lines).toHaveLength(4);
    expect(lines[3]).toMatch(/^6 more rules/);
  });

  it('may be in Rego', async () => {
    const file = scratch({
      'p.rego': `# METADATA
# scope: package
package policy.p

import rego.v1

deny contains {"id": "x", "message": "no"} if input.effect.verb == "write"
`,
    });
    const policy = await loadPolicy(parts({ sources: [regoSource(file)] }));
    expect(policy.unbound(['workspace'])).toEqual([
      expect.stringMatching(/^Rules in Rego bind calls, not commands of bash/),
    ]);
    policy.close();
  });
});
