/** Tests the commands on the logs of a fleet: verify, heads, retire, and questions to collected logs. */

import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path, { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { type Answer, cli } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { temporaryFolder } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';
import { appendChain, Fleet, publishHead, type SampleReplica, START, sealReplica } from './fleet-logs.ts';

const VERIFIER = path.join(import.meta.dirname, '..', '..', 'docs', 'verify-audit.py');

/** A project over the shared state of a fleet. */
class FleetProject {
  readonly project = new Project();
  readonly collected = join(this.project.folder, 'logs');
  readonly fleet: Fleet;

  private constructor(fleet: Fleet) {
    this.fleet = fleet;
    this.project.write('tollgate.yaml', `version: 1\nworkspace: ./work\nstate: ${fleet.stateFolder}\n`);
    this.project.write('work/x', '');
    onTestFinished(() => this.project.remove());
  }

  static async make(): Promise<FleetProject> {
    const made = new FleetProject(await Fleet.make());
    made.collect();
    return made;
  }

  /** Copies the logs, as `kubectl cp` does. */
  collect(): void {
    cpSync(this.fleet.folder, this.collected, { recursive: true });
  }

  audit(...words: readonly string[]): Promise<Answer> {
    return cli(this.project, ['audit', ...words]);
  }
}

const plain = (text: string): string => text.replaceAll(/\s+/g, ' ');

describe('tollgate audit verify, over the logs of a fleet', () => {
  it('proves all, and says what it compared' + verifies('FL-12'), async () => {
    const one = await FleetProject.make();
    const answer = await one.audit('verify', '--folder', 'logs', '--heads');
    expect(answer).toMatchObject({
      code: 0,
      out: expect.stringMatching(
        /^REPLICA +RECORDS +SIGNED[^]*\ngw-2 +20 +20 [^]*3 logs, 60 records, compared with 3 published heads: nothing was changed\nverified: every record is signed\n$/,
      ),
    });
    expect(plain(answer.err)).toContain('name keys that you noted elsewhere with --public-key');
    expect(Math.max(...`${answer.out}${answer.err}`.split('\n').map((line) => line.length))).toBeLessThanOrEqual(100);
    const folders = ['gw-1', 'gw-2', 'gw-3'].flatMap((name) => ['--folder', `logs/${name}`]);
    expect(await one.audit('verify', ...folders, '--heads')).toMatchObject({ code: 0 });
    // Without heads the keys are not known, and a missing log is not found.
    const alone = await one.audit('verify', '--folder', 'logs');
    expect(alone).toMatchObject({ code: 8, out: expect.stringContaining('key unknown') });
    expect(plain(alone.err)).toContain('found only with --heads');
  });

  it('names what is missing, and says what to do' + verifies('FL-12'), async () => {
    const one = await FleetProject.make();
    const heads = (await one.audit('heads', '--json')).out;
    one.project.write('heads.json', heads);
    rmSync(join(one.collected, 'gw-3'), { recursive: true });
    const [file = ''] = readdirSync(join(one.collected, 'gw-1', 'audit')).filter((name) => name.endsWith('.jsonl'));
    const chain = join(one.collected, 'gw-1', 'audit', file);
    writeFileSync(chain, readFileSync(chain, 'utf8').split('\n').slice(0, 4).join('\n'));
    for (const from of [['--heads'], ['--heads', 'heads.json']]) {
      const answer = await one.audit('verify', '--folder', 'logs', ...from);
      expect(answer.code).toBe(3);
      expect(plain(answer.out)).toMatch(
        /replica gw-3: its log is missing: it had published 20 records by .* and ended/,
      );
      expect(plain(answer.out)).toContain('If it is lost, record that: tollgate audit retire gw-3 --lost.');
      expect(plain(answer.out)).toMatch(/replica gw-1: 7 records of its log are missing or were changed, from after/);
      expect(answer.out).toMatch(/\n2 logs, \d+ records, compared with 3 published heads: 2 findings\n$/);
      expect(Math.max(...answer.out.split('\n').map((line) => line.length))).toBeLessThanOrEqual(100);
    }
    const asJson = await one.audit('verify', '--folder', 'logs', '--heads', '--json');
    expect(JSON.parse(asJson.out)).toMatchObject({
      ok: false,
      complete: false,
      heads: 3,
      findings: [
        { kind: 'missing', replica: 'gw-3', records: 20, since: expect.any(String) },
        { kind: 'changed', replica: 'gw-1', records: expect.any(Number), since: expect.any(String) },
      ],
    });
    // One replica alone.
    const second = ['verify', '--folder', 'logs/gw-2', '--heads'];
    expect(await one.audit(...second)).toMatchObject({ code: 3 });
    expect(await one.audit(...second, '--replica', 'gw-2')).toMatchObject({ code: 0 });
  });

  it('uses keys and checkpoints that were kept elsewhere' + verifies('FL-12'), async () => {
    const one = await FleetProject.make();
    const heads = JSON.parse((await one.audit('heads', '--json')).out) as { key: string; note: string }[];
    const keys = heads.flatMap(({ key }) => ['--public-key', key]);
    const answer = await one.audit('verify', '--folder', 'logs', '--heads', ...keys);
    expect(answer).toMatchObject({ code: 0, err: '' });
    one.project.write('kept', heads[2]?.note ?? '');
    const kept = ['--checkpoint', 'kept', ...keys];
    expect(await one.audit('verify', '--folder', 'logs', ...kept)).toMatchObject({ code: 0 });
    rmSync(join(one.collected, 'gw-3'), { recursive: true });
    const missing = await one.audit('verify', '--folder', 'logs', ...kept);
    expect(missing).toMatchObject({ code: 3, out: expect.stringContaining('replica gw-3: the log of 20 records') });
  });

  it('refuses what needs one log, and heads that are none' + verifies('FL-12'), async () => {
    const one = await FleetProject.make();
    for (const words of [['checkpoint'], ['prove', '00000000-0000']])
      expect(await one.audit(...words, '--folder', 'logs')).toMatchObject({
        code: 2,
        err: expect.stringContaining('There are 3 logs in this folder'),
      });
    expect(await one.audit('verify', '--folder', 'logs', '--archive', 'logs')).toMatchObject({ code: 2 });
    one.project.write('heads.json', '{}');
    expect(await one.audit('verify', '--folder', 'logs', '--heads', 'heads.json')).toMatchObject({ code: 3 });
    expect(await one.audit('verify', '--folder', 'logs', '--heads', 'gone.json')).toMatchObject({ code: 2 });
  });

  inFull('leaves logs that docs/verify-audit.py verifies one by one' + verifies('FL-12'), async () => {
    const one = await FleetProject.make();
    const heads = JSON.parse((await one.audit('heads', '--json')).out) as {
      replica: string;
      key: string;
      note: string;
    }[];
    expect(heads).toHaveLength(3);
    for (const { replica, key, note } of heads) {
      const kept = join(temporaryFolder(), 'note');
      writeFileSync(kept, note);
      const log = join(one.collected, replica, 'audit');
      const run = spawnSync('python3', [VERIFIER, log, '--key', key, '--checkpoint', kept], { encoding: 'utf8' });
      expect(run).toMatchObject({ status: 0, stdout: expect.stringMatching(/^20 of 20 records of tollgate\.local/) });
    }
  });
});

describe('tollgate audit heads and retire', () => {
  it('shows each head until an owner retires it, which is recorded' + verifies('FL-11'), async () => {
    const one = await FleetProject.make();
    expect((await one.audit('heads')).out).toMatch(
      /^REPLICA +RECORDS +PUBLISHED[^]*\ngw-2 +20 +\S+ +ended +tollgate\.local/,
    );
    expect(await one.audit('retire', 'gw-1')).toMatchObject({ code: 2, err: expect.stringContaining('--folder') });
    expect(await one.audit('retire', '--lost')).toMatchObject({ code: 2 });
    expect(await one.audit('retire', 'gw-9', '--lost')).toMatchObject({
      code: 2,
      err: expect.stringContaining('No head is of the replica gw-9; did you mean'),
    });
    // A log that is shorter than its head is not retired.
    const second = one.fleet.replicas[1] as SampleReplica;
    await appendChain(second, { from: START + 7_200_000, count: 1 });
    sealReplica(second);
    await publishHead(one.fleet.state, second);
    const some = await one.audit('retire', '--folder', 'logs');
    expect(some).toMatchObject({ code: 3, err: expect.stringMatching(/replica gw-2: 4 records are missing/) });
    expect(plain(some.err)).toContain('Retired: gw-1 (20 records), gw-3 (20 records).');
    expect(JSON.parse((await one.audit('heads', '--json')).out)).toMatchObject([{ replica: 'gw-2', size: 24 }]);
    expect(await one.audit('retire', 'gw-2', '--lost')).toMatchObject({ code: 0 });
    expect(JSON.parse((await one.audit('heads', '--json')).out)).toEqual([]);
    const recorded = JSON.parse((await one.audit('list', '--type', 'proof', '--json')).out) as Record<
      string,
      unknown
    >[];
    expect(recorded.filter(({ event }) => event === 'retired')).toMatchObject([
      { of: 'gw-1', count: 20, reason: 'verified', by: expect.any(String) },
      { of: 'gw-3', count: 20, reason: 'verified' },
      { of: 'gw-2', count: 24, reason: 'lost' },
    ]);
  });

  it('names a head that does not count, until it is retired' + verifies('FL-11'), async () => {
    const one = await FleetProject.make();
    await one.fleet.state.put('audit-heads', 'gw-4/x', 'nothing');
    expect(await one.audit('heads')).toMatchObject({ code: 3, err: expect.stringContaining('replica gw-4') });
    expect(await one.audit('retire', 'gw-4', '--lost')).toMatchObject({ code: 0 });
    expect(await one.audit('heads')).toMatchObject({ code: 0 });
  });
});

describe('questions to collected logs', () => {
  it('are answered over all of them, in the order of time' + verifies('FL-13'), async () => {
    const one = await FleetProject.make();
    const listed = await one.audit('list', '--folder', 'logs', '--limit', '5');
    expect(listed.out).toMatch(/^TIME[^\n]*REPLICA\n/);
    expect(listed.err).toContain('Older ones: --before');
    const asJson = async (...words: string[]) =>
      JSON.parse((await one.audit('list', '--folder', 'logs', '--json', ...words)).out) as Record<string, string>[];
    const all = await asJson('--limit', '100');
    expect(all).toHaveLength(24);
    expect(all.map(({ ts }) => ts)).toEqual(all.map(({ ts }) => ts).sort());
    expect(await asJson('--replica', 'gw-3')).toHaveLength(8);
    expect(await one.audit('list', '--folder', 'logs', '--replica', 'gw-33')).toMatchObject({
      err: expect.stringContaining('did you mean "gw-3"?'),
    });
    const [first] = all;
    expect((await one.audit('show', String(first?.id), '--folder', 'logs')).out).toContain('replica ');
    const csv = (await one.audit('export', '--format', 'csv', '--folder', 'logs')).out.split('\r\n');
    expect(csv[0]).toMatch(/,replica$/);
    expect(csv.filter((line) => line.endsWith(',gw-2'))).toHaveLength(20);
    mkdirSync(join(one.project.folder, 'empty'));
    expect(await one.audit('verify', '--folder', 'empty')).toMatchObject({ code: 8 });
  });
});
