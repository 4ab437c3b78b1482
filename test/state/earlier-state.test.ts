/** Works on a state folder of the last release with one machine, while that release works on it. */
import { randomBytes } from 'node:crypto';
import path from 'node:path';
import Libsql from 'libsql';
import { describe, expect, it, onTestFinished } from 'vitest';
import { instant } from '../../facade/state/budget-clock.ts';
import { openPostgresStore } from '../../facade/state/shared/postgres-store.ts';
import { openRedisStore } from '../../facade/state/shared/redis-store.ts';
import { openSharedState } from '../../facade/state/shared/shared-state.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import { followState } from '../../facade/state/state-follower.ts';
import type { BudgetClaim, State } from '../../facade/state/state-port.ts';
import { cli } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { verifies } from '../verifies.ts';
import { STORE_PASSWORD, startStoreServer } from './store-servers.ts';
import { temporaryFolder } from './temporary-folder.ts';

/** Schema 2 as that release makes it. Never change it: folders in use have it. */
const SCHEMA_2 = `
CREATE TABLE counter (
  budget TEXT NOT NULL, scope TEXT NOT NULL, key TEXT NOT NULL, since INTEGER NOT NULL, touched INTEGER NOT NULL,
  calls INTEGER NOT NULL, argBytes INTEGER NOT NULL, outputBytes INTEGER NOT NULL, wallMs INTEGER NOT NULL,
  monotonic REAL NOT NULL DEFAULT 0, boot TEXT NOT NULL DEFAULT 'none',
  PRIMARY KEY (budget, scope, key)) STRICT, WITHOUT ROWID;
CREATE TABLE value (
  space TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (space, key)) STRICT, WITHOUT ROWID;
CREATE TABLE slot (
  budget TEXT NOT NULL, scope TEXT NOT NULL, key TEXT NOT NULL, lease TEXT NOT NULL, process TEXT NOT NULL,
  PRIMARY KEY (budget, scope, key, lease)) STRICT, WITHOUT ROWID;
CREATE TABLE change (seq INTEGER PRIMARY KEY AUTOINCREMENT, space TEXT NOT NULL, key TEXT NOT NULL) STRICT;
CREATE TRIGGER value_put AFTER INSERT ON value BEGIN
  INSERT INTO change (space, key) VALUES (new.space, new.key); END;
CREATE TRIGGER value_changed AFTER UPDATE ON value BEGIN
  INSERT INTO change (space, key) VALUES (new.space, new.key); END;
CREATE TRIGGER value_removed AFTER DELETE ON value BEGIN
  INSERT INTO change (space, key) VALUES (old.space, old.key); END;
PRAGMA user_version = 2;`;

/** The statements of that release. */
const OLD = {
  put: 'INSERT INTO value VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value',
  get: 'SELECT value FROM value WHERE space = ? AND key = ?',
  remove: 'DELETE FROM value WHERE space = ? AND key = ?',
  swap: 'UPDATE value SET value = ? WHERE space = ? AND key = ? AND value = ?',
  counter: 'SELECT since, monotonic, boot, calls FROM counter WHERE budget = ? AND scope = ? AND key = ?',
  spend: 'UPDATE counter SET calls = calls + ? WHERE budget = ? AND scope = ? AND key = ?',
  slot: 'INSERT INTO slot VALUES (?, ?, ?, ?, ?)',
};

/** One value of each space of that release. */
const SPACES = [
  'approvals',
  'budget-reset',
  'code-runs',
  'connections',
  'consent',
  'consent/changed',
  'context',
  'file-digest',
  'grants',
  'health',
  'labels/r',
  'plan',
  'proposals',
  'requests',
  'revived',
  'runs',
  'seal-keys',
  'trouble',
  'upgrades',
  'waiting',
];
const FRESH = String(Date.now());
const CALLS: BudgetClaim = {
  budget: 'b',
  scope: 'principal',
  key: 'p',
  demands: [{ unit: 'calls', limit: 100, most: 1, least: 1 }],
};

/** Makes the database of that release with its values, and returns a connection of that release to it. */
function earlier(folder: string): Libsql.Database {
  const database = new Libsql(path.join(folder, 'state.db'));
  onTestFinished(() => void database.close());
  database.exec('PRAGMA journal_mode = WAL');
  database.exec(SCHEMA_2);
  for (const space of SPACES) database.prepare(OLD.put).run(space, 'k', FRESH);
  return database;
}

async function opened<T extends State>(opening: Promise<T> | T): Promise<T> {
  const state = await opening;
  onTestFinished(async () => void (await state.close()));
  return state;
}

