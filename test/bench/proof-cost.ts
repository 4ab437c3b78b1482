/**
 * Measures what the proof of the log costs: `node dist/test/bench/proof-cost.js [RECORDS]`. Prints processor time, which
 * other work on the machine does not change much.
 */
import { generateKeyPairSync } from 'node:crypto';
import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { openAudit } from '../../facade/audit/audit-log.ts';
import { verifyAudit } from '../../facade/audit/chain-verification.ts';
import { AuditTree, TREE_FILE } from '../../facade/audit/proof/audit-tree.ts';
import { sealLog } from '../../facade/audit/proof/log-sealing.ts';
import { proofStatus } from '../../facade/audit/proof/proof-status.ts';
import { intent, outcome } from '../audit/sample-log.ts';

const records = Number(process.argv[2] ?? 1_000_000);
const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-proof-'));
const key = generateKeyPairSync('ed25519').privateKey;
const say = (line: string): boolean => process.stdout.write(`${line}\n`);

/** Returns the processor time of work, ms. */
function cpuOf(work: () => void): number {
  const { user, system } = process.cpuUsage();
  work();
  const after = process.cpuUsage();
  return (after.user + after.system - user - system) / 1000;
}

const seal = () => sealLog({ folder, key, budgetMs: 3_600_000, now: Date.now() });

async function append(count: number): Promise<void> {
  const log = openAudit({ folder, rotateBytes: 67_108_864 });
  for (let n = 0; n < count; n += 2) {
    log.append(intent(String(n)));
    log.append(outcome(String(n)));
  }
  await log.close();
}

try {
  await append(records);
  AuditTree.begin(folder).tree.close();
  const bytes = readdirSync(folder)
    .filter((name) => name.endsWith('.jsonl'))
    .reduce((sum, name) => sum + statSync(path.join(folder, name)).size, 0);
  const sealMs = cpuOf(seal);
  const tree = statSync(path.join(folder, TREE_FILE)).size;
  say(`${records} records, ${Math.round(bytes / 1e6)} MB; tree ${(tree / records).toFixed(0)} bytes a record`);
  say(`sealed in ${(sealMs / 1000).toFixed(1)} s: ${Math.round((1000 * records) / sealMs)} records/s`);
  const verifyMs = cpuOf(() => {
    if (!verifyAudit(folder, [], { proof: { key } }).proof.complete) throw new Error('the log is not proven');
  });
  say(`verified in ${(verifyMs / 1000).toFixed(1)} s`);
  await append(100);
  say(`a round of 100 records: ${cpuOf(seal).toFixed(1)} ms`);
  const status = { state: folder, audit: { folder, signing: { every: 1, withinMs: 1 } } };
  say(`status: ${cpuOf(() => void proofStatus(status)).toFixed(1)} ms`);
} finally {
  rmSync(folder, { recursive: true });
}
