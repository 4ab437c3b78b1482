import { defineConfig } from 'vitest/config';
import { LongestFirst } from './test/harness/file-order.ts';
import { filesInFull } from './test/harness/files-in-full.ts';

const GROWTH = 'test/fuzz/growth.test.ts';
const OTHERS = [
  'test/conformance/clients/**',
  'test/corpora/**',
  'test/package/**',
  'test/servers/**',
  // Files that run in `npm run test:all` only.
  ...(process.env.TOLLGATE_TESTS === undefined ? ['test/**/*.full.test.ts'] : []),
  'node_modules/**',
  'dist/**',
];
const ARGUMENTS_OF_GROWTH = ['--min-semi-space-size=64', '--max-semi-space-size=64', '--expose-gc'];

const SHARED = {
  setupFiles: ['test/harness/file-costs.ts', 'test/harness/property-seed.ts'],
  // Only what hangs reaches these. A busy machine takes long, and `npm run test:all` does far more in one test.
  testTimeout: process.env.TOLLGATE_TESTS === undefined ? 120_000 : 300_000,
  hookTimeout: 300_000,
  // What is waited for comes later where much else runs; what never comes fails all the same.
  expect: { poll: { timeout: 20_000 } },
  // Files share a process: modules are loaded and compiled once, which halves the time of all. Each file leaves the process as it found it.
  isolate: false,
};

/** The test files to run. A wrong TOLLGATE_TESTS ends the run with a sentence. */
function included(): string[] {
  try {
    return filesInFull() ?? ['test/**/*.test.ts'];
  } catch (thrown) {
    process.stderr.write(`${(thrown as Error).message}\n`);
    process.exit(2);
  }
}

export default defineConfig({
  test: {
    projects: [
      {
        test: {
          ...SHARED,
          name: 'tests',
          include: included(),
          exclude: [...OTHERS, GROWTH],
        },
      },
      // Garbage that fills a small young generation, or that other rows left, looks like a reader whose time grows too fast.
      { test: { ...SHARED, name: 'growth', include: [GROWTH], execArgv: ARGUMENTS_OF_GROWTH } },
    ],
    globalSetup: ['test/harness/global-setup.ts'],
    reporters: ['default', './test/harness/run-report.ts'],
    // A line for each test that takes longer would hide the failures.
    slowTestThreshold: 10_000,
    // One more than the gate has processors: a part of the time of a file is waiting for processes and clocks.
    maxWorkers: 3,
    sequence: { sequencer: LongestFirst },
    // The second run of a file transforms nothing that has not changed.
    experimental: { fsModuleCache: true },
    coverage: {
      provider: 'v8',
      include: ['facade/**/*.ts', 'policies/**/*.ts', 'adapters/**/*.ts', 'catalogs/**/*.ts'],
      reporter: ['text-summary', 'json-summary'],
      thresholds: { lines: 85, branches: 85 },
    },
  },
});
