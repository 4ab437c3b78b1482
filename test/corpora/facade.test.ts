/**
 * Tests the whole facade with the corpora: it lists and calls real catalogs, and gets hostile definitions and results.
 */
import path from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { auditTool } from '../../catalogs/lint/definition-audit.ts';
import { escapeHostile } from '../../catalogs/text/hostile-text.ts';
import { exposedName, exposedNames } from '../../catalogs/tools/exposed-names.ts';
import { isNamed, TOOL_CAPABILITIES } from '../../catalogs/tools/tool-capabilities.ts';
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';
import { createValidator } from '../../catalogs/validation/validator.ts';
import { Upgrades } from '../../facade/consent/capabilities/capability-upgrades.ts';
import type { Session } from '../../facade/serve/facade-port.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import type { CallInput, Policy } from '../../policies/port.ts';
import { instanceOf, mutantsOf } from '../projection/schema-instances.ts';
import { ACT, allow, type RawFacade, type RawServer, startRaw, tool } from '../properties/raw-facade.ts';
import { verifies } from '../verifies.ts';
import { isWithheldRightly, listAll, mostWithheld, readCases, readCatalogs, requireKnown } from './corpus.ts';

const catalogs = readCatalogs();
const all = listAll(catalogs);

/** Waits until every server has listed its tools, because a list does not wait for slow servers. */
async function settled(facade: RawFacade, session: Session): Promise<void> {
  const { catalog } = facade.assembled;
  await vi.waitFor(
    async () => {
      await facade.list(session);
      expect([...catalogs.keys()].filter((server) => catalog.entries(server).length === 0)).toEqual([]);
    },
    { timeout: 100_000, interval: 250 },
  );
}

/** Approves all servers, as an owner would. */
async function addCapabilities(folder: string): Promise<void> {
  const state = openState(path.join(folder, 'state'));
  const upgrades = new Upgrades({ state, now: Date.now, append: () => undefined });
  for (const capability of TOOL_CAPABILITIES.values())
    await upgrades.enable({ capability, by: 'test', calls: 1e6, bytes: 1e12 });
  await state.close();
}

