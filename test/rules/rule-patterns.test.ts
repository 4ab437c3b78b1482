import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  addHost,
  addPath,
  addText,
  type PathForms,
  PatternError,
  type PatternForms,
  splitTool,
} from '../../policies/rules/rule-patterns.ts';
import { roundsOf } from '../harness/slices.ts';

/** Does the same as lib/match.rego. rule-fields.test.ts compares the two in the engine itself. */
function matches(forms: PatternForms, text: string): boolean {
  return (
    forms.all === true ||
    forms.equal?.[text] === true ||
    (forms.prefix ?? []).some((prefix) => text.startsWith(prefix)) ||
    (forms.suffix ?? []).some((suffix) => text.endsWith(suffix)) ||
    (forms.contain ?? []).some((part) => text.includes(part)) ||
    (forms.regex ?? []).some((regex) => new RegExp(regex.replaceAll('(?s:.*)', '[^]*'), 'u').test(text))
  );
}

const compiled = (glob: string, strict = true, workspace = '/w/s'): PathForms => {
  const forms: PathForms = { inside: {}, outside: {} };
  addPath(forms, glob, { strict, workspace });
  return forms;
};

/** The meaning of globs, segment by segment: a slow and simple implementation. */
function naive(glob: readonly string[], path: readonly string[]): boolean {
  const [first, ...rest] = glob;
  if (first === undefined) return path.length === 0;
  if (first === '**') return naive(rest, path) || (path.length > 0 && naive(glob, path.slice(1)));
  const [head, ...tail] = path;
  return head !== undefined && star(first, head) && naive(rest, tail);
}

function star(pattern: string, text: string): boolean {
  if (pattern === '') return text === '';
  if (pattern[0] === '*') return star(pattern.slice(1), text) || (text !== '' && star(pattern, text.slice(1)));
  return pattern[0] === text[0] && star(pattern.slice(1), text.slice(1));
}

const names = fc
  .array(fc.constantFrom('a', 'b', '.', 'x', '+'), { minLength: 1, maxLength: 3 })
  .map((letters) => letters.join(''))
  .filter((name) => !/^\.+$/.test(name));
const segments = fc.oneof(
  { weight: 2, arbitrary: names },
  { weight: 2, arbitrary: fc.constant('**') },
  {
    weight: 2,
    arbitrary: fc
      .tuple(fc.constantFrom('', 'a', '.'), fc.constantFrom('', 'b', '.x'))
      .map(([left, right]) => `${left}*${right}`),
  },
);
const globs = fc.array(segments, { minLength: 1, maxLength: 4 });
const paths = fc.array(names, { minLength: 1, maxLength: 5 });

describe('path globs', () => {
  it('match exactly their segments in every compiled form', () => {
    fc.assert(
      fc.property(globs, paths, (glob, path) => {
        expect([glob, path, matches(compiled(glob.join('/')).inside, path.join('/'))]).toEqual([
          glob,
          path,
          naive(glob, path),
        ]);
      }),
      { numRuns: roundsOf(5000, 400) },
    );
  });

  it('that are absolute match outside, and inside what they cover of the workspace', () => {
    fc.assert(
      fc.property(globs, paths, fc.array(names, { minLength: 1, maxLength: 3 }), (glob, path, home) => {
        const forms = compiled(`/${glob.join('/')}`, true, `/${home.join('/')}`);
        expect(matches(forms.outside, `/${path.join('/')}`)).toBe(naive(glob, path));
        expect([glob, home, path, matches(forms.inside, path.join('/'))]).toEqual([
          glob,
          home,
          path,
          naive(glob, [...home, ...path]),
        ]);
      }),
      { numRuns: roundsOf(5000, 400) },
    );
  });

  it('that are relative match outside only in rules that deny or ask, and only with a leading **', () => {
    expect(matches(compiled('**/.env').outside, '/etc/.env')).toBe(true);
    expect(matches(compiled('**/.env', false).outside, '/etc/.env')).toBe(false);
    expect(matches(compiled('etc/**').outside, '/etc/passwd')).toBe(false);
  });

  it('avoid regular expressions if a prefix, a suffix or an equal text is enough', () => {
    for (const glob of ['a/b', 'a/b/**', '**/a', '**/*.pem', '**/a/**', '**', '/a/**'])
      expect([glob, compiled(glob).inside.regex, compiled(glob).outside.regex]).toEqual([glob, undefined, undefined]);
  });

  it.each(['', '~/x', 'a//b', 'a/', './a', 'a/../b', '..', 'a**', 'a/**b', '[ab]', '{a,b}', 'a?', '!a', 'a\\b'])(
    'refuse %j, which would match less or more than it seems to',
    (glob) => {
      expect(() => compiled(glob)).toThrow(PatternError);
    },
  );
});

describe('text patterns', () => {
  it('match any characters with a star', () => {
    const letters = fc
      .array(fc.constantFrom('a', 'b', '*', '.', '$'), { minLength: 1, maxLength: 6 })
      .map((all) => all.join(''));
    fc.assert(
      fc.property(letters, letters, (pattern, text) => {
        const forms: PatternForms = {};
        addText(forms, pattern);
        expect([pattern, text, matches(forms, text)]).toEqual([pattern, text, star(pattern, text)]);
      }),
      { numRuns: roundsOf(3000, 400) },
    );
  });

  it('split a tool at the first dot, and refuse patterns for no tool or all tools', () => {
    expect(splitTool('a.b.c')).toEqual(['a', 'b.c']);
    for (const pattern of ['a', '.a', 'a.', '*', '*.*', '**.**', 'a.[b]'])
      expect(() => splitTool(pattern)).toThrow(PatternError);
  });

  it.each(['https://a.b', 'a.b:80', 'a.b/c', 'A.b', 'a..b', '*.', '*a.b', 'a.*', '', 'a b'])(
    'refuse the host %j',
    (host) => {
      expect(() => addHost({}, host)).toThrow(PatternError);
    },
  );

  it('match hosts by name, subdomain and address, and any host', () => {
    const forms: PatternForms = {};
    for (const host of ['a.b', '*.c.d', '127.0.0.1', '[::1]']) addHost(forms, host);
    expect(forms).toEqual({ equal: { 'a.b': true, '127.0.0.1': true, '[::1]': true }, suffix: ['.c.d'] });
    addHost(forms, '*');
    expect(forms.all).toBe(true);
  });
});
