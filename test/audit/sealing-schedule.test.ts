/** Tests when a process seals its log, with the real thread, and what it believes of a witness. */

import { createHash, generateKeyPairSync } from 'node:crypto';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path, { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { type AuditLog, openAudit } from '../../facade/audit/audit-log.ts';
import { AuditTree } from '../../facade/audit/proof/audit-tree.ts';
import { SealingSchedule } from '../../facade/audit/proof/sealing-schedule.ts';
import { parseVerifierKey, type VerifierKey } from '../../facade/audit/proof/signed-note.ts';
import type { WitnessConfig } from '../../facade/audit/proof/signing-key.ts';
import { inFull } from '../harness/full-tests.ts';
import { temporaryFolder } from '../state/temporary-folder.ts';
import { startFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';
import { readRecords } from './sample-log.ts';
import { calls, KEY, prove } from './signed-log.ts';

interface Sealed {
  readonly folder: string;
  readonly audit: AuditLog;
  readonly schedule: SealingSchedule;
  readonly told: string[];
}

/** Opens a log that seals itself. */
function open(more: { every?: number; withinMs?: number; witness?: WitnessConfig } = {}): Sealed {
  const folder = temporaryFolder();
  const audit = openAudit({ folder, rotateBytes: 1e9 });
  const told: string[] = [];
  const schedule = new SealingSchedule({
    folder,
    signing: { every: 1e6, withinMs: 3_600_000, ...more },
    workspace: '/nowhere',
    audit,
    tell: (line) => void told.push(line),
    key: () => Promise.resolve(KEY),
  });
  onTestFinished(async () => {
    await schedule.stop();
    await audit.close();
  });
  return { folder, audit, schedule, told };
}

const sizeOf = (folder: string): number => {
  const tree = AuditTree.open(folder);
  const size = tree?.last?.size ?? 0;
  tree?.close();
  return size;
};

const proofRecords = (audit: AuditLog) => readRecords(audit.file).filter(({ type }) => type === 'proof');

describe('a process', () => {
  inFull('seals after a number of records' + verifies('AD-24'), async () => {
    const { folder, audit } = open({ every: 10 });
    for (const entry of calls(1, 4)) audit.append(entry as never);
    await new Promise((resolve) => setTimeout(resolve, 1200));
    expect(sizeOf(folder)).toBe(0);
    for (const entry of calls(5, 4)) audit.append(entry as never);
    await expect.poll(() => sizeOf(folder)).toBe(18);
  });

  it('seals after a time, and the last records at its end' + verifies('AD-24'), async () => {
    const { folder, audit, schedule, told } = open({ withinMs: 1 });
    await expect.poll(() => sizeOf(folder)).toBe(2);
    expect(proofRecords(audit)).toMatchObject([{ event: 'begun', origin: expect.stringMatching(/^tollgate\.local/) }]);
    await schedule.stop();
    await audit.close();
    expect(prove(folder)).toMatchObject({ ok: true, proof: { complete: false } });
    await schedule.finish();
    expect(prove(folder)).toMatchObject({ ok: true, proof: { complete: true } });
    expect(told).toEqual([]);
  });

  it('says once why nothing is signed, and records it' + verifies('AD-30'), async () => {
    const { folder, audit, schedule, told } = open();
    await schedule.seal();
    const database = AuditTree.open(folder)!;
    database.transact(() => database.append(Buffer.alloc(32), 2));
    database.close();
    writeFileSync(join(folder, 'tree.db'), 'x'.repeat(8192));
    for (const name of ['tree.db-wal', 'tree.db-shm']) rmSync(join(folder, name), { force: true });
    for (let times = 0; times < 3; times += 1) await schedule.seal();
    expect(told).toMatchObject([
      expect.stringMatching(/^The audit log is not signed completely: The signed tree .*tree\.db/),
    ]);
    expect(proofRecords(audit)).toMatchObject([{ event: 'begun' }, { event: 'refused', reason: expect.any(String) }]);
  });

  it('begins a lost tree again, and says so' + verifies('AD-31'), async () => {
    const { folder, audit, schedule } = open();
    await schedule.seal();
    for (const name of ['tree.db', 'tree.db-wal', 'tree.db-shm']) rmSync(join(folder, name), { force: true });
    await schedule.seal();
    expect(proofRecords(audit)).toMatchObject([{ event: 'begun' }, { event: 'begun' }]);
    expect(sizeOf(folder)).toBe(3);
    expect(prove(folder)).toMatchObject({ ok: true, proof: { replaced: [expect.any(String)] } });
    for (const name of ['tree.db', 'tree.db-wal', 'tree.db-shm']) rmSync(join(folder, name), { force: true });
    expect(prove(folder).faults[0]).toMatchObject({ what: expect.stringContaining('which is missing') });
  });
});

describe('a facade', () => {
  it('signs its log when it ends, with a key that it makes' + verifies('AD-24'), async () => {
    const facade = await startFacade('version: 1\nworkspace: ./workspace\nstate: ./state\n', {
      folder: temporaryFolder(),
    });
    await facade.close();
    expect(existsSync(join(facade.folder, 'state', 'audit-signing.pem'))).toBe(true);
    expect(sizeOf(join(facade.folder, 'state', 'audit'))).toBeGreaterThan(2);
  });
});

/** Makes the key of a witness. */
function witness(how: string): WitnessConfig & { readonly verifier: VerifierKey; readonly log: string } {
  const folder = temporaryFolder();
  const { privateKey, publicKey } = generateKeyPairSync('ed25519');
  const raw = Buffer.from((publicKey.export({ format: 'jwk' }) as { x: string }).x, 'base64url');
  const body = Buffer.concat([Buffer.from([4]), raw]);
  const id = createHash('sha256').update('witness.example\n').update(body).digest('hex').slice(0, 8);
  const key = `witness.example+${id}+${body.toString('base64')}`;
  const [keyFile, log] = [join(folder, 'key.json'), join(folder, 'log')];
  writeFileSync(keyFile, JSON.stringify({ pem: privateKey.export({ format: 'pem', type: 'pkcs8' }), id }));
  const script = path.join(import.meta.dirname, '..', 'fixtures', 'witness.mjs');
  return { command: [process.execPath, script, keyFile, log, how], key, verifier: parseVerifierKey(key)!, log };
}

describe('a witness', () => {
  it('gets each checkpoint once, and its cosignature is kept' + verifies('AD-28'), async () => {
    const { command, key, verifier, log } = witness('honest');
    const { folder, audit, schedule, told } = open({ witness: { command, ...(key !== undefined && { key }) } });
    await schedule.seal();
    await schedule.seal();
    audit.append(calls(1, 1)[0] as never);
    await schedule.seal();
    expect(readFileSync(log, 'utf8').trimEnd().split('\n')).toHaveLength(2);
    expect(prove(folder, { witness: verifier }).proof.witnessed).toMatchObject({ size: sizeOf(folder) });
    expect(prove(folder, { witness: witness('honest').verifier }).proof.witnessed).toBeUndefined();
    expect(told).toEqual([]);
  });

  it('without a key confirms by its exit code' + verifies('AD-28'), async () => {
    const { command, log } = witness('nothing');
    const { schedule, told } = open({ witness: { command } });
    await schedule.seal();
    await schedule.seal();
    expect([readFileSync(log, 'utf8').trimEnd().split('\n').length, told]).toEqual([1, []]);
  });

  inFull.each(['another checkpoint', 'a wrong signature', 'garbage', 'nothing', 'megabytes', 'a failure'])(
    'that answers with %s is not believed, and is recorded once' + verifies('AD-28'),
    async (how) => {
      const { command, key } = witness(how);
      const { folder, audit, schedule, told } = open({ witness: { command, ...(key !== undefined && { key }) } });
      await schedule.seal();
      await schedule.seal();
      expect(sizeOf(folder)).toBeGreaterThan(1);
      const tree = AuditTree.open(folder);
      expect(tree?.lastCosigned).toBeUndefined();
      tree?.close();
      expect(told).toHaveLength(1);
      expect(proofRecords(audit)).toMatchObject([{ event: 'begun' }, { event: 'unwitnessed', outcome: 'error' }]);
    },
  );

  it('that hangs delays neither records nor the end' + verifies('AD-28'), async () => {
    const { command, log } = witness('hanging');
    const { folder, audit, schedule, told } = open({ witness: { command } });
    const sealing = schedule.seal();
    await expect.poll(() => existsSync(log)).toBe(true);
    audit.append(calls(1, 1)[0] as never);
    await schedule.stop();
    await sealing;
    await schedule.finish();
    expect(prove(folder)).toMatchObject({ ok: true, proof: { complete: true } });
    expect(told).toEqual([]);
  });
});
