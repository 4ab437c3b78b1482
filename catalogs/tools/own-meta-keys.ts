/** Removes keys in `_meta` of servers that are keys of Tollgate, or look like them. */

/**
 * Returns whether a key of `_meta` is Tollgate's, or may be read as one: ignoring case, spaces and signs, with digits
 * for letters. Keys with characters outside printable ASCII are too, because the specification does not allow them (MCP
 * 2025-11-25, `_meta`) and look-alikes need them.
 */
export function isOwnKey(key: string): boolean {
  if (/[^\x21-\x7e]/.test(key)) return true;
  return /^[^a-z0-9]*t[o0][l1i|!]{2}g[a4]te(?![a-z0-9])/i.test(key);
}

type Fields = Readonly<Record<string, unknown>>;

/**
 * Returns the value without such keys in any `_meta` at any depth; the same value if there are none. Never throws.
 */
export function withoutOwnKeys<T>(value: T): T {
  if (Array.isArray(value)) {
    const items = value.map((item: unknown) => withoutOwnKeys(item));
    return items.some((item, at) => item !== value[at]) ? (items as T) : value;
  }
  if (typeof value !== 'object' || value === null) return value;
  const before = Object.entries(value as Fields);
  const after = before.map(([key, field]): [string, unknown] => [
    key,
    withoutOwnKeys(key === '_meta' ? cleanMeta(field) : field),
  ]);
  return after.some(([, field], at) => field !== before[at]?.[1]) ? (Object.fromEntries(after) as T) : value;
}

function cleanMeta(meta: unknown): unknown {
  if (typeof meta !== 'object' || meta === null || Array.isArray(meta)) return meta;
  const kept = Object.entries(meta as Fields).filter(([key]) => !isOwnKey(key));
  return kept.length === Object.keys(meta).length ? meta : Object.fromEntries(kept);
}
