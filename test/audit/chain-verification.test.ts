/** Tests that verification finds every change to a chain. */
import { copyFileSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  chainFileName,
  checkSeal,
  parseChainFileName,
  parseRecord,
  sealRecord,
} from '../../facade/audit/audit-chain.ts';
import { openAudit } from '../../facade/audit/audit-log.ts';
import { verifyAudit } from '../../facade/audit/chain-verification.ts';
import { RUNS_ALL, roundsOf } from '../harness/slices.ts';
import { temporaryFolder } from '../state/temporary-folder.ts';
import { DEAD_CHAIN, DEAD_PID, decision, intent, outcome, readRecords, writeDeadChain } from './sample-log.ts';

const OTHER_CHAIN = `20260102T000000000Z-${DEAD_PID}`;

/** The log of a dead process in one file, as lines that can be joined in other ways. */
function log(): {
  readonly folder: string;
  readonly path: string;
  readonly lines: readonly string[];
  readonly head: string;
  write(lines: readonly string[]): void;
} {
  const folder = temporaryFolder();
  const head = writeDeadChain(folder, [
    [intent('1'), outcome('1'), decision('2', { exposed: '\uFFFDé😀' }), intent('3'), outcome('3'), { type: 'closed' }],
  ]);
  const path = join(folder, chainFileName(DEAD_CHAIN, 0));
  const lines = readFileSync(path, 'utf8').trimEnd().split('\n');
  return {
    folder,
    path,
    lines,
    head,
    write: (other) => writeFileSync(path, other.map((line) => `${line}\n`).join('')),
  };
}

describe('tollgate audit verify', () => {
  it('accepts an unchanged log, and an empty or missing folder', () => {
    const { folder, head } = log();
    expect(verifyAudit(folder, [head])).toEqual({
      ok: true,
      records: 7,
      faults: [],
      chains: [{ chain: DEAD_CHAIN, files: 1, records: 7, head, until: '2026-01-01T00:00:07.000Z', state: 'closed' }],
      proof: { complete: false, signed: 0, unsigned: 7, read: 0, notRead: 0, verified: false, kept: 0, replaced: [] },
    });
    expect(verifyAudit(join(folder, 'none'))).toMatchObject({ ok: true, records: 0 });
  });

  it('names the record in which any single bit was flipped', () => {
    const folder = temporaryFolder();
    writeDeadChain(folder, [[{ type: 'server', server: '\uFFFD', event: 'up' }, { type: 'closed' }]]);
    const path = join(folder, chainFileName(DEAD_CHAIN, 0));
    const good = readFileSync(path);
    let seq = 1;
    for (let at = 0; at < good.length; at += 1) {
      // By default one bit of each byte.
      for (const bit of RUNS_ALL ? [0, 1, 2, 3, 4, 5, 6, 7] : [at % 8]) {
        const bad = Buffer.from(good);
        bad[at] = (bad[at] ?? 0) ^ (1 << bit);
        writeFileSync(path, bad);
        const { faults } = verifyAudit(folder);
        if (faults[0]?.seq !== seq) expect({ at, bit, faults }).toEqual({ at, bit, faults: [{ seq }] });
      }
      if (good[at] === 10) seq += 1;
    }
    expect(seq).toBe(4);
  }, 120_000);

  it('names the first record that was deleted, repeated or moved', () => {
    const { folder, lines, write } = log();
    fc.assert(
      fc.property(
        fc.nat({ max: 6 }),
        fc.nat({ max: 6 }),
        fc.constantFrom('delete', 'repeat', 'move'),
        (from, to, kind) => {
          const line = lines[from] ?? '';
          const rest = kind === 'repeat' ? [...lines] : lines.filter((_, at) => at !== from);
          const changed = kind === 'delete' ? rest : [...rest.slice(0, to), line, ...rest.slice(to)];
          write(changed);
          const same = changed.findIndex((one, at) => one !== lines[at]);
          // Only a deletion of the last record cannot be seen in a chain alone.
          const expected = same < 0 ? [] : [expect.objectContaining({ seq: same + 1 })];
          expect(verifyAudit(folder).faults).toEqual(expected);
        },
      ),
      { numRuns: roundsOf(150, 60) },
    );
  });

  it('finds a missing end only with a head that was stored elsewhere', () => {
    const { folder, lines, head, write } = log();
    write(lines.slice(0, 4));
    expect(verifyAudit(folder)).toMatchObject({ ok: true, records: 4, chains: [{ state: 'ended' }] });
    expect(verifyAudit(folder, [head])).toMatchObject({
      ok: false,
      faults: [{ what: expect.stringContaining('were cut off') }],
    });
  });

  it('finds a record of another chain, and a renamed file', () => {
    const { folder, path, lines, write } = log();
    const other = temporaryFolder();
    writeDeadChain(other, [[intent('1'), outcome('1')]], OTHER_CHAIN);
    const stolen = readFileSync(join(other, chainFileName(OTHER_CHAIN, 0)), 'utf8').split('\n')[1] ?? '';
    write([lines[0] ?? '', stolen, ...lines.slice(2)]);
    expect(verifyAudit(folder).faults).toMatchObject([{ seq: 2, what: expect.stringContaining('does not follow') }]);
    write(lines);
    copyFileSync(path, join(folder, chainFileName(OTHER_CHAIN, 0)));
    expect(verifyAudit(folder).faults).toMatchObject([
      { seq: 1, file: chainFileName(OTHER_CHAIN, 0), what: expect.stringContaining('belongs to chain') },
    ]);
  });

  it('finds a record after the end of a chain, and a sealed line that is no record', () => {
    const { folder, lines, head, path, write } = log();
    const sealed = (body: object, seq: number, prev: string): Buffer =>
      Buffer.from(sealRecord({ entry: body as never }, { seq, ts: 't', prev }).line);
    writeFileSync(path, Buffer.concat([Buffer.from(`${lines.join('\n')}\n`), sealed(intent('9'), 8, head)]));
    expect(verifyAudit(folder).faults).toMatchObject([{ seq: 8, what: expect.stringContaining('after the end') }]);
    write(['']);
    expect(verifyAudit(folder).faults).toMatchObject([{ seq: 1 }]);
    writeFileSync(path, sealed(intent('1'), 1, '0'.repeat(64)));
    expect(verifyAudit(folder).faults).toMatchObject([{ seq: 1, what: expect.stringContaining('does not begin') }]);
  });

  it('reports a missing file, first or in between, and an empty one', () => {
    const folder = temporaryFolder();
    writeDeadChain(folder, [[intent('1')], [outcome('1')], [intent('2')]]);
    expect(verifyAudit(folder)).toMatchObject({ ok: true, records: 6 });
    const [first, second] = [0, 1].map((part) => join(folder, chainFileName(DEAD_CHAIN, part))) as [string, string];
    for (const [path, seq] of [
      [second, 3],
      [first, 1],
    ] as const) {
      renameSync(path, `${path}.away`);
      expect(verifyAudit(folder).faults).toMatchObject([{ seq }]);
      writeFileSync(path, '');
      expect(verifyAudit(folder).faults).toMatchObject([{ seq, what: expect.stringContaining('empty') }]);
      renameSync(`${path}.away`, path);
    }
    expect(verifyAudit(folder)).toMatchObject({ ok: true });
  });

  it('verifies the other chains when one is broken', () => {
    const { folder, write } = log();
    writeDeadChain(folder, [[intent('1')]], OTHER_CHAIN);
    write(['{}']);
    expect(verifyAudit(folder)).toMatchObject({
      ok: false,
      faults: [{ file: chainFileName(DEAD_CHAIN, 0), seq: 1 }],
      chains: [{ records: 0 }, { records: 2 }],
    });
  });

  it('accepts the record that a living process is writing', async () => {
    const folder = temporaryFolder();
    const live = openAudit({ folder, rotateBytes: 1e9 });
    writeFileSync(live.file, '{"half', { flag: 'a' });
    expect(verifyAudit(folder)).toMatchObject({ ok: true, chains: [{ state: 'open' }] });
    rmSync(live.file);
    await live.close();
  });
});

