/** Tests sizes, durations and rates as texts, and the hints for what people write instead, with real files. */
import { describe, expect, it } from 'vitest';
import { readQuantities } from '../../catalogs/readers/quantities.ts';
import { readYaml } from '../../facade/config/reading/yaml-document.ts';
import { checkSources } from '../../policies/authoring/policy-check.ts';
import { compileRules } from '../../policies/rules/rule-compiler.ts';
import { findObligationFaults } from '../../policies/rules/rule-schema.ts';
import { documentOf, parts, policyOf, problemsOf, scratch } from '../engine/policy-fixture.ts';
import { verifies } from '../verifies.ts';
import { withProject } from './project.ts';

const problemsIn = (text: string): readonly string[] =>
  withProject((project) =>
    project.load(text).problems.map(({ file, line, column, message }) => `${file}:${line}:${column}: ${message}`),
  );

describe('a text in place of a number', () => {
  it(`is the number with the unit of the setting${verifies('FH-45')}`, () => {
    const { config, problems } = withProject((project) =>
      project.load(
        `version: 1
caps: {bytes: 2kB, media: 1MiB, timeoutMs: 1.5s}
approvals: {waitMs: 0, expireMs: 5m}
listen: {maxBodyBytes: 500000}
budgets:
  - {id: a, scope: run, calls: 10/min}
  - {id: b, scope: run, window: 2h, outputBytes: 1.5GB, calls: 7}
`,
      ),
    );
    expect(problems).toEqual([]);
    expect(config).toMatchObject({
      caps: { bytes: 2000, media: 1_048_576, timeoutMs: 1500 },
      approvals: { waitMs: 0, expireMs: 300_000 },
      listen: { maxBodyBytes: 500_000 },
      budgets: [
        { id: 'a', calls: 10, window: 60 },
        { id: 'b', calls: 7, window: 7200, outputBytes: 1_500_000_000 },
      ],
    });
  });

  it('is a number in obligations of rules, and stays a text elsewhere', () => {
    const rule = {
      id: 'it',
      outcome: 'allow',
      when: { tools: ['git.status'], args: { window: { equals: '2kB' }, calls: { equals: '10/min' } } },
      obligations: {
        caps: { bytes: '2kB' },
        timeoutMs: '30s',
        pins: { bytes: '2kB', calls: '10/min' },
        budgets: [{ id: 'b', scope: 'run', calls: '100/h' }],
      },
    };
    const { list, problems } = compileRules([documentOf([rule])], '/w');
    expect(problems).toEqual([]);
    expect(list[0]?.obligations).toEqual({
      caps: { bytes: 2000 },
      timeoutMs: 30_000,
      pins: { bytes: '2kB', calls: '10/min' },
      budgets: [{ id: 'b', scope: 'run', calls: 100, window: 3600 }],
    });
    expect(JSON.stringify(list[0]?.call)).toContain('"equals":"10/min"');
    expect(findObligationFaults({ caps: { bytes: '2kB' } })).not.toEqual([]);
    expect(findObligationFaults({ caps: { bytes: 2000 } })).toEqual([]);
  });

  it.each([
    ['caps: {bytes: 30s}', '2:15: caps.bytes is "30s": it must be a number, or for example 2kB, 1MB or 1MiB'],
    ['caps: {timeoutMs: 1MB}', '2:19: caps.timeoutMs is "1MB": it must be a number, or for example 500ms, 30s or 5m'],
    ['caps: {timeoutMs: soon}', '2:19: caps.timeoutMs is "soon": it must be a number, or for example 500ms, 30s or 5m'],
    ['caps: {concurrent: 2s}', '2:20: caps.concurrent is "2s": a whole number is needed'],
    [
      'budgets: [{id: a, scope: run, calls: 10/week}]',
      '2:38: budgets[0].calls is "10/week": it must be a number, or for',
    ],
    [
      'budgets: [{id: a, scope: run, window: 60, calls: 10/h}]',
      '2:50: the rate "10/h" sets the window; remove `window`, or write a number of calls',
    ],
    ['caps: {bytes: 1B}', '2:15: caps.bytes is "1B": it must be >= 1024'],
  ])('with another unit is refused: %s', (line, message) => {
    expect(problemsIn(`version: 1\n${line}\n`)).toEqual([expect.stringContaining(`tollgate.yaml:${message}`)]);
  });

  it('costs no reading of the schema if there is none', () => {
    const value = { bash: { isolation: 'sandbox' }, caps: { bytes: 5 } };
    expect(readQuantities(value, () => expect.fail('the schema was read'))).toBe(value);
  });
});

describe('a frequent mistake', () => {
  const faultsOf = (rule: object): Promise<readonly string[]> =>
    problemsOf(policyOf([{ id: 'it', outcome: 'allow', when: { tools: ['git.status'] }, ...rule }]));

  it(`gets the text to write${verifies('FH-46')}`, async () => {
    const budget =
      'A rate is a budget: write obligations: {budgets: [{id: my-rate, scope: principal, calls: 10, window: 60}]}.';
    expect(await faultsOf({ rate: 10 })).toEqual([expect.stringContaining(budget)]);
    expect(await faultsOf({ when: { rate: '10/min' } })).toEqual([expect.stringContaining(budget)]);
    expect(await faultsOf({ obligations: { rate: '10/min' } })).toEqual([expect.stringContaining(budget)]);
    expect(await faultsOf({ obligations: { budgets: [{ id: 'a', scope: 'run', rate: '100/h' }] } })).toEqual(
      expect.arrayContaining([expect.stringContaining('A rate is two keys: write calls: 100, window: 3600.')]),
    );
    expect(problemsIn('version: 1\nbudgets: [{id: a, scope: run, rate: 5}]\n')[0]).toBe(
      'tollgate.yaml:2:31: unknown key "rate" in budgets[0]: a rate is two keys; write calls: 5, window: 60',
    );
    const args = (value: unknown) => ({ when: { tools: ['git.status'], args: { branch: value } } });
    expect(await faultsOf(args('main'))).toEqual([expect.stringContaining('write {equals: "main"}.')]);
    expect(await faultsOf(args(['main', 'dev']))).toEqual([expect.stringContaining('write {in: ["main","dev"]}.')]);
  });

  it('that is valid gets a warning with its place', async () => {
    const folder = scratch({
      'r.yaml': 'rules:\n  - id: it\n    outcome: deny\n    when: {paths: ["*.pem", "**/*.key", "a/*.x"]}\n',
    });
    const { findings } = await checkSources(
      parts({ folder, sources: [{ path: `${folder}/r.yaml`, kind: 'yaml', mode: 'enforce' }], readYaml }),
    );
    expect(findings).toEqual([
      {
        file: 'r.yaml',
        line: 4,
        column: 20,
        severity: 'warning',
        message: '"*.pem" matches only at the top of the workspace; write "**/*.pem" for every folder',
      },
    ]);
  });
});
