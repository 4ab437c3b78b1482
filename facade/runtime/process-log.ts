/** Owns the log of the process: pino on stderr, secrets redacted; stdout belongs to the wire. */
import { type Logger, pino } from 'pino';
import type { Redactor } from '../output/redactor.ts';

export type { Logger } from 'pino';

/**
 * The log. Backends' stderr is debug material (CY-25): it is logged at `debug` under the server's name. Level from
 * TOLLGATE_LOG (`debug`, `info`, `warn`, `error`, `silent`), default `warn`.
 */
export function createLog(redactor: Redactor, write: (line: string) => void, level: string | undefined): Logger {
  const known = ['debug', 'info', 'warn', 'error', 'silent'].includes(level ?? '');
  return pino(
    { level: known && level !== undefined ? level : 'warn', base: null },
    { write: (line: string) => write(redactor.redact(line).value) },
  );
}
