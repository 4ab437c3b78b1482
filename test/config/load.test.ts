/** Tests loading: every refused error at its place (cases/*.yaml), the defaults, the folders, and immutability. */
import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { formatProblems } from '../../facade/config/config-problems.ts';
import { loadConfig } from '../../facade/config/load-config.ts';
import { verifies } from '../verifies.ts';
import { withProject } from './project.ts';

interface Case {
  readonly name: string;
  readonly yaml: string;
  readonly env?: Readonly<Record<string, string | number>>;
  readonly files?: Readonly<Record<string, string>>;
  readonly problems: readonly { readonly at: string; readonly says: string }[];
}

const folder = path.join(import.meta.dirname, 'cases');
const files = readdirSync(folder).filter((name) => name.endsWith('.yaml'));

/** A number stands for a text of that length. */
function toEnv(env: Case['env'] = {}): Record<string, string> {
  return Object.fromEntries(
    Object.entries(env).map(([name, value]) => [name, typeof value === 'number' ? 'x'.repeat(value) : value]),
  );
}

describe.each(files)('the loader refuses all errors at once, with line and column: %s', (file) => {
  const cases = parse(readFileSync(path.join(folder, file), 'utf8')) as readonly Case[];

  it.each(cases)('$name', ({ yaml, env, files: extra = {}, problems: wanted }) => {
    withProject((project) => {
      for (const [name, text] of Object.entries(extra)) project.write(name, text);
      const { problems, error } = project.load(yaml, toEnv(env));
      const seen = [...problems].sort((a, b) => a.line - b.line || a.column - b.column);
      expect(
        seen.map(({ line, column }) => `${line}:${column}`),
        formatProblems(problems),
      ).toEqual(wanted.map(({ at }) => at));
      wanted.forEach(({ says }, index) => expect(seen[index]?.message).toContain(says));
      expect(error?.code).toBe('CONFIG_INVALID');
      // What was found and why, then what to write.
      for (const { message } of problems) expect(message).toMatch(/[;:] /);
      expect(JSON.stringify(problems) + String(error?.message)).not.toMatch(/hunter2/);
    });
  });
});

describe('the loader refuses a file that', () => {
  it.each([
    ['is missing', () => undefined, 'there is no such file; write one with: tollgate init'],
    ['is a folder', (file: string) => mkdirSync(file), 'it is a folder'],
    ['is not UTF-8', undefined, 'not UTF-8'],
    ['is too large', undefined, 'larger than'],
    ['is a device', (file: string) => symlinkSync('/dev/null', file), 'not a plain file'],
    ['is in a circle of links', (file: string) => symlinkSync(file, file), 'links form a circle'],
  ])('%s', (what, make, says) => {
    withProject((project) => {
      make?.(project.file);
      if (what === 'is not UTF-8') project.write('tollgate.yaml', Buffer.from([0xff, 0xfe, 0x41]) as unknown as string);
      if (what === 'is too large') project.write('tollgate.yaml', `# ${'x'.repeat(1024 * 1024)}\n`);
      expect(() => loadConfig(project.file, { env: {}, home: project.home })).toThrowError(
        expect.objectContaining({
          code: 'CONFIG_INVALID',
          data: {
            problems: [
              expect.objectContaining({
                file: 'tollgate.yaml',
                line: 1,
                column: 1,
                message: expect.stringContaining(says) as string,
              }),
            ],
          },
        }) as Error,
      );
    });
  });

  it('survives nesting that would end the parser', () => {
    withProject((project) => {
      for (const text of [
        '['.repeat(20_000),
        '- '.repeat(20_000),
        '{a: '.repeat(20_000),
        Array.from({ length: 900 }, (_, i) => `${' '.repeat(i)}a:\n`).join(''),
      ]) {
        const { problems } = project.load(text);
        expect(problems[0]?.message).toMatch(/nested deeper than 64/);
        expect(problems[0]?.line).toBeLessThan(80);
      }
    });
  });
});

