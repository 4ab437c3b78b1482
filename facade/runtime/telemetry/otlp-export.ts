/** The SDK of OpenTelemetry as the OTEL_* variables set it: exporters over HTTP with bounded queues. */
import { randomUUID } from 'node:crypto';
import { type Context, DiagLogLevel, diag, type MeterProvider as MeterProviderPort } from '@opentelemetry/api';
import { type ExportResult, ExportResultCode } from '@opentelemetry/core';
import { OTLPExporterBase } from '@opentelemetry/otlp-exporter-base';
import { convertLegacyHttpOptions, createOtlpHttpExportDelegate } from '@opentelemetry/otlp-exporter-base/node-http';
import {
  JsonMetricsSerializer,
  JsonTraceSerializer,
  MetricsExporterMetricsHelper,
  ProtobufMetricsSerializer,
  ProtobufTraceSerializer,
  TraceExporterMetricsHelper,
} from '@opentelemetry/otlp-transformer';
import { detectResources, envDetector, type Resource, resourceFromAttributes } from '@opentelemetry/resources';
import {
  AggregationTemporality,
  InstrumentType,
  MeterProvider,
  PeriodicExportingMetricReader,
  type PushMetricExporter,
  type ResourceMetrics,
} from '@opentelemetry/sdk-metrics';
import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  BatchSpanProcessor,
  ParentBasedSampler,
  type ReadableSpan,
  type Sampler,
  type Span,
  type SpanExporter,
  type SpanProcessor,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from '@opentelemetry/sdk-trace';
import { VERSION } from '../../serve/version.ts';
import type { OtlpProtocol, OtlpSettings } from './telemetry-settings.ts';

/** Variables of the environment. */
type Variables = Readonly<Record<string, string | undefined>>;

/** The exporters of this process. */
export interface OtlpExport {
  readonly traces: TracerProvider | undefined;
  readonly metrics: MeterProvider | undefined;
  /** What could not be exported. */
  readonly losses: Losses;
  readonly shutdown: () => Promise<void>;
}

/** Counts what could not be exported, and reports each outage once. */
export class Losses {
  readonly #warn: (line: string) => void;
  readonly #failing = new Set<string>();
  count = 0;

  constructor(warn: (line: string) => void) {
    this.#warn = warn;
  }

