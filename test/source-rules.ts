/** Defines the rules of the source tree. Each takes a tree, so that a test can plant a violation in one. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { parseAst } from 'rolldown/parseAst';
import { verifies } from './verifies.ts';

/** The texts of all files below the root, by path. Files that are not read here have an empty text. */
export type Tree = ReadonlyMap<string, string>;

/** Returns the violations of one rule; empty if there are none. */
export type Rule = (tree: Tree) => readonly string[];

interface SyntaxNode {
  readonly type: string;
  readonly start: number;
  readonly [key: string]: unknown;
}

const FOLDERS = ['facade', 'policies', 'adapters', 'catalogs'] as const;
const NO_SOURCE = new Set(['node_modules', 'dist', 'coverage']);
const READ = /^(facade|policies|adapters|catalogs|docs|test)\/.*\.(ts|md)$/;

/** Reads the tree of a checkout. */
export function readTree(root: string): Tree {
  const files = readdirSync(root, { withFileTypes: true })
    .filter(({ name }) => !name.startsWith('.') && !NO_SOURCE.has(name))
    .flatMap((entry) => (entry.isDirectory() ? filesBelow(root, entry.name) : [entry.name]));
  return new Map(files.map((file) => [file, READ.test(file) ? readFileSync(path.join(root, file), 'utf8') : '']));
}

function filesBelow(root: string, folder: string): readonly string[] {
  return readdirSync(path.join(root, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && !entry.parentPath.includes('/node_modules'))
    .map((entry) => path.relative(root, path.join(entry.parentPath, entry.name)));
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
  'conformance',
  'corpora',
  'demo',
  'docs',
  'economics',
  'faults',
  'fixtures',
  'fuzz',
  'harness',
  'package',
  'process',
  'properties',
  'protocol',
  'races',
  'security',
  'security-sandbox',
  'servers',
  'soak',
  'stories',
  'verify',
]);
const OUTSIDE_ROOMS = ['adapters/port.ts', 'facade/app.ts', 'facade/main.ts', 'policies/port.ts'];
/** These know implementations: the entry point, the wiring, and what loads later so that a start stays short. */
const WIRING = new Set([
  'facade/main.ts',
  'facade/app.ts',
  'facade/runtime/compile-thread.ts',
  'facade/runtime/servers/offline-servers.ts',
]);
/** Third-party packages, and the only files that may import them. */
const PACKAGE_USERS: Readonly<Record<string, RegExp>> = {
  '@open-policy-agent/opa-wasm': /^policies\/engine\/wasm\//,
  libsql: /^facade\/(state|audit)\//,
  pino: /^facade\/runtime\/process-log\.ts$/,
  commander: /^facade\/cli\//,
};
/** Files outside adapters that start programs: a browser, an installer, a source of a secret, opa. */
const PROGRAM_STARTERS = new Set([
  'facade/attention/desktop-notice.ts',
  'facade/cli/configuration/login-actions.ts',
  'facade/packages/installer.ts',
  'facade/serve/console/console-commands.ts',
  'facade/secrets/secret-program.ts',
  'policies/rego/opa-program.ts',
]);
const CALL_FILE = 'facade/call/call.ts';
const GLOSSARY = 'docs/glossary.md';
/** These quote words that the glossary replaces. */
const QUOTES_OLD_WORDS = new Set([GLOSSARY, 'docs/decisions/0064-rooms-and-a-formatter.md']);
/** Lines of tests that are read as text. Data of tests may have any word. */
const STARTS_PROGRAM = /process\/child\.ts'|'\.\/child\.ts'|'dist'|\/dist\/|startFixture\('[a-z-]+\.ts'|\bMAIN\b/;
const TITLE_OR_COMMENT = /: (?:\/\*|\*|\/\/|(?:it|describe)\b)/;
/** Files under 60 lines with one caller that stay, because their name is an idea that a reader looks for. */
const NAMED_IDEAS = new Set([
  'client-channel.ts',
  'client-commands.ts',
  'client-requests.ts',
  'connect-commands.ts',
  'control-file-precondition.ts',
  'facade-instructions.ts',
  'host-profiles.ts',
  'mirrored-headers.ts',
  'multi-string-search.ts',
  'oci-image.ts',
  'operation-table.ts',
  'origin-check.ts',
  'pinned-arguments.ts',
  'policy-check-command.ts',
  'policy-rules-command.ts',
  'prompts-server.ts',
  'process-log.ts',
  'protected-resource.ts',
  'recording-sample.ts',
  'request-states.ts',
  'resolve.ts',
  'rule-faults.ts',
  'run-expiry.ts',
  'session-command.ts',
  'setup-undo.ts',
  'tool-description.ts',
  'witness.ts',
]);

