/** A policy over compiled WebAssembly: sends queries, and reads the answers. */

import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Confinement } from '../../catalogs/readers/confinement.ts';
import { inTimeSlices } from '../../catalogs/text/time-slices.ts';
import type {
  CallArguments,
  CallDecision,
  CallInput,
  ListDecision,
  ListTool,
  OfferedTool,
  Policy,
  Principal,
  RequestedExposure,
} from '../port.ts';
import type { LocatedRule } from '../rules/configured-names.ts';
import type { CompiledConfinement } from '../rules/confinement-rules.ts';
import { Confinements } from '../rules/confinement-rules.ts';
import { offeredToolCheck } from '../rules/offered-tools.ts';
import { formatProblem } from '../rules/policy-problems.ts';
import {
  costOfCall,
  costOfList,
  EXPENSIVE_MS,
  type RuleWeights,
  weightOfEffect,
  weightOfRules,
} from './decision-cost.ts';
import {
  noteOpaqueCommand,
  type PolicyResult,
  readCallDecision,
  readDependentDecision,
  readListDecisions,
  readMatched,
  readRequestedExposures,
} from './decision-reader.ts';
import { KeptDecisions } from './kept-decisions.ts';
import { callInputText, firedInputText, listInputText } from './policy-input.ts';
import { ENTRYPOINTS } from './policy-library.ts';
import type { WasmPolicy } from './wasm/wasm-policy.ts';
import { WorkerEvaluator } from './workers/worker-evaluator.ts';
import type { PolicyQuery, WorkerParts } from './workers/worker-handle.ts';

/** Answers queries. Throws or rejects with POLICY_FAILED. */
export interface Evaluator {
  /** `cost`: estimated milliseconds, if known. */
  evaluate(query: PolicyQuery, cost?: number): PolicyResult | Promise<PolicyResult>;
  close(): void;
}

/** Number of tools in one list query. It limits the size of the input, and the time that other calls wait. */
const LIST_CHUNK = 250;
/** An evaluation gets one more millisecond for each such number of characters of input. */
const CHARS_A_MS = 8 * 1024;

/** What is needed to estimate costs. `cached`: whether a pattern is compiled only once per decision. */
interface DecisionCosts {
  readonly weights: RuleWeights;
  readonly cached: boolean;
}

/** Runs the shipped library in this thread. Expensive decisions run in workers, which are started when first needed. */
export class LibraryEvaluator implements Evaluator {
  readonly costs: DecisionCosts;
  readonly #parts: WorkerParts;
  readonly #wasm: WasmPolicy;
  #workers: WorkerEvaluator | undefined;

  /** `wasm` must have been made from `parts`. */
  constructor(wasm: WasmPolicy, parts: WorkerParts, costs: DecisionCosts) {
    this.#wasm = wasm;
    this.#parts = parts;
    this.costs = costs;
  }

  evaluate(query: PolicyQuery, cost = 0): PolicyResult | Promise<PolicyResult> {
    if (cost < EXPENSIVE_MS) return this.evaluateHere(query);
    this.#workers ??= new WorkerEvaluator(this.#parts);
    return this.#workers.evaluate(query);
  }

  /** Evaluates in this thread. Throws POLICY_FAILED. */
  evaluateHere({ entrypoint, input, time }: Pick<PolicyQuery, 'entrypoint' | 'input' | 'time'>): PolicyResult {
    return this.#wasm.evaluate(entrypoint, input, time);
  }

  close(): void {
    this.#workers?.close();
  }
}

/** The source of a fetched policy. */
type RemotePolicySource = Required<Pick<Policy, 'follow' | 'remarks'>> & { close(): void };

/** What a policy is made from besides its evaluator. */
interface PolicyOptions {
  readonly revision: string;
  readonly rules: number;
  readonly ruleIds?: readonly string[];
  /** Milliseconds for one decision with small arguments. */
  readonly deadlineMs: number;
  readonly zones?: readonly string[];
  readonly rulesByServer?: ReadonlyMap<string, Iterable<LocatedRule>>;
  readonly confining: CompiledConfinement;
  readonly remote?: RemotePolicySource;
}

/** A policy over an evaluator. */
export class CompiledPolicy implements Policy {
  readonly revision: string;
  readonly rules: number;
  readonly ruleIds: readonly string[];
  readonly #evaluator: Evaluator;
  /** The evaluator, unless user Rego decides. User Rego may read anything, so nothing is known about its decisions. */
  readonly #library: LibraryEvaluator | undefined;
  readonly #options: PolicyOptions;
  readonly #confinements: Confinements;
  readonly #kept = new KeptDecisions();

  constructor(evaluator: Evaluator, options: PolicyOptions) {
    this.#evaluator = evaluator;
    this.#library = evaluator instanceof LibraryEvaluator ? evaluator : undefined;
    this.#options = options;
    this.revision = options.revision;
    this.rules = options.rules;
    this.ruleIds = options.ruleIds ?? [];
    this.#confinements = new Confinements(options.confining);
  }

