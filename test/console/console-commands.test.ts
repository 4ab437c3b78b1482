/** Tests that the page can run the commands of the table alone, with the parameters that they take. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import type { Command } from 'commander';
import { describe, expect, it } from 'vitest';
import { buildProgram } from '../../facade/cli/program.ts';
import {
  CONSOLE_COMMANDS,
  type ConsoleCommandName,
  commandText,
  commandWords,
} from '../../facade/serve/console/console-commands.ts';
import { verifies } from '../verifies.ts';

/** Returns the command of the terminal that words name. */
function commandOf(words: readonly string[]): Command {
  let found = buildProgram({ stdout: () => undefined, stderr: () => undefined } as never, {} as never, () => undefined);
  for (const word of words) {
    const next = found.commands.find((one) => one.name() === word);
    if (next === undefined) break;
    found = next;
  }
  return found;
}

const PAGES = path.join(import.meta.dirname, '..', '..', 'facade', 'serve', 'console', 'pages');
const SAMPLES = { name: 'a', id: 'a1', hash: 'a'.repeat(64), time: '2h', count: '3', text: 'a', word: 'a' } as const;

describe('a command of the console', () => {
  it.each(Object.entries(CONSOLE_COMMANDS))(
    'is one of the terminal, with its options: %s' + verifies('AD-82'),
    (name, definition) => {
      const found = definition as {
        readonly words: readonly string[];
        readonly options?: Readonly<Record<string, keyof typeof SAMPLES>>;
        readonly arguments?: Readonly<Record<string, keyof typeof SAMPLES>>;
      };
      const given = { ...found.options, ...found.arguments };
      const parameters = Object.entries(given).map(([key, kind]) => [key.replace('?', ''), SAMPLES[kind]] as const);
      const words = commandWords(name, Object.fromEntries(parameters), 'admin');
      const command = commandOf(words);
      const named = words
        .filter((word) => !word.startsWith('-'))
        .slice(0, found.words.filter((word) => !word.startsWith('-')).length);
      expect(named.at(-1)).toBe(command.name());
      const known = command.options.map((option) => option.long);
      const used = words
        .slice(0, words.includes('--') ? words.indexOf('--') : undefined)
        .filter((word) => word.startsWith('--'));
      expect(used.map((word) => word.split('=')[0]).filter((option) => !known.includes(option ?? ''))).toEqual([]);
      // Without it, the command would act for the user of the machine, who may be no principal.
      expect(used.some((word) => word.startsWith('--as='))).toBe(known.includes('--as'));
      expect(command.registeredArguments.length).toBeGreaterThanOrEqual(Object.keys(found.arguments ?? {}).length);
    },
  );

  it('becomes words of the command line, with the owner and after `--`' + verifies('AD-82'), () => {
    expect(commandWords('suspend', { principal: 'agent', for: '2h' }, 'admin')).toEqual([
      'suspend',
      '--as=admin',
      '--for=2h',
      '--json',
      '--',
      'agent',
    ]);
    const hashes = ['a'.repeat(64), 'b'.repeat(64)];
    expect(commandWords('server-approve', { name: 'files', yes: hashes }, 'admin')).toEqual([
      'approve',
      '--as=admin',
      '--json',
      ...hashes.map((hash) => `--yes=${hash}`),
      '--',
      'files',
    ]);
  });

  it('is shown as it is typed in a shell' + verifies('AD-135'), () => {
    expect(commandText(commandWords('suspend', { principal: "a'b c", for: '2h' }, 'admin'))).toBe(
      "tollgate suspend --as=admin --for=2h 'a'\\''b c'",
    );
  });

  it('is used by a page, and every command of a page is in the table' + verifies('AD-82'), () => {
    const pages = readdirSync(PAGES).map((name) => readFileSync(path.join(PAGES, name), 'utf8'));
    const used = pages.flatMap((text) =>
      [
        ...text.matchAll(
          /(?:runCommand|commandData)(?:<[^(]*>)?\(\s*'([\w-]+)'|name: '([\w-]+)',\s+parameters|command: '([\w-]+)'/g,
        ),
      ].map(([, run, asked, listed]) => run ?? asked ?? listed),
    );
    expect([...new Set(used)].sort()).toEqual(Object.keys(CONSOLE_COMMANDS).sort());
  });

  it.each([
    ['nothing', {}],
    ['constructor', {}],
    ['suspend', {}],
    ['suspend', { principal: '--as=other' }],
    ['suspend', { principal: 'agent', as: 'other' }],
    ['suspend', { principal: 'agent\n' }],
    ['suspend', { principal: 'agent', for: '2h --x' }],
    ['suspend', { principal: ['agent'] }],
    ['explain', { id: '-x' }],
    ['server-approve', { name: 'files', yes: ['any'] }],
    ['server-approve', { name: 'files', yes: 'a' }],
    ['server-log', { log: '../x\0' }],
  ])('is refused: %s %j' + verifies('AD-82'), (name, parameters) => {
    expect(() => commandWords(name, parameters, 'admin')).toThrow(expect.objectContaining({ code: 'WIRE_PARAMS' }));
  });

  it('has no word that a parameter could turn into another option' + verifies('AD-82'), () => {
    for (const name of Object.keys(CONSOLE_COMMANDS) as ConsoleCommandName[]) {
      const command = CONSOLE_COMMANDS[name];
      const given = 'arguments' in command ? command.arguments : {};
      const hostile = Object.fromEntries(Object.keys(given).map((key) => [key, '--config=/etc/passwd']));
      if (Object.keys(hostile).length > 0) expect(() => commandWords(name, hostile, undefined)).toThrow();
    }
  });
});