describe('the catalogs of real servers behind the facade', () => {
  let facade: RawFacade;
  let session: Session;
  let listed: ReadonlyMap<string, Readonly<Record<string, unknown>>>;
  let withoutUpgrades: number;
  beforeAll(async () => {
    const servers = Object.fromEntries([...catalogs].map(([name, tools]): [string, RawServer] => [name, { tools }]));
    facade = await startRaw(servers, { limits: { servers: catalogs.size + 1, connections: catalogs.size } });
    session = facade.open('me');
    await settled(facade, session);
    withoutUpgrades = (await facade.list(session)).length;
    await addCapabilities(facade.folder);
    listed = new Map((await facade.list(session)).map((one) => [one.name, one]));
  }, 120_000);
  afterAll(() => facade.close());

  it(
    'show fewer tools until an owner adds PDF, Excel and code in memory: those whose names say so are hidden' +
      verifies('CY-08'),
    () => {
      const capable = new Set(
        all
          .filter(({ tool: { name } }) =>
            [...TOOL_CAPABILITIES.values()].some((capability) => isNamed(capability, name)),
          )
          .map(({ server, tool: { name } }) => exposedName(server, name)),
      );
      expect(listed.size - withoutUpgrades).toBe([...listed.keys()].filter((name) => capable.has(name)).length);
    },
  );

  it(
    'are listed completely, except quarantined tools and duplicate names' + verifies('CY-14', 'CY-04', 'HE-04'),
    () => {
      const { names } = exposedNames(all.map(({ server, tool: { name } }) => ({ server, tool: name })));
      const withheld = [...catalogs.keys()].flatMap((server) =>
        facade.assembled.catalog
          .entries(server)
          .filter((entry) => entry.quarantine !== undefined)
          .map((entry) => [server, entry.tool] as const),
      );
      expect(withheld.filter(([, own]) => !isWithheldRightly(own)).map(([, { name }]) => name)).toEqual([]);
      expect(withheld.length).toBeLessThanOrEqual(mostWithheld(all.length));
      const quarantined = withheld.map(([server, { name }]) => [server, name] as const);
      expect([...facade.assembled.catalog.problems]).toEqual([]);
      expect(new Set(listed.keys())).toEqual(
        new Set(
          [...names.keys()].filter((name) => !quarantined.some(([server, own]) => exposedName(server, own) === name)),
        ),
      );
    },
  );

  it('resolve every listed tool, and pass valid arguments to its server' + verifies('CY-16', 'CY-15'), async () => {
    let called = 0;
    for (const [server, tools] of catalogs) {
      for (const own of tools) {
        const name = exposedName(server, own.name);
        if (!listed.has(name)) continue;
        const args = instanceOf(own.inputSchema, true);
        const valid = args !== undefined && createValidator(own.inputSchema).check(args).length === 0;
        const answer = await facade.call(session, name, valid ? args : {});
        expect(valid ? [''] : ['', 'ARGS_INVALID'], `${name} ${answer.text.slice(0, 300)}`).toContain(answer.code);
        called += valid ? 1 : 0;
      }
    }
    expect(called).toBeGreaterThan(0.9 * listed.size);
  }, 240_000);

  it('deny no tool listed as always, fail no call inside Tollgate, and show the policy what is sent', async () => {
    const { deps } = facade.assembled;
    const real = deps.policy();
    let seen: CallInput | undefined;
    const recording: Policy = {
      revision: real.revision,
      close: () => undefined,
      list: (principal, tools) => real.list(principal, tools),
      call: (input) => ((seen = input), real.call(input)),
      confinement: (server, principal) => real.confinement(server, principal),
      unbound: (servers) => real.unbound(servers),
    };
    Object.assign(deps, { policy: () => recording });
    // The smallest catalog that has many tools, otherwise the largest.
    const bySize = [...catalogs].sort(([, left], [, right]) => left.length - right.length);
    const [server = ''] = bySize.find(([, tools]) => tools.length > 30) ?? bySize.at(-1) ?? [];
    const tools = (catalogs.get(server) ?? []).filter((own) => listed.has(exposedName(server, own.name)));
    const values = new Map(
      tools.map((own) => [
        own,
        [false, true]
          .map((full) => instanceOf(own.inputSchema, full))
          .flatMap((value) =>
            value === undefined ? [] : [...mutantsOf(value).flatMap((mutant) => [value, mutant]), value],
          ),
      ]),
    );
    const validators = new Map(tools.map((own) => [own, createValidator(own.inputSchema)]));
    const valid = (own: RawTool, args: unknown): boolean => validators.get(own)?.check(args).length === 0;
    const noise = fc.dictionary(fc.string({ maxLength: 8 }), fc.jsonValue({ maxDepth: 2 }), { maxKeys: 2 });
    const before = facade.calls(server).length;
    const expected: string[] = [];
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...tools),
        fc.nat(),
        fc.oneof(fc.constant({}), fc.constant({}), noise),
        async (own, pick, more) => {
          const choices = values.get(own) ?? [];
          const base = choices[pick % Math.max(1, choices.length)] as Record<string, unknown> | undefined;
          const args = { ...base, ...more };
          const text = JSON.stringify(args);
          seen = undefined;
          const { code, text: said } = await facade.call(session, exposedName(server, own.name), args, { text });
          expect(['', 'ARGS_INVALID'], `${own.name} ${text} ${said}`).toContain(code);
          if (code === '') expected.push((seen as CallInput | undefined)?.argsText ?? 'unseen');
          if (valid(own, args)) expect(code, `${own.name} ${text} ${said}`).toBe('');
        },
      ),
      {
        numRuns: 40 * all.length,
        interruptAfterTimeLimit: Math.min(40_000, 15 * all.length),
        markInterruptAsFailure: false,
      },
    );
    expect(expected).not.toEqual([]);
    // The time limit may have ended during a call.
    expect(
      facade
        .calls(server)
        .slice(before, before + expected.length)
        .map(({ args }) => args),
    ).toEqual(expected);
    Object.assign(deps, { policy: () => real });
  }, 120_000);
});

