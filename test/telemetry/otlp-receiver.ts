/** A receiver of OTLP over HTTP on the loopback, in JSON or protobuf, which keeps what it got. */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { decodeOtlp } from './otlp-messages.ts';

type Value = { readonly stringValue?: string; readonly intValue?: number; readonly doubleValue?: number } & {
  readonly arrayValue?: { readonly values: readonly Value[] };
  readonly boolValue?: boolean;
};
type Attribute = { readonly key: string; readonly value: Value };
/** Attributes as plain values. */
export type Plain = Readonly<Record<string, unknown>>;

/** A span as it was received. */
export interface ReceivedSpan {
  readonly name: string;
  /** 1 internal, 2 server, 3 client. */
  readonly kind: number;
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly traceState?: string;
  readonly startTimeUnixNano: string;
  readonly endTimeUnixNano: string;
  readonly status: { readonly code: number; readonly message?: string };
  readonly attributes: Plain;
}

/** One series of a metric. */
export interface ReceivedSeries {
  readonly name: string;
  readonly unit: string;
  readonly attributes: Plain;
  readonly bounds: readonly number[] | undefined;
  readonly count: number;
  readonly sum: number;
}

/** A running receiver. */
export interface OtlpReceiver {
  readonly url: string;
  readonly bodies: { readonly path: string; readonly headers: IncomingMessage['headers']; readonly body: Buffer }[];
  spans(): readonly ReceivedSpan[];
  /** The series of the last export. */
  series(): readonly ReceivedSeries[];
  resource(): Plain;
  close(): Promise<void>;
}

/** Protobuf leaves out zeros. */
const NO_STATUS = { code: 0 };

/** Starts a receiver. `answer`: how it answers; default 200. */
export async function receiveOtlp(
  answer: (response: ServerResponse) => void = (response) => void response.writeHead(200).end('{}'),
): Promise<OtlpReceiver> {
  const bodies: OtlpReceiver['bodies'] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      bodies.push({ path: request.url ?? '', headers: request.headers, body: Buffer.concat(chunks) });
      answer(response);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const received = (path: '/v1/traces' | '/v1/metrics'): readonly JsonExport[] =>
    bodies
      .filter((one) => one.path === path)
      .map(({ headers, body }) => {
        if (headers['content-type'] === 'application/json') return JSON.parse(body.toString()) as JsonExport;
        return decodeOtlp(path === '/v1/traces' ? 'Traces' : 'Metrics', body) as JsonExport;
      });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    bodies,
    spans: () =>
      received('/v1/traces')
        .flatMap(({ resourceSpans = [] }) => resourceSpans)
        .flatMap(({ scopeSpans }) => scopeSpans)
        .flatMap(({ spans }) => spans)
        .map((span) => ({ ...span, status: { ...NO_STATUS, ...span.status }, attributes: plain(span.attributes) })),
    series: () =>
      received('/v1/metrics')
        .slice(-1)
        .flatMap(({ resourceMetrics = [] }) => resourceMetrics)
        .flatMap(({ scopeMetrics }) => scopeMetrics)
        .flatMap(({ metrics }) => metrics)
        .flatMap(({ name, unit, histogram, sum }) =>
          [...(histogram?.dataPoints ?? []), ...(sum?.dataPoints ?? [])].map((point) => ({
            name,
            unit,
            attributes: plain(point.attributes),
            bounds: point.explicitBounds,
            count: Number(point.count ?? 0),
            sum: Number(point.sum ?? point.asDouble ?? point.asInt ?? 0),
          })),
        ),
    resource: () => plain(received('/v1/traces')[0]?.resourceSpans?.[0]?.resource.attributes ?? []),
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

interface JsonPoint {
  readonly attributes: readonly Attribute[];
  readonly explicitBounds?: readonly number[];
  readonly count?: number | string;
  readonly sum?: number;
  readonly asDouble?: number;
  readonly asInt?: number | string;
}

interface JsonExport {
  readonly resourceSpans?: readonly {
    readonly resource: { readonly attributes: readonly Attribute[] };
    readonly scopeSpans: readonly {
      readonly spans: readonly (Omit<ReceivedSpan, 'attributes'> & { readonly attributes: readonly Attribute[] })[];
    }[];
  }[];
  readonly resourceMetrics?: readonly {
    readonly scopeMetrics: readonly {
      readonly metrics: readonly {
        readonly name: string;
        readonly unit: string;
        readonly histogram?: { readonly dataPoints: readonly JsonPoint[] };
        readonly sum?: { readonly dataPoints: readonly JsonPoint[] };
      }[];
    }[];
  }[];
}

function plain(attributes: readonly Attribute[]): Plain {
  return Object.fromEntries(attributes.map(({ key, value }) => [key, valueOf(value)]));
}

function valueOf({ stringValue, intValue, doubleValue, boolValue, arrayValue }: Value): unknown {
  if (arrayValue !== undefined) return arrayValue.values.map(valueOf);
  return stringValue ?? (intValue === undefined ? undefined : Number(intValue)) ?? doubleValue ?? boolValue;
}
