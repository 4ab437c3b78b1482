/** The types of a JSON-RPC message that was read, and of the texts that it holds. */
import { isAscii } from 'node:buffer';
import type { TollgateError } from '../../catalogs/errors/error-table.ts';
import { type JsonMember, type StringFacts, scanJson } from './json-scan.ts';

/** A JSON object. Its keys come from outside; `__proto__` is an own key like any other. */
export type JsonObject = Record<string, unknown>;

/** The error object of a JSON-RPC answer. */
export interface JsonRpcError {
  readonly code: number;
  readonly message: string;
  readonly data?: unknown;
  /** The JSON of the whole object as its sender wrote it, perhaps with more members. Absent: that of the others. */
  readonly text?: string;
}

/** Returns the JSON of an error object. */
export function errorJson({ text, ...members }: JsonRpcError): string {
  return text ?? JSON.stringify(members);
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

/** A text to send: a string, or its parts if it is large, so that bytes of a server leave without being decoded. */
export type WireText = string | readonly (string | Buffer)[];

/** Returns a text as one string. */
export function joinText(text: WireText): string {
  return typeof text === 'string' ? text : text.map((part) => part.toString()).join('');
}

/** Returns the size of a text in bytes. */
export function sizeOfText(text: WireText): number {
  return typeof text === 'string'
    ? Buffer.byteLength(text)
    : text.reduce((sum, part) => sum + Buffer.byteLength(part), 0);
}

/** What a scan found in a text. The places of `members` count from `origin`, where the text begins. */
export interface ScannedText {
  readonly exact: boolean;
  readonly members: readonly JsonMember[];
  readonly strings: Readonly<StringFacts>;
  readonly origin: number;
}

/** A larger text is kept as bytes, and leaves as bytes. */
export const MIN_BYTES = 4096;

/** JSON text that a scan has accepted. It is decoded and parsed when `text` or `value` is first read. */
export class JsonText<T = unknown> implements JsonDoc<T> {
  readonly exact: boolean;
  readonly strings: Readonly<StringFacts>;
  /** UTF-8 bytes, or a string if all of it is ASCII. */
  private readonly source: Buffer | string;
  private readonly members: readonly JsonMember[];
  private readonly origin: number;
  private readonly parse: (() => T) | undefined;
  private decoded: string | undefined;
  private parsed: T | undefined;

  /** `parse` replaces JSON.parse, for a text that is part of a parsed one. */
  constructor(source: Buffer | string, scan: ScannedText, parse?: () => T) {
    this.source = source;
    this.exact = scan.exact;
    this.strings = scan.strings;
    this.members = scan.members;
    this.origin = scan.origin;
    this.parse = parse;
  }

  /** Returns the document as a JsonText. It is scanned unless it is one. */
  static of<T>(doc: JsonDoc<T>): JsonText<T> {
    if (doc instanceof JsonText) return doc;
    const bytes = Buffer.from(doc.text);
    const scanned = JsonText.ofScan<T>(doc.text, bytes, { ...scanJson(bytes), exact: doc.exact });
    scanned.parsed = doc.value;
    return scanned;
  }

  /** Returns a text by itself, which is known both as a string and as bytes. */
  static ofScan<T>(text: string, bytes: Buffer, { exact, members, strings }: Omit<ScannedText, 'origin'>): JsonText<T> {
    const isPlain = bytes.length === text.length && bytes.length < MIN_BYTES;
    const scanned = new JsonText<T>(isPlain ? text : bytes, { exact, members, strings, origin: 0 });
    scanned.decoded = text;
    return scanned;
  }

  get text(): string {
    return (this.decoded ??= typeof this.source === 'string' ? this.source : decodeUtf8(this.source));
  }

  get value(): T {
    if (this.parsed === undefined) this.parsed = this.parse === undefined ? (JSON.parse(this.text) as T) : this.parse();
    return this.parsed;
  }

  /** The size in bytes. */
  get size(): number {
    return this.source.length;
  }

  /** The text as bytes, if it is kept so. */
  get bytes(): Buffer | undefined {
    return typeof this.source === 'string' ? undefined : this.source;
  }

  /** True for an object without members. */
  get isEmpty(): boolean {
    return this.members.length === 0;
  }

  /** Returns a member of the object, with its place in the bytes of this text. */
  member(key: string): JsonMember | undefined {
    const { origin } = this;
    for (const { key: name, start, end, exact, hasOnlyObjects, members } of this.members)
      if (name === key) return { key, start: start - origin, end: end - origin, exact, hasOnlyObjects, members };
    return undefined;
  }

  /** Returns the value of one member, without parsing the others; undefined if there is none. */
  memberValue(key: string): unknown {
    const member = this.member(key);
    return member === undefined ? undefined : JSON.parse(this.slice(member.start, member.end));
  }

  /** Returns the text of a part, by places in bytes. */
  slice(start: number, end?: number): string {
    const { source } = this;
    return typeof source === 'string' ? source.slice(start, end) : source.toString('utf8', start, end);
  }

  /** Returns a part, by places in bytes. The bytes of a large part stay bytes. */
  part(start: number, end: number): string | Buffer {
    const { source } = this;
    return typeof source === 'string' || end - start < MIN_BYTES ? this.slice(start, end) : source.subarray(start, end);
  }

  /** Returns this text with a part replaced, by places in bytes. The bytes of a large text stay bytes. */
  splice(start: number, end: number, replacement: string): WireText {
    const { source } = this;
    if (typeof source === 'string') return source.slice(0, start) + replacement + source.slice(end);
    if (source.length < MIN_BYTES) return this.slice(0, start) + replacement + this.slice(end);
    return [source.subarray(0, start), replacement, source.subarray(end)];
  }
}

/** Returns the size of a document in bytes, without decoding it. */
export function sizeOfDoc(doc: JsonDoc): number {
  return doc instanceof JsonText ? doc.size : Buffer.byteLength(doc.text);
}

/** Decodes UTF-8. Plain ASCII, which most texts are, is only copied. */
export function decodeUtf8(bytes: Buffer): string {
  return isAscii(bytes) ? bytes.toString('latin1') : bytes.toString('utf8');
}
