/**
 * Tests what a crash leaves of a chain, with real processes and real limits.
 * Covers: facade/audit.
 */

import { createHash } from 'node:crypto';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { chainFileName } from '../../facade/audit/audit-chain.ts';
import { openAudit } from '../../facade/audit/audit-log.ts';
import { verifyAudit } from '../../facade/audit/chain-verification.ts';
import { inFull } from '../harness/full-tests.ts';
import { partOf, roundsOf } from '../harness/slices.ts';
import { startFixture, temporaryFolder } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';
import { DEAD_CHAIN, intent, readRecords, writeDeadChain } from './sample-log.ts';

describe('a torn end', () => {
  it('at any byte is moved to another file at the next start, and its hash is recorded', async () => {
    const source = temporaryFolder();
    writeDeadChain(source, [[{ type: 'server', server: 's', event: 'up' }]]);
    const name = chainFileName(DEAD_CHAIN, 0);
    const whole = readFileSync(join(source, name));
    const cuts = Array.from({ length: whole.length + 1 }, (_, at) => at);
    const ends = cuts.filter((at) => whole[at] === 10 || whole[at - 1] === 10);
    for (const cut of new Set([...partOf(cuts, 30), ...ends])) {
      const folder = temporaryFolder();
      writeFileSync(join(folder, name), whole.subarray(0, cut));
      const good = whole.subarray(0, cut).lastIndexOf(10) + 1;
      const torn = whole.subarray(good, cut);
      if (torn.length > 0)
        expect(verifyAudit(folder).faults).toMatchObject([{ what: expect.stringContaining('half a record') }]);
      const log = openAudit({ folder, rotateBytes: 1e9 });
      const recovered = readRecords(log.file).filter(({ type }) => type === 'recovered');
      expect(recovered).toHaveLength(torn.length > 0 ? 1 : 0);
      expect(readFileSync(join(folder, name))).toEqual(whole.subarray(0, good));
      if (torn.length > 0) {
        expect(recovered[0]).toMatchObject({
          file: name,
          bytes: torn.length,
          digest: createHash('sha256').update(torn).digest('hex'),
        });
        expect(readFileSync(join(folder, `${name}.torn`))).toEqual(torn);
      }
      expect(verifyAudit(folder)).toMatchObject({ ok: true, faults: [] });
      await log.close();
      rmSync(folder, { recursive: true });
    }
  }, 120_000);

  it('that was moved is evidence: verify reports it if it is missing or changed', async () => {
    const folder = temporaryFolder();
    const name = chainFileName(DEAD_CHAIN, 0);
    writeDeadChain(folder, [[intent('1')]]);
    writeFileSync(join(folder, name), '{"half', { flag: 'a' });
    await openAudit({ folder, rotateBytes: 1e9 }).close();
    expect(verifyAudit(folder)).toMatchObject({ ok: true });
    writeFileSync(join(folder, `${name}.torn`), 'other');
    expect(verifyAudit(folder)).toMatchObject({ ok: false, faults: [{ seq: 2, what: expect.stringContaining(name) }] });
    rmSync(join(folder, `${name}.torn`));
    expect(verifyAudit(folder)).toMatchObject({ ok: false });
  });

  it('of a living process stays', async () => {
    const folder = temporaryFolder();
    const live = openAudit({ folder, rotateBytes: 1e9 });
    writeFileSync(live.file, '{"half', { flag: 'a' });
    await openAudit({ folder, rotateBytes: 1e9 }).close();
    expect(existsSync(`${live.file}.torn`)).toBe(false);
    expect(readFileSync(live.file, 'utf8')).toMatch(/\{"half$/);
  });
});

describe('a killed process', () => {
  inFull(
    'loses no acknowledged record, killed at random points' + verifies('PF-09'),
    async () => {
      const folder = temporaryFolder();
      const told = new Set<string>();
      const rounds = roundsOf(20, 4);
      for (let round = 0; round < rounds; round += 1) {
        const { child, line, ended } = startFixture('audit-writer.ts', [folder, '100000', '20000']);
        await line();
        // The first process is killed after its first file.
        for (let more = 0; round === 0 && more < 200; more += 1) await line();
        await new Promise((resolve) => setTimeout(resolve, (round * 27) % 60));
        child.kill('SIGKILL');
        for (const id of await ended) told.add(id);
      }
      const log = openAudit({ folder, rotateBytes: 1e9 });
      const verdict = verifyAudit(folder);
      expect(verdict).toMatchObject({ ok: true, faults: [] });
      expect(verdict.chains.filter(({ state }) => state === 'ended')).toHaveLength(rounds);
      expect(verdict.chains.some(({ files }) => files > 1)).toBe(true);
      const kept = new Set(
        verdict.chains
          .flatMap(({ chain, files }) =>
            Array.from({ length: files }, (_, part) =>
              readRecords(join(folder, chainFileName(chain, part))).map(({ id }) => id),
            ),
          )
          .flat(),
      );
      expect([...told].filter((id) => !kept.has(id))).toEqual([]);
      expect(told.size).toBeGreaterThan(rounds);
      await log.close();
    },
    60_000,
  );

  it('has its own chain in the folder that it shares with others', async () => {
    const folder = temporaryFolder();
    const writers = [1, 2].map(() => startFixture('audit-writer.ts', [folder, '500', '30000']));
    const told = (await Promise.all(writers.map(({ ended }) => ended))).flat();
    expect(told).toHaveLength(1002);
    expect(verifyAudit(folder)).toMatchObject({ ok: true, chains: [{ state: 'ended' }, { state: 'ended' }] });
  });
});

describe('a real short write', () => {
  it('at the file size limit of the process leaves nothing of a refused record', async () => {
    const folder = temporaryFolder();
    const { ended } = startFixture('audit-writer.ts', [folder, '1000', '1000000000'], 8192);
    const told = await ended;
    expect(told.filter((line) => line.startsWith('failed')).slice(0, 3)).toEqual(
      Array(3).fill('failed AUDIT_FAILED EFBIG'),
    );
    const kept = told.filter((line) => !line.startsWith('failed'));
    expect(verifyAudit(folder)).toMatchObject({ ok: true, records: kept.length + 1 });
  });
});
