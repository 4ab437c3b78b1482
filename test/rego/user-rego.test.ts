import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { loadPolicy } from '../../policies/engine/policy-loader.ts';
import type { Policy } from '../../policies/port.ts';
import {
  type CallOf,
  callOf,
  documentOf,
  PRINCIPAL,
  parts,
  problemsOf,
  regoSource,
  scratch,
  toolOf,
} from '../engine/policy-fixture.ts';
import { inFull } from '../harness/full-tests.ts';

const LOOP = `package policy.team

deny contains {"id": "loop", "message": "never comes"} if {
	input.effect.arguments.loop
	some a in numbers.range(1, 100000)
	some b in numbers.range(1, 1000)
	a * b == -1
}

allow contains "ok" if input.effect.verb == "read"
`;

/** One cache for all tests, so that equal Rego is built once. */
const cache = path.join(scratch(), 'cache');

async function withRego(
  rego: string | Readonly<Record<string, string>>,
  run: (policy: Policy) => Promise<void>,
  over: Parameters<typeof parts>[0] = {},
): Promise<void> {
  const folder = scratch(typeof rego === 'string' ? { 'team.rego': rego } : rego);
  const policy = await loadPolicy(parts({ folder, cache, sources: [regoSource(folder)], ...over }));
  try {
    await run(policy);
  } finally {
    policy.close();
  }
}

const faultsOf = (files: Readonly<Record<string, string>>): Promise<readonly string[]> => {
  const folder = scratch(files);
  return problemsOf(loadPolicy(parts({ folder: path.dirname(folder), cache, sources: [regoSource(folder)] }))).then(
    (all) => all.map((problem) => problem.replace(path.basename(folder), 'team')),
  );
};

