/**
 * Tests `tollgate init`: what it finds and writes, and that it shows no secrets and overwrites nothing.
 * Covers: facade/config.
 */
import { chownSync, existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { type InitOptions, placeInProject, writeProject } from '../../facade/cli/configuration/init-command.ts';
import { type ClientPlace, clientPlaces } from '../../facade/clients/client-places.ts';
import { loadConfig } from '../../facade/config/load-config.ts';
import { verifies } from '../verifies.ts';
import { type Project, withProject } from './project.ts';

const SECRET = 'hunter2hunter2';
const server = {
  command: 'npx',
  args: ['-y', 'x@1.0.0', SECRET],
  env: { API_KEY: SECRET, 'B-C': SECRET },
  headers: {},
};

function init(
  project: Project,
  options: Partial<InitOptions> = {},
  platform: NodeJS.Platform = 'linux',
  self: readonly string[] = ['tollgate'],
): { readonly exit: number; readonly out: string; readonly err: string } {
  let [out, err] = ['', ''];
  const io = {
    stdout: (text: string) => void (out += text),
    stderr: (text: string) => void (err += text),
    env: {},
    home: project.home,
    self,
    platform,
  };
  const { config = 'tollgate.yaml' } = options;
  const exit = writeProject(placeInProject(path.resolve(project.folder, config)), { ...options, config }, io);
  return { exit, out, err };
}

function read(project: Project, name: string): string {
  return readFileSync(path.join(project.folder, name), 'utf8');
}

describe('tollgate init in an empty folder', () => {
  it('writes a file that loads, starter rules, and the schema for the editor', () => {
    withProject((project) => {
      expect(init(project, { config: 'other.yaml' }).err).toContain(
        'Worth knowing:\n  neither servers nor bash can start in a sandbox: Tollgate runs as root, and the workspace ' +
          `belongs to root; run Tollgate as an ordinary user, or: chown -R USER: ${project.folder}\n`,
      );
    });
    withProject((project) => {
      chownSync(project.folder, 12_345, 12_345);
      const { exit, out, err } = init(project);
      expect({ exit, out }).toEqual({ exit: 0, out: '' });
      expect(err).toBe(
        'No client files were found. Only the workspace serves read, write, edit and bash.\nWrote ' +
          'tollgate.yaml, policies/rules.yaml, policies/rules_suite.yaml, policies/tollgate.schema.json, ' +
          'policies/rules.schema.json, policies/suite.schema.json.\nNext:\n  tollgate check\n  tollgate tools\n  ' +
          'tollgate run\n',
      );
      expect(read(project, 'tollgate.yaml').split('\n', 1)[0]).toBe(
        '# yaml-language-server: $schema=./policies/tollgate.schema.json',
      );
      const config = loadConfig(project.file, { env: {}, home: project.home });
      expect(config).toMatchObject({
        workspace: project.folder,
        policies: [{ kind: 'yaml', mode: 'enforce', path: path.join(project.folder, 'policies/rules.yaml') }],
        warnings: [],
      });
      expect(read(project, 'policies/rules.yaml')).toMatch(
        /^# yaml-language-server: \$schema=\.\/rules\.schema\.json\n[^]*\nrules:/,
      );
      expect(read(project, 'policies/rules.schema.json')).toBe(readFileSync('policies/schemas/rules.json', 'utf8'));
    });
  });

  it('writes an example server as a comment, which loads when it is uncommented', () => {
    withProject((project) => {
      init(project);
      const text = read(project, 'tollgate.yaml')
        .replace(/^# (servers:|profiles:| {2}.*)$/gm, '$1')
        .replace('  # tools:', '  tools:')
        .replace(/^ +- \{id: calls-per-run.*$/m, '');
      const { servers, profiles } = project.config(text);
      expect(servers.get('tracker')).toMatchObject({ command: 'node', args: ['path/to/server.js'] });
      expect(profiles.get('default')).toMatchObject({ servers: ['tracker'], expose: [{ tool: 'tracker.*' }] });
    });
  });

  it('prints the next commands as they can be typed', () => {
    withProject((project) => {
      const { err } = init(project, { config: 'other.yaml' }, 'linux', ['/opt/my node/bin/node', '/x/main.js']);
      expect(err).toContain("Next:\n  '/opt/my node/bin/node' /x/main.js check --config other.yaml\n");
    });
  });

  it('uses the schema of an installed package', () => {
    withProject((project) => {
      for (const name of ['facade/config/tollgate.schema.json', 'policies/schemas/rules.json'])
        project.write(`node_modules/tollgate/dist/${name}`, '{}');
      init(project);
      expect(read(project, 'tollgate.yaml')).toMatch(/^# yaml-language-server: \$schema=\.\/node_modules\/tollgate\//);
      expect(read(project, 'policies/rules.yaml')).toMatch(
        /\$schema=\.\.\/node_modules\/tollgate\/dist\/policies\/schemas\/rules\.json\n/,
      );
      expect(readdirSync(path.join(project.folder, 'policies'))).toEqual(['rules.yaml', 'rules_suite.yaml']);
    });
  });
});

describe('tollgate init with files of clients' + verifies('HA-01'), () => {
  const places = (project: Project, platform: NodeJS.Platform): readonly ClientPlace[] =>
    clientPlaces({ cwd: project.folder, home: project.home, env: {}, platform });

  it.each(['linux', 'darwin', 'win32'] as const)(
    'includes every client of %s, approves none, shows names only',
    (platform) => {
      withProject((project) => {
        places(project, platform).forEach(({ client, file }, index) => {
          const table = `${client.container}."Server ${index}"`;
          const toml = `[${table}]\ncommand = "x"\n[${table}.env]\nAPI_KEY = "${SECRET}"\nB-C = "${SECRET}"\n`;
          project.write(
            file,
            client.syntax === 'toml' ? toml : JSON.stringify({ [client.container]: { [`Server ${index}`]: server } }),
          );
        });
        const { err } = init(project, {}, platform);
        const text = read(project, 'tollgate.yaml');
        for (const { client } of places(project, platform)) expect(err).toContain(client.title);
        expect(err).toContain('server-0 (sets API_KEY, B-C)');
        expect(text + err).not.toContain(SECRET);
        expect(text).toContain('#   server-0: {profiles: [default]}\n');
        const config = loadConfig(project.file, { env: {}, home: project.home });
        expect(config.servers.size).toBe(places(project, platform).length);
        // No server is approved: the state folder, which would hold approvals, does not exist.
        expect(existsSync(config.state)).toBe(false);
        expect([...config.profiles.values()].flatMap(({ servers }) => servers)).toEqual([]);
      });
    },
  );

  it('writes comments that, uncommented, let a profile show the tools of the servers', () => {
    withProject((project) => {
      project.write(
        '.mcp.json',
        JSON.stringify({ mcpServers: { one: { command: 'x' }, two: { command: 'y' }, broken: {} } }),
      );
      init(project);
      const uncommented = read(project, 'tollgate.yaml').replace(/^# (servers:| {2}.*: \{profiles.*)$/gm, '$1');
      const { servers, profiles } = project.config(uncommented);
      expect([...servers.keys()]).toEqual(['one', 'two', 'broken']);
      expect(profiles.get('default')).toMatchObject({
        servers: ['one', 'two'],
        expose: [{ tool: 'one.*' }, { tool: 'two.*' }],
      });
    });
  });

  it('skips broken and empty files, and says why', () => {
    withProject((project) => {
      project.write('.mcp.json', '{');
      project.write('.cursor/mcp.json', '{"mcpServers": {}}');
      const { err } = init(project);
      expect(err).toMatch(/Claude Code \(\.mcp\.json\): the included file is not JSON/);
      expect(err).toContain('Cursor (.cursor/mcp.json): it defines no server');
      expect(read(project, 'tollgate.yaml')).not.toContain('include:');
    });
  });

  it('prints only names with --json', () => {
    withProject((project) => {
      project.write('.vscode/mcp.json', JSON.stringify({ servers: { a: { type: 'stdio', ...server }, b: {} } }));
      const { out, err } = init(project, { json: true });
      expect(err).toBe('');
      expect(out).not.toContain(SECRET);
      expect(JSON.parse(out)).toMatchObject({
        written: [
          'tollgate.yaml',
          'policies/rules.yaml',
          'policies/rules_suite.yaml',
          'policies/tollgate.schema.json',
          'policies/rules.schema.json',
          'policies/suite.schema.json',
        ],
        found: [
          {
            client: 'VS Code',
            path: '.vscode/mcp.json',
            servers: [
              { name: 'a', variables: ['API_KEY', 'B-C'] },
              { name: 'b', unusable: 'it has neither command nor url' },
            ],
          },
        ],
        next: [
          'tollgate check',
          'tollgate import --all',
          'tollgate approve a',
          'tollgate export --client vscode --replace',
        ],
      });
    });
  });
});

describe('tollgate init refuses', () => {
  it('to overwrite a file, and writes nothing then; --force replaces it', () => {
    withProject((project) => {
      project.write('policies/rules.yaml', 'mine');
      expect(() => init(project, { starter: 'strict' })).toThrowError(
        expect.objectContaining({
          code: 'USAGE',
          message: 'These files exist already: policies/rules.yaml. Nothing was written.',
        }) as Error,
      );
      expect(existsSync(project.file)).toBe(false);
      expect(read(project, 'policies/rules.yaml')).toBe('mine');
      expect(init(project, { force: true }).exit).toBe(0);
      expect(read(project, 'policies/rules.yaml')).toContain('rules:');
    });
  });

  it('to replace existing rules, which it names, and adds no test cases to them', () => {
    withProject((project) => {
      project.write('policies/rules.yaml', 'rules: [{id: a, outcome: deny, when: {}}]\n');
      project.write('policies/suite.schema.json', '{}');
      expect(init(project).err).toContain(
        'Wrote tollgate.yaml, policies/tollgate.schema.json, policies/rules.schema.json.\n' +
          'Unchanged: policies/rules.yaml, policies/suite.schema.json.\n',
      );
      expect(loadConfig(project.file, { env: {}, home: project.home }).policies).toMatchObject([
        { path: path.join(project.folder, 'policies/rules.yaml') },
      ]);
      expect(existsSync(path.join(project.folder, 'policies/rules_suite.yaml'))).toBe(false);
    });
  });

  it('to write through a dangling link', () => {
    withProject((project) => {
      symlinkSync(path.join(project.home, 'elsewhere.yaml'), project.file);
      expect(() => init(project)).toThrow('These files exist already: tollgate.yaml');
      expect(existsSync(path.join(project.home, 'elsewhere.yaml'))).toBe(false);
    });
  });

  it('a folder that cannot be a workspace', () => {
    withProject((project) => {
      mkdirSync(path.join(project.home, 'x'));
      expect(() => init(project, { config: '../tollgate.yaml' })).toThrow(
        'it would contain the home folder with its keys and settings',
      );
      expect(() => init(project, { config: 'nowhere/tollgate.yaml' })).toThrow('no such folder');
    });
  });
});
