/** Named attacks with commands (finding L): a program that starts another one is opaque, whatever it is called. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { beforeAll, describe, expect, it } from 'vitest';
import { GIT_ENVIRONMENT } from '../../adapters/primitives/shell/git-environment.ts';
import { LITERAL_PROGRAMS } from '../../catalogs/programs/literal-programs.ts';
import { commandFact } from '../../facade/call/lowering/command-facts.ts';
import { callOf, policyOf } from '../engine/policy-fixture.ts';
import { installPrograms } from '../servers/system.ts';
import { verifies } from '../verifies.ts';

const STARTS_OTHERS = [
  'linux64 curl x',
  'setarch -R curl x',
  'i386 curl x',
  'setpriv --nnp curl x',
  'choom -n 0 curl x',
  'runuser -u me curl',
  'uclampset curl x',
  'fakeroot curl x',
  'npx curl',
  'npm exec curl',
  'npm x curl',
  'npm -c curl',
  '/lib64/ld-linux-x86-64.so.2 /usr/bin/curl x',
  'ld.so curl',
  "git -c 'alias.x=!curl y' x",
  'git -c core.fsmonitor=./x status',
  'git --config-env=a.b=C status',
  'git --exec-path=. status',
  'git -C sub status',
  'git --git-dir=x status',
  'git --paginate log',
  'git x',
  'git',
  'git bisect run ./x',
  'git submodule foreach x',
  'git rebase --exec x main',
  'git difftool',
  'git diff --ext-diff',
  'git diff --ext',
  'git diff --textconv',
  'git grep -O x',
  'git commit -S',
  'git log --show-signature',
  'git log --format=%GG',
  'git clone ext::x y',
  'git fetch --upload-pack=x',
  'git push --exec=x',
  'git push --receive-pack=x',
  'git config core.pager x',
  'git filter-branch x',
  'env curl',
  'nice curl',
  'awk x',
  'sed -e x',
  'tar -cf x y',
  'vim x',
  'less x',
  'man x',
  'ssh x',
  'node x.js',
  'python3 x.py',
  'ruby x',
  'perl x',
  'systemd-run x',
  'unshare x',
  'firejail x',
  'gdb x',
  'strace x',
  'a-program-of-tomorrow x',
  'find . -exec curl',
  'find . -execdir curl',
  'find . -ok x',
  'sort --compress-program=x',
  'sort --comp x',
  'split --filter=x',
  'rg --pre x y',
  'rg -z x',
  'file -z x',
  'curl -K x',
  'curl -sK x',
  'curl --ntlm-wb x',
  'curl --en x',
  'curl --key pkcs11:x y',
  'diff -l a b',
  'diff --pag a b',
  'wget --use-askpass=x',
  'tee >(x)',
  './ls',
  '/tmp/ls',
  'bin/ls',
  '/usr/bin/../../tmp/ls',
  '/usr/bin/x/ls',
  '//bin/ls',
  'LS',
  'l\u0455',
  'PATH=. ls',
  'LD_PRELOAD=./x.so ls',
  'PATH=.; ls',
  'ls() { x; }; ls',
  'alias ls=x; ls',
  'npm test',
  'npm ci',
  'npm run build',
  'npm install',
  'make',
  'make test',
  'pytest',
  'go test ./...',
  'go build',
  'cargo build',
  'mvn test',
  'gradle test',
  'git push',
  'git push origin topic',
  'git pull',
  'git fetch',
  'git clone x y',
  'git remote -v',
  'git submodule update',
  'gh pr list',
  'wget x',
  'wget --use-askpass=x y',
  'shutdown now',
  'mkfs x',
  'mount x',
  'umount x',
  'su x',
  // A file in the home folder, which is the workspace, gives curl options.
  'curl https://example.org',
  'curl -s -q https://example.org',
  'make -f x',
  'make SHELL=./x',
  'make --eval=x',
  'npm --prefix x test',
  'npm test --script-shell=./x',
  'go test -exec ./x',
  'go run x',
  'go generate',
  'cargo run',
  'cargo --config x build',
  'mvn exec:exec',
  'pytest -c x',
  'pytest -p x',
];
/** Bash joins a line that ends with a backslash to the next one before it reads tokens. */
const JOINED_LINES = [
  'echo "$\\\n((id);id)"',
  'echo "$\\\n((id) )"',
  'echo $\\\nHOME',
  'echo "$\\\n{HOME}"',
  'echo "$\\\n[1]"',
  'ls &\\\n& id',
  'ls >\\\n& x',
  'ls a=\\\n~',
  'l\\\ns',
  'ls \\\n\\',
];
const LITERAL = [
  'ls -l',
  '/bin/ls',
  '/usr/bin/ls',
  'cat a | grep b | wc -l',
  'git status',
  'git diff src',
  'git log --oneline',
  'git --no-pager log',
  'git add src',
  "git commit -m 'Mend it'",
  "git commit -m '--ext-diff'",
  'git branch -a',
  'curl -q -d @a https://example.org',
  'find . -name x',
  'sort -n x',
  'diff a b',
  'mkdir -p a/b',
  'rm -rf x',
  'grep -rn x src',
  'ls \\\n  -l',
  "echo 'a \\\nb'",
  "printf '%s %d\\n' a 1",
];

