/**
 * Checks every page: links and files exist, decisions have one form, threats and attacks name their tests.
 */

import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { inFull } from '../harness/full-tests.ts';
import { verifies } from '../verifies.ts';
import { anchorsOf, blocksOf, codeIn, PAGES, proseOf, ROOT, readPage, rowsOf, sectionOf } from './markdown.ts';

/** Paths of this project in backticks. Rules and bundles under policies/ are the reader's own. */
const SOURCE_PATH =
  /^(?:(?:facade|policies|adapters|catalogs)\/[\w./-]+\.(?:ts|json|rego|wasm)|test\/[\w./-]+|docs\/[\w./-]+\.md)$/;

describe.each(PAGES)('%s', (page) => {
  const folder = path.posix.dirname(page);

  it('links to pages, anchors and files that exist', () => {
    const links = [...proseOf(page).matchAll(/\]\(([^)\s]+)\)/g)]
      .map((found) => found[1] ?? '')
      .filter((link) => !/^https?:/.test(link));
    const broken = links.filter((link) => {
      const [file = '', anchor] = link.split('#');
      const target = file === '' ? page : path.posix.join(folder, file);
      if (!existsSync(path.join(ROOT, target))) return true;
      return anchor !== undefined && !anchorsOf(target).has(anchor);
    });
    expect(broken).toEqual([]);
  });

  it('names files of the project that exist', () => {
    const named = codeIn(proseOf(page)).filter((text) => SOURCE_PATH.test(text) && !text.includes('*'));
    expect(named.filter((file) => !existsSync(path.join(ROOT, file)))).toEqual([]);
  });

  it('begins with its title, and ends every block', () => {
    expect(readPage(page)).toMatch(/^# \S/);
    expect((readPage(page).match(/^```/gm) ?? []).length).toBe(2 * blocksOf(page).length);
  });
});

describe('README.md', () => {
  it('has the two commands exactly', () => {
    const blocks = blocksOf('README.md')
      .filter(({ language }) => language === 'sh')
      .map(({ text }) => text.trim());
    expect(blocks).toContain('npm ci && npm run demo');
    expect(blocks).toContain('npm ci && npm test');
  });

  it('links to every page, and names scripts of the package that exist', () => {
    const pages = PAGES.filter((page) => page.startsWith('docs/') && !page.startsWith('docs/decisions/'));
    expect(pages.filter((page) => !readPage('README.md').includes(`(${page})`))).toEqual([]);
    const { scripts } = JSON.parse(readPage('package.json')) as { scripts: Record<string, string> };
    const named = [...readPage('README.md').matchAll(/\bnpm (?:run )?(demo|start|test|build|bench)\b/g)].map(
      (found) => found[1] ?? '',
    );
    expect(named.filter((name) => !Object.hasOwn(scripts, name))).toEqual([]);
  });
});

describe('decisions', () => {
  const decisions = PAGES.filter((page) => page.startsWith('docs/decisions/'));

  it('are numbered without a gap', () => {
    expect(decisions.length).toBeGreaterThan(0);
    expect(decisions.map((page) => Number(path.basename(page).slice(0, 4)))).toEqual(
      decisions.map((_, index) => index + 1),
    );
  });

  it.each(decisions)('%s has context, choice and consequence in 40 lines', (page) => {
    const text = readPage(page);
    expect(text.trimEnd().split('\n').length).toBeLessThanOrEqual(40);
    expect(Number(/^# (\d+)\. /.exec(text)?.[1])).toBe(Number(path.basename(page).slice(0, 4)));
    expect([...text.matchAll(/^## (.*)$/gm)].map((found) => found[1])).toEqual(['Context', 'Choice', 'Consequence']);
  });
});

describe('docs/threat-model.md', () => {
  const page = 'docs/threat-model.md';
  const threats = rowsOf(sectionOf(page, '## T1 to T10')).filter(([id]) => /^T\d+$/.test(id ?? ''));

  it('has T1 to T10 with a severity, a likelihood and the reason for it' + verifies('HA-35'), () => {
    const levels = ['critical', 'high', 'medium', 'low'];
    expect(threats.map(([id]) => id)).toEqual(Array.from({ length: 10 }, (_, index) => `T${index + 1}`));
    for (const [id, , severity, likelihood, why = ''] of threats) {
      expect(levels, id).toContain(severity);
      expect(levels.slice(1), id).toContain(likelihood);
      expect(why.length, id).toBeGreaterThan(20);
    }
  });

  it('has a checklist for operators: each control says how to check it and what to do' + verifies('HA-35'), () => {
    const controls = rowsOf(sectionOf(page, '## Checklist for operators')).filter(([number]) =>
      /^\d+$/.test(number ?? ''),
    );
    expect(controls.length).toBeGreaterThanOrEqual(10);
    for (const [number, ...cells] of controls) {
      expect(cells, number).toHaveLength(3);
      for (const cell of cells) expect(cell.length, number).toBeGreaterThan(8);
    }
    const known = new Set(readPage('docs/cli.md').match(/tollgate [a-z]+(?: [a-z]+)?/g));
    const named = sectionOf(page, '## Checklist for operators').match(/`tollgate [^`]+`/g) ?? [];
    for (const command of named)
      expect(
        [...known].some((one) => command.startsWith(`\`${one}`)),
        command,
      ).toBe(true);
  });

  it.each(threats.map(([id = '', name = '']) => [id, name] as const))(
    '%s %s: says what Tollgate does, and what remains',
    (id, name) => {
      const heading = `### ${id} ${name[0]?.toUpperCase()}${name.slice(1)}`;
      const section = sectionOf(page, heading);
      expect(section).toContain('**Here.** ');
      expect(section).toContain('**What remains.** ');
    },
  );

  it('begins with what is missing', () => {
    const missing = sectionOf(page, '## What is not there yet');
    for (const word of ['Rules on paths bind', 'No egress', 'Not signed elsewhere']) expect(missing).toContain(word);
  });

  const attacks = rowsOf(sectionOf(page, '## Attacks under test')).filter((row) => row[0]?.startsWith('`'));

  it('names thirty attacks or more', () => {
    expect(attacks.length).toBeGreaterThanOrEqual(30);
  });

  it.each(attacks.map(([attack = '', , file = '']) => [codeIn(attack)[0] ?? '', codeIn(file)[0] ?? ''] as const))(
    '%s is a test in %s',
    (attack, file) => {
      const absolute = path.join(ROOT, file);
      expect(statSync(absolute).isFile()).toBe(true);
      expect(readFileSync(absolute, 'utf8')).toContain(attack);
    },
  );
});

describe('docs/request-path.md', () => {
  it('names every key that a result can carry under tollgate/', () => {
    const sources = ['call/call.ts', 'call/refusal.ts', 'output/result-shape.ts', 'call/identify.ts']
      .map((name) => readFileSync(path.join(ROOT, 'facade', name), 'utf8'))
      .join('\n');
    const keys = new Set([...sources.matchAll(/'(tollgate\/[a-zA-Z]+)'/g)].map((found) => found[1] ?? ''));
    const named = readPage('docs/request-path.md') + readPage('docs/configuration.md');
    expect(keys.size).toBeGreaterThan(5);
    expect([...keys].filter((key) => !named.includes(key))).toEqual([]);
  });
});

describe('docs/stories.md', () => {
  const page = 'docs/stories.md';
  const named = codeIn(readPage(page)).filter((text) => text.endsWith('.yaml'));
  /** YAML files of tests that hold no cases. */
  const OTHER = [
    'harness/budgets.yaml',
    'harness/file-costs.yaml',
    'harness/skips.yaml',
    'demo/rules.yaml',
    'demo/tollgate.yaml',
    'requirements.yaml',
    'stories/pipeline/rules.yaml',
  ];

  inFull('lists every file of cases', () => {
    const files = readdirSync(path.join(ROOT, 'test'), { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.yaml') && !name.includes('node_modules') && !OTHER.includes(name))
      .map((name) => (name.startsWith('config/cases/') ? 'test/config/cases/*.yaml' : `test/${name}`));
    expect([...new Set(files)].filter((file) => !named.includes(file))).toEqual([]);
  });

  it('shows stories as they are in their files', () => {
    const files = named
      .filter((file) => !file.includes('*'))
      .map((file) => readFileSync(path.join(ROOT, file), 'utf8'));
    const shown = blocksOf(page).filter(({ text }) => text.startsWith('- name:'));
    expect(shown.length).toBeGreaterThan(2);
    for (const { text } of shown) expect(files.some((file) => file.includes(text.trimEnd()))).toBe(true);
  });
});
