/** Answers the requests that a server sends to the client during a call. */
import { type AnswerServer, UpstreamError } from '../../adapters/port.ts';
import { isObject, type JsonDoc, type JsonObject, joinText } from '../../adapters/rpc/wire-message.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Semantics } from '../../catalogs/tools/tool-definition.ts';
import { isoTime } from '../audit/audit-chain.ts';
import { type CallDependencies, perform } from '../call/call.ts';
import type { AskingCall, ServerRequestAnswers } from '../call/server-channel.ts';
import type { AskClient } from '../serve/facade-port.ts';
import { clientOperation, isSupported } from './client-operations.ts';
import { pathOfFileUri } from './resource-operation.ts';

/** Requests that one call may make in all, and at once. */
const MAX_ROUNDS = 10;
const MAX_OPEN = 2;
const NO_PARAMS: JsonDoc<JsonObject> = { text: '{}', value: {}, exact: true };

/** The requests of one call. */
export class ServerRequests implements ServerRequestAnswers {
  readonly #deps: CallDependencies;
  readonly #call: AskingCall;
  #rounds = 0;
  #open = 0;

  constructor(deps: CallDependencies, call: AskingCall) {
    this.#deps = deps;
    this.#call = call;
  }

  /**
   * Returns the text of the client's result. Rejects with UpstreamError for the client's own error, and with
   * UPSTREAM_REQUEST_DENIED for any refusal: its reason is in the audit.
   */
  readonly answer: AnswerServer = async (method, params = NO_PARAMS, key) => {
    const { request } = this.#call;
    // A server of revision 2026-07-28 asks all of one round at once, each with a key.
    const mayOpen = key === undefined ? MAX_OPEN : MAX_ROUNDS;
    if (request.ask === undefined || this.#rounds >= MAX_ROUNDS || this.#open >= mayOpen)
      throw new TollgateError('UPSTREAM_REQUEST_DENIED');
    return this.#perform(method, params, { ask: request.ask, key });
  };

  /**
   * Decides an error that asks the client to open URLs before it repeats the call (MCP 2025-11-25, elicitation). The
   * client gets the error only if each URL is allowed. Throws URL_ELICITATION_DENIED, and CLIENT_CAPABILITY if the
   * client has said with this request that it opens none.
   */
  readonly judgeUrls = async ({ rpc }: UpstreamError): Promise<void> => {
    const { client } = this.#call.request;
    if (client !== undefined && !isSupported(client, 'elicitation', 'url'))
      throw new TollgateError('CLIENT_CAPABILITY', { data: { requiredCapabilities: { elicitation: { url: {} } } } });
    const { elicitations } = isObject(rpc.data) ? rpc.data : {};
    const urls = Array.isArray(elicitations) ? (elicitations as readonly unknown[]) : [];
    const isAsked = urls.length > 0 && urls.length <= MAX_ROUNDS && this.#call.request.ask !== undefined;
    const passed: JsonDoc<JsonObject> = { text: '{}', value: {}, exact: true };
    for (const asked of isAsked ? urls : [undefined]) {
      const value = isObject(asked) ? { ...asked, mode: 'url' } : undefined;
      if (value === undefined) throw new TollgateError('URL_ELICITATION_DENIED');
      const doc = { text: JSON.stringify(value), value, exact: true };
      await this.#perform('elicitation/create', doc, { ask: async () => passed }).catch((cause: unknown) => {
        throw new TollgateError('URL_ELICITATION_DENIED', { cause });
      });
    }
  };

  async #perform(
    method: string,
    params: JsonDoc<JsonObject>,
    { ask, key }: { readonly ask: AskClient; readonly key?: string | undefined },
  ): Promise<string> {
    const { caller, server, request } = this.#call;
    const { session } = caller;
    const { redactor, capsOf } = this.#deps;
    this.#rounds += 1;
    this.#open += 1;
    try {
      const { signal } = request;
      const maxBytes = capsOf(caller.principal).argBytes;
      const client = request.client ?? session.client;
      const template = this.#deps.promptTemplate(`${server.name}.${method}`);
      const mayKnow = this.#mayKnow;
      const asked = { server, method, ask, signal, client, key, maxBytes, redactor, template, mayKnow };
      const operation = clientOperation(asked);
      const run = request.meta?.['tollgate/run'];
      const reply = await perform(
        this.#deps,
        { session, operation },
        {
          method,
          name: method,
          args: params,
          signal,
          parent: caller.decision,
          ...(run !== undefined && { meta: { 'tollgate/run': run } }),
        },
      );
      if (reply.kind === 'result') return joinText(reply.text);
      throw reply.upstream === undefined
        ? new TollgateError('UPSTREAM_REQUEST_DENIED')
        : new UpstreamError(reply.error);
    } finally {
      this.#open -= 1;
    }
  }

  readonly #mayKnow = async (uri: string): Promise<boolean> => {
    const { server, caller } = this.#call;
    const { files, labels, policy, now } = this.#deps;
    const source = { server: server.name, tool: 'roots/list', semantics: ROOT, args: { uri: pathOfFileUri(uri) } };
    const { effect, pathHandles } = await files.resolve(source);
    pathHandles.close();
    const { outcome } = await policy().call({
      effect: { ...effect, kind: 'roots', asks: {} },
      argsText: JSON.stringify({ uri }),
      principal: caller.principal,
      run: caller.run,
      labels: labels.of(caller.session, caller.run),
      time: isoTime(now()),
    });
    return outcome === 'allow';
  };
}

/** What a root is for the policy. */
const ROOT: Semantics = { verb: 'read', paths: ['uri'] };
