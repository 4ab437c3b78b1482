import { defineConfig } from 'vitest/config';

/** Tests with packages that `npm run conformance` installs. It runs them too. */
export default defineConfig({
  test: {
    include: ['test/conformance/clients/**/*.test.ts'],
    reporters: ['default', './test/harness/run-report.ts'],
    testTimeout: 60_000,
    hookTimeout: 120_000,
    maxWorkers: 1,
  },
});
