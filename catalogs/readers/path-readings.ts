/** The other ways in which servers may read one path: decoded, trimmed, with other separators. */

/** Rounds of rewriting: `%25252e` needs three. No known reader decodes more often. */
const ROUNDS = 4;
const MAX_READINGS = 32;

/**
 * Returns every text that another program might read in place of `text`, without `text` itself: percent-encoding
 * decoded (repeatedly, overlong UTF-8 and `%uXXXX` too), `\` as separator, outer quotes and spaces removed, `../`
 * removed once.
 */
export function otherReadings(text: string): readonly string[] {
  const readings = new Set([text]);
  let fresh = [text];
  for (let round = 0; round < ROUNDS && fresh.length > 0; round += 1) {
    const next = fresh.flatMap((known) => [
      decodePercent(known),
      known.replaceAll('\\', '/'),
      unwrap(known),
      stripOnce(known),
    ]);
    fresh = [...new Set(next)].filter((reading) => !readings.has(reading));
    for (const reading of fresh) if (readings.size < MAX_READINGS) readings.add(reading);
  }
  readings.delete(text);
  return [...readings];
}

/** Decodes what can be decoded and keeps the rest, like the most lenient reader. */
function decodePercent(text: string): string {
  const wide = text.replace(/%u([0-9a-f]{4})/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
  return wide.replace(/(?:%[0-9a-f]{2})+/gi, (run) => decodeBytes(Buffer.from(run.replaceAll('%', ''), 'hex')));
}

/** UTF-8 as an old decoder reads it: overlong forms such as C0 AE for `.` are accepted (the attack has this name). */
function decodeBytes(bytes: Buffer): string {
  let text = '';
  for (let at = 0; at < bytes.length; ) {
    const first = bytes[at] ?? 0;
    const length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
    let point = length === 1 ? first : first & (0x7f >> length);
    for (let step = 1; step < length; step += 1) point = (point << 6) | ((bytes[at + step] ?? 0) & 0x3f);
    text += point <= 0x10ffff ? String.fromCodePoint(point) : '\ufffd';
    at += length;
  }
  return text;
}

function unwrap(text: string): string {
  return text.trim().replace(/^(["'])(.*)\1$/s, '$2');
}

/** `....//` and `..././` become `../` in a filter that removes `../` once. Other paths stay the same. */
function stripOnce(text: string): string {
  if (!text.split(/[\\/]/).some((name) => /^\.{3,}$/.test(name))) return text;
  return text.replaceAll(/\.\.[\\/]/g, '');
}
