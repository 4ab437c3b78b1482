/** Tests the log that begins with its first record: no file before, torn ends put aside then, refused as any log. */
import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { chainFileName, NO_HASH } from '../../facade/audit/audit-chain.ts';
import { openAuditOnDemand } from '../../facade/audit/audit-log.ts';
import { verifyAudit } from '../../facade/audit/chain-verification.ts';
import { temporaryFolder } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';
import { DEAD_CHAIN, decision, readRecords, writeDeadChain } from './sample-log.ts';

const failure = expect.objectContaining({ code: 'AUDIT_FAILED' });

it('leaves no file and no folder where nothing was appended, and takes nothing once it is closed', async () => {
  const folder = join(temporaryFolder(), 'audit');
  const log = openAuditOnDemand({ folder, rotateBytes: 1e9 });
  expect([log.head, log.file]).toEqual([NO_HASH, '']);
  await log.flush();
  await log.close();
  expect(existsSync(folder)).toBe(false);
  expect(() => log.append(decision('1'))).toThrow(failure);
  expect(existsSync(folder)).toBe(false);
});

it(
  'begins its chain with the first record, after the torn ends of dead processes were put aside' + verifies('PF-09'),
  async () => {
    const folder = temporaryFolder();
    writeDeadChain(folder, [[]]);
    writeFileSync(join(folder, chainFileName(DEAD_CHAIN, 0)), '{"half', { flag: 'a' });
    const log = openAuditOnDemand({ folder, rotateBytes: 1e9 });
    expect(readdirSync(folder)).toHaveLength(1);
    log.append(decision('1'));
    log.append(decision('2'));
    expect(readRecords(log.file).map(({ type }) => type)).toEqual(['opened', 'recovered', 'decision', 'decision']);
    const { head } = log;
    await log.flush();
    await log.close();
    expect(verifyAudit(folder, [head])).toMatchObject({ ok: true });
  },
);

it('refuses what it cannot keep, and before an act where that is asked for; the next append tries anew', async () => {
  const place = temporaryFolder();
  writeFileSync(join(place, 'file'), '');
  const log = openAuditOnDemand({ folder: join(place, 'file', 'audit'), rotateBytes: 1e9 });
  for (const work of [() => log.begin(), () => log.append(decision('1'))]) expect(work).toThrow(failure);
  await log.close();
});
