/**
 * Decodes requests of OTLP in protobuf to what they are in JSON, by the numbers of their fields in opentelemetry-proto
 * 1.x. `@opentelemetry/otlp-transformer` encodes requests, and decodes responses only.
 */

/** The name of a field, and its type: the name of a message, or how it is written. `[]`: several. */
type Field = readonly [name: string, type: string];
type Message = Readonly<Record<number, Field>>;

const MESSAGES: Readonly<Record<string, Message>> = {
  Traces: { 1: ['resourceSpans', 'ResourceSpans[]'] },
  ResourceSpans: { 1: ['resource', 'Resource'], 2: ['scopeSpans', 'ScopeSpans[]'], 3: ['schemaUrl', 'string'] },
  Resource: { 1: ['attributes', 'KeyValue[]'], 2: ['droppedAttributesCount', 'varint'] },
  ScopeSpans: { 1: ['scope', 'Scope'], 2: ['spans', 'Span[]'], 3: ['schemaUrl', 'string'] },
  Scope: { 1: ['name', 'string'], 2: ['version', 'string'], 3: ['attributes', 'KeyValue[]'] },
  Span: {
    1: ['traceId', 'hex'],
    2: ['spanId', 'hex'],
    3: ['traceState', 'string'],
    4: ['parentSpanId', 'hex'],
    5: ['name', 'string'],
    6: ['kind', 'varint'],
    7: ['startTimeUnixNano', 'fixed64'],
    8: ['endTimeUnixNano', 'fixed64'],
    9: ['attributes', 'KeyValue[]'],
    10: ['droppedAttributesCount', 'varint'],
    12: ['droppedEventsCount', 'varint'],
    14: ['droppedLinksCount', 'varint'],
    15: ['status', 'Status'],
    16: ['flags', 'fixed32'],
  },
  Status: { 2: ['message', 'string'], 3: ['code', 'varint'] },
  KeyValue: { 1: ['key', 'string'], 2: ['value', 'AnyValue'] },
  AnyValue: {
    1: ['stringValue', 'string'],
    2: ['boolValue', 'varint'],
    3: ['intValue', 'varint'],
    4: ['doubleValue', 'double'],
    5: ['arrayValue', 'ArrayValue'],
  },
  ArrayValue: { 1: ['values', 'AnyValue[]'] },
  Metrics: { 1: ['resourceMetrics', 'ResourceMetrics[]'] },
  ResourceMetrics: { 1: ['resource', 'Resource'], 2: ['scopeMetrics', 'ScopeMetrics[]'], 3: ['schemaUrl', 'string'] },
  ScopeMetrics: { 1: ['scope', 'Scope'], 2: ['metrics', 'Metric[]'], 3: ['schemaUrl', 'string'] },
  Metric: {
    1: ['name', 'string'],
    2: ['description', 'string'],
    3: ['unit', 'string'],
    7: ['sum', 'Points'],
    9: ['histogram', 'Histogram'],
  },
  Points: {
    1: ['dataPoints', 'NumberPoint[]'],
    2: ['aggregationTemporality', 'varint'],
    3: ['isMonotonic', 'varint'],
  },
  NumberPoint: {
    2: ['startTimeUnixNano', 'fixed64'],
    3: ['timeUnixNano', 'fixed64'],
    4: ['asDouble', 'double'],
    6: ['asInt', 'fixed64'],
    7: ['attributes', 'KeyValue[]'],
  },
  Histogram: { 1: ['dataPoints', 'HistogramPoint[]'], 2: ['aggregationTemporality', 'varint'] },
  HistogramPoint: {
    2: ['startTimeUnixNano', 'fixed64'],
    3: ['timeUnixNano', 'fixed64'],
    4: ['count', 'fixed64'],
    5: ['sum', 'double'],
    6: ['bucketCounts', 'packed fixed64'],
    7: ['explicitBounds', 'packed double'],
    9: ['attributes', 'KeyValue[]'],
    11: ['min', 'double'],
    12: ['max', 'double'],
  },
};

/** Decodes a request. Throws at what is not in the table. */
export function decodeOtlp(root: 'Traces' | 'Metrics', bytes: Buffer): unknown {
  const fields = MESSAGES[root];
  return decodeMessage(root, fields as Message, bytes);
}

function decodeMessage(name: string, fields: Message, bytes: Buffer): Record<string, unknown> {
  const decoded: Record<string, unknown> = {};
  for (const [, type] of Object.values(fields)) if (type.endsWith('[]')) decoded[nameOf(fields, type)] = [];
  let at = 0;
  const varint = (): number => {
    let value = 0;
    for (let factor = 1; ; factor *= 128) {
      const byte = bytes[at++] as number;
      value += (byte & 127) * factor;
      if (byte < 128) return value;
    }
  };
  const take = (length: number): Buffer => bytes.subarray(at, (at += length));
  while (at < bytes.length) {
    const tag = varint();
    const raw = [varint, () => take(8), () => take(varint()), undefined, undefined, () => take(4)][tag & 7]?.();
    const field = fields[tag >>> 3];
    if (raw === undefined || field === undefined) throw new Error(`${name} has the unknown field ${tag >>> 3}`);
    const [key, type] = field;
    const value = typeof raw === 'number' ? raw : valueOf(type, raw);
    if (type.endsWith('[]')) (decoded[key] as unknown[]).push(value);
    else decoded[key] = value;
  }
  return decoded;
}

function nameOf(fields: Message, type: string): string {
  return Object.values(fields).find((field) => field[1] === type)?.[0] ?? '';
}

function valueOf(type: string, raw: Buffer): unknown {
  if (type.startsWith('packed '))
    return Array.from({ length: raw.length / 8 }, (_, index) =>
      valueOf(type.slice('packed '.length), raw.subarray(8 * index, 8 * index + 8)),
    );
  switch (type) {
    case 'string':
      return raw.toString();
    case 'hex':
      return raw.toString('hex');
    case 'double':
      return raw.readDoubleLE();
    case 'fixed64':
      return String(raw.readBigUInt64LE());
    case 'fixed32':
      return raw.readUInt32LE();
    default: {
      const message = type.replace('[]', '');
      return decodeMessage(message, MESSAGES[message] as Message, raw);
    }
  }
}
