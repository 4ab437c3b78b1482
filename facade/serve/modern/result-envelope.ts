/** What each result of revision 2026-07-28 says besides its content: its type, who answers, whether it may be kept. */
import { isObject, type JsonObject, joinText, type WireText } from '../../../adapters/rpc/wire-message.ts';
import { withFirstMembers } from '../../output/result-shape.ts';
import type { Reply, ResultEnvelope } from '../facade-port.ts';
import { VERSION } from '../version.ts';

const SERVER_INFO = { 'io.modelcontextprotocol/serverInfo': { name: 'tollgate', version: VERSION } };
const META = JSON.stringify(SERVER_INFO).slice(1, -1);
const COMPLETE = '"resultType":"complete"';
/** A result may be kept for no time: a rule or a person may decide otherwise at any moment. */
const NOT_KEPT = '"ttlMs":0,"cacheScope":"private"';
const CACHEABLE: ReadonlySet<string> = new Set([
  'server/discover',
  'tools/list',
  'prompts/list',
  'resources/list',
  'resources/templates/list',
  'resources/read',
]);

const PLAIN: ResultEnvelope = { members: COMPLETE, meta: META };
const CACHED: ResultEnvelope = { members: `${COMPLETE},${NOT_KEPT}`, meta: META };

/** Returns the envelope of the results of a method. */
export function envelopeOf(method: string): ResultEnvelope {
  return CACHEABLE.has(method) ? CACHED : PLAIN;
}

/** Returns a result of Tollgate itself in an envelope. `text` has no members that an envelope has, and no `_meta`. */
export function enveloped(text: WireText, { members, meta }: ResultEnvelope): WireText {
  return withFirstMembers(text, `${members},"_meta":{${meta}}`);
}

/** Returns the text of a result. Shaped results are in their envelope; others are short, and Tollgate's own. */
export function completeResult(reply: Extract<Reply, { kind: 'result' }>, envelope: ResultEnvelope): WireText {
  if (reply.enveloped === true) return reply.text;
  const { _meta, ...result } = JSON.parse(joinText(reply.text)) as JsonObject;
  const whole = { ...result, _meta: { ...(isObject(_meta) && _meta), ...SERVER_INFO } };
  return withFirstMembers(JSON.stringify(whole), envelope.members);
}

/** Returns the result that asks the client. `requests`: the JSON of each request, by key. */
export function inputRequiredText(requests: ReadonlyMap<string, string>, state: string): string {
  const asked = [...requests].map(([key, request]) => `${JSON.stringify(key)}:${request}`);
  return (
    `{"resultType":"input_required","inputRequests":{${asked.join(',')}},"requestState":"${state}",` +
    `"_meta":{${META}}}`
  );
}

/** Returns the last result of a stream of notifications. */
export function endedStreamText(id: string | number): string {
  return `{${COMPLETE},"_meta":{"io.modelcontextprotocol/subscriptionId":${JSON.stringify(id)},${META}}}`;
}