describe('user Rego', () => {
  const SETS = `package policy.team

import data.limits

deny contains {"id": "no-push", "message": "Push by hand."} if input.effect.tool == "push"

ask contains sprintf("More than %d asks a person, %s.", [limits.most, input.principal.id]) if input.effect.arguments.n > limits.most

allow contains {"id": "reads", "message": "Reading is free."} if input.effect.verb == "read"
`;

  it('combines deny, ask and allow of its packages with YAML rules', async () => {
    await withRego(
      {
        'team.rego': SETS,
        'data.json': '{"limits":{"most":5}}',
        'team_test.rego': 'package policy.team_test\n\ntest_broken if nonsense(1)\n',
      },
      async (policy) => {
        const said = async (call: CallOf) => {
          const { outcome, reasons } = await policy.call(callOf(call));
          return [outcome, ...reasons];
        };
        expect(await said({})).toEqual([
          'allow',
          { id: 'reads', message: 'Reading is free.', file: 'team.rego', line: 9 },
        ]);
        expect(await said({ tool: 'push' })).toEqual([
          'deny',
          { id: 'no-push', message: 'Push by hand.', file: 'team.rego', line: 5 },
        ]);
        expect(await said({ args: { n: 6 } })).toEqual([
          'ask',
          { id: 'policy.team', message: 'More than 5 asks a person, mia.', file: 'team.rego', line: 7 },
        ]);
        expect(await said({ verb: 'write' })).toEqual([
          'deny',
          { id: 'default-deny', message: 'No rule allows this call.' },
        ]);
        expect(await said({ verb: 'write', tool: 'yaml' })).toEqual([
          'allow',
          expect.objectContaining({ id: 'by-yaml', file: 'rules.yaml' }),
        ]);
        expect(await said({ server: 'elsewhere' })).toEqual(['deny', expect.objectContaining({ id: 'profile' })]);
      },
      { rules: [documentOf([{ id: 'by-yaml', outcome: 'allow', when: { tools: ['git.yaml'] } }])] },
    );
  });

  const ALL = { id: 'all', outcome: 'allow', when: {} };

  it.each([
    ['an allow of its own', 'allow contains "x" if input.run', [], 'maybe'],
    ['a deny over an allow', 'deny contains "x" if input.effect.spill', [ALL], 'maybe'],
    ['an ask over an allow', 'ask contains "x" if input.effect.spill', [ALL], 'maybe'],
    ['a deny alone', 'deny contains "x" if input.effect.spill', [], 'never'],
    [
      'an allow under a deny',
      'allow contains "x" if input.run',
      [{ id: 'no', outcome: 'deny', when: { servers: ['git'] } }],
      'never',
    ],
    ['an allow with another allow', 'allow contains "x" if input.run', [ALL], 'always'],
  ])('leaves list verdicts open if its sets could change them: %s', async (_name, rule, rules, verdict) => {
    await withRego(
      `package policy.a\n\n${rule}\n`,
      async (policy) => {
        expect(
          (await policy.list(PRINCIPAL, [toolOf(), toolOf({ server: 'elsewhere' })])).map(
            (decision) => decision.verdict,
          ),
        ).toEqual([verdict, 'never']);
      },
      { rules: [documentOf(rules)] },
    );
  });

  it('in mode shadow changes nothing, and reports what it would have decided', async () => {
    const folder = scratch({ 'team.rego': SETS, 'data.json': '{"limits":{"most":5}}' });
    const policy = await loadPolicy(
      parts({
        folder,
        cache,
        sources: [regoSource(folder, 'shadow')],
        rules: [documentOf([{ id: 'all', outcome: 'allow', when: {} }])],
      }),
    );
    expect(await policy.call(callOf({ tool: 'push' }))).toMatchObject({
      outcome: 'allow',
      reasons: [{ id: 'all' }],
      shadow: expect.arrayContaining([
        expect.objectContaining({ id: 'no-push', would: 'deny' }),
        expect.objectContaining({ id: 'reads', would: 'allow' }),
      ]) as unknown,
    });
    expect((await policy.list(PRINCIPAL, [toolOf()]))[0]?.verdict).toBe('always');
    policy.close();
  });

  it('in mode off is not built', async () => {
    const folder = scratch({ 'team.rego': 'this is no Rego' });
    const policy = await loadPolicy(parts({ folder, sources: [regoSource(folder, 'off')] }));
    expect((await policy.call(callOf())).outcome).toBe('deny');
  });

  it.each([
    ['an object without message', 'deny contains {"id": "x"} if input.run'],
    ['a number', 'allow contains 1 if input.run'],
    ['a message that is not a string', 'ask contains {"id": "x", "message": 5} if input.run'],
  ])('denies if a set contains %s', async (_name, rule) => {
    await withRego(`package policy.team\n\n${rule}\n\nallow contains "all" if input.run\n`, async (policy) => {
      expect(await policy.call(callOf())).toMatchObject({ outcome: 'deny', reasons: [{ id: 'policy-shape' }] });
    });
  });

  inFull('reads large arguments in full, and refuses arguments over the limit', async () => {
    await withRego(
      `package policy.team

allow contains "all" if input.run

deny contains "bomb" if contains(input.effect.arguments.content, "bomb")
`,
      async (policy) => {
        const content = 'x'.repeat(900_000);
        expect((await policy.call(callOf({ args: { content: `${content}bomb` } }))).outcome).toBe('deny');
        expect((await policy.call(callOf({ args: { content } }))).outcome).toBe('allow');
        await expect(policy.call(callOf({ args: { content: 'x'.repeat(3_000_000) } }))).rejects.toMatchObject({
          code: 'POLICY_FAILED',
          message: expect.stringContaining('the limit is') as string,
        });
        expect((await policy.call(callOf())).outcome).toBe('allow');
      },
      { deadlineMs: 2000 },
    );
  });

  it('fails a decision in which its rules conflict, and decides the next call', async () => {
    await withRego(
      `package policy.team

f(x) := 1 if x == "a"

f(x) := 2 if x == "a"

allow contains "x" if f(input.effect.arguments.x) == 1

allow contains "y" if input.effect.arguments.y
`,
      async (policy) => {
        await expect(policy.call(callOf({ args: { x: 'a' } }))).rejects.toMatchObject({ code: 'POLICY_FAILED' });
        expect((await policy.call(callOf({ args: { y: true } }))).outcome).toBe('allow');
      },
    );
  });
});

