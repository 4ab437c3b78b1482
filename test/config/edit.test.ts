/** Tests additions to the text of tollgate.yaml: other bytes do not change, and unusual YAML is refused. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { removeAdditions } from '../../facade/config/reading/addition-removal.ts';
import { type Addition, addTo } from '../../facade/config/reading/config-edit.ts';
import { roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';

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

describe('removeAdditions' + verifies('FH-05'), () => {
  it.each([
    {
      of: 'a list in a block, with the comments of others',
      before: 'a:\n  - x # X\n',
      after: 'a:\n  - x # X\n  - o\n',
      current: 'a:\n  - x # X\n  # mine\n  - o\n  - m\n',
      left: 'a:\n  - x # X\n  # mine\n  - m\n',
    },
    {
      of: 'a list in one line',
      before: 'a: [x]\n',
      after: 'a: [x, "o"]\n',
      current: 'a: [m, x, "o", n] # mine\n',
      left: 'a: [m, x, n] # mine\n',
    },
    {
      of: 'a map that goes too',
      before: 'v: 1\n',
      after: 'v: 1\na:\n  b:\n    - o\n',
      current: 'v: 1\na: # mine\n  b:\n    - o\n',
      left: 'v: 1\n',
    },
    {
      of: 'a map that others use',
      before: 'v: 1\n',
      after: 'v: 1\na:\n  b: [o]\n',
      current: 'v: 1\na:\n  b: [o]\n  c: 1\n',
      left: 'v: 1\na:\n  c: 1\n',
    },
    {
      of: 'an empty list that was there',
      before: 'a: {b: []}\n',
      after: 'a: {b: [o]}\n',
      current: '# mine\na: {b: [o]}\n',
      left: '# mine\na: {b: []}\n',
    },
    {
      of: 'a rule that others moved and changed',
      before: 'r:\n  - {id: p, w: {i: 1}}\n',
      after: 'r:\n  - {id: p, w: {i: 1, "e": ["o"]}}\n',
      current: 'r:\n  - id: q\n  - {id: p, m: 2, w: {i: 1, "e": ["o", m]}}\n',
      left: 'r:\n  - id: q\n  - {id: p, m: 2, w: {i: 1, "e": [m]}}\n',
    },
    {
      of: 'a list, except what others have changed',
      before: '',
      after: 'r:\n  - {id: a, o: 1}\n  - {id: b}\n',
      current: 'r:\n  - {id: a, o: 2}\n  - {id: b}\n',
      left: 'r:\n  - {id: a, o: 2}\n',
    },
  ])('takes additions out of $of', ({ left, ...texts }) => {
    expect(removeAdditions(texts)).toBe(left);
  });

  it.each([
    ['if more than additions was done', { before: 'a: 1\n', after: 'a: 2\n', current: 'a: 2\nb: 1\n' }],
    ['if it would take a comment along', { before: '', after: 'a: [o, p]\n', current: 'a: [o, # mine\n  m]\n' }],
    ['from a text with an error', { before: '', after: 'a: 1\n', current: 'a: 1\na: [\n' }],
  ])('takes nothing %s', (_name, texts) => {
    expect(removeAdditions(texts)).toBeUndefined();
  });

  it('leaves what others have added, whatever it is', () => {
    const additions = (word: fc.Arbitrary<string>): fc.Arbitrary<readonly Addition[]> =>
      fc.array(
        fc.oneof(
          fc.record({ path: fc.constantFrom(['x'], ['x', 'y'], ['z']), items: fc.uniqueArray(word, { minLength: 1 }) }),
          fc.record({ path: fc.constantFrom(['k'], ['k', 'l']), key: word, value: fc.constantFrom(1, { m: [2] }) }),
        ),
        { maxLength: 4 },
      );
    const text = fc.constantFrom('', 'v: 1\n', 'x: {y: [s]}\nk:\n  n: 1 # N\n', 'z: [s, t]\r\nk: {}\r\n');
    const added = (start: string, all: readonly Addition[]): string => {
      try {
        return addTo(start, all);
      } catch {
        // Some of the additions contradict each other.
        return '';
      }
    };
    fc.assert(
      fc.property(
        text,
        additions(fc.constantFrom('a', 'b')),
        additions(fc.constantFrom('c', 'd')),
        (before, ours, others) => {
          const after = added(before, ours);
          const current = added(after, others);
          const wanted = added(before, others);
          fc.pre((after !== '' || ours.length === 0) && (current !== '' || others.length === 0) && wanted !== '');
          expect(parse(removeAdditions({ before, after, current }) ?? '')).toEqual(parse(wanted));
        },
      ),
      { numRuns: roundsOf(100, 40) },
    );
  });
});
