/** Tests that the files generated from the schema of tollgate.yaml are up to date. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';

const ROOT = path.resolve(import.meta.dirname, '../..');

it('each generated file is as `npm run generate` would write it now', async () => {
  const { generate } = (await import(path.join(ROOT, 'test/config/generate.mjs'))) as {
    readonly generate: () => Promise<ReadonlyMap<string, string>>;
  };
  const files = await generate();
  expect(files.size).toBeGreaterThan(0);
  for (const [file, text] of files) expect(readFileSync(path.join(ROOT, file), 'utf8'), file).toBe(text);
});
