/** Tests facade/shell.ts: literal words or opaque, never a guess. */
import { execFileSync, spawnSync } from 'node:child_process';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { commandFact } from '../../facade/shell.ts';

describe('commandFact', () => {
  it.each([
    ['git status', [['git', 'status']]],
    ["grep -n 'a b' src/x.ts | head -5", [['grep', '-n', 'a b', 'src/x.ts'], ['head', '-5']]],
    ['make && echo "done" ; ls', [['make'], ['echo', 'done'], ['ls']]],
    ["r''m -rf x", [['rm', '-rf', 'x']]],
    ['/bin/rm x\nls', [['/bin/rm', 'x'], ['ls']]],
  ])('reads the words of %j', (text, words) => {
    expect(commandFact(text)).toEqual({ text, opaque: false, words });
  });

  it.each([
    ['', 'nothing'], ['$CMD x', 'expansion'], ['`rm` x', 'backtick'], ['echo $(id)', 'substitution'], ['r\\m x', 'escape'],
    ['cat a > b', 'redirection'], ['cat < a', 'redirection in'], ['(rm x)', 'subshell'], ['{ rm x; }', 'group'], ['if true; then rm x; fi', 'compound'],
    ['/bin/{rm,} x', 'brace expansion'], ['rm *', 'glob'], ['IFS=,; x', 'assignment'], ['A=1 rm x', 'assignment prefix'], ['eval rm x', 'eval'],
    ['bash -c "rm x"', 'inner shell'], ['/usr/bin/env rm', 'env'], ['xargs rm', 'xargs'], ['~/x', 'tilde'], ['ls # rm', 'comment'],
    ['c\u0430t /etc/passwd', 'homoglyph'], ["echo 'open", 'open quote'], ['echo "a$b"', 'expansion in quotes'], ['rm x &>/dev/null', 'redirection of both'], ['!! x', 'history'],
    ['x'.repeat(70_000), 'too long'], ['for i in a; do rm $i; done', 'loop'], ['cat <<EOF\nrm\nEOF', 'here document'],
  ])('calls %j opaque (%s)', (text) => {
    expect(commandFact(text).opaque).toBe(true);
  });

  it('agrees with a real shell on every command that it reads', () => {
    const piece = fc.constantFrom('a', 'b1', "'x y'", '"q r"', "''", '-n', './p', ' ', ' ', '|', '&&', ';', '$', '\\', '*', '"', "'", '{a,b}', '>', '\u0430', '=');
    fc.assert(fc.property(fc.array(piece, { maxLength: 8 }), (pieces) => {
      const text = `p ${pieces.join('')}`;
      const fact = commandFact(text);
      fc.pre(!fact.opaque && fact.words.length === 1 && spawnSync('sh', ['-n', '-c', text]).status === 0);
      const shown = execFileSync('sh', ['-c', `p() { for w in p "$@"; do printf '%s\\0' "$w"; done; }; ${text}`], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
      expect(shown.split('\0').slice(0, -1)).toEqual(fact.words[0]);
    }), { numRuns: 150 });
  });
});
