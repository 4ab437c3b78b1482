/** Finds the code that Tollgate ships, whether the sources, the compiled modules or the bundle runs. */
import path from 'node:path';

const ROOT = path.join(import.meta.dirname, '..', '..');

/** The folder of Tollgate's own programs: always the built one, even if the sources run. */
export const PROGRAM = path.basename(ROOT) === 'dist' ? ROOT : path.join(ROOT, 'dist');

/** The entries of the threads, which esbuild.config.mjs bundles. */
type ThreadName =
  | 'archive-thread'
  | 'audit-search-thread'
  | 'compile-thread'
  | 'policy-worker'
  | 'sandbox-thread'
  | 'seal-thread'
  | 'state-thread'
  | 'token-thread'
  | 'watchdog-thread';

/** Returns the file of the code for telemetry, which is loaded only if telemetry is exported. */
export function telemetryFile(): string {
  return path.join(PROGRAM, 'code', 'telemetry.cjs');
}

/** Returns the file of a thread: always the built one, because a thread of Node 20 cannot run TypeScript. */
export function threadFile(name: ThreadName): string {
  return path.join(PROGRAM, 'code', `${name}.cjs`);
}
