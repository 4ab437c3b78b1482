import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { beforeAll, describe, expect, it } from 'vitest';
import { callInputText } from '../../policies/engine/policy-input.ts';
import {
  buildFlags,
  CAPABILITIES_FILE,
  ENTRYPOINTS,
  readLibrarySources,
} from '../../policies/engine/policy-library.ts';
import { WasmPolicy } from '../../policies/engine/wasm/wasm-policy.ts';
import { unpackBundle } from '../../policies/rego/bundles/bundle-format.ts';
import { findOpa, runOpa } from '../../policies/rego/opa-program.ts';
import { compileRego, prepareRego } from '../../policies/rego/rego-build.ts';
import { readRegoSources, stageFiles } from '../../policies/rego/rego-files.ts';
import { type CallOf, callOf, scratch } from '../engine/policy-fixture.ts';
import { inFull } from '../harness/full-tests.ts';
import { partOf, roundsOf } from '../harness/slices.ts';

const opa = await findOpa();
const cache = path.join(scratch(), 'cache');

/** What both builds get besides the rules. */
const CONFIG = {
  version: 1,
  rules: { list: [], index: { tool: {}, server: {}, verb: {}, any: [] } },
  modes: {},
  mode: 'enforce',
  places: {},
  rego: { deny: true, ask: true, allow: true },
  servers: { git: {} },
  profiles: { work: { servers: { git: true } } },
  budgets: [],
  caps: {},
  schemaProfile: 'portable',
};

type Members = Readonly<Record<'deny' | 'ask' | 'allow', readonly string[]>>;
type Evaluate = (call: CallOf) => Members | string;

function writeFiles(folder: string, files: Readonly<Record<string, string>>): void {
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(path.dirname(path.join(folder, name)), { recursive: true });
    writeFileSync(path.join(folder, name), text);
  }
}

/** Returns ids and messages of each set in `data.tollgate.sources.found`, by a rule of the test. */
const PROBE = `package tollgate.probe

# METADATA
# entrypoint: true
members := {outcome: sort({name |
	some set in data.tollgate.sources.found
	set.outcome == outcome
	some pair in set.members
	name := concat("", [set.name, ": ", json.marshal(pair[1])])
}) |
	some outcome in ["deny", "ask", "allow"]
}
`;

async function buildWith(files: Readonly<Record<string, string>>, sources: string): Promise<Evaluate> {
  const folder = scratch();
  const library = Object.fromEntries(
    [...readLibrarySources()].map(([name, bytes]) => [`library/${name}`, bytes.toString('utf8')]),
  );
  writeFiles(folder, {
    ...library,
    'library/sources.rego': sources,
    'library/probe.rego': PROBE,
    'capabilities.json': readFileSync(CAPABILITIES_FILE, 'utf8'),
    ...files,
  });
  const built = await runOpa(
    opa,
    [
      ...buildFlags(opa),
      '-e',
      'tollgate/probe/members',
      '--capabilities',
      'capabilities.json',
      '-o',
      'b.tar.gz',
      'library',
      'user/0',
    ],
    folder,
  );
  expect(built.stderr + built.stdout).toBe('');
  const wasm = new WasmPolicy(
    unpackBundle(readFileSync(path.join(folder, 'b.tar.gz'))).get('policy.wasm') ?? new Uint8Array(),
    JSON.stringify({ config: CONFIG }),
    { entrypoints: [ENTRYPOINTS.call] },
  );
  return (call) => {
    try {
      return wasm.evaluate(
        'tollgate/probe/members',
        callInputText(callOf(call), { project: false }),
      ) as unknown as Members;
    } catch (thrown) {
      return (thrown as Error).message;
    }
  };
}

