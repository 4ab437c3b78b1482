import { createPublicKey, generateKeyPairSync } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { beforeAll, describe, expect, it } from 'vitest';
import { EXIT } from '../../facade/cli/command-io.ts';
import { diffLines } from '../../policies/authoring/rego-format.ts';
import { CAPABILITIES_FILE, ENTRYPOINTS } from '../../policies/engine/policy-library.ts';
import { BUNDLE_FILES, openBundle, packBundle, unpackBundle } from '../../policies/rego/bundles/bundle-format.ts';
import { verifyFiles } from '../../policies/rego/bundles/bundle-signatures.ts';
import { findOpa, packageRoot, runOpa } from '../../policies/rego/opa-program.ts';
import { cli, dataOf } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';

const YAML = 'policies: [policies/git]\nprincipals: [{id: mia}]\nexpose: {primitives: workspace}\n';
const REGO = `# METADATA
# custom:
#   id: of-package
package policy.team.git

words := {"main"}

# METADATA
# title: No push
# custom:
#   id: no-push
#   severity: high
#   remediation: Push to a branch.
deny contains "Pushing is for people." if {
	input.effect.tool == "bash"
	"push" in input.effect.command.words[0]
}

ask contains sprintf("%s is looked at.", [word]) if {
	some word in words
	word in input.effect.command.words[0]
}

allow contains {"id": "shell", "message": "Shell is open."} if input.effect.tool == "bash"
`;

function project(files: Readonly<Record<string, string>> = {}): Project {
  const made = new Project();
  for (const [name, text] of Object.entries({ 'tollgate.yaml': YAML, 'policies/git/git.rego': REGO, ...files }))
    made.write(name, text);
  return made;
}

const bundleOf = (made: Project, name = 'bundle.tar.gz'): Buffer => readFileSync(path.join(made.folder, name));

describe('reasons of Rego', () => {
  const made = project();
  beforeAll(async () => expect((await cli(made, ['policy', 'build'])).code).toBe(EXIT.ok));

  it.each([
    ['from sources', YAML],
    ['from a bundle', YAML.replace('policies/git', 'bundle.tar.gz')],
  ])('have id, line, severity and remediation of their METADATA, also in nested packages: %s', async (_name, yaml) => {
    made.write('tollgate.yaml', yaml);
    const reasonsFor = async (command: string): Promise<unknown> =>
      dataOf<{ reasons: unknown }>((await cli(made, ['try', 'bash', JSON.stringify({ command }), '--json'])).out)
        .reasons;
    const file = 'policies/git/git.rego';
    expect(await reasonsFor('git push')).toEqual([
      {
        id: 'no-push',
        message: 'Pushing is for people.',
        file,
        line: 14,
        severity: 'high',
        remediation: 'Push to a branch.',
      },
    ]);
    expect(await reasonsFor('git checkout main')).toEqual([
      { id: 'of-package', message: 'main is looked at.', file, line: 19 },
    ]);
    expect(await reasonsFor('git status')).toEqual([{ id: 'shell', message: 'Shell is open.', file, line: 24 }]);
  });
});

