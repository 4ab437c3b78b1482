/**
 * Proves that every setting of the rules schema is used: without it other data is compiled, and the library reads that
 * data.
 */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { compileRules } from '../../policies/rules/rule-compiler.ts';
import { documentOf, WORKSPACE } from '../engine/policy-fixture.ts';
import { verifies } from '../verifies.ts';

const root = path.join(import.meta.dirname, '..', '..', 'policies');

interface Node {
  readonly $ref?: string;
  readonly properties?: Readonly<Record<string, Node>>;
  readonly items?: Node;
  readonly additionalProperties?: Node | boolean;
}

const schema = JSON.parse(readFileSync(path.join(root, 'schemas', 'rules.json'), 'utf8')) as {
  readonly definitions: Readonly<Record<string, Node>>;
};

/** Every key that a rule may have, by its path. `*` is any name or index. */
function keysOf(node: Node, at: readonly string[] = []): readonly (readonly string[])[] {
  if (node.$ref !== undefined) return keysOf(schema.definitions[node.$ref.split('/').at(-1) ?? ''] ?? {}, at);
  const inner = typeof node.additionalProperties === 'object' ? keysOf(node.additionalProperties, [...at, '*']) : [];
  const items = node.items === undefined ? [] : keysOf(node.items, [...at, '*']);
  return [
    ...Object.entries(node.properties ?? {}).flatMap(([key, child]) => [[...at, key], ...keysOf(child, [...at, key])]),
    ...inner,
    ...items,
  ];
}

const NAMES = {
  tools: ['git.push'],
  servers: ['git'],
  trust: ['external'],
  verbs: ['write'],
  roles: ['r'],
  groups: ['g'],
  principals: ['p'],
  origins: ['o'],
  profiles: ['q'],
  owner: true,
  labels: ['secret'],
};
const CALL = {
  paths: ['a/**'],
  insideWorkspace: true,
  commands: ['git push'],
  hosts: ['a.example'],
  schemes: ['https'],
  time: { days: ['mon'], from: '09:00', to: '17:00', zone: 'Europe/Berlin' },
};
const ARGS = {
  a: { equals: 'x', present: true },
  b: { in: ['x1', 'x2'], prefix: 'x', pattern: '^x[12]$' },
  c: { min: 1, max: 2 },
};
const BUDGET = { id: 'b', scope: 'run', window: 60, calls: 1, argBytes: 2, outputBytes: 3, wallMs: 4, concurrent: 5 };
const OBLIGATIONS = {
  caps: { bytes: 1024, lines: 2 },
  timeoutMs: 3,
  labels: ['secret'],
  pins: { a: 1 },
  budgets: [BUDGET],
};
/** Rules that together use every key. */
const RULES: readonly Readonly<Record<string, unknown>>[] = [
  {
    id: 'one',
    outcome: 'ask',
    message: 'One.',
    mode: 'warn',
    approval: 'group',
    when: { ...NAMES, ...CALL, args: ARGS },
    obligations: OBLIGATIONS,
  },
  { id: 'outside', outcome: 'ask', when: { insideWorkspace: false } },
  { id: 'two', outcome: 'ask', when: { opaque: true } },
  { id: 'words', outcome: 'ask', when: { readable: false } },
  { id: 'elsewhere', outcome: 'ask', when: { exceptTools: ['mail.*'] } },
  { id: 'others', outcome: 'ask', when: { exceptCommands: ['ls'] } },
  { id: 'left-out', outcome: 'ask', when: { paths: ['docs/**'], except: ['docs/open/**'] } },
  { id: 'three', outcome: 'ask', when: { urls: ['https://a.example/x'] } },
  { id: 'four', outcome: 'ask', when: { kind: 'resource', uri: ['docs://a/**'] } },
  {
    id: 'five',
    outcome: 'ask',
    when: {
      kind: ['elicitation', 'sampling'],
      asks: { mode: 'url', fields: ['*token*'], maxTokens: { min: 10, max: 20 } },
    },
  },
];

const compiled = (rules: readonly unknown[]): string => {
  const { list, index, problems, zones } = compileRules([documentOf(rules)], WORKSPACE);
  return JSON.stringify({ list, index, zones, problems: problems.length });
};

/** Returns the rules without the values at this path. */
function without(value: unknown, [first, ...rest]: readonly string[]): unknown {
  if (typeof value !== 'object' || value === null || first === undefined) return value;
  const entries = Object.entries(value).flatMap(([key, inner]) =>
    key !== first && first !== '*'
      ? [[key, inner] as const]
      : rest.length === 0
        ? []
        : [[key, without(inner, rest)] as const],
  );
  return Array.isArray(value) ? entries.map(([, inner]) => inner) : Object.fromEntries(entries);
}

describe('every setting of the rules schema' + verifies('TR-79'), () => {
  const keys = keysOf(schema.definitions.rule ?? {});

  it('is used in a rule of this test, which compiles', () => {
    expect(keys.length).toBeGreaterThan(50);
    expect(compileRules([documentOf(RULES)], WORKSPACE).problems).toEqual([]);
  });

  it.each(keys.map((key) => [key.join('.'), key] as const))(
    '%s changes what is compiled, or refuses the rule',
    (_name, key) => {
      expect(JSON.stringify(without(RULES, ['*', ...key])), 'no rule here uses it').not.toBe(JSON.stringify(RULES));
      expect(compiled(without(RULES, ['*', ...key]) as readonly unknown[])).not.toBe(compiled(RULES));
    },
  );

  it('becomes data that the library or a list reads', () => {
    const texts = readdirSync(path.join(root, 'lib'))
      .filter((name) => name.endsWith('.rego') && !name.endsWith('_test.rego'))
      .map((name) => readFileSync(path.join(root, 'lib', name), 'utf8'))
      .join('\n');
    const reasons = readFileSync(path.join(root, 'engine', 'decision-reader.ts'), 'utf8');
    // Names that users choose, and values that are passed to the facade unchanged.
    const free = new Set([
      'any',
      'except',
      'servers',
      'exceptTools',
      'exact',
      'equal',
      'labels',
      'pins',
      'bounds',
      'first',
      'budgets',
      'verbs',
      'schemes',
      'trust',
      'kinds',
    ]);
    const unread = new Set<string>();
    const visit = (value: unknown): void => {
      if (typeof value !== 'object' || value === null) return;
      for (const [key, inner] of Object.entries(value)) {
        if (
          !Array.isArray(value) &&
          !new RegExp(`[.\\["]${key}\\b`).test(texts) &&
          !new RegExp(`\\b${key}\\b`).test(reasons)
        )
          unread.add(key);
        if (!free.has(key)) visit(inner);
      }
    };
    visit(compileRules([documentOf(RULES)], WORKSPACE).list);
    expect([...unread]).toEqual([]);
  });
});
