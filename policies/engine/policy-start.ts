/** Owns the start of a policy that was compiled: in this thread, or in workers when it holds what others wrote; compiles nothing. */
import { createHash } from 'node:crypto';
import { setImmediate as turn } from 'node:timers/promises';
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

/** All that a policy is started with. */
export interface ReadyParts extends Omit<CompiledParts, 'rules' | 'data'> {
  /** The text of `data` in UTF-8, in memory that threads share: to give it to one costs nothing. */
  readonly data: Uint8Array;
  /** SHA-256 over module and data. */
  readonly revision: string;
  /** The number of rules in YAML that count. */
  readonly rules: number;
  /** Time zones whose clocks the rules read. */
  readonly zones: readonly string[];
  /** By server: the rules in YAML that are about it alone. */
  readonly about: ReadonlyMap<string, Iterable<LocatedRule>>;
}

const DEADLINE_MS = 50;
/** The rules of the library are bounded by their number and by the input: what is long here is no loop. */
const LIBRARY_DEADLINE_MS = 2_000;
/** User Rego sees arguments whole, so its input may be larger than that of the library alone. */
const WORKER_LIMITS = { inputBytes: 2 * 1024 * 1024, memoryBytes: 256 * 1024 * 1024 } as const;

/** Milliseconds for a decision that nobody waits for. */
const WARM_UP_MS = 2_000;

/** A call that carries a bit of everything, and a list, of nobody. */
function warmUp(): readonly PolicyQuery[] {
  const [nobody, time] = [{ id: '', role: '', groups: [], profiles: [], origin: '' }, '2026-01-01T00:00:00Z'];
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
      callInputText({ principal: nobody, run: '', effect, argsText: '{}', labels: [], time }, { project: false }),
    ],
    [ENTRYPOINTS.list, listInputText(nobody, [tool])],
  ] as const;
  return inputs.map(([entrypoint, input]) => ({ entrypoint, input, time, deadlineMs: WARM_UP_MS }));
}

const ENTRIES = [ENTRYPOINTS.call, ENTRYPOINTS.list];

/** What a start needs of the compiled rules. */
export function readyParts({ rules, wasm, data, ...parts }: CompiledParts): ReadyParts {
  const revision = createHash('sha256').update(wasm).update(data).digest('hex');
  // Of what others wrote nobody can count the patterns.
  const sound = !parts.foreign && parts.weights.regexes < SOUND_CACHE_PATTERNS;
  return {
    ...parts,
    wasm: sound ? wasm : dropCache(wasm),
    data: shareText(data),
    revision,
    rules: rules.list.length,
    zones: rules.zones,
    about: groupByServer(rules.rules),
  };
}

/** What the thread that compiles can spare the one that decides: the data, loaded. Throws POLICY_INVALID when the module cannot be loaded. */
export function loadImage({ wasm, data, foreign }: ReadyParts): MemoryImage | undefined {
  return foreign ? undefined : new WasmPolicy(wasm, data, { entrypoints: ENTRIES }).image();
}

/** Starts a policy; `deadlineMs` is the time of one decision in a worker, `image` what `loadImage` gave. Throws POLICY_INVALID when the module cannot be loaded. */
export async function startReady(
  { wasm, data, foreign, weights, ...parts }: ReadyParts,
  { deadlineMs, image }: { readonly deadlineMs?: number | undefined; readonly image?: MemoryImage | undefined },
): Promise<CompiledPolicy> {
  // What came before was work for this thread too.
  await turn();
  if (foreign)
    return new CompiledPolicy(await startWorkers(wasm, data), { ...parts, deadlineMs: deadlineMs ?? DEADLINE_MS });
  const library = { wasm, data, entrypoints: ENTRIES, limits: {} };
  const here =
    image === undefined
      ? new WasmPolicy(wasm, data, library)
      : await WasmPolicy.copy(wasm, data, { ...library, image });
  return new CompiledPolicy(new LibraryEvaluator(here, library), {
    ...parts,
    deadlineMs: deadlineMs ?? LIBRARY_DEADLINE_MS,
    costs: { weights, cached: weights.regexes < SOUND_CACHE_PATTERNS },
  });
}

/** Evaluates what others wrote; `wasm` must keep no patterns (see `dropCache`). Throws POLICY_INVALID when the module cannot be loaded. */
export async function startWorkers(wasm: Uint8Array, data: string | Uint8Array): Promise<Evaluator> {
  const workers = new WorkerEvaluator({
    wasm: noticed(wasm),
    data,
    entrypoints: ENTRIES,
    limits: WORKER_LIMITS,
    warmUp: warmUp(),
  });
  await workers.start();
  return workers;
}

/** A module of another form than OPA's is left to the worker, which says what is wrong with it. */
function noticed(wasm: Uint8Array): Uint8Array {
  try {
    return reportBuiltinFailures(wasm);
  } catch (cause) {
    if (!WebAssembly.validate(wasm as Uint8Array<ArrayBuffer>)) return wasm;
    throw new TollgateError('POLICY_INVALID', {
      detail: 'The compiled policy has a form in which built-in functions that fail cannot be noticed.',
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
