/** Measures decisions of user Rego by number of rules, and the time until a changed policy is ready. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { readYaml } from '../../facade/config/reading/yaml-document.ts';
import type { PolicyParts } from '../../policies/engine/compiled-parts.ts';
import { loadPolicy } from '../../policies/engine/policy-loader.ts';
import type { CallInput, Policy } from '../../policies/port.ts';
import { installServers } from '../servers/install.ts';
import { timeRuns } from './measure.ts';

const PRINCIPAL = { id: 'bench', role: 'developer', groups: ['staff'], profiles: ['work'], origin: 'bench' };
const SETTINGS = {
  servers: [{ name: 's0' }],
  budgets: [],
  caps: {},
  schemaProfile: 'portable',
  profiles: [
    { name: 'work', servers: ['s0'], primitives: {}, expose: [{ tool: 's0.*', pins: {} }], budgets: [], caps: {} },
  ],
};

/** Returns one rule for each tool: the tool, and a test of an argument. */
function regoOf(rules: number): string {
  const each = Array.from(
    { length: rules },
    (_, number) => `
deny contains {"id": "r${number}", "message": "Not this."} if {
	input.effect.tool == "t${number}"
	input.effect.arguments.amount > ${number}
}
`,
  );
  return (
    'package policy.bench\n\nallow contains {"id": "all", "message": "Everything else."} if ' +
    `input.effect.server == "s0"\n${each.join('')}`
  );
}

function callAt(amount: number): CallInput {
  return {
    principal: PRINCIPAL,
    run: 'run',
    effect: { verb: 'write', server: 's0', tool: 't1', paths: [], urls: [] },
    argsText: JSON.stringify({ amount }),
    labels: [],
    time: '2026-01-01T00:00:00Z',
  };
}

const REGO_RULES = [10, 100, 1000];
const YAML_RULES = [10, 1000, 10_000];

/** The rows of `measureRego`. */
export const REGO_ROWS: readonly string[] = [
  ...REGO_RULES.flatMap((rules) =>
    ['the first build', 'loaded from the cache', 'one decision'].map((what) => `${rules} rules of Rego: ${what}`),
  ),
  ...YAML_RULES.map((rules) => `${rules} rules of YAML: ready`),
];

/** Measures decisions of 10 to 1,000 rules in the worker, and the time from an edit to a ready policy. */
export async function measureRego(say: (text: string) => void): Promise<readonly (readonly string[])[]> {
  await installServers(() => true);
  const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-bench-rego-'));
  const parts = (over: Partial<PolicyParts>): PolicyParts => ({
    settings: SETTINGS as unknown as PolicyParts['settings'],
    workspace: folder,
    folder,
    cache: path.join(folder, 'cache'),
    rules: [],
    sources: [],
    readYaml,
    ...over,
  });
  const found: (readonly string[])[] = [];
  try {
    for (const rules of REGO_RULES) {
      say(`policy: ${rules} rules of Rego`);
      const home = path.join(folder, `rules-${rules}`);
      mkdirSync(home);
      writeFileSync(path.join(home, 'bench.rego'), regoOf(rules));
      const load = (): Promise<Policy> =>
        loadPolicy(parts({ sources: [{ path: home, kind: 'rego', mode: 'enforce' }], deadlineMs: 5000 }));
      const build = async (round: number): Promise<void> => {
        writeFileSync(path.join(home, 'bench.rego'), `${regoOf(rules)}\n# ${round}\n`);
        (await load()).close();
      };
      found.push(await timeRuns(1, build), await timeRuns(10, async () => (await load()).close()));
      const policy = await load();
      found.push(await timeRuns(1000, (round) => policy.call(callAt(round % 2))));
      policy.close();
    }
    for (const rules of YAML_RULES) {
      say(`policy: ${rules} rules of YAML`);
      const all = Array.from({ length: rules }, (_, number) => ({
        id: `r${number}`,
        outcome: number % 2 === 0 ? 'allow' : 'deny',
        when: { tools: [`s0.t${number}`], paths: [`src/${number}/**`] },
      }));
      const ready = async (round: number): Promise<void> => {
        const value = { rules: all.map((rule) => ({ ...rule, message: `Round ${round}.` })) };
        const rule = { file: 'bench', mode: 'enforce' as const, value, placeOf: () => ({ line: 1, column: 1 }) };
        (await loadPolicy(parts({ rules: [rule] }))).close();
      };
      found.push(await timeRuns(10, ready));
    }
    return found;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
