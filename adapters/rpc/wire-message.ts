/** Owns what a JSON-RPC message can be once it is read; refuses ids that cannot be echoed exactly. */
import type { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { JsonMember } from './json-scan.ts';

/** An object of JSON; keys come from outside, `__proto__` is an own key like any other. */
export type JsonObject = Record<string, unknown>;

/** The error object of a JSON-RPC answer. */
export interface JsonRpcError {
  readonly code: number;
  readonly message: string;
  readonly data?: unknown;
  /** JSON of `data`, where `data` lost something that the text holds. */
  readonly dataText?: string;
}

/** One message; `args` is `params.arguments` with a text of its own. `invalid` carries the id when it could be read. */
export type WireMessage =
  | {
      readonly kind: 'request';
      readonly id: string | number;
      readonly method: string;
      readonly params: JsonDoc<JsonObject> | undefined;
      readonly args: JsonDoc | undefined;
    }
  | { readonly kind: 'notification'; readonly method: string; readonly params: JsonDoc<JsonObject> | undefined }
  | { readonly kind: 'result'; readonly id: string | number; readonly result: JsonDoc<JsonObject> }
  | { readonly kind: 'error'; readonly id: string | number | null; readonly error: JsonRpcError }
  | { readonly kind: 'invalid'; readonly id: string | number | null; readonly error: TollgateError };

/** Who sent the message: clients are held to the letter, servers get UPSTREAM_INVALID for what cannot be used. */
export type MessageSender = 'client' | 'server';

/** A message whose text is safe to parse, before its envelope is judged. */
export interface ParsedMessage {
  readonly side: MessageSender;
  readonly text: string;
  readonly value: JsonObject;
  readonly members: readonly JsonMember[];
  readonly exact: boolean;
}

/** A plain object of JSON: neither null nor an array. */
export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The id of a request (MCP 2025-11-25: string or integer, never null), if it can be echoed exactly. */
export function isId(value: unknown): value is string | number {
  return typeof value === 'string' || (Number.isSafeInteger(value) && !Object.is(value, -0));
}
/**
 * JSON as it stands on the wire, with its parsed value. `exact` is false when `value` lost something that `text` holds.
 */
export interface JsonDoc<T = unknown> {
  readonly text: string;
  readonly value: T;
  readonly exact: boolean;
}
