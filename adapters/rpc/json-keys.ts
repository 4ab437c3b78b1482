/** Reads the keys of one JSON text, and finds equal keys of an object without building the object. */

const BACKSLASH = 92;
/** The most keys of an object that are compared one by one. */
const FEW = 16;
/** Objects below this level are not looked at, because no message may nest so deep. */
const DEEPEST = 512;

/** What is known of the open object at each level: the number of its keys, and hash and place of its first few. */
export class KeyMemory {
  readonly counts = new Int32Array(DEEPEST + 1);
  readonly hashes = new Int32Array((DEEPEST + 1) * FEW);
  readonly starts = new Int32Array((DEEPEST + 1) * FEW);
  readonly ends = new Int32Array((DEEPEST + 1) * FEW);
}

/** The hash of a key with an escape: an equal key may be written otherwise. No other hash is so large. */
const ESCAPED = 2 ** 31;

/** Frequent keys by the end of their hash, so that their text is not made again for each message. */
const frequent: (string | undefined)[] = new Array(1024).fill(undefined);
for (const key of (
  'jsonrpc id method params result error name arguments uri icons resource _meta content isError ' +
  'structuredContent resultType code message data progressToken progress total type text'
).split(' '))
  frequent[hashOf(Buffer.from(key), 0, key.length) & 1023] = key;

/** The keys of one text. Its memory is in use until the text has been read. */
export class JsonKeys {
  hasDuplicate = false;
  /** The bytes so far. Places of keys stay the same when more bytes come. */
  bytes: Buffer;
  private readonly memory: KeyMemory;
  /** By level: the keys of an object that has many, or an escaped one. */
  private sets: (Set<string> | undefined)[] | undefined;
  private lastStart = -1;
  private lastHash = 0;

  constructor(bytes: Buffer, memory: KeyMemory) {
    this.bytes = bytes;
    this.memory = memory;
  }

  /** An object begins at this level. */
  open(level: number): void {
    if (level > DEEPEST) return;
    this.memory.counts[level] = 0;
    if (this.sets !== undefined) this.sets[level] = undefined;
  }

  /** Adds a key of the open object at this level. `end` is the place of its closing quote. */
  add(level: number, start: number, end: number): void {
    if (level < 1 || level > DEEPEST || this.hasDuplicate) return;
    const { counts, hashes, starts, ends } = this.memory;
    const count = counts[level] as number;
    const hash = hashOf(this.bytes, start, end);
    this.lastStart = start;
    this.lastHash = hash;
    const first = level * FEW;
    if (hash === ESCAPED || count >= FEW || this.sets?.[level] !== undefined) return this.addToSet(level, start, end);
    for (let at = first; at < first + count; at += 1)
      if (hashes[at] === hash && this.isSame(at, start, end)) this.hasDuplicate = true;
    hashes[first + count] = hash;
    starts[first + count] = start;
    ends[first + count] = end;
    counts[level] = count + 1;
  }

  /** Returns a key as JSON reads it, or its raw text if it is not JSON. */
  text(start: number, end: number): string {
    const { bytes } = this;
    const hash = start === this.lastStart ? this.lastHash : hashOf(bytes, start, end);
    const known = hash === ESCAPED ? undefined : frequent[hash & 1023];
    if (known !== undefined && known.length === end - start && isText(bytes, start, known)) return known;
    const raw = bytes.toString('utf8', start, end);
    if (hash !== ESCAPED) return raw;
    try {
      return JSON.parse(`"${raw}"`) as string;
    } catch {
      return raw;
    }
  }

  private isSame(at: number, start: number, end: number): boolean {
    const { starts, ends } = this.memory;
    return this.bytes.compare(this.bytes, start, end, starts[at], ends[at]) === 0;
  }

  private addToSet(level: number, start: number, end: number): void {
    const { counts, starts, ends } = this.memory;
    this.sets ??= [];
    let set = this.sets[level];
    if (set === undefined) {
      set = new Set();
      const first = level * FEW;
      for (let at = first; at < first + (counts[level] as number); at += 1)
        set.add(this.text(starts[at] as number, ends[at] as number));
      this.sets[level] = set;
    }
    const key = this.text(start, end);
    if (set.has(key)) this.hasDuplicate = true;
    else set.add(key);
  }
}

function hashOf(bytes: Buffer, start: number, end: number): number {
  let hash = 0;
  for (let at = start; at < end; at += 1) {
    const byte = bytes[at] as number;
    if (byte === BACKSLASH) return ESCAPED;
    hash = (Math.imul(hash, 31) + byte) | 0;
  }
  return hash;
}

/** Returns true if the bytes from `start` on are this ASCII text. */
export function isText(bytes: Buffer, start: number, text: string): boolean {
  for (let at = 0; at < text.length; at += 1) if (bytes[start + at] !== text.charCodeAt(at)) return false;
  return true;
}
