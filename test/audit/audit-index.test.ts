/**
 * Tests the index of the log under several commands at once, a lock, and damage: every record is indexed once, and no
 * answer is lost.
 * Covers: facade/audit.
 */

import { spawn, spawnSync } from 'node:child_process';
import { closeSync, mkdirSync, openSync, renameSync, statSync, writeSync } from 'node:fs';
import path from 'node:path';
import Libsql from 'libsql';
import { describe, expect, it, onTestFinished } from 'vitest';
import { AUDIT_INDEX } from '../../facade/audit/index/audit-index.ts';
import { openAuditReader } from '../../facade/audit/index/audit-reader.ts';
import { cli } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { roundsOf } from '../harness/slices.ts';
import { temporaryFolder } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';
import { DEAD_CHAIN, DEAD_PID, decision, intent, newest, outcome, writeDeadChain } from './sample-log.ts';

const MANY = roundsOf(12_000, 3000);
const MAIN = path.join(import.meta.dirname, '..', '..', 'dist', 'facade', 'main.js');
const ID = '0b6ef0a2-0000-4000-8000-000000000000';

/** Creates a state folder with a log, and the path of its index. */
function logOf(records: number): { readonly state: string; readonly folder: string; readonly index: string } {
  const state = temporaryFolder();
  const folder = path.join(state, 'audit');
  writeDeadChain(folder, [
    Array.from({ length: records }, (_, n) => intent(`a${n}`)),
    Array.from({ length: records }, (_, n) => outcome(`a${n}`)),
  ]);
  return { state, folder, index: path.join(state, AUDIT_INDEX) };
}

/** Returns the rows of the index, and how many of them can be found by terms. */
function countOf(index: string): { readonly rows: number; readonly listed: number } {
  const raw = new Libsql(index);
  try {
    const { rows } = raw.prepare('SELECT count(*) AS rows FROM record').get() as { rows: number };
    const { listed } = raw.prepare('SELECT count(*) AS listed FROM terms_docsize').get() as { listed: number };
    return { rows, listed };
  } finally {
    raw.close();
  }
}

