/** Owns the parsing of large YAML files in a thread of its own, ahead of who needs them, so that calls go on meanwhile; keeps only what the last reload read. */
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { nameYaml, parseYaml, type PlainYaml, type YamlFile } from './document.ts';

/** Characters from which a thread of its own pays off: some ten milliseconds of parsing. */
const LARGE = 16 * 1024;

/** By its very text, so that a file that was edited in between is parsed anew. */
let known: ReadonlyMap<string, PlainYaml> = new Map();

/** Parses the files that are large and were edited since the last time. Never rejects: what fails here is parsed, or refused, where it is needed. */
export async function parseAhead(files: readonly string[]): Promise<void> {
  const texts = await Promise.all(files.map((file) => readFile(file, 'utf8').catch(() => '')));
  const large = [...new Set(texts)].filter((text) => text.length >= LARGE);
  const fresh = large.filter((text) => !known.has(text));
  const parsed = fresh.length === 0 ? [] : await parseInThread(fresh).catch(() => []);
  const kept = large.flatMap((text) => (known.has(text) ? [[text, known.get(text) as PlainYaml] as const] : []));
  known = new Map([...kept, ...parsed.flatMap((plain, index) => [[fresh[index] ?? '', plain] as const])]);
}

/** As `readYaml`; what was parsed ahead costs nothing. */
export function readAhead(file: string, text: string): YamlFile {
  return nameYaml(file, known.get(text) ?? parseYaml(text));
}

function parseInThread(texts: readonly string[]): Promise<readonly PlainYaml[]> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(workerFile(), { workerData: texts, env: {}, execArgv: [], stdout: true, stderr: true });
    worker.once('message', resolve).once('error', reject).once('exit', () => reject(new Error('the thread ended')));
  });
}

/** Node 20 cannot run TypeScript in a worker: the sources use the built file, as a package does. */
function workerFile(): string {
  const here = path.dirname(fileURLToPath(import.meta.url));
  const beside = path.join(here, 'yaml-worker.js');
  return existsSync(beside) ? beside : path.join(here, '..', '..', 'dist', 'facade', 'config', 'yaml-worker.js');
}