describe('policy build', () => {
  inFull('makes an OPA bundle with our facts, with equal bytes for each build', async () => {
    const [one, two] = [project(), project()];
    const answer = await cli(one, ['policy', 'build', '--json']);
    expect((await cli(two, ['policy', 'build', '-o', 'out.tgz', 'policies/git'])).out).toMatch(
      /^out\.tgz: 3 rules of policy\.team\.git, revision [0-9a-f]{12}\n$/,
    );
    expect(bundleOf(one).equals(bundleOf(two, 'out.tgz'))).toBe(true);
    const files = unpackBundle(bundleOf(one));
    expect([...files.keys()]).toEqual(['.manifest', 'data.json', 'tollgate.json', 'policy.wasm']);
    const said = dataOf<{ revision: string; entrypoints: readonly string[] }>(answer.out);
    expect(JSON.parse(new TextDecoder().decode(files.get('.manifest')))).toMatchObject({
      revision: said.revision,
      roots: ['policy', 'tollgate'],
      rego_version: 1,
      wasm: said.entrypoints.map((entrypoint) => ({ entrypoint, module: '/policy.wasm' })),
    });
    expect(said.entrypoints).toContain('tollgate/call/decision');
  });

  inFull('sets the requested revision, and contains the data of the user', async () => {
    const made = project({ 'policies/git/data.json': '{"limits": {"most": 5}}' });
    expect((await cli(made, ['policy', 'build', '--revision', 'v7'])).out).toContain('revision v7');
    const files = unpackBundle(bundleOf(made));
    expect(JSON.parse(new TextDecoder().decode(files.get('data.json')))).toEqual({ limits: { most: 5 } });
    expect(new TextDecoder().decode(files.get('.manifest'))).toContain('"roots":["policy","tollgate","limits"]');
  });

  inFull('signs a bundle that opa verifies', async () => {
    const made = project();
    const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const [secret, open] = [
      privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
      createPublicKey(privateKey).export({ type: 'spki', format: 'pem' }).toString(),
    ];
    made.write('key.pem', secret);
    made.write('public.pem', open);
    expect((await cli(made, ['policy', 'build', '--signing-key', 'key.pem', '--signing-alg', 'ES256'])).out).toContain(
      ', signed',
    );
    await expect(verifyFiles(unpackBundle(bundleOf(made)), { keys: [open] })).resolves.toBeUndefined();
    const run = await runOpa(
      await findOpa(),
      [
        'build',
        '-b',
        'bundle.tar.gz',
        '--verification-key',
        'public.pem',
        '--signing-alg',
        'ES256',
        '-o',
        'again.tar.gz',
      ],
      made.folder,
    );
    expect(run.stderr).toBe('');
    made.write('secret.txt', 'a shared secret\n');
    await cli(made, ['policy', 'build', '--signing-key', 'secret.txt', '--signing-alg', 'HS256']);
    await expect(verifyFiles(unpackBundle(bundleOf(made)), { secrets: ['a shared secret'] })).resolves.toBeUndefined();
  });

  it.each([
    ['a missing key', ['--signing-key', 'none.pem'], 'The signing key cannot be read.'],
    ['an invalid key', ['--signing-key', 'tollgate.yaml'], 'The key cannot sign with RS256.'],
    ['an unknown algorithm', ['--signing-alg', 'none'], "argument 'none' is invalid"],
    ['nothing to build', ['tollgate.yaml'], 'There is no Rego to build'],
  ])('refuses %s', async (_name, words, expected) => {
    const made = project();
    expect(await cli(made, ['policy', 'build', ...words])).toMatchObject({
      code: EXIT.usage,
      err: expect.stringContaining(expected) as string,
    });
    expect(existsSync(path.join(made.folder, 'bundle.tar.gz'))).toBe(false);
  });
});

describe('a bundle with facts', () => {
  const made = project();
  beforeAll(async () => void (await cli(made, ['policy', 'build'])));

  function changed(change: (facts: Record<string, unknown>) => void): ReadonlyMap<string, Uint8Array> {
    const files = unpackBundle(bundleOf(made));
    const facts = JSON.parse(new TextDecoder().decode(files.get(BUNDLE_FILES.facts))) as Record<string, unknown>;
    change(facts);
    return new Map([...files, [BUNDLE_FILES.facts, new TextEncoder().encode(JSON.stringify(facts))]]);
  }

  it.each([
    [
      'that belong to another wasm',
      (facts: Record<string, unknown>) => void (facts.wasm = '0'.repeat(64)),
      'its tollgate.json belongs to another policy.wasm',
    ],
    ['of another version', (facts: Record<string, unknown>) => void (facts.version = 2), 'has another version'],
    [
      'that do not say which library is in it',
      (facts: Record<string, unknown>) => void delete facts.library,
      'has another version',
    ],
  ])('%s is refused', (_name, change, expected) => {
    expect(() => openBundle(changed(change))).toThrow(expected);
  });

  it('built by another version of Tollgate is refused at load', async () => {
    const files = changed((facts) => void (facts.library = '0'.repeat(64)));
    made.write('tollgate.yaml', YAML.replace('policies/git', 'old.tar.gz'));
    writeFileSync(path.join(made.folder, 'old.tar.gz'), packBundle(files));
    expect(await cli(made, ['check'])).toMatchObject({
      code: EXIT.usage,
      err: expect.stringContaining('The bundle old.tar.gz was built by another version of Tollgate.') as string,
    });
  });
});

