/** Tests `tollgate state`, and that decisions are on the disk before a command reports them. */

import {
  chmodSync,
  closeSync,
  existsSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import path from 'node:path';
import Libsql from 'libsql';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openState, STATE_SCHEMA } from '../../facade/state/sqlite-state.ts';
import { Stops } from '../../facade/state/stop-file.ts';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { startFixture } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';
import { cli, dataOf, server } from './terminal.ts';

let project: Project;
let folder: string;
const file = (): string => path.join(folder, 'state.db');
const tollgate = (...words: readonly string[]): ReturnType<typeof cli> => cli(project, words);
const records = (): readonly string[] =>
  readdirSync(path.join(folder, 'audit'))
    .filter((name) => name.endsWith('.jsonl'))
    .flatMap((name) =>
      readFileSync(path.join(folder, 'audit', name), 'utf8')
        .trim()
        .split('\n'),
    );

beforeEach(() => {
  project = new Project();
  project.write('workspace/.keep', '');
  project.write(
    'tollgate.yaml',
    `version: 1
workspace: ./workspace
state: ./state
servers: {chaos: ${server(['chaos.mjs', 'ok'])}}
principals: [{id: boss, stdio: true, owner: true}]
profiles: {default: {servers: [chaos]}}
rules: [{id: all, outcome: allow, when: {}}]
`,
  );
  folder = path.join(project.folder, 'state');
  const state = openState(folder);
  for (let n = 0; n < 500; n += 1) void state.put('grants', `g${String(n).padStart(4, '0')}`, 'x'.repeat(100));
  state.close();
});
afterEach(() => project.remove());

const grants = (): number => {
  const state = openState(folder);
  const { size } = state.list('grants');
  state.close();
  return size;
};

