/** Generates values for tests: small or full values that a schema should accept, and invalid values. */

type Schema = Record<string, unknown>;

const TEXTS = [
  'a',
  '2024-01-31',
  '2024-01-31T10:00:00Z',
  'https://example.org/a',
  'a@example.org',
  '1',
  '10',
  '1:2',
  '10px',
  '90deg',
  '#aabbcc',
  'aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa',
  '10:00:00',
  'a=b',
  'GET',
  'P1D',
  'A_1',
  '1-2',
  'timestamp:asc',
  '31/Jan/2024',
  'A1-R1',
  'x-T1',
  'x-E1',
  'aa.bb',
  'a.png',
  '123',
  '31/Jan/2024 10:00',
  '1:00:00',
  'a'.repeat(43),
  '192.168.0.1',
];

function deref(root: Schema, node: Schema): Schema {
  const ref = node.$ref;
  if (typeof ref !== 'string') return node;
  const target = ref
    .split('/')
    .slice(1)
    .reduce<unknown>(
      (at, step) => (at as Schema)?.[decodeURIComponent(step).replaceAll('~1', '/').replaceAll('~0', '~')],
      root,
    );
  return (target ?? {}) as Schema;
}

/**
 * Returns a value for `schema`; `full` fills optional names too. Undefined if the generator knows none. `choose(count)`
 * picks among branches, allowed values, types and lengths; by default the first.
 */
export function instanceOf(root: Schema, full: boolean, choose: Choose = () => 0): unknown {
  return make(root, { root, full, choose, depth: 0 });
}

/** Returns a number from 0, smaller than `count`. */
export type Choose = (count: number) => number;

interface Making {
  readonly root: Schema;
  readonly full: boolean;
  readonly choose: Choose;
  readonly depth: number;
}

function make(input: unknown, making: Making): unknown {
  if (typeof input !== 'object' || input === null) return input === false ? undefined : 'a';
  const node = deref(making.root, input as Schema);
  if (node !== input) return making.depth > 12 ? undefined : make(node, { ...making, depth: making.depth + 1 });
  if ('const' in node) return node.const;
  if (Array.isArray(node.enum)) return node.enum[making.choose(node.enum.length)];
  const branches = (node.anyOf ?? node.oneOf) as readonly unknown[] | undefined;
  if (branches !== undefined && node.properties === undefined) {
    const first = making.choose(branches.length);
    return [...branches.slice(first), ...branches.slice(0, first)]
      .map((branch) => make(branch, making))
      .find((value) => value !== undefined && value !== null);
  }
  if (Array.isArray(node.allOf) && node.type === undefined)
    return Object.assign({}, ...node.allOf.map((part) => make(part, making)));
  const type = Array.isArray(node.type) ? node.type[making.choose(node.type.length)] : node.type;
  if (type === 'object' || node.properties !== undefined) return makeObject(node, making);
  if (type === 'array') return makeArray(node, making);
  if (type === 'number' || type === 'integer') return makeNumber(node);
  if (type === 'boolean') return true;
  return type === 'null' ? null : makeText(node);
}

function makeObject(node: Schema, making: Making): unknown {
  const required = (node.required ?? []) as readonly string[];
  const entries: [string, unknown][] = [];
  for (const [name, child] of Object.entries((node.properties ?? {}) as Schema)) {
    const needed = required.includes(name);
    if (!needed && (!making.full || making.depth > 3 || making.choose(4) === 1)) continue;
    const value = make(child, { ...making, depth: making.depth + 1 });
    if (value === undefined && needed) return undefined;
    if (value !== undefined) entries.push([name, value]);
  }
  const rest = node.additionalProperties;
  if (typeof rest === 'object' && rest !== null && making.choose(2) === 1) {
    const value = make(rest, { ...making, depth: making.depth + 1 });
    if (value !== undefined) entries.push(['another_name', value]);
  }
  for (const name of required) if (!entries.some(([key]) => key === name)) entries.push([name, 'a']);
  return Object.fromEntries(entries);
}

function makeArray(node: Schema, making: Making): unknown {
  const tuple = (Array.isArray(node.items) ? node.items : node.prefixItems) as readonly unknown[] | undefined;
  if (tuple !== undefined) return tuple.map((item) => make(item, { ...making, depth: making.depth + 1 }));
  const count = Number(node.minItems ?? (making.full && making.depth < 4 ? 1 : 0)) + making.choose(3);
  const items = Array.from({ length: count }, () => make(node.items ?? {}, { ...making, depth: making.depth + 1 }));
  return items.includes(undefined) ? undefined : items;
}

function makeNumber(node: Schema): number {
  const low = Number(
    node.minimum ?? (typeof node.exclusiveMinimum === 'number' ? node.exclusiveMinimum + 1 : (node.maximum ?? 1)),
  );
  const step = Number(node.multipleOf ?? 0);
  return step > 0 ? Math.ceil(low / step) * step : low;
}

function makeText(node: Schema): string | undefined {
  const min = Number(node.minLength ?? 0);
  const max = Number(node.maxLength ?? Infinity);
  const pattern = typeof node.pattern === 'string' ? new RegExp(node.pattern) : undefined;
  const byFormat: Record<string, string> = {
    date: '2024-01-31',
    'date-time': '2024-01-31T10:00:00Z',
    uri: 'https://example.org/a',
    email: 'a@example.org',
    uuid: 'aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa',
    time: '10:00:00Z',
    ipv4: '192.168.0.1',
    hostname: 'example.org',
  };
  const known = byFormat[String(node.format)];
  const texts = known === undefined ? TEXTS.flatMap((text) => [text, text.padEnd(min, text)]) : [known];
  return texts.find((text) => text.length >= min && text.length <= max && (pattern?.test(text) ?? true));
}

/** Returns at most `count` copies of `value`, each with one wrong or missing part. */
export function mutantsOf(value: unknown, count = 6): readonly unknown[] {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return [];
  const names = Object.keys(value).slice(0, count);
  const object = value as Schema;
  return [
    { ...object, nobody_declares_this: 1 },
    ...names.map((name) => Object.fromEntries(Object.entries(object).filter(([key]) => key !== name))),
    ...names.map((name) => ({ ...object, [name]: typeof object[name] === 'number' ? 'text' : 7.5 })),
    ...names.map((name) => ({ ...object, [name]: null })),
  ];
}
