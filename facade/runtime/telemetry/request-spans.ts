/** The spans of one request: what a client asked, what was decided about it, and what its server was asked. */
import {
  type Attributes,
  type Context,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  type Tracer,
  trace as traceApi,
} from '@opentelemetry/api';
import { W3CTraceContextPropagator } from '@opentelemetry/core';
import { STATELESS_REVISION } from '../../../adapters/rpc/connection.ts';
import { isObject, type WireText } from '../../../adapters/rpc/wire-message.ts';
import type { EndedCall } from '../../call/record.ts';
import type { ServerConfig } from '../../config/config.ts';
import { LIST_METHODS, type Reply, type Session } from '../../serve/facade-port.ts';
import type { FollowedRequest, RequestTrace, TracedStage } from '../../serve/request-trace.ts';
import { placeOf, transportOf } from './server-places.ts';

/** What all requests share. */
export interface SpanParts {
  /** Absent: requests are measured and not traced. */
  readonly tracer: Tracer | undefined;
  readonly redact: (text: string) => string;
  /** Returns the code of a failure at a server. */
  readonly codeOf: (failure: unknown) => string;
  readonly record: (metric: string, seconds: number, attributes: Attributes) => void;
  readonly onBegin: (decision: string, spans: RequestSpans) => void;
}

/** A request, and the call during which it is made. */
export interface SpanRequest {
  readonly session: Session;
  readonly request: FollowedRequest;
  readonly version?: string | undefined;
  /** Present for requests of code and of servers. */
  readonly outer?: RequestSpans;
}

/** The methods that are named; a client could invent others without end. */
const METHODS: ReadonlySet<string> = new Set([
  ...LIST_METHODS,
  'initialize',
  'ping',
  'logging/setLevel',
  'tools/call',
  'resources/read',
  'resources/subscribe',
  'resources/unsubscribe',
  'prompts/get',
  'completion/complete',
  'server/discover',
  'subscriptions/listen',
  'tasks/get',
  'tasks/list',
  'tasks/result',
  'tasks/update',
  'tasks/cancel',
  'sampling/createMessage',
  'elicitation/create',
  'roots/list',
]);
/** The requests that a server makes to the client. */
const TO_CLIENT: ReadonlySet<string> = new Set(['sampling/createMessage', 'elicitation/create', 'roots/list']);
/** The longest text of a client or server in an attribute. */
const MAX_TEXT = 256;
/** The longest `traceparent` and `tracestate` that are read (W3C Trace Context, 3.3.1.1). */
const MAX_CONTEXT = 512;
/** The stages that have a span. The request to the server has one of its own. */
const SPANS: ReadonlyMap<TracedStage, string> = new Map([
  ['decide', 'tollgate.decide'],
  ['reserve', 'tollgate.reserve'],
  ['shape', 'tollgate.shape'],
]);

const W3C = new W3CTraceContextPropagator();

/** A time, in milliseconds since 1970. */
type Time = number;

/** Follows one request. A clock that is set back in the meantime changes no duration. */
export class RequestSpans implements RequestTrace {
  readonly session: Session;
  readonly #parts: SpanParts;
  readonly #method: string;
  readonly #id: string | number;
  readonly #isInner: boolean;
  readonly #span: Span | undefined;
  readonly #context: Context;
  readonly #wallStart: Time = Date.now();
  readonly #began = performance.now();
  readonly #stages: { readonly stage: TracedStage; readonly at: Time }[] = [];
  readonly #waits: { readonly from: Time; to: Time | undefined }[] = [];
  /** What metrics have of the request too. */
  #facts: Attributes;
  #error: string | undefined;
  #isCall = false;
  #isEnded = false;
  #client: { readonly span: Span | undefined; readonly at: Time; id?: number } | undefined;

