/**
 * Tests that the declarations of all real tools compile, and that calls with arguments made from the servers' own schemas
 * are accepted or refused as the schemas say.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { loadSchemaProfile } from '../../catalogs/profiles/schema-profile.ts';
import { projectSchema } from '../../catalogs/projection/schema-projection.ts';
import { createValidator } from '../../catalogs/validation/validator.ts';
import { exampleOf } from '../../facade/code/declarations/call-example.ts';
import { signatureOf } from '../../facade/code/declarations/call-signature.ts';
import { functionNamesOf } from '../../facade/code/declarations/function-names.ts';
import type { DeclaredFunction } from '../../facade/code/declarations/module-declaration.ts';
import { declare, typeErrors } from '../declarations/type-check.ts';
import { type Choose, instanceOf } from '../projection/schema-instances.ts';
import { verifies } from '../verifies.ts';
import { readCatalogs } from './corpus.ts';

type Schema = Readonly<Record<string, unknown>>;

interface Call {
  readonly server: string;
  readonly tool: DeclaredFunction;
  readonly args: Schema;
}

const VALID = 1_000;
const WRONG = 200;
const catalogs = readCatalogs();
const modules: Record<string, string> = {};
for (const [server, tools] of catalogs) modules[`${server}.d.ts`] = await declare(server, tools);
const functions = [...catalogs].flatMap(([server, tools]) => {
  const names = functionNamesOf(tools.map(({ name }) => name));
  return tools.map((tool) => ({ server, tool: { ...tool, functionName: names.get(tool.name) ?? '' } }));
});
const [seed = 0] = fc.sample(fc.nat(), 1);
const choose = choicesFrom(seed);

/** Returns choices that only the seed determines (a linear congruential generator, of which the upper bits are used). */
function choicesFrom(start: number): Choose {
  let state = start;
  return (count) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff;
    return Math.floor(state / 65_536) % count;
  };
}

/** Returns calls that the schemas of the servers accept, each of a tool chosen at random. */
function validCalls(count: number): readonly Call[] {
  const calls: Call[] = [];
  for (let tries = 0; calls.length < count && tries < count * 20; tries += 1) {
    const { server, tool } = functions[choose(functions.length)] as (typeof functions)[number];
    const args = instanceOf(tool.inputSchema, choose(4) > 0, choose);
    if (typeof args === 'object' && args !== null && createValidator(tool.inputSchema).check(args).length === 0)
      calls.push({ server, tool, args: args as Schema });
  }
  return calls;
}

const WRONG_VALUES = new Map<unknown, unknown>([
  ['string', 7.5],
  ['number', 'seven'],
  ['integer', 'seven'],
  ['boolean', 'yes'],
  ['array', 7.5],
  ['object', 'text'],
]);

/** Returns copies of a value, each with one part of another type than the schema states for its place. */
function wrongCopies(value: unknown, schema: unknown): readonly unknown[] {
  const { type, properties, items } = (schema ?? {}) as Schema;
  const whole = WRONG_VALUES.has(type) ? [WRONG_VALUES.get(type)] : [];
  if (Array.isArray(value))
    return [...whole, ...value.flatMap((item, at) => wrongCopies(item, items).map((bad) => value.with(at, bad)))];
  if (type !== 'object' || typeof value !== 'object' || value === null) return whole;
  const parts = Object.entries(value).flatMap(([name, inner]) =>
    wrongCopies(inner, (properties as Schema | undefined)?.[name]).map((bad) => ({ ...value, [name]: bad })),
  );
  return [...whole, ...parts];
}

function wrongCalls(calls: readonly Call[], count: number): readonly Call[] {
  const found: Call[] = [];
  for (const { server, tool, args } of calls) {
    const copies = wrongCopies(args, tool.inputSchema).filter((copy) => typeof copy === 'object');
    const copy = copies.length === 0 ? undefined : copies[choose(copies.length)];
    if (copy === undefined || createValidator(tool.inputSchema).check(copy).length === 0) continue;
    found.push({ server, tool, args: copy as Schema });
    if (found.length === count) break;
  }
  return found;
}

/** Writes one call on each line, after the imports of all modules. */
function program(calls: readonly Call[]): string {
  const imports = [...catalogs.keys()].map((server, at) => `import * as m${at} from 'host:mcp-${server}';`);
  const servers = [...catalogs.keys()];
  const lines = calls.map(({ server, tool, args }, at) => {
    const way = at % 2 === 0 ? '' : '.async';
    return `m${servers.indexOf(server)}.${tool.functionName}${way}(${JSON.stringify(args)});`;
  });
  return [imports.join(' '), ...lines].join('\n');
}

describe('the declarations of all real tools', () => {
  const calls = validCalls(VALID);
  const wrong = wrongCalls(calls, WRONG);
  const errors = typeErrors({ ...modules, 'valid.ts': program(calls), 'wrong.ts': program(wrong) });

  it('compile' + verifies('CM-11'), () => {
    expect(errors.filter(({ file }) => file.endsWith('.d.ts'))).toEqual([]);
    for (const text of Object.values(modules))
      expect(text).not.toMatch(/[^\P{C}\n\p{Cf}]|[\u2028\u2029\u202a-\u202e]/u);
  });

  it(`accept ${VALID} calls that the schemas accept, as functions and by async` + verifies('CM-12'), () => {
    expect(calls.length).toBe(VALID);
    const refused = errors.filter(({ file }) => file === 'valid.ts');
    const shown = refused.map(({ line, message }) => `${calls[line - 2]?.tool.name}: ${message}`);
    expect(shown, `seed ${seed}`).toEqual([]);
  });

  it(`refuse ${WRONG} calls in which one part has a wrong type` + verifies('CM-12'), () => {
    expect(wrong.length).toBe(WRONG);
    const lines = new Set(errors.filter(({ file }) => file === 'wrong.ts').map(({ line }) => line));
    const missed = wrong.filter((_, at) => !lines.has(at + 2)).map(({ tool, args }) => [tool.name, args]);
    expect(missed, `seed ${seed}`).toEqual([]);
  });

  it('have at most 64 kB for one tool' + verifies('CM-13'), async () => {
    for (const { server, tool } of functions)
      expect(Buffer.byteLength(await declare(server, [tool])), tool.name).toBeLessThan(66_000);
  });

  it(
    'have signatures of 200 characters, and examples that the schemas accept, apart from patterns' + verifies('CM-14'),
    () => {
      for (const { tool } of functions) {
        expect(signatureOf(tool).length).toBeLessThanOrEqual(200);
        const example = new Function(tool.functionName, `return ${exampleOf(tool)}`);
        const args = example((given: unknown = {}) => given) as unknown;
        const faults = createValidator(tool.inputSchema).check(args);
        expect(
          faults.filter(({ message }) => !message.startsWith('expected pattern')),
          tool.name,
        ).toEqual([]);
      }
    },
  );

  it('describe arguments as a call takes them: the portable projection changes none', () => {
    for (const { tool, args } of calls) {
      const projection = projectSchema(tool.inputSchema, loadSchemaProfile('portable'));
      if ('quarantined' in projection) throw new Error(projection.quarantined);
      expect(projection.lift(args), tool.name).toEqual({ args, changed: false });
    }
  });
});