describe('the loader', () => {
  it(
    'fills in all defaults of an empty file: its folder as workspace, one principal, no external server' +
      verifies('HA-21'),
    () => {
      withProject((project) => {
        const config = project.config('');
        expect(config).toMatchObject({
          file: project.file,
          folder: project.folder,
          workspace: project.folder,
          policies: [],
          rules: [],
          budgets: [],
          caps: {
            bytes: 30_000,
            lines: 2000,
            argBytes: 1_048_576,
            spillBytes: 67_108_864,
            media: 1_048_576,
            validateOutput: 'warn',
            concurrent: 16,
          },
          listen: { host: '127.0.0.1', port: 7310, auth: 'token' },
          limits: { servers: 20, connections: 5, calls: 256, waitingBytes: 67_108_864, drainMs: 10_000 },
          schemaProfile: 'portable',
          secrets: [],
          warnings: [],
        });
        expect(config.servers.size).toBe(0);
        expect(config.principals).toEqual([
          {
            id: 'local',
            role: 'user',
            groups: [],
            profiles: ['default'],
            client: 'local',
            stdio: true,
            owner: true,
            registers: [],
          },
        ]);
        expect(config.profiles.get('default')).toEqual({
          name: 'default',
          servers: [],
          primitives: {
            read: [{ server: 'workspace' }],
            write: [{ server: 'workspace' }],
            edit: [{ server: 'workspace' }],
            bash: [{ server: 'workspace' }],
          },
          expose: [],
          resources: [],
          prompts: [],
          budgets: [],
          search: false,
          promote: 0,
          caps: {},
          code: {},
          lifetimes: {},
          starts: {},
          plan: false,
          grants: 'optional',
          approvals: 'owner',
          host: false,
        });
      });
    },
  );

  it('reads the settings of a server' + verifies('HE-02', 'HA-08'), () => {
    withProject((project) => {
      const { servers } = project.config(`
servers:
  plain: {command: x}
  full:
    {url: 'https://x.example/mcp', transport: sse, timeoutMs: 5000, maxRetries: 0, reconnectBackoffMs: 10,
     semantics: {get: read, set: {verb: write, paths: [p]}}}
  slow: {command: x, timeoutMs: 900000, cwd: sub}
`);
      expect(servers.get('plain')).toEqual({
        name: 'plain',
        transport: 'stdio',
        command: 'x',
        args: [],
        env: {},
        headers: {},
        tools: {},
        semantics: [],
        labels: [],
        uri: 'prefixed',
        trace: 'context',
        asks: [],
        process: 'shared',
        connectTimeoutMs: 10_000,
        timeoutMs: 30_000,
        hardTimeoutMs: 300_000,
        maxRetries: 3,
        start: 'lazy',
        lifetime: 'on-demand',
        trustHints: false,
        reconnectBackoffMs: 1000,
        source: 'tollgate.yaml',
        sandbox: {
          filesystem: { allowRead: [], allowWrite: [], denyRead: [] },
          network: { allowedDomains: [] },
          limits: { memoryMb: 256, processes: 64, fileMb: 256 },
        },
      });
      expect(servers.get('full')).toMatchObject({
        transport: 'sse',
        url: 'https://x.example/mcp',
        timeoutMs: 5000,
        maxRetries: 0,
        reconnectBackoffMs: 10,
      });
      expect(servers.get('full')?.semantics).toEqual([
        { pattern: 'get', semantics: { verb: 'read' } },
        { pattern: 'set', semantics: { verb: 'write', paths: ['p'] } },
      ]);
      expect(servers.get('slow')).toMatchObject({ hardTimeoutMs: 900_000, cwd: path.join(project.folder, 'sub') });
    });
  });

  it('allows twenty servers by default, or as many as limits.servers says' + verifies('HA-05'), () => {
    withProject((project) => {
      const servers = (count: number): string =>
        `servers:\n${Array.from({ length: count }, (_, index) => `  s${index}: {command: x}\n`).join('')}`;
      expect(project.config(servers(20)).servers.size).toBe(20);
      expect(project.load(servers(21)).problems[0]?.message).toContain('21 servers, and 20 are allowed');
      const keepAlive = (_: unknown, index: number): string => `  kept-${index}: {command: x, lifetime: keep-alive}\n`;
      const kept = (count: number): string => `servers:\n${Array.from({ length: count }, keepAlive).join('')}`;
      expect(project.load(`${kept(3)}limits: {connections: 2}`).problems[0]).toMatchObject({
        line: 4,
        message: expect.stringContaining(
          '3 servers have lifetime keep-alive, and limits.connections allows 2',
        ) as string,
      });
      expect(project.load(`${kept(2)}limits: {connections: 2}`).problems).toEqual([]);
      expect(project.config(`limits: {servers: 21, connections: 7, drainMs: 0}\n${servers(21)}`).limits).toEqual({
        servers: 21,
        connections: 7,
        calls: 256,
        waitingBytes: 67_108_864,
        drainMs: 0,
      });
    });
  });

  it('fills in variables, folders and defaults, once and without nesting', () => {
    withProject((project) => {
      const config = project.config(
        "servers: {a: {command: x, args: ['${A}', '${env:A}', '${NO:-d}', '${EMPTY:-d}', '${EMPTY}', '${A:?x}', " +
          "'${workspaceFolder}', '${userHome}', '${configDir}', '$$ $${A} $A $', '${NEST}']}}\n",
        { A: 'one', EMPTY: '', NEST: '${A}' },
      );
      const { folder, home } = project;
      expect(config.servers.get('a')?.args).toEqual([
        'one',
        'one',
        'd',
        'd',
        '',
        'one',
        folder,
        home,
        folder,
        '$ ${A} $A $',
        '${A}',
      ]);
    });
  });

  it('does not change rules, and knows the place of each value', () => {
    withProject((project) => {
      const { rules, ruleDocument } = project.config(
        "version: 1\nrules:\n  - {id: a, when: {x: '${NOPE} $$'}}\n  - {id: b}\n",
      );
      expect(rules).toEqual([{ id: 'a', when: { x: '${NOPE} $$' } }, { id: 'b' }]);
      expect(ruleDocument).toMatchObject({ file: 'tollgate.yaml', value: { rules } });
      expect(ruleDocument.placeOf(['rules', 1], 'value')).toEqual({ line: 4, column: 5 });
      expect(ruleDocument.placeOf(['rules', 0, 'when', 'x'], 'key')).toEqual({ line: 3, column: 20 });
      expect(ruleDocument.placeOf(['rules', 0, 'when', 'nothing'], 'value')).toEqual({ line: 3, column: 13 });
    });
  });

  it('warns about Rego next to a policy that `policies` does not name', () => {
    withProject((project) => {
      for (const name of ['p/rules.yaml', 'p/mine.rego', 'p/mine_test.rego', 'p/team/a.rego', 'p/b.rego'])
        project.write(name, '');
      const { warnings } = project.config('version: 1\npolicies: [p/rules.yaml, p/team, p/b.rego]\n');
      expect(warnings).toEqual([
        { file: 'p/mine.rego', line: 1, column: 1, message: expect.stringContaining('is not read') },
      ]);
    });
  });

  it('reads policies of each kind, and lists the files that an agent must not write', () => {
    withProject((project) => {
      project.write('p/rules.yaml', 'rules: []');
      project.write('p/rego/x.rego', 'package x');
      project.write('p/bundle.tar.gz', '');
      const config = project.config(
        'policies: [p/rules.yaml, {path: p/rego, mode: shadow}, p/rego/x.rego, p/bundle.tar.gz]\ninclude: [mcp.json]\n',
      );
      const at = (name: string): string => path.join(project.folder, name);
      expect(config.policies).toEqual([
        { path: at('p/rules.yaml'), kind: 'yaml', mode: 'enforce' },
        { path: at('p/rego'), kind: 'rego', mode: 'shadow' },
        { path: at('p/rego/x.rego'), kind: 'rego', mode: 'enforce' },
        { path: at('p/bundle.tar.gz'), kind: 'bundle', mode: 'enforce' },
      ]);
      expect(config.controlFiles).toEqual([
        project.file,
        at('servers'),
        at('mcp.json'),
        ...config.policies.map((policy) => policy.path),
      ]);
    });
  });
});

