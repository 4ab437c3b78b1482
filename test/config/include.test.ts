/** Tests included client files: the formats of all clients, ignored settings, and that no file prevents the start. */
import { mkdirSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Config } from '../../facade/config/config.ts';
import { formatProblems } from '../../facade/config/config-problems.ts';
import { verifies } from '../verifies.ts';
import { type Env, type Project, withProject } from './project.ts';

interface Setup {
  readonly files: Readonly<Record<string, unknown>>;
  readonly yaml?: string;
  readonly env?: Env;
}

/** Loads a project whose tollgate.yaml includes all `files`; objects are written as JSON. */
function include(
  { files, yaml = '', env = {} }: Setup,
  look: (config: Config, said: string, project: Project) => void,
): void {
  withProject((project) => {
    for (const [name, content] of Object.entries(files))
      project.write(name, typeof content === 'string' ? content : JSON.stringify(content));
    const config = project.config(
      `include: ${JSON.stringify(Object.keys(files).filter((name) => !name.endsWith('.env')))}\n${yaml}`,
      env,
    );
    look(config, formatProblems(config.warnings), project);
  });
}

const one = (server: unknown): Readonly<Record<string, unknown>> => ({ 'mcp.json': { mcpServers: { a: server } } });

describe('an include' + verifies('HA-01'), () => {
  it('reads servers, inputs, comments, trailing commas and folders of VS Code', () => {
    const text = `{
      // what the team uses
      "inputs": [
        { "id": "gh-token", "type": "promptString", "password": true },
        { "id": "level", "type": "promptString", "default": "info" }
      ],
      "servers": {
        "github": {
          "type": "http", "url": "https://api.example.com/mcp",
          "headers": { "Authorization": "Bearer \${input:gh-token}" }
        },
        "local": {
          "type": "stdio", "command": "node", "args": ["\${workspaceFolder}/server.js", "\${userHome}"],
          "env": { "LEVEL": "\${input:level}", "X": "\${env:X}" }, "cwd": "\${workspaceFolder}/sub"
        },
        "events": { "type": "sse", "url": "http://127.0.0.1:9/sse" },
      },
    }`;
    include(
      { files: { '.vscode/mcp.json': text }, env: { TOLLGATE_INPUT_GH_TOKEN: 'token-of-github', X: 'value-of-x' } },
      (config, said, project) => {
        expect(said).toBe('');
        expect(config.servers.get('github')).toMatchObject({
          transport: 'http',
          url: 'https://api.example.com/mcp',
          headers: { Authorization: 'Bearer token-of-github' },
          source: '.vscode/mcp.json',
        });
        expect(config.servers.get('local')).toMatchObject({
          transport: 'stdio',
          command: 'node',
          args: [`${project.folder}/server.js`, project.home],
          env: { LEVEL: 'info', X: 'value-of-x' },
          cwd: `${project.folder}/sub`,
        });
        expect(config.servers.get('events')).toMatchObject({ transport: 'sse' });
        expect(config.secrets).toEqual(
          expect.arrayContaining(['token-of-github', 'value-of-x', 'Bearer token-of-github']),
        );
      },
    );
  });

  it.each([
    [
      'Claude Desktop',
      '~/.config/Claude/claude_desktop_config.json',
      { command: 'npx', args: ['-y', 'x@1.0.0'], env: { A: 1, B: true } },
      { transport: 'stdio', args: ['-y', 'x@1.0.0'], env: { A: '1', B: 'true' } },
    ],
    [
      'Claude Code',
      '.mcp.json',
      { type: 'http', url: '${BASE:-https://api.example.com}/mcp' },
      { transport: 'http', url: 'https://api.example.com/mcp' },
    ],
    [
      'Cursor',
      '.cursor/mcp.json',
      { url: 'https://x.example/mcp', headers: { 'X-A': '${env:A}' } },
      { transport: 'http', headers: { 'X-A': 'value-of-a' } },
    ],
    [
      'Windsurf',
      '~/.codeium/windsurf/mcp_config.json',
      { serverUrl: 'https://x.example/mcp' },
      { transport: 'http', url: 'https://x.example/mcp' },
    ],
    [
      'Gemini CLI, streamable',
      '~/.gemini/settings.json',
      { httpUrl: 'https://x.example/mcp' },
      { transport: 'http', url: 'https://x.example/mcp' },
    ],
    [
      'Gemini CLI, SSE',
      '.gemini/settings.json',
      { url: 'https://x.example/sse' },
      { transport: 'sse', url: 'https://x.example/sse' },
    ],
    [
      'Cline',
      '~/cline_mcp_settings.json',
      { type: 'streamableHttp', url: 'https://x.example/mcp' },
      { transport: 'http' },
    ],
  ])('reads a file of %s', (_client, file, server, wanted) => {
    include({ files: { [file]: { mcpServers: { a: server } } }, env: { A: 'value-of-a' } }, (config, said) => {
      expect(said).toBe('');
      expect(config.servers.get('a')).toMatchObject({ ...wanted, source: file });
      expect(config.servers.get('a')?.unusable).toBeUndefined();
    });
  });

  it('reads the servers of the user and of this project from ~/.claude.json of Claude Code', () => {
    withProject((project) => {
      const projects = {
        [project.folder]: { mcpServers: { mine: { command: 'x' } } },
        '/elsewhere': { mcpServers: { other: { command: 'x' } } },
      };
      project.write(
        '~/.claude.json',
        JSON.stringify({ numStartups: 7, mcpServers: { all: { command: 'x' } }, projects }),
      );
      const { servers, warnings } = project.config('include: [~/.claude.json]');
      expect([...servers.keys()]).toEqual(['mine', 'all']);
      expect(formatProblems(warnings)).toContain('keys that Tollgate does not use: "numStartups"');
    });
  });

  it('keeps $VAR and $$, which are no variables for clients', () => {
    include({ files: one({ command: 'x', args: ['$HOME', '$$', '$${A}'] }), env: { A: 'a' } }, ({ servers }) => {
      expect(servers.get('a')?.args).toEqual(['$HOME', '$$', '$${A}']);
    });
  });
});

