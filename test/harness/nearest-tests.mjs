/** Finds the test files that are nearest to source files, for test/harness/changed.mjs and test/harness/mutants.mjs. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { parse } from 'yaml';

export const ROOT = path.join(import.meta.dirname, '..', '..');
/** What a file costs that is not in the list, seconds. */
const USUAL_SECONDS = 0.5;

const costs = parse(readFileSync(path.join(import.meta.dirname, 'file-costs.yaml'), 'utf8'));
const texts = new Map();

/** Returns the text of a file of the project; `''` if there is none. */
function textOf(file) {
  const place = path.join(ROOT, file);
  if (!texts.has(file)) texts.set(file, existsSync(place) ? readFileSync(place, 'utf8') : '');
  return texts.get(file);
}

const importsOf = (file) =>
  [...textOf(file).matchAll(/(?:from|import)\s*\(?\s*'(\.[^']+)'/g)].map(([, name]) =>
    path.join(path.dirname(file), name),
  );

/** Returns true if a test file names one of the files, or a folder around it, after `Covers:`. */
function coversOne(test, files) {
  const covered = /^ \* Covers: (.*)\.$/m.exec(textOf(test))?.[1]?.split(', ') ?? [];
  return covered.some((folder) => [...files].some((file) => file === folder || file.startsWith(`${folder}/`)));
}

/** Returns the number of imports from a test file to the nearest of the files; undefined if there is no way. */
function distanceOf(test, files) {
  let level = [test];
  const seen = new Set(level);
  for (let distance = 0; level.length > 0; distance += 1) {
    if (level.some((file) => files.has(file)) || (distance === 1 && coversOne(test, files))) return distance;
    level = level.flatMap(importsOf).filter((file) => !seen.has(file) && seen.add(file));
  }
  return undefined;
}

/** Returns the test files of `npm test` that depend on one of the files: `{file, seconds}`, the nearest first. */
export function nearestTests(files) {
  return readdirSync(path.join(ROOT, 'test'), { recursive: true, encoding: 'utf8' })
    .filter(
      (name) => /(?<!\.full)\.test\.ts$/.test(name) && !/(^|\/)(node_modules|servers|corpora|package)\//.test(name),
    )
    .map((name) => `test/${name}`)
    .map((file) => ({ file, distance: distanceOf(file, files), seconds: costs[file] ?? USUAL_SECONDS }))
    .filter(({ distance }) => distance !== undefined)
    .sort((a, b) => a.distance - b.distance || a.seconds - b.seconds);
}
