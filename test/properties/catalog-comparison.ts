/** Compares list and call on a catalog of tools, with random rules and with arguments made from the tools' schemas. */
import fc from 'fast-check';
import { expect } from 'vitest';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { RawTool, Semantics, Verb } from '../../catalogs/tools/tool-definition.ts';
import { effectOf, listToolFacts } from '../../facade/call/lowering/call-effect.ts';
import type { ListTool, Policy, Principal } from '../../policies/port.ts';
import { PRINCIPAL, policyOf, profile, settings, WORKSPACE } from '../engine/policy-fixture.ts';
import { instanceOf, mutantsOf } from '../projection/schema-instances.ts';

const VERBS: readonly Verb[] = ['read', 'write', 'destructive', 'execute'];

/** A tool with semantics made from its names, as an owner would write them, and calls made from its schema. */
interface Known {
  readonly server: string;
  readonly name: string;
  readonly semantics: Semantics;
  readonly calls: readonly Readonly<Record<string, unknown>>[];
  readonly names: readonly string[];
}

function known(server: string, tool: RawTool): Known {
  const names = Object.keys((tool.inputSchema.properties ?? {}) as object);
  const pick = (form: RegExp): string[] => names.filter((name) => form.test(name));
  const command = pick(/^(command|cmd|script)$/)[0];
  const semantics: Semantics = {
    verb:
      VERBS[
        [/^(get|list|read|search|find)/, /^(create|add|update|write|set|put)/, /^(delete|remove|drop)/].findIndex(
          (form) => form.test(tool.name.toLowerCase()),
        )
      ] ?? 'execute',
    ...(pick(/path|file|dir/i).length === 0 ? {} : { paths: pick(/path|file|dir/i) }),
    ...(pick(/url|uri|host|domain/i).length === 0 ? {} : { urls: pick(/url|uri|host|domain/i) }),
    ...(command === undefined ? {} : { command }),
  };
  const full = [instanceOf(tool.inputSchema, true), instanceOf(tool.inputSchema, false)].filter(
    (value): value is Record<string, unknown> => typeof value === 'object' && value !== null,
  );
  const mutants = full
    .slice(0, 1)
    .flatMap((value) => mutantsOf(value))
    .filter((value): value is Record<string, unknown> => typeof value === 'object' && value !== null);
  return { server, name: tool.name, semantics, calls: [...full, ...mutants.slice(0, 6), {}], names };
}

const SPICE = [
  'src/a.ts',
  '../../etc/passwd',
  '/etc/shadow',
  'k.pem',
  '.env',
  'https://a.b/x',
  'http://evil@a.b',
  'https://c.example.org',
  'ls',
  'git push -f',
  'r\\m -rf /',
  '$(id)',
  '',
  '\u0000',
  'main',
  1,
  0,
  500,
  -3,
  true,
  null,
  ['src/a', 'k.pem'],
  { deep: { er: 1 } },
] as const;

function rulesFrom(random: RandomFrom, tools: readonly Known[]): readonly unknown[] {
  const one = <T>(list: readonly T[]): T => list[random.nextInt(0, list.length - 1)] as T;
  const tool = (): Known => one(tools);
  const WHENS: readonly (() => object)[] = [
    () => ({ tools: [`${tool().server}.*`] }),
    () => {
      const { server, name } = tool();
      return { tools: [`${server}.${name}`] };
    },
    () => ({ servers: [tool().server, tool().server] }),
    () => ({ verbs: [one(VERBS), 'read'] }),
    () => ({ paths: [one(['src/**', '**/*.pem', '**/.env'])] }),
    () => ({ insideWorkspace: random.nextInt(0, 1) === 1 }),
    () => ({ hosts: [one(['a.b', '*.example.org'])] }),
    () => ({ commands: [one(['ls', 'git push'])] }),
    () => ({ opaque: true }),
    () => ({ roles: [one(['developer', 'guest'])] }),
    () => ({ labels: ['secret'] }),
    () => ({
      tools: ['*.*'],
      args: {
        [one(tool().names) ?? 'x']: one([
          { present: true },
          { min: 2 },
          { equals: 'main' },
          { prefix: 'src' },
          { in: ['a', 'main'] },
        ]),
      },
    }),
    () => {
      const { server, names } = tool();
      return { servers: [server], args: { [one(names) ?? 'x']: { max: 100 } } };
    },
    () => ({ verbs: [one(VERBS)], servers: [tool().server] }),
  ];
  return Array.from({ length: random.nextInt(15, 60) }, (_, number) => ({
    id: `r${number}`,
    outcome: one(['allow', 'allow', 'allow', 'ask', 'deny']),
    when: { ...one(WHENS)() },
  }));
}

