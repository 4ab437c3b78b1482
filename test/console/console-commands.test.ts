/** Tests that the page can run the commands of the table alone, with the parameters that they take. */
import { describe, expect, it } from 'vitest';
import {
  CONSOLE_COMMANDS,
  type ConsoleCommandName,
  commandWords,
} from '../../facade/serve/console/console-commands.ts';
import { verifies } from '../verifies.ts';

describe('a command of the console', () => {
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
