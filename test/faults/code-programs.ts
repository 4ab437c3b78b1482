/** Random programs for runs of code that are killed: generated from numbers, with a value that can be worked out. */
import { oneOf } from './fault-seed.ts';

/** The functions of programs: `echo` of `a` reads, `echo` and `slow` of `b` write, `bytes` of `b` is asked about. */
export const FUNCTIONS = ['a.echo', 'b.echo', 'b.slow', 'b.bytes'] as const;
export type ProgramFunction = (typeof FUNCTIONS)[number];

/** A program. The token of each call names its function, such as `b.echo/p3-7.`. */
export interface Program {
  readonly code: string;
  /** How many of its calls are asked about. */
  readonly asking: number;
}

/** What every program begins with. A result becomes a number, which later calls get. */
const BEGIN = `const [a, b] = [require('host:mcp-a'), require('host:mcp-b')];
const made = [];
const read = (token, result) => {
  const v = typeof result !== 'string' ? result.code.length
    : result[0] === '{' ? (JSON.parse(result).n * 7 + 3) % 1000 : result.length;
  made.push([token, typeof result === 'string' ? v : result.code]);
  return v;
};
let v = 1;`;

/**
 * Returns a program of a few parts: single calls, loops, parallel calls, and parallel chains of calls. `name` is in all
 * tokens.
 */
export function randomProgram(name: string, chance: () => number, parts: number): Program {
  let calls = 0;
  let asking = 0;
  const pick = (): readonly [name: ProgramFunction, token: string] => {
    const made = oneOf(FUNCTIONS, chance);
    calls += 1;
    return [made, `${made}/${name}-${calls}.`];
  };
  const call = (n: string, isAsync: boolean): string => {
    const [made, token] = pick();
    if (made === 'b.bytes') asking += 1;
    const args = `{ token: '${token}', n: ${n}${made === 'b.slow' ? ', ms: 15' : ''} }`;
    return isAsync ? `read('${token}', await ${made}.async(${args}))` : `read('${token}', ${made}(${args}))`;
  };
  const kinds: readonly [() => string, ...(() => string)[]] = [
    () => `v = ${call('v', false)};`,
    () => {
      const [made, token] = pick();
      if (made === 'b.bytes') asking += 2;
      return `for (const i of [1, 2]) v = read('${token}' + i, ${made}({ token: '${token}' + i, n: v + i }));`;
    },
    () => `v = (await Promise.all([(async () => ${call('v', true)})(), (async () => ${call('v + 1', true)})()]))[1];`,
    () => `v = (await Promise.all([(async () => { const w = ${call('v', true)}; return ${call('w', true)}; })(),
  (async () => ${call('2', true)})()]))[0];`,
  ];
  const body = Array.from({ length: parts }, () => oneOf(kinds, chance)());
  return { code: [BEGIN, ...body, 'return { v, made: made.sort() };'].join('\n'), asking };
}

type Fake = (args: { readonly token: string; readonly n: number }) => unknown;

/** Returns the value of a program whose calls run, apart from those with denied tokens. */
export async function expectedValue({ code }: Program, denied: ReadonlySet<string>): Promise<unknown> {
  const fake = (make: (args: object) => string): Fake & { readonly async: (args: never) => Promise<unknown> } => {
    const call: Fake = (args) => (denied.has(args.token) ? { error: 'no', code: 'DENIED' } : make(args));
    return Object.assign(call, { async: async (args: never) => call(args) });
  };
  const echo = fake((args) => JSON.stringify(args));
  const module = { echo, bytes: echo, slow: fake(() => 'slow') };
  const AsyncFunction = Object.getPrototypeOf(async () => undefined).constructor as new (
    ...texts: readonly string[]
  ) => (require: () => unknown) => Promise<unknown>;
  return new AsyncFunction('require', code)(() => module);
}