  call(input: CallInput, args?: CallArguments): CallDecision | Promise<CallDecision> {
    return readLater(this.#decide(input, args), (decision) => noteOpaqueCommand(decision, input));
  }

  #decide(input: CallInput, args?: CallArguments): CallDecision | Promise<CallDecision> {
    const library = this.#library;
    if (library === undefined) return readLater(this.#query(ENTRYPOINTS.call, input, { args }), readCallDecision);
    const key = this.#kept.keyOf(input);
    const kept = input.effect.spill === true ? undefined : this.#findKept(library, key, { input, args });
    if (kept !== undefined) return kept;
    const { costs } = library;
    const cost = costOfCall(weightOfEffect(costs.weights, input.effect), input, { cached: costs.cached, args });
    return readLater(this.#query(ENTRYPOINTS.read, input, { args, cost }), (result) => {
      const { decision, reading } = readDependentDecision(result);
      if (reading !== undefined)
        this.#kept.keep(key, { ...reading, weight: weightOfRules(costs.weights, reading.rules) }, decision);
      return decision;
    });
  }

  /**
   * Evaluates the rules that read the call, and returns the decision that is kept for those that match. Undefined if
   * there is none, or if these rules are expensive.
   */
  #findKept(
    library: LibraryEvaluator,
    key: string,
    { input, args }: { readonly input: CallInput; readonly args: CallArguments | undefined },
  ): CallDecision | undefined {
    const reading = this.#kept.reading(key);
    if (reading === undefined) return undefined;
    if (reading.rules.length === 0) return this.#kept.decision(key, []);
    if (costOfCall(reading.weight, input, { cached: library.costs.cached, args }) >= EXPENSIVE_MS) return undefined;
    const text = firedInputText(input, reading, { project: true, zones: this.#options.zones, args });
    const result = library.evaluateHere({ entrypoint: ENTRYPOINTS.fired, input: text, time: input.time });
    return this.#kept.decision(key, readMatched(result));
  }

  /** Returns the result of lib/why.rego for this call. Only the shipped module has it. Throws POLICY_FAILED. */
  explain(input: CallInput): PolicyResult | Promise<PolicyResult> {
    return this.#query(ENTRYPOINTS.why, input);
  }

  /**
   * Long arguments are replaced by markers only for the library, which knows the markers. User Rego would take them for
   * values.
   */
  #query(
    entrypoint: string,
    input: CallInput,
    { args, cost = 0 }: { readonly args?: CallArguments | undefined; readonly cost?: number } = {},
  ): PolicyResult | Promise<PolicyResult> {
    const { zones, deadlineMs: base } = this.#options;
    const text = callInputText(input, { project: this.#library !== undefined, zones, args });
    const deadlineMs = base + text.length / CHARS_A_MS;
    return this.#evaluator.evaluate(
      { entrypoint, input: text, time: input.time, deadlineMs, principal: input.principal.id, run: input.run },
      cost,
    );
  }

  async list(principal: Principal, tools: readonly ListTool[]): Promise<readonly ListDecision[]> {
    const decisions: ListDecision[] = [];
    for (let from = 0; from < tools.length; from += LIST_CHUNK) {
      const chunk = tools.slice(from, from + LIST_CHUNK);
      decisions.push(...readListDecisions(await this.#list(principal, chunk), chunk.length));
    }
    return decisions;
  }

  async requestedExposures(principal: Principal): Promise<readonly RequestedExposure[]> {
    return this.#library !== undefined ? [] : readRequestedExposures(await this.#list(principal, []));
  }

  /** If Rego fails on what is known before a call, the list ignores it. The calls then report the failure. */
  async #list(principal: Principal, tools: readonly ListTool[]): Promise<PolicyResult> {
    const { deadlineMs } = this.#options;
    const costs = this.#library?.costs;
    const evaluate = (blind: boolean): PolicyResult | Promise<PolicyResult> => {
      const query = {
        entrypoint: ENTRYPOINTS.list,
        input: listInputText(principal, tools, blind),
        time: '',
        deadlineMs: deadlineMs + tools.length,
        principal: principal.id,
      };
      return this.#evaluator.evaluate(query, costs && costOfList(costs.weights, tools));
    };
    try {
      return await evaluate(false);
    } catch (thrown) {
      if (this.#library !== undefined || !(thrown instanceof TollgateError)) throw thrown;
      return evaluate(true);
    }
  }

  async findUnoffered(server: string, tools: readonly OfferedTool[]): Promise<readonly string[]> {
    const check = offeredToolCheck(server, tools);
    const lines: string[] = [];
    for await (const rule of inTimeSlices(this.#options.rulesByServer?.get(server) ?? []))
      lines.push(...check(rule).map(formatProblem));
    return lines;
  }

  confinement(server: string, principal?: Principal): Confinement {
    return this.#confinements.of(server, principal);
  }

  unbound(servers: readonly string[]): readonly string[] {
    return this.#confinements.unbound(servers);
  }

  get remarks(): readonly string[] {
    return this.#options.remote?.remarks ?? [];
  }

  follow(listener: Parameters<RemotePolicySource['follow']>[0]): void {
    this.#options.remote?.follow(listener);
  }

  close(): void {
    this.#evaluator.close();
    this.#options.remote?.close();
  }
}

function readLater<S, T>(result: S | Promise<S>, read: (result: S) => T): T | Promise<T> {
  return result instanceof Promise ? result.then(read) : read(result);
}
