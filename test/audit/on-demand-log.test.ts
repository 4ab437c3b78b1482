/**
 * Tests the log that begins with its first record: it makes no file earlier, then moves torn ends, and refuses like any
 * log.
 */
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

it('an on-demand log creates nothing before its first record, and refuses records once it is closed', async () => {
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
  'an on-demand log begins its chain with the first record, after it has moved the torn ends of dead processes' +
    verifies('PF-09'),
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

it('an on-demand log refuses what it cannot write, and the next append tries again', async () => {
  const place = temporaryFolder();
  writeFileSync(join(place, 'file'), '');
  const log = openAuditOnDemand({ folder: join(place, 'file', 'audit'), rotateBytes: 1e9 });
  for (const work of [() => log.begin(), () => log.append(decision('1'))]) expect(work).toThrow(failure);
  await log.close();
});
