/** Tests that a decision found by the rules that match equals the decision that would be made in full. */
import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { LibraryEvaluator } from '../../policies/engine/compiled-policy.ts';
import { noteOpaqueCommand, readCallDecision } from '../../policies/engine/decision-reader.ts';
import { ENTRYPOINTS } from '../../policies/engine/policy-library.ts';
import { loadPolicy } from '../../policies/engine/policy-loader.ts';
import { WasmInstance } from '../../policies/engine/wasm/wasm-instance.ts';
import type { CallInput, Policy } from '../../policies/port.ts';
import { roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import { callOf, documentOf, PRINCIPAL, parts, policyOf, profile, settings } from './policy-fixture.ts';
import { decideInFull, facts, obligedRules, principals, targets } from './random-policies.ts';

/** Random decisions. By hand: TOLLGATE_DECISIONS=100000. */
const DECISIONS = Number(process.env.TOLLGATE_DECISIONS ?? roundsOf(3000, 1000));
/** Calls of one policy. Some are made several times. */
const CALLS = 100;

const SETTINGS = settings({
  servers: [{ name: 'git', gated: { put: ['writes'] }, labels: ['public'] }, { name: 'mail' }],
  budgets: [{ id: 'all', scope: 'session', calls: 9, when: { server: 'mail' } }],
  caps: { bytes: 9000 },
  profiles: [
    profile({
      expose: [
        { tool: 'git.get', name: 'fetch', pins: { n: 3 } },
        { tool: 'git.put', pins: {} },
        { tool: 'mail.*', pins: {} },
      ],
    }),
    profile({ name: 'play', servers: ['mail'], primitives: {}, caps: { lines: 5 } }),
    profile({ name: 'careful', servers: ['git'], primitives: {}, plan: true }),
  ],
});

/** Counts evaluations in this thread by entry point. */
function countEvaluations(): Record<string, number> {
  const counts: Record<string, number> = { [ENTRYPOINTS.read]: 0, [ENTRYPOINTS.fired]: 0 };
  const evaluate = LibraryEvaluator.prototype.evaluateHere;
  vi.spyOn(LibraryEvaluator.prototype, 'evaluateHere').mockImplementation(function (this: LibraryEvaluator, query) {
    counts[query.entrypoint] = (counts[query.entrypoint] ?? 0) + 1;
    return evaluate.call(this, query);
  });
  return counts;
}

afterEach(() => void vi.restoreAllMocks());

describe('a decision by the rules that match', () => {
  it('equals the full evaluation, for random rules and calls of every kind' + verifies('FP-04', 'PR-P05'), async () => {
    const counts = countEvaluations();
    let decisions = 0;
    const calls = fc.array(
      fc.record({ target: targets, call: facts, who: fc.nat(1), spill: fc.boolean(), given: fc.boolean() }),
      { minLength: CALLS / 2, maxLength: CALLS / 2 },
    );
    const modes = fc.constantFrom({}, { modes: [{ profile: 'play', mode: 'warn' as const }] });
    await fc.assert(
      fc.asyncProperty(obligedRules, modes, fc.tuple(principals, principals), calls, async (all, over, who, list) => {
        const policy = await loadPolicy(parts({ rules: [documentOf(all, over)], settings: SETTINGS }));
        const inFull = decideInFull(all, { settings: SETTINGS, over });
        for (const one of [...list, ...list]) {
          const principal = { ...PRINCIPAL, ...who[one.who] };
          const input: CallInput = {
            ...callOf({
              ...one.target,
              ...one.call,
              ...(one.spill && one.call.labels.length > 1 ? { spill: true } : {}),
            }),
            principal,
          };
          const args = one.given ? (JSON.parse(input.argsText) as Record<string, unknown>) : undefined;
          const decision = policy.call(input, args);
          const expected = noteOpaqueCommand(readCallDecision(inFull(input)), input);
          if (!isDeepStrictEqual(decision, expected))
            expect({ input, decision }).toEqual({ input, decision: expected });
          decisions += 1;
        }
        policy.close();
      }),
      { numRuns: Math.ceil(DECISIONS / CALLS) },
    );
    const full = counts[ENTRYPOINTS.read] ?? 0;
    const fired = counts[ENTRYPOINTS.fired] ?? 0;

    expect(decisions).toBeGreaterThanOrEqual(DECISIONS);
    // Enough of them were found without a full evaluation, by rules that matched and without such rules.
    expect([full < decisions * 0.8, fired > decisions / 10]).toEqual([true, true]);
  }, 600_000);
});

const RULES = [
  { id: 'yes', outcome: 'allow', when: { servers: ['git'] } },
  { id: 'no', outcome: 'deny', when: { tools: ['git.push'], args: { to: { prefix: 'main' } } } },
  { id: 'maybe', outcome: 'ask', when: { tools: ['git.push'], labels: ['secret'] } },
];

async function withPolicy(use: (policy: Policy, counts: Record<string, number>) => void): Promise<void> {
  const policy = await policyOf(RULES);
  try {
    use(policy, countEvaluations());
  } finally {
    policy.close();
  }
}

const push = (to: string, over: object = {}): CallInput => callOf({ tool: 'push', args: { to }, ...over });

describe('a call', () => {
  it('is decided without a promise, and evaluates only the rules that read it' + verifies('FP-04'), async () => {
    await withPolicy((policy, counts) => {
      const outcomes = [
        push('a'),
        push('b'),
        push('main'),
        push('c'),
        push('main1'),
        push('d', { labels: ['secret'] }),
      ];
      expect(outcomes.map((input) => (policy.call(input) as { outcome: string }).outcome)).toEqual([
        'allow',
        'allow',
        'deny',
        'allow',
        'deny',
        'ask',
      ]);
      // One full evaluation for each set of rules that match.
      expect(counts).toEqual({ [ENTRYPOINTS.read]: 3, [ENTRYPOINTS.fired]: 5 });
    });
  });

  it('that no rule reads is decided once for equal callers', async () => {
    await withPolicy((policy, counts) => {
      const first = policy.call(callOf({ args: { a: 1 } }));
      expect(policy.call(callOf({ args: { b: 2 } }))).toBe(first);
      expect(policy.call(callOf({ principal: { role: 'guest' } }))).not.toBe(first);
      expect(counts).toEqual({ [ENTRYPOINTS.read]: 2, [ENTRYPOINTS.fired]: 0 });
    });
  });

  it('is refused if the evaluation of its rules stops, and the next one is decided by a fresh instance', async () => {
    await withPolicy((policy) => {
      policy.call(push('a'));
      const trap = vi.spyOn(WasmInstance.prototype, 'evaluate').mockImplementationOnce(() => {
        throw new WebAssembly.RuntimeError('unreachable');
      });
      const loads = vi.spyOn(WasmInstance, 'load');
      expect(() => policy.call(push('b'))).toThrow(/stopped during the decision/);
      expect(policy.call(push('main'))).toMatchObject({ outcome: 'deny' });
      expect([trap.mock.calls.length > 1, loads.mock.calls.length]).toEqual([true, 1]);
    });
  });

  it('with arguments that are no object is refused, also when its decision could be found', async () => {
    await withPolicy((policy) => {
      policy.call(push('a'));
      for (const argsText of ['[]', '{}},"labels":[],"x":{"y":{}', ''])
        expect(() => policy.call({ ...push('a'), argsText })).toThrow(/arguments/);
    });
  });

  it('keeps a limited number of decisions', async () => {
    await withPolicy((policy, counts) => {
      const tool = (number: number): CallInput => callOf({ tool: `t${number}` });
      for (let number = 0; number < 5000; number += 1) policy.call(tool(number));
      policy.call(tool(4999));
      expect(counts[ENTRYPOINTS.read]).toBe(5000);
      policy.call(tool(0));
      expect(counts[ENTRYPOINTS.read]).toBe(5001);
    });
  });
});