interface SchemaCase {
  readonly id: string;
  readonly input_schema: unknown;
  readonly expected: {
    readonly class: string;
    readonly profile?: string;
    readonly unmap?: readonly { readonly model: unknown; readonly upstream: unknown }[];
    readonly reject?: readonly unknown[];
  };
}

describe('schemas that real providers refused, in stage 3' + verifies('CY-14', 'CY-15', 'HE-06'), () => {
  const cases = readCases<SchemaCase>('schema-cases.json', ['input_schema', 'expected']).filter(
    ({ expected }) => expected.unmap !== undefined || expected.reject !== undefined,
  );
  const PROFILES = [...new Set(cases.map(({ expected }) => expected.profile ?? 'portable'))];
  let facade: RawFacade;
  beforeAll(async () => {
    // A server may list a tool without a schema. Tollgate lists only tools whose schema is an object (see
    // adapters/supervisor/tool-list.ts).
    const tools = cases
      .filter(({ input_schema: schema }) => typeof schema === 'object' && schema !== null)
      .map(({ id, input_schema: schema }) => tool(id, { inputSchema: schema }));
    facade = await startRaw(
      { one: { tools } },
      {
        principals: PROFILES.map((name) => ({ id: name, profiles: [name], stdio: true })),
        profiles: Object.fromEntries(
          PROFILES.map((name) => [
            name,
            { servers: ['one'], schemaProfile: name, expose: { primitives: {}, tools: ['one.*'] } },
          ]),
        ),
      },
    );
  }, 60_000);
  afterAll(() => facade.close());

  it('are in the corpus', () => expect(cases).not.toEqual([]));

  it.each(cases.filter(({ input_schema: schema }) => schema !== null).map((test) => [test.id, test] as const))(
    '%s',
    async (id, { expected }) => {
      const session = facade.open(expected.profile ?? 'portable');
      const name = exposedName('one', id);
      expect((await facade.list(session)).map((one) => one.name)).toContain(name);
      for (const { model, upstream } of expected.unmap ?? []) {
        const answer = await facade.call(session, name, model);
        expect(answer.code, `${JSON.stringify(model)} ${answer.text}`).toBe('');
        expect(JSON.parse(facade.calls('one').at(-1)?.args ?? '')).toEqual(upstream);
      }
      const before = facade.calls('one').length;
      for (const wrong of expected.reject ?? [])
        expect((await facade.call(session, name, wrong)).code, JSON.stringify(wrong)).toBe('ARGS_INVALID');
      expect(facade.calls('one')).toHaveLength(before);
    },
  );
});

interface ArgumentCase {
  readonly id: string;
  readonly kind: string;
  readonly expected: 'allow' | 'deny';
  readonly note: string;
  readonly arguments?: Readonly<Record<string, unknown>>;
  readonly messages?: readonly {
    readonly params: { readonly name: string; readonly arguments: Readonly<Record<string, unknown>> };
  }[];
}