  constructor(parts: SpanParts, { session, request, version, outer }: SpanRequest) {
    this.#parts = parts;
    this.session = session;
    this.#isInner = outer !== undefined;
    this.#id = request.id;
    this.#method = METHODS.has(request.method) ? request.method : '_OTHER';
    this.#facts = {
      'mcp.method.name': this.#method,
      ...(this.#method === 'tools/call' && { 'gen_ai.operation.name': 'execute_tool' }),
      ...(version !== undefined && { 'mcp.protocol.version': version }),
      ...(outer === undefined && transportOf(session.transport)),
    };
    const parent = outer === undefined ? contextIn(request.params?.value._meta) : outer.#context;
    this.#span = parts.tracer?.startSpan(
      this.#method,
      {
        kind: outer === undefined ? SpanKind.SERVER : TO_CLIENT.has(this.#method) ? SpanKind.CLIENT : SpanKind.INTERNAL,
        startTime: this.#wallStart,
        attributes: { ...this.#facts, ...this.#about(request) },
      },
      parent,
    );
    this.#context = this.#span === undefined ? parent : traceApi.setSpan(parent, this.#span);
  }

  /** The ids of its trace and its span. */
  get ids(): { readonly trace_id: string; readonly span_id: string } | undefined {
    const context = this.#span?.spanContext();
    return context && { trace_id: context.traceId, span_id: context.spanId };
  }

  begin(decision: string): void {
    this.#isCall = true;
    this.#parts.onBegin(decision, this);
  }

  enter(stage: TracedStage): void {
    this.#stages.push({ stage, at: this.#now() });
  }

  waiting<T>(consent: Promise<T>): Promise<T> {
    const wait: { readonly from: Time; to: Time | undefined } = { from: this.#now(), to: undefined };
    this.#waits.push(wait);
    const end = (): void => void (wait.to = this.#now());
    consent.then(end, end);
    return consent;
  }

  sending(): Readonly<Record<string, string>> | undefined {
    const at = this.#now();
    const span = this.#parts.tracer?.startSpan(
      this.#method,
      { kind: SpanKind.CLIENT, startTime: at, attributes: { 'mcp.method.name': this.#method } },
      this.#context,
    );
    this.#client = { span, at };
    if (span === undefined) return undefined;
    const carrier: Record<string, string> = {};
    W3C.inject(traceApi.setSpan(this.#context, span), carrier, {
      set: (to, key, value) => {
        if (value !== '') to[key] = value;
      },
    });
    return carrier;
  }

  sent(id: number): void {
    if (this.#client !== undefined) this.#client.id = id;
  }

  answered(text: WireText | undefined): void {
    // What a call ended with is known already, unless it goes on as a task.
    if (text === undefined) this.#error ??= 'cancelled';
    else if (!this.#isCall) this.#error ??= refusalCode(text, this.#id);
    this.#end();
  }

  /** The call has ended. Its answer leaves after this. */
  noteEnd(end: EndedCall, answered: Reply, server: ServerConfig | undefined): void {
    const isToolError = end.error !== undefined || (end.kind === 'sent' && end.shaped?.isError === true);
    if (answered.kind === 'error') this.#error = String(answered.error.code);
    else if (isToolError) this.#error = 'tool_error';
    const target = this.#targetOf(end);
    this.#facts = { ...this.#facts, ...target };
    // The request of a call that goes on as a task, or was cancelled, has ended before.
    const span = this.#isEnded ? undefined : this.#span;
    if (target !== undefined) span?.updateName(`${this.#method} ${Object.values(target)[0]}`);
    span?.setAttributes({ ...this.#facts, ...this.#decided(end) });
    this.#endStages(end);
    this.#endClient(end, server);
    if (this.#isInner) this.#end();
  }

  #end(): void {
    this.#isEnded = true;
    const error = this.#error;
    const ended = this.#now();
    const facts = {
      ...this.#facts,
      ...(error !== undefined && { 'error.type': error }),
      ...(isCode(error) && { 'rpc.response.status_code': error }),
    };
    this.#span?.setAttributes(facts);
    if (error !== undefined) this.#span?.setStatus({ code: SpanStatusCode.ERROR });
    this.#span?.end(ended);
    if (!this.#isInner) this.#parts.record('mcp.server.operation.duration', (ended - this.#wallStart) / 1000, facts);
  }

  #now(): Time {
    return this.#wallStart + performance.now() - this.#began;
  }

  /** Returns the attributes that only a span has. */
  #about({ id, params }: FollowedRequest): Attributes {
    const { name, uri } = params?.value ?? {};
    const hasSession = !this.#isInner && this.#facts['mcp.protocol.version'] !== STATELESS_REVISION;
    return {
      ...(!this.#isInner && { 'jsonrpc.request.id': this.#clean(String(id)) }),
      ...(hasSession && { 'mcp.session.id': this.session.id }),
      ...(this.#method === 'tools/call' && typeof name === 'string' && { 'gen_ai.tool.name': this.#clean(name) }),
      ...(this.#method === 'prompts/get' && typeof name === 'string' && { 'gen_ai.prompt.name': this.#clean(name) }),
      ...(this.#method.startsWith('resources/') && typeof uri === 'string' && { 'mcp.resource.uri': this.#clean(uri) }),
    };
  }

  #clean(text: string): string {
    return this.#parts.redact(text.slice(0, 4 * MAX_TEXT)).slice(0, MAX_TEXT);
  }

  /** Returns the name of the tool or prompt, if it exists: other names could be invented without end. */
  #targetOf({ exposed }: EndedCall): Attributes | undefined {
    if (exposed === undefined) return undefined;
    if (this.#method === 'tools/call') return { 'gen_ai.tool.name': exposed.name };
    return this.#method === 'prompts/get' ? { 'gen_ai.prompt.name': exposed.name } : undefined;
  }

  #decided({ start, judged, error }: EndedCall): Attributes {
    const { decision } = judged ?? {};
    return {
      'tollgate.decision.id': start.id,
      ...(decision !== undefined && {
        'tollgate.outcome': decision.outcome,
        'tollgate.rule': decision.reasons.map(({ id }) => id),
      }),
      ...(error !== undefined && { 'tollgate.code': error.code }),
    };
  }

  #endStages(end: EndedCall): void {
    const { tracer } = this.#parts;
    if (tracer === undefined) return;
    this.#stages.forEach(({ stage, at }, index) => {
      const name = SPANS.get(stage);
      if (name === undefined) return;
      const { 'tollgate.code': code, ...decided } = this.#decided(end);
      const attributes = stage === 'decide' ? decided : {};
      const span = tracer.startSpan(name, { startTime: at, attributes }, this.#context);
      const until = this.#stages[index + 1]?.at ?? this.#now();
      if (stage === 'decide') this.#endWaits(traceApi.setSpan(this.#context, span), until);
      // The stage after which nothing but the settling came has failed.
      const hasFailed = this.#stages[index + 1]?.stage === 'settle' && end.error !== undefined;
      if (hasFailed) span.setStatus({ code: SpanStatusCode.ERROR });
      if (hasFailed && code !== undefined) span.setAttribute('error.type', code);
      span.end(until);
    });
  }

  #endWaits(decide: Context, until: Time): void {
    for (const { from, to = until } of this.#waits)
      this.#parts.tracer?.startSpan('tollgate.approval.wait', { startTime: from }, decide).end(to);
  }

  #endClient(end: EndedCall, server: ServerConfig | undefined): void {
    const client = this.#client;
    if (client === undefined || end.kind !== 'sent') return;
    const { forwarded, exposed, judged } = end;
    const { answer, failure } = forwarded;
    const error =
      answer === undefined ? this.#parts.codeOf(failure) : answer.value.isError === true ? 'tool_error' : undefined;
    const tool = judged?.lowered?.effect.tool ?? '';
    const isTool = this.#method === 'tools/call';
    const version = exposed?.server.adapter.info()?.protocolVersion;
    const facts: Attributes = {
      'mcp.method.name': this.#method,
      ...(isTool && { 'gen_ai.tool.name': tool, 'gen_ai.operation.name': 'execute_tool' }),
      ...(this.#method === 'prompts/get' && { 'gen_ai.prompt.name': tool }),
      ...(version !== undefined && { 'mcp.protocol.version': version }),
      ...(server !== undefined && placeOf(server)),
      ...(error !== undefined && { 'error.type': error }),
      ...(isCode(error) && { 'rpc.response.status_code': error }),
      'tollgate.server': judged?.lowered?.effect.server ?? '',
    };
    const ended = client.at + (forwarded.upstreamMs ?? 0);
    const seconds = (forwarded.upstreamMs ?? 0) / 1000;
    this.#parts.record('mcp.client.operation.duration', seconds, facts);
    const { span } = client;
    if (span === undefined) return;
    span.setAttributes(facts);
    if (client.id !== undefined) span.setAttribute('jsonrpc.request.id', String(client.id));
    if (isTool || this.#method === 'prompts/get') span.updateName(`${this.#method} ${tool}`);
    if (error !== undefined) span.setStatus({ code: SpanStatusCode.ERROR });
    span.end(ended);
  }
}

/**
 * Returns the context that a client sent. One that the W3C does not allow is dropped: the request begins a trace of its
 * own then.
 */
function contextIn(meta: unknown): Context {
  if (!isObject(meta)) return ROOT_CONTEXT;
  const { traceparent, tracestate } = meta;
  if (!isContextText(traceparent) || /\s/.test(traceparent)) return ROOT_CONTEXT;
  const carrier = { traceparent, ...(isContextText(tracestate) && { tracestate }) };
  return W3C.extract(ROOT_CONTEXT, carrier, {
    get: (from, key) => (key === 'traceparent' ? from.traceparent : from.tracestate),
    keys: (from) => Object.keys(from),
  });
}

function isContextText(text: unknown): text is string {
  return typeof text === 'string' && text.length <= MAX_CONTEXT && /^[\t\x20-\x7e]+$/.test(text);
}

/** Returns the number of a JSON-RPC error in a response that Tollgate wrote itself; undefined for a result. */
function refusalCode(text: WireText, id: string | number): string | undefined {
  const head = `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"error":{"code":`;
  if (typeof text !== 'string' || !text.startsWith(head)) return undefined;
  return /^-?\d+/.exec(text.slice(head.length, head.length + 16))?.[0];
}

function isCode(error: string | undefined): error is string {
  return error !== undefined && /^-?\d+$/.test(error);
}
