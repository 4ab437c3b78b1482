/** Tests the house itself: arrows between folders, sizes, opening comments, and that only the wire writes to stdout. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
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
const EXPORTED = /^export (?:abstract )?(?:async )?(interface|type|class|function\*?|const) (\w+)/gm;
const TYPES = new Set(['interface', 'type', 'class']);
/** Folders that hold data alone, or data with the code that reads it. */
const DATA_FOLDERS = new Set(['policies/lib', 'policies/starter', 'catalogs/servers']);
/** Folders of tests that belong to no room: whole programs, attacks, properties, and what tests start. */
const SUITES = new Set([
  'bench',
  'corpora',
  'demo',
  'docs',
  'faults',
  'fixtures',
  'fuzz',
  'process',
  'properties',
  'races',
  'security',
  'security-sandbox',
  'servers',
  'soak',
  'stories',
  'verify',
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
      '@open-policy-agent/opa-wasm': /^policies\/engine\/wasm\//,
      libsql: /^facade\/(state|audit)\//,
      pino: /^facade\/runtime\/process-log\.ts$/,
      commander: /^facade\/cli\//,
    };
    const strays = all.flatMap((source) =>
      importsOf(source)
        .filter(({ to }) => homes[to] !== undefined && !homes[to].test(source.file))
        .map(({ to }) => `${source.file} -> ${to}`),
    );
    expect(strays).toEqual([]);
  });

  it('opens each file with a comment, and names it after an idea', () => {
    const wrong = all.flatMap(({ file, text }) => {
      const faults: string[] = [];
      if (!/^(#!.*\n)?\/\*\*/.test(text)) faults.push(`${file}: no opening comment`);
      if (/(^|\/)(utils?|types|helpers?|index)\.ts$/.test(file)) faults.push(`${file}: a name that owns nothing`);
      return faults;
    });
    expect(wrong).toEqual([]);
  });

  it('keeps functions within 3 parameters and 3 levels; Biome limits their lines and complexity', () => {
    const wrong = all.flatMap((source) => {
      const faults: string[] = [];
      walk(source.program, (node, parents) => {
        const place = `${source.file}:${lineOf(source.text, node.start)}`;
        if (FUNCTIONS.has(node.type)) {
          const parameters = (node.params as unknown[]).length;
          if (parameters > 3) faults.push(`${place}: ${parameters} parameters`);
        }
        if (NESTING.has(node.type) && depthOf(node, parents) > 3) faults.push(`${place}: nested too deeply`);
      });
      return faults;
    });
    expect(wrong).toEqual([]);
  });

  it('keeps every folder at 18 files, besides folders of data alone', () => {
    const files = FOLDERS.flatMap(filesIn);
    const inside = new Map<string, number>();
    for (const file of files) inside.set(path.posix.dirname(file), (inside.get(path.posix.dirname(file)) ?? 0) + 1);
    const full = [...inside].filter(([folder, count]) => count > 18 && !DATA_FOLDERS.has(folder));
    expect(full).toEqual([]);
  });

  it('leaves only the entry point, the wiring and the ports outside of a room', () => {
    const loose = FOLDERS.flatMap(filesIn).filter((file) => file.split('/').length === 2);
    expect(loose.sort()).toEqual(['adapters/port.ts', 'facade/app.ts', 'facade/main.ts', 'policies/port.ts']);
  });

  it('gives no two files, and no two exported types or values, one name', () => {
    const names = all.flatMap(({ file, text }) => [
      ...(path.basename(file) === 'port.ts' ? [] : [`file ${path.basename(file)}`]),
      ...[...text.matchAll(EXPORTED)].map(([, kind, name]) => `${TYPES.has(kind ?? '') ? 'type' : 'value'} ${name}`),
    ]);
    expect(names.filter((name, at) => names.indexOf(name) !== at)).toEqual([]);
  });

  it('has a room for every folder of tests, besides the suites that belong to no room', () => {
    const rooms = new Set(all.flatMap(({ file }) => path.posix.dirname(file).split('/')));
    const folders = readdirSync(path.join(root, 'test'), { withFileTypes: true }).filter((entry) =>
      entry.isDirectory(),
    );
    expect(folders.map(({ name }) => name).filter((name) => !rooms.has(name) && !SUITES.has(name))).toEqual([]);
  });

  it('is the house that docs/architecture.md shows: every folder has a line, and every path of the page exists', () => {
    const page = readFileSync(path.join(root, 'docs/architecture.md'), 'utf8');
    const named = [...page.matchAll(/^\| `((?:facade|policies|adapters|catalogs)\/[^`]+)` \|/gm)].map(
      ([, name]) => name,
    );
    const folders = new Set(FOLDERS.flatMap(filesIn).map((file) => path.posix.dirname(file)));
    expect(named.sort()).toEqual([...folders].filter((folder) => folder.includes('/')).sort());
    const paths = [...page.matchAll(/`((?:facade|policies|adapters|catalogs|test|docs)\/[\w./-]+)`/g)].map(
      ([, name]) => name,
    );
    expect(paths.filter((name) => !existsSync(path.join(root, name ?? '')))).toEqual([]);
  });

  it('names only files that exist in comments', () => {
    const known = new Set([...FOLDERS, 'test'].flatMap(filesIn).map((file) => path.posix.basename(file)));
    const wrong = all.flatMap(({ file, text }) =>
      [...text.matchAll(/\/\*\*[\s\S]*?\*\/|^\s*\/\/.*$/gm)]
        .flatMap(([comment]) => [...comment.matchAll(/(?<![\w*-])([a-z][\w-]*\.(?:test\.)?(?:ts|rego))\b/g)])
        .filter(([, name]) => !known.has(name ?? ''))
        .map(([, name]) => `${file}: ${name}`),
    );
    expect(wrong).toEqual([]);
  });

  it('has no cycles of imports, types included', () => {
    expect(filesInCycles()).toEqual([]);
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
        'facade/cli/configuration/login-actions.ts',
        'facade/cli/connect/package-install.ts',
        'facade/secrets/secret-program.ts',
        'policies/rego/opa-program.ts',
      ]);
    },
  );

  it('has the nine stages in call.ts in the order of the picture in the docs' + verifies('DC-01'), () => {
    const stages = [...readFileSync(path.join(root, 'facade/call/call.ts'), 'utf8').matchAll(/\/\/ (\d) (\w+)/g)].map(
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

/** Every file below a folder, as a path from the root. */
function filesIn(folder: string): string[] {
  return readdirSync(path.join(root, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(root, path.join(entry.parentPath, entry.name)));
}

/** Groups of files that import each other (Tarjan's strongly connected components). */
function filesInCycles(): readonly string[] {
  const imports = new Map(all.map((source) => [source.file, importsOf(source).map(({ to }) => to)]));
  const index = new Map<string, number>();
  const low = new Map<string, number>();
  const stack: string[] = [];
  const found: string[] = [];
  const visit = (file: string): void => {
    index.set(file, index.size);
    low.set(file, index.get(file) ?? 0);
    stack.push(file);
    for (const to of imports.get(file) ?? []) {
      if (!imports.has(to)) continue;
      if (!index.has(to)) visit(to);
      if (stack.includes(to)) low.set(file, Math.min(low.get(file) ?? 0, low.get(to) ?? 0));
    }
    if (low.get(file) !== index.get(file)) return;
    const component = stack.splice(stack.indexOf(file));
    if (component.length > 1) found.push(component.sort().join(', '));
  };
  for (const file of imports.keys()) if (!index.has(file)) visit(file);
  return found;
}

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

/** The files that know implementations: the entry point, the wiring, and what is loaded apart from it to keep starts short. */
const WIRING = new Set([
  'facade/main.ts',
  'facade/app.ts',
  'facade/runtime/compile-thread.ts',
  'facade/runtime/servers/offline-servers.ts',
]);

function allowed(from: string, to: string): boolean {
  const home = from.split('/')[0];
  const target = to.split('/')[0];
  if (!FOLDERS.some((folder) => folder === target) || home === target) return true;
  if (home === 'catalogs') return false;
  if (home === 'adapters' || home === 'policies') return target === 'catalogs';
  if (WIRING.has(from) || target === 'catalogs') return true;
  return (
    to === 'adapters/port.ts' ||
    to === 'policies/port.ts' ||
    to === 'policies/authoring/authoring-port.ts' ||
    to.startsWith('adapters/rpc/')
  );
}