/** Removes rules that a load refuses, such as one that can never match, one by one. */
async function policyFrom(random: RandomFrom, tools: readonly Known[]): Promise<Policy> {
  const servers = [...new Set(tools.map(({ server }) => server))];
  const options = {
    settings: settings({
      servers: servers.map((name) => ({ name })),
      profiles: [profile({ servers, expose: servers.map((name) => ({ tool: `${name}.*`, pins: {} })) })],
    }),
  };
  const rules = [{ id: 'base', outcome: 'allow', when: { verbs: ['read', 'write'] } }, ...rulesFrom(random, tools)];
  for (;;) {
    try {
      return await policyOf(rules, options);
    } catch (thrown) {
      if (!(thrown instanceof TollgateError) || thrown.code !== 'POLICY_INVALID') throw thrown;
      const bad = new Set(
        ((thrown.data.problems ?? []) as readonly { readonly line: number }[]).map(({ line }) => line - 1),
      );
      if (bad.size === 0) throw thrown;
      rules.splice(0, rules.length, ...rules.filter((_, number) => !bad.has(number)));
    }
  }
}

/** A catalog: the tools of one server. */
export interface Catalog {
  readonly server: string;
  readonly tools: readonly RawTool[];
}

/**
 * Decides a number of calls, and fails if a decision contradicts the verdict of the list. Returns how often each
 * verdict occurred.
 */
export async function compareListAndCall(
  catalogs: readonly Catalog[],
  { cases, rounds }: { readonly cases: number; readonly rounds: number },
): Promise<Readonly<Record<'always' | 'maybe' | 'never', number>>> {
  const tools = catalogs.flatMap(({ server, tools: own }) => own.map((tool) => known(server, tool)));
  const counts = { always: 0, maybe: 0, never: 0 };
  const [random] = fc.sample(fc.noShrink(fc.infiniteStream(fc.nat())), 1).map((stream) => new RandomFrom(stream));
  if (random === undefined) throw new Error('no source of chance');
  for (let round = 0; round < rounds; round += 1) {
    const policy = await policyFrom(random, tools);
    const principal: Principal = { ...PRINCIPAL, role: round % 2 === 0 ? 'developer' : 'guest' };
    const asked: readonly ListTool[] = tools.map(({ server, name, semantics }) => ({
      server,
      tool: name,
      ...listToolFacts(semantics),
    }));
    const decisions = await policy.list(principal, asked);
    for (let left = cases / rounds; left > 0; left -= 1) {
      const number: number = random.nextInt(0, tools.length - 1);
      const { server, name, semantics, calls, names } = tools[number] as Known;
      const args: Record<string, unknown> = { ...calls[random.nextInt(0, calls.length - 1)] };
      for (const key of names) if (random.nextInt(0, 2) === 0) args[key] = SPICE[random.nextInt(0, SPICE.length - 1)];
      const effect = effectOf({ server, tool: name, semantics, args }, WORKSPACE);
      const { outcome, reasons } = await policy.call({
        principal,
        run: 'r',
        effect,
        argsText: JSON.stringify(args),
        labels: random.nextInt(0, 3) === 0 ? ['secret'] : [],
        time: '2026-11-20T10:00:00Z',
      });
      const verdict: 'always' | 'maybe' | 'never' = decisions[number]?.verdict ?? 'never';
      counts[verdict] += 1;
      if ((verdict === 'never' && outcome !== 'deny') || (verdict === 'always' && outcome !== 'allow')) {
        expect.fail(
          `${server}.${name} is listed ${verdict} and a call of it is ${outcome} ` +
            `(${reasons.map(({ id }) => id).join(', ')}): ${JSON.stringify(args).slice(0, 300)}`,
        );
      }
    }
    policy.close();
  }
  return counts;
}

/** Random choices from a stream of numbers, so that the seed fixes them. */
class RandomFrom {
  readonly #stream: Iterator<number>;

  constructor(stream: Iterator<number>) {
    this.#stream = stream;
  }

  nextInt(min: number, max: number): number {
    return min + (Math.floor(this.#stream.next().value as number) % Math.max(1, max - min + 1));
  }
}
