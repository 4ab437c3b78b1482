/** Trace contexts in `params._meta`: of clients, and for servers (W3C Trace Context). */
import { type Context, ROOT_CONTEXT, type Span, trace as traceApi } from '@opentelemetry/api';
import { W3CTraceContextPropagator } from '@opentelemetry/core';
import { isObject } from '../../../adapters/rpc/wire-message.ts';

/** The longest `traceparent` and `tracestate` that are read (W3C Trace Context, 3.3.1.1). */
const MAX_CONTEXT = 512;

const W3C = new W3CTraceContextPropagator();

/**
 * Returns the context that a client sent. One that the W3C does not allow is dropped: the request begins a trace of its
 * own then.
 */
export function contextIn(meta: unknown): Context {
  if (!isObject(meta)) return ROOT_CONTEXT;
  const { traceparent, tracestate } = meta;
  if (!isContextText(traceparent) || /\s/.test(traceparent)) return ROOT_CONTEXT;
  const carrier = { traceparent, ...(isContextText(tracestate) && { tracestate }) };
  return W3C.extract(ROOT_CONTEXT, carrier, {
    get: (from, key) => (key === 'traceparent' ? from.traceparent : from.tracestate),
    keys: (from) => Object.keys(from),
  });
}

/** Returns what a server gets of a span and its trace. */
export function contextOf(span: Span, parent: Context): Readonly<Record<string, string>> {
  const carrier: Record<string, string> = {};
  W3C.inject(traceApi.setSpan(parent, span), carrier, {
    set: (to, key, value) => {
      if (value !== '') to[key] = value;
    },
  });
  return carrier;
}

function isContextText(text: unknown): text is string {
  return typeof text === 'string' && text.length <= MAX_CONTEXT && /^[\t\x20-\x7e]+$/.test(text);
}
