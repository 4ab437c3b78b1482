/** Tests the source tree by its rules, and each rule by a violation planted in a copy of the tree. */
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { readTree, SOURCE_RULES, type Tree } from './source-rules.ts';
import { verifies } from './verifies.ts';

const ROOT = path.join(import.meta.dirname, '..');
const BIOME = path.join(ROOT, 'node_modules/.bin/biome');
const tree = readTree(ROOT);

describe('the source tree', () => {
  it.each(Object.entries(SOURCE_RULES))('%s', (_sentence, rule) => {
    expect(rule(tree)).toEqual([]);
  });

  it('imports the packages of the design card' + verifies('DC-05'), () => {
    const packages = ['@modelcontextprotocol/sdk', 'yaml', '@open-policy-agent/opa-wasm', 'ajv', 'lru-cache', 'pino'];
    const sources = [...tree.values()].join('\n');
    const isImported = (name: string): boolean =>
      new RegExp(`(from|import|import\\(|require\\() ?'${name}(/[^']*)?'`).test(sources);
    expect(packages.filter((name) => !isImported(name))).toEqual([]);
  });
});

const OPENING = '/** Says what this file is for. */\n';
const CALL = 'facade/call/call.ts';
const PATH_PAGE = 'docs/request-path.md';
const GLOSSARY = 'docs/glossary.md';
const ROOMS_PAGE = 'docs/architecture.md';

/** Each rule by its first words, and files that break it: a path, and its text or a change of the text it has. */
const VIOLATIONS: readonly (readonly [string, Readonly<Record<string, string | ((text: string) => string)>>])[] = [
  ['has no other folder', { 'extras/anything.ts': OPENING }],
  ['imports along', { 'catalogs/text/planted.ts': `${OPENING}import '../../policies/port.ts';\n` }],
  ['imports along', { 'policies/rules/planted.ts': `${OPENING}import type { A } from '../../adapters/port.ts';\n` }],
  ['imports along', { 'adapters/http/planted.ts': `${OPENING}export * from '../../facade/app.ts';\n` }],
  ['imports along', { 'facade/call/planted.ts': `${OPENING}import '../../adapters/http/streamable-connection.ts';\n` }],
  ['imports third-party', { 'facade/call/planted.ts': `${OPENING}import 'libsql';\n` }],
  ['opens each file', { 'facade/call/planted.ts': 'export const PLANTED = 1;\n' }],
  ['names each file', { 'facade/call/helpers.ts': OPENING }],
  ['keeps functions within 3 parameters', { 'facade/call/planted.ts': `${OPENING}(a, b, c, d) => a;\n` }],
  [
    'keeps functions within 3 levels',
    { 'facade/call/planted.ts': `${OPENING}if (a) for (;;) while (b) if (c) throw d;\n` },
  ],
  [
    'keeps folders',
    Object.fromEntries(Array.from({ length: 18 }, (_, at) => [`facade/call/planted-${at}.ts`, OPENING])),
  ],
  ['leaves only', { 'facade/planted.ts': OPENING }],
  ['gives no two files', { 'adapters/http/call.ts': OPENING }],
  ['gives no two exported', { 'adapters/http/planted.ts': `${OPENING}export type Policy = string;\n` }],
  ['has a room', { 'test/planted/planted.test.ts': '' }],
  ['names what it covers', { 'test/cli/planted.test.ts': "import { Child } from '../process/child.ts';\n" }],
  ['covers folders', { 'test/cli/planted.test.ts': '/**\n * Tests.\n * Covers: facade/planted.\n */\n' }],
  ['has a line', { 'facade/planted/planted.ts': OPENING }],
  ['has a line', { [ROOMS_PAGE]: (text) => `${text}\n| \`facade/planted\` | nothing |\n` }],
  ['has every path', { [ROOMS_PAGE]: (text) => `${text}\n\`facade/call/planted.ts\`\n` }],
  ['names only files', { 'facade/call/planted.ts': '/** Explained in gone-file.ts. */\n' }],
  ['writes to stdout', { 'facade/call/planted.ts': `${OPENING}console.log(1);\n` }],
  ['starts programs', { 'facade/call/planted.ts': `${OPENING}import { spawn } from 'node:child_process';\n` }],
  ['has the nine stages', { [CALL]: (text) => text.replace('// 4 decide', '// 5 reserve') }],
  ['has the nine stages', { [PATH_PAGE]: (text) => text.replace('| 3 | validate |', '| 3 | check |') }],
  ['has at most 15 imports', { [CALL]: (text) => `${"import 'node:fs';\n".repeat(15)}${text}` }],
  ['has at most 15 imports', { [CALL]: (text) => `${text}// ${'x'.repeat(120)}\n` }],
  ['passes at most 12', { [PATH_PAGE]: (text) => `${text}\n| 13 | \`facade/call/planted.ts\` | \`planted\` | \n` }],
  ['has no line wider', { 'facade/call/planted.ts': `${OPENING}// ${'x'.repeat(120)}\n` }],
  [
    'folds files under',
    { 'facade/call/planted.ts': OPENING, 'facade/call/caller.ts': `${OPENING}import './planted.ts';\n` },
  ],
  ['uses no word', { 'facade/call/planted.ts': '/** Reads the file anew. */\n' }],
  ['uses no word', { [PATH_PAGE]: (text) => `${text}\nWhoever calls is asked.\n` }],
  ['names folders that exist', { [GLOSSARY]: (text) => `${text}\n| planted | nothing | \`facade/planted\` |\n` }],
  ['exports only', { 'facade/call/planted.ts': `${OPENING}\nexport function planted(): void {}\n` }],
];