describe('a bundle that only opa built', () => {
  it('is accepted; its reasons have no places', async () => {
    const made = project({ 'rego/a.rego': REGO.replace('policy.team.git', 'policy.git') });
    const library = path.join(packageRoot(), 'policies', 'lib');
    const entries = [ENTRYPOINTS.call, ENTRYPOINTS.list].flatMap((entry) => ['-e', entry]);
    const { flags } = await findOpa();
    const run = await runOpa(
      await findOpa(),
      [
        'build',
        ...flags,
        '-t',
        'wasm',
        ...entries,
        '--prune-unused',
        '--ignore',
        '*_test.rego',
        '--capabilities',
        CAPABILITIES_FILE,
        '-o',
        'bare.tar.gz',
        library,
        'rego',
      ],
      made.folder,
    );
    expect(run.stderr + run.stdout).toBe('');
    made.write('tollgate.yaml', YAML.replace('policies/git', 'bare.tar.gz'));
    const { reasons } = dataOf<{ reasons: unknown }>(
      (await cli(made, ['try', 'bash', '{"command": "git push"}', '--json'])).out,
    );
    expect(reasons).toEqual([{ id: 'policy.git', message: 'Pushing is for people.' }]);
  });
});

describe('policy fmt', () => {
  const CROOKED = REGO.replace('words := {"main"}', 'words:={ "main" }');

  it('formats Rego and its tests as opa does, and does not change YAML', async () => {
    const made = project({
      'policies/git/git.rego': CROOKED,
      'policies/git/a_test.rego': 'package policy.a_test\n\ntest_a  if  true\n',
      'policies/git/git_suite.yaml': 'cases:   []\n',
    });
    expect(await cli(made, ['policy', 'fmt', '--check'])).toMatchObject({
      code: EXIT.unexpected,
      out: 'policies/git/a_test.rego\npolicies/git/git.rego\n',
      err: '2 of 2 files of Rego not formatted; 1 file of YAML not changed\n',
    });
    const diff = await cli(made, ['policy', 'fmt', '--diff', 'policies/git/git.rego']);
    expect(diff).toMatchObject({
      code: EXIT.unexpected,
      out: expect.stringContaining('    6 - words:={ "main" }\n    7 + words := {"main"}\n') as string,
    });
    expect(readFileSync(path.join(made.folder, 'policies/git/git.rego'), 'utf8')).toBe(CROOKED);
    expect(await cli(made, ['policy', 'fmt', '--json'])).toMatchObject({
      code: 0,
      out: '{"changed":["policies/git/a_test.rego","policies/git/git.rego"],"left":["policies/git/git_suite.yaml"],"files":2}\n',
    });
    expect(readFileSync(path.join(made.folder, 'policies/git/git.rego'), 'utf8')).toBe(REGO);
    expect(readFileSync(path.join(made.folder, 'policies/git/git_suite.yaml'), 'utf8')).toBe('cases:   []\n');
    expect(await cli(made, ['policy', 'fmt', '--check'])).toMatchObject({
      code: 0,
      err: '2 files of Rego, all formatted; 1 file of YAML not changed\n',
    });
  });

  it('refuses Rego that does not parse, with the place, and two modes together; needs opa only for Rego', async () => {
    const made = project({
      'policies/git/git.rego': 'package policy.git\n\ndeny contains\n',
      'rules.yaml': 'rules: []\n',
    });
    const broken = await cli(made, ['policy', 'fmt']);
    expect(broken).toMatchObject({ code: EXIT.usage, err: expect.stringMatching(/git\.rego:\d+/) as string });
    expect(broken.err).not.toContain(made.folder);
    expect(await cli(made, ['policy', 'fmt', '--check', '--diff'])).toMatchObject({
      code: EXIT.usage,
      err: expect.stringContaining('cannot be used together') as string,
    });
    expect(await cli(made, ['policy', 'fmt', 'rules.yaml', '--opa', '/nowhere/opa'])).toMatchObject({
      code: 0,
      err: '0 files of Rego, all formatted; 1 file of YAML not changed\n',
    });
    expect(await cli(made, ['policy', 'fmt', 'none'])).toMatchObject({
      code: EXIT.usage,
      err: expect.stringContaining('USAGE: none does not exist.') as string,
    });
  });

  it('shows the shortest difference', () => {
    const signs = (before: string, after: string): string =>
      diffLines([...before], [...after])
        .map(({ sign, text }) => sign + text)
        .join('');
    expect(signs('abc', 'abc')).toBe('');
    expect(signs('abc', 'axc')).toBe(' a-b+x c');
    expect(signs('', 'ab')).toBe('+a+b');
    expect(signs('abcdefgh', 'abcdeXfgh')).toBe(' d e+X f g');
    fc.assert(
      fc.property(
        fc.array(fc.constantFrom('a', 'b', 'c'), { maxLength: 12 }),
        fc.array(fc.constantFrom('a', 'b', 'c'), { maxLength: 12 }),
        (before, after) => {
          const lines = diffLines(before, after);
          expect(
            lines.filter(({ sign }) => sign === '+').length - lines.filter(({ sign }) => sign === '-').length,
          ).toBe(after.length - before.length);
        },
      ),
    );
  });
});

