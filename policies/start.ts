/** Owns the start of a policy that was compiled: in this thread, or in workers when it holds what others wrote; compiles nothing. */
import { createHash } from 'node:crypto';
import { CompiledPolicy, LibraryEvaluator, type Evaluator } from './compiled-policy.ts';
import type { CompiledParts } from './engine.ts';
import { callInputText, listInputText } from './input.ts';
import { ENTRYPOINTS } from './library.ts';
import { dropCache, SOUND_CACHE } from './module.ts';
import type { LocatedRule } from './rules.ts';
import type { Question } from './worker-handle.ts';
import { WorkerEvaluator } from './workers.ts';

/** All that a policy is started with. */
export interface ReadyParts extends Omit<CompiledParts, 'rules'> {
  /** SHA-256 over module and data. */
  readonly revision: string;
  /** The number of rules in YAML that count. */
  readonly rules: number;
  /** Time zones whose clocks the rules read. */
  readonly zones: readonly string[];
  /** All rules in YAML. */
  readonly located: readonly LocatedRule[];
}

const DEADLINE_MS = 50;
/** The rules of the library are bounded by their number and by the input: what is long here is no loop. */
const LIBRARY_DEADLINE_MS = 2_000;
/** User Rego sees arguments whole, so its input may be larger than that of the library alone. */
const WORKER_LIMITS = { inputBytes: 2 * 1024 * 1024, memoryBytes: 256 * 1024 * 1024 } as const;

/** Milliseconds for a decision that nobody waits for. */
const WARM_UP_MS = 2_000;

/** A call that carries a bit of everything, and a list, of nobody. */
function warmUp(): readonly Question[] {
  const [nobody, time] = [{ id: '', role: '', groups: [], profiles: [], origin: '' }, '2026-01-01T00:00:00Z'];
  const tool = { server: '', tool: '', verb: 'read' } as const;
  const effect = { ...tool, paths: [{ argument: 'path', path: 'a', inside: true }], urls: [{ argument: 'url', url: 'https://a/', host: 'a', address: 'https://a:443/' }], command: { text: 'a', opaque: false, words: [['a']] } };
  const inputs = [[ENTRYPOINTS.call, callInputText({ principal: nobody, run: '', effect, argsText: '{}', labels: [], time }, { project: false })], [ENTRYPOINTS.list, listInputText(nobody, [tool])]] as const;
  return inputs.map(([entrypoint, input]) => ({ entrypoint, input, time, deadlineMs: WARM_UP_MS }));
}

/** What a start needs of the compiled rules. */
export function readyParts({ rules, ...parts }: CompiledParts): ReadyParts {
  const revision = createHash('sha256').update(parts.wasm).update(parts.data).digest('hex');
  return { ...parts, revision, rules: rules.list.length, zones: rules.zones, located: rules.rules };
}

/** Starts a policy; `deadlineMs` is the time of one decision in a worker. Throws POLICY_INVALID when the module cannot be loaded. */
export async function startReady({ wasm, data, foreign, weights, ...parts }: ReadyParts, deadlineMs?: number): Promise<CompiledPolicy> {
  if (foreign) return new CompiledPolicy(await startWorkers(wasm, data), { ...parts, deadlineMs: deadlineMs ?? DEADLINE_MS });
  const cached = weights.regexes < SOUND_CACHE;
  const evaluator = new LibraryEvaluator(cached ? wasm : dropCache(wasm), data);
  return new CompiledPolicy(evaluator, { ...parts, deadlineMs: deadlineMs ?? LIBRARY_DEADLINE_MS, costs: { weights, cached } });
}

/** Evaluates what others wrote, whose patterns nobody can count. Throws POLICY_INVALID when the module cannot be loaded. */
export async function startWorkers(wasm: Uint8Array, data: string): Promise<Evaluator> {
  const workers = new WorkerEvaluator({ wasm: dropCache(wasm), data, entrypoints: [ENTRYPOINTS.call, ENTRYPOINTS.list], limits: WORKER_LIMITS, warmUp: warmUp() });
  await workers.start();
  return workers;
}
