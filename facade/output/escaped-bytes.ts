/** Decodes the escapes of all strings of a JSON text at once, so that it can be searched without being parsed. */

const BACKSLASH = 92;
const LETTER_U = 117;
/** A surrogate that stands alone has no UTF-8. */
const REPLACEMENT = 0xfffd;
/** How many bytes after an escape are copied one by one, because the next escape is often near. */
const NEAR = 32;
/** By the letter of a short escape: the byte that it stands for. */
const SHORT = new Map(
  [...'"\\/bfnrt'].map((letter) => [letter.charCodeAt(0), (JSON.parse(`"\\${letter}"`) as string).charCodeAt(0)]),
);

/**
 * Returns the bytes of a valid JSON text with each escape in its strings replaced by its character in UTF-8. What is in
 * a string of the text is in the returned bytes; only its quotes cannot be told from others. Takes linear time.
 */
export function unescapeBytes(json: Buffer): Buffer {
  const plain = Buffer.allocUnsafe(json.length);
  let [at, size] = [0, 0];
  while (at < json.length) {
    for (const near = Math.min(at + NEAR, json.length); at < near && json[at] !== BACKSLASH; at += 1)
      plain[size++] = json[at] as number;
    if (json[at] !== BACKSLASH) {
      const next = json.indexOf(BACKSLASH, at);
      const end = next < 0 ? json.length : next;
      size += json.copy(plain, size, at, end);
      at = end;
      continue;
    }
    const short = SHORT.get(json[at + 1] as number);
    if (short !== undefined) {
      plain[size++] = short;
      at += 2;
      continue;
    }
    const unit = unitAt(json, at);
    const low = unit >= 0xd800 && unit < 0xdc00 && json[at + 6] === BACKSLASH ? unitAt(json, at + 6) : 0;
    const isPair = low >= 0xdc00 && low < 0xe000;
    // The text of one escape, or of the two halves of a pair, is longer than its character.
    const single = unit >= 0xd800 && unit < 0xe000 ? REPLACEMENT : unit;
    size = putCharacter(plain, size, isPair ? ((unit - 0xd7c0) << 10) | (low & 0x3ff) : single);
    at += isPair ? 12 : 6;
  }
  return plain.subarray(0, size);
}

/** Returns the code unit of the escape `\u0000` at a place; 0 for another escape. */
function unitAt(json: Buffer, at: number): number {
  if (json[at + 1] !== LETTER_U) return 0;
  let unit = 0;
  for (let place = at + 2; place < at + 6; place += 1) {
    const digit = json[place] as number;
    unit = unit * 16 + (digit < 58 ? digit - 48 : (digit | 32) - 87);
  }
  return unit;
}

/** Writes a character in UTF-8. Returns the place after it. */
function putCharacter(bytes: Buffer, at: number, code: number): number {
  if (code < 0x80) {
    bytes[at] = code;
    return at + 1;
  }
  const rest = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  // The first byte begins with as many bits as there are bytes.
  bytes[at] = ((0xff80 >> rest) & 0xff) | (code >> (6 * rest));
  for (let place = 1; place <= rest; place += 1) bytes[at + place] = 0x80 | ((code >> (6 * (rest - place))) & 63);
  return at + rest + 1;
}
