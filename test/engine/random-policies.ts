/** Random YAML rules and calls, over every kind of condition, and their decisions. */
import fc from 'fast-check';
import { callInputText } from '../../policies/engine/policy-input.ts';
import { ENTRYPOINTS, readLibrary } from '../../policies/engine/policy-library.ts';
import { WasmPolicy } from '../../policies/engine/wasm/wasm-policy.ts';
import { type CallInput, EFFECT_KINDS } from '../../policies/port.ts';
import { compileSettings, type PolicySettings } from '../../policies/rules/policy-settings.ts';
import { compileRules, type YamlRuleDocument } from '../../policies/rules/rule-compiler.ts';
import { findRuleFaults } from '../../policies/rules/rule-faults.ts';
import { documentOf, profile, settings, WORKSPACE } from './policy-fixture.ts';

export const OUTCOMES = ['deny', 'ask', 'allow'] as const;
export const VERBS = ['read', 'write', 'execute'] as const;
export const SERVERS = ['git', 'mail'] as const;
export const TOOLS = ['get', 'put', 'x.y'] as const;

/** Small vocabularies, so that generated rules and calls often match. */
const some = <T>(values: readonly T[]) => fc.uniqueArray(fc.constantFrom(...values), { minLength: 1, maxLength: 2 });
const fields = {
  tools: some(['git.get', 'git.put', 'mail.x.y', 'git.*', '*.get', 'mail.p*', '*.*t', 'git.x.*']),
  servers: some(SERVERS),
  exceptTools: some(['git.get', 'mail.*', '*.put', 'git.x.*']),
  verbs: some(VERBS),
  roles: some(['developer', 'guest']),
  groups: some(['staff', 'ops']),
  profiles: some(['work', 'play']),
  labels: some(['secret', 'public']),
  paths: some(['src/**', '**/*.pem', 'a', '/etc/**']),
  except: some(['src/a*', '**/k.pem', 'a/**']),
  insideWorkspace: fc.boolean(),
  commands: some(['ls', 'git push']),
  opaque: fc.boolean(),
  hosts: some(['a.b', '*.b']),
  urls: some(['https://a.b/x/**', 'http://*']),
  time: fc.constantFrom({ days: ['fri'], zone: 'UTC' }, { from: '22:00', to: '06:00', zone: 'Europe/Berlin' }),
  trust: some(['internal', 'external']),
  owner: fc.boolean(),
  principals: some(['mia', 'bob']),
  origins: some(['editor', 'ci']),
  exceptCommands: some(['ls', 'git']),
  readable: fc.boolean(),
  schemes: some(['https', 'ftp']),
  kind: fc.constantFrom('tool', 'resource', ['tool', 'resource'], ['sampling', 'elicitation'], [...EFFECT_KINDS]),
  uri: some(['docs://a/**', 'docs://*/x', 'mem:b']),
  asks: fc.constantFrom(
    { mode: 'form' },
    { fields: ['name', 'pass*'] },
    { maxTokens: { max: 100 } },
    { mode: 'form', fields: ['*'] },
  ),
  args: fc.constantFrom(
    { n: { min: 2 } },
    { n: { max: 2, min: 0 } },
    { n: { equals: 1 } },
    { n: { in: [3, 'x', null] } },
    { s: { prefix: 'a' } },
    { s: { present: true } },
    { n: { present: false } },
    { s: { pattern: '^ab$' } },
    { s: { pattern: '^(a|b)$' }, n: { present: true } },
    { s: { pattern: '^a.*$' } },
    { 'o.p': { equals: 'q' } },
    { 'o.p': { present: false } },
  ),
};
/** A few fields at a time, because a rule with all of them never matches. */
const whens = fc
  .subarray(Object.keys(fields) as (keyof typeof fields)[], { maxLength: 3 })
  // Exceptions of no paths are refused.
  .filter((names) => !names.includes('except') || names.includes('paths') || names.includes('insideWorkspace'))
  .chain((names) => fc.record(Object.fromEntries(names.map((name) => [name, fields[name] as fc.Arbitrary<unknown>]))));
export const SETTINGS = settings({
  profiles: [
    profile({
      expose: [
        { tool: 'git.*', pins: {} },
        { tool: 'mail.*', pins: {} },
      ],
    }),
    profile({ name: 'play', servers: ['mail'], primitives: {} }),
    profile({ name: 'careful', servers: ['git'], primitives: {}, plan: true }),
  ],
});
const LIBRARY = readLibrary().wasm;
const obliged = fc.option(
  fc.constantFrom(
    { caps: { bytes: 2048, lines: 9 }, labels: ['secret'] },
    { caps: { bytes: 4096 }, timeoutMs: 500 },
    { pins: { n: 3 } },
    { pins: { n: 1, s: 'ab' } },
    { budgets: [{ id: 'own', scope: 'run', calls: 5 }] },
    { budgets: [{ id: 'own', scope: 'run', calls: 6 }], timeoutMs: 9 },
  ),
  { nil: undefined },
);