describe('an included file does not prevent the start' + verifies('HA-01'), () => {
  it.each([
    ['is missing', undefined, 'there is no such file'],
    ['is empty', '', 'not JSON'],
    ['is broken', '{"mcpServers": {"a": {"command": "x"}', '1:38: the included file is not JSON (CloseBraceExpected)'],
    ['is a list', '[]', 'not an object'],
    ['has no servers', '{"mcpServer": {}}', 'has neither servers nor mcpServers'],
    ['has servers of a wrong type', '{"mcpServers": []}', 'the servers are not an object'],
    ['is nested very deeply', '{"mcpServers":'.repeat(50_000), 'nested too deeply'],
    ['is not UTF-8', Buffer.from([0x7b, 0xff, 0x7d]), 'not UTF-8'],
  ])('when it %s', (_what, text, says) => {
    withProject((project) => {
      if (text !== undefined) project.write('mcp.json', text as string);
      const { servers, warnings } = project.config('include: [mcp.json]\nservers: {own: {command: x}}');
      expect([...servers.keys()]).toEqual(['own']);
      expect(formatProblems(warnings)).toContain('mcp.json:');
      expect(formatProblems(warnings)).toContain(says);
    });
  });

  it('when it is a folder or a device', () => {
    withProject((project) => {
      mkdirSync(path.join(project.folder, 'dir'));
      symlinkSync('/dev/zero', path.join(project.folder, 'zero'));
      expect(formatProblems(project.config('include: [dir, zero]').warnings)).toMatch(
        /it is a folder[^]*it is not a plain file/,
      );
    });
  });

  it.each([
    ['neither command nor url', {}, 'neither command nor url'],
    ['a command that is not text', { command: 7 }, 'command is not a text'],
    ['arguments that are not text', { command: 'x', args: ['a', 1] }, 'args are not a list'],
    ['an environment that is not a map', { command: 'x', env: [] }, 'env or headers are not an object'],
    ['an environment with null', { command: 'x', env: { A: null } }, 'value that is not text'],
    ['an unknown type', { type: 'grpc', url: 'https://x.example' }, 'its type is none of'],
    ['an unset variable', { command: 'x', env: { A: '${NOPE}' } }, 'variable NOPE is not set'],
    [
      'an input without a value',
      { command: 'x', env: { A: '${input:key}' } },
      'set TOLLGATE_INPUT_KEY in the environment',
    ],
    ['a variable of an unknown form', { command: 'x', args: ['${command:pick}'] }, 'unknown form'],
    ['a missing envFile', { command: 'x', envFile: '.nope.env' }, 'its envFile cannot be used: there is no such file'],
    [
      'a variable that makes the program use other settings',
      { command: 'x', env: { HOME: './h' } },
      'variable HOME makes the program use other settings or programs',
    ],
    ['code in a cluster of options', { command: 'env', args: ['python3', '-Ic', 'x'] }, '-Ic runs code'],
    ['a variable that loads code', { command: 'x', env: { LD_PRELOAD: './x.so' } }, 'LD_PRELOAD loads foreign code'],
    [
      'another PATH',
      { command: 'node', env: { PATH: './bin:/usr/bin' } },
      'variable PATH decides which program a name means',
    ],
    ['inline code', { command: 'bash', args: ['-c', 'curl x | sh'] }, '-c runs code'],
    ['an address of another protocol', { url: 'file:///etc/passwd' }, 'not http or https'],
    ['look-alike letters', { command: 'npх' }, 'letters outside ASCII'],
    ['Tollgate itself', { command: 'npx', args: ['-y', 'tollgate', 'run'] }, 'inside itself'],
    ['`disabled: true`', { command: 'x', disabled: true }, 'the file disables it'],
  ])('makes only the server unusable, and says why: %s', (_what, server, says) => {
    include(
      {
        files: { 'mcp.json': { mcpServers: { a: server, b: { command: 'y' } } } },
        yaml: 'servers: {a: {isolation: direct}}',
      },
      ({ servers }, said) => {
        expect(servers.get('a')?.unusable).toContain(says);
        expect(servers.get('b')?.unusable).toBeUndefined();
        expect(said).toContain('mcp.json:1:');
        expect(said).toContain('server "a": cannot be used: ');
      },
    );
  });

  it.each([
    ['the home folder', '${userHome}', 'it contains the home folder with its keys and settings'],
    ['the keys of the user', '~/.ssh', 'keys or tokens of the user'],
  ])('makes only a sandboxed server unusable that would start in %s', (_what, cwd, says) => {
    include(
      {
        files: { 'mcp.json': { mcpServers: { a: { command: 'x', cwd }, b: { command: 'y' } } } },
        yaml: 'servers: {a: {}}',
      },
      ({ servers }, said) => {
        expect(servers.get('a')?.unusable).toContain(says);
        expect(servers.get('b')?.unusable).toBeUndefined();
        expect(said).toContain(says);
      },
    );
    include(
      {
        files: { 'mcp.json': { mcpServers: { a: { command: 'x', cwd } } } },
        yaml: 'servers: {a: {isolation: direct}}',
      },
      ({ servers }) => expect(servers.get('a')?.unusable).toBeUndefined(),
    );
  });

  it('makes a server with a duplicate key unusable, because parsers differ on which one counts', () => {
    include(
      {
        files: {
          'mcp.json':
            '{"mcpServers": {"a": {"command": "x", "command": "y"}, "b": {"command": "x"}, "b": {"command": "z"}}}',
        },
      },
      ({ servers }) => {
        expect(servers.get('a')?.unusable).toContain('key "command" appears twice');
        expect(servers.get('b')?.unusable).toContain('two servers of this file have this name');
      },
    );
  });
});