describe('a command that starts another program (L)', () => {
  it.each(STARTS_OTHERS)('%s is opaque' + verifies('TR-53'), (text) => {
    expect(commandFact(text).opaque).toBe(true);
  });

  it.each([
    ['npm test', [['npm', 'test']]],
    ['ls && git push', [['ls'], ['git', 'push']]],
    ['linux64 curl x', [['linux64', 'curl', 'x']]],
    ['ssh host ls', [['ssh', 'host', 'ls']]],
    ["python3 -c 'x'", [['python3', '-c', 'x']]],
  ])('%s keeps its words' + verifies('TR-56'), (text, words) => {
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
    ...JOINED_LINES,
  ])('%s has none, since they do not say what runs' + verifies('TR-56'), (text) => {
    expect(commandFact(text)).toEqual({ text, opaque: true, words: [] });
  });

  it.each(LITERAL)('%s is literal', (text) => {
    expect(commandFact(text).opaque).toBe(false);
  });
});

describe('rules on commands that start others', () => {
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
  ])('%s: %s, where the rule says opaque: true' + verifies('TR-56'), async (text, outcome) => {
    expect(await decide(allow, text)).toBe(outcome);
  });

  it('an allow that could never match is refused at load' + verifies('TR-56'), async () => {
    await expect(decide({ ...allow, when: { commands: ['npm test'] } }, 'npm test')).rejects.toThrow(
      /"npm test" starts other programs or may.*with `opaque: true`/s,
    );
  });
});

/** Words that make sense to many programs of the table; the last ones start programs where an option takes them. */
const WORDS = [
  'a',
  'b',
  'd',
  '-a',
  '-l',
  '-n',
  '-r',
  '-v',
  '-c',
  '-f',
  '-z',
  '-s',
  '-1',
  '--help',
  '--version',
  '1',
  './x',
  '--pager',
  '--pre=./x',
  '--pre',
  '--filter=./x',
  '--compress-program=./x',
  '--ext-diff',
  '-exec',
  '--config',
  'https://127.0.0.1:9/',
  '--paginate',
  '-S',
];
const GIT_WORDS = [
  'status',
  'diff',
  'log',
  'show',
  'add',
  'commit',
  'ls-files',
  'rev-parse',
  'blame',
  'branch',
  'tag',
  'reset',
  'mv',
  'cat-file',
  'describe',
  'shortlog',
  'checkout',
];
/** They end other processes, wait, or print what the machine is doing. */
const UNTRIED = new Set([
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

/** Names of the programs that started, without the shell at the beginning. */
function startedIn(log: string): readonly string[] {
  return [...readFileSync(log, 'utf8').matchAll(/execve\("([^"]*)"[^\n]* = 0$/gm)]
    .map(([, file = '']) => path.basename(file))
    .slice(1);
}

describe('a command that counts as literal' + verifies('TR-53'), () => {
  beforeAll(() =>
    installPrograms(
      [
        ['strace', 'strace'],
        ['bwrap', 'bubblewrap'],
      ],
      () => undefined,
    ),
  );

  it('starts only the programs that its words name, in a real shell in a sandbox under strace', () => {
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
    const setUp =
      'git init -q . && git config user.email a@b && git config user.name a && echo a > a; echo b > b; mkdir -p d; printf "#!/bin/sh\\ntouch ran\\n" > x; chmod +x x; gzip -k a; git add a b && git commit -qm a';
    const name = fc.constantFrom(
      ...LITERAL_PROGRAMS.filter((one) => !UNTRIED.has(one)),
      ...GIT_WORDS.map((word) => `git ${word}`),
    );
    let literal = 0;
    try {
      expect(shell(setUp)).toBe(0);
      expect([...startedIn(log)]).toContain('gzip');
      fc.assert(
        fc.property(name, fc.array(fc.constantFrom(...WORDS), { maxLength: 4 }), (program, words) => {
          const text = [program, ...words].join(' ');
          if (commandFact(text).opaque) return;
          shell(text);
          literal += 1;
          expect([text, startedIn(log).filter((file) => file !== program.split(' ')[0])]).toEqual([text, []]);
        }),
        { numRuns: Number(process.env.LITERAL_RUNS ?? 300), seed: Number(process.env.LITERAL_SEED ?? 10) },
      );
      expect(literal).toBeGreaterThan(100);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  }, 120_000);
});

/** Pieces of Bash that a reader may take for others when they meet. */
const PIECES = [
  'one ',
  'two ',
  'a',
  ' ',
  ' ',
  '\n',
  '\\',
  '\\\n',
  ' \\\n',
  '$\\\n',
  '&\\\n',
  "'",
  '"',
  '"',
  '$',
  '`',
  '(',
  ')',
  '((',
  '))',
  '{',
  '}',
  '[',
  ']',
  '~',
  '=',
  ':',
  '-',
  '%',
  '#',
  '!',
  '?',
  '*',
  ',',
  '&',
  '&&',
  '|',
  '||',
  ';',
  '>',
  '<',
  '2',
  '>/dev/null',
  '2>&1',
  '<<EOF',
  '\nEOF\n',
  'if ',
  '; then ',
  '; fi',
  'while ',
  '; do ',
  '; done',
  'time ',
  '\t',
  'é',
];

describe('the words of a literal command', () => {
  it('are those that Bash passes to its programs, and it makes no file' + verifies('TR-53'), () => {
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
        fc.property(fc.array(fc.constantFrom(...PIECES), { minLength: 1, maxLength: 9 }), (pieces) => {
          const text = `one ${pieces.join('')}`;
          const { words } = commandFact(text);
          if (words.length === 0) return;
          // Its own: what a command left in the background may write when the next one runs.
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
        { numRuns: Number(process.env.WORDS_RUNS ?? 3000), seed: Number(process.env.WORDS_SEED ?? 10) },
      );
      expect(started).toBeGreaterThan(100);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  }, 120_000);
});
