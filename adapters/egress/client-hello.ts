/** Reads the server name from a TLS ClientHello. It refuses nothing itself; the result says if it cannot be read. */

/** The kind of a tunnel's first bytes. `name` is absent if the client sent no server name. */
export type ClientHello =
  | { readonly kind: 'more' }
  | { readonly kind: 'other' }
  | { readonly kind: 'broken' }
  | { readonly kind: 'tls'; readonly name?: string };

const HANDSHAKE = 22;
const CLIENT_HELLO = 1;
const SERVER_NAME = 0;

/** A cursor that throws RangeError at the end of its bytes. */
class Reader {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get left(): number {
    return this.#bytes.length - this.#at;
  }

  number(size: number): number {
    const value = this.#bytes.readUIntBE(this.#at, size);
    this.#at += size;
    return value;
  }

  take(size: number): Buffer {
    if (size > this.left) throw new RangeError('short');
    this.#at += size;
    return this.#bytes.subarray(this.#at - size, this.#at);
  }

  /** A vector: its length in `size` bytes, then that many bytes. */
  vector(size: number): Buffer {
    return this.take(this.number(size));
  }
}

/**
 * Reads the server name (RFC 6066 §3) out of a ClientHello (RFC 8446 §4.1.2). The message may be spread over many
 * records, which evaders do to be overlooked, so all of them are joined first.
 */
export function readClientHello(bytes: Buffer): ClientHello {
  if (bytes.length === 0) return { kind: 'more' };
  if (bytes[0] !== HANDSHAKE) return { kind: 'other' };
  const message = joinRecords(bytes);
  if (message === 'broken') return { kind: 'broken' };
  if (!isComplete(message))
    return message.length > 0 && message[0] !== CLIENT_HELLO ? { kind: 'broken' } : { kind: 'more' };
  if (message[0] !== CLIENT_HELLO) return { kind: 'broken' };
  try {
    const name = readName(message.subarray(4, 4 + message.readUIntBE(1, 3)));
    return { kind: 'tls', ...(name !== undefined && { name }) };
  } catch {
    // A RangeError: the inner lengths do not add up, and a lenient reader could see another name.
    return { kind: 'broken' };
  }
}

function joinRecords(bytes: Buffer): Buffer | 'broken' {
  const parts: Buffer[] = [];
  for (let at = 0; at + 5 <= bytes.length; ) {
    const length = bytes.readUInt16BE(at + 3);
    if (bytes[at] !== HANDSHAKE || bytes[at + 1] !== 3 || length === 0)
      return parts.length === 0 || !isComplete(Buffer.concat(parts)) ? 'broken' : Buffer.concat(parts);
    parts.push(bytes.subarray(at + 5, Math.min(at + 5 + length, bytes.length)));
    at += 5 + length;
  }
  return Buffer.concat(parts);
}

/** Bytes after a complete ClientHello (early data, a change of cipher) are not read. */
function isComplete(message: Buffer): boolean {
  return message.length >= 4 && message.length >= 4 + message.readUIntBE(1, 3);
}

function readName(hello: Buffer): string | undefined {
  const reader = new Reader(hello);
  reader.take(2 + 32);
  reader.vector(1);
  reader.vector(2);
  reader.vector(1);
  if (reader.left === 0) return undefined;
  const extensions = new Reader(reader.vector(2));
  const names: string[] = [];
  while (extensions.left > 0) {
    const type = extensions.number(2);
    const body = extensions.vector(2);
    if (type === SERVER_NAME) names.push(...readList(body));
  }
  if (names.length > 1) throw new RangeError('two names');
  return names[0];
}

function readList(body: Buffer): readonly string[] {
  const list = new Reader(new Reader(body).vector(2));
  const names: string[] = [];
  while (list.left > 0) {
    const type = list.number(1);
    const name = list.vector(2);
    if (type === 0) names.push(name.toString('latin1'));
  }
  return names;
}
