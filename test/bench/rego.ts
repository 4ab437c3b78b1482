/** Measures decisions of user Rego by number of rules, and the time until a changed policy is ready. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { readYaml } from '../../facade/config/reading/yaml-document.ts';
import type { PolicyParts } from '../../policies/engine/compiled-parts.ts';
import { loadPolicy } from '../../policies/engine/policy-loader.ts';
import type { CallInput, Policy } from '../../policies/port.ts';
import { installServers } from '../servers/install.ts';
import { formatPolicyTimings, type PolicyTiming } from './policy.ts';

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

async function timed(what: string, rounds: number, run: (round: number) => Promise<unknown>): Promise<PolicyTiming> {
  const times: number[] = [];
  for (let round = 0; round < rounds * 1.2; round += 1) {
    const start = process.hrtime.bigint();
    await run(round);
    if (round >= rounds * 0.2) times.push(Number(process.hrtime.bigint() - start) / 1000);
  }
  times.sort((a, b) => a - b);
  const at = (share: number): number => times[Math.min(times.length - 1, Math.floor(times.length * share))] ?? 0;
  return { what, p50: at(0.5), p99: at(0.99) };
}

/** Measures decisions of 10 to 1,000 rules in the worker, and the time from an edit to a ready policy. */
export async function measureRego(): Promise<readonly PolicyTiming[]> {
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
  const timings: PolicyTiming[] = [];
  try {
    for (const rules of [10, 100, 1000]) {
      const home = path.join(folder, `rules-${rules}`);
      mkdirSync(home);
      writeFileSync(path.join(home, 'bench.rego'), regoOf(rules));
      const load = (): Promise<Policy> =>
        loadPolicy(parts({ sources: [{ path: home, kind: 'rego', mode: 'enforce' }], deadlineMs: 5000 }));
      timings.push(
        await timed(`${rules} rules of Rego: the first build`, 1, async (round) => {
          writeFileSync(path.join(home, 'bench.rego'), `${regoOf(rules)}\n# ${round}\n`);
          (await load()).close();
        }),
      );
      timings.push(
        await timed(`${rules} rules of Rego: loaded from the cache`, 10, async () => (await load()).close()),
      );
      const policy = await load();
      timings.push(
        await timed(`${rules} rules of Rego: one decision`, 1000, async (round) => policy.call(callAt(round % 2))),
      );
      policy.close();
    }
    for (const rules of [10, 1000, 10_000]) {
      const all = Array.from({ length: rules }, (_, number) => ({
        id: `r${number}`,
        outcome: number % 2 === 0 ? 'allow' : 'deny',
        when: { tools: [`s0.t${number}`], paths: [`src/${number}/**`] },
      }));
      timings.push(
        await timed(`${rules} rules of YAML: ready`, 10, async (round) => {
          const value = { rules: all.map((rule) => ({ ...rule, message: `Round ${round}.` })) };
          (
            await loadPolicy(
              parts({ rules: [{ file: 'bench', mode: 'enforce', value, placeOf: () => ({ line: 1, column: 1 }) }] }),
            )
          ).close();
        }),
      );
    }
    return timings;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.stdout.write(formatPolicyTimings(await measureRego()));
