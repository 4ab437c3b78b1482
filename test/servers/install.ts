/** Installs the real MCP servers and `opa` from the lock file next to it. It runs none of their scripts. */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

/** The folder in the source tree, whether this file runs as TypeScript or from dist/. */
const here = path.dirname(fileURLToPath(import.meta.url)).replace(`${path.sep}dist${path.sep}`, path.sep);
const stamp = path.join(here, 'node_modules', '.tollgate-installed');

/** Installs once per lock file. `say` gets lines of progress. Throws with the last output of npm if npm fails. */
export async function installServers(say: (line: string) => void): Promise<void> {
  const lock = createHash('sha256')
    .update(readFileSync(path.join(here, 'package-lock.json')))
    .digest('hex');
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === lock) return;
  say('installing the real servers and opa (once, about a minute; scripts stay off)');
  const started = Date.now();
  const ticker = setInterval(() => say(`  … ${Math.round((Date.now() - started) / 1000)} s`), 10_000);
  try {
    await run('npm', ['ci', '--ignore-scripts', '--no-fund', '--no-audit', '--loglevel=error']);
  } finally {
    clearInterval(ticker);
  }
  writeFileSync(stamp, lock);
  say(`installed in ${Math.round((Date.now() - started) / 1000)} s`);
}

function run(command: string, args: readonly string[]): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { cwd: here, stdio: ['ignore', 'ignore', 'pipe'] });
    let words = '';
    child.stderr.on('data', (chunk: Buffer) => {
      words = (words + chunk.toString('utf8')).slice(-2000);
    });
    child.on('error', reject);
    child.on('close', (code) => {
      if (code === 0) resolve();
      else reject(new Error(`npm ci in test/servers ended with ${code}:\n${words}`));
    });
  });
}
