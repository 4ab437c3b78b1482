/** Tests the reader of the log, the line reader, and the key of the digests. */
import { createHmac } from 'node:crypto';
import { appendFileSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import Libsql from 'libsql';
import { describe, expect, it } from 'vitest';
import { chainFileName } from '../../facade/audit/audit-chain.ts';
import { openAudit } from '../../facade/audit/audit-log.ts';
import { readLines } from '../../facade/audit/chain-lines.ts';
import type { AuditFilter } from '../../facade/audit/index/audit-filter.ts';
import type { IndexedRecord } from '../../facade/audit/index/audit-index.ts';
import { type AuditReader, openAuditReader } from '../../facade/audit/index/audit-reader.ts';
import { createDigest, readAuditKey } from '../../facade/audit/key-files.ts';
import { temporaryFolder } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';
import { DEAD_CHAIN, DEAD_PID, decision, intent, newest, outcome, writeDeadChain } from './sample-log.ts';

const OTHER_CHAIN = `20260102T000000000Z-${DEAD_PID}`;
const ids = (found: Iterable<IndexedRecord>): unknown[] =>
  [...found].map(({ record }) => (record as { id?: string }).id ?? record.type);

/** Two processes with records that interleave in time: call 1 is answered, 2 refused, 3 and 4 never answered. */
function twoChains(): { readonly folder: string; readonly index: string; readonly reader: AuditReader } {
  const state = temporaryFolder();
  const folder = join(state, 'audit');
  writeDeadChain(folder, [[intent('1'), outcome('1', { ms: 10 })], [intent('3', { tool: 'write', exposed: 'write' })]]);
  writeDeadChain(
    folder,
    [
      [
        decision('2', {
          principal: { id: 'bob', role: 'ci', profiles: [], origin: 'o' },
          code: 'DENIED',
          ms: 2,
          session: 's2',
          run: 'r2',
        }),
        intent('4'),
      ],
    ],
    OTHER_CHAIN,
  );
  const index = join(state, 'audit-index.db');
  return { folder, index, reader: openAuditReader(folder, index) };
}

describe('the audit reader', () => {
  it('merges the chains of all processes by time', () => {
    const { reader } = twoChains();
    expect(ids(reader.all({}))).toEqual(['opened', 'opened', '1', '2', '1', '4', 'continued', '3']);
    expect(ids(newest(reader, {}, 3))).toEqual(['4', 'continued', '3']);
    reader.close();
  });

  it.each<[AuditFilter, unknown[]]>([
    [{ callsOnly: true }, ['2', '1', '4', '3']],
    [{ type: 'intent' }, ['1', '4', '3']],
    [{ principal: 'bob' }, ['2']],
    [{ server: 'workspace', outcome: 'deny' }, ['2']],
    [{ code: 'DENIED' }, ['2']],
    [{ tool: 'write' }, ['3']],
    [{ tool: 'workspace.write' }, ['3']],
    [{ run: 'r2' }, ['2']],
    [{ session: 's2' }, ['2']],
    [{ id: '1' }, ['1', '1']],
    [{ since: '2026-01-01T00:00:03.000Z', until: '2026-01-01T00:00:05.000Z' }, ['1', '4', 'continued']],
    [{ text: 'CI' }, ['2']],
    [{ text: 'wor writ' }, ['3']],
    [{ principal: 'b*' }, ['2']],
    [{ principal: '*o*b' }, ['2']],
    [{ rule: 'allow-read', type: 'outcome' }, ['1']],
    [{ text: 'nowhere' }, []],
    [{ principal: `' OR 1 --` }, []],
  ])('finds %j', (filter, expected) => {
    const { reader } = twoChains();
    expect(ids(reader.all(filter))).toEqual(expected);
    expect(ids(newest(reader, filter, 100))).toEqual(expected);
    reader.close();
  });

  it(
    'reports calls without an outcome of dead processes as unknown, not those of living ones' + verifies('PF-09'),
    async () => {
      const { folder, reader } = twoChains();
      const live = openAudit({ folder, rotateBytes: 1e9 });
      live.append(intent('5'));
      expect(ids(reader.unknown())).toEqual(['4', '3']);
      await live.close();
      reader.close();
    },
  );

  it('counts by tool, outcome and principal, with p50 and p95' + verifies('HB-06'), () => {
    const { folder, reader } = twoChains();
    writeDeadChain(
      folder,
      [Array.from({ length: 100 }, (_, n) => outcome(`t${n}`, { tool: 'timed', ms: n + 1 }))],
      `20260103T000000000Z-${DEAD_PID}`,
    );
    const stats = reader.stats({});
    expect(stats).toMatchObject({ calls: 104, unknown: 2 });
    expect(stats.byTool).toEqual([
      { name: 'workspace.timed', count: 100, p50: 50, p95: 95 },
      { name: 'workspace.read', count: 3, p50: 2, p95: 10 },
      { name: 'workspace.write', count: 1 },
    ]);
    expect(stats.byOutcome.map(({ name, count }) => [name, count])).toEqual([
      ['allow', 101],
      ['unknown', 2],
      ['deny DENIED', 1],
    ]);
    expect(reader.stats({ principal: 'bob' })).toMatchObject({ calls: 1, byPrincipal: [{ name: 'bob', count: 1 }] });
    reader.close();
  });

  it('indexes only appended records, and everything again after a file was replaced, cut or removed', async () => {
    const { folder, reader } = twoChains();
    const path = join(folder, chainFileName(DEAD_CHAIN, 0));
    expect([...reader.all({})]).toHaveLength(8);
    const whole = readFileSync(path);
    writeFileSync(path, whole.subarray(0, whole.indexOf(10) + 1));
    expect(ids(reader.all({}))).not.toContain('1');
    appendFileSync(path, whole.subarray(whole.indexOf(10) + 1));
    appendFileSync(path, '{"half');
    expect(ids(reader.all({ id: '1' }))).toEqual(['1', '1']);
    rmSync(path);
    expect(ids(reader.all({}))).not.toContain('1');
    writeFileSync(`${path}.new`, whole);
    renameSync(`${path}.new`, path);
    expect([...reader.all({})]).toHaveLength(8);
    reader.close();
  });

  it('reads the log itself, so a changed record is reported', () => {
    const { folder, reader } = twoChains();
    expect([...reader.all({})].every(({ intact }) => intact)).toBe(true);
    const path = join(folder, chainFileName(OTHER_CHAIN, 0));
    writeFileSync(path, readFileSync(path, 'utf8').replace('"outcome":"deny"', '"outcome":"ALLO"'));
    expect(newest(reader, { id: '2' }, 1)).toMatchObject([{ intact: false, record: { outcome: 'ALLO' } }]);
    writeFileSync(path, readFileSync(path, 'utf8').replaceAll('{', '['));
    expect(newest(reader, { id: '2' }, 1)).toEqual([]);
    reader.close();
  });

  it('rebuilds a damaged or old index, and works without one where none can be written', () => {
    const { folder, index, reader } = twoChains();
    reader.close();
    const raw = new Libsql(index);
    raw.exec('PRAGMA user_version = 99');
    raw.close();
    mkdirSync(join(folder, 'closed'));
    writeFileSync(join(folder, 'closed', 'file'), '');
    for (const path of [index, ':memory:', join(folder, 'closed', 'file', 'index.db'), join(folder, 'closed')]) {
      const again = openAuditReader(folder, path);
      expect([...again.all({})]).toHaveLength(8);
      again.close();
    }
    writeFileSync(index, 'spoilt '.repeat(1000));
    const again = openAuditReader(folder, index);
    expect([...again.all({})]).toHaveLength(8);
    again.close();
  });

  it('skips lines that are no records, and accepts names with NUL', () => {
    const folder = temporaryFolder();
    writeDeadChain(folder, [[decision('1\0', { exposed: 'a\0b' })]]);
    appendFileSync(join(folder, chainFileName(DEAD_CHAIN, 0)), '\n[]\nnull\n{"type":7,"principal":null,"ms":"x"}\n');
    const reader = openAuditReader(folder, ':memory:');
    expect([...reader.all({})]).toHaveLength(3);
    expect(reader.stats({}).byTool).toHaveLength(1);
    reader.close();
  });

  it('follows new records from where the last query ended', async () => {
    const { folder, reader } = twoChains();
    const live = openAudit({ folder, rotateBytes: 1e9 });
    expect(newest(reader, {}, 100)).toHaveLength(9);
    const stop = new AbortController();
    const seen: unknown[] = [];
    const following = (async () => {
      for await (const { record } of reader.follow({ type: 'intent' }, stop.signal, 5))
        seen.push((record as { id?: string }).id);
    })();
    for (const id of ['a', 'b']) live.append(intent(id));
    await expect.poll(() => seen).toEqual(['a', 'b']);
    live.append(intent('c'));
    live.append(outcome('c'));
    await expect.poll(() => seen).toEqual(['a', 'b', 'c']);
    stop.abort();
    await following;
    await live.close();
    reader.close();
  });
});

describe('the line reader', () => {
  it('yields each line with its offset, across chunks, and marks an end without newline', () => {
    const path = join(temporaryFolder(), 'f');
    const lines = Array.from({ length: 5000 }, (_, n) => 'é'.repeat(n % 300));
    writeFileSync(path, `${lines.join('\n')}\nend`);
    const read = [...readLines(path)];
    expect(read.map(({ bytes }) => bytes.toString())).toEqual([...lines, 'end']);
    expect(read.map(({ whole }) => whole).lastIndexOf(true)).toBe(4999);
    expect([...readLines(path, read[4999]?.offset)].map(({ offset }) => offset)).toEqual([
      read[4999]?.offset,
      read[5000]?.offset,
    ]);
    expect([...readLines(path, 1e9)]).toEqual([]);
  });

  it('does not load a gigabyte without newline into memory', () => {
    const path = join(temporaryFolder(), 'f');
    writeFileSync(path, Buffer.alloc(8 * 1024 * 1024));
    const [line, ...more] = readLines(path);
    expect(more).toEqual([]);
    expect(line?.whole).toBe(false);
    expect(line?.bytes.length).toBeLessThan(2 * 1024 * 1024);
  });
});

describe('the key of the audit digests', () => {
  it('is created once, with 32 random bytes and mode 0600, and kept', () => {
    const folder = join(temporaryFolder(), 'state');
    const key = readAuditKey(folder);
    expect(key).toHaveLength(32);
    expect(readAuditKey(folder)).toEqual(key);
    expect(statSync(join(folder, 'audit.key')).mode & 0o777).toBe(0o600);
    expect(readAuditKey(temporaryFolder())).not.toEqual(key);
    for (const text of ['', 'rm -rf /', 'ü'.repeat(500), '漢'.repeat(2731)])
      expect(createDigest(key)(text)).toBe(createHmac('sha256', key).update(text).digest('hex'));
    expect(createDigest(key)('a')).not.toBe(createDigest(Buffer.alloc(32))('a'));
  });

  it('is refused if it is incomplete or cannot be created', () => {
    const folder = temporaryFolder();
    writeFileSync(join(folder, 'audit.key'), 'short');
    expect(() => readAuditKey(folder)).toThrow(expect.objectContaining({ code: 'STATE_FAILED' }));
    expect(() => readAuditKey(join(folder, 'audit.key'))).toThrow(expect.objectContaining({ code: 'STATE_FAILED' }));
  });
});
