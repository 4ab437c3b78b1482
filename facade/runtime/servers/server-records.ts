/** Makes audit records of server events. */
import type { ServerEvent } from '../../../adapters/port.ts';
import type { AuditOutcome, ServerEntry } from '../../audit/audit-entry.ts';

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
