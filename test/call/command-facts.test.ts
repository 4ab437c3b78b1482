/** Tests facade/call/lowering/command-facts.ts: a command has literal words or is opaque, and nothing is guessed. */
import { spawnSync } from 'node:child_process';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { commandFact } from '../../facade/call/lowering/command-facts.ts';

describe('the facts of a command', () => {
  it.each([
    ['git status', [['git', 'status']]],
    [
      "grep -n 'a b' src/x.ts | head -5",
      [
        ['grep', '-n', 'a b', 'src/x.ts'],
        ['head', '-5'],
      ],
    ],
    ['make && echo "done" ; ls', [['make'], ['echo', 'done'], ['ls']]],
    ["r''m -rf x", [['rm', '-rf', 'x']]],
    ['/bin/rm x\nls', [['/bin/rm', 'x'], ['ls']]],
    ['r\\m x', [['rm', 'x']]],
    ['(rm x)', [['rm', 'x']]],
    ['{ rm x; }', [['rm', 'x']]],
    ['if true; then rm x; elif false; then ls; else pwd; fi', [['true'], ['rm', 'x'], ['false'], ['ls'], ['pwd']]],
    ['while sleep 1; do date; done', [['sleep', '1'], ['date']]],
    ['! git push &', [['git', 'push']]],
    ['ls # rm', [['ls']]],
    [
      'npm test 2>&1 | tail -5',
      [
        ['npm', 'test'],
        ['tail', '-5'],
      ],
    ],
    ['(make; make install) >/dev/null 2>&1', [['make'], ['make', 'install']]],
    ['git \\\npush', [['git', 'push']]],
    ['echo \'p\u00e9\' "caf\u00e9"', [['echo', 'p\u00e9', 'caf\u00e9']]],
  ])('contain the words of %j', (text, words) => {
    expect(commandFact(text)).toEqual({ text, opaque: /^(?:make|\(make|! git|npm|git \\)/.test(text), words });
  });

  it.each([
    ['', 'nothing'],
    ['$CMD x', 'expansion'],
    ['`rm` x', 'backtick'],
    ['echo $(id)', 'substitution'],
    ['cat a > b', 'redirection'],
    ['cat < a', 'redirection in'],
    ['/bin/{rm,} x', 'brace expansion'],
    ['rm *', 'glob'],
    ['IFS=,; x', 'assignment'],
    ['A=1 rm x', 'assignment prefix'],
    ['eval rm x', 'eval'],
    ['bash -c "rm x"', 'inner shell'],
    ['/usr/bin/env rm', 'env'],
    ['xargs rm', 'xargs'],
    ['~/x', 'tilde'],
    ['c\u0430t /etc/passwd', 'homoglyph'],
    ["echo 'open", 'open quote'],
    ['echo "a$b"', 'expansion in quotes'],
    ['!! x', 'history'],
    ["$'\\x72m' x", 'quoted escapes'],
    ['git() { rm x; }; git', 'function'],
    ['export PATH=/tmp', 'export'],
    ['hash -p /tmp/rm ls', 'another program under a name'],
    ["test -v 'a[$(rm x)]'", 'subscript in quotes'],
    ["[ -v 'a[$(rm x)]' ]", 'subscript in quotes of ['],
    ["printf -v 'a[$(rm x)]' 1", 'subscript of printf'],
    ["unset 'a[$(rm x)]'", 'subscript of unset'],
    ['find . -exec rm x ;', 'find that runs'],
    ['ls > out', 'a file written'],
    ['ls >> out', 'a file written on'],
    ['ls 2>&1x', 'a file behind &'],
    ['cat <<< rm', 'here string'],
    ['diff <(ls) x', 'process substitution'],
    ['case x in x) rm x;; esac', 'case'],
    ['[[ -f x ]]', 'test of bash'],
    ['((1))', 'arithmetic'],
    ['coproc rm x', 'coproc'],
    ['time rm x', 'time'],
    ['a |& b', 'pipe of both'],
    ['ls x=~/y', 'tilde after ='],
    ['rm\rx', 'a control character'],
    ['ls [ab]', 'bracket glob'],
    ['a\u00a0b', 'a blank of another script'],
    ['$"rm" x', 'translated string'],
    ['ls &>>f', 'both appended'],
    ['exec {fd}>x', 'descriptor variable'],
    ['('.repeat(5000), 'too deep'],
    ['x'.repeat(70_000), 'too long'],
    ['for i in a; do rm $i; done', 'loop'],
    ['cat <<EOF\nrm\nEOF', 'here document'],
  ])('contain no words of %j (%s)', (text) => {
    expect(commandFact(text)).toEqual({ text, opaque: true, words: [] });
  });

  // PATH is empty, so the shell passes every simple command that it would run to the handler, as it understood it.
  const WITNESS = `command_not_found_handle() { printf '%s\\0' "$@" $'\\1' >&3; }`;
  const commandsRunBy = (text: string): string[][] => {
    const run = spawnSync('/bin/bash', ['-c', `${WITNESS}\n${text}`], {
      env: { PATH: '/nowhere' },
      stdio: ['ignore', 'ignore', 'ignore', 'pipe'],
      timeout: 2000,
    });
    const commands: string[][] = [[]];
    for (const word of String(run.output[3]).split('\0').slice(0, -1)) {
      if (word === '\u0001') commands.push([]);
      else commands.at(-1)?.push(word);
    }
    return commands.slice(0, -1);
  };

  it('name every command that a real shell runs, as the shell runs it', () => {
    const word = fc.constantFrom(
      'rm',
      'cat',
      'ls',
      'touch',
      'cp',
      'wc',
      'mv',
      'head',
      'a',
      'b1',
      "'x y'",
      '"q r"',
      "''",
      '-n',
      './p',
      'r\\m',
      "r''m",
      '$x',
      '*',
      '{a,b}',
      'x=1',
      '\u00e9',
      "'\u00e9'",
      '~',
      'a:~',
      '[ab]',
      '!',
      '{',
      '}',
      'if',
      'then',
      'fi',
      'do',
      'done',
      'while',
      '#',
      'in',
      '((',
      '[[',
    );
    const joint = fc.constantFrom(
      ' ',
      ' ',
      ' ',
      ' ',
      ' ',
      '|',
      '&&',
      '||',
      ';',
      '\n',
      ' & ',
      '$',
      '\\',
      '"',
      "'",
      '>',
      '<',
      '2>&1',
      '>/dev/null',
      '(',
      ')',
      '`',
      '\t',
      '\\\n',
      ' ( ',
      ' ) ',
      ' { ',
      '; }',
      '; then ',
      '; fi',
      '<<',
      '&>',
      '|&',
      '=',
    );
    let witnessed = 0;
    fc.assert(
      fc.property(fc.array(fc.tuple(word, joint), { minLength: 1, maxLength: 7 }), (pieces) => {
        const text = pieces.flat().join('');
        const fact = commandFact(text);
        if (fact.words.length === 0) return;
        const run = commandsRunBy(text);
        witnessed += run.length;
        for (const command of run) expect(fact.words).toContainEqual(command);
      }),
      { numRuns: Number(process.env.SHELL_RUNS ?? 1500) },
    );
    expect(witnessed).toBeGreaterThan(20);
  });
});
