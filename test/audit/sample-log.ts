/** Sample entries, and logs of dead processes, for tests. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type ChainEntry, chainFileName, NO_HASH, sealRecord } from '../../facade/audit/audit-chain.ts';
import type { DecisionEntry, IntentEntry, OutcomeEntry } from '../../facade/audit/audit-entry.ts';
import type { AuditFilter } from '../../facade/audit/index/audit-filter.ts';
import type { IndexedRecord } from '../../facade/audit/index/audit-index.ts';
import type { AuditReader } from '../../facade/audit/index/audit-reader.ts';

const FACTS = {
  principal: { id: 'alice', role: 'dev', profiles: ['default'], origin: 'desk' },
  session: 's1',
  run: 'r1',
  exposed: 'read',
  server: 'workspace',
  tool: 'read',
  verb: 'read',
  effectDigest: 'e'.repeat(64),
  revision: 'c'.repeat(64),
  reasons: [{ id: 'allow-read', file: 'tollgate.yaml', line: 12 }],
} as const;

export function intent(id: string, more: Partial<IntentEntry> = {}): IntentEntry {
  return { type: 'intent', id, ...FACTS, outcome: 'allow', sizes: { args: 20 }, ...more };
}

export function outcome(id: string, more: Partial<OutcomeEntry> = {}): OutcomeEntry {
  return {
    type: 'outcome',
    id,
    ...FACTS,
    outcome: 'allow',
    executed: 'yes',
    sizes: { args: 20, raw: 90, sent: 80, spilled: 0 },
    cut: false,
    redactions: 0,
    escaped: 0,
    ms: 3.5,
    upstreamMs: 2,
    ...more,
  };
}

export function decision(id: string, more: Partial<DecisionEntry> = {}): DecisionEntry {
  return { type: 'decision', id, ...FACTS, outcome: 'deny', code: 'DENIED', ...more };
}

/** No process has this number. */
export const DEAD_PID = 999_999_999;
export const DEAD_CHAIN = `20260101T000000000Z-${DEAD_PID}`;

/**
 * Writes the chain of a dead process, one file for each list of entries, and returns its head. Records are one second
 * apart.
 */
export function writeDeadChain(folder: string, files: readonly (readonly ChainEntry[])[], chain = DEAD_CHAIN): string {
  mkdirSync(folder, { recursive: true });
  let [seq, prev] = [0, NO_HASH];
  const put = (entry: ChainEntry): Buffer => {
    const sealed = sealRecord(
      { entry },
      { seq: (seq += 1), ts: new Date(Date.UTC(2026, 0, 1) + seq * 1000).toISOString(), prev },
    );
    prev = sealed.hash;
    return Buffer.from(sealed.line);
  };
  for (const [part, entries] of files.entries()) {
    const mark = { chain, pid: DEAD_PID, born: 'x.1' };
    const first: ChainEntry =
      part === 0
        ? { type: 'opened', nonce: 'n', ...mark }
        : { type: 'continued', before: chainFileName(chain, part - 1), ...mark };
    writeFileSync(join(folder, chainFileName(chain, part)), Buffer.concat([first, ...entries].map(put)));
  }
  return prev;
}

/** Returns the records of a file. */
export function readRecords(path: string): Record<string, unknown>[] {
  return readFileSync(path, 'utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Record<string, unknown>);
}

/** Returns the newest records of a filter, oldest first. */
export function newest(reader: AuditReader, filter: AuditFilter, limit: number): readonly IndexedRecord[] {
  return [...reader.page(filter, { limit }).records].reverse();
}
