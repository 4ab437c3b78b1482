/** Attacks with commands (finding L): a command that starts another program is opaque, whatever its name. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { GIT_ENVIRONMENT } from '../../adapters/primitives/shell/git-environment.ts';
import { commandFact } from '../../catalogs/programs/command-facts.ts';
import { LITERAL_PROGRAMS } from '../../catalogs/programs/literal-programs.ts';
import { callOf, policyOf } from '../engine/policy-fixture.ts';
import { roundsOf } from '../harness/slices.ts';
import { installPrograms } from '../servers/system.ts';
import { verifies } from '../verifies.ts';

const COMMANDS = parse(readFileSync(path.join(import.meta.dirname, 'opaque-commands.yaml'), 'utf8')) as Readonly<
  Record<'opaque' | 'joinedLines' | 'literal' | 'arguments' | 'gitCommands' | 'parts', readonly string[]>
>;

describe('a command that starts another program (L)', () => {
  it.each(COMMANDS.opaque)('is opaque: %s' + verifies('TR-53'), (text) => {
    expect(commandFact(text).opaque).toBe(true);
  });

  it.each([
    ['npm test', [['npm', 'test']]],
    ['ls && git push', [['ls'], ['git', 'push']]],
    ['linux64 curl x', [['linux64', 'curl', 'x']]],
    ['ssh host ls', [['ssh', 'host', 'ls']]],
    ["python3 -c 'x'", [['python3', '-c', 'x']]],
  ])('keeps its words for the policy: %s' + verifies('TR-56'), (text, words) => {
    expect(commandFact(text)).toEqual({ text, opaque: true, words });
  });

  it.each([
    'env git push',
    'sh -c x',
    'xargs git push',
    'sudo ls',
    'eval ls',
    '/usr/bin/timeout 5 git push',
    'find . -exec git push',
    'npm test $X',
    'npm test > a',
    "printf 'a%n' PATH; ls",
    "printf '%-3.1ln' PATH",
    ...COMMANDS.joinedLines,
  ])('has no words if they do not tell what runs: %s' + verifies('TR-56'), (text) => {
    expect(commandFact(text)).toEqual({ text, opaque: true, words: [] });
  });

  it.each(COMMANDS.literal)('is unlike the literal command %s', (text) => {
    expect(commandFact(text).opaque).toBe(false);
  });
});

describe('a rule on commands that start other programs', () => {
  const decide = async (rule: object, text: string): Promise<string> => {
    const { words, opaque } = commandFact(text);
    const policy = await policyOf([rule]);
    return (
      await policy.call(
        callOf({
          server: 'workspace',
          tool: 'bash',
          verb: 'execute',
          commands: words.length === 0 ? 'opaque' : words,
          starts: opaque,
          args: { command: text },
        }),
      )
    ).outcome;
  };
  const allow = {
    id: 'it',
    outcome: 'allow',
    when: { servers: ['workspace'], commands: ['npm test', 'tail'], opaque: true },
  };

  it.each([
    ['npm test', 'allow'],
    ['npm test | tail -5', 'allow'],
    ['npm test; curl x', 'deny'],
    ['npm test; $X', 'deny'],
    ['npm exec x', 'deny'],
    ['env npm test', 'deny'],
    ['./npm test', 'deny'],
  ])('with opaque: true decides about %s: %s' + verifies('TR-56'), async (text, outcome) => {
    expect(await decide(allow, text)).toBe(outcome);
  });

  it('is refused at load if it allows a command that it can never match' + verifies('TR-56'), async () => {
    await expect(decide({ ...allow, when: { commands: ['npm test'] } }, 'npm test')).rejects.toThrow(
      /"npm test" starts other programs or may.*with `opaque: true`/s,
    );
  });
});

/** Programs that end other processes, wait, or print the state of the machine. */
const EXCLUDED = new Set([
  'kill',
  'sleep',
  'shred',
  'sync',
  'ps',
  'free',
  'uptime',
  'printenv',
  'exit',
  'return',
  'break',
  'continue',
]);

