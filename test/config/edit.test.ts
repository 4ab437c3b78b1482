/** Tests additions to the text of tollgate.yaml: other bytes do not change, and unusual YAML is refused. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { type Addition, addTo } from '../../facade/config/reading/config-edit.ts';

const server: Addition = {
  path: ['servers'],
  key: 'new',
  value: { command: 'npx', args: ['-y', 'x@1'], env: { A: '${secret:new.A}' } },
};
const SERVER = '  new:\n    command: npx\n    args: [-y, x@1]\n    env:\n      A: ${secret:new.A}\n';

describe('addTo', () => {
  it.each([
    ['to an empty file', '', `\nservers:\n${SERVER}`],
    ['to a file without the section', 'version: 1\n', `version: 1\n\nservers:\n${SERVER}`],
    ['to a file without a line end', 'version: 1', `version: 1\n\nservers:\n${SERVER}`],
    [
      'after the last entry, before the comments of the next section',
      'servers:\n  a:   {command: x} # mine\n\n# policies\npolicies: [a.yaml]\n',
      `servers:\n  a:   {command: x} # mine\n${SERVER}\n# policies\npolicies: [a.yaml]\n`,
    ],
    [
      'after a nested entry',
      'servers:\n  a:\n    env:\n      B: |\n        text\n        more\nversion: 1\n',
      `servers:\n  a:\n    env:\n      B: |\n        text\n        more\n${SERVER}version: 1\n`,
    ],
    [
      'with the indentation of the file',
      'servers:\n    a: {command: x}\n',
      `servers:\n    a: {command: x}\n${SERVER.replace(/^/gm, '  ').trimEnd()}\n`,
    ],
    [
      'to a map in one line',
      'servers: { a: {command: x} } # c\n',
      'servers: { a: {command: x}, "new": {"command":"npx","args":["-y","x@1"],"env":{"A":"${secret:new.A}"}} } # c\n',
    ],
    ['to an empty section', 'servers:\nversion: 1\n', `servers:\n${SERVER}version: 1\n`],
    ['to an empty section with a comment', 'servers: # none\nversion: 1\n', `servers: # none\n${SERVER}version: 1\n`],
    ['to {}', 'servers: {}\nversion: 1\n', `servers:\n${SERVER}version: 1\n`],
    [
      'to a file with Windows line ends',
      'servers:\r\n  a: {}\r\n',
      `servers:\r\n  a: {}\r\n${SERVER.replaceAll('\n', '\r\n')}`,
    ],
  ])('adds a key %s', (_name, text, wanted) => {
    expect(addTo(text, [server])).toBe(wanted);
  });

  it('adds items within an item of a list, and nothing within a missing one', () => {
    const text = 'rules:\n  - id: a\n    when: {x: false} # c\n  - id: b\n    when:\n      not: [k]\n';
    const at = (index: string): Addition => ({ path: ['rules', index, 'when', 'not'], items: ['s'] });
    expect(addTo(text, [at('0'), at('1')])).toBe(
      'rules:\n  - id: a\n    when: {x: false, "not": ["s"]} # c\n  - id: b\n    when:\n      not: [k, "s"]\n',
    );
    expect(() => addTo(text, [at('2')])).toThrow(/Tollgate cannot change/);
  });

  it.each([
    [
      'to a list in a block',
      'include:\n  - a.json # A\nversion: 1\n',
      'include:\n  - a.json # A\n  - ~/b.json\nversion: 1\n',
    ],
    ['to a list that is not indented', 'include:\n- a.json\n', 'include:\n- a.json\n- ~/b.json\n'],
    ['to a list in one line', 'include: [a.json]\n', 'include: [a.json, "~/b.json"]\n'],
    ['to a missing list', 'version: 1\n', 'version: 1\n\ninclude:\n  - ~/b.json\n'],
    ['that the list has already', 'include: [~/b.json]\n', 'include: [~/b.json]\n'],
  ])('adds items %s', (_name, text, wanted) => {
    expect(addTo(text, [{ path: ['include'], items: ['~/b.json'] }])).toBe(wanted);
  });

  it('creates missing parents', () => {
    const items = [
      { path: ['profiles', 'default', 'servers'], items: ['new'] },
      { path: ['expose', 'tools'], items: ['new.*'] },
    ];
    expect(addTo('profiles:\n  dev: {servers: [a]}\nexpose:\n  primitives: workspace\n  # tools: [x]\n', items)).toBe(
      `profiles:
  dev: {servers: [a]}
  default:
    servers: [new]
expose:
  primitives: workspace
  tools:
    - new.*
  # tools: [x]
`,
    );
    expect(addTo('profiles: {default: {servers: [a]}}\n', items.slice(0, 1))).toBe(
      'profiles: {default: {servers: [a, "new"]}}\n',
    );
  });

  it('does not change an existing key', () => {
    expect(addTo('servers: {new: {command: mine}}\n', [server])).toBe('servers: {new: {command: mine}}\n');
  });

  it.each([
    ['an alias', 'a: &a {b: {command: x}}\nservers: *a\n'],
    ['a text', 'servers: none\n'],
    ['a list instead of a map', 'servers: [a]\n'],
    ['broken YAML', 'servers: {\n'],
    ['an explicit end of the document', 'version: 1\n...\n'],
  ])('refuses %s', (_name, text) => {
    expect(() => addTo(text, [server])).toThrowError(expect.objectContaining({ code: 'USAGE' }) as Error);
  });

  it('keeps every existing line, for random additions', () => {
    const word = fc.string({ minLength: 1, maxLength: 12 });
    fc.assert(
      fc.property(
        fc.constantFrom(
          '',
          'version: 1\n',
          'servers:\n  a: {command: x} # c\n\n# end\n',
          '# top\nservers: {}\nlimits: {servers: 3}\n',
        ),
        fc.array(word),
        fc.dictionary(fc.stringMatching(/^[A-Z]{1,5}$/), word, { noNullPrototype: true }),
        (text, args, env) => {
          const value = { command: 'x', args, env };
          const changed = addTo(text, [{ path: ['servers'], key: 'new', value }]);
          expect((parse(changed) as { servers: { new: unknown } }).servers.new).toEqual(value);
          for (const line of text.split('\n')) if (line !== 'servers: {}') expect(changed).toContain(line);
        },
      ),
    );
  });
});
