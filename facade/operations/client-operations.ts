/**
 * The rows of requests that servers send to the client: sampling, elicitation and roots. Each is decided, limited and
 * recorded like a call. Its texts are cleaned before the client sees them, and the answer before the server does.
 */
import type { ServerAnswer } from '../../adapters/port.ts';
import { isObject, type JsonDoc, type JsonObject } from '../../adapters/rpc/wire-message.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { CallPathHandles } from '../../catalogs/readers/path-handles.ts';
import { andThen } from '../../catalogs/text/awaitable.ts';
import { escapeHostile } from '../../catalogs/text/hostile-text.ts';
import { withoutOwnKeys } from '../../catalogs/tools/own-meta-keys.ts';
import type { ToolResult } from '../../catalogs/tools/tool-definition.ts';
import { createValidator } from '../../catalogs/validation/validator.ts';
import type { AskFact } from '../../policies/port.ts';
import type { LowerStep } from '../call/decide.ts';
import type { OwnLimits } from '../call/lowering/lowered-call.ts';
import type { ShapeStep } from '../call/shape.ts';
import { bindArguments } from '../call/validate.ts';
import { isSecretName } from '../config/servers/secret-shapes.ts';
import type { WrittenPrompt } from '../config/written-config.ts';
import type { ExposedTool } from '../exposure/exposed-tool.ts';
import { EMPTY_TABLE } from '../exposure/name-table.ts';
import type { ServedServer } from '../exposure/served-server.ts';
import type { Redactor } from '../output/redactor.ts';
import { mapStrings } from '../output/result-cleaning.ts';
import type { AskClient } from '../serve/facade-port.ts';
import type { Operation } from './operation.ts';
import { matchesTemplate, textMessage } from './prompt-template.ts';

/** A request of a server to the client, and the channel to the client. */
export interface ServerRequest {
  readonly server: ServedServer;
  readonly method: string;
  readonly ask: AskClient;
  readonly signal: Parameters<AskClient>[2]['signal'];
  /** What the client declared, at its handshake or with the request. */
  readonly client: JsonObject;
  /** The name that the server gives the request among those of its call. */
  readonly key?: string | undefined;
  readonly maxBytes: number;
  readonly redactor: Redactor;
  /** Returns whether the policy lets the server know a root. */
  readonly mayKnow: (uri: string) => Promise<boolean>;
  /** What the messages of a sampling request must match. Absent: any messages pass. */
  readonly template?: WrittenPrompt | undefined;
}

type Kind = 'sampling' | 'elicitation' | 'roots';
const KINDS: ReadonlyMap<string, Kind> = new Map([
  ['sampling/createMessage', 'sampling'],
  ['elicitation/create', 'elicitation'],
  ['roots/list', 'roots'],
]);
const VERBS = { sampling: 'execute', elicitation: 'write', roots: 'read' } as const;
/** The most roots of a client that a server gets. */
const MAX_ROOTS = 64;
const PARAMS = { type: 'object' };
const VALIDATOR = createValidator(PARAMS);
/** Words by which a form asks for a secret, in the name or the text of a field, or in its message. */
const SECRET_WORD = new RegExp(
  [
    'pass(?:word|phrase|code)|secret|credential|api[\\s_-]?key|access[\\s_-]?token|private[\\s_-]?key',
    '\\b(?:pin|otp|2fa|mfa|cvv|cvc|ssn|pwd|token)\\b|one[\\s_-]?time[\\s_-]?code|card[\\s_-]?number',
  ].join('|'),
  'i',
);

/**
 * Returns the operation for one request of a server. Its stages refuse a request that the configuration has not opened,
 * that the client does not support, or that asks for a secret.
 */
export function clientOperation(asked: ServerRequest): Operation {
  const kind = KINDS.get(asked.method);
  return {
    kind: kind ?? 'tool',
    resolve: () => {
      if (kind === undefined || !asked.server.asks.includes(kind))
        throw refused(`Server "${asked.server.name}" may not ask the client for this (servers.*.asks).`);
      return { table: EMPTY_TABLE, exposed: askedItem(asked) };
    },
    serverOf: () => asked.server.name,
    bind: bindArguments,
    lower: lowerTo(asked, kind ?? 'sampling'),
    shape: shapeAnswer(asked.method),
  };
}

function refused(detail: string): TollgateError {
  return new TollgateError('UPSTREAM_REQUEST_DENIED', { detail });
}

/** The texts of the server are cleaned before they are decided, so that what was decided is what the client gets. */
function askedItem({ server, method, maxBytes, redactor, template }: ServerRequest): ExposedTool {
  const clean = (text: string): string => escapeHostile(redactor.redact(text).value).text;
  return {
    name: method,
    server,
    args: {
      schema: PARAMS,
      validator: VALIDATOR,
      lift: (args) => {
        const safe = mapStrings(withoutOwnKeys(args), clean) as typeof args;
        const checked = template === undefined ? safe : withDeclaredMessages(safe, template);
        return { args: checked, changed: checked !== args };
      },
      pins: {},
      maxBytes,
    },
    pin: method,
    text: '',
  };
}

/**
 * A server shapes the prompt of the client's model by sampling, so an owner may declare what its messages are (CY-28).
 * The fallback replaces others. Throws PROMPT_INVALID if there is none.
 */
function withDeclaredMessages(params: JsonObject, { template, fallback }: WrittenPrompt): JsonObject {
  if (params.systemPrompt === undefined && matchesTemplate(template, {}, params.messages)) return params;
  if (fallback === undefined) throw new TollgateError('PROMPT_INVALID');
  const { systemPrompt: _, ...rest } = params;
  return { ...rest, messages: [textMessage(fallback)] };
}

