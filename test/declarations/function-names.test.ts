import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { functionNamesOf, moduleNameOf } from '../../facade/code/declarations/function-names.ts';
import { verifies } from '../verifies.ts';

function namesOf(...tools: readonly string[]): readonly string[] {
  const names = functionNamesOf(tools);
  return tools.map((tool) => names.get(tool) ?? '');
}

describe('names of functions' + verifies('CM-10', 'HA-22'), () => {
  it('belong to the module of a server', () => {
    expect(moduleNameOf('github')).toBe('host:mcp-github');
  });

  it.each([
    ['create_issue', 'create_issue'],
    ['getX$', 'getX$'],
    ['list-calendars', 'list_calendars'],
    ['repos/list.all files', 'repos_list_all_files'],
    ['--flag--', 'flag'],
    ['3d', '_3d'],
    ['delete', 'delete_'],
    ['await', 'await_'],
    ['then', 'then_'],
    ['__proto__', '__proto___'],
    ['constructor', 'constructor_'],
    ['default', 'default_'],
    ['a`;process.exit()//', 'a_process_exit'],
    ['caf\u00e9\u202e', 'caf'],
  ])('%j becomes %s', (tool, name) => {
    expect(namesOf(tool)).toEqual([name]);
  });

  it('leave its name to a tool that has it, and give others that want it a hash', () => {
    const [own, first, second] = namesOf('a_b', 'a-b', 'a.b');
    expect(own).toBe('a_b');
    expect(first).toMatch(/^a_b_[0-9a-f]{8}$/);
    expect(second).toMatch(/^a_b_[0-9a-f]{8}$/);
    expect(namesOf('a-b', 'a.b')).toEqual([first, second]);
    expect(namesOf('a-b')).toEqual(['a_b']);
  });

  it('give way to a tool that has the name with the hash', () => {
    const [, hashed = ''] = namesOf('a_b', 'a-b');
    const [, again, own] = namesOf('a_b', 'a-b', hashed);
    expect(own).toBe(hashed);
    expect(again).not.toBe(hashed);
  });

  it('have a hash if the name has no letter, or is too long', () => {
    expect(namesOf('\u83b7\u53d6')[0]).toMatch(/^tool_[0-9a-f]{8}$/);
    expect(namesOf('')[0]).toMatch(/^tool_[0-9a-f]{8}$/);
    const [first = '', second] = namesOf(`${'x'.repeat(100_000)}1`, `${'x'.repeat(100_000)}2`);
    expect(first).toMatch(/^x{54}_[0-9a-f]{8}$/);
    expect(second).not.toBe(first);
  });

  it('are identifiers, without collisions, for any list in any order', () => {
    const piece = fc.constantFrom('a', 'b', '_', '-', '.', '1', '$', 'delete', 'then', '\u202e', '\u00e9', '__proto__');
    const tool = fc.array(piece, { maxLength: 4 }).map((pieces) => pieces.join(''));
    fc.assert(
      fc.property(fc.uniqueArray(tool, { maxLength: 30 }), (tools) => {
        const names = functionNamesOf(tools);
        expect(functionNamesOf([...tools].reverse())).toEqual(names);
        expect(names.size).toBe(tools.length);
        expect(new Set(names.values()).size).toBe(tools.length);
        for (const name of names.values()) {
          expect(name).toMatch(/^[A-Za-z_$][A-Za-z0-9_$]{0,63}$/);
          // A reserved word cannot be declared.
          new Function(`"use strict"; let ${name};`);
          expect(name in {}, name).toBe(false);
        }
      }),
    );
  });
});