describe('policy init', () => {
  inFull('writes a folder that passes check, fmt and test unchanged', async () => {
    const made = new Project();
    const { out } = await cli(made, ['policy', 'init', '--json']);
    const { written } = dataOf<{ written: readonly string[] }>(out);
    expect(written).toEqual(
      expect.arrayContaining([
        'policies/rules.yaml',
        'policies/rules_suite.yaml',
        'policies/git/git.rego',
        'policies/git/git_test.rego',
        'policies/git/git_suite.yaml',
        'policies/capabilities.json',
        'policies/.regal/config.yaml',
        'policies/schemas/input.json',
        'policies/schemas/rules.json',
        'tollgate.yaml',
      ]),
    );
    expect(await cli(made, ['policy', 'check'])).toMatchObject({
      code: 0,
      out: 'ok: 3 YAML rules, 2 rules in 2 files of Rego\n',
    });
    expect(await cli(made, ['policy', 'fmt', '--check'])).toMatchObject({ code: 0 });
    expect(await cli(made, ['policy', 'test'])).toMatchObject({
      code: 0,
      out: expect.stringContaining('9 passed, 0 failed') as string,
    });
  });

  it('overwrites nothing, also not through links, and writes no cases for existing rules', async () => {
    const made = new Project();
    made.write('policies/rules.yaml', 'rules: []\n');
    symlinkSync(path.join(made.folder, 'elsewhere'), path.join(made.folder, 'policies', 'capabilities.json'));
    const { err } = await cli(made, ['policy', 'init']);
    expect(err).toContain('Not changed: policies/rules.yaml, policies/capabilities.json.');
    expect(readFileSync(made.file, 'utf8')).toContain('\npolicies:\n  - policies/rules.yaml\n  - policies/git\n');
    expect(readFileSync(path.join(made.folder, 'policies/rules.yaml'), 'utf8')).toBe('rules: []\n');
    expect(existsSync(path.join(made.folder, 'elsewhere'))).toBe(false);
    expect(existsSync(path.join(made.folder, 'policies/rules_suite.yaml'))).toBe(false);
    expect((await cli(made, ['policy', 'init'])).err).toMatch(/^Wrote 0 files\./);
  });

  it('adds itself to a tollgate.yaml without rules, and not to one with rules, because it could allow more', async () => {
    const made = new Project();
    made.write('tollgate.yaml', '# mine\nexpose: {primitives: workspace}\n');
    expect((await cli(made, ['policy', 'init', '--no-rego'])).err).toContain(
      'Added to tollgate.yaml:\n  policies: [policies/rules.yaml]\nNext:\n  tollgate policy check\n',
    );
    expect(readFileSync(made.file, 'utf8')).toBe(
      '# mine\nexpose: {primitives: workspace}\n\npolicies:\n  - policies/rules.yaml\n',
    );
    const before = 'rules: [{id: none, outcome: deny, when: {}}]\n';
    made.write('tollgate.yaml', before);
    expect((await cli(made, ['policy', 'init', 'more', '--no-rego'])).err).toContain(
      `tollgate.yaml names rules already. To use the new ones too:
  policies: [more/rules.yaml]
Next:
  tollgate policy check more/rules.yaml
`,
    );
    expect(readFileSync(made.file, 'utf8')).toBe(before);
    made.write('tollgate.yaml', 'policies: [{path: ./more/rules.yaml, mode: shadow}]\n');
    expect((await cli(made, ['policy', 'init', 'more', '--no-rego', '--json'])).out).toContain('"config":"there"');
  });

  it.each([
    ['tollgate.yaml', 'a file has this name already'],
    ['/proc/xx', 'there is no such folder'],
  ])('says before any work that nothing can be written below %s', async (folder, why) => {
    const made = new Project();
    made.write('tollgate.yaml', 'rules: []\n');
    expect(await cli(made, ['policy', 'init', folder, '--no-rego'])).toMatchObject({
      code: EXIT.usage,
      err: expect.stringContaining(`${folder}/rules.yaml cannot be written: ${why}.`) as string,
    });
  });

  it('writes only YAML if opa is not found, or on request', async () => {
    for (const words of [['--opa', '/nowhere/opa'], ['--no-rego']]) {
      const made = new Project();
      const { err } = await cli(made, ['policy', 'init', 'rules', ...words]);
      expect(err).toContain('For Rego: install opa, then call this again with --rego.');
      expect(readdirSync(path.join(made.folder, 'rules')).sort()).toEqual([
        'rules.yaml',
        'rules_suite.yaml',
        'schemas',
      ]);
    }
    const made = new Project();
    await cli(made, ['policy', 'init', 'rules', '--rego', '--opa', '/nowhere/opa']);
    expect(existsSync(path.join(made.folder, 'rules/git/git.rego'))).toBe(true);
    expect(readFileSync(path.join(made.folder, 'rules/.regal/config.yaml'), 'utf8')).toContain(
      'file: rules/capabilities.json',
    );
  });
});

