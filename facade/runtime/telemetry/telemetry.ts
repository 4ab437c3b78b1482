/**
 * Traces and metrics by the semantic conventions for MCP
 * (https://github.com/open-telemetry/semantic-conventions-genai, docs/gen-ai/mcp.md), with spans of Tollgate's own
 * under `tollgate.*`. Arguments, results and texts of errors are in none of them.
 */
import {
  type Attributes,
  type Histogram,
  type Meter,
  type MeterProvider,
  ROOT_CONTEXT,
  type Tracer,
  type TracerProvider,
} from '@opentelemetry/api';
import type { FollowedExchange } from '../../../adapters/rpc/peer.ts';
import type { EndedCall } from '../../call/record.ts';
import type { ServerConfig } from '../../config/config.ts';
import type { CallRequest, Reply, Session } from '../../serve/facade-port.ts';
import type { FollowedRequest, RequestOrigin, RequestTrace } from '../../serve/request-trace.ts';
import { VERSION } from '../../serve/version.ts';
import type { Metrics } from '../metrics/metrics.ts';
import { BUCKETS } from '../metrics/prometheus-text.ts';
import { type OtlpExport, startOtlpExport } from './otlp-export.ts';
import { RequestSpans, type SpanParts } from './request-spans.ts';
import { errorFacts, placeOf, revisionFacts, transportOf } from './span-attributes.ts';
import type { Telemetry } from './telemetry-port.ts';
import { REGISTERED, type TelemetryModule } from './telemetry-settings.ts';
import { contextOf } from './trace-context.ts';

/** How long the end of the process waits for exporters, ms. */
const CLOSE_MS = 2000;

/** Opens telemetry: with exporters of its own, otherwise with the SDK that the operator has registered. */
export const openTelemetry: TelemetryModule['openTelemetry'] = ({ otlp, env, warn, ...common }) => {
  if (otlp !== undefined) {
    const exporting = startOtlpExport(otlp, env, warn);
    return new Instruments({ traces: exporting.traces, metrics: exporting.metrics, exporting, ...common });
  }
  const registered = ((globalThis as Record<symbol, unknown>)[REGISTERED] ?? {}) as {
    readonly trace?: TracerProvider;
    readonly metrics?: MeterProvider;
  };
  const { trace, metrics } = registered;
  return new Instruments({
    traces: trace && guarded(trace, warn),
    metrics: metrics && guarded(metrics, warn),
    ...common,
  });
};

/** Returns an object of the operator's SDK whose methods, and those of what they return, never throw. */
function guarded<T extends object>(target: T, warn: (line: string) => void): T {
  return new Proxy(target, {
    get: (from, key) => {
      const value = Reflect.get(from, key) as unknown;
      if (value !== undefined && typeof value !== 'function') return value;
      return (...args: unknown[]): unknown => {
        let result: unknown;
        try {
          if (value !== undefined) result = Reflect.apply(value, from, args);
        } catch (thrown) {
          warn(`the registered OpenTelemetry SDK failed in ${String(key)}: ${(thrown as Error).message}`);
        }
        if (!MAKERS.has(key)) return result;
        return guarded(typeof result === 'object' && result !== null ? result : {}, warn);
      };
    },
  });
}

/** Methods that return what is used later. */
const MAKERS: ReadonlySet<unknown> = new Set([
  'getTracer',
  'getMeter',
  'startSpan',
  'createHistogram',
  'createObservableCounter',
]);

interface InstrumentParts {
  readonly traces: TracerProvider | undefined;
  readonly metrics: MeterProvider | undefined;
  readonly redact: SpanParts['redact'];
  readonly codeOf: SpanParts['codeOf'];
  readonly exporting?: OtlpExport;
}

class Instruments implements Telemetry {
  readonly #tracer: Tracer | undefined;
  readonly #meter: Meter | undefined;
  readonly #exporting: OtlpExport | undefined;
  readonly #parts: SpanParts;
  readonly #durations: ReadonlyMap<string, Histogram>;
  /** Running calls by the id of their decision. */
  readonly #calls = new Map<string, RequestSpans>();
  /** The revisions of open sessions, by the id of the session or of the connection to a server. */
  readonly #versions = new Map<string, string>();

