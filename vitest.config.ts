import { defineConfig } from 'vitest/config';
import { LongestFirst } from './test/order.ts';

const GROWTH = 'test/fuzz/growth.test.ts';
const OTHERS = [
  'test/conformance/clients/**',
  'test/corpora/**',
  'test/package/**',
  'test/servers/**',
  'node_modules/**',
  'dist/**',
];
const ARGUMENTS_OF_GROWTH = ['--min-semi-space-size=64', '--max-semi-space-size=64', '--expose-gc'];

export default defineConfig({
  test: {
    projects: [
      { extends: true, test: { name: 'tests', include: ['test/**/*.test.ts'], exclude: [...OTHERS, GROWTH] } },
      // Garbage that fills a small young generation, or that other rows left, looks like a reader whose time grows too fast.
      { extends: true, test: { name: 'growth', include: [GROWTH], execArgv: ARGUMENTS_OF_GROWTH } },
    ],
    globalSetup: ['test/setup.ts'],
    setupFiles: ['test/properties/seed.ts'],
    reporters: ['default', './test/closing-line.ts'],
    testTimeout: 60_000,
    hookTimeout: 120_000,
    // What is waited for comes later where much else runs; what never comes fails all the same.
    expect: { poll: { timeout: 20_000 } },
    // One more than the gate has processors: a third of a file's time is waiting for processes and clocks.
    maxWorkers: 3,
    // Files share a process: modules are loaded and compiled once, which halves the time of all. Each file leaves the process as it found it.
    isolate: false,
    sequence: { sequencer: LongestFirst },
    coverage: {
      provider: 'v8',
      include: ['facade/**/*.ts', 'policies/**/*.ts', 'adapters/**/*.ts', 'catalogs/**/*.ts'],
      reporter: ['text-summary', 'json-summary'],
      thresholds: { lines: 85, branches: 85 },
    },
  },
});