/** Runs `tollgate audit list` as a process. */
function listing(project: Project): Promise<number | null> {
  const child = spawn(process.execPath, [MAIN, 'audit', 'list', '-c', path.join(project.folder, 'tollgate.yaml')], {
    stdio: 'ignore',
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  return new Promise((resolve) => child.once('close', resolve));
}

function projectWith(records: number): { readonly project: Project; readonly index: string } {
  const project = new Project();
  onTestFinished(() => project.remove());
  project.write(
    'tollgate.yaml',
    'version: 1\nworkspace: ./work\nstate: ./state\nrules: [{id: no, outcome: deny, when: {}}]\n',
  );
  project.write('work/x', '');
  const folder = path.join(project.folder, 'state', 'audit');
  writeDeadChain(
    folder,
    Array.from({ length: 10 }, (_, file) => Array.from({ length: records / 10 }, (_, n) => decision(`${file}-${n}`))),
  );
  writeDeadChain(folder, [[decision(ID)]], `20260102T000000000Z-${DEAD_PID}`);
  return { project, index: path.join(project.folder, 'state', AUDIT_INDEX) };
}

describe('the index of the log', () => {
  it('contains each record once, however many commands index at once' + verifies('ST-43'), async () => {
    const { project, index } = projectWith(MANY);
    expect(await Promise.all([listing(project), listing(project), listing(project)])).toEqual([0, 0, 0]);
    // With the first record of each of 10 files, and a chain of two records.
    expect(countOf(index)).toEqual({ rows: MANY + 12, listed: MANY + 12 });
  });

  inFull(
    'is not removed while another process locks it, and the reader does not wait for the lock forever' +
      verifies('ST-43'),
    () => {
      const { folder, index } = logOf(100);
      openAuditReader(folder, index).close();
      const before = statSync(index).ino;
      const holder = new Libsql(index);
      holder.exec('BEGIN IMMEDIATE');
      writeDeadChain(folder, [[decision('new')]], `20260102T000000000Z-${DEAD_PID}`);
      try {
        const reader = openAuditReader(folder, index);
        expect(newest(reader, { id: 'new' }, 5)).toHaveLength(1);
        expect(newest(reader, { id: 'a7' }, 5)).toHaveLength(2);
        reader.close();
      } finally {
        holder.exec('ROLLBACK');
        holder.close();
      }
      expect(statSync(index).ino).toBe(before);
      const reader = openAuditReader(folder, index);
      expect(newest(reader, {}, 1000)).toHaveLength(204);
      reader.close();
      expect(countOf(index)).toEqual({ rows: 204, listed: 204 });
    },
  );

  it('says which file cannot be read, and shows the others' + verifies('ST-43'), () => {
    const { folder, index } = logOf(100);
    mkdirSync(path.join(folder, `${DEAD_CHAIN}.002.jsonl`));
    const told: string[] = [];
    const reader = openAuditReader(folder, index, (what) => told.push(what));
    expect([...reader.all({})]).toHaveLength(202);
    expect(told).toEqual([`${DEAD_CHAIN}.002.jsonl cannot be read (EISDIR). Its records are missing here.`]);
    reader.close();
  });

  it('is replaced by one in memory on a disk that is full' + verifies('AD-02'), () => {
    const { project } = projectWith(200);
    const config = path.join(project.folder, 'tollgate.yaml');
    const limited = `trap '' XFSZ; ulimit -f 4; exec "$0" "$@"`;
    const { status, stdout, stderr } = spawnSync(
      'sh',
      ['-c', limited, process.execPath, MAIN, 'audit', 'list', '--principal', 'alice', '-c', config],
      { encoding: 'utf8' },
    );
    expect([status, stdout.split('\n').length > 50]).toEqual([0, true]);
    expect(stderr.replaceAll(/\s+/g, ' ')).toContain('The index of the audit log cannot be used (SQLITE_');
  });

  it('is rebuilt when it is damaged, also while it is in use' + verifies('ST-44'), () => {
    const records = roundsOf(2000, 500);
    const { folder, index } = logOf(records);
    openAuditReader(folder, index).close();
    const open = openAuditReader(folder, index);
    damage(index);
    writeDeadChain(folder, [[decision('new')]], `20260102T000000000Z-${DEAD_PID}`);
    expect(newest(open, { id: 'new' }, 5)).toHaveLength(1);
    expect([...open.all({})]).toHaveLength(2 * records + 4);
    open.close();
    damage(index);
    const next = openAuditReader(folder, index);
    expect([...next.all({ type: 'intent' })]).toHaveLength(records);
    next.close();
  });
});

describe('following the log', () => {
  it('shows each record once, even if the index is rebuilt meanwhile' + verifies('ST-44'), async () => {
    const { folder, index } = logOf(500);
    openAuditReader(folder, index).close();
    renameSync(path.join(folder, `${DEAD_CHAIN}.jsonl`), path.join(folder, 'aside'));
    openAuditReader(folder, index).close();
    renameSync(path.join(folder, 'aside'), path.join(folder, `${DEAD_CHAIN}.jsonl`));
    const reader = openAuditReader(folder, index);
    const stop = new AbortController();
    const seen: unknown[] = [];
    const following = (async () => {
      for await (const { record } of reader.follow({ type: 'decision' }, stop.signal, 5))
        seen.push((record as { id?: string }).id);
    })();
    writeDeadChain(folder, [[decision('before')]], `20260102T000000000Z-${DEAD_PID}`);
    await expect.poll(() => seen).toEqual(['before']);
    damage(index);
    writeDeadChain(folder, [[decision('after')]], `20260103T000000000Z-${DEAD_PID}`);
    await expect.poll(() => seen).toEqual(['before', 'after']);
    stop.abort();
    await following;
    reader.close();
  });
});

describe('policy why of a decision in the log', () => {
  it('finds the decision through the same index, which stays on the disk' + verifies('ST-44'), async () => {
    const { project, index } = projectWith(1000);
    const why = async (): Promise<string> => (await cli(project, ['policy', 'why', ID, '--json'])).out;
    expect(JSON.parse(await why())).toMatchObject({ record: { id: ID, code: 'DENIED' } });
    const first = countOf(index);
    expect(first.rows).toBeGreaterThan(1000);
    expect((await cli(project, ['audit', 'list', '--id', ID])).out).toContain(ID.slice(0, 13));
    expect(JSON.parse(await why())).toMatchObject({ record: { id: ID } });
    expect(countOf(index)).toEqual({ rows: first.rows, listed: first.rows });
  });
});

/** Overwrites all pages but the first, as a failing disk would. */
function damage(file: string): void {
  const raw = new Libsql(file);
  raw.prepare('PRAGMA wal_checkpoint(TRUNCATE)').get();
  raw.close();
  const fd = openSync(file, 'r+');
  const { size } = statSync(file);
  for (let at = 4096; at < size; at += 4096) writeSync(fd, Buffer.alloc(4096, 0xa5), 0, 4096, at);
  closeSync(fd);
}
