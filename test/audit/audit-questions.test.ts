/** Tests filters, pages, timelines, and an index that lies: what is shown is always what the chain files say. */

import { appendFileSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import Libsql from 'libsql';
import { describe, expect, it, onTestFinished } from 'vitest';
import { type ChainEntry, chainFileName, NO_HASH, sealRecord } from '../../facade/audit/audit-chain.ts';
import { type AuditFilter, readAuditFilter, readAuditTime } from '../../facade/audit/index/audit-filter.ts';
import { AUDIT_INDEX, type IndexedRecord } from '../../facade/audit/index/audit-index.ts';
import { type AuditReader, openAuditReader } from '../../facade/audit/index/audit-reader.ts';
import { openAuditSearch } from '../../facade/audit/index/audit-search.ts';
import { measureAudit } from '../bench/audit-size.ts';
import { inFull } from '../harness/full-tests.ts';
import { partOf, roundsOf } from '../harness/slices.ts';
import { temporaryFolder } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';
import { DEAD_CHAIN, DEAD_PID, decision, intent, newest, outcome, writeDeadChain } from './sample-log.ts';

const NOON = new Date(2026, 10, 27, 12).getTime();
const ids = (found: Iterable<IndexedRecord>): unknown[] =>
  [...found].map(({ record }) => (record as { id?: string }).id ?? record.type);

interface Log {
  readonly folder: string;
  readonly index: string;
  readonly told: string[];
  open(): AuditReader;
}

/** Writes a log, and opens readers of it that end with the test. */
function logOf(files: readonly (readonly ChainEntry[])[]): Log {
  const state = temporaryFolder();
  const folder = join(state, 'audit');
  writeDeadChain(folder, files);
  const [index, told]: [string, string[]] = [join(state, AUDIT_INDEX), []];
  const open = (): AuditReader => {
    const reader = openAuditReader(folder, index, (what) => void told.push(what));
    onTestFinished(() => reader.close());
    return reader;
  };
  return { folder, index, told, open };
}

/** Runs SQL on the index, as someone would who can write it. */
function forge(index: string, sql: string): void {
  const raw = new Libsql(index);
  raw.exec(sql);
  raw.close();
}

/** Overwrites the file, and removes the log from which SQLite would restore it. */
function overwrite(index: string): void {
  for (const suffix of ['-wal', '-shm']) rmSync(`${index}${suffix}`, { force: true });
  writeFileSync(index, 'x'.repeat(9000));
}

const RICH: readonly ChainEntry[] = [
  intent('c1', { facts: { paths: ['src/secrets/key.pem'], programs: ['cat'] }, obligations: { labels: ['secret'] } }),
  outcome('c1', { consent: 'approval-1' }),
  decision('c2', {
    verb: 'execute',
    tool: 'bash',
    exposed: 'bash',
    facts: { programs: ['curl'], hosts: ['api.example.com'] },
    shadow: [{ id: 'watch-hosts', would: 'deny', mode: 'shadow' }],
    parent: 'c1',
  }),
  decision('c3', { exposed: 'Größe 100%', server: 'notes', tool: 'größe', facts: { paths: ['src/README.md'] } }),
];

describe('filters', () => {
  it.each<[Record<string, string>, unknown[]]>([
    [{ path: 'src/secrets/key.pem' }, ['c1']],
    [{ path: 'src/secrets' }, ['c1']],
    [{ path: 'src/' }, ['c1', 'c3']],
    [{ path: '*.pem' }, ['c1']],
    [{ path: '*/key.pem' }, ['c1']],
    [{ path: '*y.pem' }, ['c1']],
    [{ path: '*secrets/key.pem' }, ['c1']],
    [{ path: '*secret/key.pem' }, []],
    [{ path: '*c*/README.md' }, ['c3']],
    [{ path: '*m' }, ['c1']],
    [{ path: '*.p' }, []],
    [{ path: '*' }, ['c1', 'c3']],
    [{ path: '*/' }, []],
    [{ path: 'src/readme.md' }, []],
    [{ program: 'cat' }, ['c1']],
    [{ program: 'c*' }, ['c1', 'c2']],
    [{ host: 'api.example.com' }, ['c2']],
    [{ label: 'secret' }, ['c1']],
    [{ verb: 'execute' }, ['c2']],
    [{ rule: 'watch-hosts' }, ['c2']],
    [{ approval: 'approval-1' }, ['c1']],
    [{ parent: 'c1' }, ['c2']],
    [{ tool: 'notes.größe' }, ['c3']],
    [{ text: 'gröss' }, []],
    [{ text: 'GRÖ 100' }, ['c3']],
    [{ text: 'secrets pem' }, ['c1']],
    [{ program: 'cat', type: 'intent' }, ['c1']],
    [{ principal: 'ali*', server: 'work*', code: 'DENIED' }, ['c2']],
  ])('find %j' + verifies('AD-04'), (texts, expected) => {
    const reader = logOf([RICH]).open();
    const filter = readAuditFilter(texts);
    expect(ids(reader.all(filter))).toEqual(expected);
    expect(ids(newest(reader, filter, 10))).toEqual(expected);
  });

  it('find what an intent says by the outcome that another command indexed' + verifies('AD-04'), () => {
    const [first, ...rest] = RICH;
    const { folder, open } = logOf([first === undefined ? [] : [first]]);
    open().close();
    writeDeadChain(folder, [[first as ChainEntry], rest]);
    expect(ids(open().all({ path: 'src/secrets', callsOnly: true }))).toEqual(['c1']);
  });

  it('find ids and hashes by their beginning in a text' + verifies('AD-04'), () => {
    const { open, folder } = logOf([[decision('0b6ef0a2-0000-4000-8000-000000000000')]]);
    const line = readFileSync(join(folder, chainFileName(DEAD_CHAIN, 0)), 'utf8').split('\n')[1] ?? '';
    const { hash } = JSON.parse(line) as { hash: string };
    const reader = open();
    for (const text of ['0b6ef0a2', '0B6EF0A2-0000', hash, hash.slice(0, 9), 'eeeeeeee'])
      expect(ids(reader.all({ text })), text).toHaveLength(1);
    expect(reader.find('0b6ef0a2')).toHaveLength(1);
  });

  it('refuse unknown names, words and times' + verifies('AD-04'), () => {
    const of = (texts: Record<string, string>) => () => readAuditFilter(texts);
    expect(of({ principle: 'x' })).toThrow(/no filter "principle"; did you mean "principal"/);
    expect(of({ outcome: 'denied' })).toThrow(/No record has the outcome "denied"; known are allow/);
    expect(of({ code: 'DENYED' })).toThrow(/did you mean "DENIED"/);
    expect(of({ since: 'tomorow' })).toThrow(/"tomorow" is not a time/);
    expect(of({ text: '***' })).toThrow(/no word/);
  });

  inFull('find paths by their end among many names' + verifies('AD-113'), () => {
    const names = Array.from({ length: 1500 }, (_, at) => `src/d${at % 7}/${at}.key`);
    const paths = ['.env', 'x/prod.env', 'env', 'a.b/env', 'x/.env.bak', 'Größe.k\u{1F511}y', ...names];
    const { open } = logOf([paths.map((name) => decision(name, { facts: { paths: [name] } }))]);
    const reader = open();
    const of = (path: string): number => [...reader.all({ path })].length;
    expect(['*.env', '*env', '*/prod.env', '*.k\u{1F511}y', '*ße.k\u{1F511}y'].map(of)).toEqual([2, 4, 1, 1, 1]);
    for (const pattern of ['*.key', '*9.key', '*y', '*/d3/*.key', '*d3/10.key', '*/1*.key', 'src/d*/7*.key']) {
      const parts = pattern.split('*').map((part) => part.replaceAll('.', '\\.'));
      expect(of(pattern), pattern).toBe(paths.filter((name) => new RegExp(`^${parts.join('.*')}$`).test(name)).length);
    }
  });

  it('take long and hostile patterns in linear time' + verifies('AD-04'), () => {
    const reader = logOf([[decision('x', { exposed: 'a'.repeat(200) })]]).open();
    for (const tool of ['*a'.repeat(500), `${'a*'.repeat(90)}b`, '"*', `' OR 1 --*`, '\0*'])
      expect(ids(reader.all({ tool })), tool.slice(0, 9)).toHaveLength(0);
    expect(ids(reader.all({ text: 'x '.repeat(9000) }))).toHaveLength(0);
  });

  it('read times in the time zone of the machine, unless they name one' + verifies('AD-05'), () => {
    const day = (days: number): string => new Date(2026, 10, 27 + days).toISOString();
    expect(readAuditTime('today', NOON)).toBe(day(0));
    expect(readAuditTime('yesterday', NOON)).toBe(day(-1));
    expect(readAuditTime('2026-11-26', NOON)).toBe(day(-1));
    expect(readAuditTime('2h', NOON)).toBe(new Date(NOON - 7_200_000).toISOString());
    expect(readAuditTime('2026-11-26T10:00:00Z', NOON)).toBe('2026-11-26T10:00:00.000Z');
    expect(readAuditTime('2026-11-26T10:00+02:00', NOON)).toBe('2026-11-26T08:00:00.000Z');
  });
});

describe('pages', () => {
  it('show each record once, newest first, also while records are appended' + verifies('AD-06'), () => {
    const { folder, open } = logOf([Array.from({ length: 25 }, (_, n) => decision(`d${n}`))]);
    const reader = open();
    const seen: unknown[] = [];
    let before: string | undefined;
    do {
      const { records, next } = reader.page({ callsOnly: true }, { limit: 7, ...(before && { before }) });
      seen.push(...ids(records));
      writeDeadChain(folder, [[decision(`later${seen.length}`)]], `20260109T00000000${seen.length % 10}Z-${DEAD_PID}`);
      before = next;
    } while (before !== undefined);
    expect(seen.filter((id) => String(id).startsWith('d'))).toEqual(Array.from({ length: 25 }, (_, n) => `d${24 - n}`));
    expect(new Set(seen).size).toBe(seen.length);
    expect(() => reader.page({}, { limit: 1, before: 'no cursor' })).toThrow(/cursor/);
  });

  it('keep records of one millisecond apart' + verifies('AD-06'), () => {
    const { folder, index, open } = logOf([[decision('a')]]);
    for (const day of ['02', '03', '04'])
      writeDeadChain(folder, [[decision(`b${day}`)]], `202601${day}T000000000Z-${DEAD_PID}`);
    const reader = open();
    expect(ids(reader.all({ callsOnly: true })).sort()).toEqual(['a', 'b02', 'b03', 'b04']);
    expect(index).toContain(AUDIT_INDEX);
  });
});

describe('an index that lies', () => {
  const entries = Array.from({ length: 6 }, (_, n) => decision(`d${n}`, { session: n < 3 ? 's1' : 's2' }));

  it('does not hide records: rows that were removed are noticed and made again' + verifies('AD-01'), () => {
    const { index, told, open } = logOf([entries]);
    open().close();
    forge(index, 'DELETE FROM record WHERE n IN (SELECT n FROM record LIMIT 2 OFFSET 2)');
    expect(ids(open().all({ callsOnly: true }))).toHaveLength(6);
    forge(index, 'DELETE FROM terms WHERE rowid IN (SELECT n FROM record LIMIT 2)');
    expect(ids(open().all({ principal: 'alice' }))).toHaveLength(6);
    forge(index, 'DELETE FROM file');
    expect(ids(open().all({ principal: 'alice' }))).toHaveLength(6);
    const missing = 'Rows were missing in the index of the audit log. It was made again from the chain files.';
    expect(new Set(told)).toEqual(new Set([missing]));
  });

  it('does not show other lines than were indexed' + verifies('AD-01'), () => {
    const { index, told, open } = logOf([entries]);
    open().close();
    // Each row names the place of the next record, or one in the middle of a record.
    forge(index, 'UPDATE record SET offset = offset + length + 1 WHERE n = (SELECT min(n) FROM record)');
    forge(index, 'UPDATE record SET offset = offset + 1, length = length - 1 WHERE n = (SELECT max(n) FROM record)');
    expect(ids(open().all({}))).toEqual(['opened', 'd0', 'd1', 'd2', 'd3', 'd4', 'd5']);
    expect(told.join()).toContain('did not agree');
  });

  it('does not show a record under a filter that it does not meet' + verifies('AD-01'), () => {
    const { index, open } = logOf([entries]);
    open().close();
    forge(
      index,
      `INSERT OR REPLACE INTO terms (rowid, text)
       SELECT n, 'session=s9 principal=mallory word=deny outcome=allow' FROM record`,
    );
    expect(ids(open().all({ principal: 'mallory' }))).toEqual([]);
    expect(ids(open().all({ session: 's9' }))).toEqual([]);
  });

  it('is made again by `reindex`' + verifies('AD-18'), () => {
    const { index, open } = logOf([entries]);
    const reader = open();
    forge(index, `UPDATE term SET text = 'principal=bob' WHERE text = 'principal=alice'`);
    let bytes = 0;
    reader.rebuild((more) => void (bytes += more));
    expect(bytes).toBeGreaterThan(1000);
    expect(ids(reader.all({ principal: 'al*' }))).toHaveLength(6);
  });

  it('is not confused by records that are missing in a chain file, and says so' + verifies('AD-03'), () => {
    const { folder, told, open } = logOf([entries]);
    const path = join(folder, chainFileName(DEAD_CHAIN, 0));
    const lines = readFileSync(path, 'utf8').split('\n');
    writeFileSync(path, lines.filter((_, at) => at !== 3).join('\n'));
    expect(ids(open().all({ callsOnly: true }))).toHaveLength(5);
    expect(told).toEqual([
      `Records are missing or repeated in ${chainFileName(DEAD_CHAIN, 0)}. Run: tollgate audit verify`,
    ]);
  });

  it.each([
    ['missing', (index: string) => rmSync(index), /^$/],
    ['damaged', (index: string) => overwrite(index), /was damaged/],
    ['older', (index: string) => forge(index, 'PRAGMA user_version = 1'), /another version/],
    ['newer', (index: string) => forge(index, 'PRAGMA user_version = 99'), /another version/],
    ['without its tables', (index: string) => forge(index, 'DROP TABLE terms'), /was damaged/],
  ])('that is %s is made again, and said to be' + verifies('AD-02'), (_, spoil, said) => {
    const { index, told, open } = logOf([entries]);
    open().close();
    spoil(index);
    expect(ids(open().all({ session: 's2' }))).toEqual(['d3', 'd4', 'd5']);
    expect(told.join()).toMatch(said);
  });

  it('that cannot be written is replaced by one in memory, and said to be' + verifies('AD-02'), () => {
    const told: string[] = [];
    const { folder } = logOf([entries]);
    writeFileSync(join(folder, 'file'), '');
    const reader = openAuditReader(folder, join(folder, 'file', AUDIT_INDEX), (what) => void told.push(what));
    expect(ids(reader.all({ session: 's2' }))).toEqual(['d3', 'd4', 'd5']);
    reader.close();
    expect(told.join()).toContain('cannot be used');
  });
});

describe('the benchmark of the log', () => {
  it('measures the index and the questions; the index is not larger than the log' + verifies('AD-17'), () => {
    const { size, perSecond, filteredMs, textMs } = measureAudit(roundsOf(4000, 1000), () => undefined);
    expect(size).toBeLessThan(1.2);
    for (const figure of [perSecond, filteredMs, textMs]) expect(figure).toBeGreaterThan(0);
  });
});

describe('the timeline of a session', () => {
  it('has what happened in it and around it, in order' + verifies('AD-07'), () => {
    const owner = { id: 'alice', role: 'dev', profiles: [], origin: 'desk' };
    const session = 'abcdef01-0000-4000-8000-000000000000';
    const other = { session: 'ffff0000-0000-4000-8000-000000000000', server: 'else' };
    const { open } = logOf([
      [
        { type: 'config', event: 'loaded', outcome: 'allow' },
        { type: 'session', event: 'opened', outcome: 'allow', session, principal: owner, transport: 'stdio' },
        intent('c1', { session }),
        { type: 'server', server: 'workspace', event: 'crashed', exit: 1 },
        { type: 'server', server: 'else', event: 'crashed', exit: 1 },
        intent('c9', other),
        outcome('c1', { session }),
        { type: 'config', event: 'reloaded', outcome: 'allow' },
        { type: 'approval', event: 'asked', id: 'ask-1', call: 'c2', outcome: 'ask', principal: owner },
        decision('c2', { session, outcome: 'ask', code: 'APPROVAL_REQUIRED' }),
        { type: 'approval', event: 'approved', id: 'ask-1', outcome: 'allow', principal: owner, by: 'bob' },
        intent('c3', { session, consent: 'ask-1' }),
        outcome('c3', { session, consent: 'ask-1' }),
        { type: 'session', event: 'closed', outcome: 'allow', session, transport: 'stdio' },
        { type: 'config', event: 'reloaded', outcome: 'allow' },
      ],
    ]);
    const reader = open();
    const timeline = reader.timeline('abcdef01');
    const shown = timeline?.events.map(({ found: { record }, intent: began }) =>
      [record.type, (record as { event?: string }).event ?? (record as { id?: string }).id, began && 'joined']
        .join(' ')
        .trim(),
    );
    expect(shown).toEqual([
      'session opened',
      'outcome c1 joined',
      'server crashed',
      'config reloaded',
      'approval asked',
      'decision c2',
      'approval approved',
      'outcome c3 joined',
      'session closed',
    ]);
    expect(reader.timeline('0000')).toBeUndefined();
    expect(timeline?.isClockBack).toBe(false);
  });

  it('keeps the order of writing when the clock went back, and says so' + verifies('AD-03'), () => {
    const { folder, open } = logOf([[]]);
    const path = join(folder, `20260105T000000000Z-${DEAD_PID}.jsonl`);
    let prev = NO_HASH;
    const times = [
      '2026-01-05T00:00:00.000Z',
      '2026-01-05T10:00:00.000Z',
      '2026-01-05T09:00:00.000Z',
      '2026-01-05T11:00:00.000Z',
    ];
    for (const [at, ts] of times.entries()) {
      const sealed = sealRecord(
        {
          entry:
            at === 0
              ? { type: 'opened', chain: `20260105T000000000Z-${DEAD_PID}`, pid: DEAD_PID, born: 'x', nonce: 'n' }
              : decision(`d${at}`),
        },
        { seq: at + 1, ts, prev },
      );
      prev = sealed.hash;
      appendFileSync(path, sealed.line);
    }
    const timeline = open().timeline('s1');
    expect(ids(timeline?.events.map(({ found }) => found) ?? [])).toEqual(['d1', 'd2', 'd3']);
    expect(timeline?.isClockBack).toBe(true);
  });
});

describe('the search of a process that lives long', () => {
  it('gives the same answers from a worker thread, also while records are appended' + verifies('AD-16'), async () => {
    const { folder, index, open } = logOf([RICH]);
    const search = openAuditSearch({ folder, index });
    const filter: AuditFilter = { path: 'src/*', callsOnly: true };
    try {
      expect(await search.page(filter, { limit: 10 })).toEqual(open().page(filter, { limit: 10 }));
      expect(await search.stats({})).toEqual(open().stats({}));
      writeDeadChain(folder, [[decision('later')]], `20260109T000000000Z-${DEAD_PID}`);
      expect((await search.page({ id: 'later' }, { limit: 1 })).records).toMatchObject([{ record: { id: 'later' } }]);
      expect((await search.timeline('s1'))?.events).toHaveLength(4);
      await expect(search.page({}, { limit: 1, before: '?' })).rejects.toMatchObject({ code: 'USAGE' });
    } finally {
      await search.close();
    }
  });

  inFull('ends between two questions, so that no call of the database is interrupted' + verifies('AD-16'), async () => {
    const { folder, index } = logOf([Array.from({ length: 500 }, (_, at) => decision(`d${at}`))]);
    const delays = Array.from({ length: 25 }, (_, round) => round * 8);
    for (const delayMs of partOf(delays, 6)) {
      const search = openAuditSearch({ folder, index });
      const asked = Promise.allSettled([search.stats({}), search.page({}, { limit: 50 })]);
      await new Promise((resolve) => setTimeout(resolve, delayMs));
      await search.close();
      for (const answer of await asked)
        if (answer.status === 'rejected') expect(answer.reason).toMatchObject({ code: 'STATE_FAILED' });
    }
  });
});