describe('a runaway loop in user Rego', () => {
  inFull('is stopped and refused, and later calls are served', async () => {
    await withRego(
      LOOP,
      async (policy) => {
        for (let round = 0; round < 3; round += 1) {
          const answers = await Promise.allSettled([
            policy.call(callOf({ args: { loop: true } })),
            policy.call(callOf()),
            policy.call(callOf({ args: { loop: true } })),
            policy.call(callOf()),
          ]);
          expect(
            answers.map((answer) =>
              answer.status === 'fulfilled' ? answer.value.outcome : (answer.reason as Error).message,
            ),
          ).toEqual([
            'The policy did not decide in time and was stopped.',
            'allow',
            'The policy did not decide in time and was stopped.',
            'allow',
          ]);
        }
      },
      { deadlineMs: 200 },
    );
  });

  it('does not block this thread', async () => {
    await withRego(
      LOOP,
      async (policy) => {
        let ticks = 0;
        const ticker = setInterval(() => {
          ticks += 1;
        }, 5);
        await expect(policy.call(callOf({ args: { loop: true } }))).rejects.toMatchObject({ code: 'POLICY_FAILED' });
        clearInterval(ticker);
        expect(ticks).toBeGreaterThan(3);
      },
      { deadlineMs: 200 },
    );
  });

  it('does not lose an answer that arrived while this thread was busy', async () => {
    await withRego(
      LOOP,
      async (policy) => {
        const answer = policy.call(callOf());
        await new Promise((resolve) => setImmediate(resolve));
        const until = Date.now() + 600;
        while (Date.now() < until);
        expect((await answer).outcome).toBe('allow');
      },
      { deadlineMs: 300 },
    );
  });

  it('is refused after the policy was closed, as are waiting calls', async () => {
    const folder = scratch({ 'team.rego': LOOP });
    const policy = await loadPolicy(parts({ folder, cache, sources: [regoSource(folder)], deadlineMs: 5000 }));
    const running = policy.call(callOf({ args: { loop: true } }));
    const waiting = policy.call(callOf());
    const refused = Promise.allSettled([running, waiting]);
    await new Promise((resolve) => setTimeout(resolve, 50));
    policy.close();
    expect((await refused).map(({ status }) => status)).toEqual(['rejected', 'rejected']);
    await expect(policy.call(callOf())).rejects.toMatchObject({
      code: 'POLICY_FAILED',
      message: 'The policy is closed.',
    });
  });
});