describe('the form of a chain', () => {
  it('seals bytes and not text: lines with the same text but other bytes differ', () => {
    const sealed = sealRecord({ entry: intent('\uFFFD') }, { seq: 1, ts: 't', prev: 'p' });
    const line = Buffer.from(sealed.line).subarray(0, -1);
    expect(checkSeal(line)).toBeDefined();
    const at = line.indexOf(Buffer.from('\uFFFD'));
    const other = Buffer.from(line);
    other.write('\xFF', at, 'latin1');
    expect(checkSeal(other)).toBeUndefined();
    expect(checkSeal(Buffer.alloc(10))).toBeUndefined();
  });

  it('gives each file exactly one name', () => {
    expect(parseChainFileName(chainFileName(DEAD_CHAIN, 0))).toEqual({ chain: DEAD_CHAIN, pid: DEAD_PID, part: 0 });
    expect(parseChainFileName(chainFileName(DEAD_CHAIN, 1234))).toMatchObject({ part: 1234 });
    for (const name of [
      `${DEAD_CHAIN}.000.jsonl`,
      `${DEAD_CHAIN}.0001.jsonl`,
      `${DEAD_CHAIN}.jsonl.torn`,
      'x.jsonl',
      `../${DEAD_CHAIN}.jsonl`,
    ])
      expect([name, parseChainFileName(name)]).toEqual([name, undefined]);
    for (const line of ['', '[]', 'null', '"x"', '{']) expect(parseRecord(Buffer.from(line))).toBeUndefined();
  });

  it('does not reveal a complete rewrite by someone who can write the file; a stored head does', () => {
    const { folder, head } = log();
    writeDeadChain(folder, [[intent('1'), outcome('1', { outcome: 'error' })]]);
    expect(verifyAudit(folder)).toMatchObject({ ok: true });
    expect(verifyAudit(folder, [head])).toMatchObject({ ok: false });
    expect(readRecords(join(folder, chainFileName(DEAD_CHAIN, 0)))).toHaveLength(3);
  });
});