describe('policy diff', () => {
  const lines = async (made: Project, ...words: readonly string[]): Promise<readonly string[]> => {
    const { out } = await cli(made, ['policy', 'diff', ...words]);
    return out
      .trim()
      .split('\n')
      .slice(1)
      .map((line) => line.replace(/ {2,}/g, ' | '));
  };

  inFull('finds no difference between a bundle and its sources, and refuses files without a policy', async () => {
    const made = project({ 'notes.txt': 'x', 'notes/a.md': 'x' });
    await cli(made, ['policy', 'build']);
    await cli(made, ['policy', 'build', '-o', 'bundle.tgz']);
    expect(await cli(made, ['policy', 'diff', 'bundle.tgz', 'bundle.tar.gz'])).toMatchObject({
      code: 0,
      err: 'The two policies are equal.\n',
    });
    for (const nothing of ['notes.txt', 'notes'])
      expect(await cli(made, ['policy', 'diff', 'bundle.tgz', nothing])).toMatchObject({
        code: EXIT.usage,
        err: expect.stringContaining(`${nothing} contains no rules, no Rego and no bundle.`) as string,
      });
    expect(await cli(made, ['policy', 'build', '-o', 'nowhere/y.tar.gz'])).toMatchObject({
      code: EXIT.usage,
      err: expect.stringContaining('nowhere/y.tar.gz cannot be written: there is no such folder') as string,
    });
    expect(existsSync(path.join(made.folder, 'nowhere'))).toBe(false);
    expect(await cli(made, ['policy', 'diff', 'bundle.tar.gz', 'policies/git'])).toMatchObject({
      code: 0,
      out: '',
      err: 'The two policies are equal.\n',
    });
    expect(await cli(made, ['policy', 'diff', 'policies/git', 'policies/git/git.rego', '--json'])).toMatchObject({
      code: 0,
      out: '{"same":true,"differences":[]}\n',
    });
  });

  inFull('lists rules, helpers and data that were added, removed and changed, with their places', async () => {
    const after = REGO.replace('"main"', '"main", "prod"')
      .replace('severity: high', 'severity: low')
      .replace(/allow contains.*\n/, 'deny contains {"id": "new", "message": "m"} if input.run\n');
    const made = project({
      'policies/git/data.json': '{"limits": {"most": 5}}',
      'draft/git.rego': after,
      'draft/data.json': '{"limits": {"most": 6}}',
    });
    expect((await cli(made, ['policy', 'diff', 'policies/git', 'draft'])).code).toBe(EXIT.unexpected);
    expect((await lines(made, 'policies/git', 'draft')).toSorted()).toEqual([
      'added | rule | new | git.rego:24',
      'changed | rule | no-push | git.rego:14 | severity',
      'changed | rule | policy.team.git.words | the rule itself',
      'changed | setting | data.limits.most',
      'removed | rule | shell | git.rego:24',
    ]);
  });

  inFull('lists YAML rules, modes and settings, and never the value of a setting', async () => {
    const rules = (message: string, mode: string): string =>
      `rules:
  - {id: a, outcome: deny, message: ${message}, mode: ${mode}, when: {}}
  - {id: ${message}-only, outcome: deny, when: {}}
`;
    const yaml = (more: string): string =>
      `${YAML.replace('[policies/git]', `[{path: policies/git, mode: ${more}}]`)}servers: {s: {url: ` +
      `"https://${more}.example/mcp"}}\n`;
    const made = project({
      'one.yaml': rules('one', 'enforce'),
      'two.yaml': rules('two', 'shadow'),
      'tollgate.yaml': yaml('enforce'),
      'draft.yaml': yaml('shadow'),
    });
    expect((await lines(made, 'one.yaml', 'two.yaml')).toSorted()).toEqual(
      expect.arrayContaining([
        'added | rule | two-only | two.yaml:3',
        'changed | mode | rule a | two.yaml:2 | enforce → shadow',
        'changed | rule | a | two.yaml:2 | message',
        'removed | rule | one-only | one.yaml:3',
      ]),
    );
    const settings = await cli(made, ['policy', 'diff', 'tollgate.yaml', 'draft.yaml']);
    expect(settings.out).toMatch(/changed +setting +servers\.s\.url/);
    expect(settings.out).toMatch(/changed +mode +source policies\/git +enforce → shadow/);
    expect(settings.out).not.toContain('https://');
  });

  it('refuses what it cannot compare', async () => {
    const made = project({ 'bare/a.rego': REGO });
    await runOpa(
      await findOpa(),
      ['build', '--v1-compatible', '-t', 'wasm', '-e', 'policy/team/git/deny', '-o', 'bare.tar.gz', 'bare'],
      made.folder,
    );
    expect(await cli(made, ['policy', 'diff', 'bare.tar.gz', 'bare'])).toMatchObject({
      code: EXIT.usage,
      err: expect.stringContaining('does not list its rules') as string,
    });
    expect((await cli(made, ['policy', 'diff', 'none', 'bare'])).code).toBe(EXIT.usage);
  });
});