describe('broken Rego is refused at its place', () => {
  const rego = (rule: string): Record<string, string> => ({ 'a.rego': `package policy.team\n\n${rule}\n` });

  it.each([
    ['Rego that does not parse', rego('deny contains "x" if {'), /^team\/a\.rego:\d+:\d+: /],
    [
      'a field that the input has not',
      rego('deny contains "x" if input.effect.tol == "a"'),
      /^team\/a\.rego:3:22: undefined ref: input\.effect\.tol; known names: address, arguments, asks, command, kind/,
    ],
    [
      'a key below a list',
      rego('deny contains "x" if input.principal.groups.foo'),
      /^team\/a\.rego:3:22: undefined ref: input\.principal\.groups\.foo/,
    ],
    [
      'a built-in that is not supplied',
      rego('deny contains "x" if http.send({"method": "get", "url": "x"}).status_code == 1'),
      /^team\/a\.rego:3:22: undefined function http\.send/,
    ],
    [
      'an unused variable',
      rego('deny contains "x" if { y := 1; input.run }'),
      /^team\/a\.rego:3:24: assigned var y unused/,
    ],
    ['deny as a boolean', rego('deny if input.effect.tool == "a"'), /^team\/a\.rego:3:1: `deny` must be a set/],
    ['allow with a default', rego('default allow := true'), /^team\/a\.rego:3:9: `allow` must be a set/],
    ['ask as a function', rego('ask(x) := 1 if x == 1'), /^team\/a\.rego:3:1: `ask` must be a set/],
    [
      'a package that nobody reads',
      { 'a.rego': 'package authz\n\ndeny contains "x" if input.run\n' },
      /^team\/a\.rego:3:1: `deny` counts only in a package policy\.<name>/,
    ],
    [
      'a package whose name is none',
      { 'a.rego': 'package policy["a.b"]\n\nallow contains "x" if input.run\n' },
      /^team\/a\.rego:1:1: the package policy\.a\.b must be made of letters/,
    ],
    [
      'a rule under a name of the build',
      rego('tollgate_deny contains ["0", "x"] if input.run'),
      /^team\/a\.rego:3:1: `tollgate_deny`: names that begin with tollgate_/,
    ],
    [
      'the data of the configuration',
      rego('deny contains "x" if data.config.mode'),
      /^team\/a\.rego:3:22: data\.config belongs to Tollgate/,
    ],
    [
      'the package policy itself',
      { 'a.rego': 'package policy\n\nx := 1\n' },
      /^team\/a\.rego:1:1: the package policy belongs to Tollgate/,
    ],
    [
      'the package of a decision',
      { 'a.rego': 'package tollgate.call\n\noutcome := "allow"\n' },
      /^team\/a\.rego:1:1: the package tollgate\.call belongs to Tollgate/,
    ],
    [
      'a package over the configuration',
      { 'a.rego': 'package config.rules\n\nlist := []\n' },
      /^team\/a\.rego:1:1: the package config\.rules belongs to Tollgate/,
    ],
    [
      'a circle through the library',
      { 'a.rego': 'package policy.team\n\nallow contains "x" if data.tollgate.call.outcome == "allow"\n' },
      /^team\/a\.rego:3:23: data\.tollgate belongs to Tollgate/,
    ],
  ])('%s', async (_name, files, expected) => {
    expect((await faultsOf(files))[0]).toMatch(expected);
  });

  inFull('an id that is used twice, in Rego, METADATA or YAML, with both places', async () => {
    const twice = scratch({
      'a.rego': 'package policy.a\n\ndeny contains {"id": "x", "message": "m"} if input.run\n',
      'b.rego': 'package policy.b\n\n# METADATA\n# custom:\n#   id: x\nask contains "m" if input.run\n',
    });
    expect(await problemsOf(loadPolicy(parts({ folder: twice, cache, sources: [regoSource(twice)] })))).toEqual([
      'b.rego:6:1: the id "x" is already used at a.rego:3; choose another id',
    ]);
    const folder = scratch({
      'a.rego': `# METADATA
# custom:
#   id: whole
package policy.a

deny contains {"id": "x", "message": "m"} if input.run

ask contains "m" if input.run
`,
      'b.rego': 'package policy.b\n\nallow contains "m" if input.run\n',
    });
    const rules = [
      ['w', 'read'],
      ['x', 'write'],
      ['whole', 'execute'],
      ['policy.b', 'destructive'],
    ].map(([id, verb]) => ({ id, outcome: 'deny', when: { verbs: [verb] } }));
    const off = { ...rules[1], mode: 'off' };
    const load = (...all: readonly unknown[]): Promise<Policy> =>
      loadPolicy(parts({ folder, cache, rules: [documentOf(all)], sources: [regoSource(folder)] }));
    const taken = (line: number, id: string, place: string): string =>
      `rules.yaml:${line}:1: the id "${id}" is already used at ${place}; ids are unique across YAML and Rego`;
    expect(await problemsOf(load(...rules))).toEqual([
      taken(2, 'x', 'a.rego:6'),
      taken(3, 'whole', 'a.rego:8'),
      taken(4, 'policy.b', 'b.rego:3'),
    ]);
    (await load(rules[0], off)).close();
  });

  inFull('helpers may be in their own packages under any name', async () => {
    await withRego(
      {
        'lib.rego': 'package helpers.words\n\nallow(x) if x == "read"\n',
        'a.rego': `package policy.a

import data.helpers.words

allow contains "x" if words.allow(input.effect.verb)
`,
      },
      async (policy) => {
        expect((await policy.call(callOf())).outcome).toBe('allow');
      },
    );
  });

  it.each([
    [
      'data under a name of Tollgate',
      { 'a.rego': 'package policy.a\n\nx := 1\n', 'data.json': '{"config":{"rules":{}}}' },
      /uses the name "config"/,
    ],
    ['no Rego at all', { 'readme.txt': 'x' }, /^There is no Rego at /],
  ])('%s', async (_name, files, expected) => {
    const folder = scratch(files);
    await expect(loadPolicy(parts({ folder, cache, sources: [regoSource(folder)] }))).rejects.toMatchObject({
      code: 'POLICY_INVALID',
      message: expect.stringMatching(expected) as string,
    });
  });

  it('a missing source, a link to a folder, one package in two modes', async () => {
    const folder = scratch({ 'a.rego': 'package policy.a\n\nallow contains "x" if input.run\n' });
    mkdirSync(path.join(folder, 'sub'));
    writeFileSync(path.join(folder, 'sub', 'b.rego'), 'package policy.a\n\nask contains "x" if input.run\n');
    const load = (...sources: ReturnType<typeof regoSource>[]) => loadPolicy(parts({ folder, cache, sources }));
    await expect(load(regoSource(`${folder}/none`))).rejects.toMatchObject({ message: 'There is no policy at none.' });
    await expect(load(regoSource(`${folder}/a.rego`), regoSource(`${folder}/sub`, 'shadow'))).rejects.toMatchObject({
      message: expect.stringContaining('two sources with different modes') as string,
    });
    symlinkSync(path.join(folder, 'sub'), path.join(folder, 'linked'));
    await expect(load(regoSource(folder))).rejects.toMatchObject({
      message: expect.stringContaining('link to a folder') as string,
    });
  });

  inFull('links to files are followed, because mounted configuration has them', async () => {
    const real = scratch({ 'a.rego': 'package policy.a\n\nallow contains "x" if input.run\n' });
    const folder = scratch();
    symlinkSync(path.join(real, 'a.rego'), path.join(folder, 'a.rego'));
    const policy = await loadPolicy(parts({ folder, cache, sources: [regoSource(folder)] }));
    expect((await policy.call(callOf())).outcome).toBe('allow');
    policy.close();
  });
});

