import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { commandFact } from '../../catalogs/programs/command-facts.ts';
import { loadPolicy } from '../../policies/engine/policy-loader.ts';
import type { Policy } from '../../policies/port.ts';
import { packageRoot } from '../../policies/rego/opa-program.ts';
import { type CallOf, callOf, PRINCIPAL, parts } from '../engine/policy-fixture.ts';
import { verifies } from '../verifies.ts';

const starter = (): Promise<Policy> =>
  loadPolicy(
    parts({
      sources: [
        { path: path.join(packageRoot(), 'policies', 'starter', 'workspace.yaml'), kind: 'yaml', mode: 'enforce' },
      ],
    }),
  );

const read = (inside: string): CallOf => ({ server: 'workspace', tool: 'read', verb: 'read', inside: [inside] });
const write = (inside: string): CallOf => ({ server: 'workspace', tool: 'write', verb: 'write', inside: [inside] });
const bash = (command: string): CallOf => {
  const { opaque, words } = commandFact(command);
  return {
    server: 'workspace',
    tool: 'bash',
    verb: 'execute',
    commands: words.length === 0 ? 'opaque' : words,
    starts: opaque,
    args: { command },
  };
};

describe('the starter rules', () => {
  it.each([
    ['read a file', read('src/a.ts'), 'allow read-workspace'],
    ['list the root', read('.'), 'allow read-workspace'],
    ['write a file', write('src/a.ts'), 'allow write-workspace'],
    ['read .env', read('.env'), 'deny no-secret-files'],
    ['read a nested .env.local', read('app/.env.local'), 'deny no-secret-files'],
    ['write a key', write('certs/server.key'), 'deny no-secret-files'],
    ['write a hook of git', write('.git/hooks/pre-commit'), 'deny no-git-by-hand,no-git-internals'],
    ['read below .git', read('.git/HEAD'), 'allow read-workspace'],
    ['read outside', { ...read('a'), inside: [], outside: ['/etc/passwd'] }, 'deny stay-inside'],
    ['read inside and outside at once', { ...read('a'), outside: ['/etc/passwd'] }, 'deny stay-inside'],
    [
      'read a path that cannot be located',
      { ...read('a'), inside: [], outside: ['../x'] },
      'deny no-secret-files,stay-inside',
    ],
    ['run a test', bash('npm test'), 'allow run-builds'],
    ['run two commands', bash('ls -l && git status'), 'allow run-plain-commands'],
    ['push', bash('git push origin main'), 'ask ask-before-push,ask-opaque-commands'],
    ['push behind something else', bash('git status; git push'), 'ask ask-before-push,ask-opaque-commands'],
    ['run an unreadable command', bash('echo $HOME > x'), 'ask ask-opaque-commands'],
    ['show .env', bash('cat .env'), 'deny no-secret-files-in-commands'],
    ['show .env by its path', bash('cat app/.env.local'), 'deny no-secret-files-in-commands'],
    ['show a key, opaque', bash('cat < server.pem'), 'deny no-secret-files-in-commands'],
    ['use a similar name', bash('cat environment.ts'), 'allow run-plain-commands'],
    ['stop the machine', bash('/sbin/shutdown now'), 'deny no-system-commands'],
    ['run a build and something else' + verifies('TR-57'), bash('make && python3 x.py'), 'ask ask-opaque-commands'],
    ['mount' + verifies('TR-57'), bash('mount x y'), 'deny no-system-commands'],
    [
      'mount by a program that starts others' + verifies('TR-57'),
      bash('linux64 /bin/mount x y'),
      'deny no-system-commands',
    ],
    ['run in a folder outside', { ...bash('ls'), outside: ['/etc'] }, 'deny stay-inside'],
    [
      'look after a command',
      { server: 'workspace', tool: 'bash', verb: 'read', args: { action: 'poll', session: 's' } },
      'allow watch-sessions',
    ],
    [
      'end a command',
      { server: 'workspace', tool: 'bash', verb: 'execute', args: { action: 'kill', session: 's' } },
      'allow watch-sessions',
    ],
    [
      'type into a program',
      { server: 'workspace', tool: 'bash', verb: 'execute', args: { action: 'send', session: 's', input: 'x' } },
      'ask ask-session-input',
    ],
    [
      'call a tool that nobody classified' + verifies('PF-05'),
      { server: 'git', tool: 'wipe', verb: 'destructive' },
      'ask ask-other-servers',
    ],
    [
      'write with another server' + verifies('PF-05'),
      { server: 'git', tool: 'add', verb: 'write', inside: ['a'] },
      'ask ask-other-servers',
    ],
    [
      'read with another server' + verifies('PF-05'),
      { server: 'git', tool: 'log', verb: 'read' },
      'allow read-other-servers',
    ],
    ['run a command of another server', { ...bash('ls'), server: 'git', tool: 'sh' }, 'ask ask-other-servers'],
  ] as const)('%s', async (_name, call, expected) => {
    const { outcome, reasons } = await (await starter()).call(callOf(call));
    expect(
      `${outcome} ${reasons
        .map(({ id }) => id)
        .sort()
        .join(',')}`,
    ).toBe(expected);
  });

  it('show the four primitives, each with a condition', async () => {
    const tools = (['read', 'write', 'edit', 'bash'] as const).map((primitive) => ({
      server: 'workspace',
      tool: primitive,
      primitive,
      ...(primitive === 'read'
        ? { verb: 'read' as const }
        : primitive === 'bash'
          ? { verb: 'execute' as const, verbs: ['execute', 'read'] as const }
          : { verb: 'write' as const }),
    }));
    expect(
      (await (await starter()).list(PRINCIPAL, tools)).map(({ verdict, expose }) => [verdict, expose[0]?.name]),
    ).toEqual([
      ['maybe', 'read'],
      ['maybe', 'write'],
      ['maybe', 'edit'],
      ['maybe', 'bash'],
    ]);
  });
});
