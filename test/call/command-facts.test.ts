/** Tests catalogs/programs/command-facts.ts: a command has literal words or is opaque, and nothing is guessed. */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { commandFact } from '../../catalogs/programs/command-facts.ts';
import { roundsOf } from '../harness/slices.ts';

interface Cases {
  readonly words: readonly { readonly text: string; readonly words: string[][]; readonly opaque?: boolean }[];
  readonly opaque: readonly { readonly text: string; readonly why: string }[];
}

const cases = parse(readFileSync(path.join(import.meta.dirname, 'command-cases.yaml'), 'utf8')) as Cases;

describe('the facts of a command', () => {
  it.each(cases.words)('contain the words of $text', ({ text, words, opaque = false }) => {
    expect(commandFact(text)).toEqual({ text, opaque, words });
  });

  it.each([
    ...cases.opaque,
    { text: '('.repeat(5000), why: 'too deep' },
    { text: 'x'.repeat(70_000), why: 'too long' },
  ])('contain no words of $text ($why)', ({ text }) => {
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
      { numRuns: Number(process.env.SHELL_RUNS ?? roundsOf(1500, 400)) },
    );
    expect(witnessed).toBeGreaterThan(roundsOf(20, 3));
  });
});
