/** Owns the search for a frame behind noise on a server's stdout; refuses to search more than a few times in one line. */
import { TollgateError } from '../../catalogs/errors.ts';
import type { WireMessage } from './json.ts';
import { readMessage } from './json.ts';

/** How frames of the known implementations begin; the TypeScript SDK puts `result` first. */
const BEGINNINGS = ['{"jsonrpc"', '{"result"', '{"id"', '{"method"', '{"error"'];
/** Every attempt reads the line once more, so their number and its length bound what a hostile line costs. */
const ATTEMPTS = 4;
const MOST_NOISY_BYTES = 1_048_576;

/** A message of a server, and whether bytes that were not part of it had to be skipped. */
export interface NoisyMessage {
  readonly message: WireMessage;
  readonly noisy: boolean;
}

/**
 * Reads a line of a server. Where log text without a newline stands before a frame, the frame is still read: otherwise
 * its call would wait for its timeout. Only in lines of at most 1 MiB. A server that prints foreign text could print the newline too, so nothing is lost in trust.
 */
export function readNoisy(line: Buffer): NoisyMessage {
  const message = readMessage(line, 'server');
  if (!isNoise(message) || line.length > MOST_NOISY_BYTES) return { message, noisy: false };
  let from = 0;
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    from = nextBeginning(line, from + 1);
    if (from < 0) break;
    const behind = readMessage(line.subarray(from), 'server');
    if (behind.kind !== 'invalid') return { message: behind, noisy: true };
  }
  return { message, noisy: true };
}

function isNoise(message: WireMessage): boolean {
  if (message.kind !== 'invalid') return false;
  const { cause } = message.error;
  return cause instanceof TollgateError && (cause.code === 'WIRE_PARSE' || cause.code === 'WIRE_UTF8');
}

function nextBeginning(line: Buffer, from: number): number {
  const places = BEGINNINGS.map((beginning) => line.indexOf(beginning, from)).filter((place) => place >= 0);
  return places.length === 0 ? -1 : Math.min(...places);
}
