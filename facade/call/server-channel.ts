/** What a server may send to the client while it works on one call: requests, log messages, and addresses to open. */
import { type AnswerServer, type UpstreamCall, UpstreamError } from '../../adapters/port.ts';
import { isObject, type JsonObject } from '../../adapters/rpc/wire-message.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { ServedServer } from '../exposure/served-server.ts';
import type { Redactor } from '../output/redactor.ts';
import { type LogCounts, ServerMessages } from '../output/server-messages.ts';
import type { CallRequest } from '../serve/facade-port.ts';
import type { Caller } from './identify.ts';

/** A call during which its server may ask the client. */
export interface AskingCall {
  readonly caller: Caller;
  readonly server: ServedServer;
  readonly request: CallRequest;
}

/** Answers the requests of a server during one call. See `ServerRequests` in facade/operations/server-requests.ts. */
export interface ServerRequestAnswers {
  readonly answer: AnswerServer;
  readonly judgeUrls: (asked: UpstreamError) => Promise<void>;
}

/** What a channel needs. */
export interface ServerChannelDependencies {
  readonly redactor: Redactor;
  readonly serverRequests: (call: AskingCall) => ServerRequestAnswers;
}

/** The channel of one call. */
export interface ServerChannel extends Pick<UpstreamCall, 'clientCapabilities' | 'onRequest' | 'onLog' | 'logLevel'> {
  /** Returns the failure to report instead of what a server threw. */
  readonly judge: (thrown: unknown) => Promise<unknown>;
  /** Undefined if there was no message. */
  readonly logs: () => LogCounts | undefined;
}

/** Asks the client to open URLs before the call is repeated (MCP 2025-11-25, elicitation). */
const URL_ELICITATION_REQUIRED = -32042;
const NOTHING: JsonObject = {};
const CLOSED: ServerChannel = { judge: async (thrown) => thrown, logs: () => undefined };

/** Opens the channel. It is closed for a client that cannot be reached, and for servers of this process. */
export function openServerChannel(deps: ServerChannelDependencies, call: AskingCall): ServerChannel {
  const { caller, server, request } = call;
  const { notify } = request;
  if ((notify === undefined && request.ask === undefined) || server.inProcess === true) return CLOSED;
  let messages: ServerMessages | undefined;
  const level = () => request.logLevel ?? caller.session.logLevel ?? 'info';
  const route = notify && { server: server.name, redactor: deps.redactor, level, send: notify };
  const answers = server.asks.length === 0 ? undefined : deps.serverRequests(call);
  return {
    clientCapabilities: supportedBy(request.client ?? caller.session.client, server.asks),
    onRequest: answers?.answer,
    logLevel: route && level(),
    onLog: route && ((params) => (messages ??= new ServerMessages(route)).take(params)),
    judge: async (thrown) => {
      if (!(thrown instanceof UpstreamError) || thrown.rpc.code !== URL_ELICITATION_REQUIRED) return thrown;
      if (answers === undefined) return new TollgateError('URL_ELICITATION_DENIED');
      return answers.judgeUrls(thrown).then(
        () => thrown,
        (refusal: unknown) => refusal,
      );
    },
    logs: () => messages?.counts,
  };
}

/** Returns what the client supports of what the server may ask. */
function supportedBy(client: JsonObject, asks: ServedServer['asks']): JsonObject {
  if (asks.length === 0) return NOTHING;
  return Object.fromEntries(asks.flatMap((kind) => (isObject(client[kind]) ? [[kind, client[kind]]] : [])));
}
