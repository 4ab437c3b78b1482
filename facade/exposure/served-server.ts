/**
 * A server with its settings: the semantics of its tools, and their timeouts. The policy decides which tools are shown.
 */
import type { PrimitiveBackend, ServerAdapter } from '../../adapters/port.ts';
import { CODE, SHIPPED } from '../../catalogs/servers/shipped-servers.ts';
import type { RawTool, Semantics } from '../../catalogs/tools/tool-definition.ts';
import type { ServerConfig } from '../config/config.ts';

/** A server of the current snapshot. */
export interface ServedServer {
  readonly name: string;
  readonly adapter: ServerAdapter;
  /** Present if it can serve primitives. */
  readonly backend?: PrimitiveBackend;
  /** The server runs in this process and gets the identity of the caller. */
  readonly inProcess?: true;
  /** Returns the semantics of a tool. Its annotations count only if the owner trusts them. */
  readonly semanticsOf: (tool: string, annotations?: RawTool['annotations']) => Semantics;
  readonly labels: readonly string[];
  /** How clients see the URIs of its resources. */
  readonly uri: ServerConfig['uri'];
  /** What it may ask of clients, if the policy allows it. */
  readonly asks: NonNullable<ServerConfig['asks']>;
  readonly validateOutput?: 'off' | 'warn' | 'strict';
  /** What it gets of the trace of a client. Absent: it runs in this process, and gets nothing. */
  readonly trace?: ServerConfig['trace'];
  readonly timeoutMs: number;
  readonly hardTimeoutMs: number;
}

/** The semantics of a tool without a classification. */
const UNKNOWN: Semantics = { verb: 'destructive' };
/** Timeout of the workspace server's primitives; `bash` has its own. */
const INTERNAL_MS = 30_000;

/**
 * Returns the semantics of a server's tools: by the owner's rules, then by the mapping, then by annotations that the
 * owner trusts.
 */
export function createSemantics(
  config: Pick<ServerConfig, 'semantics' | 'trustHints'>,
  known: ReadonlyMap<string, Semantics>,
): ServedServer['semanticsOf'] {
  const rules = config.semantics.map(({ pattern, semantics }) => ({ matches: toolMatcher(pattern), semantics }));
  return (tool, annotations) =>
    rules.find((rule) => rule.matches(tool))?.semantics ??
    known.get(tool) ??
    (config.trustHints ? semanticsFromHints(annotations) : UNKNOWN);
}

/** Returns an external server. `known`: semantics from a mapping in catalogs/primitives/. */
export function serveExternal(
  config: ServerConfig,
  parts: { adapter: ServerAdapter; backend?: PrimitiveBackend; known: ReadonlyMap<string, Semantics> },
): ServedServer {
  return {
    name: config.name,
    adapter: parts.adapter,
    ...(parts.backend === undefined ? {} : { backend: parts.backend }),
    semanticsOf: createSemantics(config, parts.known),
    labels: config.labels,
    uri: config.uri,
    asks: config.asks ?? [],
    trace: config.trace,
    ...(config.validateOutput === undefined ? {} : { validateOutput: config.validateOutput }),
    timeoutMs: config.timeoutMs,
    hardTimeoutMs: config.hardTimeoutMs,
  };
}

/** Returns the internal workspace server. Its tools are shown only as primitives. */
export function serveInternal(backend: PrimitiveBackend): ServedServer {
  return {
    name: backend.name,
    adapter: backend,
    backend,
    semanticsOf: () => UNKNOWN,
    labels: [],
    uri: 'prefixed',
    asks: [],
    validateOutput: 'strict',
    timeoutMs: INTERNAL_MS,
    hardTimeoutMs: INTERNAL_MS,
  };
}

/** Returns a server that ships with Tollgate and runs in this process. Tollgate declares the semantics of its tools. */
export function serveShipped(adapter: ServerAdapter): ServedServer {
  return {
    name: adapter.name,
    adapter,
    inProcess: true,
    // The code of an owner has no effect of its own: each call that it makes is decided by itself.
    semanticsOf: (tool) =>
      SHIPPED.get(adapter.name)?.semantics.get(tool) ?? (adapter.name === CODE ? { verb: 'read' } : UNKNOWN),
    labels: [],
    uri: 'prefixed',
    asks: [],
    timeoutMs: INTERNAL_MS,
    hardTimeoutMs: INTERNAL_MS,
  };
}

/**
 * Returns the semantics in annotations. Annotations are untrusted (MCP specification, tool annotations): a server could
 * declare `delete_all` as read-only. They count only if the owner confirmed them (PF-05).
 */
function semanticsFromHints(annotations: RawTool['annotations']): Semantics {
  if (annotations?.readOnlyHint === true) return { verb: 'read' };
  return annotations?.destructiveHint === false ? { verb: 'write' } : UNKNOWN;
}

/** Returns a test for a name, or for a pattern in which `*` matches any characters. */
export function toolMatcher(pattern: string): (name: string) => boolean {
  if (!pattern.includes('*')) return (name) => name === pattern;
  const form = new RegExp(
    `^${pattern
      .split('*')
      .map((part) => part.replace(/[$()+.?[\\\]^{|}]/g, '\\$&'))
      .join('.*')}$`,
    's',
  );
  return (name) => form.test(name);
}
