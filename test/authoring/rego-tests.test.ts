/**
 * Tests `tollgate policy test` with Rego: its tests, line coverage, and cases on which opa and the built WebAssembly
 * differ.
 * Covers: policies/authoring, facade/cli/policy-commands.
 */

import { type SpawnSyncReturns, spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, realpathSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { EXIT } from '../../facade/cli/command-io.ts';
import { packageRoot } from '../../policies/rego/opa-program.ts';
import { cli, dataOf } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { verifies } from '../verifies.ts';

const REGO = `package policy.hours

deny contains {"id": "office-hours", "message": "Writing is for office hours."} if {
	input.effect.verb != "read"
	[hour, _, _] := time.clock([time.now_ns(), "Europe/Berlin"])
	not office(hour)
}

office(hour) if hour in numbers.range(8, 17)

allow contains {"id": "reading", "message": "Reading is free."} if input.effect.verb == "read"

ask contains {"id": "labelled", "message": sprintf("Labels: %v.", [input.labels])} if {
	count(input.labels) > 0
}
`;

let project: Project;
beforeAll(() => {
  project = new Project();
  project.write('policies/rego/hours.rego', REGO);
  project.write('tollgate.yaml', 'policies: [policies/rego]\n');
});
afterAll(() => project.remove());

const NIGHT = 'time: "2026-01-05T23:00:00Z", call: {tool: write, args: {path: a, content: b}}';

/** Runs a suite of cases and a Rego test in a project with this Rego. */
async function run(
  rego: string,
  files: Readonly<Record<string, string>>,
  ...more: readonly string[]
): ReturnType<typeof cli> {
  project.write('policies/rego/hours.rego', rego);
  const names = Object.entries(files).map(([name, text]) =>
    path.relative(project.folder, project.write(`tests/${name}`, text)),
  );
  return cli(project, ['policy', 'test', ...names, ...more]);
}

const suite = (...cases: readonly string[]): string => `cases:\n${cases.map((one) => `  - {${one}}\n`).join('')}`;

describe('cases over Rego', () => {
  inFull('have the clock of the case, in both engines', async () => {
    const { code, out } = await run(REGO, {
      'a_suite.yaml': suite(
        `name: a, ${NIGHT}, expect: deny, reason: office-hours`,
        'name: b, call: {tool: read, args: {path: a}}, expect: allow',
        'name: c, call: {tool: write, args: {path: a, content: b}}, expect: deny, reason: default-deny',
        'name: d, labels: [x], call: {tool: read, args: {path: a}}, expect: ask, message: Labels',
      ),
    });
    expect([code, out]).toEqual([EXIT.ok, '4 passed, 0 failed. 100 % of Rego lines ran.\n']);
  });

  it('fail if opa and the built WebAssembly differ, with both answers' + verifies('DC-02'), async () => {
    // A formatted set: opa prints it as a set, and the host of WebAssembly gets a list.
    const differing = REGO.replace('[input.labels]', '[{label | some label in input.labels}]');
    const { code, out } = await run(differing, {
      'a_suite.yaml': suite(
        'name: a, labels: [x], call: {tool: read, args: {path: a}}, expect: ask',
        'name: b, call: {tool: read, args: {path: a}}, expect: allow',
      ),
    });
    expect([code, out]).toEqual([
      EXIT.unexpected,
      expect.stringMatching(
        /^FAIL tests\/a_suite\.yaml:2 {2}a: opa and the built wasm differ: opa says .*, wasm says .*\n1 passed, 1 failed/,
      ),
    ]);
  });

  inFull('that stop the policy fail without affecting others', async () => {
    const conflicting = `${REGO}
level := 1 if input.effect.verb

level := 2 if "x" in input.labels

deny contains "Level." if level > 5
`;
    const { code, out } = await run(conflicting, {
      'a_suite.yaml': suite(
        'name: a, labels: [x], call: {tool: read, args: {path: a}}, expect: deny',
        'name: b, call: {tool: read, args: {path: a}}, expect: allow',
      ),
    });
    expect([code, out]).toEqual([
      EXIT.unexpected,
      expect.stringMatching(
        /^FAIL tests\/a_suite\.yaml:2 {2}a: expected deny, but the policy could not decide: .*\n1 passed, 1 failed/,
      ),
    ]);
  });
});

describe('Rego tests', () => {
  const tests = (...bodies: readonly string[]): string =>
    `package policy.hours_test\n\nimport data.policy.hours\n\n${bodies.join('\n\n')}\n`;
  const pass = `test_night if {
	count(hours.deny) == 1 with input as {"effect": {"verb": "write"}} with time.now_ns as 1767225600000000000
}`;

  inFull('run with the library and all data', async () => {
    const whole = `test_decision if {
	decision := data.tollgate.call.decision with input as {"version": 2, "phase": "call", "labels": [], "time": "", "run": "r", "principal": {"id": "a", "role": "r", "groups": [], "profiles": ["default"], "origin": ""}, "effect": {"kind": "tool", "verb": "read", "server": "workspace", "tool": "read", "paths": [], "urls": [], "arguments": {}}}
	decision.outcome == "allow"
}`;
    expect(await run(REGO, { 'a_test.rego': tests(pass, whole, 'todo_later if false') })).toMatchObject({
      code: EXIT.ok,
      out: expect.stringMatching(/^2 passed, 0 failed\. [\d.]+ % of Rego lines ran\.\n/),
    });
  });

  inFull('that fail are reported with the failed expression and its values', async () => {
    const fail = 'test_day if {\n\tx := 3\n\tx > 5\n}';
    const { code, out } = await run(REGO, { 'a_test.rego': tests(pass, fail) });
    expect([code, out]).toEqual([
      EXIT.unexpected,
      expect.stringMatching(
        /^FAIL tests\/a_test\.rego:9 {2}policy\.hours_test\.test_day\n {4}tests\/a_test\.rego:11\n {4}x > 5\n[^]*1 passed, 1 failed/,
      ),
    ]);
  });

  inFull('list the lines that no test ran, by the numbers of the user', async () => {
    const { code, out } = await run(REGO, { 'a_test.rego': tests(pass) }, '--threshold', '100');
    expect([code, out]).toEqual([
      EXIT.unexpected,
      expect.stringMatching(
        /FAIL lines of Rego: [\d.]+ % covered, 100 % required\. Not covered: .*policies\/rego\/hours\.rego:11/,
      ),
    ]);
  });

  inFull('are checked against the schema of the input', async () => {
    expect(
      await run(REGO, { 'a_test.rego': 'package policy.hours_test\n\ntest_x if input.efect == 1\n' }),
    ).toMatchObject({
      code: EXIT.usage,
      err: expect.stringContaining('tests/a_test.rego:3:11: undefined ref: input.efect'),
    });
  });

  it('that do not parse are refused with their place', async () => {
    expect(await run(REGO, { 'a_test.rego': tests('test_x if {') })).toMatchObject({
      code: EXIT.usage,
      err: expect.stringMatching(/tests\/a_test\.rego:\d+:\d+: /),
    });
  });
});

describe('without opa', () => {
  /** A package in another folder, without opa in it or on PATH. */
  function bare(...runs: readonly (readonly string[])[]): readonly SpawnSyncReturns<string>[] {
    const root = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-bare-')));
    try {
      cpSync(path.join(packageRoot(), 'dist'), path.join(root, 'dist'), { recursive: true });
      cpSync(path.join(packageRoot(), 'package.json'), path.join(root, 'package.json'));
      symlinkSync(path.join(packageRoot(), 'node_modules'), path.join(root, 'node_modules'));
      return runs.map((words) =>
        spawnSync(process.execPath, [path.join(root, 'dist', 'facade', 'main.js'), ...words], {
          cwd: project.folder,
          env: { PATH: '/nowhere', HOME: project.home },
          encoding: 'utf8',
          timeout: 60_000,
        }),
      );
    } finally {
      rmSync(root, { recursive: true, force: true });
    }
  }

  function writeRules(): void {
    project.write('policies/rules.yaml', 'rules:\n  - id: look\n    outcome: allow\n    when: {verbs: [read]}\n');
    project.write('yaml.yaml', 'policies: [policies/rules.yaml]\n');
    project.write('tests/a_suite.yaml', suite('name: a, call: {tool: read, args: {path: a}}, expect: allow'));
  }

  inFull(
    'cases of YAML rules run in the built WebAssembly, and the result says that opa did not run',
    () => {
      writeRules();
      const words = ['policy', 'test', 'tests/a_suite.yaml', '--config', 'yaml.yaml'];
      const [told, data] = bare(words, [...words, '--json']);
      expect({ status: told?.status, stderr: told?.stderr, stdout: told?.stdout }).toEqual({
        status: EXIT.ok,
        stderr: '',
        stdout: expect.stringMatching(
          /^1 passed, 0 failed\. .*\nThe cases ran in WebAssembly only\. opa is not installed\. To install it: brew install opa; or /,
        ),
      });
      expect(dataOf<{ notCompared: string }>(data?.stdout ?? '').notCompared).toContain('opa is not installed');
    },
    60_000,
  );

  it('a named opa that does not work is refused', async () => {
    writeRules();
    expect(
      await cli(project, ['policy', 'test', 'tests/a_suite.yaml', '--config', 'yaml.yaml', '--opa', '/nowhere/opa']),
    ).toMatchObject({ code: EXIT.usage, err: expect.stringContaining('OPA_MISSING') });
  });
});
