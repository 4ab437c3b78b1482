/** Tests that edits cause reloads, and which messages a person gets. */
import { mkdirSync, renameSync, rmSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { TollgateError } from '../../catalogs/errors/error-table.ts';
import { Reloader } from '../../facade/runtime/reloader.ts';
import { configure, Reloadable, rules } from './edited-project.ts';

const READ = { id: 'read', outcome: 'allow', when: { verbs: ['read'] } };
const WRITE = { id: 'write', outcome: 'allow', when: { verbs: ['write'] } };
let facade: Reloadable;
let reloader: Reloader;
let told: string[];
let reads: number;

beforeEach(async () => {
  told = [];
  reads = 0;
  facade = new Reloadable({ 'tollgate.yaml': configure(), 'rules.yaml': rules(READ), 'workspace/a.txt': 'a' });
  reloader = await Reloader.open({
    file: facade.at('tollgate.yaml'),
    home: '/home/nobody-at-all',
    inForce: { config: facade.read(), differing: [] },
    listening: false,
    read: () => {
      reads += 1;
      return { config: facade.read(), differing: [] };
    },
    tell: (line) => told.push(line),
    report: (thrown) => told.push((thrown as TollgateError).code),
  });
});
afterEach(async () => {
  await reloader.close();
  await facade.close();
});

const start = async (): Promise<void> => reloader.start((await facade.start()).assembled);
const revision = (): string => facade.assembled.deps.policy().revision.slice(0, 12);

describe('an edit', () => {
  it('takes effect shortly after, and is reported with its revision', async () => {
    await start();
    const before = revision();
    facade.write('rules.yaml', rules(READ, WRITE));
    await expect.poll(() => told, { timeout: 20_000 }).toHaveLength(1);
    expect(revision()).not.toBe(before);
    expect(told[0]).toMatch(new RegExp(`^Reloaded: policy revision ${revision()} is in force, after \\d+ ms\\.$`));
  });

  it('that does not load is reported once, and its correction takes effect', async () => {
    await start();
    const before = revision();
    facade.write('rules.yaml', 'rules: [{id: read, outcome: alow, when: {}}]');
    await expect
      .poll(() => told, { timeout: 20_000 })
      .toEqual([`NOT RELOADED. The previous configuration stays in force, revision ${before}:`, 'POLICY_INVALID']);
    facade.write('rules.yaml', rules(READ, WRITE));
    await expect.poll(() => told, { timeout: 20_000 }).toHaveLength(3);
    expect(revision()).not.toBe(before);
  });

  it('of the folder of servers is noticed: a new file, a broken one, and a removed one', async () => {
    await start();
    const names = (): readonly string[] => [...facade.assembled.config.servers.keys()];
    facade.write('servers/notes.yaml', 'command: node\nprofiles: [default]\n');
    await expect.poll(() => names(), { timeout: 20_000 }).toContain('notes');
    facade.write('servers/notes.yaml', 'command: [');
    await expect.poll(() => told, { timeout: 20_000 }).toHaveLength(3);
    expect([names().includes('notes'), told[2]]).toEqual([true, 'CONFIG_INVALID']);
    rmSync(facade.at('servers'), { recursive: true });
    await expect.poll(() => names(), { timeout: 20_000 }).not.toContain('notes');
  });

  it('that creates a file which tollgate.yaml names is noticed', async () => {
    await start();
    facade.write('tollgate.yaml', configure().replace('[rules.yaml]', '[rules.yaml, more/new.yaml]'));
    await expect.poll(() => told, { timeout: 20_000 }).toHaveLength(2);
    mkdirSync(facade.at('more'));
    facade.write('next', rules(WRITE));
    renameSync(facade.at('next'), facade.at('more/new.yaml'));
    await expect.poll(() => told.at(-1), { timeout: 20_000 }).toMatch(/^Reloaded/);
    expect(await facade.list(facade.open('local'))).toContain('write');
    // From now on this file is watched.
    facade.write('more/new.yaml', rules({ ...WRITE, message: 'Another.' }));
    await expect.poll(() => told.length, { timeout: 20_000 }).toBe(4);
  });

  it('during the start of the facade is not lost', async () => {
    await facade.start();
    facade.write('rules.yaml', rules(READ, WRITE));
    await new Promise((resolve) => setTimeout(resolve, 600));
    expect(told).toEqual([]);
    reloader.start(facade.assembled);
    await expect.poll(() => told, { timeout: 20_000 }).toEqual([expect.stringMatching(/^Reloaded/)]);
    expect(await facade.list(facade.open('local'))).toContain('write');
  });

  it('causes only new notices', async () => {
    facade.write(
      'tollgate.yaml',
      configure('servers: {one: {command: /bin/true, isolation: direct}}\nprofiles: {default: {servers: [one]}}\n'),
    );
    await start();
    facade.write(
      'tollgate.yaml',
      configure(
        'servers: {one: {command: /bin/true, isolation: direct}, two: {command: /bin/true, isolation: ' +
          'direct}}\nprofiles: {default: {servers: [one, two]}}\n',
      ),
    );
    await reloader.now();
    expect(told.slice(-1)).toEqual([expect.stringContaining('one, two')]);
    const known = told.length;
    await reloader.now();
    expect(told.slice(known)).toEqual([expect.stringMatching(/^Reloaded/)]);
  });
});

describe('requests to reload', () => {
  it('run one after the other, and waiting ones become one', async () => {
    await start();
    await Promise.all([reloader.now(), reloader.now(), reloader.now(), reloader.now()]);
    expect(reads).toBeLessThanOrEqual(2);
    const first = reloader.now();
    await new Promise((resolve) => setImmediate(resolve));
    await Promise.all([first, reloader.now(), reloader.now()]);
    expect(reads).toBeLessThanOrEqual(4);
    expect(told.every((line) => line.startsWith('Reloaded'))).toBe(true);
  });

  it('do nothing after the end', async () => {
    await start();
    await reloader.close();
    await reloader.now();
    expect([reads, told]).toEqual([0, []]);
  });
});
