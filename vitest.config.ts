import { defineConfig } from 'vitest/config';
import { LongestFirst } from './test/order.ts';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    exclude: ['test/conformance/clients/**', 'test/corpora/**', 'test/servers/**', 'node_modules/**', 'dist/**'],
    globalSetup: ['test/setup.ts'],
    setupFiles: ['test/properties/seed.ts'],
    reporters: ['default', './test/closing-line.ts'],
    testTimeout: 60_000,
    hookTimeout: 120_000,
    // What is waited for comes later where much else runs; what never comes fails all the same.
    expect: { poll: { timeout: 20_000 } },
    // One more than the gate has processors: a third of a file's time is waiting for processes and clocks.
    maxWorkers: 3,
    // A young generation that grows during a measurement looks like a reader whose time grows too fast.
    execArgv: ['--min-semi-space-size=64', '--max-semi-space-size=64'],
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