describe('tollgate state' + verifies('ST-08'), () => {
  it('checks a sound database, and prints the number of its entries', async () => {
    await tollgate('off');
    const { code, err } = await tollgate('state', 'check');
    expect([code, err]).toEqual([
      0,
      expect.stringMatching(
        /undamaged \(schema 2[^]*grants: 500[^]*Stopped: everything\.\nTollgate processes that have it open: 0\./,
      ),
    ]);
    expect(dataOf((await tollgate('state', 'check', '--json')).out)).toMatchObject({
      database: 'sound',
      values: { grants: 500 },
      stopped: ['*'],
      processes: 0,
      problems: [],
    });
  });

  it('backs up to a new private file, and restores it while another process is connected; stops stay', async () => {
    expect(await tollgate('state', 'backup', "it's a copy.db")).toMatchObject({ code: 0 });
    const copy = path.join(project.folder, "it's a copy.db");
    expect(statSync(copy).mode & 0o777).toBe(0o600);
    expect(await tollgate('state', 'backup', "it's a copy.db")).toMatchObject({
      code: 2,
      err: expect.stringContaining('exists') as string,
    });
    const state = openState(folder);
    void state.remove('grants', 'g0001');
    await tollgate('kill', 'chaos');
    expect(await tollgate('state', 'restore', "it's a copy.db")).toMatchObject({
      code: 0,
      err: expect.stringContaining('including revocations') as string,
    });
    await expect.poll(() => state.list('grants').size).toBe(500);
    expect([...state.stops.list().keys()]).toEqual(['chaos']);
    state.close();
    expect(records().some((line) => line.includes('state-restored'))).toBe(true);
  });

  it('refuses a file that is not a backup', async () => {
    writeFileSync(path.join(project.folder, 'other.db'), 'no database at all'.repeat(1000));
    for (const name of ['other.db', 'none.db', 'tollgate.yaml'])
      expect(await tollgate('state', 'restore', name)).toMatchObject({
        code: 2,
        err: expect.stringContaining('not an undamaged backup') as string,
      });
    const newer = new Libsql(path.join(project.folder, 'newer.db'));
    newer.exec('CREATE TABLE value (a); CREATE TABLE counter (a); PRAGMA user_version = 99');
    newer.close();
    expect(await tollgate('state', 'restore', 'newer.db')).toMatchObject({
      err: expect.stringContaining('STATE_TOO_NEW') as string,
    });
    expect(grants()).toBe(500);
  });

  it('reports a removed database, and creates a new one only on request', async () => {
    await tollgate('state', 'backup', 'copy.db');
    for (const part of ['', '-wal', '-shm']) rmSync(`${file()}${part}`, { force: true });
    expect(await tollgate('state', 'check')).toMatchObject({
      code: 1,
      err: expect.stringContaining('was removed') as string,
    });
    expect((await tollgate('servers')).err).toContain('STATE_LOST');
    expect((await tollgate('off')).code).toBe(0);
    expect((await tollgate('on')).code).toBe(0);
    expect((await tollgate('state', 'repair')).err).toContain('STATE_LOST');
    expect(existsSync(file())).toBe(false);
    expect((await tollgate('state', 'restore', 'copy.db')).code).toBe(0);
    expect(grants()).toBe(500);
    for (const part of ['', '-wal', '-shm']) rmSync(`${file()}${part}`, { force: true });
    expect((await tollgate('state', 'repair', '--start-empty')).code).toBe(0);
    expect(grants()).toBe(0);
  });

  it('saves the readable entries before and after the damage of a database, and keeps the old file', async () => {
    damage(file());
    expect(await tollgate('state', 'check')).toMatchObject({
      code: 1,
      err: expect.stringContaining('damaged') as string,
    });
    const { code, err } = await tollgate('state', 'repair');
    expect([code, err]).toEqual([
      0,
      expect.stringMatching(/^Kept \d+ values.*old database is now .*state-before-.*\nOthers could not be read/),
    ]);
    expect(grants()).toBeGreaterThan(100);
    expect(grants()).toBeLessThan(500);
    expect(await tollgate('state', 'check')).toMatchObject({ code: 0 });
    expect(await tollgate('state', 'repair')).toMatchObject({
      code: 0,
      err: 'The database is undamaged. Nothing was changed.\n',
    });
  });

  it(
    'refuses to go on without the file of stops until a person says what is stopped' + verifies('ST-02', 'ST-04'),
    async () => {
      await tollgate('off');
      rmSync(path.join(folder, 'stopped'));
      expect(() => openState(folder)).toThrow(expect.objectContaining({ code: 'STATE_LOST' }) as Error);
      expect((await tollgate('servers')).err).toContain('STATE_LOST');
      await tollgate('kill', 'chaos');
      expect((await tollgate('on')).code).toBe(0);
      const state = openState(folder);
      expect([...state.stops.list().keys()]).toEqual(['chaos']);
      state.close();
      for (const part of ['', '-wal', '-shm']) rmSync(`${file()}${part}`, { force: true });
      writeFileSync(file(), '', { mode: 0o600 });
      expect(() => openState(folder)).toThrow(expect.objectContaining({ code: 'STATE_LOST' }) as Error);
      expect(await tollgate('state', 'check')).toMatchObject({
        code: 1,
        err: expect.stringContaining('was removed') as string,
      });
    },
  );

  it('refuses to back up a damaged database, and says why', async () => {
    damage(file());
    expect(await tollgate('state', 'backup', 'copy.db')).toMatchObject({
      code: 1,
      err: expect.stringContaining('STATE_FAILED') as string,
    });
    expect(existsSync(path.join(project.folder, 'copy.db'))).toBe(false);
  });

  it('upgrades a database of the previous version, with its switches', () => {
    rmSync(folder, { recursive: true });
    openState(folder).close();
    const old = new Libsql(file());
    old.exec(
      `DROP TRIGGER value_put; DROP TRIGGER value_changed; DROP TRIGGER value_removed;
       DROP TABLE change; DROP TABLE slot; DROP TABLE counter; DELETE FROM value`,
    );
    old.exec(
      `CREATE TABLE counter (
         budget TEXT NOT NULL, scope TEXT NOT NULL, key TEXT NOT NULL, since INTEGER NOT NULL,
         touched INTEGER NOT NULL, calls INTEGER NOT NULL, argBytes INTEGER NOT NULL, outputBytes INTEGER NOT NULL,
         wallMs INTEGER NOT NULL, PRIMARY KEY (budget, scope, key)) STRICT, WITHOUT ROWID`,
    );
    old.exec(
      `CREATE TABLE slot (
         budget TEXT NOT NULL, scope TEXT NOT NULL, key TEXT NOT NULL, lease TEXT NOT NULL, pid INTEGER NOT NULL,
         born TEXT NOT NULL, PRIMARY KEY (budget, scope, key, lease)) STRICT, WITHOUT ROWID`,
    );
    old.exec(
      `INSERT INTO value VALUES ('kill', 'chaos', '{"since":"2026-11-01T00:00:00.000Z","by":"boss"}');
       INSERT INTO counter VALUES ('b', 'principal', 'p', ${Date.now()}, ${Date.now()}, 7, 0, 0, 0);
       PRAGMA user_version = 1`,
    );
    old.close();
    rmSync(path.join(folder, 'stopped'));
    // As the previous version left it, with a stop that was made on a full disk.
    writeFileSync(
      path.join(folder, 'stops'),
      JSON.stringify({ '*': '{"since":"2026-11-02T00:00:00.000Z","by":"boss"}' }).padEnd(4096),
    );
    const state = openState(folder);
    expect([...state.stops.list()]).toEqual([
      ['*', { since: '2026-11-02T00:00:00.000Z', by: 'boss' }],
      ['chaos', { since: '2026-11-01T00:00:00.000Z', by: 'boss' }],
    ]);
    const refused = state.reserve(
      [{ budget: 'b', scope: 'principal', key: 'p', demands: [{ unit: 'calls', limit: 7, most: 1, least: 1 }] }],
      { wall: Date.now(), monotonic: 1, boot: 'new' },
    );
    expect(refused).toMatchObject({ refused: { left: 0 } });
    state.close();
    expect(STATE_SCHEMA.version).toBe(2);
  });
});

describe('a decision of a person' + verifies('ST-07'), () => {
  it.each(['revoke', 'disable'])('stops a server by name if the database is damaged: %s', async (word) => {
    checkpoint();
    damage(file(), 0);
    const words = word === 'revoke' ? ['revoke', 'chaos'] : ['servers', 'disable', 'chaos'];
    expect(await tollgate(...words)).toMatchObject({
      code: 1,
      err: expect.stringMatching(/chaos was stopped as by tollgate kill/) as string,
    });
    expect(dataOf((await tollgate('kill', '--json')).out)).toMatchObject({ killed: [{ server: 'chaos' }] });
    expect((await tollgate('kill', '--lift', 'chaos')).err).toContain('Lifted for chaos');
  });

  it('keeps a kill that came meanwhile', async () => {
    const stops = new Stops(folder);
    const temporary = { since: '2026-11-23T00:00:00.000Z', by: 'one', id: 'a' };
    expect([stops.putNew('chaos', temporary), stops.putNew('chaos', { ...temporary, id: 'b' })]).toEqual([true, false]);
    await tollgate('kill', 'chaos');
    expect([stops.remove('chaos', temporary), [...stops.list().keys()]]).toEqual([false, ['chaos']]);
    expect((await tollgate('servers', 'disable', 'chaos')).code).toBe(0);
    await new Promise((resolve) => setTimeout(resolve, 2));
    expect([...stops.list().keys()]).toEqual(['chaos']);
    stops.close();
  });

  inFull(
    'is refused while another process holds the lock; the server is stopped by name, and commands that read go on',
    async () => {
      const holder = startFixture('state-holder.mjs', [file()]);
      await holder.line();
      holder.child.stdin?.write('BEGIN IMMEDIATE\n');
      await holder.line();
      holder.child.kill('SIGSTOP');
      const state = openState(folder);
      expect(state.list('grants').size).toBe(500);
      state.close();
      const { code, err } = await tollgate('servers', 'disable', 'chaos');
      expect([code, err]).toEqual([
        1,
        expect.stringMatching(/chaos was stopped as by tollgate kill[^]*kill --lift chaos/),
      ]);
      expect((await tollgate('kill')).err + (await tollgate('kill')).out).toContain('chaos');
      expect((await tollgate('off')).code).toBe(0);
      holder.child.kill('SIGKILL');
      await holder.ended;
      expect((await tollgate('servers', 'disable', 'chaos')).code).toBe(0);
    },
  );

  it('that turns something on again is recorded first, and refused if it cannot be recorded', async () => {
    await tollgate('off');
    await tollgate('kill', 'chaos');
    const audit = path.join(folder, 'audit');
    rmSync(audit, { recursive: true });
    writeFileSync(audit, '');
    expect((await tollgate('on')).code).not.toBe(0);
    expect((await tollgate('kill', '--lift', 'chaos')).code).not.toBe(0);
    const stops = new Stops(folder);
    expect([...stops.list().keys()]).toEqual(['*', 'chaos']);
    stops.close();
    rmSync(audit);
    expect((await tollgate('on')).code).toBe(0);
    expect((await tollgate('kill', '--lift', 'chaos')).code).toBe(0);
  });

  it('is synced to the disk: every transaction of a value, and every stop', () => {
    const synced: string[] = [];
    const { exec } = Libsql.prototype;
    Libsql.prototype.exec = function (this: Libsql.Database, sql: string) {
      if (sql.startsWith('PRAGMA synchronous')) synced.push(sql);
      return exec.call(this, sql);
    } as typeof exec;
    try {
      const state = openState(folder);
      void state.put('grants', 'new', '1');
      expect(synced.at(-1)).toBe('PRAGMA synchronous = FULL');
      void state.reserve(
        [{ budget: 'b', scope: 'run', key: 'r', demands: [{ unit: 'calls', limit: 7, most: 1, least: 1 }] }],
        { wall: 1, monotonic: 1, boot: '' },
      );
      expect(synced.at(-1)).toBe('PRAGMA synchronous = NORMAL');
      for (const write of [
        () => state.take('grants', 'new'),
        () => state.swap('grants', 'a', { to: '1' }),
        () => state.remove('grants', 'a'),
      ]) {
        void write();
        expect(synced.at(-1)).toBe('PRAGMA synchronous = FULL');
      }
      state.close();
    } finally {
      Libsql.prototype.exec = exec;
    }
  });
});

/** Moves everything from the write-ahead log to the file, so that the file alone is read. */
function checkpoint(): void {
  const connection = new Libsql(file());
  connection.exec('PRAGMA wal_checkpoint(TRUNCATE)');
  connection.close();
}

/** Damages one page in the middle, as a write to the wrong place does. */
function damage(at: string, page?: number): void {
  chmodSync(at, 0o600);
  const { size } = statSync(at);
  const fd = openSync(at, 'r+');
  writeSync(fd, Buffer.alloc(4096, 'x'), 0, 4096, (page ?? Math.floor(size / 8192)) * 4096);
  closeSync(fd);
}
