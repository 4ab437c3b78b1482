/**
 * `call_read` and `call_write`, with which an agent calls a tool that its list does not show. A call of one of them
 * becomes a call of the named tool before the first stage, so each stage sees what a direct call would show it.
 */
import { jsonMembers, parseJsonDoc } from '../../adapters/rpc/message-parser.ts';
import type { JsonDoc } from '../../adapters/rpc/wire-message.ts';
import { asTollgateError, TollgateError } from '../../catalogs/errors/error-table.ts';
import { CODE } from '../../catalogs/servers/shipped-servers.ts';
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';
import { formatFaults } from '../../catalogs/validation/validation-faults.ts';
import { createValidator } from '../../catalogs/validation/validator.ts';
import type { CallRequest } from '../serve/facade-port.ts';
import type { ExposedTool } from './exposed-tool.ts';

const SCHEMA = {
  type: 'object',
  properties: { name: { type: 'string' }, arguments: { type: 'object' } },
  required: ['name'],
  additionalProperties: false,
} as const;
const MAX_NAME = 200;

/** The name of the tool that calls only tools that read, and of the one that calls any tool. */
export const CALL_READ = 'call_read' as const;
export const CALL_WRITE = 'call_write' as const;

/** Their definitions. No tool of a server gets one of these names. */
export const WRAPPER_TOOLS: readonly RawTool[] = [
  {
    name: CALL_READ,
    description: 'Call a tool that only reads, by the name that find_tools shows, with its arguments.',
    inputSchema: SCHEMA,
    annotations: { readOnlyHint: true },
  },
  {
    name: CALL_WRITE,
    description: 'Call any other tool likewise. It may change or delete something.',
    inputSchema: SCHEMA,
    annotations: { readOnlyHint: false, destructiveHint: true },
  },
];

/** Checks the arguments of both. */
export const WRAPPER_VALIDATOR = createValidator(SCHEMA);

/** Returns true for one of the two tools. */
export function isWrapper({ server, entry, name }: ExposedTool): boolean {
  return server.name === CODE && entry === undefined && WRAPPER_TOOLS.some((tool) => tool.name === name);
}

/**
 * Returns the call of the named tool, with the text of its arguments as the client sent it. Returns any other request,
 * and one with malformed arguments, as it is: `wrapperFault` says later what is wrong.
 */
export function unwrapCall(request: CallRequest): CallRequest {
  const { method = 'tools/call', name, args } = request;
  const via = [CALL_READ, CALL_WRITE].find((one) => one === name.replaceAll('-', '_'));
  if (method !== 'tools/call' || via === undefined) return request;
  try {
    return { ...request, ...innerCall(args), via };
  } catch (thrown) {
    if (thrown instanceof TollgateError) return request;
    throw thrown;
  }
}

/** Returns why a call names one of the two tools after `unwrapCall`. */
export function wrapperFault({ args, via, name }: CallRequest): TollgateError {
  if (via !== undefined) return invalid(`name: ${name} cannot be called by ${via}`);
  try {
    innerCall(args);
  } catch (thrown) {
    return asTollgateError(thrown);
  }
  return new TollgateError('UNKNOWN_TOOL');
}

/** Throws ARGS_INVALID. */
function innerCall(given: JsonDoc): { readonly name: string; readonly args: JsonDoc } {
  // Some clients send the whole object as a JSON text, as for any other tool.
  const text = /^\s*"/.test(given.text) ? String(given.value) : given.text;
  if (!/^\s*\{/.test(text)) throw invalid('arguments: expected an object', 'arguments');
  const members = jsonMembers(text).map(({ key, start, end }) => [key, text.slice(start, end)] as const);
  const inner = members.find(([key]) => key === 'arguments')?.[1] ?? '{}';
  const outer = Object.fromEntries(members.map(([key, part]) => [key, key === 'name' ? JSON.parse(part) : {}]));
  // Whether the inner arguments are an object is checked as for a direct call, where a text may stand for it.
  const faults = WRAPPER_VALIDATOR.check(outer);
  if (faults.length > 0) throw invalid(formatFaults(faults), faults[0]?.path);
  const name = String(outer.name);
  if (name === '' || name.length > MAX_NAME) throw invalid(`name: expected 1 to ${MAX_NAME} characters`);
  return { name, args: parse(inner) };
}

function parse(text: string): JsonDoc {
  try {
    return parseJsonDoc(text);
  } catch (thrown) {
    throw invalid(`arguments: ${asTollgateError(thrown).message}`);
  }
}

function invalid(detail: string, path = 'name'): TollgateError {
  return new TollgateError('ARGS_INVALID', { detail, data: { paths: [path] } });
}