describe('an included file grants nothing', () => {
  it('reports alwaysAllow, autoApprove, trust and unknown keys, and ignores them' + verifies('HA-01'), () => {
    include(
      {
        files: one({
          command: 'x',
          alwaysAllow: ['*'],
          autoApprove: true,
          trust: true,
          approved: true,
          isolation: 'direct',
          sandboxEnabled: false,
        }),
      },
      ({ servers, warnings }, said) => {
        // Reported by `check`, and not at each start.
        for (const { message, minor } of warnings)
          if (/|grants trust/.test(message)) expect([message, minor]).toEqual([message, true]);
        // Without `isolation` it runs in a sandbox, whatever the file says.
        for (const key of ['approved', 'isolation', 'sandboxEnabled']) expect(servers.get('a')).not.toHaveProperty(key);
        for (const key of ['alwaysAllow', 'autoApprove', 'trust', 'approved'])
          expect(said).toContain(`${key} grants trust, which a client's file cannot`);
        expect(said).toContain('key "isolation"');
      },
    );
  });

  it('warns that its sandbox has no effect, until tollgate.yaml has one' + verifies('HA-01'), () => {
    const files = one({ command: 'x', sandboxEnabled: true, sandbox: { filesystem: { allowWrite: ['out'] } } });
    const line =
      'server "a": its sandbox has no effect in an included file; ' +
      'write it under servers.a.sandbox in tollgate.yaml, or copy it: tollgate import --copy --only a';
    include({ files }, ({ servers }, said) => {
      expect(servers.get('a')?.sandbox?.filesystem.allowWrite).toEqual([]);
      expect(said).toContain(line);
    });
    include({ files, yaml: 'servers: {a: {sandbox: {}}}\n' }, (_config, said) =>
      expect(said).not.toContain('its sandbox has no effect'),
    );
  });

  it('takes settings from the entry in tollgate.yaml, and an approval from no file' + verifies('HA-01'), () => {
    const yaml =
      'servers: {a: {isolation: direct, timeoutMs: 5000, mapping: server-filesystem, tools: {deny: [x]}}}\n' +
      'profiles: {dev: {servers: [a]}}';
    include({ files: one({ command: 'npx', args: ['pkg'] }), yaml }, ({ servers }, said) => {
      expect(servers.get('a')).toMatchObject({
        command: 'npx',
        isolation: 'direct',
        timeoutMs: 5000,
        mapping: 'server-filesystem',
        tools: { deny: ['x'] },
        source: 'mcp.json',
      });
      expect(said).toContain('the package has no exact version');
    });
  });

  it('keeps an entry whose server no file defines, as unusable', () => {
    include(
      {
        files: { 'mcp.json': { mcpServers: {} } },
        yaml: 'servers: {gone: {isolation: direct}}\nprofiles: {dev: {servers: [gone]}}',
      },
      ({ servers }, said) => {
        expect(servers.get('gone')).toMatchObject({
          unusable: expect.stringContaining('no included file defines it') as string,
          source: 'tollgate.yaml',
        });
        expect(said).toContain('tollgate.yaml:2:17: server "gone" is in none of the included files');
      },
    );
  });
});

