/** Tests how the tests are run: divided work, budgets, skips, what a file asks for, and what a run leaves behind. */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { parse } from 'yaml';
import { isRunning } from '../process/child.ts';
import { installFolder } from '../servers/install.ts';
import { verifies } from '../verifies.ts';
import { dividedFiles, filesInFull } from './files-in-full.ts';
import { excessOf, type FileReport, type RunBudget, unlistedSkips } from './run-report.ts';
import { partOf, RUNS_ALL, roundsOf } from './slices.ts';
import { namesOneOf } from './test-imports.ts';

const HERE = import.meta.dirname;
const ROOT = path.join(HERE, '..', '..');

function folder(): string {
  // Not below TMPDIR: the cleaner ends every process that has the name of its folder in its environment.
  const made = mkdtempSync(path.join(tmpdir(), 'harness-'));
  onTestFinished(() => rmSync(made, { recursive: true, force: true }));
  return made;
}

describe('divided work', () => {
  it('is the first row, the last one and some between them, or everything', () => {
    const rows = Array.from({ length: 100 }, (_, at) => at);
    expect(partOf(rows, 4)).toEqual(RUNS_ALL ? rows : [0, 33, 66, 99]);
    expect(partOf(rows, 1)).toEqual(RUNS_ALL ? rows : [0]);
    expect(partOf(rows.slice(0, 3), 4)).toEqual([0, 1, 2]);
    expect(roundsOf(50, 3)).toBe(RUNS_ALL ? 50 : 3);
  });

  it('is run in full in three parts, each file once', () => {
    const files = dividedFiles();
    const parts = ['1/3', '2/3', '3/3'].map((part) => filesInFull(part) ?? []);
    expect(parts.flat().sort()).toEqual(files);
    expect(files).toContain('test/harness/harness.test.ts');
    expect(parts.map((part) => Math.abs(part.length - files.length / 3) < 1)).toEqual([true, true, true]);
    expect(filesInFull('all')).toBeUndefined();
    expect(() => filesInFull('4/3')).toThrow('TOLLGATE_TESTS is "all", or a part such as "1/3": not "4/3"');
  });
});

describe('a run', () => {
  const file = (processes: Record<string, number>): FileReport => ({ file: 'a', tests: 1, wallMs: 1, processes });

  it(`fails if it starts more processes than its budget, which bounds its time${verifies('HE-19')}`, () => {
    const files = [file({ node: 3, sh: 1 }), file({ node: 2 })];
    expect(excessOf(files, { processes: 6, nodes: 5 })).toEqual([]);
    expect(excessOf(files, { processes: 5, nodes: 4 })).toEqual([
      'This run started 6 processes, and test/harness/budgets.yaml allows 5.',
      'This run started 5 nodes, and test/harness/budgets.yaml allows 4.',
    ]);
    const budgets = parse(readFileSync(path.join(HERE, 'budgets.yaml'), 'utf8')) as Record<string, RunBudget>;
    expect(budgets.part?.processes).toBeLessThanOrEqual(3_000);
  });

  it('fails at the gate for a skipped test whose reason is not listed', () => {
    expect(unlistedSkips(new Map([['no loop devices', 1]]), ['no loop devices'])).toEqual([]);
    expect(unlistedSkips(new Map([['no podman', 2]]), [])).toEqual([
      '2 tests were skipped for a reason that test/harness/skips.yaml does not list: no podman',
    ]);
  });

  it('prepares only what its files ask for, themselves or through others', () => {
    const test = (name: string): string => path.join(ROOT, 'test', name);
    expect(namesOneOf([test('readers/urls.test.ts')], /podman/)).toBe(false);
    expect(namesOneOf([test('sandbox/escape-probes.test.ts')], /TOLLGATE_TEST_IMAGE/)).toBe(true);
  });
});

describe('after a run', () => {
  it('a process that is left is ended and named, and the folder is removed', async () => {
    const place = folder();
    const left = spawn('sleep', ['600'], { env: { ...process.env, MARK: place }, stdio: 'ignore' });
    const cleaner = spawn(process.execPath, [path.join(HERE, 'cleaner.mjs'), place], {
      stdio: ['pipe', 'ignore', 'pipe'],
    });
    let said = '';
    cleaner.stderr.on('data', (text: Buffer) => void (said += text.toString()));
    cleaner.stdin.end();
    expect((await once(cleaner, 'close'))[0]).toBe(0);
    expect(said).toBe(`A process outlived the tests and is ended: ${left.pid} sleep 600\n`);
    expect(existsSync(place)).toBe(false);
    await expect.poll(() => isRunning(left.pid ?? 0)).toBe(false);
  });

  it('that was killed, nothing is left either', async () => {
    const place = folder();
    const code = `const { spawn } = require('node:child_process');
      spawn(process.execPath, [${JSON.stringify(path.join(HERE, 'cleaner.mjs'))}, ${JSON.stringify(place)}], { stdio: ['pipe', 'ignore', 'ignore'], detached: true });
      const left = spawn('sleep', ['600'], { env: { ...process.env, MARK: ${JSON.stringify(place)} }, stdio: 'ignore', detached: true });
      console.log(left.pid); setInterval(() => {}, 1000);`;
    const run = spawn(process.execPath, ['-e', code], { stdio: ['ignore', 'pipe', 'ignore'] });
    const [pid] = (await once(run.stdout, 'data')) as [Buffer];
    run.kill('SIGKILL');
    await expect.poll(() => existsSync(place)).toBe(false);
    await expect.poll(() => isRunning(Number(pid))).toBe(false);
  });
});

describe('bad circumstances are one sentence', () => {
  it('if the servers cannot be installed', async () => {
    const place = folder();
    writeFileSync(path.join(place, 'package-lock.json'), '{}');
    mkdirSync(path.join(place, 'bin'));
    writeFileSync(path.join(place, 'bin', 'npm'), '#!/bin/sh\necho "npm error network is down" >&2\nexit 1\n');
    chmodSync(path.join(place, 'bin', 'npm'), 0o755);
    const said: string[] = [];
    await expect(
      installFolder(place, 'the real servers', (line) => said.push(line), {
        PATH: `${path.join(place, 'bin')}:/bin:/usr/bin`,
      }),
    ).rejects.toThrow(
      'the real servers could not be installed, because npm ended with 1 (npm error network is down). Check the network, and run the tests again.',
    );
  });

  it('if a program is missing and cannot be installed', () => {
    const code = `import { installSystem } from ${JSON.stringify(path.join(ROOT, 'dist/test/servers/system.js'))};
      try { installSystem(() => undefined); } catch (error) { console.log(error.message); }`;
    const place = folder();
    const { stdout } = spawnSync(process.execPath, ['--input-type=module', '-e', code], {
      env: { PATH: place },
      encoding: 'utf8',
    });
    expect(stdout).toMatch(
      /^bubblewrap, .* could not be installed; install by hand: sudo apt-get install bubblewrap .*\n$/,
    );
  });
});
