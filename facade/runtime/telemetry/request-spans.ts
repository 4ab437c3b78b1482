/** The spans of one request: what a client asked, what was decided about it, and what its server was asked. */
import {
  type Attributes,
  type Context,
  type Span,
  SpanKind,
  SpanStatusCode,
  type Tracer,
  trace as traceApi,
} from '@opentelemetry/api';
import { STATELESS_REVISION } from '../../../adapters/rpc/connection.ts';
import type { WireText } from '../../../adapters/rpc/wire-message.ts';
import type { LoweredCall } from '../../call/lowering/lowered-call.ts';
import type { EndedCall } from '../../call/record.ts';
import type { ServerConfig } from '../../config/config.ts';
import { LIST_METHODS, type Reply, type Session } from '../../serve/facade-port.ts';
import type { FollowedRequest, RequestOrigin, RequestTrace, TracedStage } from '../../serve/request-trace.ts';
import { clientPlace, errorFacts, placeOf, revisionFacts, transportOf } from './span-attributes.ts';
import { contextIn, contextOf } from './trace-context.ts';

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
  readonly origin?: RequestOrigin;
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
/**
 * The errors that say that the request could not be served as it was: no failures of a SERVER by the conventions
 * (rpc.response.status_code).
 */
const FAULTS_OF_CALLERS: ReadonlySet<string> = new Set(['-32700', '-32600', '-32601', '-32602', '-32002']);
/** The longest text of a client or server in an attribute. */
const MAX_TEXT = 256;
/** The stages that have a span. The request to the server has one of its own. */
const SPANS: ReadonlyMap<TracedStage, string> = new Map([
  ['decide', 'tollgate.decide'],
  ['reserve', 'tollgate.reserve'],
  ['shape', 'tollgate.shape'],
]);

/** A time, in milliseconds since 1970. */
type Time = number;

/** Follows one request. A clock that is set back in the meantime changes no duration. */
export class RequestSpans implements RequestTrace {
  readonly session: Session;
  readonly #parts: SpanParts;
  readonly #method: string;
  readonly #id: string | number;
  readonly #isInner: boolean;
  readonly #version: string | undefined;
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
  #client: { readonly span: Span | undefined; readonly at: Time } | undefined;

  constructor(parts: SpanParts, { session, request, origin, outer }: SpanRequest) {
    this.#parts = parts;
    this.session = session;
    this.#isInner = outer !== undefined;
    this.#id = request.id;
    this.#method = METHODS.has(request.method) ? request.method : '_OTHER';
    // Between a server and the client, Tollgate is the client of the client.
    const isToClient = outer !== undefined && TO_CLIENT.has(this.#method);
    const version = isToClient ? outer.#version : origin?.version;
    this.#version = version;
    this.#facts = {
      'mcp.method.name': this.#method,
      ...(this.#method === 'tools/call' && { 'gen_ai.operation.name': 'execute_tool' }),
      ...revisionFacts(version),
      ...((outer === undefined || isToClient) && transportOf(session.transport)),
    };
    const parent = outer === undefined ? contextIn(request.params?.value._meta) : outer.#context;
    this.#span = parts.tracer?.startSpan(
      this.#method,
      {
        kind: outer === undefined ? SpanKind.SERVER : isToClient ? SpanKind.CLIENT : SpanKind.INTERNAL,
        startTime: this.#wallStart,
        attributes: { ...this.#facts, ...clientPlace(origin?.client), ...this.#about(request) },
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
    return span && contextOf(span, this.#context);
  }

  sent(id: number, session?: string): void {
    this.#client?.span?.setAttributes({
      'jsonrpc.request.id': String(id),
      ...(session !== undefined && { 'mcp.session.id': session }),
    });
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
    const isFailure = error !== undefined && (this.#isInner || !FAULTS_OF_CALLERS.has(error));
    const ended = this.#now();
    const { 'error.type': type, ...known } = errorFacts(error);
    const facts = { ...this.#facts, ...known, ...(isFailure && { 'error.type': type }) };
    this.#span?.setAttributes(facts);
    if (isFailure) this.#span?.setStatus({ code: SpanStatusCode.ERROR });
    this.#span?.end(ended);
    if (!this.#isInner) this.#parts.record('mcp.server.operation.duration', (ended - this.#wallStart) / 1000, facts);
  }

  #now(): Time {
    return this.#wallStart + performance.now() - this.#began;
  }

  /** Returns the attributes that only a span has. */
  #about({ id, params }: FollowedRequest): Attributes {
    const { name, uri } = params?.value ?? {};
    const hasSession = this.#facts['network.transport'] !== undefined && this.#version !== STATELESS_REVISION;
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
      ...revisionFacts(version),
      ...(server !== undefined && placeOf(server)),
      ...errorFacts(error),
      'tollgate.server': judged?.lowered?.effect.server ?? '',
    };
    const ended = client.at + (forwarded.upstreamMs ?? 0);
    const seconds = (forwarded.upstreamMs ?? 0) / 1000;
    this.#parts.record('mcp.client.operation.duration', seconds, facts);
    const { span } = client;
    if (span === undefined) return;
    span.setAttributes(facts);
    const uri = uriIn(judged?.lowered);
    if (this.#method.startsWith('resources/') && uri !== undefined)
      span.setAttribute('mcp.resource.uri', this.#clean(uri));
    if (isTool || this.#method === 'prompts/get') span.updateName(`${this.#method} ${tool}`);
    if (error !== undefined) span.setStatus({ code: SpanStatusCode.ERROR });
    span.end(ended);
  }
}

/** Returns the number of a JSON-RPC error in a response that Tollgate wrote itself; undefined for a result. */
function refusalCode(text: WireText, id: string | number): string | undefined {
  const head = `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"error":{"code":`;
  if (typeof text !== 'string' || !text.startsWith(head)) return undefined;
  return /^-?\d+/.exec(text.slice(head.length, head.length + 16))?.[0];
}

/** Returns the URI that a server is asked for, as the server calls it. */
function uriIn(lowered: LoweredCall | undefined): string | undefined {
  if (lowered === undefined || lowered.destination.kind === 'own') return undefined;
  const { uri } = lowered.destination.args.value;
  return typeof uri === 'string' ? uri : undefined;
}
