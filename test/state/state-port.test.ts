/**
 * Tests the state over SQLite: values, seals and announcements.
 * Covers: facade/state.
 */
import { execFileSync } from 'node:child_process';
import { chmodSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import Libsql from 'libsql';
import { describe, expect, it } from 'vitest';
import { openDatabase } from '../../facade/state/database.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import type { BudgetClaim, State } from '../../facade/state/state-port.ts';
import { momentAt, temporaryFolder } from './temporary-folder.ts';

const CALLS: BudgetClaim = {
  budget: 'b',
  scope: 'run',
  key: 'r',
  demands: [{ unit: 'calls', limit: 3, most: 1, least: 1 }],
};

function refusedBy(state: State, claims: readonly BudgetClaim[], now = 0): unknown {
  const answer = state.reserve(claims, momentAt(now)) as Awaited<ReturnType<State['reserve']>>;
  return 'refused' in answer ? answer.refused : undefined;
}

describe('the state database', () => {
  it('is private: its folder has mode 0700, its files 0600', () => {
    const folder = join(temporaryFolder(), 'state');
    const state = openState(folder);
    expect(statSync(folder).mode & 0o777).toBe(0o700);
    for (const name of readdirSync(folder))
      expect([name, statSync(join(folder, name)).mode & 0o777]).toEqual([name, 0o600]);
    void state.close();
  });

  it('makes the file of a database private', () => {
    const folder = temporaryFolder();
    writeFileSync(join(folder, 'state.db'), '');
    chmodSync(join(folder, 'state.db'), 0o644);
    void openState(folder).close();
    expect(statSync(join(folder, 'state.db')).mode & 0o777).toBe(0o600);
  });

  it('is refused if a newer Tollgate wrote it', () => {
    const folder = temporaryFolder();
    void openState(folder).close();
    const raw = new Libsql(join(folder, 'state.db'));
    raw.exec('PRAGMA user_version = 99');
    raw.close();
    expect(() => openState(folder)).toThrow(expect.objectContaining({ code: 'STATE_TOO_NEW' }));
  });

  it('reports a file that is not a database, without its path', () => {
    const folder = temporaryFolder();
    writeFileSync(join(folder, 'state.db'), 'not a database '.repeat(500));
    expect(() => openState(folder)).toThrow(
      expect.objectContaining({ code: 'STATE_FAILED', message: expect.not.stringContaining(folder) }),
    );
  });

  it('fails if its folder cannot be made', () => {
    const file = join(temporaryFolder(), 'file');
    writeFileSync(file, '');
    expect(() => openState(join(file, 'state'))).toThrow(expect.objectContaining({ code: 'STATE_FAILED' }));
  });

  it('refuses work after close, which libsql would do', () => {
    const state = openState(temporaryFolder());
    void state.close();
    void state.close();
    expect(() => state.get('a', 'b')).toThrow(expect.objectContaining({ code: 'STATE_FAILED' }));
    expect(() => state.reserve([CALLS], momentAt(0))).toThrow(expect.objectContaining({ code: 'STATE_FAILED' }));
  });

  it('keeps values by space, also after a restart', () => {
    const folder = temporaryFolder();
    const state = openState(folder);
    void state.put('grants', 'k', '1');
    void state.put('grants', 'k', '2');
    void state.put('grants', 'a', 'é');
    void state.put('pins', 'k', '3');
    void state.remove('pins', 'none');
    void state.close();
    const again = openState(folder);
    expect(again.get('grants', 'k')).toBe('2');
    expect(again.get('grants', 'none')).toBeUndefined();
    expect([...(again.list('grants') as Map<string, string>)]).toEqual([
      ['a', 'é'],
      ['k', '2'],
    ]);
    void again.remove('pins', 'k');
    expect(again.get('pins', 'k')).toBeUndefined();
    void again.close();
  });

  it('keeps its writes when another connection and another process have closed the database', () => {
    const folder = temporaryFolder();
    const kept = openState(folder);
    void kept.put('grants', 'a', '1');
    void openState(folder).close();
    const main = join(import.meta.dirname, '..', '..', 'dist', 'facade', 'state', 'sqlite-state.js');
    const look = (): string =>
      execFileSync(
        process.execPath,
        [
          '--input-type=module',
          '-e',
          `import { openState } from ${JSON.stringify(main)}; const state = ` +
            `openState(${JSON.stringify(folder)}); ` +
            "process.stdout.write([...state.list('grants').keys()].join()); state.close();",
        ],
        { encoding: 'utf8' },
      );
    expect(look()).toBe('a');
    void kept.put('grants', 'b', '2');
    expect(look()).toBe('a,b');
    void kept.close();
  });

  it('takes and swaps a value atomically, and only the expected one', () => {
    const folder = temporaryFolder();
    const [one, two] = [openState(folder), openState(folder)];
    expect(one.swap('approvals', 'k', { to: '1' })).toBe(true);
    expect(two.swap('approvals', 'k', { to: '2' })).toBe(false);
    expect(two.swap('approvals', 'k', { from: '2', to: '3' })).toBe(false);
    expect(two.swap('approvals', 'k', { from: '1', to: '3' })).toBe(true);
    expect(two.swap('approvals', 'none', { from: '1', to: '3' })).toBe(false);
    expect(one.take('approvals', 'k', '1')).toBeUndefined();
    expect(one.take('approvals', 'k', '3')).toBe('3');
    expect(two.take('approvals', 'k')).toBeUndefined();
    void one.put('approvals', 'k', 'any');
    expect([two.take('approvals', 'k'), one.take('approvals', 'k')]).toEqual(['any', undefined]);
    void one.close();
    void two.close();
  });

  it('refuses text with NUL, which libsql would cut off', () => {
    const state = openState(temporaryFolder());
    expect(() => state.put('grants', 'a\u0000b', '1')).toThrow(expect.objectContaining({ code: 'STATE_FAILED' }));
    expect(() => state.put('grants', 'a', '1\u00002')).toThrow(expect.objectContaining({ code: 'STATE_FAILED' }));
    expect((state.list('grants') as Map<string, string>).size).toBe(0);
    void state.close();
  });

  it('rolls a transaction back completely, and is writable afterwards', () => {
    const database = openDatabase(':memory:', { version: 1, sql: 'CREATE TABLE t (a INTEGER NOT NULL) STRICT' });
    const insert = database.run('INSERT INTO t VALUES (?)');
    const count = database.first<{ n: number }>('SELECT count(*) AS n FROM t');
    expect(() => database.transact(() => [insert(1), insert(1.5)])).toThrow(
      expect.objectContaining({ code: 'STATE_FAILED' }),
    );
    expect(count()?.n).toBe(0);
    expect(database.transact(() => insert(7))).toBe(1);
    expect(count()?.n).toBe(1);
    expect(() => database.all('SELEC')).toThrow(expect.objectContaining({ code: 'STATE_FAILED' }));
    database.close();
  });
});

describe('a reservation', () => {
  it('takes all of its claims or none', () => {
    const state = openState(temporaryFolder());
    const spent: BudgetClaim = { ...CALLS, budget: 'spent', demands: [{ unit: 'calls', limit: 0, most: 1, least: 1 }] };
    for (let n = 0; n < 5; n += 1)
      expect(refusedBy(state, [CALLS, spent])).toMatchObject({ claim: spent, unit: 'calls', limit: 0, left: 0 });
    for (let n = 0; n < 3; n += 1) expect(refusedBy(state, [CALLS])).toBeUndefined();
    expect(refusedBy(state, [CALLS])).toMatchObject({ limit: 3, left: 0 });
    void state.close();
  });

  it('names a spent budget before a busy one, because waiting would not help', () => {
    const state = openState(temporaryFolder());
    const busy: BudgetClaim = { budget: 'busy', scope: 'run', key: 'r', demands: [], concurrent: 1 };
    expect(refusedBy(state, [busy])).toBeUndefined();
    const spent: BudgetClaim = { ...CALLS, demands: [{ unit: 'calls', limit: 0, most: 1, least: 1 }] };
    expect(refusedBy(state, [busy, spent])).toMatchObject({ unit: 'calls' });
    expect(refusedBy(state, [busy])).toMatchObject({ unit: 'concurrent' });
    void state.close();
  });

  it('is removed when its run ends, or after 30 days', () => {
    const folder = temporaryFolder();
    const state = openState(folder, { now: 0 });
    const lasting: BudgetClaim = { ...CALLS, scope: 'principal' };
    for (let n = 0; n < 3; n += 1) refusedBy(state, [CALLS, lasting]);
    void state.endScope('run', 'other');
    expect(refusedBy(state, [CALLS])).toBeDefined();
    void state.endScope('run', 'r');
    for (let n = 0; n < 3; n += 1) expect(refusedBy(state, [CALLS])).toBeUndefined();
    void state.close();
    const later = openState(folder, { now: 31 * 86_400_000 });
    expect(refusedBy(later, [CALLS])).toBeUndefined();
    expect(refusedBy(later, [lasting])).toBeDefined();
    void later.close();
  });
});