describe('the loader and folders', () => {
  it('places the state outside the workspace, in one folder for each project', () => {
    withProject((project) => {
      const digest = createHash('sha256').update(project.folder).digest('hex').slice(0, 12);
      const state = path.join(project.home, '.local', 'state', 'tollgate', `project-${digest}`);
      expect(project.config('')).toMatchObject({ state, audit: { folder: path.join(state, 'audit') } });
      expect(project.config('', { XDG_STATE_HOME: '/var/x' }).state).toBe(`/var/x/tollgate/project-${digest}`);
      expect(project.config('', { XDG_STATE_HOME: 'relative' }).state).toBe(state);
      expect(project.config('state: ~/s\naudit: {folder: ~/a}\n')).toMatchObject({
        state: path.join(project.home, 's'),
        audit: { folder: path.join(project.home, 'a') },
      });
    });
  });

  it('resolves links before it compares the state, the workspace and the home folder', () => {
    withProject((project) => {
      mkdirSync(path.join(project.folder, 'inside'));
      symlinkSync(path.join(project.folder, 'inside'), path.join(project.home, 'outside'));
      symlinkSync(project.home, path.join(project.folder, 'up'));
      expect(project.load('state: ~/outside/state\n').problems[0]?.message).toContain(
        'is in the workspace, or contains it',
      );
      expect(project.load('workspace: up\n').problems[0]?.message).toContain(
        'it would contain the home folder with its keys and settings',
      );
    });
  });

  it('accepts a workspace in another folder', () => {
    withProject((project) => {
      project.write('~/other/x', '');
      expect(project.config('workspace: ../other\n').workspace).toBe(path.join(project.home, 'other'));
      expect(project.config('workspace: ${userHome}/other\n').workspace).toBe(path.join(project.home, 'other'));
    });
  });
});