describe('hostile arguments', () => {
  const cases = readCases<ArgumentCase>('attacks/argument_cases.json', ['kind', 'expected', 'note']);
  requireKnown('attacks/argument_cases.json', cases, {
    field: 'kind',
    known: ['path', 'command', 'shell_obfuscation', 'encoding_evasion', 'mcp_chain', 'mcp_input'],
  });
  requireKnown('attacks/argument_cases.json', cases, { field: 'expected', known: ['allow', 'deny'] });
  const commands = cases.filter(({ kind }) => ['command', 'shell_obfuscation', 'encoding_evasion'].includes(kind));
  const chains = cases.filter(({ kind }) => ['mcp_chain', 'mcp_input'].includes(kind));
  const argsOf = (test: ArgumentCase): Readonly<Record<string, unknown>> =>
    test.arguments ?? test.messages?.[0]?.params.arguments ?? {};
  /** Exactly these are allowed below, so that every other command must be denied. */
  const benign = commands.filter((test) => test.expected === 'allow' && test.kind === 'shell_obfuscation');
  let facade: RawFacade;
  let session: Session;
  beforeAll(async () => {
    const used = [...new Set(chains.flatMap(({ messages = [] }) => messages.map(({ params }) => params.name)))];
    facade = await startRaw(
      {
        files: { tools: [tool('open')], settings: { semantics: { open: { verb: 'read', paths: ['path'] } } } },
        shell: {
          tools: commands.map(({ id }) => tool(id)),
          settings: {
            semantics: Object.fromEntries(
              commands.map((test) => [test.id, { verb: 'execute', command: Object.keys(argsOf(test))[0] }]),
            ),
          },
        },
        chain: { tools: used.map((name) => tool(name)) },
      },
      {
        rules: [
          allow('files', 'chain'),
          {
            id: 'inside',
            outcome: 'deny',
            message: 'Outside of the workspace.',
            when: { servers: ['files'], insideWorkspace: false },
          },
          {
            id: 'literal',
            outcome: 'allow',
            when: {
              servers: ['shell'],
              commands: ['ls no-such-file', ...benign.flatMap((test) => Object.values(argsOf(test)).map(String))],
            },
          },
        ],
      },
    );
    session = facade.open('me');
    await facade.list(session);
  }, 60_000);
  afterAll(() => facade.close());

  it.each(cases.filter(({ kind }) => kind === 'path').map((test) => [`${test.id} ${test.note}`, test] as const))(
    'path: %s' + verifies('CY-18'),
    async (_name, test) => {
      expect((await facade.call(session, 'files_open', test.arguments)).code).toBe(
        test.expected === 'allow' ? '' : 'DENIED',
      );
    },
  );

  it.each(
    commands.filter(({ expected }) => expected === 'deny').map((test) => [`${test.id} ${test.note}`, test] as const),
  )('command: %s is not among the literal commands that are allowed', async (_name, test) => {
    expect((await facade.call(session, exposedName('shell', test.id), argsOf(test))).code).toBe('DENIED');
  });

  it('command: a literal command that a rule names is allowed', async () => {
    for (const test of benign)
      expect((await facade.call(session, exposedName('shell', test.id), argsOf(test))).code, test.id).toBe('');
  });

  it.each(
    chains.filter(({ expected }) => expected === 'deny').map((test) => [`${test.id} ${test.note}`, test] as const),
  )('known gap: %s passes a policy that decides each call alone', async (_name, { messages = [] }) => {
    for (const { params } of messages)
      expect((await facade.call(session, exposedName('chain', params.name), params.arguments)).code).toBe('');
  });
});

interface OutputCase {
  readonly id: string;
  readonly class: string;
  readonly expected: 'flag' | 'pass' | 'strip-or-flag' | 'cap';
  readonly content?: readonly { readonly type: string; readonly text?: string }[];
  readonly generate?: { readonly char: string; readonly length: number };
}

describe('hostile results', () => {
  const cases = readCases<OutputCase>('attacks/outputs.json', ['class', 'expected']);
  requireKnown('attacks/outputs.json', cases, { field: 'expected', known: ['flag', 'pass', 'strip-or-flag', 'cap'] });
  const contentOf = (test: OutputCase): unknown =>
    test.content ?? [{ type: 'text', text: (test.generate?.char ?? 'x').repeat(test.generate?.length ?? 0) }];
  let facade: RawFacade;
  let session: Session;
  beforeAll(async () => {
    facade = await startRaw({
      one: {
        tools: cases.map(({ id }) => tool(id)),
        answers: Object.fromEntries(
          cases.map((test) => [test.id, { raw: JSON.stringify({ content: contentOf(test) }) }]),
        ),
      },
    });
    session = facade.open('me');
    await facade.list(session);
  });
  afterAll(() => facade.close());

  it.each(cases.map((test) => [`${test.id} ${test.class} (${test.expected})`, test] as const))(
    '%s' + verifies('CY-19'),
    async (_name, test) => {
      const { result, code } = await facade.call(session, `one_${test.id}`, {});
      const meta = Object.keys(result?._meta ?? {});
      expect(code).toBe('');
      if (test.expected === 'cap') {
        expect(JSON.stringify(result).length).toBeLessThan(40_000);
        return expect(meta).toContain('tollgate/cut');
      }
      if (test.expected === 'strip-or-flag') {
        expect(result?.content).toEqual(
          test.content?.map((item) => ({ ...item, text: escapeHostile(item.text ?? '').text })),
        );
        expect(result?._meta?.['tollgate/escaped']).toBeGreaterThan(0);
        return expect(JSON.stringify(result?.content)).not.toBe(JSON.stringify(test.content));
      }
      // Honest text and text that steers a model cannot be told apart, so both pass as data (a documented gap).
      expect(result?.content).toEqual(test.content);
      return expect(meta).toEqual(['tollgate/provenance']);
    },
  );
});

