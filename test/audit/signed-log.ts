/** A log with a signed tree, for tests: chains of dead processes, sealed with a key. */
import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import { cpSync } from 'node:fs';
import { join } from 'node:path';
import type { ChainEntry } from '../../facade/audit/audit-chain.ts';
import { type AuditVerdict, verifyAudit } from '../../facade/audit/chain-verification.ts';
import { AuditTree } from '../../facade/audit/proof/audit-tree.ts';
import { type SealResult, sealLog } from '../../facade/audit/proof/log-sealing.ts';
import type { ProofEvidence } from '../../facade/audit/proof/proof-verification.ts';
import { temporaryFolder } from '../state/temporary-folder.ts';
import { DEAD_CHAIN, DEAD_PID, intent, outcome, writeDeadChain } from './sample-log.ts';

/** A chain next to the first, written by another process. */
export const NEXT_CHAIN = `20260102T000000000Z-${DEAD_PID}`;

/** The key of the logs of a test file. */
export const KEY = generateKeyPairSync('ed25519').privateKey;

/** Seals a log completely. */
export function seal(folder: string, key: KeyObject = KEY): SealResult {
  AuditTree.begin(folder).tree.close();
  return sealLog({ folder, key, budgetMs: 60_000, now: Date.UTC(2026, 0, 3) });
}

/** Verifies a log with its key. */
export function prove(folder: string, evidence: ProofEvidence = {}): AuditVerdict {
  return verifyAudit(folder, [], { proof: { key: KEY, ...evidence } });
}

/** Returns a log of two chains, the first of two files, and signs it. */
export function signedLog(): string {
  const folder = join(temporaryFolder(), 'audit');
  writeDeadChain(folder, [calls(1, 4), [...calls(5, 3), { type: 'closed' }]]);
  writeDeadChain(folder, [[...calls(20, 3), { type: 'closed' }]], NEXT_CHAIN);
  seal(folder);
  return folder;
}

/** Returns intents and outcomes of some calls. */
export function calls(from: number, count: number): ChainEntry[] {
  return Array.from({ length: count }, (_, at) => [intent(`${from + at}`), outcome(`${from + at}`)]).flat();
}

/** Copies a log, as someone who wants to put it back later. */
export function copyOf(folder: string): string {
  const copy = join(temporaryFolder(), 'audit');
  cpSync(folder, copy, { recursive: true });
  return copy;
}

/** Puts an older copy back. */
export function putBack(copy: string, folder: string): void {
  cpSync(copy, folder, { recursive: true });
}

export { DEAD_CHAIN };
