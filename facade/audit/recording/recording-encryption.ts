/**
 * Owns how a recording stands in a file: one JSON line, encrypted and authenticated; refuses lines of another key and
 * changed ones.
 */
import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import type { Recording } from './decision-recording.ts';

/** Name of the key in the state folder. */
export const RECORDING_KEY = 'recording.key';

const CIPHER = 'aes-256-gcm';
/** NIST SP 800-38D, 8.3: random nonces of 96 bits are good for 2^32 messages of one key. */
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

interface Envelope {
  readonly v: 1;
  /** ms since 1970: retention needs no key. */
  readonly at: number;
  readonly nonce: string;
  /** Ciphertext and tag, base64. */
  readonly data: string;
}

/** A line, with its newline. Version and time stand outside, and are authenticated. */
export function sealRecording(recording: Recording, key: Buffer, at: number): string {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES }).setAAD(outside(at));
  const data = Buffer.concat([cipher.update(JSON.stringify(recording), 'utf8'), cipher.final(), cipher.getAuthTag()]);
  return `{"v":1,"at":${at},"nonce":"${nonce.toString('base64')}","data":"${data.toString('base64')}"}\n`;
}

/** When the line was written; undefined for what is no line of ours. Not yet proved. */
export function recordingTime(line: string): number | undefined {
  return readEnvelope(line)?.at;
}

/** The recording of a line; a text that says what is wrong with it otherwise. */
export function openRecording(
  line: string,
  key: Buffer,
): { readonly at: number; readonly recording: Recording } | string {
  const envelope = readEnvelope(line);
  if (envelope === undefined) return 'it is no line of a recording, or half of one';
  const [nonce, data] = [Buffer.from(envelope.nonce, 'base64'), Buffer.from(envelope.data, 'base64')];
  if (nonce.length !== NONCE_BYTES || data.length < TAG_BYTES) return 'it is no line of a recording, or half of one';
  try {
    const decipher = createDecipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES })
      .setAAD(outside(envelope.at))
      .setAuthTag(data.subarray(-TAG_BYTES));
    const text = decipher.update(data.subarray(0, -TAG_BYTES), undefined, 'utf8') + decipher.final('utf8');
    return { at: envelope.at, recording: JSON.parse(text) as Recording };
  } catch {
    return 'it was written with another key, or changed';
  }
}

function outside(at: number): Buffer {
  return Buffer.from(`tollgate recording 1 ${at}`);
}

function readEnvelope(line: string): Envelope | undefined {
  try {
    const value = JSON.parse(line) as Partial<Envelope> | null;
    const isOurs =
      value?.v === 1 &&
      Number.isSafeInteger(value.at) &&
      typeof value.nonce === 'string' &&
      typeof value.data === 'string';
    return isOurs ? (value as Envelope) : undefined;
  } catch {
    return undefined;
  }
}
