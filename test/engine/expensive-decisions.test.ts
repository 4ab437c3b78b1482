/** Tests that expensive decisions do not block others: many rules, many patterns, arguments with many parts. */

import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { readYaml } from '../../facade/config/reading/yaml-document.ts';
import { costOfCall, EXPENSIVE_MS, weighRules, weightOfEffect } from '../../policies/engine/decision-cost.ts';
import { readLibrary } from '../../policies/engine/policy-library.ts';
import { loadPolicy } from '../../policies/engine/policy-loader.ts';
import { dropCache, SOUND_CACHE_PATTERNS } from '../../policies/engine/wasm/wasm-module.ts';
import type { CallDecision, Policy } from '../../policies/port.ts';
import type { RuleData } from '../../policies/rules/rule-compiler.ts';
import { compileWhen, type When } from '../../policies/rules/rule-conditions.ts';
import { inFull } from '../harness/full-tests.ts';
import { roundsOf } from '../harness/slices.ts';
import { type CallOf, callOf, PRINCIPAL, parts, policyOf, scratch, toolOf, WORKSPACE } from './policy-fixture.ts';

const OPEN = { id: 'open', outcome: 'allow', when: {} };
const patterns = (count: number): readonly object[] => [
  OPEN,
  ...Array.from({ length: count }, (_, number) => ({
    id: `p${number}`,
    outcome: 'deny',
    when: { args: { command: { pattern: `^rm -[rf]+ /x${number}$` } } },
  })),
];

/** Returns the decision, and whether a worker made it. */
async function asked(
  answer: CallDecision | Promise<CallDecision>,
): Promise<readonly [apart: boolean, outcome: string, reason: string | undefined]> {
  const { outcome, reasons } = await answer;
  return [answer instanceof Promise, outcome, reasons[0]?.id];
}

async function using(policy: Policy, run: () => Promise<void>): Promise<void> {
  try {
    await run();
  } finally {
    policy.close();
  }
}

describe('an expensive decision', () => {
  it('over many patterns is made in a worker, while cheap ones are made in this thread', async () => {
    const policy = await policyOf([
      ...patterns(300),
      { id: 'one', outcome: 'deny', when: { tools: ['git.push'], args: { force: { equals: true } } } },
    ]);
    await using(policy, async () => {
      expect(await asked(policy.call(callOf({ args: { command: 'rm -rf /x299' } })))).toEqual([true, 'deny', 'p299']);
      expect(await asked(policy.call(callOf({ args: { command: 'ls' } })))).toEqual([true, 'allow', 'open']);
    });
    const few = await policyOf(patterns(20));
    await using(few, async () =>
      expect(await asked(few.call(callOf({ args: { command: 'rm -rf /x3' } })))).toEqual([false, 'deny', 'p3']),
    );
  });

  it('over an argument with many parts that a rule searches is made in a worker, or refused', async () => {
    const policy = await policyOf([OPEN, { id: 'no', outcome: 'deny', when: { args: { x: { prefix: 'bad' } } } }], {
      deadlineMs: 150,
    });
    await using(policy, async () => {
      const numbers = Array.from({ length: 2000 }, () => 1);
      expect(await asked(policy.call(callOf({ args: { x: [...numbers, 'bad one'] } })))).toEqual([true, 'deny', 'no']);
      expect(await asked(policy.call(callOf({ args: { x: 'bad one', text: ','.repeat(4000) } })))).toEqual([
        false,
        'deny',
        'no',
      ]);
      const endless = policy.call(callOf({ args: { x: Array.from({ length: 100_000 }, () => 1) } }));
      await expect(endless).rejects.toMatchObject({ code: 'POLICY_FAILED' });
      expect(await asked(policy.call(callOf()))).toEqual([false, 'allow', 'open']);
    });
  });

  it('that does not depend on the call is kept, in whichever thread it was made', async () => {
    const policy = await policyOf([
      OPEN,
      ...Array.from({ length: 2500 }, (_, number) => ({
        id: `r${number}`,
        outcome: 'deny',
        when: { roles: [`nobody${number}`] },
      })),
    ]);
    await using(policy, async () => {
      const call = callOf();
      expect(await asked(policy.call(call))).toEqual([true, 'allow', 'open']);
      expect(await asked(policy.call(call))).toEqual([false, 'allow', 'open']);
      expect((await policy.list(PRINCIPAL, [toolOf()]))[0]?.verdict).toBe('always');
    });
  });
});

