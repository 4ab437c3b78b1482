/** The rows of resources/read, resources/subscribe and resources/unsubscribe. */
import { fileURLToPath } from 'node:url';
import { abortable, type ServerAnswer } from '../../adapters/port.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { CallPathHandles } from '../../catalogs/readers/path-handles.ts';
import { andThen } from '../../catalogs/text/awaitable.ts';
import { jsonString } from '../../catalogs/text/json-string.ts';
import type { ToolResult } from '../../catalogs/tools/tool-definition.ts';
import type { Effect } from '../../policies/port.ts';
import type { DecideSteps } from '../call/decide.ts';
import type { EffectSource } from '../call/lowering/call-effect.ts';
import type { LoweredCall, LoweringContext } from '../call/lowering/lowered-call.ts';
import type { ResolveStep } from '../call/resolve.ts';
import { type ShapeStep, shape } from '../call/shape.ts';
import { type BindStep, type BoundArguments, bindArguments } from '../call/validate.ts';
import type { ExposedTool } from '../exposure/exposed-tool.ts';
import { EMPTY_TABLE } from '../exposure/name-table.ts';
import { shownUri } from '../exposure/resource-tables.ts';
import { RESOURCE_READER, resourceForm } from '../output/result-forms.ts';
import { Spills } from '../output/spills.ts';
import { callOfServer, decidedOnly, NOTHING, type Operation } from './operation.ts';

/** Finds the server of the URI. */
const resolveResource: ResolveStep = ({ resources }, { principal, session }, { args, signal }) => {
  const { uri } = (args.value ?? {}) as { readonly uri?: unknown };
  if (typeof uri !== 'string' || uri === '')
    throw new TollgateError('WIRE_PARAMS', { detail: 'params.uri is not a URI.' });
  return andThen(abortable(resources.resolve(principal, uri, session), signal), (exposed) => ({
    table: EMPTY_TABLE,
    exposed,
  }));
};

/** Only the URI is sent, as the server itself names it. */
const bindUri: BindStep = ({ value }, shape) => {
  const { uri } = value as { readonly uri: string };
  return bindArguments({ text: `{"uri":${jsonString(uri)}}`, value: { uri }, exact: true }, shape);
};

function lowerTo(method: string): DecideSteps['lower'] {
  return (exposed, bound, context) => {
    const uri = String(bound.doc.value.uri);
    if (Spills.names(uri)) return lowerSpill(exposed, bound, context);
    const { name: server } = exposed.server;
    const named = sourceOf(server, method, uri);
    if (named === undefined) {
      const effect: Effect = { kind: 'resource', verb: 'read', server, tool: method, paths: [], urls: [], uri };
      return callOfServer(exposed, bound, { method, effect });
    }
    return andThen(context.files.resolve(named), ({ effect, pathHandles }) =>
      callOfServer(exposed, bound, { method, effect: { ...effect, kind: 'resource', uri }, pathHandles }),
    );
  };
}

/**
 * `file:` names a path, and http(s) an address: rules on paths and hosts apply to resources, too. Other URIs name
 * neither.
 */
function sourceOf(server: string, tool: string, uri: string): EffectSource | undefined {
  const scheme = /^(file|https?):/i.exec(uri)?.[1]?.toLowerCase();
  if (scheme === undefined) return undefined;
  return scheme === 'file'
    ? { server, tool, semantics: { verb: 'read', paths: ['uri'] }, args: { uri: pathOfFileUri(uri) } }
    : { server, tool, semantics: { verb: 'read', urls: ['uri'] }, args: { uri } };
}

/** Returns the path of a file URI. One of another host, or with an encoded slash, has no path that rules can judge. */
export function pathOfFileUri(uri: string): unknown {
  try {
    return fileURLToPath(uri);
  } catch {
    return {};
  }
}

/** `spill://HANDLE`, and where to read on: `?offset=2001&limit=100`. */
function lowerSpill(exposed: ExposedTool, bound: BoundArguments, { spills, owner }: LoweringContext): LoweredCall {
  const uri = String(bound.doc.value.uri);
  const [path = '', query] = uri.split('?', 2);
  const asked = new URLSearchParams(query);
  const numbers = ['offset', 'limit'].flatMap((key) => (asked.has(key) ? [[key, Number(asked.get(key))]] : []));
  const args = { path, ...Object.fromEntries(numbers) };
  const { effect, labels } = spills.source(path, owner);
  const { timeoutMs, hardTimeoutMs } = exposed.server;
  return {
    exposed,
    effect,
    pathHandles: new CallPathHandles([]),
    argsText: JSON.stringify(args),
    args,
    labels,
    timeoutMs,
    hardTimeoutMs,
    headShare: 1,
    destination: {
      kind: 'own',
      answer: async ({ cap }) => asContents(uri, await spills.read(args, owner, { ...cap, tool: RESOURCE_READER })),
    },
  };
}

function asContents(uri: string, { value: { content = [] } }: { readonly value: ToolResult }): ServerAnswer {
  const value = { contents: content.map(({ text = '' }) => ({ uri, mimeType: 'text/plain', text })) };
  return { text: JSON.stringify(value), value: value as unknown as ToolResult, exact: true };
}

const shapeContents: ShapeStep = (deps, call) => {
  const { uri } = call.allowed.lowered.effect;
  const { server } = call.allowed.lowered.exposed;
  return shape(deps, call, resourceForm(uri === undefined ? '' : shownUri(server, uri)));
};

/** Reads one resource, or a page of a spill of the same run. */
export const RESOURCE_READ: Operation = {
  kind: 'resource',
  resolve: resolveResource,
  serverOf: ({ resources }, principal, { args }) => {
    const { uri } = (args.value ?? {}) as { readonly uri?: unknown };
    return typeof uri === 'string' ? resources.serverOf(principal, uri) : undefined;
  },
  bind: bindUri,
  lower: lowerTo('resources/read'),
  shape: shapeContents,
};

/** Notes in the session what it follows. The answer has no content. */
function shapeSubscription(note: (subscribed: Set<string>, key: string) => void): ShapeStep {
  return (_deps, { caller, allowed }) => {
    const { server, uri = '' } = allowed.lowered.effect;
    note(caller.session.subscribed, `${server} ${uri}`);
    return NOTHING;
  };
}

/** A spill never changes. */
function lowerToServer(method: string): DecideSteps['lower'] {
  const lower = lowerTo(method);
  return (exposed, bound, context) => {
    if (Spills.names(bound.doc.value.uri)) throw new TollgateError('UNKNOWN_RESOURCE');
    return lower(exposed, bound, context);
  };
}

/** Asks for a notification when a resource changes. Each notification is decided again. */
export const RESOURCE_SUBSCRIBE: Operation = {
  ...RESOURCE_READ,
  lower: lowerToServer('resources/subscribe'),
  shape: shapeSubscription((subscribed, key) => subscribed.add(key)),
};
/** Ends the same. */
export const RESOURCE_UNSUBSCRIBE: Operation = {
  ...RESOURCE_READ,
  lower: lowerToServer('resources/unsubscribe'),
  shape: shapeSubscription((subscribed, key) => subscribed.delete(key)),
};
/** A notification about a resource that a client follows: decided as a subscription, and sent to no server. */
export const RESOURCE_UPDATED: Operation = decidedOnly(RESOURCE_SUBSCRIBE);
