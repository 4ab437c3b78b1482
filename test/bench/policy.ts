/** Measures decisions of YAML rules: by number of rules, candidates and size of the arguments; and lists. */
import { CompiledPolicy, LibraryEvaluator } from '../../policies/engine/compiled-policy.ts';
import { weighRules } from '../../policies/engine/decision-cost.ts';
import { callInputText, listInputText } from '../../policies/engine/policy-input.ts';
import { ENTRYPOINTS, readLibrary } from '../../policies/engine/policy-library.ts';
import { WasmPolicy } from '../../policies/engine/wasm/wasm-policy.ts';
import type { CallInput, ListTool, Policy, Principal } from '../../policies/port.ts';
import { compileConfinement } from '../../policies/rules/confinement-rules.ts';
import { compileSettings } from '../../policies/rules/policy-settings.ts';
import { compileRules } from '../../policies/rules/rule-compiler.ts';
import { timeRuns } from './measure.ts';
import { measureRego, REGO_ROWS } from './rego.ts';
import type { Part } from './tables.ts';

/** A kind of decision: how often it is made, and what is prepared for it. */
type DecisionCase = readonly [what: string, rounds: number, prepare: () => () => unknown];

const PRINCIPAL: Principal = { id: 'bench', role: 'developer', groups: ['staff'], profiles: ['work'], origin: 'bench' };
const SERVERS = Array.from({ length: 50 }, (_, number) => `s${number}`);

/** The kinds of rules that people write, in turn. Candidates are found by tool, by server, and without both. */
const KINDS = [
  () => ({ verbs: ['read'], insideWorkspace: true }),
  (number: number) => ({ paths: [`src/${number}/**`, '**/*.pem'] }),
  () => ({ roles: ['developer'], args: { mode: { prefix: 'fast' } } }),
  () => ({ hosts: ['*.example.org'] }),
  () => ({ commands: ['git push', 'npm publish'] }),
] as const;

function makeWasm(rules: number, candidates: number): WasmPolicy {
  return policyOfRules(makeRules(rules, candidates)).wasm;
}

function makeRules(rules: number, candidates: number): readonly unknown[] {
  return Array.from({ length: rules }, (_, number) => {
    const when = KINDS[number % KINDS.length]?.(number) ?? {};
    const near = [{ ...when, tools: ['s0.t0'] }, { ...when, servers: ['s0'] }, when][number % 3];
    return {
      id: `r${number}`,
      outcome: number % 5 === 0 ? 'allow' : 'deny',
      when: number < candidates ? near : { ...when, tools: [`s${1 + (number % 49)}.t${number}`] },
    };
  });
}

function policyOfRules(all: readonly unknown[]): { readonly wasm: WasmPolicy; readonly policy: Policy } {
  const compiled = compileRules(
    [{ file: 'bench', mode: 'enforce', value: { rules: all }, placeOf: () => ({ line: 1, column: 1 }) }],
    '/work',
  );
  const { list, index } = compiled;
  const settings = compileSettings({
    servers: SERVERS.map((name) => ({ name })),
    profiles: [
      {
        name: 'work',
        servers: SERVERS,
        primitives: {},
        expose: SERVERS.map((name) => ({ tool: `${name}.*`, pins: {} })),
        budgets: [],
        caps: {},
      },
    ],
    budgets: [{ id: 'calls', scope: 'run', calls: 1000, when: {} }],
    caps: { bytes: 30_000, lines: 2000 },
    schemaProfile: 'portable',
  });
  const config = { version: 1, ...settings, rules: { list, index }, modes: {}, mode: 'enforce', places: {}, rego: {} };
  const parts = {
    wasm: readLibrary().wasm,
    data: JSON.stringify({ config }),
    entrypoints: [ENTRYPOINTS.call],
    limits: {},
  };
  const wasm = new WasmPolicy(parts.wasm, parts.data, parts);
  const evaluator = new LibraryEvaluator(wasm, parts, { weights: weighRules(compiled, settings), cached: true });
  const confining = compileConfinement([], { workspace: '/work', trusts: new Map(), foreign: false });
  return {
    wasm,
    policy: new CompiledPolicy(evaluator, { revision: '', rules: list.length, deadlineMs: 50, confining }),
  };
}

