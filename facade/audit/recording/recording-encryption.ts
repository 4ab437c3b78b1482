/** Encodes a recording as one JSON line, encrypted and authenticated. */
import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import type { Recording } from './decision-recording.ts';

/** Name of the key in the state folder. */
export const RECORDING_KEY = 'recording.key';

const CIPHER = 'aes-256-gcm';
/** Random nonces of 96 bits are safe for 2^32 messages with one key (NIST SP 800-38D, 8.3). */
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

interface Envelope {
  readonly v: 1;
  /** ms since 1970, in clear, because retention needs no key. */
  readonly at: number;
  readonly nonce: string;
  /** Ciphertext and tag, base64. */
  readonly data: string;
}

/** A recording as it was written. `text`: its JSON, of which the log has a digest. */
export interface OpenedRecording {
  readonly at: number;
  readonly text: string;
  readonly recording: Recording;
}

/** Returns a line with its newline. `text`: the JSON. Version and time are in clear, and authenticated. */
export function sealRecording(text: string, key: Buffer, at: number): string {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES }).setAAD(outside(at));
  const data = Buffer.concat([cipher.update(text, 'utf8'), cipher.final(), cipher.getAuthTag()]);
  return `{"v":1,"at":${at},"nonce":"${nonce.toString('base64')}","data":"${data.toString('base64')}"}\n`;
}

/** Returns when the line was written, not authenticated yet; undefined for another line. */
export function recordingTime(line: string): number | undefined {
  return readEnvelope(line)?.at;
}

/** Returns the recording of a line, or a text that says what is wrong with it. */
export function openRecording(line: string, key: Buffer): OpenedRecording | string {
  const envelope = readEnvelope(line);
  if (envelope === undefined) return 'it is not a line of a recording, or only half of one';
  const [nonce, data] = [Buffer.from(envelope.nonce, 'base64'), Buffer.from(envelope.data, 'base64')];
  if (nonce.length !== NONCE_BYTES || data.length < TAG_BYTES)
    return 'it is not a line of a recording, or only half of one';
  try {
    const decipher = createDecipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES })
      .setAAD(outside(envelope.at))
      .setAuthTag(data.subarray(-TAG_BYTES));
    const text = decipher.update(data.subarray(0, -TAG_BYTES), undefined, 'utf8') + decipher.final('utf8');
    return { at: envelope.at, text, recording: JSON.parse(text) as Recording };
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