interface PoisonedTool {
  readonly id: string;
  readonly class: string;
  readonly basis: string;
  readonly tool: RawTool;
  readonly previously_approved?: RawTool;
}

describe('hostile definitions', () => {
  const cases = readCases<PoisonedTool>('attacks/poisoned_tools.json', ['class', 'basis', 'tool']);
  const structure = /^(schema-dos|invalid-name|padding)/;

  it('with hostile bytes or structure are quarantined alone, with a reason', async () => {
    // Terminal escapes in a description are removed, and the tool stays.
    const hostile = cases.filter(
      ({ basis, class: kind, tool: own }) =>
        (basis === 'bytes' || structure.test(kind)) && !auditTool(own).notes.some(({ id }) => id === 'TERMINAL_ESCAPE'),
    );
    expect(hostile).not.toEqual([]);
    const facade = await startRaw({
      evil: { tools: [tool('first'), ...hostile.map((test) => ({ ...OPEN_TOOL, ...test.tool })), tool('last')] },
    });
    try {
      const session = facade.open('me');
      const names = (await facade.list(session)).map(({ name }) => name);
      expect([...facade.assembled.catalog.problems]).toEqual([]);
      expect(names).toEqual(['evil_first', 'evil_last']);
      for (const entry of facade.assembled.catalog.entries('evil')) {
        if (entry.tool.name === 'first' || entry.tool.name === 'last') continue;
        expect(entry.quarantine, entry.tool.name).toMatch(/^(TOOL|SCHEMA)_[A-Z_]+/);
        expect((await facade.call(session, exposedName('evil', entry.tool.name), {})).code).toBe('UNKNOWN_TOOL');
      }
      expect(facade.calls('evil')).toEqual([]);
      expect((await facade.call(session, 'evil_last', {})).code).toBe('');
    } finally {
      await facade.close();
    }
  });

  it('that change after the list was read are refused until it is read again' + verifies('CY-16'), async () => {
    const pulls = cases.filter((test) => test.previously_approved !== undefined);
    expect(pulls).not.toEqual([]);
    const facade = await startRaw({ evil: { tools: [ACT] } });
    try {
      const session = facade.open('me');
      for (const { id, tool: now, previously_approved: before } of pulls) {
        const [old, pulled] = [
          { ...OPEN_TOOL, ...before, name: id },
          { ...OPEN_TOOL, ...now, name: id },
        ];
        facade.redefine('evil', { tools: [ACT, old] });
        await settle(facade, session);
        expect(
          (await facade.list(session)).map(({ name }) => name),
          id,
        ).toContain(`evil_${id}`);
        facade.redefine('evil', { tools: [ACT, pulled] });
        await settle(facade, session);
        expect(['PIN_MISMATCH', 'UNKNOWN_TOOL'], id).toContain((await facade.call(session, `evil_${id}`, {})).code);
      }
      expect(facade.calls('evil').filter(({ name }) => name !== 'act')).toEqual([]);
    } finally {
      await facade.close();
    }
  }, 60_000);
});

const OPEN_TOOL = { inputSchema: { type: 'object' } };

/** Makes the server report that its list has changed, and waits until Tollgate has read the report. */
async function settle(facade: RawFacade, session: Session): Promise<void> {
  await facade.call(session, 'evil_act', { notify: true });
  await new Promise((resolve) => setTimeout(resolve, 260));
}