/** Every rule, by the sentence that it checks. Biome checks the rest. */
export const SOURCE_RULES: Readonly<Record<string, Rule>> = {
  'has no other folder of source at the top': (tree) =>
    distinct([...tree.keys()].filter((file) => file.includes('/')).map((file) => file.split('/')[0] ?? '')).filter(
      (folder) => !['test', 'docs', ...FOLDERS].includes(folder),
    ),

  'imports along the arrows: catalogs nothing, adapters and policies catalogs, only the wiring implementations': (
    tree,
  ) => importsWhere(tree, (from, to) => !allowed(from, to)),

  'imports third-party packages in their own room only': (tree) =>
    importsWhere(tree, (from, to) => PACKAGE_USERS[to] !== undefined && !PACKAGE_USERS[to].test(from)),

  'opens each file with a comment': (tree) =>
    sourcesOf(tree).flatMap(([file, text]) => (/^(#!.*\n)?\/\*\*/.test(text) ? [] : [file])),

  'names each file after an idea': (tree) =>
    sourcesOf(tree).flatMap(([file]) => (/(^|\/)(utils?|types|helpers?|index)\.ts$/.test(file) ? [file] : [])),

  'keeps functions within 3 parameters': (tree) =>
    nodesWhere(tree, (node) => FUNCTIONS.has(node.type) && (node.params as unknown[]).length > 3),

  'keeps functions within 3 levels': (tree) =>
    nodesWhere(tree, (node, parents) => NESTING.has(node.type) && depthOf(node, parents) > 3),

  'keeps folders at 18 files, besides those of data alone': (tree) => {
    const folders = roomFiles(tree).map((file) => path.posix.dirname(file));
    return distinct(folders).filter(
      (folder) => !DATA_FOLDERS.has(folder) && folders.filter((one) => one === folder).length > 18,
    );
  },

  'leaves only the entry point, the wiring and the ports outside of a room': (tree) =>
    roomFiles(tree).filter((file) => file.split('/').length === 2 && !OUTSIDE_ROOMS.includes(file)),

  'gives no two files one name': (tree) =>
    repeated(
      sourcesOf(tree)
        .map(([file]) => path.basename(file))
        .filter((name) => name !== 'port.ts'),
    ),

  'gives no two exported types, and no two exported values, one name': (tree) =>
    repeated(
      sourcesOf(tree).flatMap(([, text]) =>
        [...text.matchAll(EXPORTED)].map(([, kind, name]) => `${TYPES.has(kind ?? '') ? 'type' : 'value'} ${name}`),
      ),
    ),

  'has no line wider than 120 columns': (tree) =>
    sourcesOf(tree).flatMap(([file, text]) =>
      text.split('\n').flatMap((line, index) => ([...line].length > 120 ? [`${file}:${index + 1}`] : [])),
    ),

  'folds files under 60 lines into their only caller, unless they name an idea': (tree) => {
    const callers = callersOf(tree);
    return sourcesOf(tree).flatMap(([file, text]) =>
      text.split('\n').length < 60 && callers.get(file)?.size === 1 && !NAMED_IDEAS.has(path.basename(file))
        ? [`${file} <- ${[...(callers.get(file) ?? [])]}`]
        : [],
    );
  },

  'uses no word that docs/glossary.md replaces': (tree) => {
    const rows = matches((tree.get(GLOSSARY) ?? '').split('## Words that are not used')[1], /^\| ([a-z][^|]*?) \|/gm);
    const words = rows.flatMap((row) => row.split(', ')).filter((word) => word !== 'instead of');
    const pattern = new RegExp(
      `\\b(?:${words.map((word) => `[${word[0]?.toUpperCase()}${word[0]}]${word.slice(1)}`).join('|')})\\b`,
    );
    return [...tree].flatMap(([file, text]) =>
      QUOTES_OLD_WORDS.has(file)
        ? []
        : text
            .split('\n')
            .map((line, at) => `${file}:${at + 1}: ${line.trim()}`)
            .filter((line) => pattern.test(line) && (!file.startsWith('test/') || TITLE_OR_COMMENT.test(line))),
    );
  },

  'names folders that exist in docs/glossary.md': (tree) => {
    const folders = new Set([...tree.keys()].flatMap(ancestors));
    return matches(tree.get(GLOSSARY), /\| `([a-z][\w./-]*)` \|$/gm).filter(
      (place) => !tree.has(place) && !folders.has(place),
    );
  },

  'has a room for every folder of tests, besides the suites that belong to no room': (tree) => {
    const rooms = new Set(sourcesOf(tree).flatMap(([file]) => path.posix.dirname(file).split('/')));
    const folders = [...tree.keys()].flatMap((file) => /^test\/([^/]+)\//.exec(file)?.[1] ?? []);
    return distinct(folders).filter((name) => !rooms.has(name) && !SUITES.has(name));
  },

  'names what it covers in each test file that starts the built program': (tree) =>
    [...tree].flatMap(([file, text]) =>
      /^test\/(?!package|corpora|conformance|harness).*\.test\.ts$/.test(file) &&
      STARTS_PROGRAM.test(text) &&
      !text.includes('Covers: ')
        ? [file]
        : [],
    ),

  'covers folders and files that exist': (tree) => {
    const folders = new Set([...tree.keys()].flatMap(ancestors));
    return [...tree].flatMap(([file, text]) =>
      (file.endsWith('.test.ts') ? (/^ \* Covers: (.*)\.$/m.exec(text)?.[1]?.split(', ') ?? []) : [])
        .filter((name) => !tree.has(name) && !folders.has(name))
        .map((name) => `${file}: ${name}`),
    );
  },

  'has a line for every folder in docs/architecture.md, and no other': (tree) => {
    const named = matches(
      tree.get('docs/architecture.md'),
      /^\| `((?:facade|policies|adapters|catalogs)\/[^`]+)` \|/gm,
    );
    const folders = distinct(roomFiles(tree).map((file) => path.posix.dirname(file))).filter((one) =>
      one.includes('/'),
    );
    return [
      ...folders.filter((folder) => !named.includes(folder)).map((folder) => `${folder} has no line`),
      ...named.filter((folder) => !folders.includes(folder)).map((folder) => `there is no ${folder}`),
    ];
  },

  'has every path that docs/architecture.md and docs/request-path.md name': (tree) => {
    const folders = new Set([...tree.keys()].flatMap(ancestors));
    return ['docs/architecture.md', 'docs/request-path.md']
      .flatMap((page) => matches(tree.get(page), /`((?:facade|policies|adapters|catalogs|test|docs)\/[\w./-]+)`/g))
      .filter((name) => !tree.has(name) && !folders.has(name.replace(/\/$/, '')));
  },

  'names only files that exist in comments': (tree) => {
    const known = new Set([...tree.keys()].map((file) => path.posix.basename(file)));
    return sourcesOf(tree).flatMap(([file, text]) =>
      matches(text, /(\/\*\*[\s\S]*?\*\/|^\s*\/\/.*$)/gm)
        .flatMap((comment) => matches(comment, /(?<![\w*-])([a-z][\w-]*\.(?:test\.)?(?:ts|rego))\b/g))
        .filter((name) => !known.has(name))
        .map((name) => `${file}: ${name}`),
    );
  },

  ['writes to stdout in main.ts only, besides the version' + verifies('CY-22')]: (tree) =>
    filesWith(tree, /\bconsole\.\w+\(|process\.stdout|\bSTDOUT\b/).filter(
      (file) => file !== 'facade/main.ts' && file !== 'facade/cli/launcher.ts',
    ),

  ['starts programs in adapters alone, besides a browser, an installer, a notice, a secret source and opa' +
    verifies('CY-21')]: (tree) =>
    filesWith(tree, /from 'node:child_process'/).filter(
      (file) => !file.startsWith('adapters/') && !PROGRAM_STARTERS.has(file),
    ),

  ['has the nine stages in call.ts in the order of docs/request-path.md' + verifies('DC-01')]: (tree) => {
    const stages = [...(tree.get(CALL_FILE) ?? '').matchAll(/\/\/ (\d) (\w+)/g)].map(([, at, name]) => `${at} ${name}`);
    const page = tree.get('docs/request-path.md') ?? '';
    const drawn = [...page.matchAll(/^\| (\d) \| (\w+) \|/gm)].map(([, at, name]) => `${at} ${name}`);
    return stages.length === 9 && stages.join() === drawn.join() ? [] : [`${stages} in the code, ${drawn} in the page`];
  },

  'has at most 15 imports and no line over 120 in call.ts': (tree) => {
    const lines = (tree.get(CALL_FILE) ?? '').split('\n');
    return [
      ...lines.filter((line) => line.length > 120),
      ...lines.filter((line) => line.startsWith('import ')).slice(15),
    ];
  },

  'passes at most 12 files from perform to the server, each once': (tree) => {
    const files = matches(tree.get('docs/request-path.md'), /^\| \d+ \| `([\w./-]+)` \| `\w+(?:\.\w+)?` \|/gm);
    return files.length > 0 && files.length <= 12 ? repeated(files) : [`${files.length} files`];
  },

  'exports only what carries a doc comment': (tree) =>
    sourcesOf(tree).flatMap(([file, text]) =>
      [...text.matchAll(/^(?<before>.*)\nexport (?:async )?(?:function|class|interface) (?<name>\w+)/gm)]
        .filter((found) => !/\*\/\s*$/.test(found.groups?.before ?? ''))
        .map((found) => `${file}: ${found.groups?.name}`),
    ),
};

/** Files below the four folders of source, data included. */
function roomFiles(tree: Tree): readonly string[] {
  return [...tree.keys()].filter((file) => FOLDERS.some((folder) => file.startsWith(`${folder}/`)));
}

function sourcesOf(tree: Tree): readonly (readonly [file: string, text: string])[] {
  return roomFiles(tree)
    .filter((file) => file.endsWith('.ts'))
    .map((file) => [file, tree.get(file) ?? '']);
}

function filesWith(tree: Tree, pattern: RegExp): readonly string[] {
  return sourcesOf(tree).flatMap(([file, text]) => (pattern.test(text) ? [file] : []));
}

function matches(text: string | undefined, pattern: RegExp): readonly string[] {
  return [...(text ?? '').matchAll(pattern)].map(([, found]) => found ?? '');
}

function distinct(names: readonly string[]): readonly string[] {
  return [...new Set(names)];
}

function repeated(names: readonly string[]): readonly string[] {
  const seen = new Set<string>();
  return names.filter((name) => seen.size === seen.add(name).size);
}

function ancestors(file: string): readonly string[] {
  const parts = file.split('/');
  return parts.slice(1).map((_, at) => parts.slice(0, at + 1).join('/'));
}

/** Several rules need the syntax tree of each file, and parsing all files takes a second. */
const parsed = new Map<string, SyntaxNode>();

function programOf(text: string): SyntaxNode {
  const program = parsed.get(text) ?? (parseAst(text, { lang: 'ts' }) as unknown as SyntaxNode);
  parsed.set(text, program);
  return program;
}

type Visit = (node: SyntaxNode, parents: readonly SyntaxNode[]) => void;

function walk(node: unknown, visit: Visit, parents: readonly SyntaxNode[] = []): void {
  if (Array.isArray(node)) for (const item of node) walk(item, visit, parents);
  if (node === null || typeof node !== 'object' || typeof (node as SyntaxNode).type !== 'string') return;
  visit(node as SyntaxNode, parents);
  const next = [...parents, node as SyntaxNode];
  for (const [key, value] of Object.entries(node))
    if (key !== 'parent' && typeof value === 'object') walk(value, visit, next);
}

function nodesWhere(tree: Tree, found: (...place: Parameters<Visit>) => boolean): readonly string[] {
  return sourcesOf(tree).flatMap(([file, text]) => {
    const places: string[] = [];
    walk(programOf(text), (node, parents) => {
      if (found(node, parents)) places.push(`${file}:${text.slice(0, node.start).split('\n').length}`);
    });
    return places;
  });
}

/** Levels of blocks around a node inside its own function; `else if` does not deepen. */
function depthOf(node: SyntaxNode, parents: readonly SyntaxNode[]): number {
  let depth = 1;
  for (let at = parents.length - 1; at >= 0; at -= 1) {
    const parent = parents[at] as SyntaxNode;
    if (FUNCTIONS.has(parent.type)) break;
    const child = parents[at + 1] ?? node;
    const isElseIf = parent.type === 'IfStatement' && parent.alternate === child && child.type === 'IfStatement';
    if (NESTING.has(parent.type) && !isElseIf) depth += 1;
  }
  return depth;
}

/** What a file imports or exports again: paths from the root, and names of packages. */
function importsOf(file: string, text: string): readonly string[] {
  return specifiersOf(text).map((from) =>
    from.startsWith('.') ? path.posix.join(path.posix.dirname(file), from) : from,
  );
}

const specifiers = new Map<string, readonly string[]>();

function specifiersOf(text: string): readonly string[] {
  const known = specifiers.get(text);
  if (known !== undefined) return known;
  const found: string[] = [];
  walk(programOf(text), (node) => {
    const from = (node.source as { value?: unknown } | undefined)?.value;
    if (/^(Import|ExportAll|ExportNamed)/.test(node.type) && typeof from === 'string') found.push(from);
  });
  specifiers.set(text, found);
  return found;
}

/** The files that import each file of source, by path. */
function callersOf(tree: Tree): ReadonlyMap<string, ReadonlySet<string>> {
  const callers = new Map<string, Set<string>>();
  for (const [file, text] of sourcesOf(tree))
    for (const to of importsOf(file, text)) callers.set(to, (callers.get(to) ?? new Set()).add(file));
  return callers;
}

function importsWhere(tree: Tree, found: (from: string, to: string) => boolean): readonly string[] {
  return sourcesOf(tree).flatMap(([file, text]) =>
    importsOf(file, text)
      .filter((to) => found(file, to))
      .map((to) => `${file} -> ${to}`),
  );
}

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
