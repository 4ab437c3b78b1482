/**
 * Answers a server of revision 2026-07-28 that asks the client for input during a request: its result lists what it
 * asks, and the request is sent again with the answers (multi round-trip requests).
 */
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { AnswerServer } from '../port.ts';
import { type JsonMember, jsonMembers, parseJsonDoc } from '../rpc/message-parser.ts';
import { type JsonDoc, type JsonObject, JsonText } from '../rpc/wire-message.ts';

/** How often one request is sent again with answers. */
const MAX_ROUNDS = 10;
/** The most that a server may ask in one round. */
const MAX_ASKED = 16;

/** Returns true for a result that asks the client for input. */
export function asksForInput(result: JsonDoc<JsonObject>): boolean {
  return JsonText.of(result).memberValue('resultType') === 'input_required';
}

/**
 * Answers what a result asks, and sends the request again, until a result asks nothing. `send` gets the further members
 * of the params as JSON text. Throws UPSTREAM_INVALID, and what `send` and `answer` throw.
 */
export async function answerInput(
  first: JsonDoc<JsonObject>,
  send: (members: string) => Promise<JsonDoc<JsonObject>>,
  answer: AnswerServer,
): Promise<JsonDoc<JsonObject>> {
  let result = first;
  for (let round = 0; asksForInput(result); round += 1) {
    if (round === MAX_ROUNDS) throw invalid(`still asked for input after ${MAX_ROUNDS} rounds`);
    result = await send(await answersTo(JsonText.of(result), answer));
  }
  return result;
}

/**
 * Returns the members `inputResponses` and `requestState`. The state goes back as its bytes. `answered`: the keys that
 * need no answer any more; those of the answers are added.
 */
export async function answersTo(
  result: JsonText<JsonObject>,
  answer: AnswerServer,
  answered: Set<string> = new Set(),
): Promise<string> {
  const [asked, state] = [textOf(result, 'inputRequests') ?? '{}', textOf(result, 'requestState')];
  const requests = membersOf(asked);
  if (requests.length > MAX_ASKED) throw invalid(`asked for more than ${MAX_ASKED} inputs at once`);
  const open = requests.filter(({ key }) => !answered.has(key));
  for (const { key } of open) answered.add(key);
  const asking = open.map(async ({ key, text }) => {
    const { method, params } = Object.fromEntries(membersOf(text).map((member) => [member.key, member.text]));
    const name: unknown = JSON.parse(method ?? 'null');
    if (typeof name !== 'string') throw invalid('asked for input without a method');
    const doc = params === undefined ? undefined : (parseJsonDoc(params) as JsonDoc<JsonObject>);
    return `${JSON.stringify(key)}:${await answer(name, doc, key)}`;
  });
  const answers = await Promise.all(asking);
  const responses = answers.length === 0 ? [] : [`"inputResponses":{${answers.join(',')}}`];
  return [...responses, ...(state === undefined ? [] : [`"requestState":${state}`])].join(',');
}

/** Returns the text of a member; undefined if there is none. */
function textOf(result: JsonText<JsonObject>, key: string): string | undefined {
  const member = result.member(key);
  return member === undefined ? undefined : result.slice(member.start, member.end);
}

/** Returns the members of an object with their own texts. Any other value has none. */
function membersOf(text: string): readonly (Pick<JsonMember, 'key'> & { readonly text: string })[] {
  return jsonMembers(text).map(({ key, start, end }) => ({ key, text: text.slice(start, end) }));
}

function invalid(fault: string): TollgateError {
  return new TollgateError('UPSTREAM_INVALID', { detail: `The server ${fault}.` });
}