/** Returns the names of the programs that started, without the first shell. */
function startedIn(log: string): readonly string[] {
  return [...readFileSync(log, 'utf8').matchAll(/execve\("([^"]*)"[^\n]* = 0$/gm)]
    .map(([, file = '']) => path.basename(file))
    .slice(1);
}

describe('a literal command' + verifies('TR-53'), () => {
  beforeAll(() =>
    installPrograms(
      [
        ['strace', 'strace'],
        ['bwrap', 'bubblewrap'],
      ],
      () => undefined,
    ),
  );

  it('starts only the programs that its words name (under strace in a sandbox)', () => {
    const folder = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-literal-')));
    const log = path.join(folder, 'trace');
    const sandbox = [
      '--ro-bind',
      '/',
      '/',
      '--dev',
      '/dev',
      '--proc',
      '/proc',
      '--bind',
      folder,
      folder,
      '--unshare-net',
      '--unshare-pid',
      '--die-with-parent',
      '--chdir',
      folder,
    ];
    const shell = (text: string): number | null =>
      spawnSync(
        'bwrap',
        [...sandbox, 'strace', '-f', '-qq', '-e', 'trace=execve', '-o', log, 'bash', '--norc', '-c', text],
        {
          env: { ...GIT_ENVIRONMENT, PATH: '/usr/local/bin:/usr/bin:/bin', HOME: folder },
          stdio: 'ignore',
          timeout: 20_000,
        },
      ).status;
    const setUp = `git init -q . && git config user.email a@b && git config user.name a && echo a > a
       echo b > b; mkdir -p d; printf "#!/bin/sh\\ntouch ran\\n" > x; chmod +x x; gzip -k a
       git add a b && git commit -qm a`;
    const name = fc.constantFrom(
      ...LITERAL_PROGRAMS.filter((one) => !EXCLUDED.has(one)),
      ...COMMANDS.gitCommands.map((word) => `git ${word}`),
    );
    let literal = 0;
    try {
      expect(shell(setUp)).toBe(0);
      expect([...startedIn(log)]).toContain('gzip');
      fc.assert(
        fc.property(name, fc.array(fc.constantFrom(...COMMANDS.arguments), { maxLength: 4 }), (program, args) => {
          const text = [program, ...args].join(' ');
          if (commandFact(text).opaque) return;
          shell(text);
          literal += 1;
          expect([text, startedIn(log).filter((file) => file !== program.split(' ')[0])]).toEqual([text, []]);
        }),
        {
          numRuns: Number(process.env.LITERAL_RUNS ?? roundsOf(150, 30)),
          seed: Number(process.env.LITERAL_SEED ?? 10),
        },
      );
      expect(literal).toBeGreaterThan(roundsOf(50, 10));
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  }, 120_000);
});

describe('the words of a literal command', () => {
  it('are the arguments that Bash passes to its programs, and it creates no file' + verifies('TR-53'), () => {
    const folder = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-words-')));
    const [bin, work, logs] = ['bin', 'work', 'logs'].map((name) => path.join(folder, name)) as [
      string,
      string,
      string,
    ];
    for (const made of [bin, work, logs]) mkdirSync(made);
    for (const name of ['one', 'two', 'a', 'a2'])
      writeFileSync(
        path.join(bin, name),
        `#!/bin/bash\nprintf -v line '%s\\1' "\${0##*/}" "$@"; printf '%s\\2' "$line" >> "$LOG"\n`,
        { mode: 0o755 },
      );
    let [started, runs] = [0, 0];
    try {
      fc.assert(
        fc.property(fc.array(fc.constantFrom(...COMMANDS.parts), { minLength: 1, maxLength: 9 }), (parts) => {
          const text = `one ${parts.join('')}`;
          const { words } = commandFact(text);
          if (words.length === 0) return;
          // Each run has its own log: a background process of an earlier command may still write.
          const log = path.join(logs, String((runs += 1)));
          writeFileSync(log, '');
          spawnSync('/bin/bash', ['--norc', '-c', text], {
            cwd: work,
            env: { PATH: bin, HOME: '/nonexistent', LOG: log },
            stdio: 'ignore',
            timeout: 10_000,
          });
          const ran = readFileSync(log, 'utf8')
            .split('\u0002')
            .slice(0, -1)
            .map((line) => line.split('\u0001').slice(0, -1));
          started += ran.length;
          expect([
            text,
            ran.filter((line) => !words.some((known) => isDeepStrictEqual(known, line))),
            readdirSync(work),
          ]).toEqual([text, [], []]);
        }),
        { numRuns: Number(process.env.WORDS_RUNS ?? roundsOf(3000, 200)), seed: Number(process.env.WORDS_SEED ?? 10) },
      );
      expect(started).toBeGreaterThan(roundsOf(100, 10));
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  }, 120_000);
});