describe('a loaded configuration', () => {
  it('is frozen in depth', () => {
    withProject((project) => {
      const config = project.config('servers: {a: {command: x, args: [y], env: {Z: z}}}\nrules: [{id: a}]\n');
      const server = config.servers.get('a');
      for (const part of [
        config,
        server,
        server?.args,
        server?.env,
        config.principals,
        config.principals[0],
        config.profiles.get('harbor')?.budgets[0],
        config.rules[0],
        config.caps,
      ]) {
        expect(Object.isFrozen(part)).toBe(true);
      }
      const servers = config.servers as Map<string, unknown>;
      expect(() => servers.set('b', {})).toThrow('frozen');
      expect(() => servers.delete('a')).toThrow('frozen');
      expect(() => servers.clear()).toThrow('frozen');
      expect([...config.servers.keys()]).toEqual(['a']);
    });
  });
});

describe('a load warns', () => {
  it('about literal secrets, inline code and packages without an exact version', () => {
    withProject((project) => {
      const { warnings } = project.config(
        `
servers:
  a: {command: npx, args: [-y, some-server], env: {API_TOKEN: hunter2, GH_TOKEN: '\${GH}', LEVEL: info}}
  b: {command: bash, args: [-c, 'exec server']}
  c: {command: uvx, args: [server@1.2.3]}
`,
        { GH: 'long-enough-token' },
      );
      expect(
        formatProblems(warnings)
          .split('\n')
          .map((line) => line.slice(0, 90)),
      ).toEqual([
        expect.stringContaining('tollgate.yaml:3:27: server "a": the package has no exact version'),
        expect.stringContaining('tollgate.yaml:3:63: API_TOKEN is in the file in clear'),
        expect.stringContaining('tollgate.yaml:4:28: server "b": -c runs code'),
      ]);
      expect(
        project.config("servers: {a: {command: x, env: {A_KEY: '${K}'}}}", { K: 'abc' }).warnings[0]?.message,
      ).toContain('shorter than 6 characters');
    });
  });
});