describe('the cache of built Rego', () => {
  const REGO = 'package policy.cached\n\nallow contains "x" if input.run\n';

  inFull('avoids a second build, notices a change, and replaces a damaged entry', async () => {
    const [folder, own] = [scratch({ 'a.rego': REGO }), path.join(scratch(), 'cache')];
    const load = async () => {
      const policy = await loadPolicy(parts({ folder, cache: own, sources: [regoSource(folder)] }));
      const { outcome } = await policy.call(callOf());
      policy.close();
      return [outcome, policy.revision];
    };
    const first = await load();
    const entries = readdirSync(own);
    expect(await load()).toEqual(first);
    expect(readdirSync(own)).toEqual(entries);
    const wasm = path.join(own, entries[0] ?? '', 'policy.wasm');
    const bytes = readFileSync(wasm);
    writeFileSync(wasm, bytes.subarray(0, 1000));
    expect(await load()).toEqual(first);
    expect(readFileSync(wasm)).toEqual(bytes);
    writeFileSync(path.join(folder, 'a.rego'), REGO.replace('allow', 'deny'));
    expect((await load())[0]).toBe('deny');
    expect(readdirSync(own)).toHaveLength(2);
  });

  it('leaves nothing behind when a build fails', async () => {
    const [folder, own] = [
      scratch({ 'a.rego': 'package policy.a\n\nallow contains if\n' }),
      path.join(scratch(), 'cache'),
    ];
    await expect(loadPolicy(parts({ folder, cache: own, sources: [regoSource(folder)] }))).rejects.toMatchObject({
      code: 'POLICY_INVALID',
    });
    expect(readdirSync(own)).toEqual([]);
  });

  inFull('has equal bytes for sources in any folder', async () => {
    const built = await Promise.all(
      [1, 2].map(async () => {
        const [folder, own] = [scratch({ 'a.rego': REGO }), path.join(scratch(), 'cache')];
        (await loadPolicy(parts({ folder, cache: own, sources: [regoSource(path.join(folder, 'a.rego'))] }))).close();
        return readFileSync(path.join(own, readdirSync(own)[0] ?? '', 'policy.wasm'));
      }),
    );
    expect(built[0]?.equals(built[1] ?? Buffer.alloc(0))).toBe(true);
  });
});