  lost(what: string, count: number, why: string): void {
    this.count += count;
    if (this.#failing.has(what)) return;
    this.#failing.add(what);
    this.#warn(`${what} cannot be exported (${why}), and are dropped until that works again. Calls are not affected.`);
  }

  exported(what: string): void {
    if (this.#failing.delete(what)) this.#warn(`${what} are exported again. ${this.count} were lost so far.`);
  }
}

/** Starts the exporters. */
export function startOtlpExport(otlp: OtlpSettings, env: Variables, warn: (line: string) => void): OtlpExport {
  const losses = new Losses(warn);
  // Faults of the SDK itself. What could not be exported is reported by `losses`.
  const ignore = (): void => undefined;
  diag.setLogger(
    { error: ignore, warn, info: ignore, debug: ignore, verbose: ignore },
    { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true },
  );
  const resource = ownResource();
  const traces = otlp.traces && openTraces(otlp.traces, { env, resource, losses });
  const metrics = otlp.metrics && openMetrics(otlp.metrics, { env, resource, losses });
  return {
    traces,
    metrics,
    losses,
    shutdown: async () => {
      await Promise.allSettled([traces?.shutdown(), metrics?.shutdown()]);
    },
  };
}

interface SignalParts {
  readonly env: Variables;
  readonly resource: Resource;
  readonly losses: Losses;
}

/** OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES have priority. */
function ownResource(): Resource {
  const own = resourceFromAttributes({
    'service.name': 'tollgate',
    'service.version': VERSION,
    'service.instance.id': randomUUID(),
  });
  return own.merge(detectResources({ detectors: [envDetector] }));
}

function openTraces(protocol: OtlpProtocol, { env, resource, losses }: SignalParts): TracerProvider {
  const serializer = protocol === 'http/json' ? JsonTraceSerializer : ProtobufTraceSerializer;
  const exporter = new OTLPExporterBase<ReadableSpan[]>(
    createOtlpHttpExportDelegate(
      convertLegacyHttpOptions({}, 'TRACES', 'v1/traces', contentType(protocol)),
      serializer,
      `otlp_${protocol.replace('/', '_')}_span_exporter`,
      TraceExporterMetricsHelper,
      undefined as MeterProviderPort | undefined,
    ),
  );
  const processor = new BoundedSpans(exporter, {
    maxQueueSize: numberIn(env.OTEL_BSP_MAX_QUEUE_SIZE, 2048),
    maxExportBatchSize: numberIn(env.OTEL_BSP_MAX_EXPORT_BATCH_SIZE, 256),
    scheduledDelayMillis: numberIn(env.OTEL_BSP_SCHEDULE_DELAY, 5000),
    exportTimeoutMillis: numberIn(env.OTEL_BSP_EXPORT_TIMEOUT, 30_000),
    losses,
  });
  return new TracerProvider({ resource, sampler: samplerOf(env), spanProcessors: [processor] });
}

interface SpanQueueLimits {
  readonly maxQueueSize: number;
  readonly maxExportBatchSize: number;
  readonly scheduledDelayMillis: number;
  readonly exportTimeoutMillis: number;
  readonly losses: Losses;
}

/** Exports spans in batches. Spans beyond the limit of the queue are dropped, and counted. */
class BoundedSpans implements SpanProcessor {
  readonly #batches: BatchSpanProcessor;
  readonly #limit: number;
  readonly #losses: Losses;
  #waiting = 0;

  constructor(exporter: SpanExporter, { losses, ...limits }: SpanQueueLimits) {
    this.#limit = limits.maxQueueSize;
    this.#losses = losses;
    const counting: SpanExporter = {
      export: (spans, done) =>
        exporter.export(spans, (result: ExportResult) => {
          this.#waiting -= spans.length;
          if (result.code === ExportResultCode.SUCCESS) losses.exported('Spans');
          else losses.lost('Spans', spans.length, reasonOf(result));
          done({ code: ExportResultCode.SUCCESS });
        }),
      shutdown: () => exporter.shutdown(),
    };
    this.#batches = new BatchSpanProcessor({ exporter: counting, ...limits });
  }

  onStart(span: Span, parent: Context): void {
    this.#batches.onStart(span, parent);
  }

  onEnd(span: ReadableSpan): void {
    if ((span.spanContext().traceFlags & 1) === 0) return;
    if (this.#waiting >= this.#limit) return this.#losses.lost('Spans', 1, 'the queue is full');
    this.#waiting += 1;
    this.#batches.onEnd(span);
  }

  forceFlush(): Promise<void> {
    return this.#batches.forceFlush();
  }

  shutdown(): Promise<void> {
    return this.#batches.shutdown();
  }
}

function openMetrics(protocol: OtlpProtocol, { env, resource, losses }: SignalParts): MeterProvider {
  const serializer = protocol === 'http/json' ? JsonMetricsSerializer : ProtobufMetricsSerializer;
  const sender = new OTLPExporterBase<ResourceMetrics>(
    createOtlpHttpExportDelegate(
      convertLegacyHttpOptions({}, 'METRICS', 'v1/metrics', contentType(protocol)),
      serializer,
      `otlp_${protocol.replace('/', '_')}_metric_exporter`,
      MetricsExporterMetricsHelper,
      undefined as MeterProviderPort | undefined,
    ),
  );
  const isDelta = env.OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE?.toLowerCase() === 'delta';
  const exporter: PushMetricExporter = {
    export: (batch, done) =>
      sender.export(batch, (result) => {
        if (result.code === ExportResultCode.SUCCESS) losses.exported('Metrics');
        else losses.lost('Metrics', 1, reasonOf(result));
        done({ code: ExportResultCode.SUCCESS });
      }),
    forceFlush: () => sender.forceFlush(),
    shutdown: () => sender.shutdown(),
    selectAggregationTemporality: (type) =>
      isDelta && type !== InstrumentType.UP_DOWN_COUNTER && type !== InstrumentType.OBSERVABLE_UP_DOWN_COUNTER
        ? AggregationTemporality.DELTA
        : AggregationTemporality.CUMULATIVE,
  };
  const every = numberIn(env.OTEL_METRIC_EXPORT_INTERVAL, 60_000);
  const reader = new PeriodicExportingMetricReader({
    exporter,
    exportIntervalMillis: every,
    exportTimeoutMillis: Math.min(every, numberIn(env.OTEL_METRIC_EXPORT_TIMEOUT, 30_000)),
  });
  return new MeterProvider({ resource, readers: [reader] });
}

function contentType(protocol: OtlpProtocol): Record<string, string> {
  return { 'Content-Type': protocol === 'http/json' ? 'application/json' : 'application/x-protobuf' };
}

/** Names no text of the receiver, which could be anything. */
function reasonOf({ error }: ExportResult): string {
  const code = (error as { readonly code?: unknown } | undefined)?.code;
  return typeof code === 'number' || typeof code === 'string' ? String(code) : 'no answer';
}

/** Returns the sampler that OTEL_TRACES_SAMPLER names; every trace otherwise, unless its client does not sample it. */
function samplerOf({ OTEL_TRACES_SAMPLER: name = '', OTEL_TRACES_SAMPLER_ARG: arg }: Variables): Sampler {
  const written = Number(arg ?? 1);
  const ratio = new TraceIdRatioBasedSampler(written >= 0 && written <= 1 ? written : 1);
  const roots = new Map<string, Sampler>([
    ['always_on', new AlwaysOnSampler()],
    ['always_off', new AlwaysOffSampler()],
    ['traceidratio', ratio],
  ]);
  const root = roots.get(name.replace(/^parentbased_/, '')) ?? new AlwaysOnSampler();
  return roots.has(name) ? root : new ParentBasedSampler({ root });
}

/** The default replaces what is no positive number. */
function numberIn(text: string | undefined, fallback: number): number {
  const number = Number(text);
  return text !== undefined && Number.isFinite(number) && number > 0 ? number : fallback;
}
