/** Owns what must be installed once before any test runs: the real servers, the real `opa`, and ripgrep where the system has none. */
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { installServers } from './servers/install.ts';

export default async function setup(): Promise<void> {
  const say = (line: string): boolean => process.stderr.write(`${line}\n`);
  await installServers(say);
  installRipgrep(say);
}

/** One of the two ways to search needs ripgrep, and tests of it must not pass without it. A server of the tests brings one along for most systems. */
function installRipgrep(say: (line: string) => boolean): void {
  const brought = path.join(import.meta.dirname, 'servers', 'node_modules', '@vscode', `ripgrep-${process.platform}-${process.arch}`, 'bin', 'rg');
  if (existsSync(brought) || spawnSync('rg', ['--version']).status === 0) return;
  say('installing ripgrep with apt');
  for (const words of [['update', '-qq'], ['install', '-y', '-qq', 'ripgrep']]) spawnSync('apt-get', words, { stdio: 'ignore' });
  if (spawnSync('rg', ['--version']).status !== 0) throw new Error('ripgrep is missing and apt-get could not install it; install it: sudo apt-get install ripgrep');
}
