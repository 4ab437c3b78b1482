/**
 * Checkpoints of a log as signed notes: C2SP tlog-checkpoint, signed-note and tlog-cosignature, with Ed25519. A
 * checkpoint is the size and the root of the tree. Keys are given to others as a verifier key, `name+id+base64`.
 */
import { createPublicKey, hash, type KeyObject, sign, verify } from 'node:crypto';

/** Types of a key: of a log, and of a witness that signs the time too. */
const [LOG_KEY, WITNESS_KEY] = [0x01, 0x04] as const;
const ID_BYTES = 4;
const KEY_BYTES = 32;
const SIGNATURE_BYTES = 64;
const TIME_BYTES = 8;
/** A note with more was not made by a log: 16 witnesses with long names fit. */
const MAX_NOTE = 16 * 1024;
/** Begins the extension line that names the replica. */
const REPLICA_LINE = 'replica ';
const SIGNATURE_LINE = /^\u2014 ([^\s+]+) ([A-Za-z0-9+/]+={0,2})$/;

/**
 * What a log says of its tree. `root`: base64. `replica`: the one that wrote the log, in an extension line of the
 * note.
 */
export interface Checkpoint {
  readonly origin: string;
  readonly size: number;
  readonly root: string;
  readonly replica?: string | undefined;
}

/** A note that was read. Its signatures are not verified yet. */
export interface SignedNote {
  /** What is signed. */
  readonly text: string;
  readonly signatures: readonly NoteSignature[];
  readonly checkpoint: Checkpoint;
}

/** A signature line. */
interface NoteSignature {
  readonly name: string;
  readonly id: string;
  readonly bytes: Buffer;
}

/** A key that verifies. `id`: of its signature lines, hex. */
export interface VerifierKey {
  readonly name: string;
  readonly id: string;
  readonly key: KeyObject;
  readonly type: typeof LOG_KEY | typeof WITNESS_KEY;
  /** As it is given to others. */
  readonly text: string;
}

/** Returns the verifier key of a log. `key`: Ed25519, private or public. */
export function verifierKey(name: string, key: KeyObject): VerifierKey {
  const publicKey = key.type === 'private' ? createPublicKey(key) : key;
  const raw = Buffer.from((publicKey.export({ format: 'jwk' }) as { x: string }).x, 'base64url');
  return keyOf(name, LOG_KEY, raw);
}

/** Reads a verifier key of a log or a witness; undefined if it is none. */
export function parseVerifierKey(text: string): VerifierKey | undefined {
  const [, name = '', id, body = ''] = /^([^\s+]+)\+([0-9a-f]{8})\+([A-Za-z0-9+/]+=*)$/.exec(text.trim()) ?? [];
  const bytes = Buffer.from(body, 'base64');
  const type = bytes[0];
  if (bytes.length !== KEY_BYTES + 1 || (type !== LOG_KEY && type !== WITNESS_KEY)) return undefined;
  const key = keyOf(name, type, bytes.subarray(1));
  return key.id === id ? key : undefined;
}

function keyOf(name: string, type: VerifierKey['type'], raw: Buffer): VerifierKey {
  const typed = Buffer.concat([Buffer.from([type]), raw]);
  const id = hash('sha256', Buffer.concat([Buffer.from(`${name}\n`), typed]), 'hex').slice(0, 2 * ID_BYTES);
  const key = createPublicKey({
    key: { kty: 'OKP', crv: 'Ed25519', x: raw.toString('base64url') },
    format: 'jwk',
  });
  return { name, id, key, type, text: `${name}+${id}+${typed.toString('base64')}` };
}

/** Returns the note of a checkpoint, signed. */
export function signCheckpoint({ origin, size, root, replica }: Checkpoint, key: KeyObject): string {
  const text = `${origin}\n${size}\n${root}\n${replica === undefined ? '' : `${REPLICA_LINE}${replica}\n`}`;
  const { id } = verifierKey(origin, key);
  const signature = Buffer.concat([Buffer.from(id, 'hex'), sign(null, Buffer.from(text), key)]);
  return `${text}\n\u2014 ${origin} ${signature.toString('base64')}\n`;
}

/** Reads a note; undefined for a text that is no checkpoint. Lines that are no signatures do not count. */
export function parseNote(note: string): SignedNote | undefined {
  const end = note.lastIndexOf('\n\n');
  if (note.length > MAX_NOTE || end < 0) return undefined;
  const text = note.slice(0, end + 1);
  const [, origin, size, root] = /^([^\n]+)\n(0|[1-9]\d{0,14})\n([A-Za-z0-9+/]{43}=)\n/.exec(text) ?? [];
  if (origin === undefined || size === undefined || root === undefined) return undefined;
  const signatures = parseSignatures(note.slice(end + 2));
  const replica = text.split('\n').find((line) => line.startsWith(REPLICA_LINE));
  const named = replica === undefined ? {} : { replica: replica.slice(REPLICA_LINE.length) };
  return { text, signatures, checkpoint: { origin, size: Number(size), root, ...named } };
}

function parseSignatures(lines: string): readonly NoteSignature[] {
  return lines.split('\n').flatMap((line) => {
    const [, name = '', body = ''] = SIGNATURE_LINE.exec(line) ?? [];
    const bytes = Buffer.from(body, 'base64');
    // A second text of the same bytes would be a second note.
    if (bytes.length <= ID_BYTES || bytes.toString('base64') !== body) return [];
    return [{ name, id: bytes.toString('hex', 0, ID_BYTES), bytes: bytes.subarray(ID_BYTES) }];
  });
}

/** Returns whether the log with this key signed the note. */
export function isSignedBy({ text, signatures }: SignedNote, { name, id, key, type }: VerifierKey): boolean {
  return signatures.some(
    (one) =>
      type === LOG_KEY &&
      one.name === name &&
      one.id === id &&
      one.bytes.length === SIGNATURE_BYTES &&
      verify(null, Buffer.from(text), key, one.bytes),
  );
}

/** A cosignature that was verified: its line, and when the witness says that it saw the checkpoint (ms). */
export interface Cosignature {
  readonly line: string;
  readonly at: number;
}

/**
 * Finds the cosignature of a note by a witness in what it printed; undefined if it made none for this note. The witness
 * signs its time and the text of the note.
 */
export function findCosignature(note: string, printed: string, witness: VerifierKey): Cosignature | undefined {
  const text = parseNote(note)?.text;
  if (text === undefined || witness.type !== WITNESS_KEY) return undefined;
  for (const { name, id, bytes } of parseSignatures(printed)) {
    if (name !== witness.name || id !== witness.id || bytes.length !== TIME_BYTES + SIGNATURE_BYTES) continue;
    const seconds = Number(bytes.readBigUInt64BE());
    const signed = Buffer.from(`cosignature/v1\ntime ${seconds}\n${text}`);
    if (!verify(null, signed, witness.key, bytes.subarray(TIME_BYTES))) continue;
    const line = `\u2014 ${name} ${Buffer.concat([Buffer.from(id, 'hex'), bytes]).toString('base64')}`;
    return { line, at: seconds * 1000 };
  }
  return undefined;
}