describe('each rule fails for a violation', () => {
  it.each(VIOLATIONS)('%s: %j', (words, files) => {
    const [rule, ...others] = Object.entries(SOURCE_RULES).filter(([sentence]) => sentence.startsWith(words));
    expect(others).toEqual([]);
    expect(rule?.[1](planted(files)).length).toBeGreaterThan(0);
  });

  it('and has one planted here', () => {
    const words = VIOLATIONS.map(([start]) => start);
    expect(Object.keys(SOURCE_RULES).filter((rule) => !words.some((start) => rule.startsWith(start)))).toEqual([]);
  });

  it.each([
    ['lines of a function', 'noExcessiveLinesPerFunction', `  f();\n`.repeat(61)],
    [
      'complexity of a function',
      'noExcessiveCognitiveComplexity',
      `  if (a) { if (b) { if (c) { f(); } } }\n`.repeat(10),
    ],
    ['a cycle of imports', 'noImportCycles', ''],
    ['a line that is not formatted', 'format', `  ${'f(); '.repeat(30)}\n`],
  ])('%s, which Biome checks', { timeout: 30_000 }, (_what, rule, body) => {
    withScratch((folder) => {
      copyFileSync(path.join(ROOT, 'biome.json'), path.join(folder, 'biome.json'));
      writeFileSync(path.join(folder, '.gitignore'), 'node_modules/\n');
      mkdirSync(path.join(folder, 'facade'));
      writeFileSync(
        path.join(folder, 'facade/other.ts'),
        "import type { planted } from './planted.ts';\n\nexport type A = typeof planted;\n",
      );
      writeFileSync(
        path.join(folder, 'facade/planted.ts'),
        `import type { A } from './other.ts';\n\nexport function planted(): void {\n${body}}\n`,
      );
      const { status, stderr } = spawnSync(BIOME, ['ci', '--colors=off', '.'], { cwd: folder, encoding: 'utf8' });
      expect(status).toBe(1);
      expect(stderr).toMatch(new RegExp(`planted.ts(:\\d+:\\d+ lint/\\w+/| )${rule} `));
    });
  });
});

function withScratch(work: (folder: string) => void): void {
  const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-rules-'));
  try {
    work(folder);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Returns the tree with files added or changed. */
function planted(files: Readonly<Record<string, string | ((text: string) => string)>>): Tree {
  const copy = new Map(tree);
  for (const [file, change] of Object.entries(files))
    copy.set(file, typeof change === 'string' ? change : change(copy.get(file) ?? ''));
  return copy;
}
