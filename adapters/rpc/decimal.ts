/** Owns the question whether a written number survives a double; refuses to round in silence. */

/** Whether a double holds exactly the decimal number that is written; minus zero counts as lost, since JSON.stringify drops its sign. */
export function carriedByDouble(written: string): boolean {
  const value = Number(written);
  if (!Number.isFinite(value) || Object.is(value, -0)) return false;
  // Fifteen significant digits survive a double in its normal range; the slow comparison decides the rest.
  return canonicalDecimal(written) === canonicalDecimal(String(value));
}

/** `digits`e`exponent` without leading or trailing zeros, so that 1.50, 15e-1 and 1.5 are one text. */
function canonicalDecimal(written: string): string {
  const [, sign = '', whole = '', fraction = '', exponent = '0'] = /^(-?)(\d*)\.?(\d*)(?:[eE]([+-]?\d+))?$/.exec(written) ?? [];
  const digits = (whole + fraction).replace(/^0+/, '');
  const trimmed = trimZeros(digits);
  if (trimmed === '') return '0';
  return `${sign}${trimmed}e${Number(exponent) - fraction.length + (digits.length - trimmed.length)}`;
}

/** A loop, because `/0+$/` is quadratic over digits that hold many runs of zeros. */
function trimZeros(digits: string): string {
  let end = digits.length;
  while (end > 0 && digits.charCodeAt(end - 1) === 48) end--;
  return digits.slice(0, end);
}