describe('without opa', () => {
  it('Rego is refused with installation advice; YAML rules load', async () => {
    const folder = scratch({ 'a.rego': 'package policy.a\n\nallow contains "x" if input.run\n' });
    const none = path.join(folder, 'no-opa');
    await expect(loadPolicy(parts({ folder, sources: [regoSource(folder)], opa: none }))).rejects.toMatchObject({
      code: 'OPA_MISSING',
      next: expect.stringContaining('brew install opa') as string,
    });
    expect(
      (
        await (
          await loadPolicy(parts({ folder, opa: none, rules: [documentOf([{ id: 'a', outcome: 'allow', when: {} }])] }))
        ).call(callOf())
      ).outcome,
    ).toBe('allow');
  });

  inFull('a built bundle loads, as a folder and packed, but not with other Rego', async () => {
    const [folder, own] = [
      scratch({
        'a.rego': 'package policy.a\n\nallow contains {"id": "b", "message": "c"} if input.effect.tool == data.open\n',
        'data.json': '{"open":"status"}',
      }),
      path.join(scratch(), 'cache'),
    ];
    (await loadPolicy(parts({ folder, cache: own, sources: [regoSource(folder)] }))).close();
    const bundle = { path: path.join(own, readdirSync(own)[0] ?? ''), kind: 'bundle', mode: 'enforce' } as const;
    const load = (sources: Parameters<typeof parts>[0] & object) =>
      loadPolicy(parts({ folder, opa: '/none', ...sources }));
    const policy = await load({ sources: [bundle] });
    expect(await policy.call(callOf())).toMatchObject({ outcome: 'allow', reasons: [{ id: 'b' }] });
    expect((await policy.call(callOf({ tool: 'push' }))).outcome).toBe('deny');
    expect((await policy.list(PRINCIPAL, [toolOf(), toolOf({ tool: 'push' })])).map(({ verdict }) => verdict)).toEqual([
      'always',
      'never',
    ]);
    policy.close();
    const shadow = await load({ sources: [{ ...bundle, mode: 'shadow' }] });
    expect(await shadow.call(callOf())).toMatchObject({ outcome: 'deny', shadow: [{ id: 'b', would: 'allow' }] });
    shadow.close();
    await expect(load({ sources: [bundle, regoSource(folder)] })).rejects.toMatchObject({
      message: expect.stringContaining('cannot be combined with other Rego or bundles') as string,
    });
    await expect(load({ sources: [bundle, bundle] })).rejects.toMatchObject({
      message: expect.stringContaining('cannot be combined with other Rego or bundles') as string,
    });
    writeFileSync(path.join(bundle.path, 'policy.wasm'), 'no wasm');
    await expect(load({ sources: [bundle] })).rejects.toMatchObject({ code: 'POLICY_INVALID' });
  });
});

describe('the program opa', () => {
  const fake = (script: string): string => {
    const file = path.join(scratch({ opa: `#!/bin/sh\n${script}\n` }), 'opa');
    chmodSync(file, 0o755);
    return file;
  };

  it('is not trusted if it fails without a message', async () => {
    const folder = scratch({ 'a.rego': 'package policy.a\n\nallow contains "x" if input.run\n' });
    const opa = fake('if [ "$1" = version ]; then echo "Version: 1.2.3"; else exit 3; fi');
    await expect(loadPolicy(parts({ folder, sources: [regoSource(folder)], opa }))).rejects.toMatchObject({
      code: 'POLICY_INVALID',
      message: 'opa refuses the policy and gives no reason.',
    });
    expect(existsSync(path.join(folder, 'cache'))).toBe(true);
  });

  it('is not trusted if it builds nothing', async () => {
    const folder = scratch({ 'a.rego': 'package policy.a\n\nallow contains "x" if input.run\n' });
    const opa = fake(
      'case "$1" in version) echo "Version: 1.2.3";; parse) echo "{\\"package\\":{\\"path\\":[]}}";; ' +
        'build) printf x > bundle.tar.gz;; esac',
    );
    await expect(loadPolicy(parts({ folder, sources: [regoSource(folder)], opa }))).rejects.toThrow();
  });
});
