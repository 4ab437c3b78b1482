/** Tests that programs in real sandboxes read and write what rules with exceptions say, in generated folders. */
import { linkSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { startSandboxed } from '../../adapters/sandbox/bubblewrap/sandbox-start.ts';
import { PRINCIPAL, policyOf } from '../engine/policy-fixture.ts';
import { verifies } from '../verifies.ts';
import { openWorkspace, own } from './probe-targets.ts';
import { specOf } from './sandbox-fixture.ts';

interface Rule {
  readonly outcome: 'deny' | 'allow';
  readonly verbs: readonly string[];
  readonly paths: readonly string[];
  readonly except: readonly string[];
}

let workspace: string;
beforeEach(() => {
  workspace = openWorkspace();
});
afterEach(() => rmSync(workspace, { recursive: true, force: true }));

function put(files: Iterable<string>): void {
  for (const file of files) {
    const names = file.split('/');
    names.forEach((_, index) => {
      const at = path.join(workspace, ...names.slice(0, index + 1));
      if (index < names.length - 1) mkdirSync(at, { recursive: true });
      else writeFileSync(at, 'x\n');
      own(at);
    });
  }
}

/** Runs a script in a sandbox under the rules, and returns what it prints. */
async function run(rules: readonly Rule[], script: string): Promise<string> {
  const written = rules.map(({ outcome, ...when }, index) => ({
    id: `r${index}`,
    outcome,
    when: Object.fromEntries(Object.entries(when).filter(([, globs]) => globs.length > 0)),
  }));
  const policy = await policyOf(written, { workspace });
  const { child } = await startSandboxed(
    specOf(workspace, ['sh', '-c', script], {
      write: [workspace],
      confinement: policy.confinement('workspace', PRINCIPAL),
    }),
  );
  let text = '';
  child.stdout?.on('data', (chunk: Buffer) => (text += chunk.toString()));
  await new Promise((resolve) => child.once('close', resolve));
  return text;
}

/** Matches name by name, in another way than the policy. */
function matches(glob: readonly string[], names: readonly string[]): boolean {
  const [first, ...rest] = glob;
  if (first === undefined) return names.length === 0;
  if (first === '**') return matches(rest, names) || (names.length > 0 && matches(glob, names.slice(1)));
  return names.length > 0 && (first === '*' || first === names[0]) && matches(rest, names.slice(1));
}

const hits = (globs: readonly string[], names: readonly string[]): boolean =>
  globs.some((glob) => matches(glob.split('/'), names));
const fits = ({ paths, except }: Rule, names: readonly string[]): boolean => hits(paths, names) && !hits(except, names);

/** The nearest folder that a rule names decides, or the file itself. */
function isClosed(rules: readonly Rule[], file: string, verb: string): boolean {
  const about = rules.filter(({ verbs }) => verbs.includes(verb));
  const denies = about.filter(({ outcome }) => outcome === 'deny');
  const allows = about.filter(({ outcome }) => outcome === 'allow');
  const all = file.split('/');
  const prefixes = [[], ...all.map((_, index) => all.slice(0, index + 1))];
  const isDenied = denies.some((rule) =>
    prefixes.reduce((closed, names) => !hits(rule.except, names) && (hits(rule.paths, names) || closed), false),
  );
  const isLeftOut = prefixes.reduce(
    (closed, names) =>
      !allows.some((rule) => fits(rule, names)) && (allows.some(({ except }) => hits(except, names)) || closed),
    false,
  );
  return isDenied || isLeftOut;
}

const NAME = fc.constantFrom('a', 'b', 'c');
const TREE = fc.uniqueArray(
  fc.array(NAME, { minLength: 1, maxLength: 3 }).map((names) => `${names.join('/')}/f`),
  { minLength: 4, maxLength: 10 },
);
const GLOB = fc
  .array(fc.oneof(NAME, fc.constantFrom('*', '**')), { minLength: 1, maxLength: 3 })
  .map((names) => names.join('/'))
  .filter((glob) => glob.includes('*') && !/^\*\*(\/\*\*)*$/.test(glob));
const RULE: fc.Arbitrary<Rule> = fc
  .record({
    outcome: fc.constantFrom('deny' as const, 'deny' as const, 'allow' as const),
    verbs: fc.constantFrom(['read', 'write'], ['write']),
    paths: fc.uniqueArray(GLOB, { minLength: 1, maxLength: 2 }),
    except: fc.uniqueArray(GLOB, { minLength: 1, maxLength: 2 }),
  })
  .filter(({ paths, except }) => !except.some((one) => paths.every((glob) => glob === one)));

const TRY = (file: string): string =>
  `r=-; w=-; cat ${file} >/dev/null 2>&1 && r=r; (: >>${file}) 2>/dev/null && w=w; echo ${file} $r$w`;

describe('a program under rules with exceptions', () => {
  it(`reads and writes exactly what the rules say${verifies('FH-41')}`, async () => {
    await fc.assert(
      fc.asyncProperty(TREE, fc.array(RULE, { minLength: 1, maxLength: 2 }), async (files, rules) => {
        rmSync(workspace, { recursive: true, force: true });
        mkdirSync(workspace);
        own(workspace);
        put(files);
        const expected = files.map((file) => {
          const isHidden = isClosed(rules, file, 'read');
          return `${file} ${isHidden ? '-' : 'r'}${isHidden || isClosed(rules, file, 'write') ? '-' : 'w'}`;
        });
        const printed = await run(rules, files.map(TRY).join('\n'));
        expect(printed.trim().split('\n')).toEqual(expected);
      }),
      { numRuns: 10 },
    );
  });

  it('cannot use the folder of an exception to reach what is around it', async () => {
    put(['secrets/key', 'secrets/public/a', 'src/x']);
    linkSync(path.join(workspace, 'secrets/key'), path.join(workspace, 'secrets/public/link'));
    const rules = [
      { outcome: 'deny' as const, verbs: [], paths: ['secrets/**'], except: ['secrets/public/**', 'secrets/gone/**'] },
    ];
    const script = `
      cat secrets/key secrets/public/link; echo x >secrets/new; mkdir secrets/gone
      mv secrets/public s; mv secrets s; rm -r secrets/key; mv secrets/key secrets/public/k
      echo y >secrets/public/b && cat secrets/public/a secrets/public/b`;
    expect(await run(rules, `{ ${script}; } 2>/dev/null`)).toBe('x\ny\n');
    expect(readdirSync(path.join(workspace, 'secrets')).sort()).toEqual(['key', 'public']);
    expect(readdirSync(path.join(workspace, 'secrets/public')).sort()).toEqual(['a', 'b', 'link']);
  });

  it('has a folder closed as a whole if nothing in it is an exception', async () => {
    put(['secrets/key']);
    const rules = [{ outcome: 'deny' as const, verbs: [], paths: ['secrets/**'], except: ['secrets/public/**'] }];
    expect(await run(rules, 'ls secrets 2>/dev/null || echo closed')).toBe('closed\n');
  });
});
