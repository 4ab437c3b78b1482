/**
 * Tests archives of the log: what may be moved, how verify continues from the manifest and finds later changes, and
 * every step at which a move can stop.
 * Covers: facade/audit.
 */

import fs, { cpSync, existsSync, mkdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { gunzipSync, gzipSync } from 'node:zlib';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { MANIFEST } from '../../facade/audit/archive-manifest.ts';
import { chainFileName } from '../../facade/audit/audit-chain.ts';
import { type AuditLog, openAudit } from '../../facade/audit/audit-log.ts';
import { type ArchiveRequest, archiveAudit } from '../../facade/audit/chain-archive.ts';
import { listParts, readLines } from '../../facade/audit/chain-lines.ts';
import { recoverTorn } from '../../facade/audit/chain-recovery.ts';
import { type AuditVerdict, verifyAudit } from '../../facade/audit/chain-verification.ts';
import { openAuditReader } from '../../facade/audit/index/audit-reader.ts';
import { createDigest, readAuditKey } from '../../facade/audit/key-files.ts';
import { tryLock } from '../../facade/state/process-mark.ts';
import { cli } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { TIMES } from '../faults/fault-seed.ts';
import { inFull } from '../harness/full-tests.ts';
import { roundsOf } from '../harness/slices.ts';
import { startFixture, temporaryFolder } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';
import { DEAD_CHAIN, DEAD_PID, decision, intent, outcome, writeDeadChain } from './sample-log.ts';

const DAY = 86_400_000;
/** Pairs of steps at which a move stops. Each pair syncs files to the disk, so `npm run faults` tries more of them. */
const STRIDE = TIMES > 1 ? 2 : roundsOf(12, 36);
/** The distance of first steps. */
const STEP = TIMES > 1 ? 1 : roundsOf(1, 4);
const NEW_YEAR = Date.UTC(2026, 0, 1);
const at = (day: number): string => new Date(NEW_YEAR + day * DAY).toISOString();
const YOUNG_CHAIN = `20260401T000000000Z-${DEAD_PID}`;

interface World {
  readonly folder: string;
  readonly to: string;
  /** Returns the names of the chain files, in order. */
  files(folder?: string): readonly string[];
  archive(before: string, more?: Partial<ArchiveRequest>): ReturnType<typeof archiveAudit>;
  verify(...archives: readonly string[]): AuditVerdict;
  /** The log of this process: one file for each of four days. */
  readonly live: AuditLog;
}

/**
 * Creates the chain of a dead process in two files of January 1, and the chain of a living process with a file for each
 * of the days 0 to 3.
 */
async function world(): Promise<World> {
  const state = temporaryFolder();
  const [folder, to] = [path.join(state, 'audit'), path.join(state, 'archive')];
  writeDeadChain(folder, [
    [intent('1'), outcome('1')],
    [decision('2'), { type: 'closed' }],
  ]);
  let day = 0;
  const live = openAudit({ folder, rotateBytes: 1e9, now: () => NEW_YEAR + day * DAY });
  onTestFinished(() => live.close());
  for (; day < 4; day += 1) for (let n = 0; n < 3; n += 1) live.append(decision(`day-${day}-${n}`));
  day = 3;
  await live.flush();
  const digest = createDigest(readAuditKey(state));
  return {
    folder,
    to,
    live,
    files: (where = folder) => listParts(where).map(({ name }) => name),
    archive: (before, more = {}) =>
      archiveAudit({ folder, to, before, digest, now: Date.now(), record: () => undefined, ...more }),
    verify: (...archives) => verifyAudit(folder, [], { archives, digest }),
  };
}

const whats = ({ faults }: AuditVerdict): readonly string[] => faults.map(({ what }) => what);

describe('the archive of a log', () => {
  it('gets whole files with only old records, and verify continues from its manifest' + verifies('ST-45'), async () => {
    const { folder, to, files, archive, verify, live } = await world();
    const before = verify();
    expect(before).toMatchObject({ ok: true, chains: [{ records: 16, files: 4 }, { records: 6 }] });
    const all = files();
    expect(archive(at(2))).toEqual({ files: 4, records: 6 + 8 });
    expect(files().length + files(to).length).toBe(all.length);
    expect(files(to)).toEqual([
      ...all.filter((name) => !name.startsWith(DEAD_CHAIN)).slice(0, 2),
      chainFileName(DEAD_CHAIN, 0),
      chainFileName(DEAD_CHAIN, 1),
    ]);
    const verdict = verify();
    expect(verdict).toMatchObject({
      ok: true,
      records: 8,
      chains: [{ from: 9, records: 8, head: live.head, state: 'open' }],
      archives: [{ folder: to, before: at(2), files: 4, records: 14, verified: false }],
    });
    const together = verify(to);
    expect(together).toMatchObject({ ok: true, records: 22, archives: [{ verified: true }] });
    expect(together.chains).toEqual(before.chains);
    // The chain continues normally.
    live.append(decision('later'));
    expect(verify(to)).toMatchObject({ ok: true, records: 23 });
    const reader = openAuditReader(folder, ':memory:');
    expect([...reader.all({ id: 'day-0-1' })]).toEqual([]);
    expect([...reader.all({ id: 'later' })]).toHaveLength(1);
    reader.close();
  });

  it('can get more files later, and another archive can follow it' + verifies('ST-45'), async () => {
    const { to, archive, verify } = await world();
    const second = `${to}-2`;
    expect(archive(at(1))).toMatchObject({ files: 3 });
    expect(archive(at(2))).toMatchObject({ files: 1 });
    expect(verify(to)).toMatchObject({ ok: true, records: 22, archives: [{ files: 4, records: 14 }] });
    expect(archive(at(3), { to: second })).toMatchObject({ files: 1, records: 4 });
    expect(verify(to, second)).toMatchObject({
      ok: true,
      records: 22,
      archives: [{ verified: true }, { verified: true }],
    });
    // Each archive alone, while the other one is missing.
    for (const [archives, records] of [
      [[], 4],
      [[to], 18],
      [[second], 8],
    ] as const)
      expect(verify(...archives)).toMatchObject({ ok: true, records });
    expect(archive(at(3))).toEqual({ files: 0, records: 0 });
  });

  it('never gets the newest file of a living process, however old, nor later files' + verifies('ST-46'), async () => {
    const { folder, files, archive, verify } = await world();
    const writer = startFixture('audit-writer.ts', [folder, '1000000']);
    await writer.line();
    writer.child.kill('SIGSTOP');
    const others = files().filter((name) => name.includes(`-${writer.child.pid}`));
    expect(others).toHaveLength(1);
    expect(archive('2999-01-01T00:00:00.000Z')).toMatchObject({ files: 2 + 3 });
    expect(files()).toEqual(expect.arrayContaining([...others]));
    expect(files()).toHaveLength(2);
    expect(verify()).toMatchObject({ ok: true, chains: [{ state: 'open' }, { state: 'open' }] });
    writer.child.kill('SIGKILL');
    await writer.ended;
    expect(archive('2999-01-01T00:00:00.000Z')).toMatchObject({ files: 1 });
  });

  it('gets a copy of the torn ends that its records name' + verifies('ST-45'), async () => {
    const { folder, to, archive, verify } = await world();
    writeDeadChain(folder, [[decision('torn')]], YOUNG_CHAIN);
    writeFileSync(path.join(folder, `${YOUNG_CHAIN}.jsonl`), '{"half', { flag: 'a' });
    const recoverer = openAudit({ folder, rotateBytes: 1e9, now: () => NEW_YEAR });
    recoverTorn(folder, (entry) => recoverer.append(entry));
    recoverer.append(decision('old'));
    await recoverer.close();
    archive(at(2));
    expect(verify(to)).toMatchObject({ ok: true });
    expect(verify()).toMatchObject({ ok: true });
  });
});

describe('verify after an archive', () => {
  it('still finds each file of the log that was deleted, cut or changed' + verifies('ST-45'), async () => {
    const { folder, to, files, archive, verify } = await world();
    const young = openAudit({ folder, rotateBytes: 1000, now: () => NEW_YEAR + 90 * DAY });
    for (let n = 0; n < 6; n += 1) young.append(decision(`young-${n}`));
    await young.close();
    archive(at(2));
    expect(files().length).toBeGreaterThan(4);
    const whole = `${folder}-whole`;
    cpSync(folder, whole, { recursive: true });
    const last = new Set(
      listParts(folder)
        .filter(({ chain, part }, index, all) => all[index + 1]?.chain !== chain && part > 0)
        .map(({ name }) => name),
    );
    for (const name of files()) {
      const file = path.join(folder, name);
      const bytes = readFileSync(file);
      const harms: readonly (() => void)[] = [
        () => writeFileSync(file, bytes.toString().replace('"ts":"2026', '"ts":"2025')),
        // The end of a chain can be cut off without a trace, as docs/audit.md says.
        ...(last.has(name)
          ? []
          : [
              () => rmSync(file),
              () => truncateSync(file, bytes.lastIndexOf(10, bytes.length - 2) + 1),
              () => writeFileSync(file, ''),
            ]),
      ];
      for (const harm of harms) {
        harm();
        for (const archives of [[], [to]]) expect(verify(...archives), name).toMatchObject({ ok: false });
        writeFileSync(file, bytes);
        expect(verify(to)).toMatchObject({ ok: true });
      }
    }
    // The rest of a chain with archived files cannot disappear completely without a fault.
    for (const name of files().filter((one) => one.startsWith('20260101T'))) rmSync(path.join(folder, name));
    expect(whats(verify())).toEqual([expect.stringContaining('the file is missing')]);
  });

  it(
    'refuses a manifest that is missing, changed, old, signed with another key, or given without its key' +
      verifies('ST-45'),
    async () => {
      const { folder, to, archive, verify } = await world();
      const file = path.join(folder, MANIFEST);
      archive(at(1));
      const older = readFileSync(file);
      archive(at(2));
      const bytes = readFileSync(file, 'utf8');
      const other = createDigest(Buffer.alloc(32, 1));
      const harms: readonly (readonly [() => void, RegExp])[] = [
        [() => rmSync(file), /records are missing/],
        [() => writeFileSync(file, older), /is missing/],
        [() => writeFileSync(file, 'x'), /cannot be read/],
        [() => writeFileSync(file, bytes.replace('"records":14', '"records":13')), /was changed/],
        [() => cpSync(path.join(to, MANIFEST), file), /is missing/],
      ];
      for (const [harm, what] of harms) {
        harm();
        expect(whats(verify()).join('\n')).toMatch(what);
        writeFileSync(file, bytes);
      }
      expect(whats(verifyAudit(folder, [], { digest: other })).join()).toContain('under another key');
      expect(whats(verifyAudit(folder)).join()).toContain('--key FILE');
      expect(verify(to)).toMatchObject({ ok: true });
      expect(() => archive(at(3), { digest: other })).not.toThrow();
      expect(archive(at(3), { digest: other })).toMatchObject({ ok: false });
    },
  );

  it('finds every change to an archive' + verifies('ST-45'), async () => {
    const { folder, to, files, archive, verify } = await world();
    archive(at(1));
    const older = `${to}-older`;
    cpSync(to, older, { recursive: true });
    archive(at(2));
    for (const name of files(to)) {
      const file = path.join(to, `${name}.gz`);
      const bytes = readFileSync(file);
      const changed = (text: string): string => text.replace('"prev":"0', '"prev":"1').replace('allow', 'aloow');
      for (const harm of [
        () => rmSync(file),
        () => truncateSync(file, bytes.length - 1),
        () => writeFileSync(file, gzipSync(changed(gunzipSync(bytes).toString()))),
      ]) {
        harm();
        expect(verify(to), name).toMatchObject({ ok: false });
        writeFileSync(file, bytes);
      }
    }
    expect(whats(verify(older)).join()).toContain('older copy');
    const own = readFileSync(path.join(to, MANIFEST));
    for (const harm of [
      () => rmSync(path.join(to, MANIFEST)),
      () => cpSync(path.join(folder, MANIFEST), path.join(to, MANIFEST)),
    ]) {
      harm();
      expect(verify(to)).toMatchObject({ ok: false });
      writeFileSync(path.join(to, MANIFEST), own);
    }
    expect(verify(to)).toMatchObject({ ok: true });
    // The archive alone is verified like a log.
    expect(verifyAudit(to, [], { digest: createDigest(readAuditKey(path.dirname(folder))) })).toMatchObject({
      ok: true,
      records: 14,
    });
  });
});

describe('a move to an archive', () => {
  inFull(
    'loses nothing if it stops at any step, and the next move completes it, also into another folder' +
      verifies('ST-46'),
    async () => {
      let isDone = false;
      for (let step = 0; !isDone; step += STEP) {
        for (const order of [['to'], ['other', 'to']] as const) {
          const { to, archive, verify } = await world();
          const folders = { to, other: `${to}-other` };
          archive(at(1));
          isDone = !crash(step, () => archive(at(2)));
          expect([verify(), verify(to)], `step ${step}`).toMatchObject([
            { ok: true, faults: [] },
            { ok: true, records: 22, faults: [] },
          ]);
          for (const name of order) archive(at(3), { to: folders[name] });
          expect(verify(...order.map((name) => folders[name])), `step ${step}`).toMatchObject({
            ok: true,
            records: 22,
            faults: [],
          });
          expect(verify()).toMatchObject({ ok: true, records: 4 });
        }
        expect(step).toBeLessThan(100);
      }
    },
  );

  it.each([
    ['new', 0],
    ['that hold files', 1],
  ])(
    'that stops at any step in one folder and then in another leaves both complete and can be finished: folders %s' +
      verifies('ST-46'),
    (_, old) => {
      const place = template();
      let isFirstDone = false;
      for (let first = 0; !isFirstDone; first += STEP) {
        let isSecondDone = false;
        // Each second step is tried with every STRIDE-th first step. Neighbours of a first step get other second steps.
        for (let second = (7 * first) % STRIDE; !isSecondDone; second += STRIDE) {
          const { folders, archive, verify, remove } = copyOf(place);
          const check = (): void => {
            for (const archives of subsets(folders.filter(existsSync)))
              expect(
                verify(...archives),
                `steps ${first}, ${second}, with ${archives.length} of ${folders.length}`,
              ).toMatchObject({ ok: true, faults: [] });
          };
          for (const [index, to] of folders.entries()) archive(at(old * (index + 1)), to);
          isFirstDone = !crash(first, () => archive(at(3), folders[0]));
          check();
          isSecondDone = !crash(second, () => archive(at(3), folders[1]));
          check();
          for (const to of folders) archive(at(4), to);
          check();
          expect(verify(...folders)).toMatchObject({ records: place.records });
          expect(verify().chains).toHaveLength(1);
          remove();
        }
      }
    },
    240_000,
  );

  it(
    'that stops before anything is moved leaves a folder that verifies, once the rest went elsewhere' +
      verifies('ST-46'),
    async () => {
      const { to, archive, verify } = await world();
      const other = `${to}-other`;
      expect(archive(at(3), { to: other })).toMatchObject({ files: 5 });
      expect(archive(at(3))).toEqual({ files: 0, records: 0 });
      expect(verify(to, other)).toMatchObject({ ok: true, records: 22, faults: [] });
      // A folder that was never named is still an error, and so is one that lost its whole content.
      mkdirSync(`${to}-never`);
      expect(whats(verify(`${to}-never`))).toEqual([expect.stringContaining('does not name this archive')]);
      rmSync(other, { recursive: true });
      mkdirSync(other);
      expect(whats(verify(to, other)).join()).toContain('does not name this archive');
    },
  );

  it(
    'is refused if the archive is an old copy or has lost its manifest, because its gaps would look intended' +
      verifies('ST-45'),
    async () => {
      const { to, archive, verify } = await world();
      archive(at(1));
      const older = `${to}-older`;
      cpSync(to, older, { recursive: true });
      archive(at(2));
      expect(() => archive(at(3), { to: older })).toThrow(expect.objectContaining({ code: 'USAGE' }));
      const own = readFileSync(path.join(to, MANIFEST));
      rmSync(path.join(to, MANIFEST));
      expect(() => archive(at(3))).toThrow(expect.objectContaining({ code: 'USAGE' }));
      writeFileSync(path.join(to, MANIFEST), own);
      // An archive may be moved.
      cpSync(to, `${to}-moved`, { recursive: true });
      rmSync(to, { recursive: true });
      expect(archive(at(3), { to: `${to}-moved` })).toMatchObject({ files: 1 });
      expect(verify(`${to}-moved`)).toMatchObject({
        ok: true,
        records: 22,
        archives: [{ folder: `${to}-moved`, files: 5 }],
      });
    },
  );

  it(
    'is refused at once if the log is broken, the record cannot be written, or the folder contains other files' +
      verifies('ST-46'),
    async () => {
      const { folder, to, files, archive, verify } = await world();
      const all = files();
      mkdirSync(to);
      writeFileSync(path.join(to, chainFileName(DEAD_CHAIN, 1)), 'another');
      expect(() => archive(at(2))).toThrow(expect.objectContaining({ code: 'USAGE' }));
      rmSync(to, { recursive: true });
      expect(() =>
        archive(at(2), {
          record: () => {
            throw new Error('full');
          },
        }),
      ).toThrow(expect.objectContaining({ code: 'STATE_FAILED' }));
      rmSync(to, { recursive: true });
      writeFileSync(to, 'a file');
      expect(() => archive(at(2))).toThrow(expect.objectContaining({ code: 'STATE_FAILED' }));
      rmSync(to);
      expect(verify()).toMatchObject({ ok: true, records: 22 });
      expect(verify()).not.toHaveProperty('archives');
      writeFileSync(path.join(folder, chainFileName(DEAD_CHAIN, 1)), 'x\n', { flag: 'a' });
      expect(archive(at(2))).toMatchObject({ ok: false, faults: [{}] });
      expect(files()).toEqual(all);
    },
  );

  it('is refused while another one runs, and only then' + verifies('ST-46'), async () => {
    const { folder, archive } = await world();
    const lock = path.join(folder, 'archive.lock');
    const other = tryLock(lock);
    expect(() => archive(at(2))).toThrow(
      expect.objectContaining({ code: 'STATE_FAILED', message: expect.stringContaining('Another') as string }),
    );
    if (typeof other === 'object') other.close();
    writeFileSync(lock, 'something else');
    expect(() => archive(at(2))).toThrow(
      expect.objectContaining({ code: 'STATE_FAILED', message: expect.stringContaining('cannot be locked') as string }),
    );
    rmSync(lock);
    expect(archive(at(2))).toMatchObject({ files: 4 });
  });
});

/**
 * Creates a log with a dead chain of one file of day 0, and with the chain of this process with a file for each of the
 * days 0 to 4.
 */
function template(): { readonly state: string; readonly records: number } {
  const state = temporaryFolder();
  const folder = path.join(state, 'audit');
  writeDeadChain(folder, [[intent('1')]]);
  let day = 0;
  const log = openAudit({ folder, rotateBytes: 1e9, now: () => NEW_YEAR + day * DAY });
  for (; day < 5; day += 1) log.append(decision(`day-${day}`));
  day = 4;
  void log.close();
  const verdict = verifyAudit(folder);
  expect(verdict).toMatchObject({ ok: true, chains: [{ files: 5 }, { files: 1 }] });
  return { state, records: verdict.records };
}

/** Copies it, with two folders for archives. */
function copyOf(place: ReturnType<typeof template>) {
  const state = temporaryFolder();
  cpSync(place.state, state, { recursive: true });
  const folder = path.join(state, 'audit');
  const digest = createDigest(readAuditKey(state));
  return {
    folder,
    folders: ['one', 'two'].map((name) => path.join(state, name)),
    archive: (before: string, to = '') =>
      archiveAudit({ folder, to, before, digest, now: NEW_YEAR, record: () => undefined }),
    verify: (...archives: readonly string[]) => verifyAudit(folder, [], { archives, digest }),
    remove: () => rmSync(state, { recursive: true }),
  };
}

function subsets(all: readonly string[]): readonly (readonly string[])[] {
  let sets: readonly (readonly string[])[] = [[]];
  for (const one of all) sets = sets.flatMap((set) => [set, [...set, one]]);
  return sets;
}

/**
 * Allows `step` changes of files and lets all later ones fail, as the end of the process would. Returns false if the
 * work was finished before.
 */
function crash(step: number, work: () => unknown): boolean {
  let left = step;
  let isCrashed = false;
  const names = ['copyFileSync', 'renameSync', 'writeFileSync', 'rmSync', 'fsyncSync', 'chmodSync'] as const;
  const spies = names.map((name) => {
    const real = fs[name] as (...args: unknown[]) => unknown;
    return vi.spyOn(fs, name).mockImplementation(((...args: unknown[]) => {
      left -= 1;
      isCrashed ||= left < 0;
      if (isCrashed) throw new Error('crash');
      return real(...args);
    }) as never);
  });
  try {
    work();
  } catch {
    expect(isCrashed).toBe(true);
  } finally {
    for (const spy of spies) spy.mockRestore();
  }
  return isCrashed;
}

describe('tollgate audit archive', () => {
  it('moves files, records who did it, and verify reports where the archive begins' + verifies('ST-45'), async () => {
    const project = new Project();
    onTestFinished(() => project.remove());
    project.write(
      'tollgate.yaml',
      'version: 1\nworkspace: ./work\nstate: ./state\nrules: [{id: no, outcome: deny, when: {}}]\n',
    );
    project.write('work/x', '');
    const [folder, to] = [path.join(project.folder, 'state', 'audit'), path.join(project.folder, 'kept')];
    const head = writeDeadChain(folder, [[intent('1'), outcome('1')], [decision('2')]]);
    const run = (...words: string[]) => cli(project, ['audit', ...words]);
    for (const words of [
      ['--to', 'kept'],
      ['--before', '90d'],
      ['--before', 'soon', '--to', 'kept'],
      ['--before', '1d', '--to', 'work/kept'],
      ['--before', '1d', '--to', 'state/audit'],
      ['--before', '1d', '--to', 'state'],
      ['x', '--before', '1d', '--to', 'kept'],
    ]) {
      expect(await run('archive', ...words), words.join(' ')).toMatchObject({ code: 2, out: '' });
    }
    expect(await run('archive', '--before', '2026-01-01T00:00:00Z', '--to', 'kept')).toMatchObject({
      code: 0,
      out: expect.stringContaining('nothing moved') as string,
    });
    expect(await run('archive', '--before', '2026-02-01T00:00:00Z', '--to', 'kept')).toMatchObject({
      code: 0,
      out: `moved 2 files with 5 records from before 2026-02-01T00:00:00.000Z to ${to}\n`,
    });
    const { out, code } = await run('verify');
    expect(code).toBe(8);
    expect(out.replace(/\s+/g, ' ')).toContain(
      `archived: 2 files, 5 records from before 2026-02-01T00:00:00.000Z, in ${to} (not read; name it with --archive)`,
    );
    expect(await run('verify', '--expect-head', head)).toMatchObject({ code: 3 });
    expect(await run('verify', '--expect-head', head, '--archive', 'kept')).toMatchObject({
      code: 8,
      out: expect.stringContaining(': verified too') as string,
    });
    expect((await run('list', '--type', 'setup')).out).toContain('audit archived by somebody');
    expect((await run('list', '--folder', 'kept')).out).toContain('read (workspace.read)');
    expect((await run('verify', '--folder', 'kept')).code).toBe(3);
    expect(await run('verify', '--folder', 'kept', '--key', 'state/audit.key')).toMatchObject({ code: 8 });
    expect(await run('verify', '--folder', 'kept', '--key', 'nothing')).toMatchObject({ code: 2 });
    const file = path.join(to, `${chainFileName(DEAD_CHAIN, 0)}.gz`);
    const content = gunzipSync(readFileSync(file)).toString();
    writeFileSync(file, gzipSync(content.replace('"id":"1"', '"id":"7"')));
    expect((await run('verify', '--archive', 'kept')).out).toMatch(/the\s+archived file was changed/);
    expect([...readLines(path.join(to, `${chainFileName(DEAD_CHAIN, 1)}.gz`))]).toHaveLength(2);
  });
});
