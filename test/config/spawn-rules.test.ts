/**
 * Tests which commands count as risky. The case numbers are those of docs/threat-model.md.
 * Covers: facade/config.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { nearest, quote, showPath } from '../../facade/config/config-problems.ts';
import { nameFault, SERVER_NAME, splitToolId, toSlug } from '../../facade/config/servers/server-names.ts';
import {
  hasLookAlike,
  inlineCodeFlag,
  isConfigVariable,
  isLoaderVariable,
  isTollgate,
  programOf,
  runsMovingPackage,
} from '../../facade/config/servers/spawn-rules.ts';
import { verifies } from '../verifies.ts';

const spawn = (line: string): { command: string; args: string[]; env: Record<string, string> } => {
  const [command = '', ...args] = line.split(' ');
  return { command, args, env: {} };
};

describe('commands', () => {
  it.each([
    ['node -e x', '-e'],
    ['node --eval=x', '--eval'],
    ['/usr/bin/node.exe -p x', '-p'],
    ['npx -c x', '-c'],
    ['bash -lc x', '-lc'],
    ['C:\\Windows\\cmd.exe /c x', '/c'],
    ['docker run --entrypoint sh image', '--entrypoint'],
    ['python3 -c x', '-c'],
    ['deno eval x', 'eval'],
    ['bash -xc x', '-xc'],
    ['sh -ec x', '-ec'],
    ['python3 -Ic x', '-Ic'],
    ['python3.12 -c x', '-c'],
    ['env sh -c x', '-c'],
    ['env -i A=1 sh -c x', '-c'],
    ['node --import data:text/javascript,1 x.js', '--import'],
    ['php -r x', '-r'],
    ['tsx -e x', '-e'],
    ['npx -y tsx -e x', '-e'],
    ['busybox sh -c x', '-c'],
    ['node -pe x', '-pe'],
    ['perl -we x', '-we'],
    ['perl -Mx;y f', '-M'],
    ['ruby -ne x', '-ne'],
    ['timeout 5 nice -n 3 python3 -c x', '-c'],
    ['pwsh -NoProfile -enc x', '-enc'],
    ['cmd /k x', '/k'],
    ['python3 -W ignore -c x', '-c'],
    ['python3 /dev/stdin', '/dev/stdin'],
    ['node --unknown x -e y', '-e'],
    ['uvx --with a python -c x', '-c'],
    ['python3 -u -m server', undefined],
    ['python3 -W ignore x.py -c y', undefined],
    ['node --require ./a.js x.js -e', undefined],
    ['env A=1 node x.js -e', undefined],
    ['irb', undefined],
    ['deno run -A x.ts', undefined],
    ['ruby --version', undefined],
    ['node server.js', undefined],
    ['npx -y pkg@1.0.0', undefined],
    ['my-server -c config', undefined],
    ['bash server.sh', undefined],
  ])('case 64, interpreter arguments: %s', (line, flag) => {
    expect(inlineCodeFlag(spawn(line))).toBe(flag);
  });

  it.each([
    'NODE_OPTIONS',
    'LD_PRELOAD',
    'LD_LIBRARY_PATH',
    'LD_AUDIT',
    'BASH_ENV',
    'DYLD_INSERT_LIBRARIES',
    'Dyld_X',
    'node_options',
    'PYTHONPATH',
    'PYTHONSTARTUP',
    'PYTHONHOME',
    'NODE_PATH',
    'PERL5LIB',
    'PERL5OPT',
    'RUBYLIB',
    'RUBYOPT',
    'CLASSPATH',
    'JAVA_TOOL_OPTIONS',
    'JDK_JAVA_OPTIONS',
    '_JAVA_OPTIONS',
    'DOTNET_STARTUP_HOOKS',
    'LUA_INIT',
    'LUA_INIT_5_4',
    'OPENSSL_CONF',
    'GIT_SSH_COMMAND',
    'GIT_EXEC_PATH',
    'GIT_CONFIG_KEY_0',
    'npm_config_node_options',
    'npm_config_script_shell',
    'LD_DEBUG_OUTPUT',
    'ENV',
    'ZDOTDIR',
    'PROMPT_COMMAND',
    'BASH_FUNC_x',
  ])('case 65, loader variable: %s', (name) => {
    expect(isLoaderVariable(name)).toBe(true);
  });

  it.each(['PATH', 'HOME', 'NODE_ENV', 'LD', 'OPTIONS', 'npm_config_cache', 'GIT_AUTHOR_NAME', 'ENVIRONMENT'])(
    'not a loader variable: %s',
    (name) => {
      expect(isLoaderVariable(name)).toBe(false);
    },
  );

  it.each(['HOME', 'home', 'XDG_CONFIG_HOME', 'SHELL', 'npm_config_registry'])(
    'leads to settings of its own: %s',
    (name) => {
      expect([isConfigVariable(name), isConfigVariable(`${name}X`)]).toEqual([true, false]);
    },
  );

  it.each([
    ['npx -y pkg', true],
    ['npx pkg@latest', true],
    ['npx @scope/pkg', true],
    ['npx @scope/pkg@^1', true],
    ['uvx tool', true],
    ['npx @1password/x', true],
    ['npx -y pkg@1.2.3', false],
    ['npx @scope/pkg@1.2.3-beta.1', false],
    ['uvx tool==1.0', false],
    ['uvx tool@1.0.0', false],
    ['npx ./local', false],
    ['node server.js', false],
    ['npx', false],
  ])('case 66, moving package: %s', (line, moving) => {
    expect(runsMovingPackage(spawn(line))).toBe(moving);
  });

  it.each([
    ['npx -y @modеlcontextprotocol/x', true],
    ['nоde x.js', true],
    ['npx -y pkg ~/Möbel', false],
    ['node /home/jörg/x.js', false],
  ])('case 73, look-alike: %s', (line, found) => {
    expect(hasLookAlike(spawn(line))).toBe(found);
  });

  it.each([
    ['tollgate run', true],
    ['npx -y tollgate run', true],
    ['npx tollgate@0.1.0 run', true],
    ['node /opt/tollgate/dist/facade/main.js run', true],
    ['C:\\bin\\tollgate.cmd run', true],
    ['/usr/bin/node /usr/lib/node_modules/npm/bin/npx-cli.js -y tollgate@0.1.0 run', true],
    ['node /usr/lib/node_modules/npm/bin/npx-cli.js -y other tollgate', false],
    ['npx tollgate-tools', false],
    ['node dist/main.js', false],
  ])('Tollgate inside itself: %s', (line, found) => {
    expect(isTollgate(spawn(line))).toBe(found);
  });

  it('a server without a command is not risky', () => {
    const remote = { args: [], env: {} };
    expect([inlineCodeFlag(remote), runsMovingPackage(remote), hasLookAlike(remote), isTollgate(remote)]).toEqual([
      undefined,
      false,
      false,
      false,
    ]);
    expect(programOf('/a/b/NODE.EXE')).toBe('node');
  });
});

describe('names' + verifies('HA-04'), () => {
  it('become legal by toSlug, which does not change a legal name', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (name) => {
        expect(toSlug(name)).toMatch(SERVER_NAME);
        expect(toSlug(toSlug(name))).toBe(toSlug(name));
      }),
    );
    fc.assert(
      fc.property(fc.stringMatching(/^[a-z][a-z0-9]{0,20}$/), (name) => {
        expect(toSlug(name)).toBe(name);
      }),
    );
  });

  it('are refused if they are reserved', () => {
    expect(
      ['workspace', 'tollgate', 'spill', 'tollgate-x'].every((name) => nameFault(name)?.includes('reserved')),
    ).toBe(true);
    expect(nameFault('github')).toBeUndefined();
  });

  it('are split from ids of tools, which name one server', () => {
    expect(splitToolId('a.b.c/*')).toEqual({ server: 'a', tool: 'b.c/*' });
    for (const id of ['', '.', 'a', 'a.', '.b', '*.b', 'A.b', 'a b.c', 'a.b c'])
      expect(splitToolId(id), id).toBeUndefined();
  });
});

describe('names in messages', () => {
  it('suggest a similar word, not just any short one', () => {
    expect(nearest('sevrers', ['servers', 'secrets'])).toBe('servers');
    expect(nearest('x', ['id', 'on'])).toBeUndefined();
    expect(nearest('a'.repeat(1000), ['a'.repeat(999)])).toBeUndefined();
  });

  it('are quoted, short and without control characters', () => {
    expect(quote('x'.repeat(100))).toBe(`"${'x'.repeat(40)}…"`);
    expect(quote('a\u001b[31m\u202eb"')).toBe('"a\\u001b[31m?b\\""');
    expect(showPath(['servers', 'a b', 'args', 0])).toBe('servers."a b".args[0]');
  });
});