describe('names of included servers' + verifies('HA-04'), () => {
  it('turns illegal names into legal ones, with a warning', () => {
    include(
      {
        files: {
          'mcp.json': {
            mcpServers: {
              'GitHub (work)': { command: 'x' },
              '7zip': { command: 'x' },
              Café: { command: 'x' },
              日本: { command: 'x' },
            },
          },
        },
      },
      ({ servers }, said) => {
        expect([...servers.keys()]).toEqual(['github-work', 'server-7zip', 'cafe', 'server']);
        expect(said).toContain('server "GitHub (work)" is called github-work here');
      },
    );
  });

  it('refuses a reserved name', () => {
    include(
      { files: { 'mcp.json': { mcpServers: { workspace: { command: 'x' }, 'Tollgate-X': { command: 'x' } } } } },
      ({ servers }) => {
        expect(servers.get('workspace')?.unusable).toContain('reserved');
        expect(servers.get('tollgate-x')?.unusable).toContain('reserved');
      },
    );
  });

  it('prefers the server of tollgate.yaml', () => {
    include({ files: one({ command: 'evil' }), yaml: 'servers: {a: {command: good}}' }, ({ servers }, said) => {
      expect(servers.get('a')?.command).toBe('good');
      expect(said).toContain('tollgate.yaml defines a itself');
    });
  });

  it('merges equal definitions of two files; two that differ leave none to use', () => {
    const same = { command: 'x', args: ['1'] };
    include(
      {
        files: {
          'a.json': { mcpServers: { s: same, t: { command: 'x' }, 'My T': { command: 'a' } } },
          'b.json': { servers: { s: same, t: { command: 'y' }, 'my-t': { command: 'b' } } },
        },
      },
      ({ servers }, said) => {
        expect(servers.get('s')?.unusable).toBeUndefined();
        expect(servers.get('t')?.unusable).toContain('a.json and b.json define it differently');
        expect(servers.get('my-t')?.unusable).toContain('define it differently');
        expect(said).toContain('b.json:1:');
      },
    );
  });

  it('leaves out servers above the limit' + verifies('HA-05'), () => {
    const many = Object.fromEntries(Array.from({ length: 30 }, (_, index) => [`s${index}`, { command: 'x' }]));
    include(
      { files: { 'mcp.json': { mcpServers: many } }, yaml: 'limits: {servers: 3}\nservers: {own: {command: x}}' },
      ({ servers }, said) => {
        expect([...servers.keys()]).toEqual(['own', 's0', 's1']);
        expect(said).toContain('server "s29": cannot be used: limits.servers (3) is reached');
      },
    );
  });
});

describe('an envFile', () => {
  it('gives variables to a program, below those of its entry, and is redacted' + verifies('HA-02'), () => {
    const text = '# keys\nexport API_KEY=\'key-from-file\'\nPLAIN = value \nQUOTED="a b"\nnot a line\nOVER=low\n';
    include(
      {
        files: {
          'server.env': text,
          'mcp.json': {
            mcpServers: { a: { command: 'x', envFile: '${workspaceFolder}/server.env', env: { OVER: 'high' } } },
          },
        },
      },
      ({ servers, secrets }) => {
        expect(servers.get('a')?.env).toEqual({
          API_KEY: 'key-from-file',
          PLAIN: 'value',
          QUOTED: 'a b',
          OVER: 'high',
        });
        expect(secrets).toContain('key-from-file');
      },
    );
  });

  it('may not set variables that load code', () => {
    include(
      {
        files: {
          'server.env': 'NODE_OPTIONS=--require ./x.js\n',
          'mcp.json': { mcpServers: { a: { command: 'x', envFile: 'server.env' } } },
        },
      },
      ({ servers }) => {
        expect(servers.get('a')?.unusable).toContain('NODE_OPTIONS');
      },
    );
  });
});
