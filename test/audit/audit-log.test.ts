/** Tests the log of one process: its form, its files, its limits, and failing disks. */
import fs, { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import fc from 'fast-check';
import { describe, expect, expectTypeOf, it } from 'vitest';
import {
  type ChainEntry,
  callEntryText,
  isoTime,
  NO_HASH,
  SEAL_KEYS,
  sealRecord,
  type Unsealed,
} from '../../facade/audit/audit-chain.ts';
import type { AuditEntry, CallFacts } from '../../facade/audit/audit-entry.ts';
import { type AuditLog, type AuditOptions, openAudit } from '../../facade/audit/audit-log.ts';
import type { AuditFs } from '../../facade/audit/chain-file.ts';
import { verifyAudit } from '../../facade/audit/chain-verification.ts';
import { roundsOf } from '../harness/slices.ts';
import { temporaryFolder } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';
import { decision, intent, outcome, readRecords } from './sample-log.ts';

function open(folder: string, more: Partial<AuditOptions> = {}): AuditLog {
  return openAudit({ folder, rotateBytes: 1e9, ...more });
}

const failure = expect.objectContaining({ code: 'AUDIT_FAILED' });

describe('the audit log of a process', () => {
  it('contains one JSON line per record, chained, in its own private file' + verifies('PF-09', 'CY-25'), async () => {
    const folder = join(temporaryFolder(), 'audit');
    const log = open(folder, { now: () => Date.UTC(2026, 10, 21, 22, 59, 0, 123) });
    expect(log.file).toBe(join(folder, `20261121T225900123Z-${process.pid}.jsonl`));
    log.append(intent('1'));
    log.append(outcome('1'));
    const head = log.head;
    const records = readRecords(log.file);
    expect(records.map(({ seq, type, ts }) => [seq, type, ts])).toEqual([
      [1, 'opened', '2026-11-21T22:59:00.123Z'],
      [2, 'intent', expect.any(String)],
      [3, 'outcome', expect.any(String)],
    ]);
    expect(records[2]).toMatchObject({ v: 1, prev: records[1]?.hash, hash: head, tool: 'read', executed: 'yes' });
    expect([statSync(folder).mode & 0o777, statSync(log.file).mode & 0o777]).toEqual([0o700, 0o600]);
    await log.flush();
    await log.close();
    await log.close();
    expect(verifyAudit(folder, [head])).toMatchObject({
      ok: true,
      records: 4,
      chains: [{ state: 'closed', files: 1 }],
    });
    expect(() => log.append(intent('2'))).toThrow(failure);
    expect(log.file).toBe('');
  });

  it(
    'refuses an entry with a key of the seal, because JSON readers keep only one of two equal keys' + verifies('PF-09'),
    () => {
      const folder = temporaryFolder();
      const log = open(folder);
      for (const key of SEAL_KEYS) expect(() => log.append({ ...decision('1'), [key]: 'x' }), key).toThrow(failure);
      expect(readRecords(log.file).filter(({ type }) => type === 'decision')).toEqual([]);
      const keys = (text: string): string[] => [...text.matchAll(/"(\w+)":/g)].map(([, key = '']) => key);
      const sealed = keys(
        sealRecord(
          { entry: { type: 'consent', event: 'start-approved', server: 'one', outcome: 'allow', approved: 'a' } },
          { seq: 1, ts: '', prev: NO_HASH },
        ).line,
      );
      expect(new Set(sealed).size).toBe(sealed.length);
      expectTypeOf<AuditEntry>().toExtend<ChainEntry>();
      expectTypeOf<Unsealed<{ readonly type: 'closed'; readonly hash?: string }>>().toEqualTypeOf<never>();
    },
  );

  it('accepts the facts of a call as text and makes the same record, with the same limits', async () => {
    const log = open(temporaryFolder());
    const { type, outcome, sizes, ...facts } = intent('1', { run: 'r"\n' });
    log.append({ ...facts, type, outcome, sizes });
    log.appendCall(callEntryText({ type, outcome, sizes, obligations: undefined }), JSON.stringify(facts).slice(1, -1));
    log.appendCall(
      callEntryText({ type, outcome, sizes, obligations: undefined }),
      JSON.stringify({ ...facts, exposed: 'x'.repeat(5000) }).slice(1, -1),
    );
    await log.flush();
    const own = ({ seq: _seq, ts: _ts, prev: _prev, hash: _hash, ...rest }: Record<string, unknown>): unknown => rest;
    const [, whole, parted, long] = readRecords(log.file);
    expect(own(parted ?? {})).toEqual(own(whole ?? {}));
    expect(long).toEqual({
      ...parted,
      exposed: `${'x'.repeat(200)}…`,
      seq: 4,
      ts: long?.ts,
      prev: parted?.hash,
      hash: log.head,
    });
    expect(verifyAudit(dirname(log.file))).toMatchObject({ ok: true, records: 4 });
    expectTypeOf<Unsealed<CallFacts>>().toEqualTypeOf<CallFacts>();
  });

  it('formats a time as Date does', () => {
    fc.assert(
      fc.property(fc.integer({ min: -8.64e15, max: 8.64e15 }), (ms) => isoTime(ms) === new Date(ms).toISOString()),
    );
  });

  it('gets another file name when one process opens two logs in the same millisecond', async () => {
    const folder = temporaryFolder();
    const logs = [open(folder, { now: () => 5000 }), open(folder, { now: () => 5000 })];
    expect(new Set(logs.map((log) => log.file)).size).toBe(2);
    await Promise.all(logs.map((log) => log.close()));
    expect(verifyAudit(folder)).toMatchObject({ ok: true, chains: [{ records: 2 }, { records: 2 }] });
  });

  it('continues in a new file when one is full and when a day begins, in the same chain', async () => {
    const folder = temporaryFolder();
    let now = Date.UTC(2026, 0, 1, 23, 59);
    const log = open(folder, { rotateBytes: 2000, now: () => now });
    for (let n = 0; n < 8; n += 1) log.append(intent(`${n}`));
    const before = readdirSync(folder).length;
    expect(before).toBeGreaterThan(2);
    now += 120_000;
    log.append(intent('next day'));
    expect(readdirSync(folder).length).toBe(before + 1);
    expect(log.file).toMatch(/\.\d{3}\.jsonl$/);
    now -= 240_000;
    log.append(intent('clock back'));
    expect(readdirSync(folder).length).toBe(before + 1);
    await log.close();
    expect(verifyAudit(folder, [log.head])).toMatchObject({ ok: true });
  });

  it('writes at least one record per file, however small the limit is', async () => {
    const folder = temporaryFolder();
    const log = open(folder, { rotateBytes: 1 });
    for (let n = 0; n < 12; n += 1) log.append(intent(`${n}`));
    await log.close();
    expect(verifyAudit(folder)).toMatchObject({ ok: true, chains: [{ files: 14 }] });
  });

  it('log injection: keeps a name with newlines, escapes and a megabyte on one short line', () => {
    const folder = temporaryFolder();
    const log = open(folder);
    log.append(
      decision('1', {
        exposed: `x","outcome":"allow"}\n{"type":"intent"}\r\u001B[2J\u2028${'y'.repeat(1_000_000)}`,
        reasons: Array.from({ length: 100 }, (_, n) => ({ id: `r${n}` })),
      }),
    );
    const lines = readFileSync(log.file, 'utf8').split('\n');
    expect(lines).toHaveLength(3);
    expect(lines[1]?.length).toBeLessThan(3000);
    expect(readRecords(log.file)[1]).toMatchObject({
      outcome: 'deny',
      exposed: expect.stringMatching(/^x","outcome[^]*…$/u),
      reasons: expect.objectContaining({ length: 33 }),
    });
    expect(verifyAudit(folder)).toMatchObject({ ok: true });
  });

  it('keeps any text that a name can have, and the seal is correct', () => {
    const folder = temporaryFolder();
    const log = open(folder);
    const records = roundsOf(300, 60);
    fc.assert(
      fc.property(
        fc.string({ unit: 'binary', maxLength: 100 }),
        fc.string({ unit: 'binary-ascii', maxLength: 300 }),
        (id, exposed) => log.append(intent(id, { exposed })),
      ),
      { numRuns: records },
    );
    expect(verifyAudit(folder)).toMatchObject({ ok: true, records: records + 1 });
  });
});

describe('the records of calls of one turn of the event loop' + verifies('FP-03'), () => {
  const facts = '"id":"1"';
  const entry = callEntryText({ type: 'intent', outcome: 'allow', obligations: undefined, sizes: { args: 2 } });

  /** Returns node:fs that counts writes, and fails those for which `fails` returns true. */
  function counting(fails: () => boolean = () => false): { readonly files: AuditFs; writes: number } {
    const counts = {
      writes: 0,
      files: {
        ...fs,
        writeSync: ((...given: [number, Buffer, number, number]) => {
          counts.writes += 1;
          if (fails()) throw Object.assign(new Error('ENOSPC'), { code: 'ENOSPC' });
          return fs.writeSync(...given);
        }) as typeof fs.writeSync,
      },
    };
    return counts;
  }

  it('are written by one write, and no promise resolves before it', async () => {
    const counts = counting();
    const folder = temporaryFolder();
    const log = open(folder, { files: counts.files });
    const opened = counts.writes;
    let isWritten = false;
    const written = Array.from({ length: 100 }, () => log.appendCall(entry, facts).then(() => (isWritten = true)));
    await Promise.resolve();
    expect([counts.writes, isWritten]).toEqual([opened, false]);
    await Promise.all(written);
    expect(counts.writes).toBe(opened + 1);
    await log.close();
    expect(verifyAudit(folder)).toMatchObject({ ok: true, records: 102 });
  });

  it('are all refused when their write fails, and the chain goes on from the record before them', async () => {
    let isFull = false;
    let faults = 0;
    const folder = temporaryFolder();
    const log = open(folder, { files: counting(() => isFull).files, onFault: () => void (faults += 1) });
    await log.appendCall(entry, facts);
    const { head } = log;
    isFull = true;
    const refused = await Promise.allSettled(Array.from({ length: 20 }, () => log.appendCall(entry, facts)));
    expect(refused.every((one) => one.status === 'rejected' && one.reason.code === 'AUDIT_FAILED')).toBe(true);
    expect([log.head, faults]).toEqual([head, 1]);
    isFull = false;
    await log.appendCall(entry, facts);
    await log.close();
    expect(verifyAudit(folder, [head])).toMatchObject({ ok: true, records: 4 });
  });

  it('leave nothing behind when the disk takes only a part of them', async () => {
    const folder = temporaryFolder();
    const { writeSync } = fs;
    let taken = Infinity;
    const files = {
      ...fs,
      writeSync: ((fd: number, bytes: Buffer, at: number, length: number) => {
        if (taken === 0) throw Object.assign(new Error('ENOSPC'), { code: 'ENOSPC' });
        const done = writeSync(fd, bytes, at, Math.min(length, taken));
        taken -= done;
        return done;
      }) as typeof fs.writeSync,
    };
    const log = open(folder, { files });
    taken = 700;
    const refused = await Promise.allSettled(Array.from({ length: 9 }, () => log.appendCall(entry, facts)));
    expect(refused.every(({ status }) => status === 'rejected')).toBe(true);
    taken = Infinity;
    await log.appendCall(entry, facts);
    await log.close();
    expect(verifyAudit(folder)).toMatchObject({ ok: true, records: 3 });
  });

  it('stand before a record that is appended after them in the same turn, and the head counts what is written', async () => {
    const folder = temporaryFolder();
    const log = open(folder);
    const { head } = log;
    const first = log.appendCall(entry, facts);
    expect(log.head).toBe(head);
    log.append(decision('2'));
    await first;
    expect(readRecords(log.file).map(({ seq, type }) => [seq, type])).toEqual([
      [1, 'opened'],
      [2, 'intent'],
      [3, 'decision'],
    ]);
    expect(verifyAudit(folder, [log.head])).toMatchObject({ ok: true, records: 3 });
  });

  it('keep to the size of a file, and are written before the log closes', async () => {
    const folder = temporaryFolder();
    const log = open(folder, { rotateBytes: 2000 });
    const written = Array.from({ length: 50 }, () => log.appendCall(entry, facts));
    await log.close();
    await Promise.all(written);
    const sizes = readdirSync(folder).flatMap((name) =>
      name.endsWith('.jsonl') ? statSync(join(folder, name)).size : [],
    );
    expect(sizes.length).toBeGreaterThan(3);
    expect(Math.max(...sizes)).toBeLessThan(2600);
    expect(verifyAudit(folder)).toMatchObject({ ok: true, records: 50 + 1 + sizes.length });
  });
});

describe('the audit log on a failing disk', () => {
  type Fault = 'fail' | 'short' | undefined;

  /**
   * Returns node:fs with faults at chosen uses of one function. `short` writes half of the bytes and says so, like a
   * disk that fills up.
   */
  function faulty(name: 'writeSync' | 'ftruncateSync', faultAt: (use: number) => Fault): AuditFs {
    let use = 0;
    const call = (...given: [number, Buffer, number, number]): unknown => {
      use += 1;
      const fault = faultAt(use);
      if (fault === undefined) return (fs[name] as (...all: unknown[]) => unknown)(...given);
      if (fault === 'short') return fs.writeSync(given[0], given[1], given[2], given[3] >> 1);
      const code = use % 2 === 0 ? 'EIO' : 'ENOSPC';
      throw Object.assign(new Error(code), { code });
    };
    return { ...fs, [name]: call };
  }

  it.each([false, true])(
    'leaves no partial record after a fault at any write, and the next append continues (short write: %s)',
    async (short) => {
      for (let n = 1; n <= 8; n += 1) {
        const folder = temporaryFolder();
        // A short write is followed by one that fails, as on a full disk.
        const faults: Fault[] = short ? ['short', 'fail'] : ['fail'];
        const files = faulty('writeSync', (use) => faults[use - n - 1]);
        const log = open(folder, { files });
        const kept: string[] = [];
        for (let record = 1; record <= 8; record += 1) {
          try {
            log.append(intent(`${record}`));
            kept.push(`${record}`);
          } catch (error) {
            expect(error).toMatchObject({ code: 'AUDIT_FAILED', message: expect.stringMatching(/EIO|ENOSPC/) });
          }
        }
        expect(kept).toHaveLength(7);
        expect(readRecords(log.file).flatMap(({ id }) => id ?? [])).toEqual(kept);
        await log.close();
        expect(verifyAudit(folder, [log.head])).toMatchObject({ ok: true, records: 9 });
      }
    },
  );

  it('does not open, starts nothing, and leaves no empty file', () => {
    const folder = temporaryFolder();
    expect(() => open(folder, { files: faulty('writeSync', () => 'fail') })).toThrow(failure);
    expect(readdirSync(folder)).toEqual(['processes']);
    writeFileSync(join(folder, 'file'), '');
    expect(() => open(join(folder, 'file', 'audit'))).toThrow(failure);
  });

  it('removes a partial record before the next append, if it could not be removed at once', async () => {
    const folder = temporaryFolder();
    const cannotWrite = faulty('writeSync', (use) => (use === 3 ? 'short' : use === 4 ? 'fail' : undefined));
    const cannotCut = faulty('ftruncateSync', (use) => (use <= 2 ? 'fail' : undefined));
    const log = open(folder, { files: { ...cannotWrite, ftruncateSync: cannotCut.ftruncateSync } });
    log.append(intent('1'));
    for (let n = 0; n < 2; n += 1) expect(() => log.append(intent('2'))).toThrow(failure);
    log.append(intent('3'));
    await log.close();
    expect(verifyAudit(folder)).toMatchObject({ ok: true, records: 4 });
  });

  it('throws AUDIT_FAILED on a full disk (/dev/full), with the reason and without a path', () => {
    const folder = temporaryFolder();
    let isFull = false;
    const full = fs.openSync('/dev/full', 'a');
    const files: AuditFs = {
      ...fs,
      writeSync: ((fd: number, ...rest: [Buffer, number, number]) =>
        fs.writeSync(isFull ? full : fd, ...rest)) as typeof fs.writeSync,
    };
    const log = open(folder, { files });
    isFull = true;
    expect(() => log.append(intent('1'))).toThrow(
      expect.objectContaining({
        code: 'AUDIT_FAILED',
        message: 'The audit log cannot be written (ENOSPC), so nothing runs.',
      }),
    );
    isFull = false;
    log.append(intent('1'));
    fs.closeSync(full);
    expect(verifyAudit(folder)).toMatchObject({ ok: true, records: 2 });
  });

  it('reports a failed fdatasync at the next append and at flush', async () => {
    const folder = temporaryFolder();
    let isBad = true;
    const fdatasync = ((fd: number, done: (error: Error | null) => void) =>
      isBad ? done(Object.assign(new Error('EIO'), { code: 'EIO' })) : fs.fdatasync(fd, done)) as typeof fs.fdatasync;
    const log = open(folder, { files: { ...fs, fdatasync } });
    log.append(intent('1'));
    await expect.poll(() => codeOf(() => log.append(intent('2')))).toBe('AUDIT_FAILED');
    await expect(log.flush()).rejects.toMatchObject({ code: 'AUDIT_FAILED' });
    isBad = false;
    log.append(intent('3'));
    await log.flush();
    await log.close();
    expect(verifyAudit(folder)).toMatchObject({ ok: true });
  });

  it('continues in a new file when its file was moved away, and verify reports the missing file', async () => {
    const folder = temporaryFolder();
    const log = open(folder);
    log.append(intent('1'));
    const first = log.file;
    renameSync(first, `${first}.old`);
    await delay(15);
    log.append(intent('2'));
    expect(readRecords(log.file).map(({ type }) => type)).toEqual(['continued', 'intent']);
    expect(verifyAudit(folder)).toMatchObject({ ok: false });
    renameSync(`${first}.old`, first);
    expect(verifyAudit(folder)).toMatchObject({ ok: true, records: 4 });
  });

  it('refuses to append after its folder was removed, until the folder exists again', async () => {
    const folder = join(temporaryFolder(), 'audit');
    const log = open(folder);
    rmSync(folder, { recursive: true });
    for (let n = 0; n < 2; n += 1) expect(() => log.append(intent('1'))).toThrow(failure);
    mkdirSync(folder);
    log.append(intent('2'));
    rmSync(folder, { recursive: true });
    await expect(log.close()).rejects.toMatchObject({ code: 'AUDIT_FAILED' });
  });
});

function codeOf(work: () => void): string | undefined {
  try {
    work();
    return undefined;
  } catch (error) {
    return (error as { code?: string }).code;
  }
}