/** Builds the same Rego twice: as written, with the library's own sources module, and with copies. */
async function buildBoth(
  files: Readonly<Record<string, string>>,
): Promise<{ plain: Evaluate; placed: Evaluate; staged: string }> {
  const [source, staging] = [scratch(), scratch()];
  writeFiles(source, files);
  const read = await readRegoSources([{ path: source, shown: '' }]);
  await stageFiles(read, staging);
  await prepareRego(read, { opa, staging });
  const after = Object.fromEntries(
    read.map(({ staged }) => [staged, readFileSync(path.join(staging, staged), 'utf8')]),
  );
  const before = Object.fromEntries(read.map(({ staged, bytes }) => [staged, bytes.toString('utf8')]));
  const own = readLibrarySources().get('sources.rego')?.toString('utf8') ?? '';
  return {
    plain: await buildWith(before, own),
    placed: await buildWith(after, readFileSync(path.join(staging, 'library', 'sources.rego'), 'utf8')),
    staged: Object.values(after).join('\n'),
  };
}

const TOOLS = ['push', 'a b', 'x"y', 'dot.ted', 'ünï', 'status', 'deny', '0'] as const;
const tool = fc.constantFrom(...TOOLS);
const text = (value: string): string => JSON.stringify(value);

/** Expressions at the start of a body: some can be grouped, some cannot. */
const expression = fc.oneof(
  tool.map((name) => `input.effect.tool == ${text(name)}`),
  tool.map((name) => `${text(name)} == input.effect.tool`),
  tool.map((name) => `input.effect["tool"] = ${text(name)}`),
  tool.map((name) => `e.tool == ${text(name)}`),
  fc
    .uniqueArray(tool, { minLength: 1, maxLength: 3 })
    .map((names) => `input.effect.tool in {${names.map(text).join(', ')}}`),
  fc
    .uniqueArray(tool, { minLength: 1, maxLength: 3 })
    .map((names) => `input.effect.tool in [${names.map(text).join(', ')}]`),
  fc.constantFrom(
    'input.principal.role == "developer"',
    'input.principal.role == "owner"',
    'input.effect.verb == "read"',
    'input.effect.arguments.mode == "fast"',
    'input.effect.arguments.mode == input.effect.tool',
  ),
  tool.map((name) => `not input.effect.tool == ${text(name)}`),
  tool.map((name) => `input.effect.tool == ${text(name)} with input.effect.tool as ${text('push')}`),
  fc.constantFrom(
    'helper(input.effect.tool)',
    'some group in input.principal.groups\n\tgroup == "web"',
    'limit > 3',
    'data.words.short(input.effect.tool)',
    'every group in input.principal.groups { group != "nobody" }',
    'count(other) == 0',
  ),
);
const key = fc.oneof(
  fc.constantFrom(
    '"text"',
    '"other"',
    'sprintf("%s of %v", [input.effect.tool, limit])',
    '{"id": "same", "message": "m"}',
    '{"id": "x", "message": input.effect.tool}',
    '[1]',
    'chosen',
  ),
);
const rule = fc
  .record({
    set: fc.constantFrom('deny', 'ask', 'allow'),
    key,
    body: fc.uniqueArray(expression, { minLength: 1, maxLength: 4 }),
    braces: fc.boolean(),
  })
  .map(
    ({ set, key: head, body }) =>
      `${set} contains ${head.replace('"id": "', `"id": "${set}-`)} if {
	${(head === 'chosen' ? [...body, 'some chosen in {"c1", "c2"}'] : body).join('\n\t')}
}`,
  );
const FIXED = `
default limit := 2

limit := 5 if {
	input.effect.tool == "push"
} else := 4 if input.effect.tool == "status"

helper(name) if name == "push"

helper(name) if startswith(name, "s")

deny contains 7 if input.run == "never"

