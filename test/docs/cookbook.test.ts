/** Runs the cases of every recipe of the cookbook with `tollgate policy test`. A recipe without cases fails. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { cli } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { partOf } from '../harness/slices.ts';
import { type Block, blocksOf, readPage, sectionOf } from './markdown.ts';

const PAGE = 'docs/cookbook.md';
const recipes = [...readPage(PAGE).matchAll(/^### (.+)$/gm)].map((found) => found[1] ?? '');
const [shared] = blocksOf(PAGE);
/** The base rules of recipes that only deny or ask. */
const EVERYTHING = 'rules:\n  - id: everything\n    outcome: allow\n    when: {}\n';

let project: Project;
beforeAll(() => void (project = new Project()));
afterAll(() => project.remove());

interface Recipe {
  /** The rules, in YAML or Rego, or a whole configuration. */
  readonly rule: Block;
  readonly suite: Block;
}

function read(title: string): Recipe {
  const section = sectionOf(PAGE, `### ${title}`);
  const blocks = blocksOf(PAGE).filter(({ text }) => section.includes(text));
  const [rule, suite, ...more] = blocks;
  if (rule === undefined || suite === undefined || more.length > 0 || !/^cases:/m.test(suite.text))
    throw new Error(`${title}: one block of rules and one of cases are needed`);
  return { rule, suite };
}

/** Runs the cases of a recipe in a project that has nothing else. */
async function run({ rule, suite }: Recipe): Promise<{ code: number; out: string; err: string }> {
  const folder = `policies/${rule.line}`;
  const file = `${folder}/recipe.${rule.language}`;
  const isWhole = /^servers:/m.test(rule.text);
  const alone = isWhole || /outcome: allow|^allow contains/m.test(rule.text);
  project.write(`${folder}/everything.yaml`, EVERYTHING);
  project.write(`${folder}/recipe_suite.yaml`, suite.text);
  if (!isWhole) project.write(file, rule.text);
  const policies = isWhole ? [] : [file, ...(alone ? [] : [`${folder}/everything.yaml`])];
  const config = project.write(
    'tollgate.yaml',
    `${isWhole ? rule.text : (shared?.text ?? '')}\npolicies: [${policies.join(', ')}]\n`,
  );
  return cli(project, ['policy', 'test', `${folder}/recipe_suite.yaml`, '--config', config]);
}

describe('docs/cookbook.md', () => {
  it('has at least 25 recipes with different names, five of them in Rego', () => {
    expect(new Set(recipes).size).toBe(recipes.length);
    expect(recipes.length).toBeGreaterThanOrEqual(25);
    expect(recipes.map(read).filter(({ rule }) => rule.language === 'rego').length).toBeGreaterThanOrEqual(5);
  });

  const isRego = (title: string): boolean => read(title).rule.language === 'rego';
  const tried = [
    ...partOf(
      recipes.filter((title) => !isRego(title)),
      5,
    ),
    ...partOf(recipes.filter(isRego), 2),
  ];
  it.each(partOf(tried, 2))('%s: passes its cases in opa and in the built wasm', async (title) => {
    const { code, out, err } = await run(read(title));
    expect([code, out.split('\n').filter((line) => line.startsWith('FAIL')), err]).toEqual([0, [], '']);
    expect(out).not.toContain('WebAssembly only');
  });

  it.each(recipes)('%s: allows at least one call and refuses at least one', (title) => {
    const { suite } = read(title);
    const expected = [...suite.text.matchAll(/\bexpect: (\w+)/g)].map(([, word]) => word);
    expect(expected).toContain('allow');
    expect(expected.some((word) => word === 'deny' || word === 'ask')).toBe(true);
  });
});
