/**
 * Counts the tokens of sampled texts (o200k_base, by gpt-tokenizer) in a thread that runs only while it has something
 * to count. A text is dropped when it is counted. Without gpt-tokenizer, nothing is kept and nothing is counted.
 */
import { createHash } from 'node:crypto';
import { createRequire } from 'node:module';
import { Worker } from 'node:worker_threads';
import { LRUCache } from 'lru-cache';
import { sizeOfText, type WireText } from '../../../adapters/rpc/wire-message.ts';
import { threadFile } from '../../../catalogs/programs/own-code.ts';
import type { ContextAmount } from './context-counts.ts';

/** The optional package. */
export const TOKENIZER = 'gpt-tokenizer';

/** A longer text is sampled: this many bytes or letters, in pieces of equal length from all of it. */
const MAX_SAMPLE = 65_536;
const PIECES = 8;
/** Texts that wait for the thread. What comes meanwhile is not counted. */
const MAX_WAITING = 4_194_304;
/** Samples of this time are counted by one thread, ms. Loading the package costs half a second of processor time. */
const WAIT_MS = 5000;
const HEAP_MB = 256;
/** Lists whose tokens are known, by digest. */
const MAX_KNOWN = 256;

/** What the thread counts, and its answer: the tokens of each text. */
export interface TokenRequest {
  readonly texts: readonly string[];
}
export type TokenAnswer = readonly number[];

/** The size of one text, and later its tokens. */
export class TextSize {
  readonly bytes: number;
  #sample: Pick<ContextAmount, 'sampledBytes' | 'sampledTokens'> | undefined;
  #waiting: ContextAmount[] | undefined = [];

  constructor(bytes: number) {
    this.bytes = bytes;
  }

  /** Adds the text to an amount; its tokens when they are known. `isSample`: its bytes are in the amount already. */
  addTo(amount: ContextAmount, isSample = false): void {
    if (!isSample) amount.bytes += this.bytes;
    if (this.#sample === undefined) this.#waiting?.push(amount);
    else addSample(amount, this.#sample);
  }

  /** Notes what was counted; undefined if this text is not counted. */
  settle(sample: Pick<ContextAmount, 'sampledBytes' | 'sampledTokens'> | undefined): void {
    if (sample !== undefined) for (const amount of this.#waiting ?? []) addSample(amount, sample);
    this.#sample = sample;
    this.#waiting = undefined;
  }
}

function addSample(
  amount: ContextAmount,
  { sampledBytes, sampledTokens }: Pick<ContextAmount, 'sampledBytes' | 'sampledTokens'>,
): void {
  amount.sampledBytes += sampledBytes;
  amount.sampledTokens += sampledTokens;
}

interface Waiting {
  readonly size: TextSize;
  readonly texts: readonly string[];
}

/** Returns whether the package can be loaded. */
export function hasTokenizer(): boolean {
  try {
    createRequire(import.meta.url).resolve('gpt-tokenizer/encoding/o200k_base');
    return true;
  } catch {
    return false;
  }
}

/** The samples of one process. */
export class TokenSamples {
  readonly #onCounted: () => void;
  readonly #known = new LRUCache<string, TextSize>({ max: MAX_KNOWN });
  #isUsable: boolean | undefined;
  #waiting: Waiting[] = [];
  #letters = 0;
  #timer: NodeJS.Timeout | undefined;
  #worker: Worker | undefined;

  /** `onCounted` is called when amounts have got tokens. */
  constructor(onCounted: () => void) {
    this.#onCounted = onCounted;
  }

  /** Returns the size of a text that comes again, such as a list. */
  repeated(text: WireText): TextSize {
    if (!this.usable) return this.sample(text);
    const hash = createHash('sha256');
    for (const part of typeof text === 'string' ? [text] : text) hash.update(part);
    const key = hash.digest('base64');
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    const size = this.sample(text);
    this.#known.set(key, size);
    return size;
  }

  /** Returns the size of a text, and has its tokens counted. */
  sample(text: WireText): TextSize {
    const size = new TextSize(sizeOfText(text));
    if (!this.usable || this.#letters > MAX_WAITING) {
      size.settle(undefined);
      return size;
    }
    const texts = piecesOf(text);
    this.#letters += texts.reduce((sum, piece) => sum + piece.length, 0);
    this.#waiting.push({ size, texts });
    if (this.#worker === undefined) this.#timer ??= setTimeout(() => this.#count(), WAIT_MS).unref();
    return size;
  }

  /** Whether the package can be loaded, as it was when this was first asked. */
  get usable(): boolean {
    return (this.#isUsable ??= hasTokenizer());
  }

  /** Drops what is not counted yet. */
  async close(): Promise<void> {
    clearTimeout(this.#timer);
    this.#isUsable = false;
    this.#waiting = [];
    await this.#worker?.terminate();
  }

  #count(): void {
    this.#timer = undefined;
    const counting = this.#waiting;
    this.#waiting = [];
    this.#letters = 0;
    // The thread may not print to stdout, because MCP uses it.
    const worker = new Worker(threadFile('token-thread'), {
      workerData: { texts: counting.flatMap(({ texts }) => texts) } satisfies TokenRequest,
      env: {},
      execArgv: [],
      stdout: true,
      stderr: true,
      resourceLimits: { maxOldGenerationSizeMb: HEAP_MB },
    });
    this.#worker = worker;
    let tokens: TokenAnswer | undefined;
    worker.once('message', (answer: TokenAnswer) => (tokens = answer));
    // A package that cannot be loaded fails each time.
    worker.once('error', () => (this.#isUsable = false));
    worker.once('exit', () => this.#settle(counting, tokens));
    worker.unref();
  }

  #settle(counted: readonly Waiting[], tokens: TokenAnswer | undefined): void {
    let at = 0;
    for (const { size, texts } of counted) {
      const own = tokens?.slice(at, at + texts.length);
      at += texts.length;
      size.settle(
        own && {
          sampledBytes: texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0),
          sampledTokens: own.reduce((sum, count) => sum + count, 0),
        },
      );
    }
    this.#worker = undefined;
    if (tokens !== undefined) this.#onCounted();
    if (this.#waiting.length > 0) this.#timer ??= setTimeout(() => this.#count(), WAIT_MS).unref();
  }
}

/** Returns the text, or pieces of it in equal distances if it is long. Of a text in parts, the longest part counts. */
function piecesOf(text: WireText): readonly string[] {
  const parts = typeof text === 'string' ? [text] : text;
  const whole = parts.reduce((longest, part) => (part.length > longest.length ? part : longest), '');
  if (whole.length <= MAX_SAMPLE) return [whole.toString()];
  const length = MAX_SAMPLE / PIECES;
  const step = Math.floor((whole.length - length) / (PIECES - 1));
  return Array.from({ length: PIECES }, (_, at) => pieceOf(whole, at * step, at * step + length));
}

/** Returns a piece that does not keep the whole text in memory. */
function pieceOf(whole: string | Buffer, start: number, end: number): string {
  return Buffer.from(typeof whole === 'string' ? whole.slice(start, end) : whole.subarray(start, end)).toString();
}
