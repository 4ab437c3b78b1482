/** Checks whether a decimal number fits a double without loss. */

/** Well above the smallest double with full precision. */
const NORMAL = 1e-290;

/**
 * Returns true if a double holds the decimal number exactly. Minus zero does not fit, because JSON.stringify drops its
 * sign.
 */
export function fitsDouble(written: string): boolean {
  const digits = significantDigits(written);
  // No double is written with more digits than these (ECMA-262, Number::toString).
  if (digits > 17) return false;
  const value = Number(written);
  if (!Number.isFinite(value) || Object.is(value, -0)) return false;
  // Fifteen significant digits survive a double in its normal range; the slow comparison decides the rest.
  if (digits <= 15 && Math.abs(value) > NORMAL) return true;
  const shortest = String(value);
  return shortest === written || canonicalDecimal(written) === canonicalDecimal(shortest);
}

/**
 * Returns the doubles next to a written number that a double does not hold. Returns undefined if both are whole and the
 * number is not, because they would pass for integers. Numbers beyond the range of doubles get the largest double.
 */
export function doublesAround(written: string): { readonly below: number; readonly above: number } | undefined {
  const nearest = clamp(Number(written));
  const order = compareDecimals(written, String(nearest));
  const below = order < 0 ? clamp(nextDouble(nearest, -1)) : nearest;
  const above = order > 0 ? clamp(nextDouble(nearest, 1)) : nearest;
  return Number.isInteger(below) && Number.isInteger(above) && order !== 0 && !isWhole(written)
    ? undefined
    : { below, above };
}

/** Digits from the first to the last that is not zero. */
function significantDigits(written: string): number {
  let [digits, significant] = [0, 0];
  for (let at = 0; at < written.length; at += 1) {
    const unit = written.charCodeAt(at);
    if (unit === 69 || unit === 101) break; // E, e
    if (unit < 48 || unit > 57 || (unit === 48 && digits === 0)) continue;
    digits += 1;
    if (unit !== 48) significant = digits;
  }
  return significant;
}

function clamp(value: number): number {
  return Math.min(Number.MAX_VALUE, Math.max(-Number.MAX_VALUE, value + 0));
}

/** The bits of a double, read as an integer, count the doubles upwards from zero. */
function nextDouble(value: number, direction: 1 | -1): number {
  if (value === 0) return direction * Number.MIN_VALUE;
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, value);
  view.setBigUint64(0, view.getBigUint64(0) + BigInt(value > 0 ? direction : -direction));
  return view.getFloat64(0);
}

function isWhole(written: string): boolean {
  return Number(/e(.*)$/.exec(canonicalDecimal(written))?.[1] ?? 0) >= 0;
}

/** Returns a negative number if the first is smaller. */
function compareDecimals(left: string, right: string): number {
  const [a, b] = [partsOf(left), partsOf(right)];
  if (a.sign !== b.sign) return a.sign - b.sign;
  if (a.size !== b.size) return a.sign * (a.size < b.size ? -1 : 1);
  // Digits after the point: the shorter of two with equal heads is the smaller.
  return a.digits === b.digits ? 0 : a.sign * (a.digits < b.digits ? -1 : 1);
}

/** The number is `sign` × 0.`digits` × 10^`size`. */
function partsOf(written: string): { readonly sign: number; readonly digits: string; readonly size: number } {
  const [, minus, digits = '', exponent = '0'] = /^(-?)(\d+)e(.*)$/.exec(canonicalDecimal(written)) ?? [];
  return {
    sign: digits === '' ? 0 : minus === '-' ? -1 : 1,
    digits,
    size: digits === '' ? 0 : digits.length + Number(exponent),
  };
}

/** `digits`e`exponent` without leading or trailing zeros, so that 1.50, 15e-1 and 1.5 are one text. */
function canonicalDecimal(written: string): string {
  const [, sign = '', whole = '', fraction = '', exponent = '0'] =
    /^(-?)(\d*)\.?(\d*)(?:[eE]([+-]?\d+))?$/.exec(written) ?? [];
  const digits = (whole + fraction).replace(/^0+/, '');
  const trimmed = trimZeros(digits);
  if (trimmed === '') return '0';
  return `${sign}${trimmed}e${Number(exponent) - fraction.length + (digits.length - trimmed.length)}`;
}

/** A loop, because `/0+$/` takes quadratic time for digits with many runs of zeros. */
function trimZeros(digits: string): string {
  let end = digits.length;
  while (end > 0 && digits.charCodeAt(end - 1) === 48) end--;
  return digits.slice(0, end);
}
