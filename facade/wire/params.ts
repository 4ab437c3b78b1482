/** Owns the params of the two methods that do work; refuses shapes that the specification does not know. */
import type { JsonDoc } from '../../adapters/port.ts';
import { isId, isObject, type JsonObject } from '../../adapters/rpc/json.ts';
import { TollgateError } from '../../catalogs/errors.ts';

/** What a `tools/call` names, beside its arguments. */
export interface CallParams {
  readonly name: string;
  readonly meta: Readonly<Record<string, unknown>> | undefined;
  /** In the client's own type, which must come back unchanged. */
  readonly token: string | number | undefined;
}

/** The params of a call. Throws WIRE_PARAMS. */
export function readCall(params: JsonDoc<JsonObject> | undefined): CallParams {
  const { name, _meta } = params?.value ?? {};
  if (typeof name !== 'string')
    throw new TollgateError('WIRE_PARAMS', { detail: 'tools/call needs the name of a tool, as a string.' });
  if (_meta === undefined) return { name, meta: undefined, token: undefined };
  if (!isObject(_meta)) throw new TollgateError('WIRE_PARAMS', { detail: '_meta is not an object.' });
  const { progressToken, ...meta } = _meta;
  if (progressToken === undefined || isId(progressToken)) return { name, meta, token: progressToken };
  // A number that a double cannot hold would come back as another token.
  throw new TollgateError('WIRE_PARAMS', { detail: 'progressToken is neither a string nor an integer.' });
}

/** Throws WIRE_PARAMS on a cursor: the list has one page, and a cursor that was never given out would start a client's loop over. */
export function refuseCursor(params: JsonDoc<JsonObject> | undefined): void {
  if ((params?.value.cursor ?? '') === '') return;
  throw new TollgateError('WIRE_PARAMS', {
    detail: 'The list has one page; this cursor was not given out here.',
    next: 'Call tools/list without a cursor.',
  });
}
