/** Tests references to secrets: where they may be, that nothing can forge one, and how a start replaces them. */
import { execFileSync } from 'node:child_process';
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, afterEach, beforeEach, describe, expect, it } from 'vitest';
import { fillSecrets, secretNames } from '../../adapters/stdio/server-secrets.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { SecretSource } from '../../facade/config/config.ts';
import { ownPlaces } from '../../facade/config/work-folders.ts';
import { controlFilePrecondition } from '../../facade/consent/control-file-precondition.ts';
import type { PreconditionCall } from '../../facade/consent/preconditions.ts';
import { Redactor } from '../../facade/output/redactor.ts';
import { runProgram } from '../../facade/secrets/secret-program.ts';
import { readSecret } from '../../facade/secrets/secret-source.ts';
import { secretUses } from '../../facade/secrets/secret-uses.ts';
import { openPlaces, openSecrets, registerSecret } from '../../facade/secrets/secrets.ts';
import { MountedFolder } from '../config/mounted-folder.ts';
import { type Env, withProject } from '../config/project.ts';
import { verifies } from '../verifies.ts';

const messages = (yaml: string, env: Env = {}): string =>
  withProject((project) =>
    project
      .load(`version: 1\n${yaml}`, env)
      .problems.map(({ line, column, message }) => `${line}:${column} ${message}`)
      .join('\n'),
  );
const server = (entry: string): string => `servers:\n  s: {command: node, ${entry}}\n`;

describe('a reference in tollgate.yaml', () => {
  it('stays a reference: no value enters the configuration' + verifies('PF-04'), () => {
    const config = withProject((project) =>
      project.config(
        `version: 1
servers:
  local:
    command: node
    env: {API_TOKEN: '\${secret:github.token}', MIXED: 'a \${secret:one} \${env:X} \${secret:one}'}
  remote: {url: 'https://a.test/mcp', headers: {Authorization: 'Bearer \${secret:one}'}}
`,
        { X: 'outside-value' },
      ),
    );
    expect(config.servers.get('local')?.env).toEqual({
      API_TOKEN: '${secret:github.token}',
      MIXED: 'a ${secret:one} outside-value ${secret:one}',
    });
    expect(config.servers.get('remote')?.headers).toEqual({ Authorization: 'Bearer ${secret:one}' });
    expect(config.secrets).toEqual(['outside-value']);
    expect(config.warnings).toEqual([]);
    expect(secretUses(config)).toEqual(
      new Map([
        ['github.token', ['local']],
        ['one', ['local', 'remote']],
      ]),
    );
  });

  it.each([
    ['an argument', server("args: ['--token', '${secret:a}']"), '3:40 ${secret:…} outside env and headers of a server'],
    ['a command', "servers:\n  s: {command: '${secret:a}'}\n", '3:16 ${secret:…} outside'],
    ['a folder', server("cwd: '${secret:a}'"), '${secret:…} outside'],
    ['an address', "servers:\n  s: {url: 'https://a.test/${secret:a}'}\n", '${secret:…} outside'],
    ['a token of a principal', "principals:\n  - {id: a, token: '${secret:a}'}\n", '${secret:…} outside'],
    ['the workspace', "workspace: '${secret:a}'\n", '${secret:…} outside'],
  ])('is refused in %s, with its place' + verifies('PF-04'), (_name, yaml, message) => {
    expect(messages(yaml)).toContain(message);
  });

  it.each([
    ['a default', "env: {A: '${secret:a:-none}'}", 'takes only a name'],
    ['no name', "env: {A: '${secret:}'}", 'unknown form'],
    ['a blank', "env: {A: '${secret:a b}'}", 'unknown form'],
    ['another one inside', "env: {A: '${secret:${secret:a}}'}", 'never closed'],
  ])('is refused with %s', (_name, entry, message) => {
    expect(messages(server(entry))).toContain(message);
  });

  it.each([
    ['a variable of the environment', "env: {A: '${env:EVIL}'}", { EVIL: 'x${secret:a}' }],
    ['an escape', "env: {A: '$${secret:a}'}", {}],
    ['two halves', "env: {A: '${env:D}{secret:a}'}", { D: '$' }],
    ['a default', "env: {A: '${NONE:-$}{secret:a}'}", {}],
  ])('is not forged by %s', (_name, entry, env) => {
    expect(messages(server(entry), env)).toContain('which was not written as such');
  });

  it('is refused in files of clients, which others write', () => {
    const config = withProject((project) => {
      project.write(
        '.vscode/mcp.json',
        '{"servers": {"evil": {"type": "http", "url": "https://evil.test/", ' +
          '"headers": {"X": "${secret:github.token}"}}}}',
      );
      return project.config('version: 1\ninclude: [.vscode/mcp.json]\nservers: {evil: {isolation: direct}}\n');
    });
    expect(config.servers.get('evil')?.unusable).toContain('is only allowed in tollgate.yaml');
  });
});

