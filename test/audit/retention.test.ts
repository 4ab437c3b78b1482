/** Tests that a running facade moves old files of the log to a compressed archive, and that nothing is lost. */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { openAudit } from '../../facade/audit/audit-log.ts';
import { verifyAudit } from '../../facade/audit/chain-verification.ts';
import { openAuditReader } from '../../facade/audit/index/audit-reader.ts';
import { createDigest, readAuditKey } from '../../facade/audit/key-files.ts';
import { type ArchiveAnswer, startRetention } from '../../facade/audit/retention.ts';
import type { Config } from '../../facade/config/config.ts';
import { tryLock } from '../../facade/state/process-mark.ts';
import { temporaryFolder } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';
import { DEAD_CHAIN, DEAD_PID, decision, writeDeadChain } from './sample-log.ts';

const DAY = 86_400_000;
const LATER = Date.UTC(2026, 0, 1) + 10 * DAY;
const YOUNG = `20260103T000000000Z-${DEAD_PID}`;

/** Starts the retention of a log with three old files, 100 records each. */
function retained(keep: NonNullable<Config['audit']['keep']> | Record<string, number>) {
  const state = temporaryFolder();
  const [folder, archive] = [join(state, 'audit'), join(state, 'archive')];
  const records = (file: string): ReturnType<typeof decision>[] =>
    Array.from({ length: 100 }, (_, n) => decision(`${file}-${n}`));
  writeDeadChain(folder, [records('a'), records('b'), records('c')]);
  writeDeadChain(folder, [records('d')], YOUNG);
  const audit = { folder, rotateBytes: 1e9, keep: { archive, ...keep } } as unknown as Config['audit'];
  const answers: ArchiveAnswer[] = [];
  const options = {
    config: () => ({ state, audit }),
    now: () => LATER,
    tell: (answer: ArchiveAnswer) => void answers.push(answer),
    firstMs: 1,
    everyMs: 20,
  };
  const retention = startRetention(options);
  onTestFinished(() => retention.close());
  const names = (place: string): string[] => readdirSync(place).filter((name) => name.includes('.jsonl'));
  return { state, folder, archive, answers, names, digest: createDigest(readAuditKey(state)), retention };
}

const archived = (archive: string): string[] => {
  try {
    return readdirSync(archive).filter((name) => name.endsWith('.gz'));
  } catch {
    return [];
  }
};

describe('the retention of the log', () => {
  it('moves files by age to an archive that verify proves and list reads' + verifies('AD-14'), async () => {
    const { folder, archive, names, digest, answers } = retained({ ageMs: 3 * DAY });
    await expect.poll(() => archived(archive), { timeout: 20_000 }).toHaveLength(4);
    await expect.poll(() => names(folder), { timeout: 20_000 }).toHaveLength(1);
    await expect.poll(() => answers, { timeout: 20_000 }).toEqual([{ files: 4, records: 404 }]);
    expect(verifyAudit(folder, [], { archives: [archive], digest })).toMatchObject({ ok: true });
    const reader = openAuditReader(archive, ':memory:');
    onTestFinished(() => reader.close());
    expect([...reader.all({ callsOnly: true })]).toHaveLength(400);
    expect(reader.find('b-7')).toMatchObject([{ intact: true, record: { id: 'b-7' } }]);
    const own = openAuditReader(folder, ':memory:');
    onTestFinished(() => own.close());
    expect([...own.all({ type: 'setup' })].map(({ record }) => record)).toMatchObject([
      { event: 'audit-archived', by: 'audit.keep', files: 4, records: 404 },
    ]);
  });

  it('moves the oldest files above a size' + verifies('AD-14'), async () => {
    const { folder, archive, names, answers } = retained({ bytes: 150_000 });
    await expect.poll(() => archived(archive).length, { timeout: 20_000 }).toBeGreaterThan(0);
    await expect.poll(() => names(folder).includes(`${DEAD_CHAIN}.jsonl`), { timeout: 20_000 }).toBe(false);
    await expect.poll(() => answers, { timeout: 20_000 }).toEqual([{ files: 2, records: 202 }]);
    expect(names(folder)).toContain(`${DEAD_CHAIN}.002.jsonl`);
  });

  it('waits while another process archives' + verifies('AD-15'), async () => {
    const state = temporaryFolder();
    const folder = join(state, 'audit');
    mkdirSync(folder);
    const live = openAudit({ folder, rotateBytes: 1e9 });
    live.append(decision('live'));
    await live.flush();
    const lock = tryLock(join(folder, 'archive.lock'));
    writeDeadChain(folder, [[decision('old')]]);
    const answers: ArchiveAnswer[] = [];
    const audit = { folder, rotateBytes: 1e9, keep: { archive: join(state, 'archive'), ageMs: DAY } };
    const retention = startRetention({
      config: () => ({ state, audit }) as unknown as Config,
      now: Date.now,
      tell: (answer) => void answers.push(answer),
      firstMs: 1,
      everyMs: 20,
    });
    onTestFinished(() => retention.close());
    await expect.poll(() => answers, { timeout: 20_000 }).toContainEqual({ busy: true });
    expect(archived(join(state, 'archive'))).toEqual([]);
    if (typeof lock !== 'string') lock.close();
    await expect.poll(() => archived(join(state, 'archive')), { timeout: 20_000 }).toEqual([`${DEAD_CHAIN}.jsonl.gz`]);
    await live.close();
  });

  it('moves nothing of a log that was changed, and says so' + verifies('AD-15'), async () => {
    const { folder, archive, answers } = retained({ ageMs: 3 * DAY });
    const file = join(folder, `${DEAD_CHAIN}.jsonl`);
    writeFileSync(file, readFileSync(file, 'utf8').replace('a-1"', 'a-9"'));
    const fault = 'The log was changed, and only an unchanged log is archived.';
    await expect.poll(() => answers, { timeout: 20_000 }).toContainEqual({ fault });
    expect(archived(archive)).toEqual([]);
  });
});
