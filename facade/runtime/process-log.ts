/** The log of the process: pino on stderr, with secrets redacted. MCP uses stdout. */
import { type Logger, pino } from 'pino';
import type { Redactor } from '../output/redactor.ts';

export type { Logger } from 'pino';

/**
 * Returns the log. `level`: `debug`, `info`, `warn`, `error` or `silent`; default `warn`. What servers write to stderr
 * is logged at `debug` under their name (CY-25). `tenant`: each line names it.
 */
export function createLog(
  redactor: Redactor,
  write: (line: string) => void,
  { level, tenant }: { readonly level?: string | undefined; readonly tenant?: string | undefined },
): Logger {
  const known = ['debug', 'info', 'warn', 'error', 'silent'].includes(level ?? '');
  return pino(
    { level: known && level !== undefined ? level : 'warn', base: tenant === undefined ? null : { tenant } },
    { write: (line: string) => write(redactor.redact(line).value) },
  );
}
