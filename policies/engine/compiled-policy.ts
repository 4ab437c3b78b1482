/** A policy over compiled WebAssembly: sends queries, and reads the answers. */

import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Confinement } from '../../catalogs/readers/confinement.ts';
import { inTimeSlices } from '../../catalogs/text/time-slices.ts';
import type {
  CallDecision,
  CallInput,
  Effect,
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
import { costOfCall, costOfList, EXPENSIVE_MS, type RuleWeights } from './decision-cost.ts';
import { type PolicyResult, readCallDecision, readListDecisions, readRequestedExposures } from './decision-reader.ts';
import { callInputText, listInputText } from './policy-input.ts';
import { ENTRYPOINTS } from './policy-library.ts';
import type { WasmPolicy } from './wasm/wasm-policy.ts';
import { WorkerEvaluator } from './workers/worker-evaluator.ts';
import type { PolicyQuery, WorkerParts } from './workers/worker-handle.ts';

/** Answers queries. Throws or rejects with POLICY_FAILED. */
export interface Evaluator {
  /**
   * Whether long arguments are replaced by markers. The library knows the markers; user Rego would take them for
   * values.
   */
  readonly projects: boolean;
  /** `cost`: estimated milliseconds, if known. */
  evaluate(query: PolicyQuery, cost?: number): PolicyResult | Promise<PolicyResult>;
  close(): void;
}

/** Number of tools in one list query. It limits the size of the input, and the time that other calls wait. */
const LIST_CHUNK = 250;
/** An evaluation gets one more millisecond for each such number of characters of input. */
const CHARS_A_MS = 8 * 1024;

/** Runs the shipped library in this thread. Expensive decisions run in workers, which are started when first needed. */
export class LibraryEvaluator implements Evaluator {
  readonly projects = true;
  readonly #parts: WorkerParts;
  readonly #wasm: WasmPolicy;
  #workers: WorkerEvaluator | undefined;

  /** `wasm` must have been made from `parts`. */
  constructor(wasm: WasmPolicy, parts: WorkerParts) {
    this.#wasm = wasm;
    this.#parts = parts;
  }

  evaluate(query: PolicyQuery, cost = 0): PolicyResult | Promise<PolicyResult> {
    if (cost < EXPENSIVE_MS) return this.#wasm.evaluate(query.entrypoint, query.input, query.time);
    this.#workers ??= new WorkerEvaluator(this.#parts);
    return this.#workers.evaluate(query);
  }

  close(): void {
    this.#workers?.close();
  }
}

/** What is needed to estimate costs. `cached`: whether a pattern is compiled only once per decision. */
interface DecisionCosts {
  readonly weights: RuleWeights;
  readonly cached: boolean;
}

/** The source of a fetched policy. */
type RemotePolicySource = Required<Pick<Policy, 'follow' | 'remarks'>> & { close(): void };

/** What a policy is made from besides its evaluator. */
interface PolicyOptions {
  readonly revision: string;
  readonly rules: number;
  /** Milliseconds for one decision with small arguments. */
  readonly deadlineMs: number;
  readonly zones?: readonly string[];
  readonly rulesByServer?: ReadonlyMap<string, Iterable<LocatedRule>>;
  readonly confining: CompiledConfinement;
  readonly remote?: RemotePolicySource;
  readonly costs?: DecisionCosts;
}

/** A policy over an evaluator. */
export class CompiledPolicy implements Policy {
  readonly revision: string;
  readonly rules: number;
  readonly #evaluator: Evaluator;
  readonly #options: PolicyOptions;
  readonly #confinements: Confinements;
  /** Decisions that depend on nothing else of the call, by principal, then by verb and tool. */
  readonly #constants = new WeakMap<Principal, Map<string, CallDecision>>();

  constructor(evaluator: Evaluator, options: PolicyOptions) {
    this.#evaluator = evaluator;
    this.#options = options;
    this.revision = options.revision;
    this.rules = options.rules;
    this.#confinements = new Confinements(options.confining);
  }

  call(input: CallInput): CallDecision | Promise<CallDecision> {
    const known = this.#constants.get(input.principal)?.get(callKey(input.effect));
    if (known !== undefined && input.effect.spill !== true) return known;
    const { costs } = this.#options;
    const result = this.#query(ENTRYPOINTS.call, input, costs && costOfCall(costs.weights, input, costs));
    return result instanceof Promise ? result.then((later) => this.#keep(input, later)) : this.#keep(input, result);
  }

  /** Returns the result of lib/why.rego for this call. Only the shipped module has it. Throws POLICY_FAILED. */
  explain(input: CallInput): PolicyResult | Promise<PolicyResult> {
    return this.#query(ENTRYPOINTS.why, input);
  }

  #query(entrypoint: string, input: CallInput, cost = 0): PolicyResult | Promise<PolicyResult> {
    const { zones = [], deadlineMs: base } = this.#options;
    const text = callInputText(input, { project: this.#evaluator.projects, zones });
    const deadlineMs = base + text.length / CHARS_A_MS;
    return this.#evaluator.evaluate(
      { entrypoint, input: text, time: input.time, deadlineMs, principal: input.principal.id, run: input.run },
      cost,
    );
  }

  /** Keeps a decision that the library marks as constant. Their number is limited by the tools of all servers. */
  #keep({ principal, effect }: CallInput, result: PolicyResult): CallDecision {
    const decision = readCallDecision(result);
    if (result.constant !== true || !this.#evaluator.projects) return decision;
    const known = this.#constants.get(principal) ?? new Map<string, CallDecision>();
    this.#constants.set(principal, known.set(callKey(effect), decision));
    return decision;
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
    return this.#evaluator.projects ? [] : readRequestedExposures(await this.#list(principal, []));
  }

  /** If Rego fails on what is known before a call, the list ignores it. The calls then report the failure. */
  async #list(principal: Principal, tools: readonly ListTool[]): Promise<PolicyResult> {
    const { costs, deadlineMs } = this.#options;
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
      if (this.#evaluator.projects || !(thrown instanceof TollgateError)) throw thrown;
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

function callKey({ verb, server, tool }: Effect): string {
  return `${verb}\0${server}\0${tool}`;
}
