/**
 * The last step of the build: copies every file that is not TypeScript into dist/, and writes the code of the schemas
 * there.
 */
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, realpathSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { CODED_SCHEMAS, codeFile, makeSchemaCode } from '../../catalogs/validation/schema-code.ts';

/** Folders whose data files the compiled code reads at run time, relative to the package root. */
const FOLDERS = ['facade', 'policies', 'adapters', 'catalogs', 'test/demo', 'test/bench'] as const;

/** Files that only the source tree needs: TypeScript, tests of the Rego library, notes. */
const SOURCE_ONLY = [/\.tsx?$/, /_test\.rego$/, /\.md$/, /^\./, /\.tsbuildinfo$/];

/**
 * Copies the data files of the source folders from `root` to `target` under the same relative paths. Returns these
 * paths, sorted. tsc writes only what it compiles, so without this step dist/ has no WebAssembly, schemas or catalogs.
 */
export function copyAssets(root: string, target: string): readonly string[] {
  const copied: string[] = [];
  for (const folder of FOLDERS) {
    if (!existsSync(path.join(root, folder))) continue;
    for (const entry of readdirSync(path.join(root, folder), { recursive: true, withFileTypes: true })) {
      if (!entry.isFile() || SOURCE_ONLY.some((pattern) => pattern.test(entry.name))) continue;
      const from = path.join(entry.parentPath, entry.name);
      const relative = path.relative(root, from);
      mkdirSync(path.dirname(path.join(target, relative)), { recursive: true });
      copyFileSync(from, path.join(target, relative));
      copied.push(relative);
    }
  }
  return copied.sort();
}

/** Writes the validation code of each schema under `target` next to the schema. */
function writeSchemaCode(target: string): void {
  for (const schema of CODED_SCHEMAS) {
    const file = path.join(target, schema);
    writeFileSync(codeFile(file), makeSchemaCode(JSON.parse(readFileSync(file, 'utf8')) as object));
  }
}

const self = fileURLToPath(import.meta.url);
if (process.argv[1] !== undefined && realpathSync(process.argv[1]) === self) {
  const dist = path.join(path.dirname(self), '..', '..');
  if (path.basename(dist) !== 'dist')
    throw new Error('build-assets must run as the compiled file under dist/, not from the sources');
  copyAssets(path.dirname(dist), dist);
  writeSchemaCode(dist);
}