/** Whether the estimate sends this call to a worker, with so many deny rules that name no tool. */
function isDear(rules: number, whenOf: (number: number) => When, call: CallOf): boolean {
  const list = Array.from(
    { length: rules },
    (_, number): RuleData => ({
      outcome: 'deny',
      mode: 'enforce',
      reason: { id: `r${number}`, message: '', file: '', line: 1 },
      obligations: {},
      ...compileWhen(whenOf(number), {
        outcome: 'deny',
        workspace: WORKSPACE,
        refuse: (at, message) => expect.fail(`${at.join('.')}: ${message}`),
      }),
    }),
  );
  const all = { tool: {}, server: {}, verb: {}, any: list.map((_, number) => number) };
  const weights = weighRules({ list, index: { tools: all, others: all } }, {});
  const input = callOf(call);
  return costOfCall(weightOfEffect(weights, input.effect), input, { cached: true }) >= EXPENSIVE_MS;
}

const nested = (depth: number): unknown => JSON.parse(`${'['.repeat(depth)}1${']'.repeat(depth)}`);

describe('the estimate', () => {
  const onX = (number: number): When => ({ args: { x: { prefix: `bad${number}` } } });
  const onCommands = (number: number): When => ({ commands: [`git p${number}`] });

  it('can be high for arguments below a kilobyte, by their parts, their depth and the rules that search them', () => {
    const texts = Array.from({ length: 140 }, (_, number) => `a${number}`);
    const dear: readonly (readonly [number, unknown])[] = [
      [100, Array(490).fill(1)],
      [60, Array(490).fill(1)],
      [200, texts],
      [100, Array(8).fill(nested(55))],
      [1, nested(480)],
      [900, Object.fromEntries(texts.map((key) => [key, 1]))],
    ];
    expect(dear.map(([rules, x]) => isDear(rules, onX, { args: { x } }))).toEqual(dear.map(() => true));
    const cheap: readonly (readonly [number, unknown])[] = [
      [20, 'a text'],
      [300, 'a text'],
      [20, ['a', { b: ['c', 1] }]],
      [1, texts],
      [1, nested(20)],
    ];
    expect(cheap.map(([rules, x]) => isDear(rules, onX, { args: { x } }))).toEqual(cheap.map(() => false));
    expect([
      isDear(1, () => ({ args: { x: { in: Array(2000).fill('v') } } }), { args: { x: texts } }),
      isDear(1, () => ({ args: { x: { in: ['v', 'w'] } } }), { args: { x: texts } }),
    ]).toEqual([true, false]);
  });

  it('counts the texts of patterns that are searched in long arguments', () => {
    const onText = (number: number): When => ({ args: { text: { pattern: `secret${number}|forbidden` } } });
    expect([
      isDear(100, onText, { args: { text: 'a'.repeat(60_000) } }),
      isDear(2, onText, { args: { text: 'a'.repeat(60_000) } }),
      isDear(100, onText, { args: { text: 'a' } }),
    ]).toEqual([true, false, false]);
  });

  it('counts the length of paths and URLs, and the commands that rules split', () => {
    const onPaths = (number: number): When => ({ paths: [`**/a${number}`] });
    expect([
      isDear(1000, onPaths, { inside: ['ab/'.repeat(20_000)] }),
      isDear(1000, onPaths, { inside: ['ab'] }),
    ]).toEqual([true, false]);
    expect(
      isDear(1000, (number) => ({ hosts: [`h${number}.example`] }), {
        urls: [`https://example.com/${'a'.repeat(60_000)}`],
      }),
    ).toBe(true);
    expect([
      isDear(100, onCommands, { commands: Array(20).fill(['git', 'x']) as string[][] }),
      isDear(100, onCommands, { commands: [['a/'.repeat(450)]] }),
    ]).toEqual([true, true]);
    expect(
      isDear(100, onCommands, {
        commands: [
          ['git', 'status'],
          ['ls', '-l'],
        ],
      }),
    ).toBe(false);
  });
});

