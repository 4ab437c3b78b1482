/** The log of the process: pino on stderr, with secrets redacted. MCP uses stdout. */
import { type Logger, pino } from 'pino';
import type { Redactor } from '../output/redactor.ts';

export type { Logger } from 'pino';

/**
 * Returns the log. The stderr of servers is for debugging (CY-25): it is logged at `debug` under the server's name.
 * TOLLGATE_LOG sets the level (`debug`, `info`, `warn`, `error`, `silent`), default `warn`.
 */
export function createLog(redactor: Redactor, write: (line: string) => void, level: string | undefined): Logger {
  const known = ['debug', 'info', 'warn', 'error', 'silent'].includes(level ?? '');
  return pino(
    { level: known && level !== undefined ? level : 'warn', base: null },
    { write: (line: string) => write(redactor.redact(line).value) },
  );
}
