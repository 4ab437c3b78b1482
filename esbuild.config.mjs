/**
 * The last step of the build: bundles what ships. `dist/code` gets one bundle of all commands and one of each thread,
 * with source maps, and the licences of the packages in them. `dist/facade/main.js` starts the first. tsc has compiled
 * every module for tests and benchmarks.
 */
import { copyFileSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { build } from 'esbuild';
import { CODED_SCHEMAS, codeFile } from './dist/catalogs/validation/schema-code.js';

const ROOT = import.meta.dirname;

/**
 * `require` of the code of a schema, by a path that esbuild can see. The build has written it into dist/. The
 * package does not have it a second time.
 */
const requireCode = CODED_SCHEMAS.map((schema) => path.join(ROOT, 'dist', codeFile(schema)))
  .map((file) => `file.endsWith(${JSON.stringify(path.relative(ROOT, file))}) ? require(${JSON.stringify(file)}) : `)
  .join('');

/**
 * Modules keep finding the data files next to them, although they are in a bundle: `import.meta` names their place
 * below dist/. esbuild bundles what `require` names only if `require` is not a variable.
 */
const keepPlaces = {
  name: 'keep-places',
  setup({ onLoad }) {
    onLoad({ filter: /\.ts$/ }, ({ path: file }) => {
      const place = path.relative(ROOT, file).replace(/\.ts$/, '.js');
      const contents = readFileSync(file, 'utf8')
        .replace(/^const require = createRequire\(import\.meta\.url\);$/m, '')
        .replaceAll('createRequire(import.meta.url)', 'require')
        .replaceAll('existsSync(file) && (require(file)', `((${requireCode}(() => false))`)
        .replaceAll('import.meta.url', `DIST_URL(${JSON.stringify(place)})`)
        .replaceAll('import.meta.dirname', `DIST_PATH(${JSON.stringify(path.dirname(place))})`);
      return { contents, loader: 'ts' };
    });
  },
};

const PLACES = `
const DIST_PATH = (place) => require('node:path').join(__dirname, '..', place);
const DIST_URL = (place) => require('node:url').pathToFileURL(DIST_PATH(place)).href;`;

const shared = {
  absWorkingDir: ROOT,
  bundle: true,
  platform: 'node',
  target: 'node20',
  // jsonc-parser has a `main` that hides its requires from a bundler.
  mainFields: ['module', 'main'],
  sourcemap: true,
  sourcesContent: false,
  // Half the size. The package has no source maps: a build of the same commit makes them again.
  minify: true,
  // LICENSES.txt has the whole texts.
  legalComments: 'none',
  metafile: true,
  logLevel: 'warning',
};

const bundles = await build({
  ...shared,
  format: 'cjs',
  entryPoints: { tollgate: 'facade/main.ts' },
  outdir: 'dist/code',
  outExtension: { '.js': '.cjs' },
  entryNames: '[name]-[hash]',
  banner: { js: PLACES },
  plugins: [keepPlaces],
  // Native code, which a bundle cannot contain, and what is optional.
  external: ['libsql', '@napi-rs/keyring', 'gpt-tokenizer'],
});

const threads = await build({
  ...shared,
  format: 'cjs',
  entryPoints: [
    'facade/audit/archive-thread.ts',
    'facade/audit/index/audit-search-thread.ts',
    'facade/audit/proof/seal-thread.ts',
    'facade/code/sandbox/sandbox-thread.ts',
    'facade/runtime/compile-thread.ts',
    'facade/runtime/metrics/token-thread.ts',
    'facade/runtime/telemetry/telemetry.ts',
    'facade/runtime/watchdog-thread.ts',
    'facade/state/state-thread.ts',
    'policies/engine/workers/policy-worker.ts',
  ],
  outdir: 'dist/code',
  outExtension: { '.js': '.cjs' },
  entryNames: '[name]',
  banner: { js: PLACES },
  plugins: [keepPlaces],
  external: ['libsql', '@napi-rs/keyring', 'gpt-tokenizer'],
});

// The main thread compiles it once and gives it to the threads that run code.
const quickJs = 'node_modules/@jitl/quickjs-wasmfile-release-sync/dist/emscripten-module.wasm';
copyFileSync(path.join(ROOT, quickJs), path.join(ROOT, 'dist/code/quickjs.wasm'));

const bundle = Object.keys(bundles.metafile.outputs).find((name) => name.endsWith('.cjs'));

const others = await build({
  ...shared,
  format: 'esm',
  entryPoints: {
    'facade/main': 'facade/cli/launcher.ts',
    'adapters/primitives/fetch/fetch-server': 'adapters/primitives/fetch/fetch-server.ts',
  },
  outdir: 'dist',
  define: { BUNDLE: JSON.stringify(path.basename(bundle)) },
});

// The page of the console. Its files are served as they are here, and it loads nothing else.
const pages = 'facade/serve/console/pages';
const page = await build({
  ...shared,
  platform: 'browser',
  target: 'es2022',
  format: 'iife',
  sourcemap: false,
  jsx: 'automatic',
  jsxImportSource: 'preact',
  entryPoints: { console: `${pages}/console.tsx`, 'console-style': `${pages}/console.css` },
  outdir: 'dist/code/console',
});
for (const file of ['index.html', 'icon.svg'])
  copyFileSync(path.join(ROOT, pages, file), path.join(ROOT, 'dist/code/console', file));

/** The folders of the packages whose code is in a bundle, sorted by name. */
const packages = new Set(
  [bundles, threads, others, page]
    .flatMap(({ metafile }) => Object.keys(metafile.inputs))
    .flatMap((file) => /.*node_modules\/(?:@[^/]+\/)?[^/]+(?=\/)/.exec(file) ?? []),
);

/** Returns the heading of one package, and the text of its licence. Not every package has the text in a file. */
function licenceOf(folder) {
  const at = path.resolve(ROOT, folder);
  const { name, version, license, author } = JSON.parse(readFileSync(path.join(at, 'package.json'), 'utf8'));
  const file = readdirSync(at).find((entry) => /^licen[cs]e/i.test(entry));
  const text = file === undefined ? `By ${author?.name ?? author}` : readFileSync(path.join(at, file), 'utf8').trim();
  return { heading: `${name} ${version} (${license})`, text };
}

/** Packages with one text share it. */
const headings = new Map();
for (const { heading, text } of [...packages].map(licenceOf).sort((a, b) => (a.heading < b.heading ? -1 : 1)))
  headings.set(text, [...(headings.get(text) ?? []), heading]);

writeFileSync(
  path.join(ROOT, 'dist/code/LICENSES.txt'),
  [...headings].map(([text, names]) => `${names.join('\n')}\n\n${text}\n`).join(`\n${'-'.repeat(80)}\n\n`),
);
