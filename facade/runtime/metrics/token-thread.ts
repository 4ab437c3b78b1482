/** The thread that counts tokens. It gets all texts at its start, answers once, and ends. */
import { parentPort, workerData } from 'node:worker_threads';
import type { TokenAnswer, TokenRequest } from './token-samples.ts';

/**
 * Letters that are counted at once. The time of a word grows with the square of its length, so a text without spaces
 * would take seconds.
 */
const MAX_LETTERS = 4096;

async function count({ texts }: TokenRequest): Promise<TokenAnswer> {
  const { countTokens } = await import('gpt-tokenizer/encoding/o200k_base');
  return texts.map((text) => tokensOf(text, countTokens));
}

type CountTokens = typeof import('gpt-tokenizer/encoding/o200k_base')['countTokens'];

function tokensOf(text: string, countTokens: CountTokens): number {
  let tokens = 0;
  // A text may contain the name of a special token, such as <|endoftext|>. It is text like any other.
  for (let at = 0; at < text.length; at += MAX_LETTERS)
    tokens += countTokens(text.slice(at, at + MAX_LETTERS), { disallowedSpecial: new Set() });
  return tokens;
}

// A failure ends the thread with an error, which the process handles.
void count(workerData as TokenRequest).then((answer) => parentPort?.postMessage(answer));
