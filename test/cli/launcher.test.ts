/**
 * Tests what a start of the built program loads, and the compiled code that it keeps.
 * Covers: facade/cli.
 */

import { spawnSync } from 'node:child_process';
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { VERSION } from '../../facade/serve/version.ts';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { partOf } from '../harness/slices.ts';
import { Child, MAIN } from '../process/child.ts';
import { verifies } from '../verifies.ts';

const ROOT = path.join(import.meta.dirname, '..', '..');

let scratch: string;

beforeEach(() => {
  scratch = mkdtempSync(path.join(tmpdir(), 'tollgate-launcher-'));
});

afterEach(() => rmSync(scratch, { recursive: true, force: true }));

/** The scripts that processes loaded, from their coverage reports. */
function loadedIn(folder: string): readonly string[] {
  const urls = readdirSync(folder).flatMap((name) => {
    const report = JSON.parse(readFileSync(path.join(folder, name), 'utf8')) as { result: { url: string }[] };
    return report.result.map(({ url }) => url);
  });
  return [...new Set(urls)].map((url) => (url.startsWith('file:') ? path.relative(ROOT, fileURLToPath(url)) : url));
}

describe('a start of the built program', () => {
  it('loads one file to print the version, and no built-in module for programs' + verifies('FP-17'), () => {
    const { stdout } = spawnSync(process.execPath, [MAIN, 'version'], {
      encoding: 'utf8',
      env: { PATH: process.env.PATH, NODE_V8_COVERAGE: scratch },
    });
    expect(stdout).toBe(`tollgate ${VERSION}\n`);
    const loaded = loadedIn(scratch);
    expect(loaded.filter((name) => !name.startsWith('node:'))).toEqual(['dist/facade/main.js']);
    for (const name of ['vm', 'v8', 'crypto', 'net', 'tty', 'worker_threads'])
      expect(loaded).not.toContain(`node:${name}`);
  });

  inFull('serves from one bundle, one file for each thread, and native packages' + verifies('FP-07'), async () => {
    const project = new Project();
    try {
      project.write('workspace/notes.md', '');
      project.write('tollgate.yaml', 'version: 1\nworkspace: ./workspace\nbash: {isolation: direct}\n');
      const child = new Child(project, ['run'], { env: { NODE_V8_COVERAGE: scratch } });
      await child.hello();
      await child.ask('tools/list');
      child.process.stdin.end();
      expect(await child.ended).toEqual({ code: 0, signal: null });
    } finally {
      project.remove();
    }
    const files = loadedIn(scratch).filter((name) => !name.startsWith('node:'));
    const bundles = files.filter((name) => /^dist\/(facade|code)\/[\w-]+\.(js|cjs)$/.test(name));
    expect(bundles.filter((name) => name.startsWith('dist/code/tollgate-'))).toHaveLength(1);
    expect(bundles.length).toBeLessThanOrEqual(4);
    const others = files.filter((name) => !bundles.includes(name));
    // A native package brings a few files that find its binary.
    expect(
      others.filter((name) => !/node_modules\/(libsql|@neon-rs|detect-libc|ajv\/dist\/runtime)\//.test(name)),
    ).toEqual([]);
  });
});

describe('a stack of the bundle', () => {
  it('names the lines of the sources with --enable-source-maps' + verifies('FP-07'), () => {
    const fault = path.join(scratch, 'fault.cjs');
    writeFileSync(
      fault,
      `const fs = require('fs'), read = fs.readFileSync;
fs.readFileSync = (file, ...how) => { if (/policy.wasm$/.test(file)) throw new Error('planted'); return read(file, ...how); };
require('module').syncBuiltinESMExports();`,
    );
    writeFileSync(path.join(scratch, 'tollgate.yaml'), 'version: 1\nworkspace: ./workspace\n');
    mkdirSync(path.join(scratch, 'workspace'));
    const { stderr } = spawnSync(process.execPath, ['--enable-source-maps', '--require', fault, MAIN, 'check'], {
      cwd: scratch,
      encoding: 'utf8',
      env: { PATH: process.env.PATH, HOME: scratch, TOLLGATE_LOG: 'debug' },
    });
    expect(stderr).toMatch(/planted/);
    expect(stderr).toMatch(/policies\/engine\/policy-library\.ts:\d+:\d+/);
  });
});

describe('the compiled code', () => {
  const help = (root: string) =>
    spawnSync(process.execPath, [path.join(root, 'dist/facade/main.js'), '--help'], { encoding: 'utf8' });

  /** A package in another folder, so that its compiled code can be damaged. */
  function copied(): { readonly root: string; readonly kept: () => readonly string[] } {
    for (const part of ['package.json', 'dist/facade/main.js', 'dist/code'])
      cpSync(path.join(ROOT, part), path.join(scratch, part), { recursive: true });
    symlinkSync(path.join(ROOT, 'node_modules'), path.join(scratch, 'node_modules'));
    const folder = path.join(scratch, 'dist/.compiled');
    return { root: scratch, kept: () => readdirSync(folder).map((name) => path.join(folder, name)) };
  }

  inFull('is kept for the next start, and is not written again' + verifies('FP-07'), () => {
    const { root, kept } = copied();
    expect(help(root)).toMatchObject({ status: 0, stderr: '' });
    expect(kept()).toHaveLength(1);
    const [file = ''] = kept();
    const { ino, mode } = statSync(file);
    expect(mode & 0o022).toBe(0);
    expect(help(root)).toMatchObject({ status: 0, stderr: '' });
    expect(statSync(file).ino).toBe(ino);
  });

  const DAMAGES = [
    ['empty', () => Buffer.alloc(0)],
    ['cut off', (code: Buffer) => code.subarray(0, code.length / 2)],
    ['filled with zeros at the end', (code: Buffer) => code.fill(0, code.length / 2)],
    [
      'changed in one byte',
      (code: Buffer) => code.fill(code.readUInt8(code.length - 9) ^ 1, code.length - 9, code.length - 8),
    ],
  ] as const;
  inFull.each(partOf(DAMAGES, 2))('that is %s is ignored and made again' + verifies('FP-07'), (_how, damage) => {
    const { root, kept } = copied();
    const first = help(root);
    const [file = ''] = kept();
    const { ino } = statSync(file);
    writeFileSync(file, damage(readFileSync(file)));
    expect(help(root)).toMatchObject({ status: 0, stderr: '', stdout: first.stdout });
    expect(kept()).toEqual([file]);
    expect(statSync(file).ino).not.toBe(ino);
    expect(help(root)).toMatchObject({ status: 0, stderr: '', stdout: first.stdout });
  });

  it('is not kept where the folder cannot be made, and the program runs all the same', () => {
    const { root } = copied();
    writeFileSync(path.join(root, 'dist/.compiled'), '');
    expect(help(root)).toMatchObject({ status: 0, stderr: '' });
  });
});