function makeCall(argBytes: number): CallInput {
  const paths = [{ argument: 'path', path: 'src/a.ts', inside: true }];
  const urls = [{ argument: 'url', url: 'https://a.example/', host: 'a.example' }];
  const argsText = JSON.stringify({
    path: 'src/a.ts',
    mode: 'slow',
    count: 3,
    url: 'https://a.example/',
    content: 'x'.repeat(argBytes),
  });
  return {
    principal: PRINCIPAL,
    run: 'run',
    effect: { verb: 'read', server: 's0', tool: 't0', paths, urls },
    argsText,
    labels: [],
    time: '2026-01-01T00:00:00Z',
  };
}

const decide = (wasm: WasmPolicy, call: CallInput) => () =>
  wasm.evaluate(ENTRYPOINTS.call, callInputText(call, { project: true }));
/** A call of a tool with one rule that reads the call: only this rule is evaluated. */
const findKept = (when: object): (() => unknown) => {
  const { policy } = policyOfRules([...makeRules(20, 0), { id: 'own', outcome: 'deny', when }]);
  const call = makeCall(100);
  const args = JSON.parse(call.argsText) as Record<string, unknown>;
  return () => policy.call(call, args);
};
const LISTED = Array.from(
  { length: 1000 },
  (_, number): ListTool => ({ server: `s${number % 50}`, tool: `t${number}`, verb: 'read' }),
);

const CASES: readonly DecisionCase[] = [
  ['a rule on a number', 20_000, () => findKept({ args: { count: { min: 9 } } })],
  ['a rule on a prefix', 20_000, () => findKept({ args: { mode: { prefix: 'fast' } } })],
  ['a rule on a list of texts', 20_000, () => findKept({ args: { mode: { pattern: 'fast|quick' } } })],
  ['a rule on a regular expression', 20_000, () => findKept({ args: { mode: { pattern: 'fa+st' } } })],
  ...[10, 100, 1000, 10_000].map(
    (rules): DecisionCase => [`${rules} rules, 8 candidates`, 3000, () => decide(makeWasm(rules, 8), makeCall(100))],
  ),
  ['1000 rules, 16 candidates', 3000, () => decide(makeWasm(1000, 16), makeCall(100))],
  ...[100, 1000].map(
    (candidates): DecisionCase => [
      `1000 rules, ${candidates} candidates`,
      300,
      () => decide(makeWasm(1000, candidates), makeCall(100)),
    ],
  ),
  ...[10, 60, 1000].map(
    (kib): DecisionCase => [
      `1000 rules, 16 candidates, ${kib} KiB of arguments`,
      300,
      () => decide(makeWasm(1000, 16), makeCall(kib * 1024)),
    ],
  ),
  [
    'list of 1000 tools, 1000 rules',
    40,
    () => {
      const wasm = makeWasm(1000, 16);
      return () => wasm.evaluate(ENTRYPOINTS.list, listInputText(PRINCIPAL, LISTED));
    },
  ],
];

/** The part of the benchmark about decisions. Times include making the input, but not reading the answer. */
export const POLICY_PART: Part = {
  name: 'policy',
  tables: [
    {
      title: 'Policy: one decision',
      head: ['decision', 'p50 µs', 'p99 µs', 'least CPU µs'],
      rows: [...CASES.map(([what]) => what), ...REGO_ROWS],
    },
  ],
  measure: async ({ say }) => {
    const cells: (readonly string[])[] = [];
    for (const [what, rounds, prepare] of CASES) {
      say(`policy: ${what}`);
      cells.push(await timeRuns(rounds, prepare()));
    }
    return { cells: [[...cells, ...(await measureRego(say))]] };
  },
};