describe('an argument', () => {
  it('is found in lists of any depth, by the names that lead there, even if other values are equal', async () => {
    const policy = await policyOf([
      OPEN,
      ...['x', 'x.a', 'x.a.b', '0'].map((at) => ({
        id: at,
        outcome: 'deny',
        when: { args: { [at]: { equals: 'bad' } } },
      })),
      { id: 'none', outcome: 'deny', when: { args: { y: { in: [null, false] } } } },
    ]);
    const fired = async (args: unknown): Promise<string> =>
      (await policy.call(callOf({ args }))).reasons.map(({ id }) => id).join();
    await using(policy, async () => {
      const given = [
        { x: 'bad' },
        { x: ['ok', [['bad', 'bad']]] },
        { x: [{ a: 'bad' }] },
        { x: [[{ a: [{ b: ['bad'] }] }], 'bad'] },
        { x: { b: 'bad' }, a: 'bad' },
        { x: ['ok'], 0: 'bad' },
        { y: false, x: [] },
        { y: [[null]] },
        { y: [0, ''] },
        {},
      ];
      expect(await Promise.all(given.map(fired))).toEqual([
        'x',
        'x',
        'x.a',
        'x,x.a.b',
        'open',
        '0',
        'none',
        'none',
        'open',
        'open',
      ]);
    });
  });
});

describe('more patterns than the cache of the engine can store', () => {
  /** Each pattern is matched twice, which breaks the engine's cache; see dropCache. */
  const rules = Array.from({ length: SOUND_CACHE_PATTERNS + 20 }, (_, number) => ({
    id: `g${number}`,
    outcome: 'deny',
    when: { paths: [`src/*/a${number}`] },
  }));

  it('decide the same as each pattern alone', async () => {
    const policy = await policyOf([OPEN, ...rules]);
    await using(policy, async () => {
      for (const number of [0, SOUND_CACHE_PATTERNS - 1, SOUND_CACHE_PATTERNS, SOUND_CACHE_PATTERNS + 19]) {
        const { outcome, reasons } = await policy.call(
          callOf({ inside: ['src/b', `src/b/a${number}`, 'src/c', 'src/d'] }),
        );
        expect([outcome, reasons.map(({ id }) => id)]).toEqual(['deny', [`g${number}`]]);
      }
      expect((await policy.call(callOf({ inside: ['src/b', 'src/b/a', 'src/c', 'src/d'] }))).outcome).toBe('allow');
    });
  });

  it('leave invalid bytes, and a module without such a cache, unchanged', () => {
    const library = readLibrary().wasm;
    const [dropped, differ] = [dropCache(library), (one: Uint8Array) => Buffer.compare(dropCache(one), one) !== 0];
    expect([dropped.length, WebAssembly.validate(dropped as Uint8Array<ArrayBuffer>)]).toEqual([library.length, true]);
    expect([
      differ(library),
      differ(dropped),
      differ(library.slice(0, 300)),
      differ(Uint8Array.from([1, 2, 3])),
    ]).toEqual([true, false, false, false]);
  });
});

/** Rules in a long file. */
const MANY = roundsOf(10_000, 3000);

describe('a file of thousands of rules', () => {
  inFull('is loaded and decides', async () => {
    const folder = scratch();
    const file = path.join(folder, 'rules.yaml');
    writeFileSync(
      file,
      `rules:
- {id: open, outcome: allow, when: {}}
${Array.from({ length: MANY }, (_, number) => `- {id: r${number}, outcome: deny, when: {tools: [git.t${number}]}}\n`).join('')}`,
    );
    const policy = await loadPolicy(parts({ folder, sources: [{ path: file, kind: 'yaml', mode: 'enforce' }] }));
    await using(policy, async () => {
      expect(await asked(policy.call(callOf({ tool: `t${MANY - 1}` })))).toEqual([false, 'deny', `r${MANY - 1}`]);
      expect(await asked(policy.call(callOf({ tool: `t${MANY}` })))).toEqual([false, 'allow', 'open']);
    });
  });

  it('is refused by its length if it is unreadable, not by the number of its values', () => {
    expect(readYaml('a.yaml', 'x'.repeat(9_000_000)).problems).toMatchObject([
      { message: expect.stringContaining('split it into several') as string },
    ]);
  });
});