other contains x if {
	some x in deny
	is_number(x)
}
`;
/** \`count(other)\` reads deny, so a deny must not use it. */
const soundRule = rule.map((one) => (one.startsWith('deny') ? one.replace('count(other) == 0', 'limit < 9') : one));
const call = fc.record({
  tool: fc.oneof(tool, fc.string()),
  verb: fc.constantFrom('read', 'write'),
  args: fc.constantFrom({}, { mode: 'fast' }, { mode: { fast: 1 } }, { mode: 'push' }, { mode: ['fast'] }),
  principal: fc.record({
    role: fc.constantFrom('developer', 'owner'),
    groups: fc.constantFrom(['web'], [], ['nobody']),
  }),
}) as fc.Arbitrary<CallOf>;

describe('copies of rules', () => {
  inFull(
    'decide the same as the rules, for any rules and calls',
    async () => {
      const packages = fc.tuple(
        fc.array(soundRule, { minLength: 1, maxLength: 12 }),
        fc.array(soundRule, { maxLength: 6 }),
      );
      await fc.assert(
        fc.asyncProperty(packages, fc.array(call, { minLength: 20, maxLength: 20 }), async ([first, second], calls) => {
          const head = (name: string): string =>
            `package policy.${name}\n\nimport input.effect as e\n\nseen := e.tool\n`;
          const files = {
            'words.rego': 'package words\n\nshort(word) if count(word) < 5\n',
            'a.rego': `${head('team')}${FIXED}\n${first.join('\n\n')}\n`,
            'b.rego': `${head('other')}${FIXED}\n${second.join('\n\n').replaceAll('"id": "', '"id": "other-')}\n`,
          };
          const { plain, placed } = await buildBoth(files);
          for (const one of calls) expect(placed(one)).toEqual(plain(one));
        }),
        { numRuns: roundsOf(12, 3), endOnFailure: true },
      );
    },
    240_000,
  );

  inFull('are grouped if a body begins with a test of the input, and only then', async () => {
    const { staged } = await buildBoth({
      'a.rego': `package policy.a

deny contains "one" if input.effect.tool == "x"

deny contains "two" if {
	input.effect.verb == "read"
	input.effect.tool == "y"
}

deny contains "three" if {
	count(input.labels) > 0
	input.effect.tool == "z"
}

deny contains "four" if not input.effect.tool == "x"

deny contains "five" if input.effect.tool in {"x", "w"}

deny contains "six" if { input.run == "a" } { input.run == "b" }

deny contains "seven"
`,
    });
    expect(staged.split('\n').filter((line) => line.startsWith('tollgate_'))).toEqual([
      'tollgate_deny_tool_by_0["x"] contains ["0",  "one"] if input.effect.tool == "x"',
      'tollgate_deny_tool_by_0["y"] contains ["1",  "two"] if {',
      'tollgate_deny_call contains ["2",  "three"] if {',
      'tollgate_deny_tool contains ["3",  "four"] if not input.effect.tool == "x"',
      'tollgate_deny_tool_by_0["w"] contains ["4",  "five"] if input.effect.tool in {"x", "w"}',
      'tollgate_deny_tool_by_0["x"] contains ["4",  "five"] if input.effect.tool in {"x", "w"}',
      'tollgate_deny_call_by_1["a"] contains ["5",  "six"] if { input.run == "a" }',
      'tollgate_deny_call_by_1["b"] contains ["6",  "six"] if { input.run == "b" }',
      'tollgate_deny_group contains ["7",  "seven"]',
    ]);
  });

  inFull(
    'have a guard if they read a call: the first part of the body, with each expression on its own row',
    async () => {
      const { staged } = await buildBoth({
        'a.rego': `package policy.a

allow contains {"id": "a", "message": input.run} if {
	is_dev; some group in input.principal.groups

	group == "web" # a remark
	input.effect.arguments.mode == "fast"
	input.effect.tool == "x"
}

deny contains "unbound" if {
	some n
	n > input.effect.arguments.n
	n = [1, 2][_]
}

is_dev if input.principal.role == "developer"
`,
      });
      expect(staged.slice(staged.indexOf('tollgate_open'))).toBe(
        `tollgate_open_allow_group contains ["0", ["allow","deny"]] if {
is_dev; some group in input.principal.groups

group == "web"
}
`,
      );
    },
  );

  const readings = [
    ['as a whole', 'count(data.policy.a) > 0'],
    ['through a name of an import', 'some name, _ in team\n\tname == "deny"'],
    ['by a computed name', 'some name in ["deny"]\n\tcount(data.policy.a[name]) > 0'],
    ['through a parent package', 'some name\n\tcount(data.policy[name].deny) > 0'],
  ] as const;
  it.each(partOf(readings, 1))('are not made for a package that a rule reads %s', async (_name, body) => {
    const files = {
      'a.rego': 'package policy.a\n\ndeny contains "x" if input.effect.tool == "push"\n',
      'watch.rego': `package watch