  constructor({ traces, metrics, exporting, ...common }: InstrumentParts) {
    this.#tracer = traces?.getTracer('tollgate', VERSION);
    this.#meter = metrics?.getMeter('tollgate', VERSION);
    this.#exporting = exporting;
    const meter = this.#meter;
    this.#durations = new Map(
      meter === undefined
        ? []
        : DURATIONS.map(([name, description]) => [
            name,
            meter.createHistogram(name, {
              description,
              unit: 's',
              advice: { explicitBucketBoundaries: [...BUCKETS] },
            }),
          ]),
    );
    this.#parts = {
      ...common,
      tracer: this.#tracer,
      record: (name, seconds, attributes) => this.#durations.get(name)?.record(seconds, attributes),
      onBegin: (decision, spans) => void this.#calls.set(decision, spans),
    };
  }

  get dropped(): number {
    return this.#exporting?.losses.count ?? 0;
  }

  readonly follow = (session: Session, request: FollowedRequest, origin: RequestOrigin): RequestTrace => {
    if (origin.version !== undefined) this.#versions.set(session.id, origin.version);
    return new RequestSpans(this.#parts, { session, request, origin });
  };

  readonly followInner = ({ parent, method = 'tools/call' }: CallRequest): RequestTrace | undefined => {
    const outer = parent === undefined ? undefined : this.#calls.get(parent);
    return outer && new RequestSpans(this.#parts, { session: outer.session, request: { id: '', method }, outer });
  };

  onEnd(end: EndedCall, answered: Reply, server: ServerConfig | undefined): void {
    const { id } = end.start;
    this.#calls.get(id)?.noteEnd(end, answered, server);
    this.#calls.delete(id);
  }

  idsOf(decision: string): ReturnType<Telemetry['idsOf']> {
    return this.#calls.get(decision)?.ids;
  }

  onSession({ id, transport }: Session, ms: number): void {
    const attributes = { ...transportOf(transport), ...revisionFacts(this.#versions.get(id)) };
    this.#versions.delete(id);
    this.#durations.get('mcp.server.session.duration')?.record(ms / 1000, attributes);
  }

  onServerSession(
    { server, event, id }: Parameters<Telemetry['onServerSession']>[0],
    { ms, config }: Parameters<Telemetry['onServerSession']>[1],
  ): void {
    const attributes = {
      ...(config !== undefined && placeOf(config)),
      ...revisionFacts(this.#versions.get(id)),
      ...(FAILURES.has(event) && { 'error.type': event }),
      'tollgate.server': server,
    };
    this.#versions.delete(id);
    this.#durations.get('mcp.client.session.duration')?.record(ms / 1000, attributes);
  }

  followExchange(
    { server, method, id, session, version }: Parameters<Telemetry['followExchange']>[0],
    config: ServerConfig | undefined,
  ): FollowedExchange {
    const began = performance.now();
    const startTime = Date.now();
    if (session !== undefined && version !== undefined) this.#versions.set(session, version);
    const facts: Attributes = {
      'mcp.method.name': method,
      ...revisionFacts(version),
      ...(config !== undefined && placeOf(config)),
      'tollgate.server': server,
    };
    const ids = { 'jsonrpc.request.id': String(id), ...(session !== undefined && { 'mcp.session.id': session }) };
    const span = this.#tracer?.startSpan(method, {
      kind: CLIENT,
      startTime,
      root: true,
      attributes: { ...facts, ...ids },
    });
    return {
      context: span && contextOf(span, ROOT_CONTEXT),
      ended: (error) => {
        const ms = performance.now() - began;
        const failed = errorFacts(error);
        this.#durations.get('mcp.client.operation.duration')?.record(ms / 1000, { ...facts, ...failed });
        span?.setAttributes(failed);
        if (error !== undefined) span?.setStatus({ code: ERROR });
        span?.end(startTime + ms);
      },
    };
  }

  observe(counted: Pick<Metrics, 'context' | 'callCounts'>): void {
    const meter = this.#meter;
    if (meter === undefined) return;
    const bytes = meter.createObservableCounter('tollgate.context.bytes', {
      description: 'Lists, arguments and results, as shown and as they would be without Tollgate.',
      unit: 'By',
    });
    const tokens = meter.createObservableCounter('tollgate.context.tokens', {
      description: 'The same in tokens, estimated.',
      unit: '{token}',
    });
    const calls = meter.createObservableCounter('tollgate.calls', {
      description: 'Calls by exposed tool, origin and outcome code.',
      unit: '{call}',
    });
    meter.addBatchObservableCallback(
      (result) => {
        for (const { kind, side, ...sample } of counted.context.samples()) {
          result.observe(bytes, sample.bytes, { kind, side });
          result.observe(tokens, sample.tokens, { kind, side });
        }
        for (const { count, ...labels } of counted.callCounts()) result.observe(calls, count, labels);
      },
      [bytes, tokens, calls],
    );
  }

  async close(): Promise<void> {
    if (this.#exporting === undefined) return;
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => (timer = setTimeout(resolve, CLOSE_MS)));
    await Promise.race([this.#exporting.shutdown(), late]);
    clearTimeout(timer);
  }
}

/** SpanKind.CLIENT and SpanStatusCode.ERROR of the API: a registered SDK has a copy of its own. */
const CLIENT = 2;
const ERROR = 2;

/** The events by which a session with a server ends with an error. */
const FAILURES: ReadonlySet<string> = new Set(['crashed', 'disconnected']);

const DURATIONS = [
  ['mcp.server.operation.duration', 'Requests of clients, from their receipt to their answer.'],
  ['mcp.client.operation.duration', 'Requests to servers, from their sending to their answer.'],
  ['mcp.server.session.duration', 'Sessions of clients.'],
  ['mcp.client.session.duration', 'Sessions with servers.'],
] as const;
