/** The types of a JSON-RPC message that was read. */
import type { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { JsonMember } from './json-scan.ts';

/** A JSON object. Its keys come from outside; `__proto__` is an own key like any other. */
export type JsonObject = Record<string, unknown>;

/** The error object of a JSON-RPC answer. */
export interface JsonRpcError {
  readonly code: number;
  readonly message: string;
  readonly data?: unknown;
  /** The JSON text of `data`, if the parsed `data` lost something. */
  readonly dataText?: string;
}

/** One message. `args` is `params.arguments` with its own text. `invalid` has the id if it could be read. */
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

/** The sender of a message. Rules for clients are stricter. Faults of servers become UPSTREAM_INVALID. */
export type MessageSender = 'client' | 'server';

/** A parsed message, before its envelope is checked. */
export interface ParsedMessage {
  readonly side: MessageSender;
  readonly text: string;
  readonly value: JsonObject;
  readonly members: readonly JsonMember[];
  readonly exact: boolean;
}

/** Returns true for a JSON object: neither null nor an array. */
export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Returns true for an id (MCP 2025-11-25: string or integer, never null) that can be echoed exactly. */
export function isId(value: unknown): value is string | number {
  return typeof value === 'string' || (Number.isSafeInteger(value) && !Object.is(value, -0));
}

/** JSON text from the wire with its parsed value. `exact` is false if the value lost something of the text. */
export interface JsonDoc<T = unknown> {
  readonly text: string;
  readonly value: T;
  readonly exact: boolean;
}
