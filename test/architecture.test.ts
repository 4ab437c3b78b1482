/** Tests the house itself: arrows between folders, sizes, opening comments, and that only the wire writes to stdout. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { parseAst } from 'rolldown/parseAst';
import { describe, expect, it } from 'vitest';
import { verifies } from './verifies.ts';

const root = path.join(import.meta.dirname, '..');
const FOLDERS = ['facade', 'policies', 'adapters', 'catalogs'] as const;

interface Source {
  readonly file: string;
  readonly text: string;
  readonly program: Node;
}
interface Node {
  readonly type: string;
  readonly start: number;
  readonly end: number;
  readonly [key: string]: unknown;
}

function sources(): Source[] {
  return FOLDERS.flatMap((folder) =>
    readdirSync(path.join(root, folder), { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.ts'))
      .map((name) => {
        const file = path.posix.join(folder, name);
        const text = readFileSync(path.join(root, file), 'utf8');
        return { file, text, program: parseAst(text, { lang: 'ts' }) as unknown as Node };
      }),
  );
}

function walk(
  node: unknown,
  visit: (node: Node, parents: readonly Node[]) => void,
  parents: readonly Node[] = [],
): void {
  if (Array.isArray(node)) for (const item of node) walk(item, visit, parents);
  if (node === null || typeof node !== 'object' || typeof (node as Node).type !== 'string') return;
  visit(node as Node, parents);
  const next = [...parents, node as Node];
  for (const [key, value] of Object.entries(node))
    if (key !== 'parent' && typeof value === 'object') walk(value, visit, next);
}

function importsOf(source: Source): { to: string; typeOnly: boolean }[] {
  const found: { to: string; typeOnly: boolean }[] = [];
  walk(source.program, (node) => {
    const from = (node.source as { value?: unknown } | undefined)?.value;
    if (!/^(Import|ExportAll|ExportNamed)/.test(node.type) || typeof from !== 'string') return;
    const to = from.startsWith('.') ? path.posix.join(path.posix.dirname(source.file), from) : from;
    found.push({ to, typeOnly: node.importKind === 'type' || node.exportKind === 'type' });
  });
  return found;
}

const FUNCTIONS = new Set(['FunctionDeclaration', 'FunctionExpression', 'ArrowFunctionExpression']);
const NESTING = new Set([
  'IfStatement',
  'ForStatement',
  'ForOfStatement',
  'ForInStatement',
  'WhileStatement',
  'DoWhileStatement',
  'SwitchStatement',
  'TryStatement',
]);
const lineOf = (text: string, at: number): number => text.slice(0, at).split('\n').length;
const all = sources();

describe('the house', () => {
  it('has no other folder of source at the top', () => {
    const known = new Set([...FOLDERS, 'test', 'docs', 'node_modules', 'dist', 'coverage']);
    const folders = readdirSync(root, { withFileTypes: true })
      .filter((entry) => entry.isDirectory() && !entry.name.startsWith('.'))
      .map((entry) => entry.name);
    expect(folders.filter((name) => !known.has(name))).toEqual([]);
  });

  it('keeps the arrows: catalogs know nobody, adapters and policies only catalogs, one file wires', () => {
    const wrong = all.flatMap((source) =>
      importsOf(source)
        .filter(({ to }) => !allowed(source.file, to))
        .map(({ to }) => `${source.file} -> ${to}`),
    );
    expect(wrong).toEqual([]);
  });

  it('keeps third-party packages at home', () => {
    const homes: Record<string, RegExp> = {
      '@open-policy-agent/opa-wasm': /^policies\/wasm\.ts$/,
      libsql: /^facade\/(state|audit)\//,
      pino: /^facade\/log\.ts$/,
      commander: /^facade\/cli\//,
    };
    const strays = all.flatMap((source) =>
      importsOf(source)
        .filter(({ to }) => homes[to] !== undefined && !homes[to].test(source.file))
        .map(({ to }) => `${source.file} -> ${to}`),
    );
    expect(strays).toEqual([]);
  });

  it('keeps files within 400 lines, and opens each with a comment', () => {
    const wrong = all.flatMap(({ file, text }) => {
      const faults: string[] = [];
      if (text.split('\n').length > 401) faults.push(`${file}: ${text.split('\n').length - 1} lines`);
      if (!/^(#!.*\n)?\/\*\*/.test(text)) faults.push(`${file}: no opening comment`);
      if (/(^|\/)(utils?|types|helpers?|index)\.ts$/.test(file)) faults.push(`${file}: a name that owns nothing`);
      return faults;
    });
    expect(wrong).toEqual([]);
  });

  it('keeps functions within 60 lines, 3 parameters and 3 levels', () => {
    const wrong = all.flatMap((source) => {
      const faults: string[] = [];
      walk(source.program, (node, parents) => {
        const place = `${source.file}:${lineOf(source.text, node.start)}`;
        if (FUNCTIONS.has(node.type)) {
          const lines = lineOf(source.text, node.end) - lineOf(source.text, node.start) + 1;
          const parameters = (node.params as unknown[]).length;
          if (lines > 60) faults.push(`${place}: ${lines} lines`);
          if (parameters > 3) faults.push(`${place}: ${parameters} parameters`);
        }
        if (NESTING.has(node.type) && depthOf(node, parents) > 3) faults.push(`${place}: nested too deeply`);
      });
      return faults;
    });
    expect(wrong).toEqual([]);
  });

  it('writes to stdout in the wire only' + verifies('CY-22'), () => {
    const wrong = all
      .filter(({ file, text }) => /\bconsole\.|process\.stdout/.test(text) && file !== 'facade/main.ts')
      .map(({ file }) => file);
    expect(wrong).toEqual([]);
  });

  it(
    'starts programs in adapters alone, besides a browser, an installer, a source of a secret and opa' +
      verifies('CY-21'),
    () => {
      const starters = all
        .filter(({ text }) => /from 'node:child_process'/.test(text))
        .map(({ file }) => file)
        .filter((file) => !file.startsWith('adapters/'));
      expect(starters.sort()).toEqual([
        'facade/cli/login.ts',
        'facade/connect/install.ts',
        'facade/secrets/program.ts',
        'policies/opa.ts',
      ]);
    },
  );

  it('has the nine stages in call.ts in the order of the picture in the docs' + verifies('DC-01'), () => {
    const stages = [...readFileSync(path.join(root, 'facade/call.ts'), 'utf8').matchAll(/\/\/ (\d) (\w+)/g)].map(
      (found) => `${found[1]} ${found[2]}`,
    );
    const drawn = [
      ...readFileSync(path.join(root, 'docs/request-path.md'), 'utf8').matchAll(/^\| (\d) \| (\w+) \|/gm),
    ].map((found) => `${found[1]} ${found[2]}`);
    expect(stages).toEqual(drawn);
    expect(stages).toHaveLength(9);
  });

  it('exports only what carries a doc comment', () => {
    const wrong = all.flatMap((source) => {
      const bare = [
        ...source.text.matchAll(/^(?<before>.*)\nexport (?:async )?(?:function|class|interface) (?<name>\w+)/gm),
      ].filter((found) => !/\*\/\s*$/.test(found.groups?.before ?? ''));
      return bare.map((found) => `${source.file}: ${found.groups?.name}`);
    });
    expect(wrong).toEqual([]);
  });
});

/** Levels of blocks around a node inside its own function; `else if` and a try around all do not deepen. */
function depthOf(node: Node, parents: readonly Node[]): number {
  let depth = 1;
  for (let at = parents.length - 1; at >= 0; at -= 1) {
    const parent = parents[at] as Node;
    if (FUNCTIONS.has(parent.type)) break;
    const isElseIf =
      parent.type === 'IfStatement' &&
      parent.alternate === (parents[at + 1] ?? node) &&
      (parents[at + 1] ?? node).type === 'IfStatement';
    if (NESTING.has(parent.type) && !isElseIf) depth += 1;
  }
  return depth;
}

function allowed(from: string, to: string): boolean {
  const home = from.split('/')[0];
  const target = to.split('/')[0];
  if (!FOLDERS.some((folder) => folder === target) || home === target) return true;
  if (home === 'catalogs') return false;
  if (home === 'adapters' || home === 'policies') return target === 'catalogs';
  if (/^facade\/(main|wiring|offline|compile-thread)\.ts$/.test(from) || target === 'catalogs') return true;
  return (
    to === 'adapters/port.ts' ||
    to === 'policies/port.ts' ||
    to === 'policies/authoring.ts' ||
    to.startsWith('adapters/rpc/')
  );
}
