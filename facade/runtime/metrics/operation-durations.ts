/** Durations of operations by principal, in histograms whose names and labels are those of OpenTelemetry. */
import { UpstreamError } from '../../../adapters/port.ts';
import { asTollgateError } from '../../../catalogs/errors/error-table.ts';
import type { EndedCall } from '../../call/record.ts';
import { type DurationHistogram, emptyHistogram, labelled, observe } from './prometheus-text.ts';

/** What distinguishes one operation from another. Empty: it has none. */
export interface OperationFacts {
  readonly method: string;
  /** The name of a tool or a prompt. */
  readonly target: string;
  /** `tool_error`, the number of a JSON-RPC error, or a code of Tollgate. */
  readonly error: string;
  /** The server, of a request to one. */
  readonly server: string;
}

interface Series {
  readonly labels: string;
  readonly durations: DurationHistogram;
}

/** One family of histograms. */
export class OperationDurations {
  /** By principal, then by facts. */
  readonly #series = new Map<string, Map<string, Series>>();

  /** The series that was last found. Calls of one tool often follow each other. */
  #last: { readonly principal: string; readonly facts: OperationFacts; readonly series: Series } | undefined;

  add(principal: string, facts: OperationFacts, ms: number): void {
    const last = this.#last;
    const isSame = last !== undefined && last.principal === principal && areEqual(last.facts, facts);
    const series = isSame ? last.series : this.#find(principal, facts);
    // A clock may be set back.
    observe(series.durations, Math.max(0, ms) / 1000);
  }

  #find(principal: string, facts: OperationFacts): Series {
    let own = this.#series.get(principal);
    if (own === undefined) this.#series.set(principal, (own = new Map()));
    const key = `${facts.method} ${facts.error} ${facts.server} ${facts.target}`;
    let series = own.get(key);
    if (series === undefined) own.set(key, (series = { labels: labelsOf(facts), durations: emptyHistogram() }));
    this.#last = { principal, facts, series };
    return series;
  }

  /** Returns the histograms by their labels: those of one principal, or the sums of all. */
  byLabels(only: string | undefined): ReadonlyMap<string, DurationHistogram> {
    const sums = new Map<string, DurationHistogram>();
    for (const [principal, own] of this.#series) {
      if (only !== undefined && principal !== only) continue;
      for (const { labels, durations } of own.values()) {
        const { buckets, sum, count } = sums.get(labels) ?? emptyHistogram();
        sums.set(labels, {
          buckets: buckets.map((bucketCount, at) => bucketCount + (durations.buckets[at] ?? 0)),
          sum: sum + durations.sum,
          count: count + durations.count,
        });
      }
    }
    return sums;
  }
}

function areEqual(one: OperationFacts, other: OperationFacts): boolean {
  return (
    one.target === other.target &&
    one.method === other.method &&
    one.error === other.error &&
    one.server === other.server
  );
}

/** Every series of a family has the same labels; an empty one counts as absent in Prometheus. */
function labelsOf({ method, target, error, server }: OperationFacts): string {
  return labelled({
    mcp_method_name: method,
    gen_ai_tool_name: method === 'tools/call' ? target : '',
    gen_ai_prompt_name: method === 'prompts/get' ? target : '',
    error_type: error,
    ...(server !== '' && { tollgate_server: server }),
  });
}

/** Returns the number of a server's own JSON-RPC error, otherwise the code of Tollgate. */
export function codeOfFailure(failure: unknown): string {
  return failure instanceof UpstreamError ? String(failure.rpc.code) : asTollgateError(failure).code;
}

/** Operations whose name in a record is their method, because they name neither a tool nor a prompt. */
const NAMED_BY_METHOD = /^(resources\/(read|subscribe|unsubscribe)|completion\/complete)$/;

/** Returns the method of a call. Others than these are not named, because a client could invent names without end. */
export function methodOfCall({ start, error }: EndedCall): string {
  if (error?.code === 'WIRE_METHOD') return '_OTHER';
  if (start.kind === 'tool') return 'tools/call';
  if (start.kind === 'prompt') return 'prompts/get';
  return NAMED_BY_METHOD.test(start.requestedName) ? start.requestedName : '_OTHER';
}
