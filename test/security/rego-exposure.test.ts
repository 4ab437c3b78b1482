/**
 * Tests attacks with exposures of Rego: they show what tollgate.yaml shows under other names, and never more (issue 10,
 * R).
 */
import { chownSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { cli, dataOf } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { allow, type RawFacade, startRaw, tool } from '../properties/raw-facade.ts';
import { verifies } from '../verifies.ts';

interface Schema {
  readonly definitions: Readonly<Record<string, Schema>>;
  readonly properties?: unknown;
  readonly required?: unknown;
  readonly additionalProperties?: unknown;
}

const NOTE = { type: 'object', properties: { owner: { type: 'string' }, text: { type: 'string' } } } as const;
const TOOLS = [tool('post', { inputSchema: NOTE }), tool('log'), tool('wipe')];

let facade: RawFacade | undefined;
const folders: string[] = [];
afterEach(async () => {
  await facade?.close();
  facade = undefined;
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
});

/** Opens a facade whose policy has these rules of `expose`. */
async function start(
  rego: string,
  {
    expose = ['one.*'],
    rules = [allow('one')],
    ...rest
  }: { readonly expose?: readonly unknown[]; readonly rules?: readonly unknown[] } & Readonly<
    Record<string, unknown>
  > = {},
  servers: Parameters<typeof startRaw>[0] = { one: { tools: TOOLS } },
  approved?: readonly string[],
): Promise<RawFacade> {
  const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-exposure-'));
  folders.push(folder);
  mkdirSync(path.join(folder, 'rego'));
  writeFileSync(path.join(folder, 'rego', 'team.rego'), `package policy.team\n\n${rego}\n`);
  return startRaw(
    servers,
    {
      principals: [
        { id: 'me', role: 'intern', profiles: ['all'], stdio: true },
        { id: 'chief', role: 'lead', profiles: ['all'], stdio: true },
      ],
      profiles: { all: { servers: ['one'], expose: { primitives: {}, tools: expose } } },
      rules,
      policies: [path.join(folder, 'rego')],
      ...rest,
    },
    {},
    approved === undefined ? {} : { approved },
  );
}

const member = (fields: object, condition = 'input.principal.id'): string =>
  `expose contains ${JSON.stringify(fields)} if ${condition}`;
const INTERN = 'input.principal.role == "intern"';

async function namesFor(id: string): Promise<readonly string[]> {
  return (await (facade as RawFacade).list((facade as RawFacade).open(id))).map(({ name }) => String(name)).sort();
}

describe('exposures of Rego', () => {
  it(
    'show a tool under another name, with words, risk and pins, to the callers that they name' + verifies('TR-73'),
    async () => {
      facade = await start(
        member(
          {
            tool: 'one.post',
            name: 'note',
            description: 'Leaves a note.',
            risk: ['writes'],
            schemaProfile: 'flat',
            pins: { owner: 'interns' },
          },
          INTERN,
        ),
      );
      expect([await namesFor('me'), await namesFor('chief')]).toEqual([
        ['note', 'one_log', 'one_wipe'],
        ['one_log', 'one_post', 'one_wipe'],
      ]);
      const [note] = (await facade.list(facade.open('me'))).filter(({ name }) => name === 'note');
      expect(note).toMatchObject({ description: '[writes] Leaves a note.', inputSchema: { properties: { text: {} } } });
      expect(JSON.stringify(note)).not.toContain('owner');
      expect((await facade.call(facade.open('me'), 'note', { text: 'x', owner: 'lead' })).code).toBe('');
      expect((await facade.call(facade.open('me'), 'one_post', { text: 'x' })).code).toBe('UNKNOWN_TOOL');
      expect((await facade.call(facade.open('chief'), 'note', { text: 'x' })).code).toBe('UNKNOWN_TOOL');
      expect(facade.calls('one').map(({ args }) => JSON.parse(args) as unknown)).toEqual([
        { text: 'x', owner: 'interns' },
      ]);
    },
  );

  it('pin every tool that a pattern covers, and a named tool has priority' + verifies('TR-73'), async () => {
    facade = await start(
      `${member({ tool: 'one.*', risk: ['network'], pins: {} })}\n${member({ tool: 'one.log', name: 'history' })}`,
    );
    const listed = new Map(
      (await facade.list(facade.open('me'))).map(({ name, description }) => [name, String(description)]),
    );
    expect([...listed].map(([name, words]) => [name, words.startsWith('[uses the network]')])).toEqual(
      expect.arrayContaining([
        ['one_post', true],
        ['one_wipe', true],
        ['history', false],
      ]),
    );
    expect(listed.size).toBe(3);
  });

  it(
    'open nothing that is hidden, denied, for owners only, not configured, quarantined or missing, and tell the owner' +
      verifies('TR-73'),
    async () => {
      const names = [
        'hidden',
        'owned',
        'beyond',
        'closed',
        'reserved',
        'bound',
        'first',
        'second',
        'twice',
        'pinned',
        'hostile',
        'mimic',
      ];
      const rego = [
        member({ tool: 'one.hidden', name: 'clean' }),
        member({ tool: 'one.owned', name: 'own' }),
        member({ tool: 'one.beyond', name: 'far' }),
        member({ tool: 'one.closed', name: 'shut' }),
        'expose contains {"tool": "one.reserved", "name": upper("bash")} if input.principal.id',
        member({ tool: 'one.bound', name: 'tied', pins: { owner: 'me' } }),
        member({ tool: 'one.first', name: 'do' }),
        member({ tool: 'one.second', name: 'DO' }),
        member({ tool: 'one.twice', name: 'two', pins: { owner: 'a' } }),
        member({ tool: 'one.twice', name: 'two', pins: { owner: 'b' } }),
        member({ tool: 'one.pinned', name: 'pin', pins: { onwer: 'me' } }),
        member({ tool: 'workspace.bash', name: 'shell' }),
        'expose contains {"tool": concat(".", ["one", "no-such"]), "name": "gone"} if input.principal.id',
        member({ tool: 'two.post', name: 'other' }),
        member({ tool: 'one.hostile', name: 'kind' }),
      ].join('\n');
      facade = await start(
        rego,
        {
          profiles: {
            all: {
              servers: ['one'],
              expose: {
                primitives: {},
                tools: [
                  ...names.filter((name) => name !== 'beyond' && name !== 'bound').map((name) => `one.${name}`),
                  { tool: 'one.bound', pins: { owner: 'you' } },
                ],
              },
            },
          },
          rules: [
            allow('one', 'two'),
            { id: 'never', outcome: 'deny', when: { tools: ['one.hidden'] } },
            { id: 'owners', outcome: 'deny', when: { tools: ['one.owned'], owner: false } },
          ],
        },
        {
          one: {
            tools: names.map((name) =>
              tool(name, { inputSchema: NOTE, ...(name === 'hostile' && { description: 'Reads\u202e it.' }) }),
            ),
            settings: { tools: { deny: ['closed'] } },
          },
          two: { tools: TOOLS },
        },
      );
      expect(await namesFor('me')).toEqual(['one_mimic']);
      const session = facade.open('me');
      for (const name of [
        'clean',
        'own',
        'far',
        'shut',
        'bash',
        'BASH',
        'tied',
        'do',
        'DO',
        'two',
        'pin',
        'shell',
        'gone',
        'other',
        'kind',
        ...names.filter((one) => one !== 'mimic').map((one) => `one_${one}`),
      ]) {
        expect([name, (await facade.call(session, name, { text: 'x' })).code]).toEqual([name, 'UNKNOWN_TOOL']);
      }
      expect([facade.calls('one'), facade.calls('two')]).toEqual([[], []]);
      const log = (await facade.assembled.deps.nameTables.tableFor(session.principal)).unshown.join('\n');
      const told = facade.records().filter(({ event }) => event === 'unshown');
      expect(told.map(({ tool: name }) => name)).toEqual(
        expect.arrayContaining(['one.beyond', 'one.bound', 'one.twice', 'one.pinned', 'one.no-such', 'one.reserved']),
      );
      expect(
        told.every(({ outcome, place }) => outcome === 'error' && /(?:^|\/)team\.rego:\d+$/.test(String(place))),
      ).toBe(true);
      const again = told.length;
      await namesFor('me');
      expect(facade.records().filter(({ event }) => event === 'unshown')).toHaveLength(again);
      for (const words of [
        'belongs to a primitive',
        'contradict those of the tool',
        'gives this tool the same name',
        'does not show this tool to this principal',
        'has no tool "no-such": nothing is shown',
        'has no argument "onwer"',
      ])
        expect(log).toContain(words);
    },
  );

  it('of a server without approval show and open nothing' + verifies('TR-73'), async () => {
    facade = await start(member({ tool: 'one.post', name: 'note' }), {}, { one: { tools: TOOLS } }, []);
    expect(await namesFor('me')).toEqual([]);
    expect((await facade.call(facade.open('me'), 'note', { text: 'x' })).code).not.toBe('');
    expect(facade.calls('one')).toEqual([]);
  });

  it('keep the pins of tollgate.yaml: a member without them opens nothing' + verifies('TR-73'), async () => {
    facade = await start(member({ tool: 'one.post', name: 'note' }), {
      expose: [{ tool: 'one.post', pins: { owner: 'mine' } }],
    });
    await facade.call(facade.open('me'), 'note', { text: 'x', owner: 'theirs' });
    expect(facade.calls('one').map(({ args }) => JSON.parse(args) as unknown)).toEqual([{ text: 'x', owner: 'mine' }]);
  });

  it.each([
    [
      'a misspelled key',
      member({ tool: 'one.post', nmae: 'note' }),
      'team.rego:3:1: a member of `expose` cannot be used: nmae: unknown key "nmae". Did you mean "name"?',
    ],
    ['a server that there is not', member({ tool: 'oen.post' }), 'there is no server "oen". Did you mean "one"?'],
    [
      'a schema profile that there is not',
      member({ tool: 'one.post', schemaProfile: 'flta' }),
      'There is no schema profile "flta"',
    ],
    ['a name for a pattern', member({ tool: 'one.*', name: 'all' }), 'so several tools would have it'],
    ['a name of a primitive', member({ tool: 'one.post', name: 'bash' }), 'belongs to a primitive'],
    ['a value of another kind', member({ tool: 'one.post', pins: 'owner' }), 'pins: "owner" is not of type object'],
    [
      'what only a call carries',
      member({ tool: 'one.post', name: 'note' }, 'input.effect.tool == "post"'),
      'read only `input.principal` and data of the policy',
    ],
    ['the clock', member({ tool: 'one.post', name: 'note' }, 'time.now_ns() > 0'), 'is decided before there is a call'],
    ['a rule that is no set', 'expose := true', '`expose` must be a set'],
  ])('refuse the load with %s' + verifies('TR-74'), async (_name, rego, message) => {
    await expect(start(rego)).rejects.toMatchObject({
      code: 'POLICY_INVALID',
      message: expect.stringContaining(message) as string,
    });
  });

  it('that show nothing are reported when the server is approved' + verifies('TR-73'), async () => {
    const project = new Project();
    try {
      // A probe drops the rights of root if the workspace does not belong to root.
      chownSync(path.dirname(project.write('workspace/a.txt', 'a')), 1000, 1000);
      project.write(
        'rego/team.rego',
        `package policy.team

expose contains {"tool": concat(".", ["notes", "fnid"])} if input.principal.id
${member({ tool: 'notes.find', name: 'found' })}
`,
      );
      project.write(
        'tollgate.yaml',
        `version: 1
workspace: ./workspace
servers:
  notes:
    command: ${process.execPath}
    args: [${path.join(import.meta.dirname, '..', 'fixtures', 'notes-server.mjs')}]
principals: [{id: me, profiles: [dev], stdio: true, owner: true}]
profiles: {dev: {servers: [notes], expose: {primitives: {}, tools: ["notes.*"]}}}
policies: [rego]
`,
      );
      type Shown = { readonly start: { readonly hash: string }; readonly tools: { readonly hash: string } };
      const look = async (): Promise<Shown> => dataOf((await cli(project, ['approve', 'notes', '--json'])).out);
      const {
        start: { hash },
      } = await look();
      await cli(project, ['approve', 'notes', '--yes', hash]);
      const { code, err } = await cli(project, ['approve', 'notes', '--yes', hash, (await look()).tools.hash]);
      expect([code, err]).toEqual([
        0,
        expect.stringMatching(
          /team\.rego:3: server "notes" has no tool "fnid": nothing is shown; did you mean "find"\?/,
        ),
      ]);
      expect(err).not.toContain('team.rego:4');
      project.write('rego/team.rego', `package policy.team\n\n${member({ tool: 'notes.fnid' })}\n`);
      await cli(project, ['revoke', 'notes']);
      await cli(project, ['approve', 'notes', '--yes', hash]);
      expect(await cli(project, ['approve', 'notes', '--yes', hash, (await look()).tools.hash])).toMatchObject({
        code: 0,
        err: expect.stringMatching(
          /The policy does not fit these tools: .*team\.rego:3:1: notes has no tool "fnid"/,
        ) as string,
      });
    } finally {
      project.remove();
    }
  });

  it(
    'with an invalid key that appears at a list refuse the list and each call, and name it' + verifies('TR-74'),
    async () => {
      facade = await start(
        'expose contains member if {\n\tinput.principal.id\n\tmember := {"tool": "one.post", "pin": {"owner": "x"}}\n}',
      );
      const session = facade.open('me');
      const { code, error } = await facade.call(session, 'one_log', {});
      expect([code, JSON.stringify(error)]).toEqual([
        'POLICY_FAILED',
        expect.stringContaining('unknown key \\"pin\\"'),
      ]);
      await expect(facade.list(session)).rejects.toBeDefined();
    },
  );

  it('have the schema of expose.tools in tollgate.yaml', () => {
    const read = (file: string): Schema =>
      JSON.parse(readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8')) as Schema;
    const [rego, yaml] = [
      read('policies/schemas/exposure.json'),
      read('facade/config/tollgate.schema.json').definitions.exposed,
    ];
    expect([rego.properties, rego.required, rego.additionalProperties]).toEqual([
      yaml?.properties,
      yaml?.required,
      yaml?.additionalProperties,
    ]);
  });
});
