/** Starts a compiled policy: in this thread, or in workers if it contains code that others wrote. */
import { createHash } from 'node:crypto';
import { setImmediate as letOthersRun } from 'node:timers/promises';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { LocatedRule } from '../rules/configured-names.ts';
import { groupByServer } from '../rules/offered-tools.ts';
import type { CompiledParts } from './compiled-parts.ts';
import { CompiledPolicy, type Evaluator, LibraryEvaluator } from './compiled-policy.ts';
import { callInputText, listInputText } from './policy-input.ts';
import { ENTRYPOINTS } from './policy-library.ts';
import { reportBuiltinFailures } from './wasm/builtin-failures.ts';
import type { MemoryImage } from './wasm/wasm-instance.ts';
import { dropCache, SOUND_CACHE_PATTERNS } from './wasm/wasm-module.ts';
import { WasmPolicy } from './wasm/wasm-policy.ts';
import { WorkerEvaluator } from './workers/worker-evaluator.ts';
import type { PolicyQuery } from './workers/worker-handle.ts';

/** Everything that a policy is started with. */
export interface ReadyParts extends Omit<CompiledParts, 'rules' | 'data'> {
  /** The text of `data` in UTF-8, in shared memory, so that passing it to a thread costs nothing. */
  readonly data: Uint8Array;
  /** SHA-256 over module and data. */
  readonly revision: string;
  /** Number of YAML rules that are not off. */
  readonly rules: number;
  /** See Policy; at most 100. */
  readonly ruleIds: readonly string[];
  /** Time zones that the rules need. */
  readonly zones: readonly string[];
  /** By server: the YAML rules that are about it alone. */
  readonly rulesByServer: ReadonlyMap<string, Iterable<LocatedRule>>;
}

const DEADLINE_MS = 50;
/** The most ids of rules that the text for agents needs. */
const MAX_IDS = 100;

/** The library has no endless loops: its work is limited by the number of rules and by the input. */
const LIBRARY_DEADLINE_MS = 2_000;
/** User Rego reads arguments in full, so its input may be larger than that of the library. */
const WORKER_LIMITS = { inputBytes: 2 * 1024 * 1024, memoryBytes: 256 * 1024 * 1024 } as const;

/** Milliseconds for a warm-up query. No caller waits for it. */
const WARM_UP_MS = 2_000;

/** A call with a fact of every kind, and a list, both of a caller without a name. */
function warmUp(): readonly PolicyQuery[] {
  const [noCaller, time] = [{ id: '', role: '', groups: [], profiles: [], origin: '' }, '2026-01-01T00:00:00Z'];
  const tool = { server: '', tool: '', verb: 'read' } as const;
  const effect = {
    ...tool,
    paths: [{ argument: 'path', path: 'a', inside: true }],
    urls: [{ argument: 'url', url: 'https://a/', scheme: 'https', host: 'a', address: 'https://a:443/' }],
    command: { text: 'a', opaque: false, words: [['a']] },
  };
  const inputs = [
    [
      ENTRYPOINTS.call,
      callInputText({ principal: noCaller, run: '', effect, argsText: '{}', labels: [], time }, { project: false }),
    ],
    [ENTRYPOINTS.list, listInputText(noCaller, [tool])],
  ] as const;
  return inputs.map(([entrypoint, input]) => ({ entrypoint, input, time, deadlineMs: WARM_UP_MS }));
}

const ENTRIES = [ENTRYPOINTS.call, ENTRYPOINTS.list];
const LIBRARY_ENTRIES = [...ENTRIES, ENTRYPOINTS.read, ENTRYPOINTS.fired];

/** Returns what a start needs of the compiled parts. */
export function readyParts({ rules, wasm, data, ...parts }: CompiledParts): ReadyParts {
  const revision = createHash('sha256').update(wasm).update(data).digest('hex');
  // The patterns in foreign Rego cannot be counted.
  const canCache = !parts.foreign && parts.weights.regexes < SOUND_CACHE_PATTERNS;
  return {
    ...parts,
    wasm: canCache ? wasm : dropCache(wasm),
    data: shareText(data),
    revision,
    rules: rules.list.length,
    ruleIds: rules.rules
      .filter(({ mode, rule }) => mode === 'enforce' && rule.outcome !== 'allow')
      .slice(0, MAX_IDS)
      .map(({ rule }) => rule.id),
    zones: rules.zones,
    rulesByServer: groupByServer(rules.rules),
  };
}

/**
 * Loads the data in the compilation thread, so that the thread that decides need not. Throws POLICY_INVALID if the
 * module cannot be loaded.
 */
export function loadImage({ wasm, data, foreign }: ReadyParts): MemoryImage | undefined {
  return foreign ? undefined : new WasmPolicy(wasm, data, { entrypoints: LIBRARY_ENTRIES }).image();
}

/**
 * Starts a policy. `deadlineMs` is the time for one decision in a worker, `image` the result of `loadImage`. Throws
 * POLICY_INVALID if the module cannot be loaded.
 */
export async function startReady(
  { wasm, data, foreign, weights, ...parts }: ReadyParts,
  { deadlineMs, image }: { readonly deadlineMs?: number | undefined; readonly image?: MemoryImage | undefined },
): Promise<CompiledPolicy> {
  // Let calls run after the work before this one.
  await letOthersRun();
  if (foreign)
    return new CompiledPolicy(await startWorkers(wasm, data), { ...parts, deadlineMs: deadlineMs ?? DEADLINE_MS });
  const library = { wasm, data, entrypoints: LIBRARY_ENTRIES, limits: {} };
  const evaluator =
    image === undefined
      ? new WasmPolicy(wasm, data, library)
      : await WasmPolicy.copy(wasm, data, { ...library, image });
  const costs = { weights, cached: weights.regexes < SOUND_CACHE_PATTERNS };
  return new CompiledPolicy(new LibraryEvaluator(evaluator, library, costs), {
    ...parts,
    deadlineMs: deadlineMs ?? LIBRARY_DEADLINE_MS,
  });
}

/**
 * Starts workers for foreign Rego. `wasm` must not cache patterns (see `dropCache`). Throws POLICY_INVALID if it cannot
 * be loaded.
 */
export async function startWorkers(wasm: Uint8Array, data: string | Uint8Array): Promise<Evaluator> {
  const workers = new WorkerEvaluator({
    wasm: reportFailures(wasm),
    data,
    entrypoints: ENTRIES,
    limits: WORKER_LIMITS,
    warmUp: warmUp(),
  });
  await workers.start();
  return workers;
}

/** Bytes that are not WebAssembly are returned as they are; the worker reports what is wrong with them. */
function reportFailures(wasm: Uint8Array): Uint8Array {
  try {
    return reportBuiltinFailures(wasm);
  } catch (cause) {
    if (!WebAssembly.validate(wasm as Uint8Array<ArrayBuffer>)) return wasm;
    throw new TollgateError('POLICY_INVALID', {
      detail: 'The compiled policy has a form in which failing built-in functions cannot be detected.',
      next: 'Build it with `tollgate policy build`.',
      cause,
    });
  }
}

function shareText(text: string): Uint8Array {
  const bytes = Buffer.from(new SharedArrayBuffer(Buffer.byteLength(text)));
  bytes.write(text);
  return new Uint8Array(bytes.buffer);
}
