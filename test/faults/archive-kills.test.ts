/** Tests archives under kill -9: of the command at any moment and of processes that write, the log verifies after each, and at the end every record that was acknowledged is in one place. */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { openAuditReader } from '../../facade/audit/audit-reader.ts';
import { type AuditVerdict, verifyAudit } from '../../facade/audit/chain-verification.ts';
import { createDigest, readAuditKey } from '../../facade/audit/key-files.ts';
import { cli } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { startFixture } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';
import { numbers, TIMES } from './fault-seed.ts';

const MAIN = path.join(import.meta.dirname, '..', '..', 'dist', 'facade', 'main.js');
const ROUNDS = 8 * TIMES;
/** How much longer than an archive takes the kill may come, in times. */
const LATEST = 1.2;

it(
  'loses nothing that was acknowledged, whenever it is killed' + verifies('ST-46'),
  async () => {
    const project = new Project();
    onTestFinished(() => project.remove());
    project.write(
      'tollgate.yaml',
      'version: 1\nworkspace: ./work\nstate: ./state\nrules: [{id: no, outcome: deny, when: {}}]\n',
    );
    project.write('work/x', '');
    const state = path.join(project.folder, 'state');
    const folder = path.join(state, 'audit');
    const archives = ['one', 'two'].map((name) => path.join(project.folder, name));
    const digest = createDigest(readAuditKey(state));
    const verify = (...with_: string[]): AuditVerdict => verifyAudit(folder, [], { archives: with_, digest });
    const acknowledged = new Set<string>();
    const next = numbers();
    // The first one is not killed: a kill is to come at any moment of the work, however fast the machine is.
    let mostMs = Infinity;
    for (let round = 0; round < ROUNDS; round += 1) {
      const writer = startFixture('audit-writer.ts', [folder, '1500', '20000']);
      const words = [
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
      const child = spawn(process.execPath, words, {
        stdio: 'ignore',
        cwd: project.folder,
        env: { ...process.env, HOME: project.home },
      });
      onTestFinished(() => void child.kill('SIGKILL'));
      const before = performance.now();
      const timer = mostMs === Infinity ? undefined : setTimeout(() => child.kill('SIGKILL'), next() * mostMs);
      await new Promise((resolve) => child.once('close', resolve));
      clearTimeout(timer);
      if (mostMs === Infinity) mostMs = LATEST * (performance.now() - before);
      if (round % 2 === 0) writer.child.kill('SIGKILL');
      for (const line of await writer.ended) if (/^\d+\.\d+$/.test(line)) acknowledged.add(line);
      // What is half a line is put aside at the next start, as after any kill.
      await cli(project, ['audit', 'archive', '--before', '2020-01-01T00:00:00Z', '--to', archives[0] ?? '']);
      expect(verify(), `round ${round}`).toMatchObject({ ok: true, faults: [] });
    }
    // An archive is one when it has a checkpoint: all moves to a folder may have been killed before.
    const made = (): string[] => archives.filter((to) => existsSync(path.join(to, 'checkpoint.json')));
    for (const to of archives)
      expect(await cli(project, ['audit', 'archive', '--before', new Date().toISOString(), '--to', to])).toMatchObject({
        code: 0,
        err: expect.not.stringContaining('works on this log') as string,
      });
    expect(verify(...made())).toMatchObject({ ok: true, faults: [] });
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
