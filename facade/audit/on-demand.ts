/** Owns the log of whoever may have nothing to write: its chain begins with the first record; refuses as any log does, then. */
import { TollgateError } from '../../catalogs/errors.ts';
import { NO_HASH } from './chain.ts';
import { type AuditLog, type AuditOptions, openAudit } from './log.ts';

/** A log that leaves no file where nothing was appended. */
export interface AuditOnDemand extends AuditLog {
  /** Begins the chain now: for who acts first and records after, so that what could not be recorded is not begun. Throws AUDIT_FAILED. */
  begin(): void;
}

/** Opens nothing yet. Torn ends of dead processes are put aside when the chain begins, as `openAudit` does. */
export function auditOnDemand(options: AuditOptions): AuditOnDemand {
  let log: AuditLog | undefined;
  let isClosed = false;
  const opened = (): AuditLog => {
    if (isClosed && log === undefined)
      throw new TollgateError('AUDIT_FAILED', { cause: new Error('the audit log is closed') });
    return (log ??= openAudit(options));
  };
  return {
    append: (entry) => opened().append(entry),
    appendCall: (entry, facts) => opened().appendCall(entry, facts),
    begin: () => void opened(),
    get head() {
      return log?.head ?? NO_HASH;
    },
    get file() {
      return log?.file ?? '';
    },
    flush: async () => log?.flush(),
    close: async () => {
      isClosed = true;
      await log?.close();
    },
  };
}
