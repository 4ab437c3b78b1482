/** Tests the table of tenants: what a tenant's configuration may not say, and what no two tenants may share. */
import { createHash } from 'node:crypto';
import { mkdirSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { findHelper, useHelpers } from '../../catalogs/programs/helper-programs.ts';
import type { Config } from '../../facade/config/config.ts';
import type { Problem } from '../../facade/config/config-problems.ts';
import { loadConfig } from '../../facade/config/load-config.ts';
import { checkTenant, readTenants } from '../../facade/config/tenants.ts';
import { cli } from '../cli/terminal.ts';
import { verifies } from '../verifies.ts';
import { Project } from './project.ts';

let project: Project;
beforeEach(() => {
  project = new Project();
  for (const folder of ['work', 'acme/work/inner', 'globex/work', 'shared'])
    mkdirSync(path.join(project.home, folder), { recursive: true });
});
afterEach(() => {
  useHelpers({ programs: {}, writable: [] });
  project.remove();
});

const OWN = `version: 1
workspace: ~/work
state: ~/own/state
tenants: {acme: ~/acme/tollgate.yaml, globex: ~/globex/tollgate.yaml}
`;
const tokenOf = (name: string): string => `sha256:${createHash('sha256').update(name).digest('hex')}`;
const tenant = (name: string, more = ''): string => `version: 1
workspace: ./work
state: ~/states/${name}
principals: [{id: ${name}-ann, token: '${tokenOf(name)}'}]
${more}
`;
const PLAIN: readonly [string, string] = [tenant('acme'), tenant('globex')];
const world = { env: {} };

/** Writes the two tenants, and reads them as a start does. */
function read([acme, globex]: readonly [string, string], own = OWN): ReadonlyMap<string, { config: Config }> {
  project.write('~/acme/tollgate.yaml', acme);
  project.write('~/globex/tollgate.yaml', globex);
  return readTenants(project.config(own), (file, name) => ({
    config: loadConfig(file, { ...world, home: project.home, tenant: name }),
    differing: [],
  }));
}

/** Returns the problems as people see them. */
function problemsOf(texts: readonly [string, string], own = OWN): readonly string[] {
  try {
    read(texts, own);
    return [];
  } catch (thrown) {
    if (!(thrown instanceof TollgateError) || thrown.code !== 'CONFIG_INVALID') throw thrown;
    return (thrown.data.problems as readonly Problem[]).map(
      ({ file, line, column, message }) => `${file}:${line}:${column}: ${message}`,
    );
  }
}

const at = (name: string): string => path.join(project.home, name, 'tollgate.yaml');

describe('tenants', () => {
  it('are read with their names, and share nothing', () => {
    const found = read(PLAIN);
    expect([...found].map(([name, { config }]) => [name, config.tenant, path.basename(config.state)])).toEqual([
      ['acme', 'acme', 'acme'],
      ['globex', 'globex', 'globex'],
    ]);
  });

  it('are named by words that fit into a path', () => {
    expect(project.load(OWN.replace('acme:', 'Ac/me:')).problems).toHaveLength(1);
  });

  it('are refused together, each problem with its file and place' + verifies('FL-21'), () => {
    expect(problemsOf([tenant('acme', 'nonsense: 1'), tenant('globex', 'limits: {servers: -1}')])).toEqual([
      expect.stringContaining(`${at('acme')}:5:1: `),
      expect.stringContaining(`${at('globex')}:5:`),
    ]);
    expect(problemsOf(PLAIN, OWN.replace('~/globex/tollgate.yaml', '~/none/tollgate.yaml'))[0]).toContain(
      'cannot be read',
    );
  });

  it.each([
    ['isolation of commands', 'bash: {isolation: direct}', 'with all rights of Tollgate'],
    ['isolation of a server', 'servers: {s: {command: x, isolation: direct}}', 'with all rights of Tollgate'],
    ['programs', 'programs: {git: /usr/bin/git}', 'a tenant cannot set programs'],
    ['tenants', 'tenants: {inner: x.yaml}', 'a tenant cannot set tenants'],
    ['no authentication', 'listen: {auth: none}', 'nothing proves'],
    ['an audience that is no address', "listen: {jwt: {issuer: 'https://login.example', audience: tools}}", 'resource'],
    [
      'the endpoint of another tenant',
      "listen: {jwt: {issuer: 'https://login.example', audience: 'https://tools.example/t/globex/mcp'}}",
      'ends in /t/acme/mcp',
    ],
  ])('cannot weaken what separates them: %s' + verifies('FL-21'), (_what, setting, message) => {
    const [problem = ''] = problemsOf([tenant('acme', setting), tenant('globex')]);
    expect(problem).toContain(`${at('acme')}:5:`);
    expect(problem).toContain(message);
  });
});

describe('two tenants', () => {
  const move = (from: string, to: string): readonly [string, string] => [
    tenant('acme'),
    tenant('globex').replace(from, to),
  ];

  it.each([
    ['one state', 'state: ~/states/globex', 'state: ~/states/acme', 'the state of tenant acme'],
    ['a state in that of the other', 'state: ~/states/globex', 'state: ~/states/acme/inner', 'the state of'],
    ['a state that contains the other', 'state: ~/states/globex', 'state: ~/states', 'the state of tenant acme'],
    ['one workspace', './work', '~/acme/work', 'the workspace of tenant acme'],
    ['a workspace that contains the other', './work', '~/acme', 'the workspace of tenant acme'],
    ['a workspace in that of the other', './work', '~/acme/work/inner', 'the workspace of tenant acme'],
    ['the state of the listener', 'state: ~/states/globex', 'state: ~/own/state', 'the state of tollgate.yaml itself'],
    ['the workspace of the listener', './work', '~/work', 'the workspace of tollgate.yaml itself'],
  ])('cannot have %s' + verifies('FL-21'), (_what, from, to, message) => {
    const problems = problemsOf(move(from, to));
    expect(problems.join('\n')).toContain(message);
    expect(problems[0]).toMatch(new RegExp(`^${at('globex')}:[23]:`));
  });

  it('cannot have one place behind a link' + verifies('FL-21'), () => {
    mkdirSync(path.join(project.home, 'states'), { recursive: true });
    symlinkSync(path.join(project.home, 'states', 'acme'), path.join(project.home, 'link'));
    mkdirSync(path.join(project.home, 'states', 'acme'));
    expect(problemsOf(move('~/states/globex', '~/link')).join('\n')).toContain('the state of tenant acme');
  });

  it.each([
    ['the log', 'audit: {folder: ~/log}', 'the audit log overlaps with the audit log of tenant acme'],
    ['the archive', 'audit: {keep: {archive: ~/archive, age: 9d}}', 'the archive of the log overlaps'],
    ['the copy of the log', 'audit: {export: {to: ~/copy.jsonl}}', 'the copy of the log overlaps'],
    ['a folder that both may write', 'bash: {filesystem: {allowWrite: [~/shared]}}', 'a folder that its programs see'],
  ])('cannot share %s' + verifies('FL-21'), (_what, setting, message) => {
    expect(problemsOf([tenant('acme', setting), tenant('globex', setting)]).join('\n')).toContain(message);
  });

  it('may both read one folder, but not read what the other writes' + verifies('FL-21'), () => {
    const reads = 'bash: {filesystem: {allowRead: [~/shared]}}';
    expect(problemsOf([tenant('acme', reads), tenant('globex', reads)])).toEqual([]);
    expect(
      problemsOf([tenant('acme', reads), tenant('globex', 'bash: {filesystem: {allowWrite: [~/shared]}}')]),
    ).toHaveLength(1);
    expect(
      problemsOf([tenant('acme'), tenant('globex', 'bash: {filesystem: {allowRead: [~/acme/work]}}')]).join('\n'),
    ).toContain('the workspace of tenant acme');
    const inCwd = 'servers: {s: {command: x, cwd: ~/states/acme}}';
    expect(problemsOf([tenant('acme'), tenant('globex', inCwd)]).join('\n')).toContain('the state of tenant acme');
  });

  it.each([
    ['the same namespace', 'redis://10.0.0.2:6379', 'ours', 1],
    ['the default one', 'redis://10.0.0.1:6379', undefined, 1],
    ['another namespace', 'redis://10.0.0.1:6379', 'theirs', 0],
    ['another kind of store', 'postgres://u@10.0.0.1/db', 'ours', 0],
  ])(
    'cannot share a store but with namespaces that differ: %s' + verifies('FL-21'),
    (_what, store, namespace, count) => {
      const state = (name: string, at: string, space = namespace): string =>
        tenant(name).replace(
          `state: ~/states/${name}`,
          `state: {folder: ~/states/${name}, store: '${at}'${space === undefined ? '' : `, namespace: ${space}`}}`,
        );
      const mine = state('acme', 'redis://10.0.0.1:6379', namespace === undefined ? undefined : 'ours');
      const problems = problemsOf([mine, state('globex', store)]);
      expect(problems).toHaveLength(count);
      if (count > 0) expect(problems[0]).toContain('the namespace in the store is also that of tenant acme');
    },
  );

  it('cannot accept one token' + verifies('FL-20'), () => {
    expect(problemsOf([tenant('acme'), tenant('globex').replace(tokenOf('globex'), tokenOf('acme'))])[0]).toMatch(
      new RegExp(`^${at('globex')}:4:\\d+: the token is also that of a principal of tenant acme`),
    );
  });

  const jwt = (name: string, more = ''): string =>
    `listen: {jwt: {issuer: 'https://login.example', audience: tollgate, resource: 'https://tools.example/t/${name}/mcp'${more}}}`;
  it.each([
    ['no required claim', '', '', 1],
    ['the same required claim', ', require: {org: a}', ', require: {org: a}', 1],
    ['different claims, which one token may have', ', require: {org: a}', ', require: {team: b}', 1],
    ['a claim that only one requires', ', require: {org: a}', '', 1],
    ['different texts of one claim', ', require: {org: a}', ', require: {org: b, team: x}', 0],
  ])('with one issuer and audience need a claim that differs: %s' + verifies('FL-20'), (_what, mine, theirs, count) => {
    const problems = problemsOf([tenant('acme', jwt('acme', mine)), tenant('globex', jwt('globex', theirs))]);
    expect(problems).toHaveLength(count);
    if (count > 0) expect(problems[0]).toContain('a token of one would be accepted by the other');
  });

  it('are checked again when one is reloaded' + verifies('FL-21'), () => {
    const [acme, globex] = [...read(PLAIN).values()].map(({ config }) => config);
    const moved = { ...globex!, workspace: acme!.workspace };
    expect(() => checkTenant(globex!, [acme!], project.config(OWN))).not.toThrow();
    expect(() => checkTenant(moved, [acme!], project.config(OWN))).toThrow(
      'The tenants of tollgate.yaml have one problem',
    );
  });
});

describe('tollgate check', () => {
  it('checks the tenants too' + verifies('FL-21'), async () => {
    project.write('tollgate.yaml', OWN);
    project.write('~/acme/tollgate.yaml', PLAIN[0]);
    project.write('~/globex/tollgate.yaml', tenant('globex').replace('states/globex', 'states/acme'));
    const { code, err } = await cli(project, ['check']);
    expect([code, err]).toEqual([2, expect.stringContaining(`${at('globex')}:3:8: the state overlaps with the state`)]);
  });
});

describe('helper programs of a process with tenants', () => {
  it('are those of the process, and never lie where agents of any tenant may write' + verifies('FL-21'), () => {
    useHelpers({ programs: { git: '/usr/bin/env' }, writable: [] });
    useHelpers({ programs: {}, writable: ['/tmp/other'] }, 'acme');
    expect(findHelper('git')).toBe('/usr/bin/env');
    useHelpers({ programs: {}, writable: ['/usr/bin'] }, 'globex');
    expect(findHelper('git')).toBeUndefined();
    for (const name of ['acme', 'globex']) useHelpers({ programs: {}, writable: [] }, name);
  });
});
