import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { callInputText, listInputText } from '../../policies/engine/policy-input.ts';
import { ENTRYPOINTS, readLibrary } from '../../policies/engine/policy-library.ts';
import { WasmPolicy } from '../../policies/engine/wasm/wasm-policy.ts';
import { EFFECT_KINDS } from '../../policies/port.ts';
import { findOpa, packageRoot, runOpa } from '../../policies/rego/opa-program.ts';
import { compileSettings } from '../../policies/rules/policy-settings.ts';
import { compileRules } from '../../policies/rules/rule-compiler.ts';
import {
  type CallOf,
  callOf,
  documentOf,
  PRINCIPAL,
  scratch,
  settings,
  toolOf,
  WORKSPACE,
} from '../engine/policy-fixture.ts';
import { partOf, RUNS_ALL } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import { FIELDS } from './rule-field-cases.ts';

const OUTCOMES = ['deny', 'ask', 'allow'] as const;

/** A policy of one rule. `config`: its data. */
interface OneRule {
  readonly name: string;
  readonly config: object;
}

interface Case {
  readonly name: string;
  readonly call: CallOf;
  readonly reason: string;
  readonly rule: OneRule;
  readonly input: string;
}

function configOf(rule: unknown): { config: object; zones: readonly string[] } {
  const { list, index, problems, zones } = compileRules([documentOf([rule])], WORKSPACE);
  if (problems.length > 0) throw new Error(JSON.stringify(problems));
  return {
    zones,
    config: {
      version: 1,
      ...compileSettings(settings()),
      rules: { list, index },
      modes: {},
      mode: 'enforce',
      places: {},
      rego: {},
    },
  };
}

/** Each field with each outcome and each call. The reason shows whether the rule matched. */
const CASES: readonly Case[] = FIELDS.flatMap(
  ({ name, when, fires = [], rests = [], strict = [], outcomes = OUTCOMES }) =>
    OUTCOMES.filter((outcome) => outcomes.includes(outcome)).flatMap((outcome) => {
      const { config, zones } = configOf({ id: 'it', outcome, when });
      const rule = { name: `${name}, ${outcome}`, config };
      const one = (call: CallOf, fired: boolean): Case => ({
        name: rule.name,
        call,
        reason: fired ? `${outcome} it` : 'deny default-deny',
        rule,
        input: callInputText(callOf(call), { project: true, zones }),
      });
      return [
        ...fires.map((call) => one(call, true)),
        ...rests.map((call) => one(call, false)),
        ...strict.map((call) => one(call, outcome !== 'allow')),
      ];
    }),
);

/** The rules of the cases, each once. A list depends on the rule alone. */
const RULES: readonly OneRule[] = [...new Set(CASES.map(({ rule }) => rule))];

/** The rules that opa evaluates too: all, or one of each field, with each outcome in turn. */
const COMPARED: readonly OneRule[] = RUNS_ALL
  ? RULES
  : FIELDS.flatMap(({ name }, at) => {
      const own = RULES.filter((rule) => rule.name.startsWith(`${name}, `));
      return own.slice(at % own.length, (at % own.length) + 1);
    });
const COMPARED_CASES = CASES.filter(({ rule }) => COMPARED.includes(rule));
/** The rules whose lists opa evaluates too. */
const LISTED = partOf(COMPARED, 20);

interface Answer {
  readonly outcome: string;
  readonly reasons: readonly { readonly id: string }[];
}

const saidBy = (answer: Answer): string => `${answer.outcome} ${answer.reasons.map(({ id }) => id).join(',')}`;

const LIST = listInputText(
  PRINCIPAL,
  (['git', 'mail', 'elsewhere'] as const).flatMap((server) => [
    toolOf({ server }),
    toolOf({ server, tool: 'push', verb: 'write' }),
    toolOf({ server, tool: 'get_a', verb: 'execute', verbs: ['execute', 'read'] }),
    ...EFFECT_KINDS.map((kind) => toolOf({ kind, server, tool: 'resources/read' })),
  ]),
);

const { wasm: LIBRARY } = readLibrary();
/** What the shipped WebAssembly decides with one rule: each of its cases, and the list. */
interface Decided {
  readonly calls: ReadonlyMap<Case, Answer>;
  readonly list: unknown;
}
/** Computed once for all tests. */
const said = new Map<OneRule, Decided>();

