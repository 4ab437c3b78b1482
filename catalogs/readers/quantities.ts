/** Reads sizes, durations and rates that people write as text where a setting is a number: `2kB`, `30s`, `10/min`. */

/** A kind of quantity: the pattern in our schemas, an example, and what the setting gets for one of each unit. */
interface Quantity {
  readonly pattern: string;
  readonly example: string;
  readonly units: Readonly<Record<string, number>>;
}

const DURATION = '^[0-9]+([.][0-9]+)?(ms|s|m|min|h|d)$';
const SECONDS: Readonly<Record<string, number>> = { s: 1, m: 60, min: 60, h: 3600, d: 86_400 };
const MILLISECONDS = Object.fromEntries(Object.entries(SECONDS).map(([unit, seconds]) => [unit, seconds * 1000]));

/** By the end of a setting's name. */
const QUANTITIES: readonly (readonly [name: RegExp, quantity: Quantity])[] = [
  [
    /^media$|^size$|bytes$/i,
    {
      pattern: '^[0-9]+([.][0-9]+)?(B|kB|MB|GB|KiB|MiB|GiB)$',
      example: '2kB, 1MB or 1MiB',
      units: { B: 1, kB: 1e3, MB: 1e6, GB: 1e9, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30 },
    },
  ],
  [/Ms$/, { pattern: DURATION, example: '500ms, 30s or 5m', units: { ms: 1, ...MILLISECONDS } }],
  [/^window$|Seconds$/, { pattern: DURATION, example: '30s, 5m or 1h', units: { ms: 0.001, ...SECONDS } }],
  [/^calls$/, { pattern: '^[0-9]+/(s|min|h|d)$', example: '10/min or 100/h', units: SECONDS }],
];

const TEXT = /^[0-9]+(?:[.][0-9]+)?\/?[A-Za-z]{1,3}$/;

interface SchemaNode {
  readonly $ref?: string;
  readonly pattern?: string;
  readonly properties?: Readonly<Record<string, SchemaNode>>;
  readonly additionalProperties?: SchemaNode | boolean;
  readonly items?: SchemaNode;
  readonly definitions?: Readonly<Record<string, SchemaNode>>;
}

type Path = readonly (string | number)[];

/**
 * Returns a value with numbers for the texts that its schema allows in place of a number. A rate sets `window` too, in
 * seconds. Returns the same value if there is no such text. `refuse`: a rate next to a window.
 */
export function readQuantities<T>(
  value: T,
  readSchema: () => object,
  refuse: (path: Path, message: string) => void = () => undefined,
): T {
  if (!hasQuantity(value)) return value;
  const root = readSchema() as SchemaNode;
  return convert(value, { node: root, path: [] }, { root, refuse }) as T;
}

function hasQuantity(value: unknown): boolean {
  if (typeof value === 'string') return TEXT.test(value);
  return typeof value === 'object' && value !== null && Object.values(value).some(hasQuantity);
}

interface Place {
  readonly node: SchemaNode;
  readonly path: Path;
}

interface Reading {
  readonly root: SchemaNode;
  readonly refuse: (path: Path, message: string) => void;
}

function convert(value: unknown, { node: given, path }: Place, reading: Reading): unknown {
  const node = resolve(given, reading.root);
  if (typeof value === 'string') return numberOf(value, String(path.at(-1)), node) ?? value;
  if (Array.isArray(value))
    return value.map((one, index) => convert(one, { node: node.items ?? {}, path: [...path, index] }, reading));
  if (typeof value !== 'object' || value === null) return value;
  const converted = Object.entries(value).map(([key, inner]): [string, unknown] => {
    const other = typeof node.additionalProperties === 'object' ? node.additionalProperties : {};
    const known = node.properties !== undefined && Object.hasOwn(node.properties, key) ? node.properties[key] : other;
    return [key, convert(inner, { node: known ?? {}, path: [...path, key] }, reading)];
  });
  return { ...Object.fromEntries(converted), ...windowOf(value as Readonly<Record<string, unknown>>, node) };

  function windowOf(budget: Readonly<Record<string, unknown>>, { properties }: SchemaNode): object {
    const [, unit] = String(budget.calls).split('/');
    if (properties?.window === undefined || numberOf(budget.calls, 'calls', properties.calls ?? {}) === undefined)
      return {};
    if (budget.window !== undefined)
      reading.refuse(
        [...path, 'calls'],
        `the rate "${String(budget.calls)}" sets the window; remove \`window\`, or write a number of calls`,
      );
    return { window: SECONDS[unit ?? ''] };
  }
}

function resolve(node: SchemaNode, root: SchemaNode): SchemaNode {
  const name = node.$ref?.replace('#/definitions/', '');
  return name === undefined ? node : (root.definitions?.[name] ?? {});
}

/** Returns undefined unless the schema allows this text. */
function numberOf(text: unknown, name: string, { pattern }: SchemaNode): number | undefined {
  const quantity = quantityOf(name);
  if (typeof text !== 'string' || quantity === undefined || pattern !== quantity.pattern) return undefined;
  if (!new RegExp(pattern).test(text)) return undefined;
  const number = Number.parseFloat(text);
  const unit = /[A-Za-z]+$/.exec(text)?.[0] ?? '';
  return text.includes('/') ? number : Number((number * (quantity.units[unit] ?? Number.NaN)).toPrecision(15));
}

function quantityOf(name: string): Quantity | undefined {
  return QUANTITIES.find(([end]) => end.test(name))?.[1];
}

/** Returns what to write for a setting of this name, for messages; undefined if it takes no text. */
export function quantityExample(name: string, pattern: unknown): string | undefined {
  const quantity = quantityOf(name);
  return quantity !== undefined && quantity.pattern === pattern
    ? `a number, or for example ${quantity.example}`
    : undefined;
}

/** What other products call a limit of calls in a time. */
export const RATE_KEYS = /^rate(?:_?limit)?$/i;

/** Returns the limits of a budget for a rate such as 10 or `10/h`: `calls: 10, window: 3600`. Default: per minute. */
export function rateLimits(rate: unknown): string {
  const [, calls = '10', unit = 'm'] = /^(\d{1,9})(?:\s*\/\s*([smhd]))?/.exec(String(rate)) ?? [];
  return `calls: ${calls}, window: ${SECONDS[unit]}`;
}