${body.includes('team') ? 'import data.policy.a as team\n\n' : ''}sees if {
	${body}
}
`,
      'b.rego': 'package other.b\n\nimport data.watch\n\nboth if watch.sees\n',
    };
    const { staged, plain, placed } = await buildBoth(files);
    expect(staged).not.toContain('tollgate_');
    for (const one of [{ tool: 'push' }, { tool: 'x' }]) expect(placed(one)).toEqual(plain(one));
  });

  inFull('keep the METADATA that they read at build time', async () => {
    const { plain, placed } = await buildBoth({
      'a.rego': `package policy.a

# METADATA
# title: Told by the rule
# custom:
#   id: own
deny contains {"id": about.custom.id, "message": about.title} if {
	input.effect.tool == "push"
	about := rego.metadata.rule()
}
`,
    });
    expect(placed({ tool: 'push' })).toEqual(plain({ tool: 'push' }));
    expect(placed({ tool: 'push' })).toMatchObject({ deny: [expect.stringContaining('"message":"Told by the rule"')] });
  });

  inFull('are not made for a package that reads its chain of METADATA', async () => {
    const { plain, placed, staged } = await buildBoth({
      'a.rego': `package policy.a

deny contains chain[0].path[2] if {
	input.effect.tool == "push"
	chain := rego.metadata.chain()
}
`,
    });
    expect(staged).not.toContain('tollgate_');
    expect(placed({ tool: 'push' })).toEqual(plain({ tool: 'push' }));
  });
});

describe('the rows of copies', () => {
  it('map to the rows of the original rules', async () => {
    const [source, staging] = [scratch(), scratch()];
    writeFiles(source, {
      'a.rego': `package policy.a

# METADATA
# custom:
#   id: a
deny contains rego.metadata.rule().custom.id if {
	input.effect.tool == "x"
}

ask contains "two" if input.run`,
    });
    const read = await readRegoSources([{ path: source, shown: '' }]);
    await stageFiles(read, staging);
    const { rowOf } = await prepareRego(read, { opa, staging });
    const lines = readFileSync(path.join(staging, 'user/0/a.rego'), 'utf8').split('\n');
    const written = lines.slice(0, 10);
    for (const [at, line] of lines.entries()) {
      const row = rowOf('user/0/a.rego', at + 1);
      const original = written[row - 1] ?? '';
      if (line.startsWith('tollgate_'))
        expect(original).toMatch(line.includes('two') ? /^ask contains "two"/ : /^deny contains rego/);
      else if (line !== '') expect(original).toBe(line);
    }
    expect(rowOf('elsewhere.rego', 5)).toBe(5);
  });
});

describe('many rules', () => {
  const rules = (count: number): string =>
    `package policy.many

${Array.from(
  { length: count },
  (_, number) => `deny contains "rule ${number}" if {
	input.effect.tool == "t${number}"
	input.effect.arguments.n > ${number}
}
`,
).join('\n')}`;
  let small: WasmPolicy;
  let large: WasmPolicy;

  beforeAll(async () => {
    const load = async (count: number): Promise<WasmPolicy> => {
      const { wasm, facts } = await compileRego(
        [{ path: path.join(scratch({ 'a.rego': rules(count) }), 'a.rego'), shown: 'a.rego' }],
        { opa, cache },
      );
      expect(facts.rules).toHaveLength(count);
      return new WasmPolicy(wasm, JSON.stringify({ config: { ...CONFIG, regoRules: {} } }), {
        entrypoints: [ENTRYPOINTS.call],
      });
    };
    [small, large] = [await load(10), await load(1000)];
    // Here the table of groups ends after the memory that opa requests.
    for (const count of [90, 100, 110]) await load(count);
  }, 120_000);

  it('are found by their first test: a thousand give the same result as ten', () => {
    const input = callInputText(callOf({ tool: 't7', args: { n: 100 } }), { project: false });
    expect(large.evaluate(ENTRYPOINTS.call, input)).toEqual(small.evaluate(ENTRYPOINTS.call, input));
    expect(
      large.evaluate(ENTRYPOINTS.call, callInputText(callOf({ tool: 't700', args: { n: 1000 } }), { project: false }))
        .reasons,
    ).toEqual(expect.arrayContaining([expect.objectContaining({ message: 'rule 700' })]));
  });
});