function inWasm(rule: OneRule): Decided {
  const before = said.get(rule);
  if (before !== undefined) return before;
  const entrypoints = [ENTRYPOINTS.call, ENTRYPOINTS.list];
  const wasm = new WasmPolicy(LIBRARY, JSON.stringify({ config: rule.config }), { entrypoints });
  const mine = CASES.filter((one) => one.rule === rule);
  const decided = {
    calls: new Map(mine.map((one) => [one, wasm.evaluate(ENTRYPOINTS.call, one.input) as unknown as Answer])),
    list: wasm.evaluate(ENTRYPOINTS.list, LIST),
  };
  said.set(rule, decided);
  return decided;
}

const callInWasm = (one: Case): Answer => inWasm(one.rule).calls.get(one) as Answer;

describe('every field of a rule', () => {
  it.each(
    partOf(
      FIELDS.map(({ name }) => name),
      27,
    ),
  )('%s', (name) => {
    const mine = CASES.filter((one) => one.name.startsWith(`${name}, `));
    expect(mine.map((one) => [one.name, one.call, saidBy(callInWasm(one))])).toEqual(
      mine.map((one) => [one.name, one.call, one.reason]),
    );
  });

  it('covers all fields that the schema knows', () => {
    const known = [
      'tools',
      'servers',
      'exceptTools',
      'verbs',
      'trust',
      'roles',
      'groups',
      'principals',
      'origins',
      'profiles',
      'owner',
      'labels',
      'paths',
      'except',
      'insideWorkspace',
      'commands',
      'opaque',
      'readable',
      'exceptCommands',
      'hosts',
      'schemes',
      'urls',
      'time',
      'args',
      'kind',
      'uri',
      'asks',
    ];
    expect(new Set(FIELDS.flatMap(({ when }) => Object.keys(when)))).toEqual(new Set(known));
  });
});

describe('parity', () => {
  let answers: readonly Answer[] = [];
  let lists: readonly unknown[] = [];

  // One run of opa for all cases. One process per case would take minutes.
  beforeAll(async () => {
    const opa = await findOpa();
    const folder = scratch();
    const cases = COMPARED_CASES.map(({ rule, input }) => `{"rule":${COMPARED.indexOf(rule)},"input":${input}}`);
    writeFileSync(
      path.join(folder, 'data.json'),
      `{"list":${LIST},"listed":${JSON.stringify(LISTED.map(({ config }) => config))},"rules":${JSON.stringify(COMPARED.map(({ config }) => config))},"cases":[${cases.join(',')}]}`,
    );
    writeFileSync(
      path.join(folder, 'parity.rego'),
      `package parity

answers := [answer | some case in data.cases; answer := data.tollgate.call.decision with input as case.input with data.config as data.rules[case.rule]]

lists := [answer | some config in data.listed; answer := data.tollgate.list.decisions with input as data.list with data.config as config]
`,
    );
    const run = await runOpa(
      opa,
      [
        'eval',
        ...opa.flags,
        '-d',
        path.join(packageRoot(), 'policies', 'lib'),
        '-d',
        folder,
        '--format',
        'raw',
        '{"calls": data.parity.answers, "lists": data.parity.lists}',
      ],
      folder,
    );
    if (run.code !== 0) throw new Error(run.stderr);
    ({ calls: answers, lists } = JSON.parse(run.stdout) as { calls: readonly Answer[]; lists: readonly unknown[] });
  }, 300_000);

  it(
    'opa and the shipped WebAssembly decide every case equally, with equal obligations and reasons' + verifies('DC-02'),
    () => {
      expect(answers).toHaveLength(COMPARED_CASES.length);
      for (const [number, one] of COMPARED_CASES.entries())
        expect([one.name, one.call, callInWasm(one)]).toEqual([one.name, one.call, answers[number]]);
    },
  );

  it('opa and the shipped WebAssembly decide every list equally', () => {
    expect(lists).toHaveLength(LISTED.length);
    for (const [number, rule] of LISTED.entries())
      expect([rule.name, inWasm(rule).list]).toEqual([rule.name, lists[number]]);
  });
});
