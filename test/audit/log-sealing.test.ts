/**
 * Tests that the sealing takes in whole records only, and never signs two different trees.
 * Covers: facade/audit.
 */

import { appendFileSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { chainFileName } from '../../facade/audit/audit-chain.ts';
import { openAudit } from '../../facade/audit/audit-log.ts';
import { AuditTree } from '../../facade/audit/proof/audit-tree.ts';
import { openDatabase } from '../../facade/state/database.ts';
import { inFull } from '../harness/full-tests.ts';
import { roundsOf } from '../harness/slices.ts';
import { empty, fill, mountSmallDisk, unmount } from '../state/small-disk.ts';
import { startFixture, temporaryFolder } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';
import { DEAD_PID, intent, outcome, writeDeadChain } from './sample-log.ts';
import { calls, DEAD_CHAIN, KEY, NEXT_CHAIN, prove, seal, signedLog } from './signed-log.ts';

const FIRST = chainFileName(DEAD_CHAIN, 0);
const LATER = `20260103T000000000Z-${DEAD_PID}`;

describe('sealing', () => {
  it('takes in what living chains have appended, in any number of rounds' + verifies('AD-22'), async () => {
    const folder = temporaryFolder();
    const [one, two] = [openAudit({ folder, rotateBytes: 3000 }), openAudit({ folder, rotateBytes: 1e9 })];
    let kept = '';
    for (let round = 0; round < 12; round += 1) {
      for (let at = 0; at < round; at += 1) one.append(outcome(`${round}.${at}`));
      if (round % 3 === 0) two.append(intent(`${round}`));
      const { note, size, withheld } = seal(folder);
      expect(withheld).toEqual([]);
      expect(prove(folder, { kept: kept === '' ? new Map() : new Map([['kept', kept]]) })).toMatchObject({
        ok: true,
        records: size,
        proof: { complete: true },
      });
      kept = note ?? kept;
    }
    expect(seal(folder).note).toBeUndefined();
    await Promise.all([one.close(), two.close()]);
    expect(prove(folder)).toMatchObject({ ok: true, proof: { unsigned: 2 } });
    seal(folder);
    expect(prove(folder)).toMatchObject({ ok: true, proof: { complete: true } });
  });

  it('leaves an incomplete line, and goes on after it was completed or cut' + verifies('AD-22'), async () => {
    const folder = temporaryFolder();
    writeDeadChain(folder, [calls(1, 2)]);
    const whole = readFileSync(join(folder, FIRST));
    truncateSync(join(folder, FIRST), whole.length - 40);
    expect(seal(folder)).toMatchObject({ size: 4, withheld: [] });
    writeFileSync(join(folder, FIRST), whole);
    expect(seal(folder)).toMatchObject({ size: 5, withheld: [] });
    appendFileSync(join(folder, FIRST), '{"v":1,"seq":6,"half');
    expect(seal(folder)).toMatchObject({ size: 5, withheld: [] });
    await openAudit({ folder, rotateBytes: 1e9 }).close();
    expect(seal(folder)).toMatchObject({ size: 8, withheld: [] });
    expect(prove(folder)).toMatchObject({ ok: true, proof: { complete: true } });
  });

  it('takes in nothing that does not follow its chain, and the other chains all the same' + verifies('AD-22'), () => {
    const folder = signedLog();
    const path = join(folder, FIRST);
    const lines = readFileSync(path, 'utf8').split('\n');
    appendFileSync(join(folder, chainFileName(NEXT_CHAIN, 0)), `${lines[3]}\n`);
    writeDeadChain(folder, [calls(30, 1)], LATER);
    expect(seal(folder)).toMatchObject({ size: 28, withheld: [{ what: expect.stringContaining('does not follow') }] });
    appendFileSync(join(folder, chainFileName(LATER, 0)), 'x\n');
    truncateSync(path, 100);
    expect(seal(folder).withheld).toMatchObject([
      { file: FIRST, what: 'records that were signed are missing at its end' },
      { file: chainFileName(NEXT_CHAIN, 0) },
      { file: chainFileName(LATER, 0), what: 'a record was changed' },
    ]);
    rmSync(path);
    expect(seal(folder).withheld).toHaveLength(2);
    expect(prove(folder)).toMatchObject({ ok: false });
  });

  it('leaves the work to another process that has the lock' + verifies('AD-23'), () => {
    const folder = signedLog();
    writeDeadChain(folder, [calls(30, 1)], LATER);
    const other = AuditTree.open(folder)!;
    other.transact(() => expect(seal(folder)).toMatchObject({ busy: true }));
    other.close();
    expect(seal(folder)).toMatchObject({ size: 28 });
  });

  it('is not misled by a clock that jumps back' + verifies('AD-23'), () => {
    const folder = signedLog();
    const database = openDatabase(join(folder, 'tree.db'), { version: 1, sql: '' });
    database.run('UPDATE checkpoint SET at = ?')('2099-01-01T00:00:00.000Z');
    database.close();
    writeDeadChain(folder, [calls(30, 1)], LATER);
    seal(folder);
    expect(prove(folder)).toMatchObject({ ok: true, proof: { complete: true, signed: 28 } });
  });

  it('signs nothing on a full disk, and goes on when there is space' + verifies('AD-23'), () => {
    const folder = join(temporaryFolder(), 'disk');
    mountSmallDisk(folder);
    onTestFinished(() => unmount(folder));
    writeDeadChain(folder, [calls(1, 100)]);
    seal(folder);
    writeDeadChain(folder, [calls(300, 100)], LATER);
    fill(folder);
    expect(() => seal(folder)).toThrow('tree.db');
    expect(prove(folder)).toMatchObject({ ok: true, proof: { signed: 201, unsigned: 201 } });
    empty(folder);
    seal(folder);
    expect(prove(folder)).toMatchObject({ ok: true, proof: { complete: true, signed: 402 } });
  });

  inFull(
    'never signs two different trees if sealing processes are killed at any moment' + verifies('AD-23'),
    async () => {
      const folder = temporaryFolder();
      const keyFile = join(temporaryFolder(), 'key.pem');
      writeFileSync(keyFile, KEY.export({ format: 'pem', type: 'pkcs8' }));
      AuditTree.begin(folder).tree.close();
      const kept = new Map<string, string>();
      const rounds = roundsOf(4, 2);
      for (let round = 0; round < rounds; round += 1) {
        const writer = startFixture('audit-writer.ts', [folder, '1500', '20000']);
        const sealers = [0, 1].map(() => startFixture('log-sealer.ts', [folder, keyFile]));
        // One of them has signed something, and signs again while the writer appends or after it.
        await Promise.race(sealers.map(({ line }) => line()));
        await Promise.all([writer.ended, new Promise((resolve) => setTimeout(resolve, 130 * round))]);
        for (const { child } of sealers) child.kill('SIGKILL');
        for (const { ended } of sealers)
          for (const line of await ended)
            if (line.startsWith('"')) kept.set(`${kept.size}`, JSON.parse(line) as string);
        expect(prove(folder, { kept })).toMatchObject({ ok: true, faults: [], proof: { kept: kept.size } });
      }
      expect(kept.size).toBeGreaterThanOrEqual(rounds);
      seal(folder);
      const { records } = prove(folder);
      expect(prove(folder, { kept })).toMatchObject({ ok: true, proof: { complete: true, signed: records } });
    },
  );
});