function lowerTo(asked: ServerRequest, kind: Kind): LowerStep {
  return (exposed, bound, { files }) => {
    const { server, method } = asked;
    const params = bound.doc.value;
    const asks = factsOf(kind, params);
    requireSupport(asked.client, kind, asks.mode);
    if (kind === 'elicitation' && asks.mode !== 'url') refuseSecrets(params);
    const semantics = { verb: VERBS[kind], ...(asks.mode === 'url' && { urls: ['url'] }) };
    return andThen(files.resolve({ server: server.name, tool: method, semantics, args: params }), (resolved) => ({
      exposed,
      effect: { ...resolved.effect, kind, asks },
      argsText: bound.doc.text,
      args: params,
      labels: server.labels,
      // A person answers, or a model writes: both take longer than a tool.
      timeoutMs: server.hardTimeoutMs,
      hardTimeoutMs: server.hardTimeoutMs,
      headShare: 1,
      pathHandles: new CallPathHandles([]),
      destination: {
        kind: 'own',
        answer: (limits) => askClient(asked, { kind, doc: bound.doc }, limits),
      },
    }));
  };
}

/** Returns what rules can read about a request. A missing mode is `form` (MCP 2025-11-25, client/elicitation). */
function factsOf(kind: Kind, params: JsonObject): AskFact {
  if (kind === 'sampling') return typeof params.maxTokens === 'number' ? { maxTokens: params.maxTokens } : {};
  if (kind === 'roots') return {};
  if (params.mode === 'url') return { mode: 'url' };
  return { mode: 'form', fields: Object.keys(fieldsOf(params)) };
}

function fieldsOf({ requestedSchema }: JsonObject): JsonObject {
  const properties = isObject(requestedSchema) ? requestedSchema.properties : undefined;
  return isObject(properties) ? properties : {};
}

/**
 * Returns whether a client supports a request. One that declares `elicitation: {}` supports forms (MCP 2025-11-25,
 * client/elicitation).
 */
export function isSupported(client: JsonObject, kind: Kind, mode: AskFact['mode']): boolean {
  const declared = client[kind];
  const hasMode = mode === undefined || (isObject(declared) && isObject(declared[mode]));
  const isPlainForm = mode === 'form' && isObject(declared) && declared.url === undefined;
  return isObject(declared) && (hasMode || isPlainForm);
}

function requireSupport(client: JsonObject, kind: Kind, mode: AskFact['mode']): void {
  if (isSupported(client, kind, mode)) return;
  throw refused(`The client does not support ${kind}${mode === undefined ? '' : ` (${mode})`}.`);
}

/** A form that asks for a secret would hand it to the server, past the vault (attack: phishing by a form). */
function refuseSecrets(params: JsonObject): void {
  const fields = Object.entries(fieldsOf(params));
  const isSecret = ([name, field]: readonly [string, unknown]): boolean =>
    isSecretName(name) ||
    SECRET_WORD.test(name) ||
    (isObject(field) &&
      [field.title, field.description].some((text) => typeof text === 'string' && SECRET_WORD.test(text)));
  const says = typeof params.message === 'string' && SECRET_WORD.test(params.message);
  if (fields.length > 0 && (says || fields.some(isSecret))) throw new TollgateError('FORM_ASKS_SECRET');
}

interface AskedDoc {
  readonly kind: Kind;
  readonly doc: JsonDoc<JsonObject>;
}

async function askClient(
  { server, method, ask, signal, key, mayKnow }: ServerRequest,
  { kind, doc }: AskedDoc,
  { hardTimeoutMs }: OwnLimits,
): Promise<ServerAnswer> {
  // A person must see which server asks: a client shows only the name of Tollgate.
  const { message } = doc.value;
  const named =
    kind === 'elicitation' ? { ...doc.value, message: `[${server.name}] ${String(message ?? '')}` } : undefined;
  const params = named === undefined ? doc.text : JSON.stringify(named);
  const answer = (await ask(method, params, {
    signal,
    timeoutMs: hardTimeoutMs,
    server: server.name,
    key,
  })) as JsonDoc<ToolResult>;
  return kind === 'roots' ? onlyAllowed(answer, mayKnow) : answer;
}

/** A server learns only of the roots that the policy allows it, each as a path. */
async function onlyAllowed(answer: JsonDoc<ToolResult>, mayKnow: ServerRequest['mayKnow']): Promise<ServerAnswer> {
  const { value } = answer;
  const roots = Array.isArray(value.roots) ? (value.roots as readonly unknown[]).slice(0, MAX_ROOTS) : [];
  const known = await Promise.all(roots.map((root) => isObject(root) && mayKnow(String(root.uri))));
  if (Array.isArray(value.roots) && value.roots.length <= MAX_ROOTS && known.every((one) => one)) return answer;
  const kept = { roots: roots.filter((_, at) => known[at]) } as unknown as ToolResult;
  return { text: JSON.stringify(kept), value: kept, exact: true };
}

/** The answer goes to the server: registered secrets are redacted, and nothing else changes. */
function shapeAnswer(method: string): ShapeStep {
  return ({ redactor }, { answer, limits }) => {
    let redactions = 0;
    const clean = mapStrings(answer.value, (text) => {
      const { value, count } = redactor.redact(text);
      redactions += count;
      return value;
    });
    const text = clean === answer.value ? answer.text : JSON.stringify(clean);
    const sent = Buffer.byteLength(text);
    if (sent > limits.cap.bytes)
      throw new TollgateError('OUTPUT_INVALID', {
        detail: `The answer to ${method} is longer than the cap on results.`,
      });
    const { action } = answer.value;
    return {
      text,
      sent,
      cut: false,
      spilled: 0,
      isError: false,
      redactions,
      escaped: 0,
      links: 0,
      ...((action === 'accept' || action === 'decline' || action === 'cancel') && { action }),
    };
  };
}
