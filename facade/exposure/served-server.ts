/** Owns what a server's configuration says of its tools: what they do, how long they may take; which are offered is the policy's. */
import type { PrimitiveBackend, ServerAdapter } from '../../adapters/port.ts';
import { SHIPPED } from '../../catalogs/servers/shipped-servers.ts';
import type { RawTool, Semantics } from '../../catalogs/tools/tool-definition.ts';
import type { ServerConfig } from '../config/config.ts';
import type { ServedServer } from './catalog.ts';

/** What a tool does that nobody has classified. */
const UNKNOWN: Semantics = { verb: 'destructive' };
/** What the four primitives of the internal server may take; bash has times of its own. */
const INTERNAL_MS = 30_000;

/** What the tools of a server do: by its rules, else by its mapping, else by its own word where the owner lets it count. */
export function createSemantics(
  config: Pick<ServerConfig, 'semantics' | 'trustHints'>,
  known: ReadonlyMap<string, Semantics>,
): ServedServer['semanticsOf'] {
  const rules = config.semantics.map(({ pattern, semantics }) => ({ matches: toolMatcher(pattern), semantics }));
  return (tool, annotations) =>
    rules.find((rule) => rule.matches(tool))?.semantics ??
    known.get(tool) ??
    (config.trustHints ? hinted(annotations) : UNKNOWN);
}

/** An external server as the facade holds it. `known` are semantics that a mapping of catalogs/primitives/ brings. */
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
    ...(config.validateOutput === undefined ? {} : { validateOutput: config.validateOutput }),
    timeoutMs: config.timeoutMs,
    hardTimeoutMs: config.hardTimeoutMs,
  };
}

/** The internal workspace server: its tools are the primitives and are shown in no other way. */
export function serveInternal(backend: PrimitiveBackend): ServedServer {
  return {
    name: backend.name,
    adapter: backend,
    backend,
    semanticsOf: () => UNKNOWN,
    labels: [],
    validateOutput: 'strict',
    timeoutMs: INTERNAL_MS,
    hardTimeoutMs: INTERNAL_MS,
  };
}

/** A server that ships with Tollgate and runs in this process: what its tools do is ours to say. */
export function serveShipped(adapter: ServerAdapter): ServedServer {
  return {
    name: adapter.name,
    adapter,
    inProcess: true,
    semanticsOf: (tool) => SHIPPED.get(adapter.name)?.semantics.get(tool) ?? UNKNOWN,
    labels: [],
    timeoutMs: INTERNAL_MS,
    hardTimeoutMs: INTERNAL_MS,
  };
}

/**
 * What the server says of its tool. Annotations are untrusted (MCP specification, tool annotations): a server that lies about
 * delete_all would open itself, so they count only where the owner has confirmed them (PF-05).
 */
function hinted(annotations: RawTool['annotations']): Semantics {
  if (annotations?.readOnlyHint === true) return { verb: 'read' };
  return annotations?.destructiveHint === false ? { verb: 'write' } : UNKNOWN;
}

/** A name, or a pattern in which `*` stands for any characters. */
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
