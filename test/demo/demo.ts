/** Runs the demo: the facade with three real servers, a real client over stdio and HTTP, and a transcript to read. */

import { spawn } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { installServers } from '../servers/install.ts';
import { giveAway, installSystem } from '../servers/system.ts';
import { play } from './play.ts';

const root = path.join(path.dirname(fileURLToPath(import.meta.url)), '..', '..', '..');
const main = path.join(root, 'dist', 'facade', 'main.js');
const servers = path.join(root, 'test', 'servers', 'node_modules');

/** A folder with a small project, a configuration and homes for the servers. */
function prepare(folder: string): string {
  for (const name of ['workspace/src', 'home/.claude-server-commander'])
    mkdirSync(path.join(folder, name), { recursive: true });
  const write = (name: string, text: string): void => writeFileSync(path.join(folder, name), text);
  // A client that uses this file does not have the variables of the demo.
  write(
    'tollgate.yaml',
    readFileSync(path.join(root, 'test', 'demo', 'tollgate.yaml'), 'utf8').replaceAll('${SERVERS}', () => servers),
  );
  cpSync(path.join(root, 'test', 'demo', 'rules.yaml'), path.join(folder, 'rules.yaml'));
  write('workspace/README.md', '# Demo\n\nA small project for an agent to work in.\n');
  write('workspace/src/greet.js', "export function greet(name) {\n  return 'Hello, ' + name;\n}\n");
  write('workspace/.env', 'API_KEY=not-for-agents\n');
  write(
    'workspace/log.txt',
    Array.from({ length: 6000 }, (_, index) => `${index + 1} request served in ${(index * 7) % 90} ms`).join('\n'),
  );
  write(
    'home/.claude-server-commander/config.json',
    `${JSON.stringify({ telemetryEnabled: false, allowedDirectories: [path.join(folder, 'workspace')] })}\n`,
  );
  for (const name of ['workspace', 'home']) giveAway(path.join(folder, name));
  return path.join(folder, 'tollgate.yaml');
}

async function serve(config: string): Promise<number> {
  process.stdout.write(`Serving the demo setup until you stop it (Ctrl-C).\n\n`);
  const child = spawn(process.execPath, [main, 'serve', '--config', config], {
    stdio: ['ignore', 'inherit', 'inherit'],
  });
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => child.kill('SIGTERM'));
  return new Promise((resolve) => child.on('exit', (code) => resolve(code ?? 1)));
}

const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-demo-'));
try {
  const say = (line: string): boolean => process.stderr.write(`${line}\n`);
  await installServers(say);
  installSystem(say);
  const config = prepare(folder);
  process.exitCode = process.argv.includes('--serve')
    ? await serve(config)
    : await play({ main, config, env: process.env, write: (text) => process.stdout.write(text) });
} finally {
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
}
