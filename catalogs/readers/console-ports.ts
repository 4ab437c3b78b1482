/**
 * The ports of the consoles that this user has open. Egress proxies and the fetch server refuse them, whatever the
 * configuration allows, because an agent must not reach the window of its admin.
 */
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir, userInfo } from 'node:os';
import path from 'node:path';
import { unlessUnreadable } from './missing-files.ts';

/** Addresses that lead to this machine, as they are written after parsing. */
const LOOPBACK = /^(?:localhost|127\.|0\.0\.0\.0$|::1?$|::ffff:(?:127\.|7f))/;

/** One folder for all state folders. It does not depend on the environment, which differs between processes. */
function portsFolder(): string {
  const home = unlessUnreadable(() => userInfo().homedir);
  return home === undefined
    ? path.join(tmpdir(), `tollgate-consoles-${process.getuid?.() ?? 0}`)
    : path.join(home, '.local', 'state', 'tollgate-consoles');
}

/** Returns whether a host and a port are those of an open console. */
export function isConsole(host: string, port: number): boolean {
  return LOOPBACK.test(host) && isOpen(path.join(portsFolder(), String(port)));
}

/** Notes a port until the returned function is called, or the process ends. Throws what node:fs throws. */
export function noteConsolePort(port: number): () => void {
  const folder = portsFolder();
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  for (const name of readdirSync(folder)) {
    const file = path.join(folder, name);
    if (!isOpen(file)) rmSync(file, { force: true });
  }
  const file = path.join(folder, String(port));
  writeFileSync(file, String(process.pid), { mode: 0o600 });
  return () => rmSync(file, { force: true });
}

function isOpen(file: string): boolean {
  const pid = Number(unlessUnreadable(() => readFileSync(file, 'utf8')));
  if (!Number.isSafeInteger(pid) || pid <= 0) return false;
  try {
    process.kill(pid, 0);
    return true;
  } catch (thrown) {
    return (thrown as NodeJS.ErrnoException).code === 'EPERM';
  }
}
