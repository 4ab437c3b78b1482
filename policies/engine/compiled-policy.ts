/** Owns the policy port over compiled wasm: asks, and reads the answers; knows nothing of where policy came from. */

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
import { Confinements } from '../rules/caller-confinement.ts';
import type { LocatedRule } from '../rules/configured-names.ts';
import type { CompiledConfinement } from '../rules/confinement-rules.ts';
import { offeredToolCheck } from '../rules/offered-tools.ts';
import { formatProblem } from '../rules/policy-problems.ts';
import { costOfCall, costOfList, EXPENSIVE_MS, type RuleWeights } from './decision-cost.ts';
import { readCallDecision, readListDecisions, readRequestedExposures } from './decision-reader.ts';
import { callInputText, listInputText } from './policy-input.ts';
import { ENTRYPOINTS } from './policy-library.ts';
import type { WasmPolicy } from './wasm/wasm-policy.ts';
import { WorkerEvaluator } from './workers/worker-evaluator.ts';
import type { PolicyQuery, WorkerParts } from './workers/worker-handle.ts';

type Result = Readonly<Record<string, unknown>>;

/** Answers questions; throws or rejects with POLICY_FAILED. */
export interface Evaluator {
  /** Whether long arguments are projected: the library knows the marks, user Rego would take them for the values. */
  readonly projects: boolean;
  /** `cost`: milliseconds that it may take, where they can be known. */
  evaluate(question: PolicyQuery, cost?: number): Result | Promise<Result>;
  close(): void;
}

/** Tools of one list question: keeps the input below its limit and other calls from waiting. */
const LIST_CHUNK = 250;
/** Characters of input for each of which an evaluation gets a millisecond more. */
const CHARS_A_MS = 8 * 1024;

/** The shipped library over data: in this thread, and where it would hold that up, in workers, which are begun when one is needed. */
export class LibraryEvaluator implements Evaluator {
  readonly projects = true;
  readonly #parts: WorkerParts;
  readonly #wasm: WasmPolicy;
  #workers: WorkerEvaluator | undefined;

  /** `parts` are those of `wasm`. */
  constructor(wasm: WasmPolicy, parts: WorkerParts) {
    this.#wasm = wasm;
    this.#parts = parts;
  }

  evaluate(question: PolicyQuery, cost = 0): Result | Promise<Result> {
    if (cost < EXPENSIVE_MS) return this.#wasm.evaluate(question.entrypoint, question.input, question.time);
    this.#workers ??= new WorkerEvaluator(this.#parts);
    return this.#workers.evaluate(question);
  }

  close(): void {
    this.#workers?.close();
  }
}

/** What is known of the costs of decisions before they are made; `cached`: whether a pattern is compiled once a decision. */
export interface DecisionCosts {
  readonly weights: RuleWeights;
  readonly cached: boolean;
}

/** Where the policy was fetched from. */
export type RemotePolicySource = Required<Pick<Policy, 'follow' | 'remarks'>> & { close(): void };

/** A policy; `deadlineMs` is the time of one decision over small arguments. */
export class CompiledPolicy implements Policy {
  readonly revision: string;
  readonly rules: number;
  readonly #evaluator: Evaluator;
  readonly #deadlineMs: number;
  readonly #zones: readonly string[];
  readonly #about: ReadonlyMap<string, Iterable<LocatedRule>>;
  readonly #confinements: Confinements;
  readonly #remote: RemotePolicySource | undefined;
  readonly #costs: DecisionCosts | undefined;
  /** By principal, then by verb and tool: decisions in which nothing of the call had a part. */
  readonly #constants = new WeakMap<Principal, Map<string, CallDecision>>();

  constructor(
    evaluator: Evaluator,
    options: {
      readonly revision: string;
      readonly rules: number;
      readonly deadlineMs: number;
      readonly zones?: readonly string[];
      readonly about?: ReadonlyMap<string, Iterable<LocatedRule>>;
      readonly confining: CompiledConfinement;
      readonly remote?: RemotePolicySource;
      readonly costs?: DecisionCosts;
    },
  ) {
    this.#evaluator = evaluator;
    this.revision = options.revision;
    this.rules = options.rules;
    this.#deadlineMs = options.deadlineMs;
    this.#zones = options.zones ?? [];
    this.#about = options.about ?? new Map();
    this.#confinements = new Confinements(options.confining);
    this.#remote = options.remote;
    this.#costs = options.costs;
  }

  call(input: CallInput): CallDecision | Promise<CallDecision> {
    const known = this.#constants.get(input.principal)?.get(callKey(input.effect));
    if (known !== undefined && input.effect.spill !== true) return known;
    const result = this.#ask(
      ENTRYPOINTS.call,
      input,
      this.#costs === undefined ? 0 : costOfCall(this.#costs.weights, input, this.#costs),
    );
    return result instanceof Promise ? result.then((later) => this.#keep(input, later)) : this.#keep(input, result);
  }

  /** What lib/why.rego tells of this call; only the shipped module has it. Throws POLICY_FAILED. */
  explain(input: CallInput): Result | Promise<Result> {
    return this.#ask(ENTRYPOINTS.why, input, 0);
  }

  #ask(entrypoint: string, input: CallInput, cost: number): Result | Promise<Result> {
    const text = callInputText(input, { project: this.#evaluator.projects, zones: this.#zones });
    const deadlineMs = this.#deadlineMs + text.length / CHARS_A_MS;
    return this.#evaluator.evaluate(
      { entrypoint, input: text, time: input.time, deadlineMs, principal: input.principal.id, run: input.run },
      cost,
    );
  }

  /** Keeps what the library says it would answer to every such call; bounded by the tools that the servers have. */
  #keep({ principal, effect }: CallInput, result: Result): CallDecision {
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

  /** Rego that fails over what is known before a call says nothing of it in the list: its calls say what is wrong. */
  async #list(principal: Principal, tools: readonly ListTool[]): Promise<Result> {
    const ask = (blind: boolean): Result | Promise<Result> => {
      const question = {
        entrypoint: ENTRYPOINTS.list,
        input: listInputText(principal, tools, blind),
        time: '',
        deadlineMs: this.#deadlineMs + tools.length,
        principal: principal.id,
      };
      return this.#evaluator.evaluate(question, this.#costs === undefined ? 0 : costOfList(this.#costs.weights, tools));
    };
    try {
      return await ask(false);
    } catch (thrown) {
      if (this.#evaluator.projects || !(thrown instanceof TollgateError)) throw thrown;
      return ask(true);
    }
  }

  async findUnoffered(server: string, tools: readonly OfferedTool[]): Promise<readonly string[]> {
    const judge = offeredToolCheck(server, tools);
    const lines: string[] = [];
    for await (const rule of inTimeSlices(this.#about.get(server) ?? [])) lines.push(...judge(rule).map(formatProblem));
    return lines;
  }

  confinement(server: string, principal?: Principal): Confinement {
    return this.#confinements.of(server, principal);
  }

  unbound(servers: readonly string[]): readonly string[] {
    return this.#confinements.unbound(servers);
  }

  get remarks(): readonly string[] {
    return this.#remote?.remarks ?? [];
  }

  follow(told: Parameters<RemotePolicySource['follow']>[0]): void {
    this.#remote?.follow(told);
  }

  close(): void {
    this.#evaluator.close();
    this.#remote?.close();
  }
}

function callKey({ verb, server, tool }: Effect): string {
  return `${verb}\0${server}\0${tool}`;
}
