/** Measures decisions of YAML rules: by number of rules, candidates and size of the arguments; and lists. */
import { fileURLToPath } from 'node:url';
import { callInputText, listInputText } from '../../policies/engine/policy-input.ts';
import { ENTRYPOINTS, readLibrary } from '../../policies/engine/policy-library.ts';
import { WasmPolicy } from '../../policies/engine/wasm/wasm-policy.ts';
import type { CallInput, ListTool, Principal } from '../../policies/port.ts';
import { compileSettings } from '../../policies/rules/policy-settings.ts';
import { compileRules } from '../../policies/rules/rule-compiler.ts';

/** Microseconds of a kind of decision. `cpu`: the least processor time of a round, with the least noise. */
export interface PolicyTiming {
  readonly what: string;
  readonly p50: number;
  readonly p99: number;
  readonly cpu?: number;
}

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
  const all = Array.from({ length: rules }, (_, number) => {
    const when = KINDS[number % KINDS.length]?.(number) ?? {};
    const near = [{ ...when, tools: ['s0.t0'] }, { ...when, servers: ['s0'] }, when][number % 3];
    return {
      id: `r${number}`,
      outcome: number % 5 === 0 ? 'allow' : 'deny',
      when: number < candidates ? near : { ...when, tools: [`s${1 + (number % 49)}.t${number}`] },
    };
  });
  const { list, index } = compileRules(
    [{ file: 'bench', mode: 'enforce', value: { rules: all }, placeOf: () => ({ line: 1, column: 1 }) }],
    '/work',
  );
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
  return new WasmPolicy(readLibrary().wasm, JSON.stringify({ config }), {
    entrypoints: [ENTRYPOINTS.call, ENTRYPOINTS.list],
  });
}

function makeCall(argBytes: number): CallInput {
  const paths = [{ argument: 'path', path: 'src/a.ts', inside: true }];
  const urls = [{ argument: 'url', url: 'https://a.example/', host: 'a.example' }];
  const argsText = JSON.stringify({
    path: 'src/a.ts',
    mode: 'slow',
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

function measure(what: string, rounds: number, run: () => unknown): PolicyTiming {
  for (let round = 0; round < rounds / 5; round += 1) run();
  const times = Array.from({ length: rounds }, () => {
    const start = process.hrtime.bigint();
    run();
    return Number(process.hrtime.bigint() - start) / 1000;
  }).sort((a, b) => a - b);
  const at = (share: number): number => times[Math.min(times.length - 1, Math.floor(times.length * share))] ?? 0;
  return { what, p50: at(0.5), p99: at(0.99) };
}

function leastCpu(rounds: number, run: () => unknown): number {
  return Math.min(
    ...Array.from({ length: rounds }, () => {
      const before = process.cpuUsage();
      run();
      const { user, system } = process.cpuUsage(before);
      return user + system;
    }),
  );
}

/** Measures all kinds in some seconds. Times include making the input, but not reading the answer. */
export function measurePolicy(): readonly PolicyTiming[] {
  const timings: PolicyTiming[] = [];
  const decide = (what: string, wasm: WasmPolicy, options: { call?: CallInput; rounds?: number }): void => {
    const call = options.call ?? makeCall(100);
    timings.push(
      measure(what, options.rounds ?? 3000, () =>
        wasm.evaluate(ENTRYPOINTS.call, callInputText(call, { project: true })),
      ),
    );
  };
  for (const [rules, candidates] of [
    [10, 8],
    [100, 8],
    [1000, 8],
    [10_000, 8],
    [1000, 16],
  ] as const)
    decide(`${rules} rules, ${candidates} candidates`, makeWasm(rules, candidates), {});
  for (const candidates of [100, 1000])
    decide(`1000 rules, ${candidates} candidates`, makeWasm(1000, candidates), { rounds: 300 });
  const common = makeWasm(1000, 16);
  for (const kib of [10, 60, 1000])
    decide(`1000 rules, 16 candidates, ${kib} KiB of arguments`, common, { call: makeCall(kib * 1024), rounds: 300 });
  const tools = Array.from(
    { length: 1000 },
    (_, number): ListTool => ({ server: `s${number % 50}`, tool: `t${number}`, verb: 'read' }),
  );
  const list = (): unknown => common.evaluate(ENTRYPOINTS.list, listInputText(PRINCIPAL, tools));
  timings.push({ ...measure('list of 1000 tools, 1000 rules', 40, list), cpu: leastCpu(40, list) });
  return timings;
}

/** Returns one line for each timing. */
export function formatPolicyTimings(timings: readonly PolicyTiming[]): string {
  return timings
    .map(
      ({ what, p50, p99, cpu }) =>
        `${what.padEnd(52)} p50 ${p50.toFixed(0).padStart(6)} µs   p99 ${p99.toFixed(0).padStart(6)} ` +
        `µs${cpu === undefined ? '' : `   least processor time ${cpu.toFixed(0)} µs`}\n`,
    )
    .join('');
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.stdout.write(formatPolicyTimings(measurePolicy()));