describe('the sources of secrets', () => {
  it('are read from the configuration, one for each secret', () => {
    const config = withProject((project) =>
      project.config(
        'version: 1\nsecrets: {a: {env: X}, b.c: {exec: [op, read, x]}, d: {keychain: git/hub/work}, e: {file: /run/x}}\n',
      ),
    );
    expect([...config.secretSources]).toEqual([
      ['a', { from: 'env', variable: 'X' }],
      ['b.c', { from: 'exec', command: ['op', 'read', 'x'] }],
      ['d', { from: 'keychain', service: 'git', account: 'hub/work' }],
      ['e', { from: 'file', file: '/run/x' }],
    ]);
  });

  it.each([
    ['two', 'secrets: {a: {env: X, exec: [y]}}'],
    ['none', 'secrets: {a: {}}'],
    ['a value', 'secrets: {a: sesame}'],
    ['an illegal name', 'secrets: {"a b": {env: X}}'],
    ['an illegal variable', 'secrets: {a: {env: "X Y"}}'],
    ['an entry without account', 'secrets: {a: {keychain: x}}'],
    ['a relative program', 'secrets: {a: {exec: [./op]}}'],
    ['an empty command', 'secrets: {a: {exec: []}}'],
    ['an empty file name', 'secrets: {a: {file: ""}}'],
    ['a file of the workspace', 'secrets: {a: {file: ./token}}'],
    ['an unknown one', 'secrets: {a: {vaults: X}}'],
  ])('are refused: %s', (_name, yaml) => {
    expect(messages(`${yaml}\n`)).toMatch(/^2:\d+ /);
  });
});

describe('a secret program in the workspace', () => {
  it.each([
    ['the program', '["AT/get"]'],
    ['its script', '[python3, -u, "AT/get"]'],
    ['code that names one', '[sh, -c, "exec AT/get"]'],
    ['the workspace itself', '[git, -C, "AT", credential]'],
  ])('is refused when the configuration is read: %s' + verifies('PF-04'), (_name, command) => {
    withProject((project) => {
      const load = (at: string): string =>
        project
          .load(`version: 1\nsecrets: {a: {exec: ${command.replace('AT', at)}}}\n`)
          .problems.map(({ message }) => message)
          .join();
      expect(load(project.folder)).toContain('leads into the workspace');
      expect(load('/opt/elsewhere')).toBe('');
    });
  });
});

describe('the replacement of references', () => {
  const secrets = async (name: string): Promise<string> =>
    new Map([
      ['a', 'value-of-a'],
      ['b', '${secret:a}'],
      ['line', 'x\ny'],
      ['nul', 'x\0y'],
    ]).get(name) ?? Promise.reject(new TollgateError('SECRET_MISSING'));

  it('is one pass, resolves each secret once, and changes nothing else', async () => {
    const texts = { A: 'x ${secret:a} ${secret:a}', B: '${secret:b}', C: 'plain', D: '${other:a}' };
    expect(await fillSecrets(texts, secrets, 'env')).toEqual({
      A: 'x value-of-a value-of-a',
      B: '${secret:a}',
      C: 'plain',
      D: '${other:a}',
    });
    expect(secretNames(texts)).toEqual(['a', 'b']);
    expect(await fillSecrets({ C: '$& $1' }, secrets, 'env')).toEqual({ C: '$& $1' });
  });

  it('refuses a missing secret, and a value that its place cannot contain', async () => {
    await expect(fillSecrets({ A: '${secret:none}' }, secrets, 'env')).rejects.toMatchObject({
      code: 'SECRET_MISSING',
    });
    await expect(fillSecrets({ A: '${secret:nul}' }, secrets, 'env')).rejects.toThrow('NUL');
    expect(await fillSecrets({ A: '${secret:line}' }, secrets, 'env')).toEqual({ A: 'x\ny' });
    await expect(fillSecrets({ A: '${secret:line}' }, secrets, 'headers')).rejects.toThrow('line break');
  });
});

