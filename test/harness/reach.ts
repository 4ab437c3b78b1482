/**
 * Notes which functions of the source each test file calls, for test/harness/mutants.mjs: TOLLGATE_REACH names a folder
 * that gets one file for each test file. Code in other processes and threads is not seen.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { Session } from 'node:inspector';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll } from 'vitest';

const ROOT = path.join(import.meta.dirname, '..', '..');
const SOURCE = /^(facade|policies|adapters|catalogs)\//;

interface ScriptCoverage {
  readonly url: string;
  readonly functions: readonly {
    readonly functionName: string;
    readonly ranges: readonly { readonly count: number }[];
  }[];
}

interface Reach {
  readonly session: Session;
}

const shared = globalThis as { tollgateReach?: Reach };
shared.tollgateReach ??= start();
const { session } = shared.tollgateReach;

function start(): Reach {
  const session = new Session();
  session.connect();
  session.post('Profiler.enable');
  session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
  return { session };
}

// biome-ignore lint/correctness/noEmptyPattern: Vitest reads the first parameter, and accepts only a pattern.
afterAll(({}, suite) => {
  const reached: Record<string, string[]> = {};
  session.post('Profiler.takePreciseCoverage', (_error, answer) => {
    for (const { url, functions } of (answer?.result ?? []) as readonly ScriptCoverage[]) {
      const file = path.relative(ROOT, url.startsWith('file:') ? fileURLToPath(url) : url);
      if (!SOURCE.test(file)) continue;
      const called = functions.filter(({ ranges }) => (ranges[0]?.count ?? 0) > 0).map((one) => one.functionName);
      reached[file] = [...new Set([...(reached[file] ?? []), ...called])];
    }
  });
  const folder = process.env.TOLLGATE_REACH ?? '';
  mkdirSync(folder, { recursive: true });
  const name = path.relative(ROOT, suite.file.filepath);
  writeFileSync(path.join(folder, `${name.replaceAll('/', '~')}.json`), JSON.stringify({ test: name, reached }));
});