/** Rules of every outcome and mode, with conditions of every kind. */
export const rules = rulesWith(fc.constant(undefined));
/** The same with obligations, which may contradict each other. */
export const obligedRules = rulesWith(obliged);

function rulesWith(obligations: fc.Arbitrary<object | undefined>): fc.Arbitrary<readonly unknown[]> {
  const rule = fc.record({
    outcome: fc.constantFrom(...OUTCOMES),
    mode: fc.constantFrom('enforce', 'enforce', 'enforce', 'warn', 'shadow', 'off'),
    when: whens,
    obligations,
  });
  return fc
    .array(rule, { maxLength: 8 })
    .map((all) =>
      all.map(({ obligations: own, ...one }, number) => ({
        id: `r${number}`,
        ...one,
        ...(own === undefined || one.outcome === 'deny' ? {} : { obligations: own }),
      })),
    )
    .filter(
      (all) => findRuleFaults(compileRules([documentOf(all)], WORKSPACE), { settings: SETTINGS }, LIBRARY).length === 0,
    );
}

/** What distinguishes callers. */
export const principals = fc.record({
  role: fc.constantFrom('developer', 'guest'),
  groups: fc.subarray(['staff', 'ops']),
  profiles: fc.constantFrom(['work'], ['work', 'play'], ['play'], ['play', 'careful'], ['work', 'careful'], []),
  owner: fc.boolean(),
});
/** What calls of one tool carry. */
export const facts = fc.record({
  inside: fc.subarray(['src/a', 'a', 'k.pem']),
  outside: fc.subarray(['/etc/x', '../odd']),
  hosts: fc.subarray(['a.b', 'c.b', '']),
  urls: fc.subarray(['https://a.b/x/y', 'http://c.b/', 'https://a.b//x']),
  time: fc.constantFrom('2026-11-20T10:00:00Z', '2026-11-21T23:00:00Z'),
  plan: fc.constantFrom('none' as const, 'pending' as const, 'approved' as const),
  commands: fc.constantFrom(undefined, 'opaque' as const, [['ls']], [['git', 'push'], ['ls']]),
  args: fc.constantFrom(
    {},
    { n: 1 },
    { n: '3' },
    { n: 3, s: 'ab' },
    { s: ['a'] },
    { n: null, o: { p: 'q' } },
    { o: [{ p: 'q' }] },
  ),
  labels: fc.subarray(['secret', 'public']),
});
const named = {
  server: fc.constantFrom(...SERVERS),
  tool: fc.constantFrom(...TOOLS),
  verb: fc.constantFrom(...VERBS),
};
/** Calls of tools. */
export const tools = fc.record(named);
/** Requests of other kinds. */
export const requests = fc.oneof(
  fc.record({ ...named, kind: fc.constantFrom('prompt' as const, 'completion' as const, 'roots' as const) }),
  fc.record({
    ...named,
    kind: fc.constant('resource' as const),
    uri: fc.constantFrom('docs://a/x', 'DOCS://b/x', 'docs://a/../x', 'mem:b'),
  }),
  fc.record({
    ...named,
    kind: fc.constant('elicitation' as const),
    asks: fc.constantFrom({}, { mode: 'url' as const }, { mode: 'form' as const, fields: ['name', 'password'] }),
  }),
  fc.record({
    ...named,
    kind: fc.constant('sampling' as const),
    asks: fc.constantFrom({}, { maxTokens: 99 }, { maxTokens: 101 }),
  }),
);
/** Effects of any kind, most of them calls of tools. */
export const targets = fc.oneof({ arbitrary: tools, weight: 2 }, requests);

interface Deciding {
  readonly naive?: boolean;
  readonly settings?: PolicySettings;
  readonly over?: Partial<YamlRuleDocument>;
}

/** Returns a function that evaluates each decision in full. With `naive`, every rule is a candidate for every call. */
export function decideInFull(
  all: readonly unknown[],
  { naive = false, settings: own = SETTINGS, over = {} }: Deciding = {},
): (input: CallInput) => Record<string, unknown> {
  const { list, index, zones } = compileRules([documentOf(all, over)], WORKSPACE);
  const scanned = { tool: {}, server: {}, verb: {}, any: list.map((_, number) => number) };
  const config = {
    version: 1,
    ...compileSettings(own),
    rules: { list, index: naive ? { tools: scanned, others: scanned } : index },
    modes: {},
    mode: 'enforce',
    places: {},
    rego: {},
  };
  const wasm = new WasmPolicy(LIBRARY, JSON.stringify({ config }), { entrypoints: [ENTRYPOINTS.call] });
  return (input) => wasm.evaluate(ENTRYPOINTS.call, callInputText(input, { project: true, zones }));
}