describe('resolving a secret', () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-secrets-'));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  const resolver = (
    sources: Readonly<Record<string, SecretSource>>,
    env: Env = {},
  ): { readonly redactor: Redactor; readonly secret: (name: string) => Promise<string> } => {
    const redactor = new Redactor();
    return {
      redactor,
      secret: openSecrets(
        () => ({ secretSources: new Map(Object.entries(sources)), workspace: path.join(folder, 'workspace') }),
        { places: openPlaces({ state: folder, env }), redactor },
      ),
    };
  };

  it('registers the value with the redactor before it returns it' + verifies('PF-04'), async () => {
    const { redactor, secret } = resolver({ a: { from: 'env', variable: 'X' } }, { X: 'sesame-open' });
    expect(redactor.redact('sesame-open').count).toBe(0);
    expect(await secret('a')).toBe('sesame-open');
    expect(redactor.redact(`${Buffer.from('sesame-open').toString('base64')} sesame-open`)).toEqual({
      value: '[redacted]= [redacted]',
      count: 2,
    });
  });

  it.each([
    ['a secret that is nowhere', {}, {}, 'not in the vault'],
    ['a variable that is not set', { a: { from: 'env', variable: 'X' } }, {}, 'variable X, which is not set'],
    ['a variable of every object', { a: { from: 'env', variable: 'constructor' } }, {}, 'not set'],
    [
      'an entry of a keychain that is not there',
      { a: { from: 'keychain', service: 's', account: 'b' } },
      {},
      'cannot be reached',
    ],
    ['a value that could not be redacted', { a: { from: 'env', variable: 'X' } }, { X: '12345' }, 'shorter than 6'],
    ['a program that fails', { a: { from: 'exec', command: ['false'] } }, { PATH: '/usr/bin:/bin' }, 'exit code 1'],
    ['a file that is not there', { a: { from: 'file', file: '/nonexistent' } }, {}, 'there is no such file'],
    ['a folder', { a: { from: 'file', file: '/' } }, {}, 'it is a folder'],
    ['a program that is not there', { a: { from: 'exec', command: ['/nonexistent'] } }, {}, 'ENOENT'],
  ] as const)('refuses %s, without a value in the message', async (_name, sources, env, message) => {
    const { secret } = resolver(sources, env);
    await expect(secret('a')).rejects.toMatchObject({
      code: 'SECRET_MISSING',
      message: expect.stringContaining(message) as string,
    });
  });

  it('redacts each line of a key file, but not its header and footer', () => {
    const redactor = new Redactor();
    const line = 'MIIEvQIBADANBgkqhkiG9w0BAQEFAASC';
    expect(registerSecret(redactor, `-----BEGIN X-----\n${line}\nAB==\n-----END X-----`)).toBe(true);
    expect(redactor.redact(`1: -----BEGIN X-----\n2: ${line}`).value).toBe('1: -----BEGIN X-----\n2: [redacted]');
  });
});

