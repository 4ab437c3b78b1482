import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/corpora/**/*.test.ts'],
    globalSetup: ['test/harness/global-setup.ts'],
    setupFiles: ['test/harness/property-seed.ts'],
    reporters: ['default', './test/harness/run-report.ts'],
    testTimeout: 120_000,
    // What is waited for comes later where much else runs; what never comes fails all the same.
    expect: { poll: { timeout: 10_000 } },
    maxWorkers: 2,
    isolate: false,
  },
});
