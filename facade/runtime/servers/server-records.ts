/** Makes audit records of server events. */
import type { ServerEvent } from '../../../adapters/port.ts';
import type { AuditOutcome, ServerEntry } from '../../audit/audit-entry.ts';
import { type AuditLog, appendQuietly } from '../../audit/audit-log.ts';
import { recordToolDrift } from '../../consent/servers/pending-tools.ts';
import type { Consents, ConsentWatcher } from '../../consent/servers/server-consents.ts';
import { changedNames } from '../../consent/servers/start-changes.ts';
import type { Logger } from '../process-log.ts';

const FAULTS: ReadonlySet<ServerEvent['event']> = new Set([
  'start.failed',
  'crashed',
  'failed',
  'disconnected',
  'reconnect.exhausted',
  'tools.failed',
]);

/** Returns the audit record of an event. */
export function serverRecordOf(event: ServerEvent): ServerEntry {
  const { event: word, server, id, ...facts } = event;
  const outcome: AuditOutcome =
    word === 'killed' || word === 'request.refused' ? 'deny' : FAULTS.has(word) ? 'error' : 'allow';
  return {
    type: 'server',
    server,
    event: word,
    ...(id === '' ? {} : { id }),
    outcome,
    ...(word === 'request.refused' && { code: 'UPSTREAM_REQUEST_DENIED' as const }),
    ...countedFacts(facts),
  };
}

/** Returns the facts of an event without names of tools, which servers choose: lists become their lengths. */
export function countedFacts(facts: Readonly<Record<string, unknown>>): Partial<ServerEntry> {
  return Object.fromEntries(
    Object.entries(facts).map(([key, value]) => [key, Array.isArray(value) ? value.length : value]),
  );
}

/** Returns what records servers that differ from their approval. `consents` is called later. */
export function recordChanges({
  consents,
  audit,
  log,
}: {
  readonly consents: () => Pick<Consents, 'tools' | 'startedAt'>;
  readonly audit: AuditLog;
  readonly log: Logger;
}): ConsentWatcher {
  return {
    onStart: (server, { changes }) => {
      log.warn(
        { server },
        `server ${server} changed since it was approved (${changedNames(changes)}) and is not started; ` +
          `review it with: tollgate approve ${server}`,
      );
      appendQuietly(audit, { type: 'server', event: 'changed', server, outcome: 'deny', changes });
    },
    onTools: (server, drift) => {
      const startedAt = (name: string): number => consents().startedAt(name);
      void recordToolDrift({ tools: consents().tools, startedAt, audit, log }, server, drift);
    },
    onFault: (thrown) => log.error({ err: thrown }, 'consent'),
  };
}