describe('a state folder of the last release for one machine', () => {
  it(`keeps its version and values, and both work on it at the same time${verifies('FL-34')}`, async () => {
    const folder = temporaryFolder();
    const old = earlier(folder);
    const state = await opened(followState(folder));
    // That release tells other processes of a write in the same way.
    const { stops } = state;
    for (const space of SPACES) expect([space, state.get(space, 'k')]).toEqual([space, FRESH]);
    // Both write the same key in turns; each sees what the other one wrote.
    for (let turn = 0; turn < 50; turn += 1) {
      const [from, next, last] = [turn === 0 ? FRESH : `${turn - 1}.`, `${turn}`, `${turn}.`];
      expect(await state.swap('grants', 'k', { from, to: next })).toBe(true);
      expect(old.prepare(OLD.swap).run(last, 'grants', 'k', next).changes).toBe(1);
      stops.touchValues();
      await state.refresh('exact');
      expect(state.get('grants', 'k')).toBe(last);
    }
    old.prepare(OLD.remove).run('approvals', 'k');
    stops.touchValues();
    expect(await state.take('approvals', 'k')).toBeUndefined();
    await state.put('pins', 'n', '1');
    expect(old.prepare(OLD.get).get('pins', 'n')).toMatchObject({ value: '1' });
    // Both spend one budget.
    const spend = async (): Promise<boolean> => 'reservation' in (await state.reserve([CALLS], instant()));
    expect(await spend()).toBe(true);
    expect(old.prepare(OLD.counter).get('b', 'principal', 'p')).toMatchObject({ calls: 1 });
    old.prepare(OLD.spend).run(98, 'b', 'principal', 'p');
    expect([await spend(), await spend()]).toEqual([true, false]);
    old.prepare(OLD.slot).run('s', 'principal', 'p', 'lease', 'none');
    expect(old.prepare('PRAGMA user_version').get()).toMatchObject({ user_version: 2 });
    const made = temporaryFolder();
    (await opened(openState(made))).close();
    expect(schemaOf(made)).toEqual(schemaOf(folder));
  });
});

/** Returns the tables and triggers of a database, without the difference of spaces. */
function schemaOf(folder: string): readonly string[] {
  const database = new Libsql(path.join(folder, 'state.db'));
  const rows = database.prepare('SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name').all() as {
    sql: string;
  }[];
  database.close();
  return rows.map(({ sql }) => sql.replace(/\s+/g, ' '));
}

describe.each(['redis', 'postgres'] as const)('state migrate into %s', (kind) => {
  it(`takes over the values of a folder once, while they are read${verifies('FL-34')}`, async () => {
    const server = await startStoreServer(kind);
    onTestFinished(() => server.remove());
    const project = new Project();
    onTestFinished(() => project.remove());
    process.env.STORE_OF_TEST = STORE_PASSWORD;
    const namespace = `t${randomBytes(6).toString('hex')}`;
    const access = server.access(namespace);
    const folder = path.join(project.home, 's');
    project.write('~/s/README', '');
    earlier(folder);
    const reader = await opened(followState(folder));
    const place = `{folder: ~/s, store: '${access.url}', password: secret:store, namespace: ${namespace}}`;
    project.write(
      'tollgate.yaml',
      `version: 1\nworkspace: .\nstate: ${place}\nsecrets: {store: {env: STORE_OF_TEST}}\n`,
    );
    let reads = 0;
    const timer = setInterval(() => (reads += reader.get('consent', 'k') === FRESH ? 1 : Number.NaN), 1);
    const first = await cli(project, ['state', 'migrate', '--json']);
    clearInterval(timer);
    expect([first.code, first.err]).toEqual([0, '']);
    expect(JSON.parse(first.out)).toMatchObject({ from: 0, kept: SPACES.length });
    expect(reads).toBeGreaterThan(0);
    expect((await cli(project, ['state', 'check'])).code).toBe(0);
    const store = kind === 'redis' ? openRedisStore(access) : openPostgresStore(access);
    const state = await opened(openSharedState({ folder: temporaryFolder(), store }));
    for (const space of SPACES) expect([space, state.get(space, 'k')]).toEqual([space, FRESH]);
    // What was revoked since then does not come back, and what was changed stays.
    await state.remove('grants', 'k');
    await state.put('plan', 'k', 'new');
    expect(JSON.parse((await cli(project, ['state', 'migrate', '--json'])).out)).toMatchObject({ kept: 0 });
    await state.refresh('exact');
    expect([state.get('grants', 'k'), state.get('plan', 'k')]).toEqual([undefined, 'new']);
    // A take-over that was interrupted goes on.
    await state.remove('taken-over', '');
    await state.remove('consent', 'k');
    expect(JSON.parse((await cli(project, ['state', 'migrate', '--json'])).out)).toMatchObject({ kept: 2 });
    expect((await cli(project, ['state', 'check'])).code).toBe(0);
  }, 60_000);
});
