/** The operation table: one row per method of MCP that reaches a server or the client. To add a method, add a row. */
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { lowerCall } from '../call/lowering/lowered-call.ts';
import { resolve, serverOfTool } from '../call/resolve.ts';
import { shape } from '../call/shape.ts';
import { bindArguments } from '../call/validate.ts';
import { COMPLETION } from './completion-operation.ts';
import type { Operation } from './operation.ts';
import { PROMPT_GET } from './prompt-operation.ts';
import { RESOURCE_READ, RESOURCE_SUBSCRIBE, RESOURCE_UNSUBSCRIBE } from './resource-operation.ts';

const TOOL_CALL: Operation = {
  kind: 'tool',
  resolve,
  serverOf: serverOfTool,
  bind: bindArguments,
  lower: lowerCall,
  shape,
};

/** Any other method is refused and recorded. */
const UNKNOWN: Operation = {
  ...TOOL_CALL,
  resolve: () => {
    throw new TollgateError('WIRE_METHOD');
  },
  serverOf: () => undefined,
};

const OPERATIONS: ReadonlyMap<string, Operation> = new Map([
  ['tools/call', TOOL_CALL],
  ['resources/read', RESOURCE_READ],
  ['resources/subscribe', RESOURCE_SUBSCRIBE],
  ['resources/unsubscribe', RESOURCE_UNSUBSCRIBE],
  ['prompts/get', PROMPT_GET],
  ['completion/complete', COMPLETION],
]);

/** Returns the row of a method. */
export function operationOf(method = 'tools/call'): Operation {
  return OPERATIONS.get(method) ?? UNKNOWN;
}
