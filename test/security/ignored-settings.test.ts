/**
 * Tests attacks on ignored settings: a key, name or list without effect must never make the policy less strict (issue
 * 10, Q).
 * Covers: facade/call, facade/serve.
 */
import { chownSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { EXIT } from '../../facade/cli/command-io.ts';
import { readClientText } from '../../facade/clients/client-file-reader.ts';
import { joinLimits } from '../../facade/clients/tool-restrictions.ts';
import { loadConfig } from '../../facade/config/load-config.ts';
import { loadPolicy } from '../../policies/engine/policy-loader.ts';
import type { CallDecision } from '../../policies/port.ts';
import { cli, dataOf } from '../cli/terminal.ts';
import { atHome } from '../clients/home.ts';
import { Project } from '../config/project.ts';
import { callOf, documentOf, parts, regoSource, scratch, settings } from '../engine/policy-fixture.ts';
import { Child } from '../process/child.ts';
import { allow, type RawFacade, startRaw, tool } from '../properties/raw-facade.ts';
import { verifies } from '../verifies.ts';

let facade: RawFacade | undefined;
afterEach(async () => {
  await facade?.close();
  facade = undefined;
});

const NOTE = { type: 'object', properties: { owner: { type: 'string' }, text: { type: 'string' } } } as const;

describe('an included client file that takes tools away', () => {
  /** Loads a configuration that includes these files. */
  function toolsOf(yaml: string, files: Readonly<Record<string, unknown>>): ReturnType<typeof loadConfig> {
    const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-ignored-'));
    try {
      for (const [name, value] of Object.entries(files)) writeFileSync(path.join(folder, name), JSON.stringify(value));
      writeFileSync(
        path.join(folder, 'tollgate.yaml'),
        `version: 1\ninclude: [${Object.keys(files).join(', ')}]\n${yaml}`,
      );
      return loadConfig(path.join(folder, 'tollgate.yaml'), { env: {}, home: '/home/none' });
    } finally {
      rmSync(folder, { recursive: true });
    }
  }
  const entry = (more: object): object => ({ mcpServers: { git: { command: 'git-server', ...more } } });

  it.each([
    ['denyTools', { denyTools: ['push'] }, { deny: ['push'] }],
    ['allowTools', { allowTools: ['log', 'get_*'] }, { allow: ['log', 'get_*'] }],
    [
      'excludeTools and includeTools of Gemini',
      { excludeTools: ['push'], includeTools: ['log'] },
      { allow: ['log'], deny: ['push'] },
    ],
    [
      'disabled_tools and enabled_tools of Codex',
      { disabled_tools: ['push'], enabled_tools: ['log'] },
      { allow: ['log'], deny: ['push'] },
    ],
    ['disabledTools of Windsurf', { disabledTools: ['push'] }, { deny: ['push'] }],
    ['an empty list of allowed tools', { allowTools: [] }, { allow: [] }],
  ])('applies %s' + verifies('TR-71'), (_name, more, tools) => {
    expect(toolsOf('', { 'a.json': entry(more) }).servers.get('git')?.tools).toEqual(tools);
  });

  it(
    'applies together with tollgate.yaml and a second file: a tool that one of them removes is removed' +
      verifies('TR-71'),
    () => {
      const { servers } = toolsOf('servers: {git: {tools: {allow: [log, push, get_*], deny: [get_all]}}}', {
        'a.json': entry({ allowTools: ['*'], denyTools: ['push'] }),
        'b.json': entry({ allowTools: ['log', 'push', 'get_one'] }),
      });
      expect(servers.get('git')?.tools).toEqual({ allow: ['log', 'push', 'get_one'], deny: ['get_all', 'push'] });
      const copied = toolsOf('servers: {git: {command: git-server}}', { 'a.json': entry({ denyTools: ['push'] }) });
      expect([copied.servers.get('git')?.tools, copied.warnings.map(({ message }) => message).join()]).toEqual([
        { deny: ['push'] },
        expect.stringContaining('removes tools from git'),
      ]);
    },
  );

  it.each([
    ['a list that cannot be read', { denyTools: 'push' }, /"denyTools" is not a list of tool names/],
    ['a name that is not a tool name', { denyTools: ['push', 7] }, /"denyTools" is not a list of tool names/],
    ['a misspelled key', { denyTool: ['push'] }, /unknown key "denyTool": did you mean "denyTools"\?/],
  ])('makes the server unusable with %s, and the start continues' + verifies('TR-71'), (_name, more, message) => {
    expect(toolsOf('', { 'a.json': entry(more) }).servers.get('git')?.unusable).toMatch(message);
  });

  it('never admits a tool that only one of the joined lists admits' + verifies('TR-71'), () => {
    const lists = [['a'], ['a*'], ['*b'], ['a*b'], ['*'], [], ['a*c*b', 'x']];
    const names = ['a', 'b', 'ab', 'acb', 'acdb', 'x', 'aXcYb', ''];
    const admits = (list: readonly string[], name: string): boolean =>
      list.some((pattern) => new RegExp(`^${pattern.replaceAll('*', '.*')}$`).test(name));
    for (const one of lists)
      for (const other of lists)
        for (const name of names) {
          const both = joinLimits({ allow: one }, { allow: other }).allow ?? ['*'];
          if (admits(both, name))
            expect([one, other, name, admits(one, name) && admits(other, name)]).toEqual([one, other, name, true]);
        }
  });

  it('keeps its restrictions in a copy' + verifies('TR-71'), async () => {
    await atHome(['cursor'], async (home) => {
      const file = home.file('.cursor/mcp.json');
      writeFileSync(
        file,
        JSON.stringify({ mcpServers: { git: { command: 'git-server', denyTools: ['push'], allowTools: ['log'] } } }),
      );
      const { err } = await home.run(['import', '--from', 'cursor', '--copy', '--secrets', 'env', '--yes']);
      expect(err).toContain('keeps the restriction of its tools');
      expect(readdirSync(home.file('project/servers'))).toEqual(['git.yaml']);
      expect(readFileSync(home.file('project/servers/git.yaml'), 'utf8')).toMatch(
        /tools:\n {2}allow:\n {4}- log\n {2}deny:\n {4}- push\n/,
      );
    });
  });

  it('does not confuse a map under `tools` with a list of tools', () => {
    const read = readClientText(JSON.stringify(entry({ tools: { push: { approval: 'x' } } })), {
      shown: 'a',
      project: '/',
      file: '/a.json',
    });
    expect([read.entries[0]?.tools, read.entries[0]?.unusable]).toEqual([undefined, undefined]);
  });
});

describe('the reasons that change or refuse a call', () => {
  const rest = (
    tools: readonly unknown[],
    rules: readonly unknown[] = [allow('one')],
  ): Readonly<Record<string, unknown>> => ({
    profiles: { all: { servers: ['one'], expose: { primitives: {}, tools } } },
    rules,
  });

  it('are told in the result if a pin replaces an argument of the caller' + verifies('TR-75'), async () => {
    facade = await startRaw(
      { one: { tools: [tool('post', { inputSchema: NOTE })] } },
      rest([{ tool: 'one.post', pins: { owner: 'mine-4711' } }]),
    );
    const session = facade.open('me');
    const replaced = await facade.call(session, 'one_post', { owner: 'theirs', text: 'x' });
    expect(replaced.text).toContain(
      'note: the owner has set argument owner for this tool; the value in the call was not used',
    );
    expect((await facade.call(session, 'one_post', { OWNER: 'mine-4711', text: 'x' })).text).toContain(
      'argument owner',
    );
    for (const args of [{ text: 'x' }, { owner: 'mine-4711', text: 'x' }])
      expect((await facade.call(session, 'one_post', args)).text).not.toContain('note:');
    expect(facade.calls('one').map(({ args }) => (JSON.parse(args) as { owner: string }).owner)).toEqual([
      'mine-4711',
      'mine-4711',
      'mine-4711',
      'mine-4711',
    ]);
  });

  it(
    'say for a rule that asks about each call that it does so, and does not judge arguments' + verifies('TR-76'),
    async () => {
      const ask = (when: object): object => ({ id: 'ask-first', outcome: 'ask', when });
      facade = await startRaw(
        { one: { tools: [tool('post'), tool('log')] } },
        rest(
          ['one.*'],
          [
            allow('one'),
            ask({ tools: ['one.post'] }),
            { id: 'sometimes', outcome: 'ask', when: { tools: ['one.log'], args: { all: { equals: true } } } },
          ],
        ),
      );
      const listed = new Map(
        (await facade.list(facade.open('me'))).map(({ name, description }) => [name, description]),
      );
      expect(listed.get('one_post')).toMatch(/\n\(Policy: a person is asked about each call\.\)$/);
      expect(listed.get('one_log')).toMatch(/\n\(Policy: a person is asked when all is true/);
    },
  );

  it('are recorded with the rule for a hidden tool, which is unknown to the caller' + verifies('TR-78'), async () => {
    const rules = [
      allow('one'),
      { id: 'no-push', outcome: 'deny', message: 'Never push.', when: { tools: ['one.push', 'one.rename'] } },
    ];
    facade = await startRaw(
      { one: { tools: [tool('push'), tool('rename')] } },
      rest(['one.push', { tool: 'one.rename', name: 'move' }], rules),
    );
    const session = facade.open('me');
    const [hidden, aliased, unknown] = [
      await facade.call(session, 'one_push', {}),
      await facade.call(session, 'move', {}),
      await facade.call(session, 'no_such', {}),
    ];
    const plain = ({ error }: typeof hidden): unknown =>
      JSON.parse(JSON.stringify(error).replace(/"decision":"[^"]*"/, '"decision":""'));
    expect([plain(hidden), plain(aliased)]).toEqual([plain(unknown), plain(unknown)]);
    expect(JSON.stringify([hidden, aliased])).not.toContain('no-push');
    const decisions = facade
      .records()
      .filter(({ type }) => type === 'decision')
      .map(({ exposed, code, reasons }) => ({ exposed, code, reasons }));
    const reasons = [{ id: 'no-push', file: 'tollgate.yaml', line: 1 }];
    expect(decisions).toEqual([
      { exposed: 'one_push', code: 'UNKNOWN_TOOL', reasons },
      { exposed: 'move', code: 'UNKNOWN_TOOL', reasons },
      { exposed: 'no_such', code: 'UNKNOWN_TOOL' },
    ]);
  });
});

describe('a name that matches nothing, of a server whose definitions are known', () => {
  const POST = tool('post', { inputSchema: NOTE });
  const rest = (
    more: Readonly<Record<string, unknown>>,
    profile: Readonly<Record<string, unknown>> = {},
  ): Readonly<Record<string, unknown>> => ({
    profiles: { all: { servers: ['one'], expose: { primitives: {}, tools: ['one.*'] }, ...profile } },
    ...more,
  });
  const pinned = (entry: object): Readonly<Record<string, unknown>> =>
    rest({}, { expose: { primitives: {}, tools: [entry, 'one.log'] } });
  const BUDGET = { id: 'few', scope: 'session', calls: 1 };

  it.each([
    ['an argument of a pin', pinned({ tool: 'one.post', pins: { onwer: 'mine' } }), ['post']],
    [
      'an argument of a pin of a pattern',
      rest({}, { expose: { primitives: {}, tools: [{ tool: 'one.*', pins: { onwer: 'mine' } }] } }),
      ['post', 'log'],
    ],
    [
      'the tool of a pin, next to a pattern that shows it',
      rest({}, { expose: { primitives: {}, tools: [{ tool: 'one.pots', pins: { owner: 'mine' } }, 'one.*'] } }),
      ['post', 'log'],
    ],
    ['the tool of a budget', rest({ budgets: [{ ...BUDGET, when: { tool: 'one.pots' } }] }), ['post', 'log']],
    [
      'the tool of a budget, next to its server',
      rest({ budgets: [{ ...BUDGET, when: { server: 'one', tool: 'pots' } }] }),
      ['post', 'log'],
    ],
    [
      'the tool of a budget of the profile',
      rest({}, { budgets: [{ ...BUDGET, when: { tool: 'one.pots' } }] }),
      ['post', 'log'],
    ],
  ])(
    'refuses the calls that it concerns, instead of making them without it: %s' + verifies('TR-70'),
    async (_name, more, refused) => {
      facade = await startRaw(
        {
          one: {
            tools: [POST, tool('log', { inputSchema: { type: 'object', properties: { all: { type: 'boolean' } } } })],
          },
        },
        more,
      );
      const session = facade.open('me');
      const listed = (await facade.list(session)).map(({ name }) => name);
      for (const name of ['post', 'log']) {
        const { code, text } = await facade.call(session, `one_${name}`, {});
        expect([name, code, listed.includes(`one_${name}`)]).toEqual([
          name,
          refused.includes(name) ? 'DENIED' : '',
          !refused.includes(name),
        ]);
        if (refused.includes(name)) expect(text).toMatch(/^Refused by rule unknown-name: tollgate\.yaml:1 names/);
        expect(text).not.toMatch(/onwer|pots/);
      }
      expect(facade.calls('one').map(({ name }) => name)).toEqual(
        ['post', 'log'].filter((name) => !refused.includes(name)),
      );
      const reasons = facade
        .records()
        .filter(({ type, code }) => type === 'decision' && code === 'DENIED')
        .map((record) => record.reasons);
      expect(reasons).toEqual(refused.map(() => [{ id: 'unknown-name', file: 'tollgate.yaml', line: 1 }]));
    },
  );

  it(
    'hides the tool and refuses its calls if the value of a pin does not fit the tool' + verifies('TR-70'),
    async () => {
      facade = await startRaw(
        { one: { tools: [POST, tool('log')] } },
        pinned({ tool: 'one.post', pins: { owner: 4711 } }),
      );
      const session = facade.open('me');
      expect((await facade.list(session)).map(({ name }) => name)).toEqual(['one_log']);
      expect([
        (await facade.call(session, 'one_post', {})).code,
        (await facade.call(session, 'one_log', {})).code,
      ]).toEqual(['ARGS_INVALID', '']);
      expect(facade.calls('one').map(({ name }) => name)).toEqual(['log']);
    },
  );

  it.each([
    ['a denied tool', { tools: { deny: ['pots'] } }, ['DENIED', 'DENIED']],
    ['an argument that is a path', { semantics: { post: { verb: 'write', paths: ['ownr'] } } }, ['DENIED', '']],
    ['a tool that is classified', { semantics: { pots: { verb: 'write', paths: ['owner'] } } }, ['DENIED', 'DENIED']],
    ['a removed tool, without a similar name,', { semantics: { remove_everything: 'destructive' } }, ['', '']],
    ['a removed tool that is admitted', { tools: { allow: ['post', 'log', 'remove_everything'] } }, ['', '']],
  ])('%s, named under its server' + verifies('TR-70'), async (_name, settings, codes) => {
    facade = await startRaw(
      { one: { tools: [POST, tool('log', { inputSchema: { type: 'object', properties: {} } })], settings } },
      rest({}),
    );
    const session = facade.open('me');
    expect([
      (await facade.call(session, 'one_post', {})).code,
      (await facade.call(session, 'one_log', {})).code,
    ]).toEqual(codes);
  });

  it(
    'is reported in the log at each start if a rule or expose uses it, even while the server is not running' +
      verifies('TR-72'),
    async () => {
      const project = new Project();
      try {
        chownSync(path.dirname(project.write('workspace/a.txt', 'a')), 1000, 1000);
        project.write(
          'tollgate.yaml',
          `version: 1
workspace: ./workspace
servers:
  notes:
    command: ${process.execPath}
    isolation: direct
    args: [${path.join(import.meta.dirname, '..', 'fixtures', 'notes-server.mjs')}]
bash: {isolation: direct}
rules: [{id: all, outcome: allow, when: {servers: [notes]}}, {id: no-adds, outcome: deny, when: {tools: [notes.ad]}}]
principals: [{id: me, profiles: [dev], stdio: true, owner: true}]
profiles: {dev: {servers: [notes], expose: {primitives: {}, tools: [notes.find, notes.adm]}}}
`,
        );
        await project.approve();
        // The second command shows the list that the first one has stored, and starts no server.
        for (const start of ['first', 'second']) {
          const child = new Child(project, ['run']);
          await child.hello();
          await child.ask('tools/list');
          await expect
            .poll(() => [start, child.err])
            .toEqual([
              start,
              expect.stringMatching(/notes has no tool \\"notes\.ad\\"\. Did you mean \\"notes\.add\\"\?/),
            ]);
          await expect
            .poll(() => [start, child.err])
            .toEqual([start, expect.stringContaining('has no tool \\"adm\\": nothing is shown')]);
          await child.kill('SIGTERM');
        }
      } finally {
        project.remove();
      }
    },
  );

  it('is reported by approve and check, with place and suggestion' + verifies('TR-70', 'TR-72'), async () => {
    const project = new Project();
    try {
      // A probe drops the rights of root if the workspace does not belong to root.
      chownSync(path.dirname(project.write('workspace/a.txt', 'a')), 1000, 1000);
      const tools = JSON.stringify([POST, tool('log')]);
      project.write(
        'server.mjs',
        `import { createInterface } from 'node:readline';
createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method } = JSON.parse(line);
  const hello = { protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 's', version: '1' } };
  const result = method === 'initialize' ? hello : { tools: ${tools} };
  if (id !== undefined) process.stdout.write(JSON.stringify({ jsonrpc: '2.0', id, result }) + '\\n');
}).on('close', () => process.exit(0));
`,
      );
      project.write(
        'tollgate.yaml',
        `version: 1
workspace: ./workspace
servers:
  one: {command: node, args: [server.mjs]}
rules: [{id: all, outcome: allow, when: {servers: [one]}}]
principals: [{id: me, profiles: [dev], stdio: true, owner: true}]
profiles:
  dev:
    servers: [one]
    expose:
      primitives: {}
      tools:
        - {tool: one.post, pins: {onwer: mine}}
        - {tool: one.lgo}
        - {tool: one.post, name: leave, pins: {owner: 4711}}
budgets:
  - {id: few, scope: session, calls: 1, when: {tool: one.pots}}
`,
      );
      expect((await cli(project, ['check'])).err).toContain(
        'tollgate.yaml:13:18: one is not approved yet, so what this file names',
      );
      type Shown = { readonly start: { readonly hash: string }; readonly tools: { readonly hash: string } };
      const look = async (): Promise<Shown> => dataOf((await cli(project, ['approve', 'one', '--json'])).out);
      const { start } = await look();
      await cli(project, ['approve', 'one', '--yes', start.hash]);
      const approved = await cli(project, ['approve', 'one', '--yes', start.hash, (await look()).tools.hash]);
      const bound = [
        'tollgate.yaml:13:35: tool "post" has no argument "onwer"; did you mean "owner"?',
        'tollgate.yaml:14:18: server "one" has no tool "lgo": nothing is shown; did you mean "log"?',
        'tollgate.yaml:15:48: tool "post" does not accept the value that is pinned to "owner": expected string',
        'tollgate.yaml:17:54: server "one" has no tool "pots": nothing is limited; did you mean "post"?',
      ];
      for (const line of bound)
        expect(approved.err).toContain(`${line} Until it is corrected, the calls that it concerns are refused.`);
      const { code, err } = await cli(project, ['check']);
      expect(code).toBe(EXIT.usage);
      for (const line of bound) expect(err).toContain(line);
      expect(approved.err + err).not.toContain('4711');
    } finally {
      project.remove();
    }
  });
});

describe('obligations of Rego', () => {
  const NOW = `package policy.team

allow contains "all" if input.run

`;
  async function decide(
    rego: string,
    rules: readonly unknown[] = [],
    budgets: readonly object[] = [],
  ): Promise<CallDecision> {
    const folder = scratch({ 'team.rego': `${NOW}${rego}\n` });
    const policy = await loadPolicy(
      parts({
        folder,
        rules: [documentOf(rules)],
        sources: [regoSource(folder)],
        settings: settings({ budgets: budgets as never }),
      }),
    );
    try {
      return await policy.call(callOf({ args: { owner: 'x' } }));
    } finally {
      policy.close();
    }
  }
  const member = (more: string, set = 'allow'): string =>
    `${set} contains {"id": "one", "message": "One.", ${more}} if input.run`;
  const yaml = (obligations: object): readonly unknown[] => [{ id: 'two', outcome: 'allow', when: {}, obligations }];

  it(
    'set caps, timeouts, labels, budgets and pins, joined with those of YAML by the stricter one' + verifies('TR-73'),
    async () => {
      const budget = (id: string, calls: number): object => ({ id, scope: 'run', calls });
      const { outcome, obligations } = await decide(
        member(
          '"obligations": {"caps": {"bytes": 5000, "lines": 9}, "timeoutMs": 400, "labels": ["secret"], ' +
            '"pins": {"owner": "me"}, "budgets": [{"id": "b", "scope": "run", "calls": 2}]}',
        ),
        yaml({
          caps: { bytes: 7000, lines: 3 },
          timeoutMs: 900,
          labels: ['internal'],
          pins: { owner: 'me', also: 1 },
          budgets: [budget('a', 1), budget('b', 2)],
        }),
      );
      expect([outcome, obligations]).toEqual([
        'allow',
        {
          caps: { bytes: 5000, lines: 3 },
          timeoutMs: 400,
          labels: ['internal', 'secret'],
          pins: { owner: 'me', also: 1 },
          budgets: [budget('a', 1), budget('b', 2)],
        },
      ]);
    },
  );

  it.each([
    [
      'pins',
      'Rules set the argument owner to different values.',
      '"pins": {"owner": "me"}',
      { pins: { owner: 'you' } },
    ],
    [
      'budgets',
      'Rules give the budget b different limits.',
      '"budgets": [{"id": "b", "scope": "run", "calls": 2}]',
      { budgets: [{ id: 'b', scope: 'run', calls: 3 }] },
    ],
  ])(
    'refuse the call if %s contradict those of YAML' + verifies('TR-73'),
    async (_name, message, rego, obligations) => {
      expect(await decide(member(`"obligations": {${rego}}`), yaml(obligations))).toMatchObject({
        outcome: 'deny',
        reasons: [{ id: 'obligations', message }],
      });
    },
  );

  it.each([
    [
      'a key of a member',
      member('"obligation": {"timeoutMs": 5}'),
      'team.rego:5: a member of `allow` cannot be used: unknown key "obligation". Did you mean "obligations"?',
    ],
    [
      'a key of the obligations',
      member('"obligations": {"timeoutMS": 5}', 'ask'),
      'team.rego:5: a member of `ask` cannot be used: obligations.timeoutMS: unknown key "timeoutMS". ' +
        'Did you mean "timeoutMs"?',
    ],
    [
      'a value',
      member('"obligations": {"caps": {"bytes": "many"}}'),
      'obligations.caps.bytes: "many" is not a number, or for example 2kB',
    ],
    [
      'a cap that is too small',
      member('"obligations": {"caps": {"bytes": 1023}}'),
      'obligations.caps.bytes: 1023 must be >= 1024',
    ],
    [
      'obligations of a deny',
      member('"obligations": {"timeoutMs": 5}', 'deny'),
      'a rule that denies cannot have obligations',
    ],
  ])(
    'that are misspelled in %s refuse the load if they are literal, and the call if they are not' + verifies('TR-74'),
    async (_name, rego, message) => {
      const at = message.replace('team.rego:5: ', '');
      await expect(decide(rego)).rejects.toMatchObject({
        code: 'POLICY_INVALID',
        message: expect.stringContaining(at) as string,
      });
      const made = rego.replace(
        /contains (\{.*\}) if input.run/,
        'contains member if {\n\tinput.run\n\tmember := $1\n}',
      );
      await expect(decide(made)).rejects.toMatchObject({
        code: 'POLICY_FAILED',
        message: expect.stringContaining(message) as string,
      });
    },
  );

  it.each([
    ['denny', 'deny'],
    ['Deny', 'deny'],
    ['aks', 'ask'],
    ['allows', 'allow'],
    ['exposes', 'expose'],
  ])('of a set called %s refuse the load, unless a rule reads it' + verifies('TR-74'), async (name, meant) => {
    const rego = `${name} contains {"id": "x", "message": "m"} if input.run\n`;
    await expect(decide(rego)).rejects.toMatchObject({
      code: 'POLICY_INVALID',
      message: expect.stringContaining(
        `team.rego:5:1: nothing reads the set \`${name}\`, so it has no effect. Did you mean "${meant}"?`,
      ) as string,
    });
    expect(await decide(`${rego}\ndeny contains member if some member in ${name}\n`)).toMatchObject({
      outcome: 'deny',
      reasons: [{ id: 'x' }],
    });
  });

  it('replace an argument of the caller by a pin, and report it' + verifies('TR-73', 'TR-75'), async () => {
    const rules = [
      allow('one'),
      {
        id: 'mine',
        outcome: 'allow',
        when: { tools: ['one.post'], args: { text: { equals: 'x' } } },
        obligations: { pins: { owner: 'me' } },
      },
    ];
    facade = await startRaw({ one: { tools: [tool('post', { inputSchema: NOTE })] } }, { rules });
    const session = facade.open('me');
    const [pinned, free] = [
      await facade.call(session, 'one_post', { owner: 'you', text: 'x' }),
      await facade.call(session, 'one_post', { owner: 'you', text: 'y' }),
    ];
    expect(facade.calls('one').map(({ args }) => JSON.parse(args) as unknown)).toEqual([
      { text: 'x', owner: 'me' },
      { owner: 'you', text: 'y' },
    ]);
    expect([pinned.text.includes('note: the owner has set argument owner'), free.text.includes('note:')]).toEqual([
      true,
      false,
    ]);
  });
});
