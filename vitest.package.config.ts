import { defineConfig } from 'vitest/config';

/** Tests of the packed npm package and of the container image, which are made first. They print their sizes. */
export default defineConfig({
  test: {
    include: ['test/package/**/*.test.ts'],
    exclude: ['test/package/nodes/**'],
    globalSetup: ['test/harness/global-setup.ts'],
    reporters: ['default', './test/harness/run-report.ts'],
    testTimeout: 60_000,
    hookTimeout: 180_000,
    maxWorkers: 1,
    isolate: false,
  },
});
