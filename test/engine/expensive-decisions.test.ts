/** Tests that what is dear to decide holds up nobody: many rules, many patterns, arguments of many parts. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { readYaml } from '../../facade/config/reading/yaml-document.ts';
import { costOfCall, EXPENSIVE_MS, weighRules } from '../../policies/engine/decision-cost.ts';
import { readLibrary } from '../../policies/engine/policy-library.ts';
import { loadPolicy } from '../../policies/engine/policy-loader.ts';
import { dropCache, SOUND_CACHE_PATTERNS } from '../../policies/engine/wasm/wasm-module.ts';
import type { CallDecision, Policy } from '../../policies/port.ts';
import type { RuleData } from '../../policies/rules/rule-compiler.ts';
import { compileWhen, type When } from '../../policies/rules/rule-conditions.ts';
import { type CallOf, callOf, PRINCIPAL, parts, policyOf, scratch, toolOf, WORKSPACE } from './policy-fixture.ts';

const OPEN = { id: 'open', outcome: 'allow', when: {} };
const patterns = (count: number): readonly object[] => [
  OPEN,
  ...Array.from({ length: count }, (_, number) => ({
    id: `p${number}`,
    outcome: 'deny',
    when: { args: { command: { pattern: `^rm -rf /x${number}$` } } },
  })),
];

/** Whether a decision is made elsewhere, and which one. */
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

describe('a dear decision', () => {
  it('over many patterns is made in a worker, and cheap ones beside it in this thread', async () => {
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

  it('over an argument of many parts, which one rule walks through, is made in a worker, or refused', async () => {
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

  it('that depends on nothing of the call is kept, wherever it was made', async () => {
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

/** Whether the estimate sends this call to a worker, over so many rules that deny, none of which names a tool. */
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
  const weights = weighRules(
    { list, index: { tool: {}, server: {}, verb: {}, any: list.map((_, number) => number) } },
    {},
  );
  return costOfCall(weights, callOf(call), { cached: true }) >= EXPENSIVE_MS;
}

const nested = (depth: number): unknown => JSON.parse(`${'['.repeat(depth)}1${']'.repeat(depth)}`);

describe('the estimate', () => {
  const onX = (number: number): When => ({ args: { x: { prefix: `bad${number}` } } });
  const onCommands = (number: number): When => ({ commands: [`git p${number}`] });

  it('finds arguments of less than a kilobyte dear, by their parts, their depth and the rules that look into them', () => {
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

  it('counts how long paths and URLs are, and the commands that rules take apart', () => {
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
  it('is looked through in lists of any depth, by the names that lead there, whatever else has the same value', async () => {
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

describe('more patterns than the engine can keep', () => {
  /** Each is matched twice, which is where the engine breaks; see dropCache. */
  const rules = Array.from({ length: SOUND_CACHE_PATTERNS + 20 }, (_, number) => ({
    id: `g${number}`,
    outcome: 'deny',
    when: { paths: [`src/*/a${number}`] },
  }));

  it('decide as each does alone', async () => {
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

  it('leave a module that is none, or has no such cache, as it is', () => {
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

describe('a file of ten thousand rules', () => {
  it('is read, and decides', async () => {
    const folder = scratch();
    const file = path.join(folder, 'rules.yaml');
    writeFileSync(
      file,
      `rules:\n- {id: open, outcome: allow, when: {}}\n${Array.from({ length: 10_000 }, (_, number) => `- {id: r${number}, outcome: deny, when: {tools: [git.t${number}]}}\n`).join('')}`,
    );
    const policy = await loadPolicy(parts({ folder, sources: [{ path: file, kind: 'yaml', mode: 'enforce' }] }));
    await using(policy, async () => {
      expect(await asked(policy.call(callOf({ tool: 't9999' })))).toEqual([false, 'deny', 'r9999']);
      expect(await asked(policy.call(callOf({ tool: 't10000' })))).toEqual([false, 'allow', 'open']);
    });
  });

  it('is refused by its length, when it is one that nobody could read, and not by its values', () => {
    expect(readYaml('a.yaml', 'x'.repeat(9_000_000)).problems).toMatchObject([
      { message: expect.stringContaining('split it into several') as string },
    ]);
  });
});
