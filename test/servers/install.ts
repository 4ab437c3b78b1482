/** Installs the real MCP servers, `opa` and the conformance suite from lock files. It runs none of their scripts. */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

/** The folder in the source tree, whether this file runs as TypeScript or from dist/. */
const here = path.dirname(fileURLToPath(import.meta.url)).replace(`${path.sep}dist${path.sep}`, path.sep);

/** Installs the real servers once per lock file. `say` gets lines of progress. Throws with the last output of npm. */
export function installServers(say: (line: string) => void): Promise<void> {
  return installFolder(here, 'the real servers and opa', say);
}

/** The folder of the conformance suite, of the Node.js that runs it, and of real clients. */
export const CONFORMANCE_PACKAGES = path.join(here, 'conformance');

/** Installs the conformance suite and real clients, as `installServers`. */
export function installConformance(say: (line: string) => void): Promise<void> {
  return installFolder(CONFORMANCE_PACKAGES, 'the conformance suite and real clients', say);
}

/** The folder of the oldest and the newest Node.js that Tollgate is tested on. */
export const NODE_PACKAGES = path.join(here, '..', 'package', 'nodes');

/** Installs these two and the conformance suite, which has a Node.js between them. As `installServers`. */
export async function installNodes(say: (line: string) => void): Promise<void> {
  await installFolder(NODE_PACKAGES, 'the oldest and the newest Node.js', say);
  await installConformance(say);
}

/**
 * Installs the packages of a lock file once, with npm of `env`. Throws one sentence with the last words of npm if it
 * fails.
 */
export async function installFolder(
  folder: string,
  what: string,
  say: (line: string) => void,
  env = process.env,
): Promise<void> {
  const stamp = path.join(folder, 'node_modules', '.tollgate-installed');
  const lock = createHash('sha256')
    .update(readFileSync(path.join(folder, 'package-lock.json')))
    .digest('hex');
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === lock) return;
  say(`installing ${what} (once, about a minute; scripts stay off)`);
  const started = Date.now();
  const ticker = setInterval(() => say(`  … ${Math.round((Date.now() - started) / 1000)} s`), 10_000);
  try {
    const failure = await runNpm(folder, env);
    if (failure !== undefined)
      throw new Error(
        `${what} could not be installed, because npm ${failure}. Check the network, and run the tests again.`,
      );
  } finally {
    clearInterval(ticker);
  }
  writeFileSync(stamp, lock);
  say(`installed in ${Math.round((Date.now() - started) / 1000)} s`);
}

/** Resolves to how npm failed; undefined if it has installed everything. */
function runNpm(cwd: string, env: NodeJS.ProcessEnv): Promise<string | undefined> {
  return new Promise((resolve) => {
    const words = ['ci', '--ignore-scripts', '--no-fund', '--no-audit', '--loglevel=error'];
    const child = spawn('npm', words, { cwd, env, stdio: ['ignore', 'ignore', 'pipe'] });
    let said = '';
    child.stderr.on('data', (chunk: Buffer) => void (said = (said + chunk.toString('utf8')).slice(-2000)));
    child.on('error', (error) => resolve(`did not start (${error.message})`));
    child.on('close', (code, signal) =>
      resolve(code === 0 ? undefined : `ended with ${code ?? signal} (${said.trim().split('\n')[0] ?? ''})`),
    );
  });
}