describe('a file that gives a secret' + verifies('FL-17'), () => {
  let folder: string;
  beforeEach(() => {
    folder = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-mounted-')));
    mkdirSync(path.join(folder, 'workspace'));
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  const at = (name: string): string => path.join(folder, name);
  const read = (file: string): Promise<string | undefined> =>
    readSecret('a', { from: 'file', file }, { ...openPlaces({ state: folder, env: {} }), workspace: at('workspace') });

  it('is read again after Kubernetes has replaced the mounted secret, and loses one line end', async () => {
    const mounted = new MountedFolder(at('secrets'));
    mounted.put({ token: 'value-one\n' });
    expect(await read(mounted.at('token'))).toBe('value-one');
    mounted.put({ token: 'value-two\n\n' });
    expect(await read(mounted.at('token'))).toBe('value-two\n');
  });

  it('is not used if it is too large, not text, a pipe, or has come to lead into the workspace', async () => {
    writeFileSync(at('large'), 'x'.repeat(64 * 1024 + 1));
    writeFileSync(at('bytes'), Buffer.from([0xff, 0xfe, 0x41]));
    execFileSync('mkfifo', [at('pipe')]);
    writeFileSync(at('workspace/token'), 'value-of-an-agent');
    symlinkSync(at('workspace/token'), at('link'));
    for (const [name, reason] of [
      ['large', 'larger than 65536 bytes'],
      ['bytes', 'not UTF-8'],
      ['pipe', 'not a plain file'],
      ['link', 'in the workspace'],
    ] as const) {
      const error = await read(at(name)).catch((thrown: unknown) => thrown);
      expect(error).toMatchObject({ code: 'SECRET_MISSING', message: expect.stringContaining(reason) as string });
      expect(String(error)).not.toContain('value-of');
    }
  });

  it('is hidden from sandboxes, by its name and its real path, and no call may name it', async () => {
    const mounted = new MountedFolder(at('secrets'));
    mounted.put({ token: 'value-one' });
    const config = withProject((project) =>
      project.config(`version: 1\nsecrets: {a: {file: ${mounted.at('token')}}}\n`),
    );
    const real = realpathSync(mounted.at('token'));
    expect(ownPlaces(config)).toEqual(expect.arrayContaining([mounted.at('token'), real]));
    const paths = [{ path: real, inside: false }];
    const judge = (): unknown =>
      controlFilePrecondition(config).judge({ effect: { verb: 'read', paths } } as unknown as PreconditionCall);
    expect(judge).toThrow(expect.objectContaining({ code: 'DENIED' }) as Error);
  });
});

/** Returns the command lines of all processes. */
function commandLines(): readonly string[] {
  return readdirSync('/proc').map((pid) => {
    try {
      return /^\d+$/.test(pid) ? readFileSync(`/proc/${pid}/cmdline`, 'utf8') : '';
    } catch {
      return '';
    }
  });
}

describe('a program that gives a secret', () => {
  const env = { PATH: process.env.PATH, TOLLGATE_VAULT_PASSPHRASE: 'sesame-open' };
  const run = (code: string, timeoutMs?: number): Promise<string> =>
    runProgram({
      name: 'a',
      command: [process.execPath, '-e', code],
      env,
      ...(timeoutMs !== undefined && { timeoutMs }),
    });

  it('runs without a shell and without the passphrase, and its output loses one line end', async () => {
    expect(await runProgram({ name: 'a', command: ['printf', '%s\\n\\n', '$HOME `id`'], env })).toBe('$HOME `id`\n');
    expect(await run('console.log(process.env.TOLLGATE_VAULT_PASSPHRASE)')).toBe('undefined');
  });

  it(
    'does not start in a folder that an agent writes, so that a module of the same name there is not used' +
      verifies('PF-04'),
    async () => {
      expect(await run('process.stdout.write(process.cwd())')).toBe('/');
    },
  );

  it(
    'does not run from the workspace: its file, its script, code that names a file, a name on the PATH, a link' +
      verifies('PF-04'),
    async () => {
      const folder = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-program-')));
      const workspace = path.join(folder, 'workspace');
      mkdirSync(workspace);
      const evil = path.join(workspace, 'get');
      writeFileSync(evil, '#!/bin/sh\necho evil-evil\n', { mode: 0o755 });
      symlinkSync(workspace, path.join(folder, 'elsewhere'));
      try {
        for (const command of [
          [evil],
          ['sh', evil],
          ['sh', '-c', `exec ${evil}`],
          ['get'],
          ['node', `--require=${evil}`, '/x'],
          [path.join(folder, 'elsewhere', 'get')],
          ['sh', path.join(folder, 'elsewhere', 'new')],
        ]) {
          await expect(
            runProgram({ name: 'a', command, env: { PATH: `${workspace}:${env.PATH ?? ''}` }, workspace }),
          ).rejects.toMatchObject({
            code: 'SECRET_MISSING',
            message: expect.stringContaining('is in the workspace') as string,
          });
        }
      } finally {
        rmSync(folder, { recursive: true, force: true });
      }
    },
  );

  it('is killed at the timeout with everything that it started, even if that holds its output open', async () => {
    const mark = path.join(tmpdir(), `tollgate-left-${process.pid}`);
    // Longer than this test may take, so that a process that is left is seen, and a wait for it fails.
    const script = `sleep 90.5; echo left > ${mark}`;
    const grandchild = `require('node:child_process').spawn('sh', ['-c', '${script}'], { stdio: 'inherit' })`;
    await expect(run(grandchild, 1_000)).rejects.toThrow(/did not end within 1(\.0)? s/);
    await expect.poll(() => commandLines().filter((line) => line.includes(mark))).toEqual([]);
  });

  it('is killed if it prints too much, and a signal that ended it is reported', async () => {
    await expect(run(`process.stdout.write('x'.repeat(1e6))`)).rejects.toThrow('more than 64 KiB');
    await expect(run(`process.kill(process.pid, 'SIGTERM')`)).rejects.toThrow('SIGTERM');
  });

  it('has none of its output in the message if it fails', async () => {
    const error = await run(`console.log('sesame-open'); console.error('sesame-open'); process.exit(3)`).catch(
      (thrown: unknown) => thrown,
    );
    expect(`${(error as Error).message}${JSON.stringify(error)}`).not.toContain('sesame');
  });
});
