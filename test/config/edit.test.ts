/** Tests additions to tollgate.yaml: every byte that stood there stays, the value is what was meant, and what is not understood is refused. */
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

describe('an addition', () => {
  it.each([
    ['to nothing', '', `\nservers:\n${SERVER}`],
    ['to a file without the section', 'version: 1\n', `version: 1\n\nservers:\n${SERVER}`],
    ['to a file without a line end', 'version: 1', `version: 1\n\nservers:\n${SERVER}`],
    [
      'behind the last entry, before the comments of the next section',
      'servers:\n  a:   {command: x} # mine\n\n# policies\npolicies: [a.yaml]\n',
      `servers:\n  a:   {command: x} # mine\n${SERVER}\n# policies\npolicies: [a.yaml]\n`,
    ],
    [
      'behind a nested entry',
      'servers:\n  a:\n    env:\n      B: |\n        text\n        more\nversion: 1\n',
      `servers:\n  a:\n    env:\n      B: |\n        text\n        more\n${SERVER}version: 1\n`,
    ],
    [
      'in the indentation that is used',
      'servers:\n    a: {command: x}\n',
      `servers:\n    a: {command: x}\n${SERVER.replace(/^/gm, '  ').trimEnd()}\n`,
    ],
    [
      'into a map of one line',
      'servers: { a: {command: x} } # c\n',
      'servers: { a: {command: x}, "new": {"command":"npx","args":["-y","x@1"],"env":{"A":"${secret:new.A}"}} } # c\n',
    ],
    ['to an empty section', 'servers:\nversion: 1\n', `servers:\n${SERVER}version: 1\n`],
    ['to an empty section with a comment', 'servers: # none\nversion: 1\n', `servers: # none\n${SERVER}version: 1\n`],
    ['to {}', 'servers: {}\nversion: 1\n', `servers:\n${SERVER}version: 1\n`],
    ['to a file of Windows', 'servers:\r\n  a: {}\r\n', `servers:\r\n  a: {}\r\n${SERVER.replaceAll('\n', '\r\n')}`],
  ])('%s', (_name, text, wanted) => {
    expect(addTo(text, [server])).toBe(wanted);
  });

  it.each([
    [
      'to a list in a block',
      'include:\n  - a.json # A\nversion: 1\n',
      'include:\n  - a.json # A\n  - ~/b.json\nversion: 1\n',
    ],
    ['to a list that is not indented', 'include:\n- a.json\n', 'include:\n- a.json\n- ~/b.json\n'],
    ['to a list in one line', 'include: [a.json]\n', 'include: [a.json, "~/b.json"]\n'],
    ['to no list', 'version: 1\n', 'version: 1\n\ninclude:\n  - ~/b.json\n'],
    ['of what is there already', 'include: [~/b.json]\n', 'include: [~/b.json]\n'],
  ])('of items %s', (_name, text, wanted) => {
    expect(addTo(text, [{ path: ['include'], items: ['~/b.json'] }])).toBe(wanted);
  });

  it('makes what leads to its place', () => {
    const items = [
      { path: ['profiles', 'default', 'servers'], items: ['new'] },
      { path: ['expose', 'tools'], items: ['new.*'] },
    ];
    expect(addTo('profiles:\n  dev: {servers: [a]}\nexpose:\n  primitives: workspace\n  # tools: [x]\n', items)).toBe(
      'profiles:\n  dev: {servers: [a]}\n  default:\n    servers: [new]\nexpose:\n  primitives: workspace\n  tools:\n    - new.*\n  # tools: [x]\n',
    );
    expect(addTo('profiles: {default: {servers: [a]}}\n', items.slice(0, 1))).toBe(
      'profiles: {default: {servers: [a, "new"]}}\n',
    );
  });

  it('leaves a key that is there as it is', () => {
    expect(addTo('servers: {new: {command: mine}}\n', [server])).toBe('servers: {new: {command: mine}}\n');
  });

  it.each([
    ['an alias', 'a: &a {b: {command: x}}\nservers: *a\n'],
    ['a text', 'servers: none\n'],
    ['a list where a map belongs', 'servers: [a]\n'],
    ['broken YAML', 'servers: {\n'],
    ['an explicit end', 'version: 1\n...\n'],
  ])('is refused for %s', (_name, text) => {
    expect(() => addTo(text, [server])).toThrowError(expect.objectContaining({ code: 'USAGE' }) as Error);
  });

  it('keeps every line that was there, whatever is added', () => {
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
