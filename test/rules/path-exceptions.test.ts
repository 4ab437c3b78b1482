/** Tests `except` of rules on paths: against a matcher of its own, and what is refused at load. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { compileRules } from '../../policies/rules/rule-compiler.ts';
import { callOf, documentOf, policyOf, problemsOf } from '../engine/policy-fixture.ts';
import { roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';

const NAME = fc.constantFrom('a', 'b', 'ab', '.env', 'x.pem');
const PART = fc.oneof(NAME, fc.constantFrom('**', '*', 'a*', '*.pem'));
const GLOB = fc
  .array(PART, { minLength: 1, maxLength: 4 })
  .map((names) => names.join('/'))
  .filter((glob) => glob.includes('*') && !/^\*\*(\/\*\*)*$/.test(glob));
const PATH = fc.array(NAME, { minLength: 1, maxLength: 5 }).map((names) => names.join('/'));

/** Matches name by name, in another way than the policy: `**` is any number of names, `*` any part of a name. */
function matches(glob: readonly string[], names: readonly string[]): boolean {
  const [first, ...rest] = glob;
  if (first === undefined) return names.length === 0;
  if (first === '**') return matches(rest, names) || (names.length > 0 && matches(glob, names.slice(1)));
  const [name, ...others] = names;
  return name !== undefined && isName(first, name) && matches(rest, others);
}

function isName(pattern: string, name: string): boolean {
  if (pattern === '') return name === '';
  if (pattern[0] !== '*') return pattern[0] === name[0] && isName(pattern.slice(1), name.slice(1));
  return isName(pattern.slice(1), name) || (name !== '' && isName(pattern, name.slice(1)));
}

const matchesOne = (globs: readonly string[], path: string): boolean =>
  globs.some((glob) => matches(glob.split('/'), path.split('/')));

describe('the exceptions of a rule on paths', () => {
  it(`are left out of the rule, whatever its outcome, as a matcher of single names says${verifies('FH-40')}`, async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.uniqueArray(GLOB, { minLength: 1, maxLength: 2 }),
        fc.uniqueArray(GLOB, { minLength: 1, maxLength: 2 }),
        fc.uniqueArray(PATH, { minLength: 1, maxLength: 3 }),
        fc.constantFrom('deny', 'ask', 'allow'),
        async (paths, except, given, outcome) => {
          const rule = { id: 'it', outcome, when: { paths, except } };
          // A rule that leaves out all of its paths is refused at load.
          fc.pre(
            paths.some((glob) => !except.includes(glob)) && !except.some((one) => paths.every((glob) => glob === one)),
          );
          const policy = await policyOf([rule]);
          const { reasons } = await policy.call(callOf({ inside: given }));
          const fits = given.map((path) => matchesOne(paths, path) && !matchesOne(except, path));
          const fired = outcome === 'allow' ? fits.every(Boolean) : fits.some(Boolean);
          expect(reasons.some(({ id }) => id === 'it')).toBe(fired);
        },
      ),
      { numRuns: roundsOf(80, 40) },
    );
  });

  it.each<[string, string, object, string]>([
    ['without paths', 'deny', { except: ['a'] }, 'add `paths` or `insideWorkspace`'],
    ['that name nothing of the rule', 'deny', { paths: ['src/**'], except: ['lib/a'] }, 'does not name "lib/a"'],
    ['that are all of the rule', 'allow', { paths: ['src/**'], except: ['src/**'] }, 'can never match; narrow it'],
    ['outside', 'deny', { insideWorkspace: true, except: ['/etc/**'] }, 'insideWorkspace is true'],
    ['in the wrong syntax', 'deny', { paths: ['src/**'], except: ['src/{a,b}'] }, 'only * and ** are wildcards'],
  ])('%s are refused', async (_name, outcome, when, message) => {
    const problems = await problemsOf(policyOf([{ id: 'it', outcome, when }]));
    expect(problems).toEqual([expect.stringContaining(message)]);
  });

  it('are not what another rule without them denies', async () => {
    const allow = { id: 'all', outcome: 'allow', when: { paths: ['src/**'] } };
    const deny = { id: 'no', outcome: 'deny', when: { paths: ['src/**'], except: ['src/gen/**'] } };
    await expect(policyOf([allow, deny])).resolves.toBeDefined();
    const narrower = { ...allow, when: { paths: ['src/**'], except: ['src/gen/**'] } };
    expect(await problemsOf(policyOf([narrower, deny]))).toEqual([expect.stringContaining('has no effect')]);
  });

  it('are in the words that a list shows', async () => {
    const { list } = compileRules(
      [
        documentOf([
          { id: 'a', outcome: 'allow', when: { paths: ['src/**'], except: ['src/gen/**'] } },
          { id: 'b', outcome: 'deny', when: { paths: ['k/**'], except: ['k/x'] } },
        ]),
      ],
      '/w',
    );
    expect(list.map(({ shows }) => shows?.say)).toEqual([
      'every path is under src/** and none is src/gen/**',
      'a path is k/** and it is not k/x',
    ]);
  });
});
