/**
 * Tests that `audit archive` loses no acknowledged record, whenever it or a writer of records is killed.
 * Covers: facade/runtime, facade/call, facade/state.
 */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { type AuditVerdict, verifyAudit } from '../../facade/audit/chain-verification.ts';
import { openAuditReader } from '../../facade/audit/index/audit-reader.ts';
import { createDigest, readAuditKey } from '../../facade/audit/key-files.ts';
import { cli } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { roundsOf } from '../harness/slices.ts';
import { startFixture } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';
import { numbers, TIMES } from './fault-seed.ts';

const MAIN = path.join(import.meta.dirname, '..', '..', 'dist', 'facade', 'main.js');
const ROUNDS = roundsOf(8, 3) * TIMES;
/** Records that a writer has acknowledged at least before an archive begins. */
const ACKNOWLEDGED = 150;
/** The latest moment of a kill, as a multiple of the duration of an archive. */
const LATEST = 1.2;

it(
  'tollgate audit archive loses no acknowledged record, whenever it is killed' + verifies('ST-46'),
  async () => {
    const project = new Project();
    onTestFinished(() => project.remove());
    project.write(
      'tollgate.yaml',
      `version: 1
workspace: ./work
state: ./state
rules: [{id: no, outcome: deny, when: {}}]
`,
    );
    project.write('work/x', '');
    const state = path.join(project.folder, 'state');
    const folder = path.join(state, 'audit');
    const archives = ['one', 'two'].map((name) => path.join(project.folder, name));
    const digest = createDigest(readAuditKey(state));
    const verify = (...others: string[]): AuditVerdict => verifyAudit(folder, [], { archives: others, digest });
    const acknowledged = new Set<string>();
    const next = numbers();
    // The first archive is not killed. It measures how long an archive takes on this machine.
    let durationMs = Infinity;
    for (let round = 0; round < ROUNDS; round += 1) {
      const writer = startFixture('audit-writer.ts', [folder, '1500', '20000']);
      await expect.poll(() => writer.lines.length, { interval: 5, timeout: 60_000 }).toBeGreaterThan(ACKNOWLEDGED);
      const args = [
        MAIN,
        'audit',
        'archive',
        '--before',
        new Date().toISOString(),
        '--to',
        archives[round % 2] ?? '',
        '-c',
        path.join(project.folder, 'tollgate.yaml'),
      ];
      const child = spawn(process.execPath, args, {
        stdio: 'ignore',
        cwd: project.folder,
        env: { ...process.env, HOME: project.home },
      });
      onTestFinished(() => void child.kill('SIGKILL'));
      const before = performance.now();
      const timer = durationMs === Infinity ? undefined : setTimeout(() => child.kill('SIGKILL'), next() * durationMs);
      await new Promise((resolve) => child.once('close', resolve));
      clearTimeout(timer);
      if (durationMs === Infinity) durationMs = LATEST * (performance.now() - before);
      if (round % 2 === 0) writer.child.kill('SIGKILL');
      for (const line of await writer.ended) if (/^\d+\.\d+$/.test(line)) acknowledged.add(line);
      // The next start sets half-written lines aside.
      await cli(project, ['audit', 'archive', '--before', '2020-01-01T00:00:00Z', '--to', archives[0] ?? '']);
      expect(verify(), `round ${round}`).toMatchObject({ ok: true, faults: [] });
    }
    // A folder without a manifest is no archive: every attempt may have been killed before it wrote one.
    const finished = (): string[] => archives.filter((to) => existsSync(path.join(to, 'archive.json')));
    for (const to of archives)
      expect(await cli(project, ['audit', 'archive', '--before', new Date().toISOString(), '--to', to])).toMatchObject({
        code: 0,
        err: expect.not.stringContaining('works on this log') as string,
      });
    expect(verify(...finished())).toMatchObject({ ok: true, faults: [] });
    const found = new Set<string>();
    for (const place of [folder, ...archives]) {
      const reader = openAuditReader(place, ':memory:');
      for (const { record } of reader.all({ type: 'intent' })) found.add((record as { id: string }).id);
      reader.close();
    }
    expect(acknowledged.size).toBeGreaterThan(ROUNDS * 100);
    expect([...acknowledged].filter((id) => !found.has(id))).toEqual([]);
  },
  120_000 * TIMES,
);
