/** Owns the cut of structured content: shorter strings and arrays until it fits, refused when the tool's schema no longer holds. */

/**
 * A smaller copy of `value` whose JSON is at most `bytes` long, or undefined when keys and numbers alone are longer.
 * Strings and arrays are limited together, halving until it fits, so equal parts stay equally long.
 */
export function shrink(value: unknown, bytes: number): unknown {
  let limit = Math.max(16, bytes);
  for (let round = 0; round < 24; round += 1) {
    const smaller = limitDeep(value, { chars: limit, items: Math.ceil(limit / 16) });
    if (Buffer.byteLength(JSON.stringify(smaller)) <= bytes) return smaller;
    if (limit === 0) return undefined;
    limit = Math.floor(limit / 2);
  }
  return undefined;
}

function limitDeep(value: unknown, limit: { chars: number; items: number }): unknown {
  if (typeof value === 'string') return value.length <= limit.chars ? value : `${value.slice(0, limit.chars).replace(/[\ud800-\udbff]$/, '')}…`;
  if (Array.isArray(value)) return value.slice(0, limit.items).map((item) => limitDeep(item, limit));
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, limitDeep(item, limit)]));
}
