/** Uses every code block of the documentation: configurations load, policies compile, JSON parses, commands run. */

import { cpSync, mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { loadConfig } from '../../facade/config/load-config.ts';
import { policyParts } from '../../facade/runtime/policy-parts.ts';
import { loadPolicy } from '../../policies/engine/policy-loader.ts';
import { inFull } from '../harness/full-tests.ts';
import { partOf, RUNS_ALL } from '../harness/slices.ts';
import { giveAway } from '../servers/system.ts';
import { runLine, type Shown, wordsOf } from './console.ts';
import { type Block, blocksOf, PAGES, ROOT } from './markdown.ts';
import { TUTORIAL } from './tutorial.ts';

/** Pages with their own tests: cookbook.test.ts runs the recipes, tutorial.test.ts follows the tutorial. */
const blocks = PAGES.filter((page) => page !== 'docs/cookbook.md')
  .flatMap(blocksOf)
  .filter(({ page, line }) => !(page === TUTORIAL.page && line > TUTORIAL.from && line < TUTORIAL.to));
const named = (language: string): readonly (readonly [string, Block])[] =>
  blocks.filter((block) => block.language === language).map((block) => [`${block.page}:${block.line}`, block] as const);

/** Variables that the examples take from the environment. */
const VARIABLES = { TRACKER_TOKEN: 'value-of-tracker-token', ALICE_TOKEN: 'value-of-alice-token' };

let place: string;
let home: string;
/** The project in which examples are loaded. It has the files that they expect. */
let project: string;
/** The project in which commands run: an empty folder after `tollgate init`. */
let fresh: string;

beforeAll(() => {
  place = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-docs-')));
  home = path.join(place, 'home');
  project = path.join(home, 'project');
  fresh = path.join(home, 'fresh');
  for (const folder of ['.vscode', 'project', 'policies/rego', 'policies/example'])
    mkdirSync(path.join(project, folder), { recursive: true });
  mkdirSync(fresh);
  writeFileSync(path.join(fresh, 'README.md'), '# Fresh\n');
  for (const folder of ['library', 'site']) mkdirSync(path.join(home, folder));
  // Root's own folder cannot be isolated, as the pages say.
  giveAway(fresh);
  write('.vscode/mcp.json', '{"servers": {"github": {"command": "github-mcp-server"}}}');
  write('policies/rego/hours.rego', named('rego')[0]?.[1].text ?? '');
  cpSync(path.join(ROOT, 'policies', 'starter', 'workspace.yaml'), path.join(project, 'policies', 'rules.yaml'));
});

afterAll(() => rmSync(place, { recursive: true, force: true, maxRetries: 5 }));

function write(name: string, text: string): void {
  writeFileSync(path.join(project, name), text);
}

/** Loads a configuration of the project and the policy that it makes. */
async function load(name: string, text: string): Promise<string> {
  write(name, text);
  const config = loadConfig(path.join(project, name), { env: VARIABLES, home });
  expect(config.warnings).toEqual([]);
  const policy = await loadPolicy(policyParts(config, { cache: path.join(place, 'cache') }));
  policy.close();
  return policy.revision;
}

describe('the blocks of the documentation', () => {
  it('are in languages that this file tests', () => {
    const known = new Set(['yaml', 'rego', 'json', 'sh', 'text', '']);
    expect(blocks.filter(({ language }) => !known.has(language)).map(({ page, line }) => `${page}:${line}`)).toEqual(
      [],
    );
    for (const language of ['yaml', 'rego', 'json', 'sh']) expect(named(language).length, language).toBeGreaterThan(0);
  });

  const isSuite = ([, { text }]: readonly [string, Block]): boolean => /^cases:/m.test(text);

  inFull.each(named('yaml').filter((one) => !isSuite(one)))(
    '%s is configuration that loads, or rules that compile',
    async (where, { text }) => {
      const whole = /^(version|servers):/m.test(text);
      if (!whole) expect(text, where).toMatch(/^rules:/m);
      if (!whole) write('policies/example.yaml', text);
      await expect(load('example-config.yaml', whole ? text : 'policies: [policies/example.yaml]')).resolves.toMatch(
        /^[0-9a-f]{64}$/,
      );
    },
  );

  inFull.each(partOf(named('rego'), 3))('%s is checked and built by opa', async (_where, { text }) => {
    write('policies/example/example.rego', text);
    await expect(
      load('example-config.yaml', 'servers: {git: {command: git-server}}\npolicies: [policies/example]'),
    ).resolves.toMatch(/^[0-9a-f]{64}$/);
  });

  it.each(named('json'))('%s is JSON', (_where, { text }) => {
    expect(() => JSON.parse(text) as unknown).not.toThrow();
  });
});

/** Lines that the test does not run, and why. */
const NOT_RUN: readonly (readonly [RegExp, string])[] = [
  [/^npm ci && npm (run demo|test)$/, 'it is what runs this test; the gate runs both on a fresh checkout'],
  [/^npm run build$/, 'these tests run on what it has built'],
  [/^npm link$/, 'it writes to a folder of the whole machine'],
  [/^claude mcp add /, 'it is a program of another project'],
  [/ serve$/, 'it listens on a fixed port until it is stopped: test/serve/http-listener.test.ts'],
  [/ servers --log (github|tickets)$/, 'it names a server of your own: test/cli/commands.test.ts'],
  [
    / (approve|revoke|servers (enable|disable|info)) (github|mine|memory)/,
    'it names a server of your own: test/consent/approve-command.test.ts',
  ],
  [/ connect memory$/, 'it installs a package, and a person answers: test/docs/connecting.test.ts'],
  [/ export --client cursor --replace$/, 'it asks a person: test/clients/'],
  [/^podman /, 'it needs the image of a registry: test/container/container-engine.test.ts'],
  [/ audit tail/, 'it runs until it is stopped: test/audit/'],
];

/** Exit codes that the page states for a line; 0 for all others. */
const ENDS: readonly (readonly [RegExp, number])[] = [
  [/ try read '\{"path": "\.env"\}'/, 3],
  [/ try bash '\{"command": "git push"\}'/, 7],
  [/ audit show 0{8}-/, 1],
  [/ --expect-head 0{64}$/, 3],
  // Commands of other pages have appended records since the last signature.
  [/ audit verify$/, 8],
  // The configuration of this test has no such server.
  [/ audit list .*--server tickets$/, 2],
];

/** Keeps the lines that use a command or an option of it that no earlier line uses, and those with an end of their own. */
function differing(lines: readonly string[]): readonly string[] {
  const used = new Set<string>();
  return lines.filter((line) => {
    const words = wordsOf(line).slice(1);
    const isOption = (word = ''): boolean => word.startsWith('--');
    const command = words.filter((word, at) => /^[a-z]+$/.test(word) && !isOption(words[at - 1])).join(' ');
    const parts = [command, ...words.filter(isOption).map((option) => `${command} ${option}`)];
    const isNew = parts.some((part) => !used.has(part));
    for (const part of parts) used.add(part);
    return isNew || ENDS.some(([pattern]) => pattern.test(line));
  });
}

/** Lines that ask the public registry, as any-package.test.ts does with a registry on this machine. */
const ASKS_REGISTRY = / connect npm:/;

describe('the commands of the documentation', () => {
  const lines = [...new Set(named('sh').flatMap(([, { text }]) => text.trim().split('\n')))];
  const asked = lines.filter((line) => !NOT_RUN.some(([pattern]) => pattern.test(line)));
  const isInit = (line: string): boolean => line.endsWith(' init');

  it('all run, or have a reason why not', () => {
    for (const [pattern, reason] of NOT_RUN) {
      expect(
        lines.some((line) => pattern.test(line)),
        `${pattern} is in no page any more`,
      ).toBe(true);
      expect(reason.length).toBeGreaterThan(10);
    }
    expect(asked.filter((line) => !/^tollgate /.test(line))).toEqual([]);
  });

  const run = (line: string): Promise<Shown> =>
    runLine(line, {
      home,
      folder: fresh,
      env: { PATH: process.env.PATH ?? '', HOME: home, XDG_STATE_HOME: path.join(place, 'state') },
    });

  it('begin with init, which writes files that load', async () => {
    expect(await run(lines.find(isInit) ?? '')).toMatchObject({ code: 0 });
  });

  it.each(named('yaml').filter(([, { text }]) => /^cases:/m.test(text)))(
    '%s is a suite that holds for the rules of init',
    async (_where, { text }) => {
      writeFileSync(path.join(fresh, 'policies', 'page_suite.yaml'), text);
      expect(await run('tollgate policy test policies/page_suite.yaml')).toMatchObject({
        code: 0,
        out: expect.stringMatching(/^\d+ passed, 0 failed/) as string,
        err: '',
      });
    },
  );

  const others = asked.filter((line) => !isInit(line));
  inFull.each(RUNS_ALL ? others : differing(others.filter((line) => !ASKS_REGISTRY.test(line))))('%s', async (line) => {
    const { code, err } = await run(line);
    expect(code, err).toBe(ENDS.find(([pattern]) => pattern.test(line))?.[1] ?? 0);
  });
});
